"""What the sections of the GPU benchmark share: the device, the clock, how much is run, and what failed."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from adaptbin.training.finetune import FineTuning
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning


@dataclass(frozen=True)
class Scale:
    """How much of everything is run."""

    packs: tuple[int, ...] = (10, 21, 42, 105, 210)
    job: int = 210
    job_epochs: int = 1000
    esr_packs: tuple[int, ...] = (10, 42)
    esr_rows: int = 7360
    esr_columns: int = 178
    esr_width: int = 512
    probed: int = 210
    tuned_packs: tuple[int, ...] = (10, 42)
    """Packs of models that are fine-tuned, of each encoder."""
    cell_seconds: float = 2.0
    """Measuring time of one pack in one mode."""


SMALL = Scale((2, 3), 4, 3, (2,), 300, 20, 32, 2, (2,), 0.1)


class Bench:
    """Device, clock and outcome of one run."""

    def __init__(self, device: torch.device, seconds: float, scale: Scale) -> None:
        self.device, self.scale = device, scale
        self.deadline = time.perf_counter() + seconds
        self.failed: list[str] = []

    def left(self) -> float:
        """Seconds until the limit."""
        return self.deadline - time.perf_counter()

    def check(self, name: str, holds: bool, detail: str = "") -> None:
        """Say whether a check holds, and remember if not."""
        say(f"{'ok    ' if holds else 'FAILED'} {name}{': ' + detail if detail else ''}")
        if not holds:
            self.failed.append(name)

    def attempt(self, name: str, work: Callable[[], None], *, may_run_out: bool = False) -> None:
        """Do ``work``; an error is said, counts as failed (unless memory ``may_run_out``), and the rest goes on."""
        try:
            work()
        except Exception as error:
            if may_run_out and isinstance(error, torch.OutOfMemoryError):
                say(f"{name}: {str(error).splitlines()[0]}")
                return
            say(f"FAILED {name}:\n{traceback.format_exc()}")
            self.failed.append(name)

    def wait(self) -> None:
        """Until the device has done everything."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def clear(self) -> None:
        """Give memory back and forget its peak."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> str:
        """Most memory taken from the device since :meth:`clear`, those of recorded graphs included."""
        return f"{torch.cuda.max_memory_reserved(self.device) / 2**30:.2f} GiB" if self.device.type == "cuda" else "-"

    def time_epochs(self, run: AdaptiveBinning | FineTuning, seconds: float) -> tuple[float, int]:
        """Milliseconds per epoch, and the epochs timed, after three that set up and record."""
        for _ in range(3):
            run.run_epoch()
        self.wait()
        started = time.perf_counter()
        epochs = 0
        while epochs == 0 or (time.perf_counter() - started < seconds and run.epoch < run.epochs):
            run.run_epoch()
            epochs += 1
        self.wait()
        return 1000 * (time.perf_counter() - started) / epochs, epochs


def say(text: str = "") -> None:
    """Print at once."""
    print(text, flush=True)
