"""The significance table: families, marks, verdicts, and the reason wherever there is no test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

from adaptbin.metrics import get_metric
from sweeps.service.contrasts import COLUMNS, PROBE_NOTE, margin_of, significance_frame
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.tables import replica_frame
from tests.service.synthetic import FakeCard, drifting, make_records, metrics_of, seeds


def table(datasets=("eol",), n=10, scorer=None, test="wilcoxon", target_sd=1.0, drop=(), **options):
    """Significance of synthetic records; `drop` holds seeds that never finished."""
    study = SensitivityStudy(cards=tuple(FakeCard(key) for key in datasets), seeds=seeds(n), **options)
    records = make_records(study, scorer or drifting(), target_sd=target_sd)
    records = [record for record in records if record["identity"]["seed"] not in drop]
    replicas = replica_frame(records, study, metrics_of(study), metrics_of(study))
    return significance_frame(replicas, study, test=test), replicas


def at(frame, panel, value, dataset="eol"):
    rows = frame[(frame["dataset"] == dataset) & (frame["panel"] == panel) & (frame["value"] == value)]
    assert len(rows) == 1
    return rows.iloc[0]


def paired(replicas, panel, value):
    rows = replicas[replicas["panel"] == panel].sort_values("seed")
    return rows[rows["value"] == value]["test"].to_numpy() - rows[rows["is_default"]]["test"].to_numpy()


def offset(amounts, base=0.8):
    """Scores with the given amount added per seed away from the default."""

    def score(_dataset, point, seed, _generator):
        return base + 0.01 * seed + (0.0 if point.is_default else amounts[seed])

    return score


def test_every_contrast_agrees_with_scipy_and_each_panel_is_a_family():
    frame, replicas = table()
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 20 and set(frame["family"]) == {4} and set(frame["figure_family"]) == {20}
    for row in frame.to_dict("records"):
        differences = paired(replicas, row["panel"], row["value"])
        assert row["p"] == pytest.approx(scipy_stats.wilcoxon(differences, method="exact").pvalue)
        interval = scipy_stats.ttest_1samp(differences, 0).confidence_interval()
        np.testing.assert_allclose([row["difference"], row["low"], row["high"]], [differences.mean(), *interval])
    for _, panel in frame.groupby("panel"):
        np.testing.assert_allclose(panel["p_holm"], multipletests(panel["p"], method="holm")[1])
        np.testing.assert_allclose(panel["p_tost_holm"], multipletests(panel["p_tost"], method="holm")[1])
    np.testing.assert_allclose(frame["p_holm_figure"], multipletests(frame["p"], method="holm")[1])


def test_ten_pairs_reach_two_stars_and_five_reach_none():
    ten, _ = table(n=10, scorer=drifting(effect=0.2))
    assert set(ten["p_floor"]) == {2 / 1024} and set(ten["p_floor_holm"]) == {8 / 1024}
    assert at(ten, "tau", 0.1)["mark"] == "**" and at(ten, "tau", 0.1)["verdict"] == "worse"
    five, _ = table(n=5, scorer=drifting(effect=0.2))
    assert not five["mark"].str.contains(r"\*").any()
    assert set(five["p_floor"]) == {0.0625}
    assert five["note"].str.contains("nothing can be significant: least adjusted p is 0.25").all()
    assert five["detectable"].isna().all()


def test_direction_follows_the_metric():
    frame, _ = table(datasets=("eol", "pt"), scorer=drifting(effect=0.2))
    kappa, error = at(frame, "tau", 0.1), at(frame, "tau", 0.1, "pt")
    assert kappa["difference"] < 0 and error["difference"] < 0  # drifting() raises errors where it lowers scores
    assert kappa["verdict"] == error["verdict"] == "worse"
    better, _ = table(scorer=offset(np.linspace(0.02, 0.04, 10)))
    assert set(better["verdict"]) == {"better"} and set(better["p_better"]) == {1.0}


def test_equivalent_identical_and_both_marks_together():
    small, _ = table(scorer=offset(np.linspace(-0.004, 0.004, 10)))
    assert set(small["mark"]) == {"≈"} and set(small["verdict"]) == {"equivalent"} and small["equivalent"].all()
    both, _ = table(scorer=offset(np.linspace(0.001, 0.004, 10)))
    assert set(both["mark"]) == {"**≈"} and set(both["verdict"]) == {"better, equivalent"}
    same, _ = table(scorer=offset(np.zeros(10)))
    assert set(same["mark"]) == {"≡"} and set(same["verdict"]) == {"identical"} and set(same["p"]) == {1.0}


def test_margin_scales_with_the_target_only_for_errors():
    assert margin_of(get_metric("auc"), 8.0) == margin_of(get_metric("r2"), 8.0) == 0.01
    assert margin_of(get_metric("rmse"), 8.0) == margin_of(get_metric("mae"), 8.0) == 0.16
    frame, _ = table(datasets=("pt",), target_sd=8.0)
    assert set(frame["margin"]) == {0.16}


def test_wide_differences_put_the_margin_out_of_reach():
    frame, _ = table(scorer=offset(np.linspace(-0.1, 0.1, 10)))
    assert frame["margin_out_of_reach"].all() and set(frame["verdict"]) == {"margin out of reach"}
    assert set(frame["mark"]) == {""}


def test_a_diverged_point_takes_the_worst_rank_and_gets_no_t_mark():
    def scorer(_dataset, point, seed, _generator):
        return None if point.value == 0.1 and point.panel == "tau" and seed < 3 else 0.8 + 0.001 * seed * point.value

    frame, _ = table(scorer=scorer)
    row = at(frame, "tau", 0.1)
    assert (row["n"], row["n_diverged"], row["p_better"] < 1) == (10, 3, True)
    assert row["test"] == "wilcoxon" and row["p"] < 1
    assert np.isnan(row["p_tost"]) and np.isnan(row["detectable"]) and not row["equivalent"]
    assert "3 of 10 pairs diverged" in row["note"]
    t_frame, _ = table(scorer=scorer, test="t")
    row = at(t_frame, "tau", 0.1)
    assert (row["test"], row["mark"], row["verdict"]) == ("none", "", "no test") and np.isnan(row["p"])
    assert "cannot rank a diverged replica" in row["note"]
    # Its neighbours keep a family of four.
    others = t_frame[(t_frame["panel"] == "tau") & (t_frame["value"] != 0.1)]
    np.testing.assert_allclose(others["p_holm"].min(), min(1.0, 4 * others["p"].min()))


def test_a_diverged_default_counts_for_every_point():
    scorer = offset(np.linspace(-0.01, 0.012, 10))
    frame, _ = table(
        scorer=lambda d, point, seed, g: None if point.is_default and seed == 0 else scorer(d, point, seed, g)
    )
    assert set(frame["n_diverged"]) == {1} and (frame["p_better"] > 0.5).all()
    assert frame["p_tost"].isna().all()


def test_when_every_pair_diverged_nothing_is_tested():
    frame, _ = table(scorer=lambda *_: None)
    assert set(frame["test"]) == {"none"} and set(frame["mark"]) == {""}
    assert frame["note"].str.startswith("no test: every pair has a diverged replica").all()
    assert frame[["p", "difference", "low", "dz", "p_better"]].isna().all(axis=None)


def test_paired_t_has_no_floor_and_agrees_with_scipy():
    frame, replicas = table(test="t")
    for row in frame.to_dict("records"):
        differences = paired(replicas, row["panel"], row["value"])
        assert row["p"] == pytest.approx(scipy_stats.ttest_1samp(differences, 0).pvalue)
    assert set(frame["test"]) == {"t"} and set(frame["p_floor"]) == {0.0}


def test_equal_differences_give_a_rank_p_but_no_t():
    rank, _ = table(scorer=offset(np.full(10, 0.05)))
    assert set(rank["p"]) == {2 / 1024}
    t, _ = table(scorer=offset(np.full(10, 0.05)), test="t")
    assert t["p"].isna().all() and set(t["mark"]) == {""}
    assert t["note"].str.contains("nothing estimates the noise").all()


@pytest.mark.parametrize("asked", ["wilcoxon", "t"])
def test_varying_splits_use_the_corrected_t_whatever_was_asked(asked):
    frame, replicas = table(seeds_vary="split", test=asked)
    assert set(frame["test"]) == {"corrected_t"}
    row = at(frame, "tau", 0.1)
    differences = paired(replicas, "tau", 0.1)
    error = differences.std(ddof=1) * np.sqrt(1 / 10 + 423 / 1350)
    assert row["statistic"] == pytest.approx(differences.mean() / error)
    assert row["p"] == pytest.approx(2 * scipy_stats.t.sf(abs(row["statistic"]), 9))
    half = scipy_stats.t.ppf(0.975, 9) * error
    np.testing.assert_allclose([row["low"], row["high"]], [differences.mean() - half, differences.mean() + half])


def test_probe_seeds_are_never_tested():
    frame, _ = table(seeds_vary="probe", scorer=drifting(effect=0.5))
    assert set(frame["test"]) == {"none"} and set(frame["mark"]) == {""} and set(frame["verdict"]) == {"no test"}
    assert (frame["note"] == PROBE_NOTE).all()
    empty = ["p", "p_holm", "p_holm_figure", "p_tost", "low", "high", "tost_low", "dz", "p_better", "detectable"]
    assert frame[empty].isna().all(axis=None)
    assert frame["difference"].notna().all() and not frame["equivalent"].any()


def test_one_seed_and_missing_seeds_say_so():
    one, _ = table(n=1)
    assert (one["note"] == "no test: needs at least 2 pairs, got 1").all() and one["p"].isna().all()
    partial, _ = table(n=10, drop=(3, 4))
    assert set(partial["n"]) == {8}
    assert partial["note"].str.contains("2 of 10 seeds missing").all()


def test_a_panel_alone_is_its_own_figure():
    frame, _ = table(panels=get_panels(["tau"]))
    assert len(frame) == 4 and set(frame["figure_family"]) == {4} and set(frame["default_value"]) == {1e-4}
    np.testing.assert_array_equal(frame["p_holm"], frame["p_holm_figure"])


def test_data_sets_do_not_share_families_and_absent_ones_are_left_out():
    study = SensitivityStudy(cards=(FakeCard("eol"), FakeCard("hfc")), seeds=seeds(6))
    records = [r for r in make_records(study, drifting()) if r["identity"]["dataset"] == "eol"]
    replicas = replica_frame(records, study, metrics_of(study), metrics_of(study))
    frame = significance_frame(replicas, study)
    assert set(frame["dataset"]) == {"eol"} and set(frame["figure_family"]) == {20}
    assert significance_frame(replicas.iloc[:0], study).empty
