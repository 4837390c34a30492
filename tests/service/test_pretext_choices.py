"""What a benchmark chose for each objective: over all maskings, as a file, and under which conditions it is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from sweeps.service.captions_benchmark import objectives_text, refinement_text
from sweeps.service.choice import CHOOSING_STUDY, Choice, write_choice
from sweeps.service.methods import PRETEXTS, BenchmarkStudy, Method, candidate_words
from sweeps.service.pretext_choices import PretextChoices, pretext_choices_for, read_choices, write_choices
from sweeps.service.tables_benchmark import BenchmarkTables, benchmark_tables
from tests.service.synthetic import METRIC_OF, make_benchmark_records, seeds

Score = Callable[[str, Method, Hyperparameters, int], tuple[float, float] | None]


def scores(dataset: str, method: Method, point: Hyperparameters, seed: int) -> tuple[float, float]:
    """Validation likes random masking, p_m .3 and T 10; test likes the opposite."""
    liked = 0.02 * (point.masking == "random") + 0.01 * (point.mask_prob == 0.3) + 0.005 * (point.t_init == 10)
    sign = -1 if METRIC_OF[dataset] == "rmse" else 1
    return 0.8 + sign * (liked + 0.001 * seed), 0.8 - sign * liked


def benchmark(dataset: str = "eol", score: Score = scores, drop: int = 0) -> tuple[BenchmarkTables, BenchmarkStudy]:
    study = BenchmarkStudy(cards=(get_card(dataset),), seeds=seeds(3))
    records = make_benchmark_records(study, score)
    return benchmark_tables(records[: len(records) - drop], study, METRIC_OF[dataset]), study


def choices_of(dataset: str = "eol", score: Score = scores, drop: int = 0) -> PretextChoices:
    tables, study = benchmark(dataset, score, drop)
    return PretextChoices.of(tables.objectives, study, METRIC_OF[dataset])


def taken(choices: PretextChoices, objective: Any = "BR", dataset: str = "eol", **changes: Any) -> Choice:
    usual = {"protocol": Protocol(), "epochs": 1000, "seeds_vary": "pretrain", "metric": METRIC_OF[dataset]}
    return choices.take(objective, get_card(dataset), **{**usual, **changes})


@pytest.mark.parametrize("dataset", ["eol", "bfp"])
def test_each_objective_is_chosen_over_all_its_maskings_on_validation(dataset: str) -> None:
    made = choices_of(dataset).made
    assert list(made) == list(PRETEXTS)
    for objective, choice in made.items():
        point = choice.hyperparameters
        has_bins = objective in ("BR", "Ours")
        assert (point.pretext, point.masking, point.mask_prob) == (PRETEXTS[objective], "random", 0.3)
        assert point.t_init == (10 if has_bins else 2)
        assert choice.points_compared == {"VR": 7, "MX": 6, "MR": 6, "BR": 14, "Ours": 14}[objective]
        assert (choice.seeds, choice.metric, choice.dataset) == ((0, 1, 2), METRIC_OF[dataset], dataset)
    sign = -1 if dataset == "bfp" else 1
    np.testing.assert_allclose(made["BR"].val_mean, 0.8 + sign * (0.035 + 0.001))


def test_ties_go_to_the_simplest_candidate_of_any_method() -> None:
    made = choices_of(score=lambda *_: (0.9, 0.8)).made
    none, constant = {"masking": "none", "mask_prob": 0.0}, {"masking": "constant", "mask_prob": 0.1}
    wanted = {"VR": none, "MX": constant, "MR": constant, "BR": none, "Ours": none}
    for objective, choice in made.items():
        assert choice.hyperparameters == Hyperparameters(pretext=PRETEXTS[objective], **wanted[objective])


def test_what_is_missing_or_diverged_is_left_out_and_told() -> None:
    def lost(dataset: str, method: Method, point: Hyperparameters, seed: int) -> tuple[float, float] | None:
        gone = method.objective == "MX" or (method.objective, point.masking) == ("BR", "random")
        return None if gone else scores(dataset, method, point, seed)

    tables, study = benchmark(score=lost, drop=1)
    choices = PretextChoices.of(tables.objectives, study, "qwk")
    assert choices.made.keys() == {"VR", "MR", "BR"} and choices.undecided == {
        "MX": "every point has a diverged seed",
        "Ours": "1 of 14 points lack results: adaptive/random/Ours, p_m 0.3, T_init 10 (seed 2)",
    }
    assert choices.made["BR"].hyperparameters.masking == "constant" and choices.made["BR"].points_diverged == 6
    assert objectives_text(tables) == (
        "Chosen for each objective, over all its maskings: VR random, p_m 0.3; MR random, p_m 0.3; "
        "BR constant, p_m 0.3, T 10. Nothing is chosen for MX: every point has a diverged seed. "
        "Nothing is chosen for Ours: 1 of 14 points lack results: adaptive/random/Ours, p_m 0.3, T_init 10 (seed 2)."
    )
    assert [part.split()[0] for part in refinement_text(tables).split(": ", 1)[1].split("; ")] == ["none", "constant"]
    for objective, reason in choices.undecided.items():
        with pytest.raises(ConfigError, match="a choice must have been made for .* of eol, got none: ") as caught:
            taken(choices, objective)
        assert str(caught.value).endswith(f"for {objective} of eol, got none: {reason}")


def test_choices_survive_their_file(tmp_path: Path) -> None:
    choices = choices_of(drop=1)
    path = write_choices(choices, tmp_path)
    back = read_choices(path)
    assert back == choices and list(back.made) == ["VR", "MX", "MR", "BR"]
    assert path == tmp_path / "choices.json" and str(tmp_path) not in path.read_text()
    assert {choice.path for choice in back.made.values()} == {path}


@pytest.mark.parametrize(
    ("dataset", "changes", "message"),
    [
        ("hfc", {}, "made for the data set of .*, hfc, got eol in"),
        ("eol", {"protocol": Protocol.named("released")}, "made for the protocol .*, label_order alphabetical"),
        ("eol", {"epochs": 60}, "made for the budget .*, epochs 60, got epochs 1000 in"),
        ("eol", {"seeds_vary": "split"}, "made for the seeds-vary .*, split, got pretrain in"),
        ("eol", {"metric": "accuracy"}, "made for the metric .*, accuracy, got qwk in"),
    ],
)
def test_other_conditions_are_refused(tmp_path: Path, dataset: str, changes: dict[str, Any], message: str) -> None:
    choices = read_choices(write_choices(choices_of(), tmp_path))
    assert taken(choices).hyperparameters.pretext == "bin_recon"
    with pytest.raises(ConfigError, match=f"a choice must be {message}"):
        taken(choices, dataset=dataset, **changes)


def test_another_table_or_architecture_is_refused_and_probes_are_not() -> None:
    choices = choices_of()

    def with_br(**changes: Any) -> PretextChoices:
        return replace(choices, made={**choices.made, "BR": replace(choices.made["BR"], **changes)})

    with pytest.raises(ConfigError, match="made for the table fingerprint"):
        taken(with_br(fingerprint="0" * 64))
    with pytest.raises(ConfigError, match="made for the architecture .*, width 128, got width 8"):
        taken(with_br(architecture=replace(get_card("eol").architecture, width=8)))
    with pytest.raises(ConfigError, match="made for the pretext .*, bin_recon, got adaptive_binning"):
        taken(with_br(hyperparameters=Hyperparameters()))
    assert taken(with_br(budget=Budget(probe_epochs=7, probes=1))).val_mean == choices.made["BR"].val_mean


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"schema": 2}, "schema of choices must be 1, got 2 in"),
        ({"more": 1}, "written, with schema, choices and undecided, got"),
        ({"choices": {"XX": {}}}, "unknown objective 'XX'"),
        ({"choices": {"BR": {}}}, "it must hold architecture"),
        ({"choices": []}, "choices must be a file that benchmark.py has written, got"),
        ({"undecided": {"Our": "?"}}, "unknown objective 'Our'; did you mean 'Ours'"),
    ],
)
def test_files_that_hold_no_choices_are_refused(tmp_path: Path, edit: dict[str, Any], message: str) -> None:
    path = write_choices(choices_of(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(ConfigError, match=message):
        read_choices(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match="choices must be a file that benchmark.py has written, got"):
        read_choices(path)


def test_what_the_masking_study_chose_is_not_enough(tmp_path: Path) -> None:
    """It would tune ours alone, and leave those that it is compared with as they are."""
    choice = write_choice(choices_of().made["Ours"], tmp_path / CHOOSING_STUDY / "eol")
    for named in (tmp_path, choice):
        options: Any = SimpleNamespace(choice_from=named)
        with pytest.raises(ConfigError, match="tunes every pretext alike, got what masking.py chose, for adaptive bin"):
            pretext_choices_for(options, [get_card("eol")], ("MR", "BR", "Ours"))
    options = SimpleNamespace(choice_from=tmp_path / "masking")
    with pytest.raises(ConfigError, match="choice-from must be a choices.json, or a folder that holds benchmark/eol"):
        pretext_choices_for(options, [get_card("eol")], ("BR",))


def test_candidates_in_words() -> None:
    point = Hyperparameters(masking="random", mask_prob=0.2, t_init=10)
    assert candidate_words("Ours", point) == "Ours random, p_m 0.2, T_init 10"
    assert candidate_words("MR", replace(point, pretext="mask_xent_value_recon")) == "MR random, p_m 0.2"
    assert candidate_words("VR", Hyperparameters(pretext="value_recon")) == "VR none"
