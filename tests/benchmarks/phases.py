"""Where the time of an epoch goes: timers put around the functions of a pretraining, from outside.

Times are exclusive: what a timed function spends inside another timed one counts for the inner one.  Phases that are
never entered (with compiled kernels heads and loss are one) are left out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from adaptbin import native
from adaptbin.training import autoencoder
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning

OTHER = "the rest"

TIMED = (
    ("draws", "draws", ("at", "kept")),
    ("gathering rows", "stack", ("_gather",)),
    ("encoder, decoder forward", "stack", ("model.encoder.forward", "model.decoder.forward")),
    ("heads forward", "stack", ("model.heads.forward",)),
    ("loss and its gradient", "autoencoder", ("hord_", "cross_entropy_")),
    ("heads and loss, one kernel", "native", ("reconstruct",)),
    ("heads backward", "stack", ("model.heads.backward",)),
    ("encoder, decoder backward", "stack", ("model.encoder.backward", "model.decoder.backward")),
    ("forward and backward, outside these", "stack", ("model.gradients_",)),
    ("clipping, AdamW", "stack", ("optimizer.step",)),
    ("end of epoch: FPT, DIGS", "stack", ("_end_epoch",)),
)
"""(phase, whose, paths), in the order of an epoch.  Module functions are those of the module that calls them."""


class PhaseTimers:
    """Exclusive seconds by phase of ``stacks``, which share their draws, inside a ``with`` block."""

    def __init__(self, stacks: Sequence[AdaptiveBinning]) -> None:
        self._owners: dict[str, Sequence[Any]] = {
            "draws": [stack.draws for stack in stacks[:1]],
            "stack": stacks,
            "autoencoder": [autoencoder],
            "native": [native],
        }
        self._spent: dict[str, float] = {}
        self._inner = [0.0]
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        for phase, whose, paths in TIMED:
            for owner in self._owners[whose]:
                for path in paths:
                    self._wrap(owner, path, phase)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, path: str, phase: str) -> None:
        *parts, name = path.split(".")
        for part in parts:
            owner = getattr(owner, part)
        function = getattr(owner, name)
        own = name in vars(owner)
        setattr(owner, name, self._timed(function, phase))
        # A method was found on the class: taking the instance's attribute away brings it back.
        self._undo.append(lambda: setattr(owner, name, function) if own else delattr(owner, name))

    def _timed(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - started
                inner = self._inner.pop()
                self._inner[-1] += spent
                self._spent[phase] = self._spent.get(phase, 0.0) + spent - inner

        return timed

    def seconds(self, total: float) -> dict[str, float]:
        """Seconds by phase in the order of an epoch, and last what is left of ``total``."""
        found = {phase: self._spent[phase] for phase, _, _ in TIMED if phase in self._spent}
        return found | {OTHER: max(0.0, total - sum(found.values()))}
