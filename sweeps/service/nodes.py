"""What a machine has to give: cores, GPUs, and the memory of both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweeps.service.manifest import available_cores


@dataclass(frozen=True)
class Node:
    """One machine that packs can run on."""

    cores: float
    gpus: float = 0.0
    memory: int | None = None
    """Bytes of main memory; None where nobody knows."""
    gpu_memory: int | None = None
    """Bytes of its smallest GPU; None where there is none, or nobody knows."""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.cores:g} cores and {self.gpus:g} GPUs"


def local_nodes(*, with_gpus: bool = False) -> list[Node]:
    """This machine.  ``with_gpus`` imports torch to look for GPUs; without, there are none."""
    gpus, gpu_memory = local_gpus() if with_gpus else (0, None)
    return [Node(available_cores(), gpus, available_memory(), gpu_memory)]


def local_gpus() -> tuple[int, int | None]:
    """GPUs of this machine, and the bytes of the smallest."""
    import torch

    sizes = [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]
    return len(sizes), min(sizes, default=None)


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes of main memory that this process may use: the machine's, cut to its container's limit.

    None where the operating system does not tell.
    """
    found = []
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                found.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError):
        pass
    try:
        found.append(int((cgroup / "memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or its limit is the word "max"
        pass
    return min(found, default=None)
