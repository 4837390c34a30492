"""The most memory a pack needed: of a GPU what its tensors took, else of its process."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_PROCESS = Path("/proc/self")


class PeakMemory:
    """Starts measuring where it is made; earlier peaks of the process do not count."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._measures = True
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            # Linux takes "5" as: forget the peak of the resident set.
            (_PROCESS / "clear_refs").write_text("5", encoding="ascii")
        except OSError:
            self._measures = False

    def bytes(self) -> int | None:
        """The peak so far; None where the system does not tell."""
        if not self._measures:
            return None
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        found = re.search(r"^VmHWM:\s*(\d+) kB$", (_PROCESS / "status").read_text(encoding="utf-8"), re.MULTILINE)
        return int(found[1]) * 1024 if found else None
