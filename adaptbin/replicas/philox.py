"""Random words from a counter: Philox4x64-10 (Salmon et al., SC 2011), the same numbers on every device.

A word depends on key, epoch and position only, so nothing is stored between epochs and a GPU can draw for itself.
On a CPU the words come from numpy's generator, elsewhere from the same arithmetic in int64 tensors: unsigned words are
kept as the int64 of the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_LOW = 0xFFFFFFFF
_BLOCKS_AT_ONCE = 2**19
"""Blocks of four words computed together: temporaries of 8 MB stay in a GPU's cache, and small."""


def stream_keys(names: Sequence[tuple[str | int, ...]], device: torch.device | str = "cpu") -> Tensor:
    """Keys of the streams called ``names``, e.g. ``[(3, "dropout")]`` -> [S, 2] int64: 128 bits of SHA-256 each."""
    digests = [hashlib.sha256("/".join(str(part) for part in name).encode()).digest()[:16] for name in names]
    keys = np.frombuffer(b"".join(digests), dtype="<i8").reshape(-1, 2)
    return torch.from_numpy(keys.astype(np.int64)).to(device)


def words(keys: Tensor, epoch: Tensor, n: int, step: Tensor | None = None, site: int = 0) -> Tensor:
    """First ``n`` words of every stream in one epoch, or at one site of one step of it.

    keys [S, 2], epoch and step [] int64 (step None: 0) -> [S, n] int64.  They equal
    ``numpy.random.Philox(key=key, counter=[0, site, step, epoch]).random_raw(n)``.
    """
    if keys.device.type != "cpu":
        return words_by_tensors(keys, epoch, n, step=step, site=site)
    counter = np.array([0, site, 0 if step is None else int(step), int(epoch)], dtype=np.uint64)
    drawn = [np.random.Philox(key=key, counter=counter).random_raw(n) for key in keys.numpy().view(np.uint64)]
    # One stream, as for most calls on a CPU core, is not copied.
    return torch.from_numpy((drawn[0][None] if len(drawn) == 1 else np.stack(drawn)).view(np.int64))


def words_by_tensors(
    keys: Tensor,
    epoch: Tensor,
    n: int,
    blocks_at_once: int = _BLOCKS_AT_ONCE,
    *,
    step: Tensor | None = None,
    site: int = 0,
) -> Tensor:
    """:func:`words` in tensor operations alone, on the device of ``keys``: no host read, fit for a CUDA graph."""
    blocks = -(-n // 4)
    some = max(1, blocks_at_once // len(keys))
    at = (torch.zeros_like(epoch) if step is None else step, torch.full_like(epoch, site), epoch)
    parts = [_blocks(keys, at, start, min(start + some, blocks)) for start in range(0, blocks, some)]
    return torch.cat(parts, 1)[:, :n]


def _blocks(keys: Tensor, at: tuple[Tensor, Tensor, Tensor], start: int, end: int) -> Tensor:
    """Words of the blocks [start, end) of every stream ``at`` step, site and epoch, [S, 4 * (end - start)]."""
    step, site, epoch = at
    # Words 0 and 2 of the counter are multiplied, words 1 and 3 are mixed in: two [2, S, blocks] halves.
    # numpy counts up before the first block.
    first = torch.arange(start + 1, end + 1, device=keys.device).expand(len(keys), -1)
    even = torch.stack([first, step.expand_as(first)])
    odd = torch.stack([site.expand_as(first), epoch.expand_as(first)])
    key = keys.t().unsqueeze(-1)
    factor = _pair(_MULTIPLIERS, keys)
    low, high = factor & _LOW, (factor >> 32) & _LOW
    weyl = _pair(_WEYL, keys)
    for i in range(_ROUNDS):
        if i:
            key = key + weyl
        product = even * factor
        even, odd = _high_product(even, low, high).flip(0).bitwise_xor_(odd).bitwise_xor_(key), product.flip(0)
    # Blocks hold words 0 to 3 in order.
    return torch.stack([even[0], odd[0], even[1], odd[1]], -1).flatten(1)


def _pair(constants: tuple[int, int], like: Tensor) -> Tensor:
    """[2, 1, 1] int64 with the bits of two unsigned constants, filled in on the device: a copy would stop a capture."""
    return torch.stack([like.new_full((1, 1), c - (c >> 63 << 64)) for c in constants])


def _high_product(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Upper 64 bits of the unsigned product of ``x`` and the constant with 32-bit halves ``low`` and ``high``."""
    x_low, x_high = x & _LOW, (x >> 32).bitwise_and_(_LOW)
    a, b = x_high * low, x_low * high
    carry = ((x_low * low) >> 32).bitwise_and_(_LOW).add_(a & _LOW).add_(b & _LOW) >> 32
    return (x_high * high).add_((a >> 32).bitwise_and_(_LOW)).add_((b >> 32).bitwise_and_(_LOW)).add_(carry)
