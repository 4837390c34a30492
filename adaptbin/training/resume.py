"""A pack's state between attempts: when it is saved, and how any part of the pack goes on from it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from adaptbin import native
from adaptbin.replicas.grouping import model_id
from adaptbin.training.checkpoint import Checkpoint, save_state, saved_states
from adaptbin.training.pretrain import Pretraining

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

    def read(self) -> tuple[float, float]:
        """Wall and core seconds until now."""
        return (
            self._earlier[0] + time.perf_counter() - self._started[0],
            self._earlier[1] + time.process_time() - self._started[1],
        )


class PackState:
    """The state of a pack's stacks in its checkpoint (None: kept nowhere).

    replicas: how many the pack has, for sharing out the time spent.  seconds: saved at least this often, if an epoch
    ends in time.
    """

    def __init__(
        self,
        stacks: Sequence[Pretraining],
        replicas: int,
        watch: Stopwatch,
        checkpoint: Checkpoint | None,
        seconds: float,
    ) -> None:
        self._stacks, self._replicas, self._watch = stacks, replicas, watch
        self._checkpoint, self._seconds = checkpoint, seconds
        self._saved_at = time.perf_counter()
        self._saved_epoch = 0
        self._cost = FIRST_COST

    def resume(self) -> int:
        """Go on from the first state that holds all models of the pack, in whatever stacks; -> its epoch, or 0."""
        if self._checkpoint is None:
            return 0
        models = {model_id(replica) for stack in self._stacks for replica in stack.replicas}
        for state in saved_states(self._checkpoint):
            if _serves(state, models, arithmetic(self._stacks[0].device)):
                for stack in self._stacks:
                    stack.load_states(state["stacks"])
                share = min(1.0, self._replicas / state["replicas"])
                self._watch.add(share * state["seconds"], share * state["core_seconds"])
                break
        self._saved_at = time.perf_counter()
        return self._stacks[0].epoch

    def save_if_due(self) -> None:
        """Save after an epoch when the seconds are over, or at the end of a part if that costs little."""
        epoch, epochs = self._stacks[0].epoch, self._stacks[0].epochs
        since = time.perf_counter() - self._saved_at
        ends_part = epoch % max(1, epochs // PARTS) == 0 or epoch == epochs
        if since >= self._seconds or (ends_part and since * SAVING_SHARE >= self._cost):
            self.save()

    def save(self) -> None:
        """Save now, unless this attempt has saved this epoch's state already."""
        epoch = self._stacks[0].epoch
        if self._checkpoint is None or epoch == self._saved_epoch:
            return
        began = time.perf_counter()
        seconds, core_seconds = self._watch.read()
        state = {
            "arithmetic": arithmetic(self._stacks[0].device),
            "replicas": self._replicas,
            "seconds": seconds,
            "core_seconds": core_seconds,
            "stacks": [stack.state() for stack in self._stacks],
        }
        try:
            save_state(self._checkpoint, state)
        except OSError:  # a checkpoint is a precaution: without it training goes on, and tries again later
            self._saved_at = time.perf_counter()
            return
        self._saved_epoch, self._saved_at = epoch, time.perf_counter()
        self._cost = self._saved_at - began


def kernels(device: torch.device) -> str:
    """What does the arithmetic: an instruction set of the compiled kernels, or torch."""
    return (native.instruction_set() if device.type == "cpu" else None) or "torch"


def arithmetic(device: torch.device) -> str:
    """What rounds alike: all compiled kernels do, and torch on one kind of device."""
    return "compiled" if kernels(device) != "torch" else f"torch on {device.type}"


def _serves(state: Mapping[str, Any], models: set[str], path: str) -> bool:
    """Whether a saved state holds ``models`` at one epoch; half of a run on another path would be exact on neither."""
    held = {name: stack["epoch"] for stack in state["stacks"] for name in stack["models"]}
    return state["arithmetic"] == path and models <= held.keys() and len({held[name] for name in models}) == 1
