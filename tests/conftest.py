"""Shared fixtures: tables that need no file, and the real ones where ADAPTBIN_DATA names their folder."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from adaptbin.data import ENVIRONMENT, EncodedTable, Table, encode, load_table

GOLDEN = Path(__file__).parent / "golden"

# A slow import or a busy core is no failure; pytest's own time limit stands.  The cases are the same in every run, so
# that a failure is of the change under test; `make explore` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of data files.  Without ADAPTBIN_DATA the test skips; with it, a missing file is a failure."""
    named = os.environ.get(ENVIRONMENT)
    if not named:
        pytest.skip(f"{ENVIRONMENT} is not set")
    folder = Path(named).resolve()
    assert folder.is_dir(), f"{ENVIRONMENT} names no folder: {folder}"
    return folder


@pytest.fixture(scope="session")
def real_table(data_dir: Path) -> Callable[[str], Table]:
    """``real_table(key)``: one of the eight tables, read once per session and never downloaded."""
    return functools.cache(lambda key: load_table(key, data_dir=data_dir, download=False))


@pytest.fixture(scope="session")
def golden_tables() -> dict[str, Any]:
    """The released code's view of the eight tables."""
    return json.loads((GOLDEN / "tables.json").read_text())


@pytest.fixture(scope="session")
def breast_cancer() -> EncodedTable:
    """An embedded binary table: 30 numerical columns, 569 rows."""
    return encode(load_table("breast_cancer"))


@pytest.fixture(scope="session")
def diabetes() -> EncodedTable:
    """An embedded regression table: 9 numerical columns, one categorical, 442 rows."""
    return encode(load_table("diabetes"))


@pytest.fixture
def no_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave MLflow out of sweeps: it takes seconds."""
    runs = mock.Mock(pages={})
    monkeypatch.setattr("sweeps.service.sweep.Sweep._tracking", lambda self, reading: nullcontext(runs))
