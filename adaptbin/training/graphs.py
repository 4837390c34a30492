"""A stretch of device work that is recorded once and replayed: thousands of small kernels for one launch.

A replica step is some hundred kernels of a few microseconds, which a host cannot launch as fast as a GPU runs them.
A recorded body must not read a value back and must find its tensors in the same places at every replay; what changes
from call to call is passed as an argument and copied into tensors of the recording.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Protocol

import torch
from torch import Tensor

Arguments = tuple[Tensor | None, ...]


class Graph(Protocol):
    """One recording of a body."""

    def warm_up(self, body: Callable[[], None]) -> None:
        """Run the body once, for its effect, so that libraries and kernels are set up before they are recorded."""

    def record(self, body: Callable[[], None]) -> None:
        """Record the body without running it."""

    def replay(self) -> None:
        """Run what was recorded."""

    def release(self) -> None:
        """Give the recording and its memory back."""


MakeGraph = Callable[[], Graph]


class CudaGraph:
    """A :class:`torch.cuda.CUDAGraph`, warmed up and captured on a side stream that graphs may share.

    cuBLAS and the allocator keep memory per stream, so a pack uses one; and warming up on the stream of the capture
    puts cuBLAS's workspace into ordinary memory instead of a graph's.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._graph = torch.cuda.CUDAGraph()

    def warm_up(self, body: Callable[[], None]) -> None:
        """Run the body once on the side stream; work before and after it waits as on one stream."""
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            body()
        current.wait_stream(self._stream)

    def record(self, body: Callable[[], None]) -> None:
        """Capture the body; its temporaries live in a memory pool of the graph."""
        # Thread-local: what another thread of the process does meanwhile cannot spoil the capture.
        with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
            body()

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        with torch.cuda.device(self._stream.device):
            self._graph.replay()

    def release(self) -> None:
        """Free the graph; its pool follows when no tensor of it is referred to any more."""
        self._graph.reset()


def graphs_for(device: torch.device) -> MakeGraph | None:
    """How work on ``device`` is recorded; None where calling it directly costs nothing more."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return lambda: CudaGraph(stream)


@dataclass
class _Recording:
    graph: Graph
    arguments: Arguments
    recorded: bool = False


class Replayed:
    """A body that is called directly, or through one graph per shapes of its arguments.

    The first call at new shapes is the warm-up and runs for its effect, the second records, and all from the second on
    replay.  The body gets tensors, works in place and returns nothing.
    """

    def __init__(self, body: Callable[..., None], make: MakeGraph | None) -> None:
        # An owner whose method this is must not be kept by it: on a device that is full its tensors are to go at once.
        self._body = weakref.WeakMethod(body) if isinstance(body, MethodType) else lambda: body
        self._make = make
        self._recordings: dict[tuple[torch.Size | None, ...], _Recording] = {}
        self.captures = 0
        """Recordings made so far."""

    def __call__(self, *arguments: Tensor | None) -> None:
        """Run the body on ``arguments``."""
        body = self._body()
        assert body is not None, "its owner holds this object"
        if self._make is None:
            body(*arguments)
            return
        shapes = tuple(None if a is None else a.shape for a in arguments)
        held = self._recordings.get(shapes)
        if held is None:
            # Recorded reads go to copies: the caller's tensors are new ones at every call.
            held = _Recording(self._make(), tuple(None if a is None else a.clone() for a in arguments))
            self._recordings[shapes] = held
            held.graph.warm_up(lambda: body(*arguments))
            return
        for own, given in zip(held.arguments, arguments, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        if not held.recorded:
            fixed = held.arguments
            held.graph.record(lambda: body(*fixed))
            held.recorded = True
            self.captures += 1
        held.graph.replay()

    def invalidate(self) -> None:
        """Forget all recordings, because tensors they use have changed shape or place."""
        for held in self._recordings.values():
            held.graph.release()
        self._recordings.clear()
