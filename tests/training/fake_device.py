"""A pretend GPU: shapes, dtypes and devices of real training code are followed through, with no GPU and no numbers.

torch's fake tensors refuse what needs a number (``item``, ``nonzero``, a mask as index).  The modes here also refuse
every operation that touches a CPU tensor, since a copy between host and device is what a CUDA graph cannot hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA = torch.device("cuda", 0)


class HostTouched(Exception):
    """An operation of the body reads, writes or makes a tensor on the host."""


class _OnlyOnDevice(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, out)):
            if isinstance(leaf, Tensor) and leaf.device.type != "cuda":
                raise HostTouched(f"{func} touches a tensor on {leaf.device}")
        return out


class _Indexing(TorchFunctionMode):
    """``tensor[...]`` by plain operators: torch's own indexing asks the CUDA driver, which a CPU build has not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not Tensor.__getitem__:
            return func(*args, **(kwargs or {}))
        tensor, index = args
        dim = 0
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [i for i in index if not isinstance(i, Tensor)]:
            at = index.index(Ellipsis)
            given = sum(i is not None and i is not Ellipsis for i in index)
            index = (*index[:at], *[slice(None)] * (tensor.ndim - given), *index[at + 1 :])
        for part in index:
            if part is None:
                tensor, dim = tensor.unsqueeze(dim), dim + 1
            elif isinstance(part, int):
                tensor = tensor.select(dim, part)
            elif isinstance(part, slice):
                begin, end, step = part.indices(tensor.shape[dim])
                tensor, dim = torch.ops.aten.slice.Tensor(tensor, dim, begin, end, step), dim + 1
            elif part.dtype is torch.bool:
                raise HostTouched("a mask as index waits for the number of its hits")
            else:
                raise NotImplementedError(f"index {part!r}")
        return tensor


def _to_fake(value: Any, seen: set[int]) -> Any:
    """``value`` with every tensor in it replaced by a fake one on the GPU; objects of ours are changed in place."""
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=CUDA)
    if isinstance(value, torch.device):
        return CUDA
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_to_fake(v, seen) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_to_fake(v, seen) for v in value)
    if isinstance(value, dict):
        return {k: _to_fake(v, seen) for k, v in value.items()}
    if type(value).__module__.startswith("adaptbin.") and hasattr(value, "__dict__") and id(value) not in seen:
        seen.add(id(value))
        for name, held in vars(value).items():
            object.__setattr__(value, name, _to_fake(held, seen))
    return value


def _fused_adamw_(
    values: list[Tensor],
    gradients: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    largest: list[Tensor],
    steps: list[Tensor],
    **settings: Any,
) -> None:
    """Shapes only; torch registers none for its fused update."""
    for group in zip(values, gradients, first, second, strict=True):
        assert len({t.shape for t in group}) == 1
    assert len(steps) == len(values) and not largest


@contextlib.contextmanager
def pretend_gpu(*owners: Any) -> Iterator[None]:
    """Within, all tensors held by ``owners`` (and what they hold) are on a GPU that computes nothing.  They stay so."""
    with torch.library._scoped_library("aten", "IMPL", "Meta") as library, FakeTensorMode():
        for overload in ("_fused_adamw_", "_fused_adamw_.tensor_lr"):
            library.impl(overload, _fused_adamw_)
        seen: set[int] = set()
        for owner in owners:
            _to_fake(owner, seen)
        with _OnlyOnDevice(), _Indexing():
            yield
