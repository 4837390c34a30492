from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from adaptbin.errors import ConfigError
from sweeps.service.stores import resolve_store, sqlite_path, without_password


def test_the_default_output_gives_the_default_store_of_mlflow(tmp_path):
    store = resolve_store(tmp_path / "mlruns", tmp_path)
    assert store.tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert store.database == tmp_path / "mlflow.db"
    assert store.artifact_root == str(tmp_path / "mlruns" / "artifacts")
    assert store.problem is None
    assert not list(tmp_path.iterdir())


def test_another_output_keeps_everything_to_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = resolve_store(Path("some where"), tmp_path / "repository")
    assert store.database == tmp_path / "some where" / "mlflow.db"
    assert store.artifact_root == str(tmp_path / "some where" / "artifacts")
    assert shlex.split(store.ui_command)[-2:] == ["--backend-store-uri", store.tracking_uri]


def test_the_command_names_the_mlflow_of_this_python_unless_the_shell_would_find_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve_store(tmp_path, tmp_path).ui_command.startswith(f"{sys.executable} -m mlflow ui ")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert resolve_store(tmp_path, tmp_path).ui_command.startswith("mlflow ui ")


def test_a_tracking_uri_overrides_the_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = resolve_store(tmp_path / "out", tmp_path, "sqlite:///mine.db")
    assert (file.database, file.artifact_root) == (tmp_path / "mine.db", str(tmp_path / "out" / "artifacts"))
    server = resolve_store(tmp_path / "out", tmp_path, "http://localhost:5000")
    assert (server.database, server.artifact_root) == (None, None)
    assert server.ui_command.endswith(" -m webbrowser http://localhost:5000")
    other = resolve_store(tmp_path / "out", tmp_path, "postgresql://me:secret@db/runs")
    assert other.database is None
    assert "secret" not in other.ui_command


def test_a_path_that_would_be_cut_off_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"must be without '\?', got .*what\?"):
        resolve_store(tmp_path / "what?", tmp_path)


@pytest.mark.parametrize(("folder", "is_old"), [("0", True), ("12345", True), ("eol", False)])
def test_an_old_file_store_is_a_problem_where_mlflow_would_look(tmp_path, folder, is_old):
    meta = tmp_path / "mlruns" / folder / "meta.yaml"
    meta.parent.mkdir(parents=True)
    meta.touch()
    problem = resolve_store(tmp_path / "mlruns", tmp_path).problem
    assert (problem is not None) == is_old
    assert problem is None or f"{meta} belongs to an old MLflow file store" in problem
    # Elsewhere plain `mlflow ui` is not the way to look at the runs, so the file is in nobody's way.
    assert resolve_store(tmp_path / "mlruns", tmp_path / "elsewhere").problem is None


@pytest.mark.parametrize("uri", ["foo://bar", "somewhere", "file:///tmp/store"])
def test_a_store_that_mlflow_has_not_is_refused(tmp_path, uri):
    with pytest.raises(ConfigError, match="tracking-uri must begin with one of http://, .*, got"):
        resolve_store(tmp_path, tmp_path, uri)
    for known in ("postgresql+psycopg2://me@host/runs", "mysql://host/runs", "https://host"):
        assert resolve_store(tmp_path, tmp_path, known).tracking_uri == known


def test_other_uris_are_no_files_and_passwords_stay_hidden():
    assert sqlite_path("sqlite:///:memory:") is None
    assert sqlite_path("sqlite://") is None
    assert sqlite_path("https://host") is None
    assert without_password("https://me:secret@host/x") == "https://me:***@host/x"
    assert without_password("https://host/x") == "https://host/x"
