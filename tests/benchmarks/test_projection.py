"""The benchmark of the projection, on a study of a few replicas."""

from __future__ import annotations

from collections import Counter

import pytest
from mlflow import MlflowClient

from sweeps.service import projection
from sweeps.service.stores import resolve_store
from tests.benchmarks.projection import POINTS, counted, project, study_records

# MLflow 3.17 on SQLAlchemy 2.1, on import.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")


def test_curves_are_about_as_long_as_those_of_a_real_replica():
    # eol, 1000 epochs: 50 of loss, 31 of splits, 26 of mean_bins, 13 of max_bins.
    (record,) = study_records(1)
    lengths = Counter(name for name, _, _ in projection.replica_curves(record))
    assert lengths == {"loss": 50, "splits": 30, "mean_bins": 25, "max_bins": 17}


def test_every_replica_is_projected_and_every_call_counted(tmp_path):
    store = resolve_store(tmp_path, tmp_path)
    replicas = 2 * len(POINTS)
    with counted() as calls:
        page, spent = project(store, replicas, calls, ahead=5)
    assert calls["create_run"] == calls["set_terminated"] == 1 + len(POINTS) + replicas
    assert set(spent) == {"wall s", "CPU s", "MiB after"}
    experiment = page.split("/")[3]
    found = MlflowClient(store.tracking_uri).search_runs([experiment], "tags.`adaptbin.kind` = 'replica'")
    assert len(found) == replicas
    with counted() as calls:
        project(store, replicas, calls, ahead=replicas)
    assert calls["create_run"] == 0
