"""Stores to log to."""

from __future__ import annotations

import shutil

import pytest

from sweeps.service.stores import resolve_store
from sweeps.service.tracker import Tracker


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
