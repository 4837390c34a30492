"""What a study chose for a data set, as a file that later studies take points from.

The masking study leaves one, a default point, in a file of its own; the benchmark leaves one per objective
(:mod:`sweeps.service.pretext_choices`).  A choice holds only under the conditions that it was made under, so all of
them are in the file and are compared before anything is trained.  The number of seeds alone may differ, which is then
told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from adaptbin.config import (
    METHOD_VERSION,
    Architecture,
    Budget,
    Hyperparameters,
    PretextName,
    Protocol,
    SeedsVary,
    method_version_of,
)
from adaptbin.errors import ConfigError
from adaptbin.metrics import get_metric
from sweeps.service.files import write_text

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.points import DatasetCard

CHOICE_SCHEMA = 1
"""Layout of a choice file."""

CHOICE_FILE = "choice.json"

CHOOSING_STUDY = "masking"
"""Name, and folder under the output, of the study that makes choices."""

PAPERS_POINTS = 14
"""Points that the paper's grid of adaptive binning has, from which one is chosen; see :mod:`sweeps.service.grid`."""

CHOSEN_FIELDS = ("masking", "mask_prob", "t_init")
"""Fields of :class:`adaptbin.config.Hyperparameters` that are chosen; all others but the pretext are the default's."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A point chosen on validation for one data set, and the conditions it was chosen under."""

    schema: int = CHOICE_SCHEMA
    method_version: int = METHOD_VERSION
    dataset: str
    fingerprint: str
    """Fingerprint of the parsed table."""
    architecture: Architecture
    protocol: Protocol
    budget: Budget
    seeds: tuple[int, ...]
    seeds_vary: SeedsVary
    metric: str
    higher_is_better: bool
    hyperparameters: Hyperparameters
    """The chosen point in full."""
    val_mean: float
    """Its validation score, mean over seeds."""
    points_compared: int
    points_diverged: int
    """How many of these could not be chosen, since a seed diverged."""
    path: Path | None = field(default=None, compare=False)
    """File that it was read from."""

    def apply_to(self, default: Hyperparameters) -> Hyperparameters:
        """``default`` with what was chosen in place of its masking and number of first bins."""
        return replace(default, **{name: getattr(self.hyperparameters, name) for name in CHOSEN_FIELDS})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready dictionary, without the path."""
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "path"}
        settings = {name: parts[name].to_dict() for name in _SETTINGS}
        return {**parts, **settings, "seeds": list(self.seeds)}

    def require_fit(
        self,
        card: DatasetCard,
        *,
        protocol: Protocol,
        budget: Budget,
        seeds_vary: SeedsVary,
        metric: str,
        pretext: PretextName = "adaptive_binning",
    ) -> None:
        """Raise ConfigError unless a study of ``card`` under these conditions may take the choice over.

        ``metric``: name of the study's primary metric on that data set.  ``pretext``: that of the point that is set.
        """
        for what, made_for, wanted in (
            ("data set", self.dataset, card.key),
            ("pretext", self.hyperparameters.pretext, pretext),
            ("table fingerprint", self.fingerprint, card.fingerprint),
            ("method version", self.method_version, method_version_of(card.architecture.encoder)),
            ("architecture", self.architecture, card.architecture),
            ("protocol", self.protocol, protocol),
            ("budget", self.budget, budget),
            ("seeds-vary", self.seeds_vary, seeds_vary),
            ("metric", self.metric, metric),
            ("direction", _direction(self.higher_is_better), _direction(get_metric(metric).higher_is_better)),
        ):
            if made_for != wanted:
                rule, got = _difference(wanted, made_for)
                raise ConfigError(
                    f"a choice must be made for the {what} of the study that takes it over, {rule}, "
                    f"got {got} in {self.path}"
                )


_SETTINGS: dict[str, Any] = {
    "architecture": Architecture,
    "protocol": Protocol,
    "budget": Budget,
    "hyperparameters": Hyperparameters,
}


def write_choice(choice: Choice, folder: Path) -> Path:
    """Write ``choice.json`` under ``folder``, atomically."""
    return write_text(folder / CHOICE_FILE, json.dumps(choice.to_dict(), indent=2, allow_nan=False) + "\n")


def read_choice(path: Path) -> Choice:
    """The choice in a file.  Raises ConfigError when it does not hold a whole one of this schema."""
    what = "a choice must be a file that masking.py has written"
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}, got {path}: {error}") from error
    if not isinstance(parts, dict) or "schema" not in parts:
        raise ConfigError(f"{what}, got {path}, which has no schema")
    if parts["schema"] != CHOICE_SCHEMA:
        raise ConfigError(f"schema of a choice must be {CHOICE_SCHEMA}, got {parts['schema']!r} in {path}")
    try:
        return choice_from_dict(parts, path)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{what}, got {path}: {error}") from error


def choice_from_dict(parts: Mapping[str, Any], path: Path) -> Choice:
    """A choice from :meth:`Choice.to_dict`, read from the file at ``path``.

    Raises ValueError (of which ConfigError is one), KeyError, TypeError or AttributeError when it is not a whole one.
    """
    known = {f.name for f in fields(Choice)} - {"path"}
    if parts.keys() != known:
        raise ValueError(f"it must hold {', '.join(sorted(known))}, got {', '.join(sorted(parts))}")
    settings = {name: kind.from_dict(parts[name]) for name, kind in _SETTINGS.items()}
    choice = Choice(**{**parts, **settings, "seeds": tuple(parts["seeds"]), "path": path})
    chosen = {name: getattr(choice.hyperparameters, name) for name in ("pretext", *CHOSEN_FIELDS)}
    usual = Hyperparameters(**chosen)
    if choice.hyperparameters != usual:
        rule, got = _difference(usual, choice.hyperparameters)
        raise ValueError(f"all but {', '.join(chosen)} must be at the default, {rule}, got {got}")
    if not choice.seeds or not all(type(seed) is int for seed in choice.seeds):
        raise ValueError(f"seeds must be whole numbers, at least one, got {list(choice.seeds)}")
    if choice.seeds_vary not in get_args(SeedsVary):
        raise ValueError(f"seeds_vary must be one of {', '.join(get_args(SeedsVary))}, got {choice.seeds_vary!r}")
    if type(choice.val_mean) is not float or not math.isfinite(choice.val_mean):
        raise ValueError(f"val_mean must be a finite number, got {choice.val_mean!r}")
    return choice


def choices_for(options: Options, cards: Iterable[DatasetCard]) -> dict[str, Choice]:
    """Per data set the choice that ``--choice-from`` names; empty without the option.

    Raises ConfigError when there is none for a data set, or when it was made under other conditions.
    """
    if options.choice_from is None:
        return {}
    found = {}
    for card in cards:
        choice = read_choice(path_of_choice(options.choice_from, CHOOSING_STUDY, card.key, CHOICE_FILE))
        choice.require_fit(
            card,
            protocol=options.protocol,
            budget=options.budget,
            seeds_vary=options.seeds_vary,
            metric=options.primary[card.key],
        )
        found[card.key] = choice
    return found


def path_of_choice(named: Path, study: str, dataset: str, file: str) -> Path:
    """What ``--choice-from`` names: ``file`` itself, or an output folder in which ``study`` left it for ``dataset``.

    Raises ConfigError when it is neither.
    """
    if named.is_file():
        return named
    path = named / study / dataset / file
    if not path.is_file():
        raise ConfigError(
            f"choice-from must be a {file}, or a folder that holds {path.relative_to(named)}, got {named}"
        )
    return path


def _direction(higher_is_better: bool) -> str:
    return "higher is better" if higher_is_better else "lower is better"


def _difference(wanted: Any, got: Any) -> tuple[str, str]:
    """Both sides in words; of settings only what differs."""
    if not is_dataclass(wanted):
        return str(wanted), str(got)
    names = [f.name for f in fields(wanted) if getattr(wanted, f.name) != getattr(got, f.name)]
    told, other = (", ".join(f"{name} {getattr(side, name)}" for name in names) for side in (wanted, got))
    return told, other
