"""Where MLflow keeps a sweep's runs, and the shell command that shows them.  Paths and words only; no mlflow."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from adaptbin.errors import ConfigError

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
"""Databases MLflow can keep runs in."""

_SERVERS = ("http://", "https://")


@dataclass(frozen=True)
class Store:
    """Where runs and artifacts go, and how to look at them."""

    tracking_uri: str
    artifact_root: str | None
    """Absolute folder of the artifacts; None leaves the choice to a tracking server."""
    ui_command: str
    """Complete shell command that shows the runs, from any folder."""
    output: Path
    """Absolute output folder of the sweep."""
    is_own: bool = True
    """Whether the store was made for this output folder, rather than named by a tracking URI and perhaps shared."""
    problem: str | None = None
    """Why nothing can be logged here; the tracker reports it and does nothing else."""

    @property
    def is_server(self) -> bool:
        """Whether it is a tracking server, which keeps database and artifacts to itself."""
        return self.tracking_uri.startswith(_SERVERS)

    @property
    def database(self) -> Path | None:
        """Absolute path of the SQLite file; None for any other store."""
        return sqlite_path(self.tracking_uri)


def resolve_store(output: Path, root: Path, tracking_uri: str | None = None) -> Store:
    """Choose the MLflow store of a sweep; touches no file.

    ``output`` equal to ``<root>/mlruns`` gives MLflow's own default, ``<root>/mlflow.db``, which plain ``mlflow ui`` in
    ``root`` shows; any other folder keeps its own ``mlflow.db``.  Artifacts go to ``<output>/artifacts``.
    ``tracking_uri`` overrides the database and, when it is a server, the artifacts too.

    Raises:
        ConfigError: ``tracking_uri`` is of no kind that MLflow knows, or the database's path holds a ``?``, where
            SQLAlchemy would cut it off.
    """
    output, root = output.resolve(), root.resolve()
    artifacts = str(output / "artifacts")
    if tracking_uri is not None:
        if tracking_uri.startswith(_SERVERS):
            page = shlex.quote(without_password(tracking_uri))
            browse = f"{shlex.quote(sys.executable)} -m webbrowser {page}"
            return Store(tracking_uri, None, browse, output, is_own=False)
        scheme = urlsplit(tracking_uri).scheme.split("+")[0]
        if scheme not in DATABASES:
            kinds = ", ".join(f"{name}://" for name in ("http", "https", *DATABASES))
            raise ConfigError(f"tracking-uri must begin with one of {kinds}, got {without_password(tracking_uri)!r}")
        path = sqlite_path(tracking_uri)
        uri = tracking_uri if path is None else _sqlite_uri(path)
        return Store(uri, artifacts, _ui_command(uri), output, is_own=False)
    is_default = output == root / "mlruns"
    uri = _sqlite_uri((root if is_default else output) / "mlflow.db")
    return Store(
        uri, artifacts, _ui_command(uri), output, problem=_old_file_store(output, root) if is_default else None
    )


def sqlite_path(uri: str) -> Path | None:
    """Absolute path of the file a ``sqlite:///`` URI names; None for any other URI."""
    name = uri.removeprefix("sqlite:///") if uri.startswith("sqlite:///") else ""
    return Path(name).resolve() if name and not name.startswith(":memory:") else None


def without_password(uri: str) -> str:
    """The URI with its password, if any, replaced by ``***``."""
    password = urlsplit(uri).password
    return uri.replace(f":{password}@", ":***@") if password else uri


def _old_file_store(folder: Path, root: Path) -> str | None:
    # The same test as MLflow's own: with such a file about, plain `mlflow ui` in `root` refuses to start.
    for meta in sorted(folder.glob("*/meta.yaml")):
        if meta.parent.name.isdigit():
            return (
                f"{meta} belongs to an old MLflow file store, which MLflow no longer opens and which keeps `mlflow ui` "
                f"in {root} from starting; move the numbered folders of {folder} away, or choose another --output"
            )
    return None


def _sqlite_uri(path: Path) -> str:
    if "?" in str(path):
        raise ConfigError(f"the path of an MLflow database must be without '?', got {str(path)!r}")
    return f"sqlite:///{path}"


def _ui_command(uri: str) -> str:
    # Plain `mlflow` only where the shell would find the one that belongs to this Python.
    found = shutil.which("mlflow")
    is_ours = found is not None and Path(found).parent == Path(sys.executable).parent
    mlflow = "mlflow" if is_ours else f"{shlex.quote(sys.executable)} -m mlflow"
    return f"{mlflow} ui --backend-store-uri {shlex.quote(without_password(uri))}"
