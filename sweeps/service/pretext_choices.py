"""What the benchmark chose for each objective of a data set, as one file: masking, p_m and T of its best candidate.

Every objective is chosen in the same way, on validation over all its maskings, p_m and T, so that a study that compares
pretexts takes all of them over alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.config import Hyperparameters, Protocol, SeedsVary
from adaptbin.errors import ConfigError, unknown
from sweeps.service.choice import CHOICE_FILE, CHOOSING_STUDY, Choice, choice_from_dict, path_of_choice
from sweeps.service.decision import Decision, choice_of
from sweeps.service.files import write_text
from sweeps.service.methods import BENCHMARK, PRETEXTS, BenchmarkStudy, Objective

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.points import DatasetCard

CHOICES_SCHEMA = 1
"""Layout of the file."""

CHOICES_FILE = "choices.json"

_WHAT = "choices must be a file that benchmark.py has written"


@dataclass(frozen=True, kw_only=True)
class PretextChoices:
    """The choices of one data set."""

    made: Mapping[Objective, Choice]
    undecided: Mapping[Objective, str]
    """Objective for which nothing could be chosen -> why."""

    @classmethod
    def of(
        cls, decisions: Mapping[Objective, Decision[Hyperparameters]], study: BenchmarkStudy, metric: str
    ) -> PretextChoices:
        """What a benchmark of one data set decided."""
        made, undecided = {}, {}
        for objective, decision in decisions.items():
            choice = choice_of(decision, study, metric)
            if choice is None:
                undecided[objective] = decision.reason
            else:
                made[objective] = choice
        return cls(made=made, undecided=undecided)

    def take(
        self,
        objective: Objective,
        card: DatasetCard,
        *,
        protocol: Protocol,
        epochs: int,
        seeds_vary: SeedsVary,
        metric: str,
    ) -> Choice:
        """The choice of an objective for a study of ``card`` under these conditions, with any encoder and no probes.

        Raises ConfigError where nothing was chosen, or under other conditions; of the budget only the pretraining
        ``epochs`` count, and the architecture is the data set's own, for all encoders alike.
        """
        if objective not in self.made:
            raise ConfigError(
                f"a choice must have been made for {objective} of {card.key}, got none: {self._why(objective)}"
            )
        choice = self.made[objective]
        choice.require_fit(
            card,
            protocol=protocol,
            budget=replace(choice.budget, epochs=epochs),
            seeds_vary=seeds_vary,
            metric=metric,
            pretext=PRETEXTS[objective],
        )
        return choice

    def _why(self, objective: Objective) -> str:
        return self.undecided.get(objective, "the file does not name it")


def write_choices(choices: PretextChoices, folder: Path) -> Path:
    """Write ``choices.json`` under ``folder``, atomically."""
    told = {
        "schema": CHOICES_SCHEMA,
        "choices": {objective: choice.to_dict() for objective, choice in choices.made.items()},
        "undecided": dict(choices.undecided),
    }
    return write_text(folder / CHOICES_FILE, json.dumps(told, indent=2, allow_nan=False) + "\n")


def read_choices(path: Path) -> PretextChoices:
    """The choices in a file.  Raises ConfigError when it does not hold whole ones of this schema."""
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{_WHAT}, got {path}: {error}") from error
    if not isinstance(parts, dict) or parts.keys() != {"schema", "choices", "undecided"}:
        raise ConfigError(f"{_WHAT}, with schema, choices and undecided, got {path}")
    if parts["schema"] != CHOICES_SCHEMA:
        raise ConfigError(f"schema of choices must be {CHOICES_SCHEMA}, got {parts['schema']!r} in {path}")
    try:
        made = {_objective(name): choice_from_dict(choice, path) for name, choice in parts["choices"].items()}
        undecided = {_objective(name): str(reason) for name, reason in parts["undecided"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{_WHAT}, got {path}: {error}") from error
    return PretextChoices(made=made, undecided=undecided)


def _objective(name: Any) -> Objective:
    if name not in PRETEXTS:
        raise ConfigError(unknown("objective", name, PRETEXTS))
    known: Objective = name
    return known


def _path_for(named: Path, card: DatasetCard) -> Path:
    """The file for a data set.  Raises ConfigError where there is none, or only what the masking study chose."""
    if (named.is_file() and named.name == CHOICE_FILE) or (named / CHOOSING_STUDY / card.key / CHOICE_FILE).is_file():
        theirs = named / BENCHMARK / card.key / CHOICES_FILE
        if not theirs.is_file():
            raise ConfigError(
                f"{_WHAT}, which tunes every pretext alike, got what masking.py chose, for adaptive binning alone, in "
                f"{named}"
            )
    return path_of_choice(named, BENCHMARK, card.key, CHOICES_FILE)


def pretext_choices_for(
    options: Options, cards: Iterable[DatasetCard], objectives: Iterable[Objective]
) -> dict[str, dict[Objective, Choice]]:
    """Per data set and objective the choice that ``--choice-from`` names; empty without the option.

    Raises ConfigError when there is none for one of them, or when it was made under other conditions.
    """
    if options.choice_from is None:
        return {}
    objectives, found = tuple(objectives), {}
    for card in cards:
        choices = read_choices(_path_for(options.choice_from, card))
        found[card.key] = {
            objective: choices.take(
                objective,
                card,
                protocol=options.protocol,
                epochs=options.budget.epochs,
                seeds_vary=options.seeds_vary,
                metric=options.primary[card.key],
            )
            for objective in objectives
        }
    return found
