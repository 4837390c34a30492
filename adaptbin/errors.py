"""The errors this library raises, and the helpers that word them: what, the rule, what was got.

Each class also derives from the builtin a caller would expect, so either may be caught.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AdaptBinError(Exception):
    """Anything this library says no to."""


class ConfigError(AdaptBinError, ValueError):
    """A setting that is unknown or out of range."""


class DataError(AdaptBinError, ValueError):
    """A file or table that does not hold what its card declares."""


class DataNotFoundError(DataError, FileNotFoundError):
    """A data set that is neither on this machine nor downloadable."""


class ShapeError(AdaptBinError, ValueError):
    """A tensor whose shape breaks the axis rule."""


class ResourceError(AdaptBinError, RuntimeError):
    """Cores, GPUs or folders that were asked for and are not there."""


class TrainingError(AdaptBinError, RuntimeError):
    """A model whose loss is no longer a number."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Sentence part naming the closest known word: ``"; did you mean 'eol'?"``, or ``""`` when none is close."""
    match = difflib.get_close_matches(str(name).lower(), [str(k) for k in known], n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Message for a name outside a fixed set, with the nearest valid one and the whole set."""
    names = sorted(str(k) for k in known)
    return f"unknown {what} {name!r}{nearest(name, names)} (known: {', '.join(names)})"
