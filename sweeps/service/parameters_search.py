"""The options of a search alone, and what they mean together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from adaptbin.errors import ConfigError, unknown
from sweeps.service.plan import Halving
from sweeps.service.point_fields import Value
from sweeps.service.search_ranges import Domain
from sweeps.service.search_space import parse_asked, parse_fixed, read_space

SAMPLERS = ("tpe", "cmaes", "random", "qmc", "grid")

Objective = Literal["score", "seconds"]
OBJECTIVES: dict[str, tuple[Objective, ...]] = {"score": ("score",), "score,seconds": ("score", "seconds")}
"""What --objective may say -> the objectives: the validation score, and core-seconds."""

TRIALS = 200

REPLICAS = 20
"""Replicas of a pack that are asked for at once."""

RUNGS = 3
"""Rungs under halving: a ninth of the epochs, a third, all."""

KEEP = 1 / 3


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a person asked of a search, besides what all scripts are asked.

    Raises ConfigError on what is out of range or does not go together.
    """

    trials: int | None = None
    """Points to try, without those that another study seeded; None: :data:`TRIALS`, and of a grid all."""
    sampler: str = "tpe"
    objectives: tuple[Objective, ...] = ("score",)
    searched: Mapping[str, Domain]
    """Fields whose ranges are not the usual ones."""
    fixed: Mapping[str, Value]
    confirm_seeds: int
    """Fresh seeds of the confirmation."""
    halving: Halving | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ConfigError(f"trials must be a whole number >= 1, got {self.trials}")
        if self.sampler not in SAMPLERS:
            raise ConfigError(unknown("sampler", self.sampler, SAMPLERS))
        if self.confirm_seeds < 1:
            raise ConfigError(f"confirm seeds must be a whole number >= 1, got {self.confirm_seeds}")
        if self.sampler == "cmaes" and len(self.objectives) > 1:
            raise ConfigError(f"the sampler cmaes takes the objective score alone, got {','.join(self.objectives)}")
        if self.halving is not None and len(self.objectives) > 1:
            raise ConfigError(
                "halving ranks points by their score, so it takes the objective score alone, got "
                f"{','.join(self.objectives)}"
            )


def search_options() -> list[click.Parameter]:
    """The options of a search that no other script has."""
    return [
        _option("--trials", f"Points to try.  [default: {TRIALS}, and of a grid all]", type=int),
        _option("--sampler", "What proposes points: tpe, cmaes, random, qmc (quasi-random), or grid, which takes every "
                "combination of the values given.", "tpe"),
        _option("--objective", "score: the validation mean over --seeds of the primary metric; score,seconds: also "
                "as few core-seconds as can be.", "score"),
        _option("--space", "YAML file with a line for each field whose range is not the usual one.",
                type=click.Path(path_type=Path)),
        _option("--search", "Range or values of a field, as tau=1e-5..1e-3,log or depth=1,2; may be repeated.",
                multiple=True),
        _option("--fix", "Value of a field that is not searched, as width=128; may be repeated.", multiple=True),
        _option("--confirm-seeds", "Fresh seeds on which the best three and the default are trained again.  "
                "[default: as many as the preset has]", type=int),
        _option("--halving", "Train points of a pack to the first rung, the best third of them on to the next; never "
                "for a claim of significance.", False, is_flag=True),
        _option("--rungs", "Epochs of the rungs under --halving, such as 11,33,100.  [default: a ninth, a third and "
                "all of --epochs]"),
    ]  # fmt: skip


def resolve_search(given: Mapping[str, Any], *, seeds: int, epochs: int) -> SearchOptions:
    """The options as typed.  ``seeds``: those of the preset.  ``epochs``: of a whole pretraining.

    Raises ConfigError.
    """
    if given["objective"] not in OBJECTIVES:
        raise ConfigError(unknown("objective", given["objective"], OBJECTIVES))
    if given["rungs"] is not None and not given["halving"]:
        raise ConfigError("rungs are those of --halving, got --rungs without it")
    searched, fixed = ({}, {}) if given["space"] is None else read_space(given["space"].expanduser())
    asked, kept = parse_asked(given["search"]), parse_fixed(given["fix"])
    if both := sorted(asked.keys() & kept.keys()):
        raise ConfigError(f"a field is either searched or fixed, got --search and --fix of {both[0]}")
    # What is typed goes before what the file says.
    searched = {name: domain for name, domain in searched.items() if name not in kept} | asked
    fixed = {name: value for name, value in fixed.items() if name not in asked} | kept
    return SearchOptions(
        trials=given["trials"],
        sampler=given["sampler"],
        objectives=OBJECTIVES[given["objective"]],
        searched=searched,
        fixed=fixed,
        confirm_seeds=seeds if given["confirm_seeds"] is None else given["confirm_seeds"],
        halving=_halving(given["rungs"], epochs) if given["halving"] else None,
    )


def _halving(text: str | None, epochs: int) -> Halving:
    if text is None:
        rungs = sorted({max(1, round(epochs * KEEP**power)) for power in range(RUNGS)})
        if len(rungs) < RUNGS:
            raise ConfigError(f"halving needs epochs enough for {RUNGS} rungs, got {epochs}; --rungs says which")
    else:
        words = [word for word in re.split(r"[,\s]+", text) if word]
        if not words or not all(word.isdigit() for word in words):
            raise ConfigError(f"rungs must be whole numbers such as 11,33,100, got {text!r}")
        rungs = list(map(int, words))
    if rungs[-1] != epochs:
        raise ConfigError(f"the last rung must be all epochs, {epochs}, got {rungs[-1]}")
    return Halving(rungs=tuple(rungs), keep=KEEP)


def _option(name: str, text: str, default: Any = None, **extra: Any) -> click.Option:
    return click.Option([name], default=default, help=text, **extra)
