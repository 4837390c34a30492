"""The comparisons named beforehand: who stands for an arm, exact Wilcoxon over data sets, and when there is none."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from sweeps.service.contrasts import PROBE_NOTE
from sweeps.service.contrasts_benchmark import ARMS, COLUMNS, CONTRASTS, contrasts_frame, pairs_frame
from sweeps.service.methods import BenchmarkStudy, Method
from sweeps.service.stats import holm
from sweeps.service.tables_benchmark import benchmark_tables
from tests.service.synthetic import METRIC_OF, FakeCard, as_printed, make_benchmark_records


@cache
def tabulate(dataset, scorer=as_printed, drop=0, seeds_vary="pretrain"):
    """Table of methods of one data set, without its last ``drop`` records; computed once."""
    study = BenchmarkStudy(cards=(FakeCard(dataset),), seeds=(0, 1), seeds_vary=seeds_vary)
    records = make_benchmark_records(study, scorer)
    return benchmark_tables(records[: len(records) - drop], study, METRIC_OF[dataset]).table


def compared(datasets=tuple(METRIC_OF), target_sd=1.0, drop=0, seeds_vary="pretrain", scorers=None):
    """Pairs, comparisons, and the table they come from; ``drop`` records of the last data set are not there."""
    tables = [
        tabulate(name, (scorers or {}).get(name, as_printed), drop if name == datasets[-1] else 0, seeds_vary)
        for name in datasets
    ]
    table = pd.concat(tables, ignore_index=True).assign(target_sd=target_sd)
    pairs = pairs_frame(table)
    return pairs, contrasts_frame(pairs, table, untested=PROBE_NOTE if seeds_vary == "probe" else ""), table


def equal(dataset, method, point, seed):
    return 0.9, 0.8


def without_bin_recon(dataset, method, point, seed):
    return None if method.objective == "BR" and seed == 0 else as_printed(dataset, method, point, seed)


def test_few_comparisons_are_named_beforehand():
    assert CONTRASTS == (
        ("Ours", "BR"),
        ("Ours", "VR"),
        ("Ours", "MX"),
        ("Ours", "MR"),
        ("Ours, masked", "Ours, not masked"),
    )
    assert {name: len(arm) for name, arm in ARMS.items()} == {
        **{"VR": 3, "MX": 2, "MR": 2, "BR": 3},
        **{"Ours": 3, "Ours, masked": 2, "Ours, not masked": 1},
    }


def test_validation_says_which_method_stands_for_an_arm():
    pairs, _, table = compared()
    assert len(pairs) == 5 * 8
    for pair in pairs.to_dict("records"):
        of_dataset = table[table["dataset"] == pair["dataset"]]
        for side in ("arm", "against"):
            rows = [row for row in of_dataset.to_dict("records") if Method.of_row(row) in ARMS[pair[side]]]
            best = (min if pair["metric"] == "rmse" else max)(rows, key=lambda row: row["val_mean"])
            assert pair[f"{side}_method"] == Method.of_row(best).name
            assert pair[f"{side}_mean"] == best["mean"]
        sign = -1 if pair["metric"] == "rmse" else 1
        assert pair["difference"] == pytest.approx(sign * (pair["arm_mean"] - pair["against_mean"]))
    tied, _, _ = compared(("eol",), scorers={"eol": equal})
    assert list(tied["arm_method"].unique()) == ["adaptive/none/Ours", "adaptive/constant/Ours"]


def test_errors_are_counted_in_sd_of_the_train_target():
    pairs, _, _ = compared(("pt", "eol"), target_sd=10.0)
    usual, _, _ = compared(("pt", "eol"))
    factor = pairs["difference"] / usual["difference"]
    np.testing.assert_allclose(factor, np.where(pairs["dataset"] == "pt", 0.1, 1.0))


def test_the_test_is_scipys_exact_one_with_holm_over_the_comparisons():
    pairs, contrasts, _ = compared()
    assert list(contrasts.columns) == list(COLUMNS) and set(contrasts["test"]) == {"wilcoxon"}
    for row in contrasts.to_dict("records"):
        differences = pairs.loc[(pairs["arm"] == row["arm"]) & (pairs["against"] == row["against"]), "difference"]
        assert row["p"] == pytest.approx(scipy_stats.wilcoxon(differences, method="exact").pvalue)
        assert (row["n"], row["n_better"], row["n_worse"]) == (8, (differences > 0).sum(), (differences < 0).sum())
        assert row["difference"] == pytest.approx(differences.mean())
        assert (row["p_floor"], row["family"], row["note"]) == (2 / 2**8, 5, "")
        assert row["p_floor_holm"] == pytest.approx(0.0391, abs=1e-4)
    np.testing.assert_allclose(contrasts["p_holm"], holm(contrasts["p"].to_numpy()))
    ours = contrasts[contrasts["arm"] == "Ours"]
    assert set(ours["mark"]) == {"*"} and set(ours["verdict"]) == {"better"}  # as in the paper: best on all eight


@pytest.mark.parametrize(
    ("case", "note"),
    [
        ({"datasets": ("eol", "hfc", "ctg", "pt")}, "no test: needs at least 6 data sets, got 4"),
        ({"drop": 15}, "no test: 2 cells have no result"),
        ({"datasets": ("eol",), "seeds_vary": "probe"}, PROBE_NOTE),
    ],
)
def test_why_nothing_is_tested(case, note):
    pairs, contrasts, _ = compared(**case)
    assert set(contrasts["test"]) == {"none"} and set(contrasts["note"]) == {note}
    assert contrasts[["p", "p_holm", "p_floor", "p_floor_holm", "statistic"]].isna().all(axis=None)
    assert set(contrasts["mark"]) == {""} and set(contrasts["verdict"]) == {"no test"}
    assert len(pairs) == contrasts["n"].sum()


def test_six_data_sets_are_tested_but_cannot_be_significant():
    _, contrasts, _ = compared(tuple(METRIC_OF)[:6])
    assert set(contrasts["p_floor"]) == {2 / 2**6} and set(contrasts["mark"]) == {""}
    assert set(contrasts["note"]) == {"nothing can be significant: least adjusted p is 0.156"}
    assert set(contrasts["verdict"]) == {"undecided"}


def test_an_arm_that_diverged_takes_the_worst_rank():
    pairs, contrasts, _ = compared(scorers={"eol": without_bin_recon})
    (pair,) = pairs[(pairs["against"] == "BR") & (pairs["dataset"] == "eol")].to_dict("records")
    assert pair["difference"] == np.inf and pair["against_method"] == "" and np.isnan(pair["against_mean"])
    row = contrasts.iloc[0]
    assert (row["n"], row["n_diverged"], row["n_better"]) == (8, 1, 8) and np.isfinite(row["difference"])
    assert list(contrasts["n_diverged"]) == [1, 0, 0, 0, 0]


def test_equal_arms_are_identical():
    _, contrasts, _ = compared(tuple(METRIC_OF)[:6], scorers=dict.fromkeys(METRIC_OF, equal))
    assert (
        set(contrasts["p"]) == {1.0} and set(contrasts["verdict"]) == {"identical"} and set(contrasts["mark"]) == {"≡"}
    )
