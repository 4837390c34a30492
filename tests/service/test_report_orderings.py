"""Which of the paper's orderings hold, and how they are counted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.service.report_orderings import counts_frame, orderings_frame
from sweeps.service.stats import IDENTICAL_MARK
from tests.service.report_folders import (
    REDUCED,
    ablation_tables,
    benchmark_table,
    contrast,
    finetune_tables,
    lost,
    sensitivity_tables,
    sources_of,
    write_study,
)


def by_name(orderings: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in orderings.to_dict("records")}


def bin_recon(masking: str) -> str:
    return f"adaptive/{masking}/Ours against fixed/{masking}/BR"


@pytest.mark.parametrize(("dataset", "sign", "scale"), [("eol", 1, 100), ("pt", -1, 1)])
def test_ours_against_bin_recon_with_the_same_masking(tmp_path: Path, dataset: str, sign: int, scale: int) -> None:
    worse = {"adaptive/none/Ours": -sign * 5.0}
    write_study(tmp_path, "benchmark", dataset, {"table": benchmark_table(dataset, worse)})
    rows = by_name(orderings_frame(sources_of(tmp_path, dataset)))
    assert list(rows) == [bin_recon(masking) for masking in ("none", "constant", "random")]
    for name, row in rows.items():
        shift = -5.0 * scale if name == bin_recon("none") else 0.0
        assert row["difference"] == pytest.approx(row["paper_difference"] + shift)
        assert row["holds"] == ("yes" if row["difference"] > 0 else "no")
    assert rows[bin_recon("none")]["holds"] == "no"
    assert rows[bin_recon("random")]["paper_difference"] == pytest.approx({"eol": 5.04, "pt": 4.39}[dataset])
    assert not any(row["tested"] for row in rows.values())


def test_the_papers_own_exception_is_counted(tmp_path: Path) -> None:
    """On eol with constant masking the paper's BinRecon is ahead."""
    write_study(tmp_path, "benchmark", "eol", {"table": benchmark_table("eol")})
    (row,) = counts_frame(orderings_frame(sources_of(tmp_path, "eol"))).to_dict("records")
    assert (row["compared"], row["hold"], row["fail"]) == (3, 2, 1)
    assert (row["paper_compared"], row["paper_hold"]) == (3, 2)


def test_a_tie_of_two_methods_does_not_hold(tmp_path: Path) -> None:
    tie = {"adaptive/none/Ours": {"mean": 0.1 + 0.2}, "fixed/none/BR": {"mean": 0.3}}
    write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc", **tie)})
    row = by_name(orderings_frame(sources_of(tmp_path, "hfc")))[bin_recon("none")]
    assert row["difference"] == 0 and row["holds"] == "no"


def test_methods_without_a_choice(tmp_path: Path) -> None:
    changed = {
        "fixed/none/BR": lost("diverged"),
        "adaptive/constant/Ours": lost("diverged"),
        "fixed/random/BR": lost("missing"),
    }
    write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc", **changed)})
    rows = by_name(orderings_frame(sources_of(tmp_path, "hfc")))
    assert {name: row["holds"] for name, row in rows.items()} == {
        bin_recon("none"): "yes",
        bin_recon("constant"): "no",
    }
    assert all(math.isnan(row["difference"]) for row in rows.values())
    both = {name: lost("diverged") for name in ("fixed/none/BR", "adaptive/none/Ours")}
    write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc", **both)})
    assert by_name(orderings_frame(sources_of(tmp_path, "hfc")))[bin_recon("none")]["holds"] == "undecided"


