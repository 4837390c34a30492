"""Kinds of values on the command line: how a word becomes one, and what is said of a word that does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from adaptbin.config import MAX_SEED, Protocol
from adaptbin.errors import ConfigError, unknown
from sweeps.service.own_grids import OwnGrid, read_grids

MOST_SEEDS = 10_000


def parse_seeds(text: str) -> tuple[int, ...]:
    """``"10"`` is seeds 0 to 9; ``"0,3,5"``, ``"2-4"`` and ``"7,"`` are the seeds listed.  Raises ConfigError."""
    rule = f"a number n >= 1 (seeds 0 to n-1) or a list such as 0,3,5 or 2-4, at most {MOST_SEEDS} of them"
    words = [word for word in re.split(r"[,\s]+", text.strip()) if word]
    if not words or not all(re.fullmatch(r"\d+(-\d+)?", word) for word in words):
        raise ConfigError(f"seeds must be {rule}, got {text!r}")
    if len(words) == 1 and words[0].isdigit() and "," not in text:
        if not 1 <= int(words[0]) <= MOST_SEEDS:
            raise ConfigError(f"seeds must be {rule}, got {text!r}")
        return tuple(range(int(words[0])))
    seeds: list[int] = []
    for word in words:
        low, _, high = word.partition("-")
        first, last = int(low), int(high or low)
        if last < first:
            raise ConfigError(f"a range of seeds must go upwards, got {word!r}")
        if len(seeds) + last - first >= MOST_SEEDS or last >= MAX_SEED:
            raise ConfigError(f"seeds must be {rule}, each below {MAX_SEED}, got {text!r}")
        seeds.extend(range(first, last + 1))
    return tuple(sorted(set(seeds)))


def parse_duration(text: str) -> float:
    """Seconds of ``"2h"``, ``"90min"``, ``"1h30m"``, ``"45s"`` or ``"5400"``.  Raises ConfigError."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m(?:in)?)?(?:{number}s?)?", re.sub(r"\s", "", text.lower()))
    seconds = (
        sum(float(part) * unit for part, unit in zip(match.groups(0), units.values(), strict=True)) if match else 0
    )
    if seconds <= 0:
        raise ConfigError(
            f"budget must be a time above 0 such as 2h, 90min, 1h30m, 45m or 5400 (seconds), got {text!r}"
        )
    return seconds


class Names(click.ParamType[tuple[str, ...]]):
    """A list of known names, separated by commas or spaces; "all" is ``everything``, by default every known one."""

    name = "names"

    def __init__(self, what: str, known: Sequence[str], everything: Sequence[str] | None = None) -> None:
        self._what = what
        self._known = tuple(known)
        self._everything = self._known if everything is None else tuple(everything)

    def convert(self, value: Any, parameter: Any, context: Any) -> tuple[str, ...]:
        """The value of a word; raises ConfigError."""
        words = [word.lower() for word in re.split(r"[,\s]+", value) if word]
        for word in words:
            if word not in self._known and word != "all":
                raise ConfigError(unknown(self._what, word, [*self._known, "all"]))
        if not words:
            raise ConfigError(f"{self._what} must be one of {', '.join(self._known)} or all, got {value!r}")
        return self._everything if "all" in words else tuple(words)


class One(click.ParamType[str]):
    """One of a fixed set of words."""

    name = "word"

    def __init__(self, what: str, known: Sequence[str]) -> None:
        self._what = what
        self._known = tuple(known)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What the help page shows in the value's place."""
        return f"[{'|'.join(self._known)}]"

    def convert(self, value: Any, parameter: Any, context: Any) -> str:
        """The value of a word; raises ConfigError."""
        if value not in self._known:
            raise ConfigError(unknown(self._what, value, self._known))
        return str(value)


class Switch(click.ParamType[tuple[str, str]]):
    """One choice of the protocol, as ``name=value``."""

    name = "name=value"

    def convert(self, value: Any, parameter: Any, context: Any) -> tuple[str, str]:
        """Name and value of a word; raises ConfigError."""
        name, equals, chosen = (part.strip() for part in value.partition("="))
        if not equals:
            raise ConfigError(f"switch must be name=value, as decoder_depth=encoder, got {value!r}")
        if name not in Protocol.choices():
            raise ConfigError(unknown("switch", name, Protocol.choices()))
        return name, chosen


class Grids(click.ParamType[tuple[OwnGrid, ...]]):
    """Grids of one word, or of a file."""

    name = "grid"

    def convert(self, value: Any, parameter: Any, context: Any) -> tuple[OwnGrid, ...]:
        """The value of a word; raises ConfigError."""
        return read_grids(value)


class Wholes(click.ParamType[tuple[int, ...]]):
    """A list of whole numbers, separated by commas or spaces."""

    name = "numbers"

    def __init__(self, what: str, usual: Sequence[int]) -> None:
        self._what = what
        self._usual = usual

    def convert(self, value: Any, parameter: Any, context: Any) -> tuple[int, ...]:
        """The value of a word; raises ConfigError."""
        return tuple(map(int, _numbers(value, r"[+-]?\d+", f"{self._what} must be whole numbers", self._usual)))


class Decimals(click.ParamType[tuple[float, ...]]):
    """A list of numbers, separated by commas or spaces."""

    name = "numbers"

    def __init__(self, what: str, usual: Sequence[float]) -> None:
        self._what = what
        self._usual = usual

    def convert(self, value: Any, parameter: Any, context: Any) -> tuple[float, ...]:
        """The value of a word; raises ConfigError."""
        number = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
        return tuple(map(float, _numbers(value, number, f"{self._what} must be numbers", self._usual)))


def _numbers(value: Any, number: str, rule: str, usual: Sequence[float]) -> list[str]:
    """The words of a list, each of which must match ``number``."""
    words = [word for word in re.split(r"[,\s]+", str(value)) if word]
    if not words or not all(re.fullmatch(number, word) for word in words):
        raise ConfigError(f"{rule} such as {','.join(map(str, usual))}, got {value!r}")
    return words


class Seeds(click.ParamType[tuple[int, ...]]):
    """See :func:`parse_seeds`."""

    name = "seeds"

    def convert(self, value: Any, parameter: Any, context: Any) -> tuple[int, ...]:
        """The value of a word; raises ConfigError."""
        return parse_seeds(value)


class Duration(click.ParamType[float]):
    """See :func:`parse_duration`."""

    name = "time"

    def convert(self, value: Any, parameter: Any, context: Any) -> float:
        """The value of a word; raises ConfigError."""
        return parse_duration(value)
