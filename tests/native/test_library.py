"""The switch, and the library that must be there wherever a C compiler is."""

from __future__ import annotations

import shutil
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

from adaptbin import native
from adaptbin.errors import ConfigError
from adaptbin.native import library
from tests.paths import SETS, switched, usable_sets


def test_where_there_is_a_c_compiler_there_are_kernels() -> None:
    """Else tests of the compiled path would be skipped, and nobody would see it."""
    assert shutil.which("cc") is None or library._file() is not None


def test_zero_switches_kernels_off() -> None:
    with switched("0"):
        assert native.instruction_set() is None and not native.serves(torch.zeros(1))


def test_not_set_or_empty_takes_the_best_set() -> None:
    for value in (None, ""):
        with switched(value):
            assert native.instruction_set() == next(iter(usable_sets()), None)


@pytest.mark.parametrize("name", SETS)
def test_a_name_asks_for_one_set(name: str) -> None:
    with switched(name):
        if name in usable_sets():
            assert native.instruction_set() == name
        else:
            with pytest.raises(ConfigError, match=f"got '{name}'"):
                native.instruction_set()


@pytest.mark.parametrize("name", ["avx1024", "AVX2", "1"])
def test_a_name_of_nothing_is_refused(name: str) -> None:
    with (
        switched(name),
        pytest.raises(ConfigError, match=f"ADAPTBIN_NATIVE must be 0 or an instruction set.* got '{name}'"),
    ):
        native.serves(torch.zeros(1))


def test_without_a_library_the_plain_path_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with switched(None):
        assert native.instruction_set() is None and not native.serves(torch.zeros(1))
    with switched("avx2"), pytest.raises(ConfigError, match="compiled.* got 'avx2'"):
        native.instruction_set()


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_a_broken_library_is_said_and_the_plain_path_serves(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / f"_kernels{EXTENSION_SUFFIXES[0]}").write_bytes(content)
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with switched(None), pytest.warns(UserWarning, match="install the package anew"):
        assert native.instruction_set() is None


@pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")
def test_a_library_of_other_sources_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "INTERFACE", library.INTERFACE + 1)
    with switched(None), pytest.warns(UserWarning, match="compiled from other sources"):
        assert native.instruction_set() is None
