"""Whether the kernel killed a process for want of memory: a death like any other, except that it would come again."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = (
    (Path("/sys/fs/cgroup/memory.events"), "oom_kill"),  # this container's
    (Path("/proc/vmstat"), "oom_kill"),  # the machine's
)


def kernel_kills() -> int:
    """How many processes the kernel of this machine, or container, has killed for want of memory; 0 if it won't say."""
    for path, name in _COUNTERS:
        try:
            for line in path.read_text(encoding="ascii").splitlines():
                key, _, value = line.partition(" ")
                if key == name:
                    return int(value)
        except (OSError, ValueError):
            continue
    return 0
