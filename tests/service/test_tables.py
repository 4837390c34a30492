"""Frames built from records, and files that are whole or not there."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats as scipy_stats

from adaptbin.errors import ConfigError, DataError
from sweeps.service import files, tables
from sweeps.service.contrasts import significance_frame
from sweeps.service.panels import SensitivityStudy
from tests.service.synthetic import FakeCard, drifting, make_records, metrics_of, seeds


@pytest.fixture(scope="module")
def study():
    return SensitivityStudy(cards=(FakeCard("eol"), FakeCard("pt")), seeds=seeds(4))


@pytest.fixture(scope="module")
def records(study):
    def scorer(dataset, point, seed, generator):
        return (
            None
            if point.panel == "tau" and point.value == 0.1 and seed == 2
            else drifting()(dataset, point, seed, generator)
        )

    return make_records(study, scorer)


@pytest.fixture(scope="module")
def replicas(study, records):
    return tables.replica_frame(records, study, metrics_of(study), metrics_of(study))


def test_the_default_stands_in_every_panel_with_one_id(study, replicas):
    assert len(replicas) == 2 * 25 * 4
    default = replicas[replicas["is_default"] & (replicas["dataset"] == "eol") & (replicas["seed"] == 1)]
    assert sorted(default["panel"]) == sorted(panel.key for panel in study.panels)
    assert default["id"].nunique() == 1 and default["test"].nunique() == 1
    assert replicas[replicas["dataset"] == "eol"]["id"].nunique() == 21 * 4


def test_rows_repeat_what_the_record_says(study, records, replicas):
    by_id = {record["id"]: record for record in records}
    for row in replicas.to_dict("records"):
        record = by_id[row["id"]]
        assert record["identity"]["hyperparameters"][row["panel"]] == row["value"]
        assert (record["identity"]["seed"], record["identity"]["dataset"]) == (row["seed"], row["dataset"])
        if record["status"] == "finished":
            assert row["test"] == record["scores"]["test"][row["metric"]] == row[f"test_{row['metric']}"]
        else:
            assert np.isnan([row["test"], row["val"], row["bootstrap_se"]]).all()
    assert (replicas["bins_mean"] == 10).all() and (replicas["bins_max"] == 12).all()
    assert {"val_qwk", "test_qwk", "test_accuracy", "test_rmse", "test_mae"} <= set(replicas.columns)


def test_records_of_other_studies_are_left_out(study, records, replicas):
    other = SensitivityStudy(cards=(FakeCard("eol"), FakeCard("pt")), seeds=seeds(4), seeds_vary="split")
    mixed = [*make_records(other, drifting(base=0.1)), *records]
    pd.testing.assert_frame_equal(
        tables.replica_frame(mixed, study, metrics_of(study), metrics_of(study)), replicas, check_exact=True
    )
    assert tables.replica_frame([], study, metrics_of(study), metrics_of(study)).empty


def test_another_metric_is_exploratory_and_an_absent_one_an_error(study, records):
    chosen = {"eol": "accuracy", "pt": "rmse"}
    frame = tables.replica_frame(records, study, chosen, metrics_of(study))
    assert set(frame.loc[frame["dataset"] == "eol", "role"]) == {"exploratory"}
    assert set(frame.loc[frame["dataset"] == "pt", "role"]) == {"primary"}
    with pytest.raises(DataError, match="metric 'auc' must be in the record .* which has qwk, accuracy"):
        tables.replica_frame(records, study, chosen | {"eol": "auc"}, metrics_of(study))
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        tables.replica_frame(records, study, chosen | {"eol": "acuracy"}, metrics_of(study))


def test_points_agree_with_pandas_and_scipy(study, replicas):
    points = tables.points_frame(replicas, study)
    assert len(points) == 2 * 25
    for row in points.to_dict("records"):
        scores = tables.rows_of(replicas, row["dataset"], row["panel"], row["value"])["test"].dropna()
        assert (row["n"], row["n_diverged"]) == (len(scores), 4 - len(scores))
        interval = scipy_stats.ttest_1samp(scores, 0).confidence_interval()
        np.testing.assert_allclose(
            [row["mean"], row["sd"], row["low"], row["high"]], [scores.mean(), scores.std(), *interval]
        )


def test_points_that_never_ran_are_rows_without_numbers(study, replicas):
    partial = replicas[replicas["panel"] != "tau"]
    points = tables.points_frame(partial, study)
    missing = points[points["panel"] == "tau"]
    assert len(missing) == 10 and (missing["n"] == 0).all()
    assert missing[["mean", "sd", "low", "high"]].isna().all(axis=None)
    assert (tables.points_frame(replicas.iloc[:0], study)["n"] == 0).all()


def test_tables_survive_the_csv_to_the_last_digit(study, replicas, tmp_path):
    points, significance = tables.points_frame(replicas, study), significance_frame(replicas, study)
    paths = tables.write_tables(tmp_path, replicas=replicas, points=points, significance=significance)
    assert [path.name for path in paths] == ["replicas.csv", "points.csv", "significance.csv"]
    for path, frame in zip(paths, (replicas, points, significance), strict=True):
        back = pd.read_csv(path, dtype=str, keep_default_na=False)
        assert list(back.columns) == list(frame.columns)
        for name in frame.columns:
            if pd.api.types.is_float_dtype(frame[name]):
                read = [float(cell) if cell else np.nan for cell in back[name]]
                np.testing.assert_array_equal(read, frame[name])
            else:
                assert list(back[name]) == [str(value) for value in frame[name]]
        assert b"\r" not in path.read_bytes()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = files.write_text(tmp_path / "deep" / "a.txt", "old")

    def broken(file):
        file.write(b"half")
        raise RuntimeError("disk went away")

    with pytest.raises(RuntimeError, match="disk went away"):
        files.write_atomically(path, broken)
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"] and path.read_text() == "old"
    files.write_text(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o044 or path.stat().st_mode & 0o777 == 0o600  # readable unless the mask forbids


def test_manifest_is_json_and_refuses_numbers_json_has_not(tmp_path):
    path = tables.write_manifest(tmp_path / "manifest.json", {"b": 1, "a": {"seconds": 2.5, "name": "Müller"}})
    assert json.loads(path.read_text()) == {"a": {"seconds": 2.5, "name": "Müller"}, "b": 1}
    with pytest.raises(ValueError, match="not JSON compliant"):
        tables.write_manifest(path, {"seconds": float("nan")})
    assert json.loads(path.read_text())["b"] == 1


def test_console_summary_shows_every_point_and_the_tables_marks(study, replicas):
    points, significance = tables.points_frame(replicas, study), significance_frame(replicas, study)
    output = io.StringIO()
    Console(file=output, width=160).print(tables.summary_table(points, significance, study, "pt"))
    text = output.getvalue()
    assert "pt: test RMSE (lower is better)" in text
    for panel in study.panels:
        assert panel.key in text
    assert text.count("default") >= 5 and "3 (†1)" in text
    for row in tables.rows_of(significance, "pt").to_dict("records"):
        assert f"{row['difference']:+.4f}" in text