@pytest.mark.parametrize(("dataset", "sign"), [("ctg", 1), ("bfp", -1)])
def test_full_against_its_ablations(tmp_path: Path, dataset: str, sign: int) -> None:
    shifts = {"w/o FWA": sign * 3.0}
    write_study(tmp_path, "ablation", dataset, ablation_tables(dataset, shifts))
    orderings = orderings_frame(sources_of(tmp_path, dataset))
    rows = by_name(orderings)
    assert list(rows) == ["w/o FWA", "w/o FPT", "w/o DIGS", "w/o HORD"], "further variants are not the paper's"
    assert [row["holds"] for row in rows.values()] == ["no", "yes", "yes", "yes"]
    assert rows["w/o FPT"]["difference"] == pytest.approx(rows["w/o FPT"]["paper_difference"])
    assert all(row["tested"] and row["p_holm"] for row in rows.values())
    (row,) = counts_frame(orderings).to_dict("records")
    significant = int((orderings["mark"] == "**").sum())
    assert (row["hold"], row["fail"], row["fail_significantly"]) == (3, 1, 1)
    assert row["hold_significantly"] == significant - 1
    assert (row["paper_compared"], row["paper_hold"]) == (4, 4)


def test_a_variant_that_is_full_itself_does_not_hold(tmp_path: Path) -> None:
    """On hfc the paper prints one number for full and three of its ablations."""
    write_study(tmp_path, "ablation", "hfc", ablation_tables("hfc"))
    orderings = orderings_frame(sources_of(tmp_path, "hfc"))
    assert orderings["holds"].to_list() == ["no", "no", "no", "yes"]
    (row,) = counts_frame(orderings).to_dict("records")
    assert (row["hold"], row["fail"], row["paper_compared"], row["paper_hold"]) == (1, 3, 4, 1)


@pytest.mark.parametrize(("dataset", "sign"), [("hfc", 1), ("bfp", -1)])
def test_fine_tuned_against_the_others_with_the_same_encoder(tmp_path: Path, dataset: str, sign: int) -> None:
    shifts = {"ResNet/Ours": sign * 3.0, "MLP/supervised": sign * 3.0}
    write_study(tmp_path, "finetune", dataset, finetune_tables(dataset, shifts))
    orderings = orderings_frame(sources_of(tmp_path, dataset))
    rows = by_name(orderings)
    assert len(rows) == 15 and orderings["ordering"].value_counts().to_dict() == {
        "finetuned_above_supervised": 5,
        "finetuned_above_bin_recon": 5,
        "finetuned_above_mr": 5,
    }
    for other, ordering in (("supervised", "supervised"), ("BR", "bin_recon"), ("MR", "mr")):
        for encoder in ("MLP", "ResNet", "TabNet", "FT-Transformer", "T2G-Former"):
            row = rows[f"{encoder}/Ours against {encoder}/{other}"]
            shifted = (3.0 if encoder == "ResNet" else 0.0) - (
                3.0 if (encoder, other) == ("MLP", "supervised") else 0.0
            )
            scale = 100 if dataset == "hfc" else 1
            assert row["ordering"] == f"finetuned_above_{ordering}"
            assert row["difference"] == pytest.approx(row["paper_difference"] + scale * shifted)
            assert row["holds"] == ("yes" if row["difference"] > 0 else "no")
            assert row["tested"] == (other != "MR")
    lost_to = rows["MLP/Ours against MLP/supervised"]
    assert (lost_to["holds"], lost_to["mark"], lost_to["verdict"]) == ("no", "**", "worse")
    counts = {row["ordering"]: row for row in counts_frame(orderings).to_dict("records")}
    row = counts["finetuned_above_supervised"]
    assert row["fail_significantly"] >= 1 and row["hold_significantly"] >= 1 and row["compared"] == 5
    assert row["paper_compared"] == 5 and counts["finetuned_above_mr"]["hold_significantly"] == 0


