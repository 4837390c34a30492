"""Scores beside the paper's: which number, in which unit, within which sd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from adaptbin.config import Hyperparameters
from adaptbin.errors import DataError
from sweeps.service.paper import finetune_scores, linear_probe_scores
from sweeps.service.report_scores import (
    alternatives_frame,
    scores_frame,
    variance_frame,
    within_frame,
)
from tests.service.report_folders import (
    REDUCED,
    ablation_tables,
    alternatives_table,
    benchmark_table,
    finetune_tables,
    lost,
    masking_tables,
    sensitivity_tables,
    sources_of,
    variance_tables,
    write_study,
)

OURS = "adaptive/none/Ours"


def row_of(scores: pd.DataFrame, name: str, **other: Any) -> dict[str, Any]:
    rows = scores[scores["name"] == name]
    for column, value in other.items():
        rows = rows[rows[column] == value]
    (row,) = rows.to_dict("records")
    return row


def test_table_1_of_the_benchmark(tmp_path: Path) -> None:
    shifts = {OURS: -0.0059, "fixed/none/BR": 0.0301}
    write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc", shifts)})
    scores = scores_frame(sources_of(tmp_path, "hfc"))
    assert list(scores["name"]) == list(linear_probe_scores()), "in the paper's order"
    row = row_of(scores, OURS)
    assert (row["paper_mean"], row["paper_sd"]) == (93.25, 0.6)
    assert [row[name] for name in ("mean", "sd", "gap")] == pytest.approx([92.66, 0.4, -0.59])
    assert row["within_paper_sd"] and row["setting"] == "chosen on validation: T 10"
    other = row_of(scores, "fixed/none/BR")
    assert other["gap"] == pytest.approx(3.01) and not other["within_paper_sd"]
    assert row_of(scores, "none/none/VR")["setting"] == "nothing to choose"
    assert row_of(scores, "none/random/MX")["setting"] == "chosen on validation: p_m 0.2"
    assert within_frame(scores).to_dict("records") == [
        {"table": 1, "protocol": "full", "compared": 13, "within": 12, "cannot_tell": 0}
    ]


def test_errors_stay_in_target_units(tmp_path: Path) -> None:
    write_study(tmp_path, "benchmark", "pt", {"table": benchmark_table("pt", {OURS: 0.2})})
    row = row_of(scores_frame(sources_of(tmp_path, "pt")), OURS)
    assert [row[name] for name in ("paper_mean", "mean", "sd", "gap")] == pytest.approx([14.27, 14.47, 0.004, 0.2])
    assert not row["within_paper_sd"] and row["metric"] == "rmse"


def test_what_rounding_may_hide_is_counted_apart(tmp_path: Path) -> None:
    write_study(tmp_path, "benchmark", "bfp", {"table": benchmark_table("bfp", {"none/none/VR": 0.04, OURS: 0.06})})
    scores = scores_frame(sources_of(tmp_path, "bfp"))
    near, far = row_of(scores, "none/none/VR"), row_of(scores, OURS)
    assert near["paper_sd"] == far["paper_sd"] == 0.0
    assert (near["within_paper_sd"], near["may_be_within"]) == (False, True)
    assert (far["within_paper_sd"], far["may_be_within"]) == (False, False)
    assert within_frame(scores)[["compared", "within", "cannot_tell"]].values.tolist() == [[13, 11, 1]]


def test_what_is_missing_has_no_row_and_what_diverged_counts(tmp_path: Path) -> None:
    changed = {"fixed/none/BR": lost("missing"), OURS: lost("diverged"), "none/none/VR": {"n_diverged": 2}}
    write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc", **changed)})
    scores = scores_frame(sources_of(tmp_path, "hfc"))
    assert "fixed/none/BR" not in set(scores["name"])
    row = row_of(scores, OURS)
    assert row["n"] == 0 and row["n_diverged"] == 3 and not row["within_paper_sd"]
    chosen = row_of(scores, "none/none/VR")
    assert chosen["setting"] == "nothing to choose; 2 replicas of other candidates diverged"
    assert chosen["n_diverged"] == 0 and chosen["within_paper_sd"]
    assert within_frame(scores)[["compared", "within"]].values.tolist() == [[12, 11]]


def test_table_3_of_the_ablation(tmp_path: Path) -> None:
    write_study(tmp_path, "ablation", "ctg", ablation_tables("ctg", {"w/o DIGS": -0.01}))
    scores = scores_frame(sources_of(tmp_path, "ctg"))
    assert list(scores["name"]) == ["full", "w/o FWA", "w/o FPT", "w/o DIGS", "w/o HORD"]
    assert row_of(scores, "w/o DIGS")["gap"] == pytest.approx(-1.0)
    assert list(scores["within_paper_sd"]) == [True, True, True, False, True]
    default = "default point, not tuned: masking none, T 2"
    changes = ["", "", "; refine_every = 6", "; split_score = variance", ""]
    assert list(scores["setting"]) == [default + change for change in changes]


def test_table_4_of_the_fine_tuning(tmp_path: Path) -> None:
    frames = finetune_tables("hfc", {"ResNet/BR": -0.03}, **{"TabNet/MR": {"n": 8, "n_diverged": 2}})
    write_study(tmp_path, "finetune", "hfc", frames)
    scores = scores_frame(sources_of(tmp_path, "hfc"))
    assert list(scores["name"]) == list(finetune_scores()), "in the paper's order"
    assert set(scores["table"]) == {4} and set(scores["role"]) == {"primary"}
    row = row_of(scores, "ResNet/BR")
    assert (row["paper_mean"], row["paper_sd"]) == (90.96, 0.9)
    assert [row[name] for name in ("mean", "sd", "gap")] == pytest.approx([87.96, 0.2, -3.0])
    assert row["setting"] == "not tuned: none, T 2" and not row["within_paper_sd"]
    assert row_of(scores, "MLP/Ours")["setting"] == "chosen on validation: none, T 2"
    assert row_of(scores, "MLP/supervised")["setting"] == "not pretrained"
    assert row_of(scores, "TabNet/MR")["n_diverged"] == 2 and not row_of(scores, "TabNet/MR")["within_paper_sd"]
    assert within_frame(scores).to_dict("records") == [
        {"table": 4, "protocol": "full", "compared": 20, "within": 18, "cannot_tell": 0}
    ]


def test_fine_tuning_in_both_orders_of_labels_and_on_a_data_set_that_table_4_lacks(tmp_path: Path) -> None:
    write_study(tmp_path, "finetune", "eol", finetune_tables("eol"))
    scores = scores_frame(sources_of(tmp_path, "eol"))
    other = row_of(scores, "MLP/Ours", metric="qwk_alphabetical")
    assert (other["role"], other["n"], other["gap"]) == ("exploratory", 3, pytest.approx(-1.1))
    assert len(scores) == 40 and within_frame(scores)["compared"].to_list() == [20]
    lacking = {name: frame.assign(dataset="ctg", metric="accuracy") for name, frame in finetune_tables("hfc").items()}
    write_study(tmp_path, "finetune", "ctg", lacking)
    assert scores_frame(sources_of(tmp_path, "ctg")).empty


def test_a_point_with_a_diverged_seed_is_not_within(tmp_path: Path) -> None:
    frames = ablation_tables("ctg")
    frames["points"].loc[1, ["n", "n_diverged"]] = [9, 1]
    write_study(tmp_path, "ablation", "ctg", frames)
    row = row_of(scores_frame(sources_of(tmp_path, "ctg")), "w/o FWA")
    assert row["gap"] == pytest.approx(0) and row["n_diverged"] == 1 and not row["within_paper_sd"]


def test_a_point_that_has_not_run_has_no_row(tmp_path: Path) -> None:
    frames = ablation_tables("ctg")
    frames["points"].loc[1, ["n", "n_diverged"]] = [0, 0]
    write_study(tmp_path, "ablation", "ctg", frames)
    assert "w/o FWA" not in set(scores_frame(sources_of(tmp_path, "ctg"))["name"])


def test_the_default_of_the_sensitivity_study_in_both_orders_of_labels(tmp_path: Path) -> None:
    differences = {("tau", 1e-3): -0.02, ("patience", 50.0): 0.01}
    write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", differences))
    scores = scores_frame(sources_of(tmp_path, "eol"))
    row = row_of(scores, OURS, metric="qwk")
    assert row["role"] == "primary" and row["gap"] == pytest.approx(0) and row["n"] == 10
    other = row_of(scores, OURS, metric="qwk_alphabetical")
    # Three replicas of the default, each once though two panels have them: .01, .011 and .012 lower.
    assert other["role"] == "exploratory" and other["n"] == 3
    assert (other["gap"], other["sd"]) == (pytest.approx(-1.1), pytest.approx(0.1))
    assert within_frame(scores)["compared"].to_list() == [1], "what is exploratory is not counted"


def test_a_default_that_was_chosen_says_so(tmp_path: Path) -> None:
    point = Hyperparameters(masking="random", mask_prob=0.3, t_init=10)
    told = {"defaults": {"hfc": point.to_dict()}, "choices": {"hfc": {}}}
    write_study(tmp_path, "sensitivity", "hfc", sensitivity_tables("hfc", {("tau", 1e-3): 0.0}), **told)
    row = row_of(scores_frame(sources_of(tmp_path, "hfc")), "adaptive/random/Ours")
    assert row["setting"] == "default point, chosen on validation: masking random, p_m 0.3, T 10"


def test_the_choice_of_the_masking_study(tmp_path: Path) -> None:
    write_study(tmp_path, "masking", "hfc", masking_tables("hfc"))
    scores = scores_frame(sources_of(tmp_path, "hfc"))
    row = row_of(scores, "adaptive/random/Ours")
    assert len(scores) == 1 and row["mean"] == pytest.approx(96.88)
    assert row["setting"] == "chosen on validation: p_m 0.3, T 2"


def test_a_number_that_several_studies_ran_counts_once_and_reduced_ones_apart(tmp_path: Path) -> None:
    write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc", {"adaptive/random/Ours": 0.1})})
    write_study(tmp_path, "masking", "hfc", masking_tables("hfc"))
    write_study(tmp_path, "sensitivity", "hfc", sensitivity_tables("hfc", {("tau", 1e-3): 0.0}), notes=[REDUCED])
    scores = scores_frame(sources_of(tmp_path, "hfc"))
    assert list(scores.loc[scores["name"] == "adaptive/random/Ours", "study"]) == ["benchmark", "masking"]
    assert within_frame(scores).values.tolist() == [[1, "full", 13, 12, 0], [1, REDUCED, 1, 1, 0]]


def test_a_data_set_that_the_paper_lacks_has_no_row(tmp_path: Path) -> None:
    frames = {name: frame.assign(dataset="breast_cancer") for name, frame in ablation_tables("hfc").items()}
    write_study(tmp_path, "ablation", "breast_cancer", frames)
    assert scores_frame(sources_of(tmp_path, "breast_cancer")).empty


def test_alternatives_have_one_row_each(tmp_path: Path) -> None:
    write_study(tmp_path, "alternatives", "hfc", alternatives_table("hfc"))
    trees, forest = alternatives_frame(sources_of(tmp_path, "hfc")).to_dict("records")
    assert (trees["name"], trees["n"], trees["mean"], trees["val_mean"]) == ("trees", 1, 75.0, 85.0)
    assert pd.isna(trees["sd"]) and not trees["depends_on_seed"]
    assert (forest["n"], forest["mean"], forest["sd"]) == (2, pytest.approx(75.0), pytest.approx(50**0.5))


def test_variance_components_stand_beside_the_scores_of_their_seeds(tmp_path: Path) -> None:
    place = write_study(tmp_path, "variance", "hfc", variance_tables("hfc"))
    split, pretraining, probe = variance_frame(sources_of(tmp_path, "hfc")).to_dict("records")
    assert [row["name"] for row in (split, pretraining, probe)] == ["split", "pretraining", "probe"]
    assert (split["sd"], split["n"], split["n_diverged"], split["mean"]) == (0, 9, 1, pytest.approx(87.0))
    names = ("sd", "sd_low", "sd_high", "share", "mean", "sd_of_scores", "paper_sd")
    assert [pretraining[name] for name in names] == pytest.approx([3.0, 0.1, 20.0, 36.0, 92.0, 5.0, 0.6])
    assert (probe["mean"], probe["setting"]) == (pytest.approx(91.0), "default point, not tuned: masking none, T 2")
    (place / "points.csv").unlink()
    with pytest.raises(DataError, match=r"must have components.csv and points.csv, got .*hfc"):
        variance_frame(sources_of(tmp_path, "hfc"))
