"""Both ways through the arithmetic, for tests that must hold on each: compiled kernels, and plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adaptbin import native
from adaptbin.native.library import SWITCH, load

BOTH = ("compiled", "plain")
SETS = ("avx512", "avx2", "neon")


@contextmanager
def switched(value: str | None) -> Iterator[None]:
    """The switch at ``value`` (None: not set), and the library looked up anew; afterwards all is as it was."""
    with pytest.MonkeyPatch.context() as patch:
        if value is None:
            patch.delenv(SWITCH, raising=False)
        else:
            patch.setenv(SWITCH, value)
        load.cache_clear()
        try:
            yield
        finally:
            load.cache_clear()


@contextmanager
def using(path: str) -> Iterator[None]:
    """Work on one of ``BOTH`` paths; skips "compiled" where no library was compiled for this processor."""
    with switched("0" if path == "plain" else None):
        if path == "compiled" and native.instruction_set() is None:
            pytest.skip("no compiled kernels for this processor")
        yield


def usable_sets() -> list[str]:
    """The instruction sets that were compiled and that this processor has."""
    with switched(None):
        best = native.instruction_set()
    if best is None:
        return []
    return list(SETS[:2]) if best == SETS[0] else [best]