def test_fine_tuned_models_that_diverged_or_were_not_run(tmp_path: Path) -> None:
    changed = {"TabNet/MR": {"n": 8, "n_diverged": 2}, "ResNet/MR": {"n": 0, "mean": math.nan}}
    frames = finetune_tables("hfc", **changed)
    worst = frames["significance"].index[0]
    assert list(frames["significance"].loc[worst + 2, ["encoder", "against", "method"]]) == [
        "mlp",
        "supervised",
        "Ours",
    ]
    for name, value in contrast("auc", 0.02, n_diverged=3, statistic=-20.0).items():
        frames["significance"].loc[worst + 2, name] = value
    write_study(tmp_path, "finetune", "hfc", frames)
    rows = by_name(orderings_frame(sources_of(tmp_path, "hfc")))
    assert rows["MLP/Ours against MLP/supervised"]["holds"] == "no", "the ranks decide"
    assert rows["TabNet/Ours against TabNet/MR"]["holds"] == "undecided"
    assert "ResNet/Ours against ResNet/MR" not in rows and "MLP/Ours against MLP/MR" in rows


def test_values_may_tie_with_the_default(tmp_path: Path) -> None:
    differences = {("tau", 1e-5): 0.002, ("tau", 1e-3): 0.0, ("tau", 1e-2): -0.02, ("patience", 50.0): 0.03}
    differences["tau", 0.003] = 0.5  # no value of the paper
    write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", differences))
    orderings = orderings_frame(sources_of(tmp_path, "eol"))
    rows = by_name(orderings)
    assert {name: row["holds"] for name, row in rows.items()} == {
        "tau 1e-05": "no",
        "tau 0.001": "yes",
        "tau 0.01": "yes",
        "patience 50": "no",
    }
    assert rows["tau 0.01"]["difference"] == pytest.approx(2.0) and rows["tau 0.01"]["mark"] == "**"
    (row,) = counts_frame(orderings).to_dict("records")
    assert [row[name] for name in ("compared", "hold", "hold_significantly", "fail", "fail_significantly")] == [
        4,
        2,
        1,
        2,
        1,
    ]
    assert row["paper_compared"] == 0 and row["identical"] == 0
    alike = orderings.assign(mark=[IDENTICAL_MARK, "", IDENTICAL_MARK, ""])
    assert counts_frame(alike)["identical"].to_list() == [2]


@pytest.mark.parametrize(("statistic", "holds"), [(-30.0, "yes"), (30.0, "no"), (math.nan, "undecided")])
def test_with_diverged_replicas_the_ranks_decide(tmp_path: Path, statistic: float, holds: str) -> None:
    """The finished pairs alone would praise the value."""
    frames = sensitivity_tables("hfc", {("tau", 1e-3): 0.005})
    row = contrast("auc", 0.005, n_diverged=4, statistic=statistic)
    frames["significance"] = frames["significance"].assign(**row)
    write_study(tmp_path, "sensitivity", "hfc", frames)
    orderings = orderings_frame(sources_of(tmp_path, "hfc"))
    assert orderings["holds"].to_list() == [holds] and orderings["n_diverged"].to_list() == [4]
    assert counts_frame(orderings)["undecided"].to_list() == [int(holds == "undecided")]


def test_without_a_test_there_is_no_mark(tmp_path: Path) -> None:
    frames = sensitivity_tables("hfc", {("tau", 1e-3): -0.02})
    untested = {"p_holm": math.nan, "mark": "", "verdict": "no test", "statistic": math.nan}
    frames["significance"] = frames["significance"].assign(**untested)
    write_study(tmp_path, "sensitivity", "hfc", frames)
    (row,) = orderings_frame(sources_of(tmp_path, "hfc")).to_dict("records")
    assert row["holds"] == "yes" and not row["tested"] and row["mark"] == ""


def test_full_and_reduced_protocols_are_counted_apart(tmp_path: Path) -> None:
    differences = {("tau", 1e-3): -0.02}
    write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", differences))
    write_study(tmp_path, "sensitivity", "hfc", sensitivity_tables("hfc", differences), notes=[REDUCED])
    counts = counts_frame(orderings_frame(sources_of(tmp_path, "eol", "hfc")))
    assert counts[["protocol", "compared"]].values.tolist() == [["full", 1], [REDUCED, 1]]
