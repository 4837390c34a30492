"""Trees against MLflow's own rules: its validation sees everything that is sent; the runs are kept in memory."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow.store.entities import PagedList
from mlflow.utils.validation import (
    _validate_batch_log_data,
    _validate_batch_log_limits,
    _validate_param_keys_unique,
    _validate_tag,
)

from sweeps.service.projection import study_settings
from sweeps.service.runs import RunTree, StudyRun
from sweeps.service.tracking import _MlflowClient
from tests.service.records import DEFAULT, PATIENCE, TAU, make_record

POINTS = (DEFAULT, TAU, PATIENCE)


class MemoryMlflow:
    """As much of MLflow's client as a tree uses."""

    def __init__(self) -> None:
        self.runs: dict[str, Any] = {}
        self.calls: Counter[str] = Counter()
        self.batches: list[tuple[list[Any], list[Any], list[Any]]] = []

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="1", lifecycle_stage="active", artifact_location="/artifacts")

    def create_run(self, experiment: str, *, start_time: int | None, tags: dict[str, str], run_name: str) -> Any:
        self.calls["create_run"] += 1
        # The width of the column in MLflow's table of runs, which SQLite does not mind.
        assert len(run_name) <= 250
        for key, value in tags.items():
            _validate_tag(key, value)
        info = SimpleNamespace(run_id=str(len(self.runs)), status="RUNNING", run_name=run_name)
        data = SimpleNamespace(tags=dict(tags), params={}, metrics={})
        self.runs[info.run_id] = SimpleNamespace(info=info, data=data)
        return self.runs[info.run_id]

    def log_batch(self, run: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        self.calls["log_batch"] += 1
        metrics, params, tags = _validate_batch_log_data(list(metrics), list(params), list(tags))
        _validate_batch_log_limits(metrics, params, tags)
        _validate_param_keys_unique(params)
        self.batches.append((metrics, params, tags))
        data = self.runs[run].data
        data.metrics |= {metric.key: metric.value for metric in metrics}
        data.params |= {param.key: param.value for param in params}
        data.tags |= {tag.key: tag.value for tag in tags}

    def set_terminated(self, run: str, status: str, end: int | None) -> None:
        self.calls["set_terminated"] += 1
        self.runs[run].info.status = status

    def update_run(self, run: str, status: str) -> None:
        self.calls["update_run"] += 1
        self.runs[run].info.status = status

    def search_runs(self, experiments: list[str], wanted: str, *, max_results: int, page_token: str | None) -> Any:
        self.calls["search_runs"] += 1
        begin = int(page_token or 0)
        end = begin + max_results
        return PagedList(list(self.runs.values())[begin:end], str(end) if end < len(self.runs) else None)

    def of_kind(self, kind: str) -> list[Any]:
        return [run for run in self.runs.values() if run.data.tags["adaptbin.kind"] == kind]


@pytest.fixture
def mlflow(monkeypatch):
    # Else MLflow cuts long texts itself, with a warning for each; a server may be set to refuse them.
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", "false")
    return MemoryMlflow()


def open_tree(mlflow: MemoryMlflow, points=POINTS) -> RunTree:
    study = StudyRun("eol", "0" * 24, tuple(sorted(DEFAULT.to_dict().items())))
    settings = study_settings(make_record(DEFAULT, 0)["identity"], DEFAULT.to_dict())
    tree = RunTree(_MlflowClient(mlflow), study, None, "sensitivity", settings, "an output")
    tree.make_points([point.to_dict() for point in points])
    return tree


def test_a_replica_takes_three_calls_however_many_numbers_it_has(mlflow):
    tree = open_tree(mlflow)
    for seed, epochs in enumerate((1, 12, 100, 1000)):
        mlflow.calls.clear()
        tree.write_replica(make_record(TAU, seed, epochs=epochs))
        assert mlflow.calls == {"create_run": 1, "log_batch": 1, "set_terminated": 1}
    mlflow.calls.clear()
    tree.write_replica(make_record(TAU, 3, epochs=1000))
    assert mlflow.calls.total() == 0


@pytest.mark.parametrize(("metrics", "params", "tags"), [(2500, 250, 250), (999, 1, 1), (0, 101, 1), (950, 60, 1)])
def test_what_one_batch_cannot_hold_goes_in_several_and_the_tags_last(mlflow, metrics, params, tags):
    run = mlflow.create_run("1", start_time=1, tags={}, run_name="run").info.run_id
    settings, labels = ({f"{kind}{i}": "x" for i in range(count)} for kind, count in (("p", params), ("t", tags)))
    _MlflowClient(mlflow).log(run, [("loss", i, float(i), i) for i in range(metrics)], settings, labels)
    sent = [list(itertools.chain(*parts)) for parts in zip(*mlflow.batches, strict=True)]
    assert [metric.step for metric in sent[0]] == list(range(metrics))
    assert [param.key for param in sent[1]] == list(settings)
    assert [tag.key for tag in sent[2]] == list(labels)
    tagged = [bool(batch[2]) for batch in mlflow.batches]
    assert tagged == sorted(tagged)
    assert not any(batch[0] or batch[1] for batch in mlflow.batches[tagged.index(True) + 1 :])


def test_nan_and_infinity_stay_out(mlflow):
    record = make_record(DEFAULT, 0)
    record["scores"]["test"] = {"qwk": math.nan, "accuracy": math.inf}
    for name in ("loss", "mean_bins", "max_bins"):
        record["curves"][name][3:6] = [math.nan, math.inf, -math.inf]
    tree = open_tree(mlflow)
    tree.write_replica(record)
    tree.write_point(DEFAULT.to_dict(), {"test_mean": math.nan, "test_sd": math.inf, "n": 1})
    values = [metric.value for metrics, _, _ in mlflow.batches for metric in metrics]
    assert len(values) > 12
    assert all(map(math.isfinite, values))


def test_texts_and_names_of_any_length_are_cut_to_what_mlflow_takes(mlflow):
    tree = open_tree(mlflow, points=())
    record = make_record(DEFAULT, 0)
    record["identity"]["hyperparameters"]["masking"] = "m" * 10_000
    record["runtime"]["device"] = "d" * 10_000
    tree.describe("n" * 10_000, {"adaptbin.panels": "p" * 10_000})
    tree.write_replica(record)
    (replica,) = mlflow.of_kind("replica")
    assert replica.info.run_name.startswith("seed 0, masking = mmm")
    assert replica.data.params["masking"] == "m" * 6000
    assert replica.data.tags["adaptbin.device"] == "d" * 8000
    assert replica.data.tags["adaptbin.digest"]


def test_a_study_has_few_columns(mlflow):
    """MLflow's interface freezes with thousands of metrics or parameters: every key is a column."""
    tree = open_tree(mlflow)
    for seed in range(10):
        for point in POINTS:
            tree.write_replica(make_record(point, seed, epochs=1 + 100 * seed, diverged=seed == 9))
    for point in POINTS:
        tree.write_point(point.to_dict(), {"metric": "qwk", "test_mean": 0.9, "n": 10})
    tree.finish((), "FINISHED")
    data = [run.data for run in mlflow.runs.values()]
    assert len(set().union(*(found.metrics for found in data))) <= 30
    assert len(set().union(*(found.params for found in data))) <= 60
    assert len(set().union(*(found.tags for found in data))) <= 30


def test_thousands_of_runs_are_paged_and_counted(mlflow):
    records = [make_record(POINTS[i % 3], i // 3) for i in range(2100)]
    for record in records:
        record["runtime"]["finished_at"] = "2026-03-01T10:00:00Z"
    tree = open_tree(mlflow)
    for record in records:
        tree.write_replica(record)
    tree.finish((), "FINISHED")
    mlflow.calls.clear()
    again = open_tree(mlflow)
    assert mlflow.calls["search_runs"] == 3
    for record in records:
        again.write_replica(record)
    again.finish((), "FINISHED")
    assert mlflow.calls["create_run"] == 0
    assert len(mlflow.runs) == 1 + 3 + 2100
    (study,) = mlflow.of_kind("study")
    assert study.data.metrics == {"points": 3, "replicas": 2100, "diverged": 0}
