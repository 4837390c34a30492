"""A saved estimator: a folder with tensors (safetensors) and JSON for everything else.  Nothing in it is executed.

``estimator.json`` names the file of tensors, which bears part of its SHA-256 in its name, and is replaced last and in
one step: whoever reads meanwhile, or after a crash, finds the old estimator or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from adaptbin.config import encoder_of, method_version_of
from adaptbin.errors import DataError, DataNotFoundError

KIND = "adaptbin estimator"

SCHEMA = 3
"""Layout of the folder, and what its values mean; raised when either changes."""

MANIFEST = "estimator.json"


class Saved(NamedTuple):
    """What a folder holds."""

    values: dict[str, Any]
    """JSON's kinds of values."""
    tensors: dict[str, Tensor]
    """On the CPU."""


def write_folder(folder: Path, saved: Saved) -> None:
    """Make ``folder`` hold ``saved`` instead of what it held; other files stay.  Raises OSError as writing does."""
    folder.mkdir(parents=True, exist_ok=True)
    content = save_tensors(saved.tensors)
    digest = hashlib.sha256(content).hexdigest()
    name = f"tensors-{digest[:12]}.safetensors"
    manifest = {
        "kind": KIND,
        "schema": SCHEMA,
        "method_version": method_version_of(encoder_of(saved.values)),
        "versions": {package: version(package) for package in ("adaptbin", "torch", "scikit-learn", "numpy", "pandas")},
        "tensors": {"file": name, "sha256": digest},
        **saved.values,
    }
    _write(folder / name, content)
    manifest["digest"] = _digest(manifest)
    _write(folder / MANIFEST, (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode())
    for old in folder.glob("tensors-*.safetensors"):
        if old.name != name:
            old.unlink()


def read_folder(folder: Path) -> Saved:
    """What :func:`write_folder` wrote.

    One of an older method version is read as it is: that version says how models are trained, while what a trained one
    computes of rows follows from its tensors and values, and a change of what these mean raises :data:`SCHEMA`.

    Raises DataNotFoundError where nothing was, DataError for a folder of another kind, one that a newer version wrote,
    and one with a changed or missing file.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DataNotFoundError(f"{folder} must be a folder that an estimator was saved to, got no {MANIFEST} in it")
    manifest = _manifest(path)
    tensors = manifest.get("tensors", {})
    file = folder / str(tensors.get("file"))
    if not file.is_file():
        raise DataError(f"{path} tells of the tensors in {file.name}, got no such file beside it")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != tensors.get("sha256"):
        raise DataError(f"{file} must be as it was saved, got other content: it was changed or cut short")
    try:
        return Saved(manifest, load_tensors(content))
    except SafetensorError as error:
        raise DataError(f"{file} must hold tensors, got: {error}") from error


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} must be JSON, got: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        got = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
        raise DataError(f"{path} must be of the kind {KIND!r}, got {got!r}")
    for name, ours in (("schema", SCHEMA), ("method_version", method_version_of(encoder_of(manifest)))):
        theirs = manifest.get(name)
        if not isinstance(theirs, int) or theirs > ours:
            raise DataError(
                f"{path}: {name} must be at most {ours}, got {theirs}: "
                f"it was saved by adaptbin {manifest.get('versions', {}).get('adaptbin', '?')}, which is newer"
            )
    if manifest.pop("digest", None) != _digest(manifest):
        raise DataError(f"{path} must be as it was saved, got other content: it was changed or cut short")
    return manifest


def _digest(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
