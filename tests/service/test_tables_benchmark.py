"""Tables of the benchmark: validation chooses per method, test is shown for the choice alone, diverged seeds count."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from adaptbin.errors import ConfigError, DataError
from sweeps.service.methods import METHODS, BenchmarkStudy, Method
from sweeps.service.ranks import rank_scores, ranks_frame
from sweeps.service.tables import write_tables
from sweeps.service.tables_benchmark import COLUMNS, benchmark_tables, ranks_table, summary_table
from tests.service.synthetic import METRIC_OF, FakeCard, as_printed, make_benchmark_records, seeds

BR = Method("fixed", "random", "BR")
VR = Method("none", "none", "VR")


def tabulate(dataset="eol", n=4, scorer=as_printed, drop=0, **options):
    study = BenchmarkStudy(cards=(FakeCard(dataset),), seeds=seeds(n), **options)
    records = make_benchmark_records(study, scorer)
    return benchmark_tables(records[: len(records) - drop], study, METRIC_OF[dataset]), records, study


def losing(*lost):
    """The usual scores, but these (method, p_m, T, seed) diverged; None stands for any."""

    def score(dataset, method, point, seed):
        place = (method, point.mask_prob, point.t_init, seed)
        gone = any(all(b is None or a == b for a, b in zip(place, row, strict=True)) for row in lost)
        return None if gone else as_printed(dataset, method, point, seed)

    return score


@pytest.mark.parametrize("dataset", ["eol", "pt"])
def test_validation_chooses_and_test_is_read_of_the_choice(dataset):
    tables, records, study = tabulate(dataset)
    by_point = {}
    for record in records:
        key = tuple(sorted(record["identity"]["hyperparameters"].items()))
        by_point.setdefault(key, []).append([record["scores"][part][METRIC_OF[dataset]] for part in ("val", "test")])
    best = min if dataset == "pt" else max
    assert list(tables.table.columns) == list(COLUMNS) and len(tables.table) == 13
    for method, row in zip(METHODS, tables.table.to_dict("records"), strict=True):
        scores = {p: np.array(by_point[tuple(sorted(p.to_dict().items()))]) for p in study.candidates[method]}
        chosen = best(scores, key=lambda point, scores=scores: scores[point][:, 0].mean())
        assert (Method.of_row(row), row["status"], row["n"], row["mask_prob"]) == (
            method,
            "chosen",
            4,
            chosen.mask_prob,
        )
        assert pd.isna(row["t_init"]) if not method.has_bins else row["t_init"] == chosen.t_init
        numbers = [row[name] for name in ("val_mean", "mean", "val_sd", "sd")]
        np.testing.assert_allclose(numbers, [*scores[chosen].mean(axis=0), *scores[chosen].std(axis=0, ddof=1)])
        assert (row["n_candidates"], row["n_diverged"], row["n_missing"]) == (len(scores), 0, 0)
    np.testing.assert_array_equal(
        tables.table["rank"], rank_scores(tables.table["mean"].to_numpy(), -1 if dataset == "pt" else 1)
    )


def test_test_scores_of_candidates_that_were_not_chosen_leave_no_trace(tmp_path):
    tables, records, study = tabulate()
    shown = set(tables.replicas["test_qwk"]) | set(tables.replicas["test_accuracy"])
    everything = {score for record in records for score in record["scores"]["test"].values()}
    hidden = everything - shown
    assert len(shown) == 2 * 13 * 4 and len(hidden) == 2 * 34 * 4
    write_tables(tmp_path, table=tables.table, candidates=tables.candidates, replicas=tables.replicas)
    cells = set()
    for name in ("table", "candidates", "replicas"):
        cells |= set(pd.read_csv(tmp_path / f"{name}.csv").select_dtypes("number").to_numpy().ravel())
    assert shown <= cells and not hidden & cells
    candidates = pd.read_csv(tmp_path / "candidates.csv")
    assert not [name for name in candidates if name.startswith("test")]
    assert len(candidates) == 47 and candidates["chosen"].sum() == 13 and candidates["val_mean"].notna().all()
    means = tables.points.loc[~tables.points["chosen"], ["test_mean", "test_sd", "test_low", "test_high"]]
    assert means.isna().all(axis=None) and len(means) == 34
    assert len(tables.replicas) == 13 * 4 and list(tables.replicas["n_test"].unique()) == [423]


def test_a_candidate_with_a_diverged_seed_cannot_be_chosen():
    usual, _, _ = tabulate()
    before = usual.table[usual.table["objective"] == "BR"].iloc[2]
    assert (before["mask_prob"], before["t_init"]) == (0.2, 10)
    tables, _, _ = tabulate(scorer=losing((BR, 0.2, 10, 1)))
    row = tables.table[tables.table["objective"] == "BR"].iloc[2]
    assert (row["status"], row["n"], row["n_diverged"], row["n_candidates"]) == ("chosen", 4, 1, 6)
    assert (row["mask_prob"], row["t_init"]) != (0.2, 10)
    assert tables.candidates["n_diverged"].sum() == 1


def test_a_method_that_diverged_has_the_worst_rank_and_one_that_is_missing_leaves_none():
    tables, _, _ = tabulate(scorer=losing((VR, None, None, 2)))
    row = tables.table.iloc[0]
    assert (row["status"], row["n"], row["n_diverged"], row["rank"]) == ("diverged", 0, 1, 13)
    assert row["reason"] == "every point has a diverged seed" and np.isnan(row["mean"])
    assert sorted(tables.table["rank"]) == list(range(1, 14))
    tables, _, _ = tabulate(drop=1)
    row = tables.table.iloc[-1]
    assert (row["status"], row["n"], row["n_missing"]) == ("missing", 0, 1)
    assert row["reason"] == "1 of 6 points lack results: adaptive/random/Ours, p_m 0.3, T_init 10 (seed 3)"
    assert tables.table["rank"].isna().all() and (tables.table["status"] == "chosen").sum() == 12
    assert tables.table.loc[:11, "mean"].notna().all()


def test_ties_go_to_the_simplest_candidate():
    tables, _, _ = tabulate(scorer=lambda *_: (0.9, 0.8))
    with_bins, masked = tables.table["binning"] != "none", tables.table["masking"] != "none"
    assert set(tables.table.loc[masked, "mask_prob"]) == {0.1} and set(tables.table.loc[with_bins, "t_init"]) == {2}
    assert set(tables.table["rank"]) == {7.0}


def test_bad_records_are_errors():
    _, records, study = tabulate(n=1)
    with pytest.raises(DataError, match="eol: metric 'auc' must be in the record"):
        benchmark_tables(records, study, "auc")
    with pytest.raises(ConfigError, match="did you mean 'qwk'"):
        benchmark_tables(records, study, "qkw")


def test_the_console_shows_choices_scores_and_ranks():
    tables, _, _ = tabulate(scorer=losing((VR, None, None, 2)))
    output = io.StringIO()
    Console(file=output, width=110).print(summary_table(tables.table))
    text = output.getvalue()
    assert "eol: test QWK (higher is better)" in text and "diverged" in text
    for row in tables.table.to_dict("records"):
        assert row["status"] != "chosen" or (f"{row['mean']:.4f}" in text and f"{row['val_mean']:.4f}" in text)
    both = pd.concat([tabulate(name, n=1)[0].table for name in ("eol", "pt")])
    ranks = ranks_frame(both)
    Console(file=output, width=110).print(ranks_table(ranks))
    text = output.getvalue()
    assert "ranks over 2 data sets (1 is the best)" in text
    assert all(f"{average:.2f}" in text for average in ranks["average"])
