"""A second device with real numbers: tensors "elsewhere" compute on the CPU, but do not mix with the CPU's.

It stands in for a GPU where code reads results and branches on them, which fake tensors cannot do.  Its tensors report
the device ``meta``.  Every wait of the host for the device is counted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ELSEWHERE = torch.device("meta")
_WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "repeat_interleave", "masked_select", "equal")


class MixedDevices(Exception):
    """One operation on tensors of both devices, which a GPU would refuse."""


class Elsewhere(Tensor):
    """A tensor of the second device; ``inner`` holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Elsewhere:
        made: Elsewhere = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=ELSEWHERE
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise MixedDevices(f"{func} on the second device outside of SecondDevice()")


class _Contents(TorchFunctionMode):
    """Contents go through the CPU both ways: torch fills no tensor on ``meta`` and lists none of a subclass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and torch.device(kwargs.get("device") or "cpu") == ELSEWHERE:
            del kwargs["device"]
            return torch.tensor(*args, **kwargs).to(ELSEWHERE)
        if func is Tensor.tolist:
            return args[0].cpu().tolist() if isinstance(args[0], Elsewhere) else args[0].tolist()
        return func(*args, **kwargs)


class SecondDevice(TorchDispatchMode):
    """Within, ``device="meta"`` is a device that computes."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        """Reads of values or lengths, and copies between host and device, either way."""
        self._contents = _Contents()

    def __enter__(self) -> SecondDevice:
        super().__enter__()
        self._contents.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._contents.__exit__(*error)
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        there = any(isinstance(t, Elsewhere) for t in tensors)
        name = func.name().removeprefix("aten::").split(".")[0]
        target = kwargs.get("device")
        if name not in ("_to_copy", "copy_"):
            # A CPU scalar among device tensors is a plain number to torch.
            here = [t for t in tensors if not isinstance(t, Elsewhere) and t.ndim > 0]
            if there and here:
                raise MixedDevices(f"{func} mixes devices: {[tuple(t.shape) for t in here]} are on the CPU")
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        masks = name in ("index", "index_put_") and any(
            isinstance(leaf, Tensor) and leaf.dtype is torch.bool for leaf in tree_leaves(args[1])
        )
        home = name == "_to_copy" and there and target is not None and torch.device(target).type == "cpu"
        sent = name == "_to_copy" and not there and target is not None and torch.device(target) == ELSEWHERE
        crossing = name == "copy_" and there and not all(isinstance(t, Elsewhere) for t in tensors)
        self.waits += (there and name in _WAITS) or masks or home or sent or crossing
        held = {id(t.inner): t for t in tensors if isinstance(t, Elsewhere)}
        args, kwargs = tree_map(lambda x: x.inner if isinstance(x, Elsewhere) else x, (args, kwargs))
        out = func(*args, **kwargs)
        if home or not (there or (target is not None and torch.device(target) == ELSEWHERE)):
            return out.clone() if home else out

        def placed(x: Any) -> Any:
            # What worked in place returns the tensor it was given.
            if not isinstance(x, Tensor):
                return x
            return held[id(x)] if id(x) in held else Elsewhere(x)

        # A copy between devices belongs to the one it goes to.
        if name == "copy_" and id(out) not in held:
            return out
        return tree_map(placed, out)
