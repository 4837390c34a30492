"""What an encoder checks: its settings, when they are made, and the tensors it is given."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from adaptbin.encoders.base import Columns, DropSite
from adaptbin.errors import ConfigError, ShapeError


def check_whole(config: object, least: int, *names: str) -> None:
    """Raise ConfigError unless each setting is a whole number of at least ``least``."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} must be a whole number >= {least}, got {value!r}")


def check_probability(config: object, *names: str) -> None:
    """Raise ConfigError unless each setting is in [0, 1)."""
    for name in names:
        value = getattr(config, name)
        if not _is_number(value) or not 0 <= value < 1:
            raise ConfigError(f"{name} must be in [0, 1), got {value!r}")


def check_number(config: object, least: float, *names: str, above: bool = False) -> None:
    """Raise ConfigError unless each setting is a finite number >= ``least``, or > ``least`` if ``above``."""
    for name in names:
        value = getattr(config, name)
        if not _is_number(value) or not least <= value < float("inf") or (above and value == least):
            raise ConfigError(f"{name} must be a finite number {'>' if above else '>='} {least:g}, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_input(x: Tensor, columns: Columns, replicas: int) -> None:
    """Raise ShapeError unless x is [R, B, F] with at least one row."""
    if x.ndim != 3 or x.shape[0] != replicas or x.shape[1] < 1 or x.shape[2] != columns.inputs:
        raise ShapeError(
            f"inputs must be [R, B, F] with R = {replicas}, B >= 1 and F = {columns.inputs}, got {tuple(x.shape)}"
        )


def check_kept(kept: Sequence[Tensor] | None, sites: Sequence[DropSite], x: Tensor) -> None:
    """Raise ShapeError unless there is one mask [R or 1, B, units] for every site, or none at all (None)."""
    if kept is None:
        return
    if len(kept) != len(sites):
        raise ShapeError(f"there must be one mask of kept units for each of {len(sites)} sites, got {len(kept)}")
    for i, (mask, site) in enumerate(zip(kept, sites, strict=True)):
        if mask.ndim != 3 or mask.shape[0] not in (1, x.shape[0]) or mask.shape[1:] != (x.shape[1], site.units):
            raise ShapeError(
                f"the mask of kept units of site {i} must be [R or 1, B, units] with R = {x.shape[0]}, "
                f"B = {x.shape[1]} and units = {site.units}, got {tuple(mask.shape)}"
            )
