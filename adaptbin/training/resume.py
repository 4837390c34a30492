"""A pack's state between attempts: when it is saved, and how any part of the pack goes on from it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from adaptbin import native
from adaptbin.training.checkpoint import Checkpoint, save_state, saved_states

SAVING_SHARE = 0.02
"""Most of the time that saving may take, as long as ``checkpoint_seconds`` are not over."""

FIRST_COST = 0.02
"""Seconds that the first save is taken to need; from then on the last one tells."""

PARTS = 20
"""A state is worth saving after each of so many parts of the epochs."""


class Stopwatch:
    """Wall and core seconds of a pack, with its share of what earlier attempts spent."""

    def __init__(self) -> None:
        self._started = (time.perf_counter(), time.process_time())
        self._earlier = (0.0, 0.0)

    def add(self, seconds: float, core_seconds: float) -> None:
        """Count time of an earlier attempt."""
        self._earlier = (self._earlier[0] + seconds, self._earlier[1] + core_seconds)

    @property
    def earlier(self) -> tuple[float, float]:
        """Of earlier attempts alone."""
        return self._earlier

    def read(self) -> tuple[float, float]:
        """Wall and core seconds until now."""
        return (
            self._earlier[0] + time.perf_counter() - self._started[0],
            self._earlier[1] + time.process_time() - self._started[1],
        )


class Resumable(Protocol):
    """Replicas that are trained together epoch by epoch, and can go on from states of others."""

    epoch: int
    epochs: int

    @property
    def names(self) -> tuple[str, ...]:
        """What names the replicas in a state."""

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly, with "names" and "epoch"."""

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Go on from states of one epoch, which together hold these replicas."""


class PackState:
    """The state of a pack in its checkpoint (None: kept nowhere), phase by phase.

    replicas: how many the pack has, for sharing out the time spent.  seconds: saved at least this often, if an epoch
    ends in time.
    """

    def __init__(
        self,
        replicas: int,
        device: torch.device,
        watch: Stopwatch,
        checkpoint: Checkpoint | None,
        seconds: float,
    ) -> None:
        self._replicas, self._device, self._watch = replicas, device, watch
        self._checkpoint, self._seconds = checkpoint, seconds
        self._phases: dict[str, Sequence[Resumable]] = {}
        self._found: Mapping[str, Any] | None = None
        self._saved_at = time.perf_counter()
        self._saved: tuple[int, ...] = ()
        self._cost = FIRST_COST
        self._beside: dict[str, Any] = {}

    def beside(self) -> dict[str, Any]:
        """What :meth:`keep` kept in the first state of the checkpoint whose arithmetic is this device's; may be empty.

        It is kept on.
        """
        for state in self._states():
            if state["arithmetic"] == arithmetic(self._device):
                self._beside = dict(state.get("beside", {}))
                break
        return self._beside

    def keep(self, values: Mapping[str, Any]) -> None:
        """Save plain ``values`` beside the states, now and from now on."""
        self._beside = dict(values)
        self._saved = ()
        self.save()

    def go_on_with(self, phase: str, stacks: Sequence[Resumable]) -> None:
        """Save these stacks from now on, in place of those that the phase began with."""
        self._phases[phase] = stacks

    def begin(self, phase: str, stacks: Sequence[Resumable]) -> int:
        """Save these stacks from now on, those of earlier phases as they are.

        They go on from the first state that holds them all, in whatever stacks: of the first phase any state of the
        checkpoint, later the one that it went on from.  -> its epoch, or 0.
        """
        self._phases[phase] = stacks
        names = {name for stack in stacks for name in stack.names}
        first = len(self._phases) == 1
        candidates = self._states() if first else iter([] if self._found is None else [self._found])
        for state in candidates:
            saved = state["phases"].get(phase, [])
            if state["arithmetic"] == arithmetic(self._device) and _serves(saved, names):
                for stack in stacks:
                    stack.load_states(saved)
                if first:
                    # Kept only for what a later phase needs of it: it is as large as the pack.
                    self._found = state if len(state["phases"]) > 1 else None
                    share = min(1.0, self._replicas / state["replicas"])
                    self._watch.add(share * state["seconds"], share * state["core_seconds"])
                break
        if not first:
            self._found = None
        self._saved_at = time.perf_counter()
        return stacks[0].epoch if stacks else 0

    def _states(self) -> Iterator[Mapping[str, Any]]:
        return iter(()) if self._checkpoint is None else saved_states(self._checkpoint)

    def save_if_due(self) -> None:
        """Save after an epoch when the seconds are over, or at the end of a part if that costs little."""
        stack = list(self._phases.values())[-1][0]
        since = time.perf_counter() - self._saved_at
        ends_part = stack.epoch % max(1, stack.epochs // PARTS) == 0 or stack.epoch == stack.epochs
        if since >= self._seconds or (ends_part and since * SAVING_SHARE >= self._cost):
            self.save()

    def save(self) -> None:
        """Save now, unless this attempt has saved this epoch's state already."""
        epochs = tuple(stacks[0].epoch if stacks else 0 for stacks in self._phases.values())
        if self._checkpoint is None or epochs == self._saved or not any(epochs):
            return
        began = time.perf_counter()
        seconds, core_seconds = self._watch.read()
        state = {
            "arithmetic": arithmetic(self._device),
            "replicas": self._replicas,
            "seconds": seconds,
            "core_seconds": core_seconds,
            "beside": self._beside,
            "phases": {name: [stack.state() for stack in stacks] for name, stacks in self._phases.items()},
        }
        try:
            save_state(self._checkpoint, state)
        except OSError:  # a checkpoint is a precaution: without it training goes on, and tries again later
            self._saved_at = time.perf_counter()
            return
        self._saved, self._saved_at = epochs, time.perf_counter()
        self._cost = self._saved_at - began


def kernels(device: torch.device) -> str:
    """What does the arithmetic: an instruction set of the compiled kernels, or torch."""
    return (native.instruction_set() if device.type == "cpu" else None) or "torch"


def arithmetic(device: torch.device) -> str:
    """What rounds alike: all compiled kernels do, and torch on one kind of device."""
    return "compiled" if kernels(device) != "torch" else f"torch on {device.type}"


def _serves(saved: Sequence[Mapping[str, Any]], names: set[str]) -> bool:
    """Whether saved stacks hold ``names`` at one epoch; half of a run on another path would be exact on neither."""
    held = {name: stack["epoch"] for stack in saved for name in stack["names"]}
    return names <= held.keys() and len({held[name] for name in names}) == 1
