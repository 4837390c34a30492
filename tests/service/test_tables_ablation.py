"""Tables of the ablation study: numbers of the records, a family per group, and variants that are full itself."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

from adaptbin.config import Hyperparameters
from adaptbin.errors import ConfigError, DataError
from sweeps.service.contrasts import CONTRAST, significance_frame
from sweeps.service.panels import Panel, SensitivityStudy
from sweeps.service.tables import replica_frame
from sweeps.service.tables_ablation import SAME_POINT, ablation_tables, refinement_table, summary_table
from sweeps.service.variants import AblationStudy
from tests.service.synthetic import FakeCard, lacking, make_ablation_records, metrics_of, seeds

LOSS = {"w/o FWA": 0.03, "w/o FPT": 0.012, "w/o DIGS": 0.004, "w/o HORD": 0.02, "T_max 10": 0.006}
PAPERS = ["w/o FWA", "w/o FPT", "w/o DIGS", "w/o HORD"]
FURTHER = ["w/o Gain_var", "T_max 10", "T_max 50"]


def some_diverge(dataset, variant, seed):
    return None if variant == "w/o HORD" and seed in (1, 2) else lacking(LOSS)(dataset, variant, seed)


def tabulate(datasets=("eol",), n=10, scorer=None, drop=(), **options):
    """Tables, study and records; ``drop`` holds seeds that never finished."""
    study = AblationStudy(cards=tuple(FakeCard(key) for key in datasets), seeds=seeds(n), **options)
    records = make_ablation_records(study, scorer or lacking(LOSS))
    records = [record for record in records if record["identity"]["seed"] not in drop]
    return ablation_tables(records, study, metrics_of(study), metrics_of(study)), study, records


def of(frame, variant, dataset="eol"):
    rows = frame[(frame["dataset"] == dataset) & (frame["variant"] == variant)]
    assert len(rows) == 1
    return rows.iloc[0]


def scores(tables, variant, dataset="eol"):
    rows = tables.replicas[(tables.replicas["dataset"] == dataset) & (tables.replicas["variant"] == variant)]
    return rows.sort_values("seed")["test"].to_numpy()


def test_rows_repeat_what_the_records_say():
    tables, study, records = tabulate(scorer=some_diverge)
    assert len(tables.replicas) == 80 and list(tables.points["variant"]) == ["full", *PAPERS, *FURTHER]
    by_id = {record["id"]: record for record in records}
    points = {variant.name: variant.hyperparameters.to_dict() for variant in study.variants["eol"]}
    for row in tables.replicas.to_dict("records"):
        record = by_id[row["id"]]
        assert record["identity"]["hyperparameters"] == points[row["variant"]]
        assert (record["identity"]["seed"], record["status"]) == (row["seed"], row["status"])
        assert row["is_default"] == (row["variant"] == "full")
        assert (row["triggers"], row["splits"]) == (record["bins"]["triggers"], record["bins"]["splits"])
        if record["status"] == "finished":
            assert row["test"] == record["scores"]["test"]["qwk"] == row["test_qwk"]
        else:
            assert np.isnan([row["test"], row["val"]]).all()


def test_points_agree_with_pandas_and_scipy_and_tell_the_bins():
    tables, _, _ = tabulate(scorer=some_diverge)
    for row in tables.points.to_dict("records"):
        there = pd.Series(scores(tables, row["variant"])).dropna()
        interval = scipy_stats.ttest_1samp(there, 0).confidence_interval()
        assert (row["n"], row["n_diverged"]) == ((8, 2) if row["variant"] == "w/o HORD" else (10, 0))
        np.testing.assert_allclose(
            [row[name] for name in ("mean", "sd", "low", "high")], [there.mean(), there.std(), *interval]
        )
        told = tuple(row[name] for name in ("triggers_mean", "splits_mean", "bins_mean", "bins_max"))
        assert told == ((0, 0, 2, 2) if row["variant"] == "w/o FWA" else (210, 160, 10, 12))
    assert dict(zip(tables.points["variant"], tables.points["changes"], strict=True))["w/o FPT"] == "refine_every = 6"


def test_every_contrast_agrees_with_scipy_and_each_group_is_a_family():
    tables, _, _ = tabulate()
    frame = tables.significance
    assert list(frame.columns) == ["dataset", "group", "variant", "changes", *CONTRAST]
    assert list(frame["variant"]) == [*PAPERS, *FURTHER] and set(frame["figure_family"]) == {7}
    for row in frame.to_dict("records"):
        differences = scores(tables, row["variant"]) - scores(tables, "full")
        assert row["p"] == pytest.approx(scipy_stats.wilcoxon(differences, method="exact").pvalue)
        interval = scipy_stats.ttest_1samp(differences, 0).confidence_interval()
        np.testing.assert_allclose([row["difference"], row["low"], row["high"]], [differences.mean(), *interval])
    for group, size in (("paper", 4), ("further", 3)):
        family = frame[frame["group"] == group]
        assert len(family) == size and set(family["family"]) == {size}
        np.testing.assert_allclose(family["p_holm"], multipletests(family["p"], method="holm")[1])
        np.testing.assert_allclose(family["p_tost_holm"], multipletests(family["p_tost"], method="holm")[1])
    np.testing.assert_allclose(frame["p_holm_figure"], multipletests(frame["p"], method="holm")[1])
    assert (of(frame, "w/o FWA")["mark"], of(frame, "w/o FWA")["verdict"]) == ("**", "worse")
    assert "≈" in of(frame, "T_max 50")["mark"]


def test_the_contrasts_are_those_of_a_sensitivity_panel_of_the_same_points():
    tables, study, records = tabulate(t_maxs=(10, 50, 100))
    values = (2, 10, 50, 100, 200)
    panel = Panel("t_max", "T", "t_max", values, "a")
    same = SensitivityStudy(cards=study.cards, panels=(panel,), seeds=study.seeds)
    replicas = replica_frame(records, same, metrics_of(study), metrics_of(study))
    frame = significance_frame(replicas, same)
    alone = [name for name in CONTRAST if "holm" not in name and "family" not in name and name != "detectable"]
    alone = [name for name in alone if name not in ("mark", "verdict", "equivalent")]  # they depend on the family
    for value, name in zip(values[:-1], ["w/o FWA", "T_max 10", "T_max 50", "T_max 100"], strict=True):
        one = frame[frame["value"] == value].iloc[0]
        pd.testing.assert_series_equal(one[alone], of(tables.significance, name)[alone], check_names=False)


def test_direction_follows_the_metric_and_other_tests_can_be_asked_for():
    tables, _, _ = tabulate(("eol", "pt"), test="t")
    for dataset in ("eol", "pt"):
        row = of(tables.significance, "w/o FWA", dataset)
        assert (row["difference"] < 0, row["verdict"], row["test"]) == (True, "worse", "t")
    split, _, _ = tabulate(seeds_vary="split")
    assert set(split.significance["test"]) == {"corrected_t"}
    probe, _, _ = tabulate(seeds_vary="probe")
    assert set(probe.significance["verdict"]) == {"no test"} and set(probe.significance["mark"]) == {""}


def test_a_diverged_replica_takes_the_worst_rank():
    tables, _, _ = tabulate(scorer=some_diverge)
    row = of(tables.significance, "w/o HORD")
    assert (row["n"], row["n_diverged"]) == (10, 2) and np.isnan(row["p_tost"])
    assert row["p"] == pytest.approx(2 / 1024) and row["mark"] == "**"  # all ten speak against it


@pytest.mark.parametrize(
    ("n", "vary", "mark"), [(10, "pretrain", "≡"), (1, "pretrain", ""), (10, "probe", ""), (10, "split", "")]
)
def test_a_variant_that_is_full_itself_is_identical_whatever_the_seeds_did(n, vary, mark):
    def scorer(dataset, variant, seed):
        return None if variant == "full" and seed == 0 and n > 1 else lacking(LOSS)(dataset, variant, seed)

    tables, study, records = tabulate(
        n=n, scorer=scorer, seeds_vary=vary, default=Hyperparameters(t_max=2), t_maxs=(10,), test="wilcoxon"
    )
    assert len(records) == 6 * n
    row = of(tables.significance, "w/o FWA")
    assert (row["verdict"], row["note"], row["changes"]) == ("identical", SAME_POINT, "nothing")
    assert row["mark"] == mark  # no mark is drawn where nothing could be tested
    # The family that was planned stays.
    assert set(tables.significance.loc[tables.significance["group"] == "paper", "family"]) == {4}
    numbers = ["n", "n_diverged", "mean", "sd"]
    same = of(tables.points, "w/o FWA")[numbers], of(tables.points, "full")[numbers]
    pd.testing.assert_series_equal(*same, check_names=False)


def test_what_never_ran_and_other_studies_and_unknown_metrics():
    tables, study, records = tabulate(n=2, drop=(1,))
    assert list(tables.points["n"]) == [1] * 8
    assert tables.significance["note"].str.contains("1 of 2 seeds missing").all()
    metrics = metrics_of(study)
    none = ablation_tables([], study, metrics, metrics)
    assert none.datasets == [] and none.significance.empty and list(none.points["n"]) == [0] * 8
    other = make_ablation_records(AblationStudy(cards=(FakeCard("eol"),), seeds=(5,)), lacking({}))
    pd.testing.assert_frame_equal(ablation_tables([*other, *records], study, metrics, metrics).points, tables.points)
    exploratory = ablation_tables(records, study, {"eol": "accuracy"}, metrics)
    assert set(exploratory.replicas["role"]) == {"exploratory"} and set(tables.replicas["role"]) == {"primary"}
    with pytest.raises(DataError, match="eol: metric 'auc' must be in the record"):
        ablation_tables(records, study, {"eol": "auc"}, metrics)
    with pytest.raises(ConfigError, match="did you mean 'qwk'"):
        ablation_tables(records, study, {"eol": "qkw"}, metrics)


def printed(table):
    output = io.StringIO()
    Console(file=output, width=110).print(table)
    return output.getvalue()


def test_the_console_shows_scores_marks_and_bins_of_every_variant():
    tables, _, _ = tabulate(("eol", "pt"), scorer=some_diverge)
    for dataset, title in (("eol", "test QWK (higher is better)"), ("pt", "test RMSE (lower is better)")):
        lines = printed(summary_table(tables, dataset)).splitlines()
        assert f"{dataset}: {title}" in lines[0]
        for row in tables.points[tables.points["dataset"] == dataset].to_dict("records"):
            (line,) = (line for line in lines if line.startswith(f" {row['variant']} "))
            assert f"{row['mean']:.4f}" in line
            assert ("8 (†2)" in line) == (row["variant"] == "w/o HORD")
            if row["variant"] != "full":
                contrast = of(tables.significance, row["variant"], dataset)
                assert f"{contrast['difference']:+.4f}" in line and contrast["verdict"] in line
                assert f" {contrast['mark']} " in line or not contrast["mark"]
        lines = printed(refinement_table(tables, dataset)).splitlines()
        assert f"{dataset}: refinement, mean per replica" in lines[0]
        for row in tables.points[tables.points["dataset"] == dataset].to_dict("records"):
            (line,) = (line for line in lines if line.startswith(f" {row['variant']} "))
            numbers = ["0.0", "0.0", "2.0", "2"] if row["variant"] == "w/o FWA" else ["210.0", "160.0", "10.0", "12"]
            assert line.split()[-4:] == numbers and row["changes"] in line
