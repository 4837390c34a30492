"""Choices of the protocol given one by one, with ``--switch``: what they make of it, and who reads them.

A choice that nothing in a study reads would still give its replicas new ids, and its tables a departure that is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adaptbin.config import RECONSTRUCTED, Protocol, Replica
from adaptbin.errors import ConfigError

if TYPE_CHECKING:
    from sweeps.service.points import Study


def _pretrains(replica: Replica) -> bool:
    return replica.hyperparameters.pretext != "none"


def _has(part: str) -> Callable[[Replica], bool]:
    return lambda replica: part in RECONSTRUCTED[replica.hyperparameters.pretext]


_READ: dict[str, tuple[str, Callable[[Replica], bool]]] = {
    "mse_scale": ("adaptive bins", _has("bins")),
    "bin_cap": ("adaptive bins", _has("bins")),
    "plateau_scale": ("adaptive bins", _has("bins")),
    "br_bins": ("BinRecon", _has("index")),
    "br_categorical": ("BinRecon", _has("index")),
    "pretrain_schedule": ("pretraining", _pretrains),
    "decoder_depth": ("pretraining", _pretrains),
    "probe_schedule": ("linear probes", lambda replica: replica.finetuning is None),
}
"""Choice -> what reads it, and whether a replica has that; the others are read by all."""


def protocol_of(given: Mapping[str, Any]) -> Protocol:
    """The protocol that ``--protocol`` names, with what ``--switch`` changes of it.

    Raises ConfigError for a value that a choice has not, and for a choice that is given twice.
    """
    switched: dict[str, Any] = {}
    for name, value in given["switch"]:
        if name in switched:
            raise ConfigError(f"a switch must be given once, got {name} as {switched[name]} and as {value}")
        switched[name] = value
    return replace(Protocol.named(given["protocol"]), **switched)


def require_readers(study: Study, switched: Mapping[str, str]) -> None:
    """Raise ConfigError for a choice, by name, that nothing in the study reads."""
    for name, value in switched.items():
        what, reads = _READ.get(name, ("", lambda replica: True))
        if not any(reads(replica) for replica in study.all_replicas):
            raise ConfigError(f"a switch must be one that the study reads; {what} reads {name}, got {name}={value}")
