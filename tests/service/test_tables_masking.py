"""Tables of the masking study: numbers of the records, and no trace of test scores that nobody asked for."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats as scipy_stats

from adaptbin.config import Hyperparameters
from adaptbin.errors import ConfigError, DataError
from sweeps.service.grid import GRID, MaskingStudy
from sweeps.service.tables import write_tables
from sweeps.service.tables_masking import masking_tables, summary_table
from tests.service.synthetic import FakeCard, make_grid_records, peaked, seeds

BEST = Hyperparameters(masking="random", mask_prob=0.2, t_init=2)
LOST = Hyperparameters(masking="constant", mask_prob=0.1, t_init=10)


def scorer(point, seed):
    return None if (point, seed) == (LOST, 1) else peaked(BEST)(point, seed)


@pytest.fixture(scope="module")
def study():
    return MaskingStudy(cards=(FakeCard("eol"),), seeds=seeds(4))


@pytest.fixture(scope="module")
def records(study):
    return make_grid_records(study, scorer)


def test_rows_repeat_what_the_records_say(study, records):
    tables = masking_tables(records, study, "qwk", show_test=True)
    assert len(tables.replicas) == 14 * 4 and len(tables.points) == 14
    by_id = {record["id"]: record for record in records}
    for row in tables.replicas.to_dict("records"):
        record = by_id[row["id"]]
        assert {name: row[name] for name in GRID} == {
            name: record["identity"]["hyperparameters"][name] for name in GRID
        }
        assert (row["seed"], row["status"], row["metric"]) == (record["identity"]["seed"], record["status"], "qwk")
        if record["status"] == "finished":
            assert (row["val"], row["test"]) == (record["scores"]["val"]["qwk"], record["scores"]["test"]["qwk"])
            assert row["test_accuracy"] == record["scores"]["test"]["accuracy"]
        else:
            assert np.isnan([row["val"], row["test"], row["val_accuracy"]]).all()


def test_points_agree_with_pandas_and_scipy(study, records):
    tables = masking_tables(records, study, "qwk", show_test=True)
    for point, row in zip(study.points, tables.points.to_dict("records"), strict=True):
        assert {name: row[name] for name in GRID} == {name: getattr(point, name) for name in GRID}
        group = tables.replicas[np.logical_and.reduce([tables.replicas[name] == row[name] for name in GRID])]
        assert (row["n"], row["n_diverged"], row["n_missing"]) == ((3, 1, 0) if point == LOST else (4, 0, 0))
        for part in ("val", "test"):
            scores = group[part].dropna()
            interval = scipy_stats.ttest_1samp(scores, 0).confidence_interval()
            np.testing.assert_allclose(
                [row[f"{part}_{name}"] for name in ("mean", "sd", "low", "high")],
                [scores.mean(), scores.std(), *interval],
            )
        assert (row["bins_mean"], row["bins_max"], row["triggers_mean"], row["splits_mean"]) == (10, 12, 210, 160)
    assert list(tables.points["chosen"]) == [point == BEST for point in study.points]
    assert tables.replicas["chosen"].sum() == 4 and tables.decision.chosen == BEST


def test_test_scores_of_points_that_were_not_chosen_leave_no_trace(study, records, tmp_path):
    tables = masking_tables(records, study, "qwk")
    hidden = {
        score
        for r in records
        if r["identity"]["hyperparameters"] != BEST.to_dict()
        for score in r["scores"]["test"].values()
    }
    shown = {
        score
        for r in records
        if r["identity"]["hyperparameters"] == BEST.to_dict()
        for score in r["scores"]["test"].values()
    }
    assert len(hidden) > 10 and not hidden & shown
    write_tables(tmp_path, replicas=tables.replicas, points=tables.points)
    for name in ("replicas", "points"):
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        columns = [column for column in frame if column == "test" or column.startswith("test_")] + (
            ["bootstrap_se"] if name == "replicas" else []
        )
        assert len(columns) >= 4
        assert frame.loc[~frame["chosen"], columns].isna().all(axis=None)
        assert frame.loc[frame["chosen"], columns].notna().all(axis=None)
    cells = set(pd.read_csv(tmp_path / "replicas.csv").select_dtypes("number").to_numpy().ravel())
    assert shown <= cells and not hidden & cells
    # Everything else is as with them.
    everything = masking_tables(records, study, "qwk", show_test=True)
    for frame, whole in ((tables.replicas, everything.replicas), (tables.points, everything.points)):
        assert list(frame.columns) == list(whole.columns)
        kept = [name for name in frame if not (str(name).startswith("test") or name == "bootstrap_se")]
        pd.testing.assert_frame_equal(frame[kept], whole[kept])
    assert tables.decision == everything.decision


def test_without_a_choice_no_test_score_is_in_the_tables(study, records):
    tables = masking_tables(records[:-1], study, "qwk")
    assert tables.decision.chosen is None and not tables.points["chosen"].any()
    assert list(tables.points["n_missing"]) == [0] * 13 + [1]
    assert tables.replicas[["test", "test_qwk", "test_accuracy", "bootstrap_se"]].isna().all(axis=None)
    assert tables.points[["test_mean", "test_sd", "test_low", "test_high"]].isna().all(axis=None)


def test_points_that_never_ran_are_rows_without_numbers(study, records):
    first = {study.replica(study.cards[0], point, 0).id for point in study.points[:2]}
    points = masking_tables([r for r in records if r["id"] in first], study, "qwk").points
    assert list(points["n"]) == [1, 1] + [0] * 12 and list(points["n_missing"]) == [3, 3] + [4] * 12
    assert points.loc[2:, ["val_mean", "val_sd", "bins_mean", "triggers_mean"]].isna().all(axis=None)


def test_records_of_other_studies_are_left_out_and_absent_metrics_are_errors(study, records):
    other = MaskingStudy(cards=(FakeCard("eol"),), seeds=seeds(4), seeds_vary="split")
    mixed = [*make_grid_records(other, scorer), *records]
    pd.testing.assert_frame_equal(
        masking_tables(mixed, study, "qwk").replicas, masking_tables(records, study, "qwk").replicas
    )
    with pytest.raises(DataError, match="eol: metric 'auc' must be in the record"):
        masking_tables(records, study, "auc")
    with pytest.raises(ConfigError, match="did you mean 'qwk'"):
        masking_tables(records, study, "qkw")


@pytest.mark.parametrize("show_test", [False, True])
def test_the_console_shows_every_point_and_the_choice(study, records, show_test):
    tables = masking_tables(records, study, "qwk", show_test=show_test)
    output = io.StringIO()
    Console(file=output, width=110).print(summary_table(tables, study, show_test=show_test))
    text = output.getvalue()
    assert "eol: validation QWK (higher is better)" in text and "triggers" in text and "splits" in text
    rows = tables.points.to_dict("records")
    assert all(f"{row['val_mean']:.4f}" in text for row in rows)
    (chosen,) = (line for line in text.splitlines() if "chosen" in line)
    (row,) = (row for row in rows if row["chosen"])
    assert f"{row['val_mean']:.4f}" in chosen and "210.0" in chosen and "160.0" in chosen
    assert "3 (†1)" in text
    test = {
        f"{row['test_mean']:.4f}"
        for row in masking_tables(records, study, "qwk", show_test=True).points.to_dict("records")
    }
    assert len(test) > 5
    assert all((score in text) == show_test for score in test)
