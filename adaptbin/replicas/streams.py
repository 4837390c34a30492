"""Named random streams: every draw is derived from a seed and a name, never from a global generator.

A stream depends on the seed and its name only, not on hyperparameters or pack mates, so two points with one seed
start from the same weights and see the same batches, dropped units and masked entries: a fair pair.
What is drawn once (initial weights, bootstrap) comes from a CPU generator and is copied; what is drawn every epoch
comes from a counter (:mod:`adaptbin.replicas.philox`) on the device that uses it, with the same numbers on all of them.
The epoch is part of the counter, so resuming at an epoch needs no stored generator state.

Below S counts streams; keys [S, 2] are :func:`~adaptbin.replicas.philox.stream_keys` and epoch is an int64 scalar.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.replicas.philox import words

_RESOLUTION = 2**16
"""Dropout compares 16-bit parts of the words: a probability is honoured to 1/65536."""

_SIGN_OF_PARTS = -0x7FFF7FFF7FFF8000
"""The bits 0x8000800080008000: flipping every part's top bit lets signed int16 compare as unsigned."""

_WORDS_AT_ONCE = 2**21
"""Dropout of small tables is drawn for all seeds at once, that of large ones seed by seed: 16 MB of words at most."""


def stream(seed: int, *names: str | int) -> torch.Generator:
    """Generator of the stream called ``names`` under ``seed``, e.g. ``stream(3, "init", "encoder")``.

    Always a CPU generator, whatever the replicas train on: a GPU's would draw other numbers, and replicas of one study
    that were trained on different devices would no longer be pairs.
    """
    text = "/".join(str(part) for part in (seed, *names))
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class SeedIndex:
    """Which of the distinct seeds each replica uses, so that replicas of one seed share one draw."""

    seeds: tuple[int, ...]
    """S distinct seeds, those of the draws."""
    of_replica: Tensor
    """[R] int64, position of each replica's seed in ``seeds``."""
    shared: int | None
    """Position of the one seed that all replicas have, or None."""
    used: Tensor
    """[U] int64, positions in ``seeds`` of those that some replica has."""
    of_used: Tensor
    """[R] int64, position of each replica's seed in ``used``."""

    @classmethod
    def of(
        cls, seeds: Sequence[int], device: torch.device | str = "cpu", among: Sequence[int] | None = None
    ) -> SeedIndex:
        """Index of a stack's seeds, one per replica, into the draws made for the seeds ``among`` (default: theirs)."""
        distinct = tuple(dict.fromkeys(seeds if among is None else among))
        position = {seed: s for s, seed in enumerate(distinct)}
        places = [position[seed] for seed in seeds]
        shared = places[0] if len(set(places)) == 1 else None
        used = list(dict.fromkeys(places))
        of_replica, some, of_used = (
            torch.tensor(numbers, dtype=torch.int64, device=device)
            for numbers in (places, used, [used.index(place) for place in places])
        )
        return cls(distinct, of_replica, shared, some, of_used)

    def spread(self, drawn: Tensor) -> Tensor:
        """[S, ...] drawn once per seed -> [R, ...] for the replicas, or [1, ...] to broadcast when all share a seed."""
        return drawn.index_select(0, self.of_replica) if self.shared is None else drawn.narrow(0, self.shared, 1)

    def spread_used(self, drawn: Tensor) -> Tensor:
        """As :meth:`spread`, of what was drawn for the seeds ``used`` alone.  drawn [U, ...]."""
        # With a seed of its own for every replica, which come in order, nothing is copied.
        return drawn if len(drawn) in (1, len(self.of_used)) else drawn.index_select(0, self.of_used)


def row_order(keys: Tensor, epoch: Tensor, n_rows: int) -> Tensor:
    """[S, N] permutation of the train rows for one epoch; batches are cut from it in order.

    Rows are sorted by 64-bit words.  Two of 10,000 are equal once in 4e11 epochs; then the earlier row comes first, on
    every device.
    """
    return words(keys, epoch, n_rows).argsort(dim=1, stable=True)


def kept_units(keys: Tensor, epoch: Tensor, layers: int, n_rows: int, width: int, drop: float) -> Tensor:
    """[S, L, N, H] bool, hidden units that dropout keeps in one epoch; row i belongs to the i-th row of the order.

    ``drop`` is rounded to 1/65536 (and to less than 1).  A word gives four units, its low part first.
    """
    return _kept(keys, epoch, layers * n_rows * width, drop).view(-1, layers, n_rows, width)


def kept_in_step(keys: Tensor, epoch: Tensor, step: Tensor, site: int, n_rows: int, units: int, drop: float) -> Tensor:
    """[S, B, units] bool, units that dropout keeps at the ``site``-th place of one step; see :func:`kept_units`.

    For encoders whose dropped units of a whole epoch would not fit memory: attention has some for every two columns.
    """
    return _kept(keys, epoch, n_rows * units, drop, step, site).view(-1, n_rows, units)


def _kept(keys: Tensor, epoch: Tensor, n: int, drop: float, step: Tensor | None = None, site: int = 0) -> Tensor:
    """[S, n] bool."""
    n_words = -(-n // 4)
    threshold = min(round(drop * _RESOLUTION), _RESOLUTION - 1) - _RESOLUTION // 2
    kept = torch.empty(len(keys), n, dtype=torch.bool, device=keys.device)
    # A CPU core gains nothing from larger pieces, and they leave its cache.
    together = 1 if keys.device.type == "cpu" else max(1, _WORDS_AT_ONCE // n_words)
    for some, into in zip(torch.split(keys, together), torch.split(kept, together), strict=True):
        parts = words(some, epoch, n_words, step, site).bitwise_xor_(_SIGN_OF_PARTS).view(torch.int16)
        torch.ge(parts.narrow(1, 0, n), threshold, out=into)
    return kept


class MaskDraws(NamedTuple):
    """One epoch's masking draws, in epoch order (row i is the i-th of the shuffled rows)."""

    uniform: Tensor
    """[S, N, F] float32 in [0, 1), 24 bits: an entry is masked where it is below p_m; a larger p_m masks a superset."""
    source: Tensor
    """[S, N, F] int64, epoch position of the row that gives the value under "random" masking."""


def mask_draws(keys: Tensor, epoch: Tensor, n_rows: int, n_columns: int, batch_size: int) -> MaskDraws:
    """Draw one epoch's masks; "random" takes an independent permutation of the batch for every column.

    One word per entry: its low half decides masking, its high half orders the batch.  Some pair of 128 rows has equal
    halves in one column of 500,000; the earlier row then comes first, on every device.
    """
    halves = words(keys, epoch, n_rows * n_columns).view(torch.int32).view(-1, n_rows, n_columns, 2)
    uniform = ((halves[..., 0] >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    order = halves[..., 1]
    whole = n_rows - n_rows % batch_size
    # All whole batches are sorted at once, and the shorter last one by itself.
    parts = [order[:, :whole].view(-1, whole // batch_size, batch_size, n_columns)] if whole else []
    parts += [order[:, whole:].unsqueeze(1)] if whole < n_rows else []
    within = torch.cat([part.argsort(dim=2, stable=True).flatten(1, 2) for part in parts], 1)
    row = torch.arange(n_rows, device=keys.device)
    return MaskDraws(uniform, within + (row - row % batch_size)[:, None])
