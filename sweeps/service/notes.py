"""How a study departs from the paper's protocol, and what its seeds are, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from adaptbin.config import Budget, Finetuning, Hyperparameters, Protocol
from sweeps.service.choice import CHOSEN_FIELDS, PAPERS_POINTS, Choice
from sweeps.service.points import Study

PAPER_SEEDS = 10

POINT = "Default point"
PRETEXTS_OF = "Pretexts of"
"""How notes begin that tell which points were trained."""

_VARIES = {
    "pretrain": "the seed changes initial weights, batch order, dropout, corruption and probes; the split is fixed",
    "probe": "the seed changes the probes only; all share one pretraining and one split",
    "split": "the seed changes the split, the pretraining and the probes",
}


_FROM_SCRATCH = "the seed changes initial weights, batch order and dropout; the split is fixed"


def protocol_notes(study: Study) -> tuple[str, ...]:
    """How a study departs from the paper's protocol, one sentence each; empty when it does not."""
    notes = []
    paper = Budget()
    amounts = [(len(study.seeds), PAPER_SEEDS, "seed")]
    if study.budget.epochs:  # nothing is pretrained in a study of none
        amounts.append((study.budget.epochs, paper.epochs, "pretraining epoch"))
    if study.finetuning is None:
        amounts.append((study.budget.probe_epochs, paper.probe_epochs, "probe epoch"))
        amounts.append((study.budget.probes, paper.probes, "probe"))
    else:
        amounts.append((study.finetuning.epochs, Finetuning().epochs, "fine-tuning epoch"))
    changed = [f"{got} {what}{'' if got == 1 else 's'} (full: {full})" for got, full, what in amounts if got != full]
    if changed:
        reduced = any(got < full for got, full, _ in amounts)
        notes.append(f"{'Reduced' if reduced else 'Changed'} protocol: {', '.join(changed)}")
    if study.seeds_vary != "pretrain":
        scored = "probes" if study.finetuning is None else "fine-tuning"
        notes.append({"probe": f"Seeds vary the {scored} only", "split": "Seeds vary the split too"}[study.seeds_vary])
    for title, got, usual in (
        ("Departures", study.protocol, Protocol()),
        (POINT, study.default, Hyperparameters()),
    ):
        differing = [
            f"{field.name} {getattr(got, field.name)}"
            for field in fields(got)
            if getattr(got, field.name) != getattr(usual, field.name)
        ]
        if differing:
            notes.append(f"{title}: {', '.join(differing)}")
    for dataset, choice in study.choices.items():
        point = ", ".join(f"{name} {getattr(choice.hyperparameters, name)}" for name in CHOSEN_FIELDS)
        notes.append(f"{POINT} of {dataset}, chosen on validation with {basis_of_choice(choice, study.seeds)}: {point}")
    return (*notes, *study.notes)


def is_departure(note: str) -> bool:
    """Whether a note of :func:`protocol_notes` tells of a departure from the paper.

    What validation chose for a data set is none, for so does the paper.
    """
    return not note.startswith((f"{POINT} of ", PRETEXTS_OF))


def seeds_and_probes(study: Study) -> str:
    """``10 seeds (each the mean of 5 linear probes; the seed changes ...)``."""
    probes = f"each the mean of {study.budget.probes} linear probes" if study.budget.probes > 1 else "one probe each"
    varies = _VARIES[study.seeds_vary]
    if study.finetuning is not None:
        probes, varies = "one fine-tuned model each", varies.replace("probes", "fine-tuning")
    if not study.budget.epochs and study.seeds_vary == "pretrain":
        varies = _FROM_SCRATCH
    return f"{len(study.seeds)} seed{'s' if len(study.seeds) > 1 else ''} ({probes}; {varies})"


def basis_of_choice(choice: Choice, seeds: Sequence[int]) -> str:
    """``the same seeds``, or those that a choice was made with and those of the study that takes it over.

    For a choice of adaptive binning from another grid than the paper's also how many points that had.
    """
    same = set(choice.seeds) == set(seeds)
    told = "the same seeds" if same else f"{named_seeds(choice.seeds)} (here {named_seeds(seeds)})"
    others = choice.points_compared != PAPERS_POINTS and choice.hyperparameters.pretext == "adaptive_binning"
    return f"{told} among {choice.points_compared} points (full: {PAPERS_POINTS})" if others else told


def named_seeds(seeds: Sequence[int]) -> str:
    """``seed 9``, ``seeds 6 to 9``, ``seeds 3, 5, 8``."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"
