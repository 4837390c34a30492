"""Stores to log to."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from mlflow import MlflowClient

from sweeps.service import writer
from sweeps.service.stores import resolve_store
from sweeps.service.tracker import Tracker
from tests.service.servers import REQUIRE_POSTGRES, Postgres, mlflow_server, postgres_binaries


@pytest.fixture
def new_store(tmp_path):
    """A store that is not there yet."""
    # The space stands for all that a shell, a URI or a database might trip over.
    return resolve_store(tmp_path / "out put", tmp_path)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database without a study; MLflow takes seconds to make one."""
    made = resolve_store(tmp_path_factory.mktemp("empty"), tmp_path_factory.getbasetemp())
    with Tracker(made, on_problem=pytest.fail):
        pass
    return made.database


@pytest.fixture
def store(new_store, empty_database):
    """An empty store."""
    new_store.database.parent.mkdir()
    shutil.copy(empty_database, new_store.database)
    return new_store


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Address of a real MLflow server with a SQLite database behind it."""
    folder = tmp_path_factory.mktemp("server")
    with mlflow_server(folder, f"sqlite:///{folder}/mlflow.db") as address:
        yield address


@pytest.fixture(scope="session")
def postgres():
    """A running PostgreSQL."""
    binaries = postgres_binaries()
    if binaries is None:
        assert os.environ.get(REQUIRE_POSTGRES) != "1", f"{REQUIRE_POSTGRES}=1, but there is no initdb"
        pytest.skip("no PostgreSQL on this machine")
    # Not in pytest's folder, which another user may not enter; and with a short name, for the socket in it.
    with tempfile.TemporaryDirectory(prefix="pg-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        postgres = Postgres(binaries, Path(folder), port)
        yield postgres
        postgres.stop()


@pytest.fixture
def quick(monkeypatch):
    """Shorter pauses between attempts."""
    monkeypatch.setattr(writer, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(writer, "LONGEST_PAUSE", 0.2)


@pytest.fixture
def clean(server):
    """The server without an experiment of an earlier test."""
    client = MlflowClient(server)
    for experiment in client.search_experiments(filter_string="name LIKE 'adaptbin/%'"):
        client.rename_experiment(experiment.experiment_id, f"done/{experiment.experiment_id}")
    return server
