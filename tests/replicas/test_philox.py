"""The counter-based words: numpy's on every device, and far apart for other names and epochs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptbin.replicas.philox import stream_keys, words, words_by_tensors

EDGES = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
word = st.integers(0, 2**64 - 1) | st.sampled_from(EDGES)


def as_keys(pairs: list[tuple[int, int]]) -> torch.Tensor:
    return torch.from_numpy(np.array(pairs, dtype=np.uint64).view(np.int64))


@given(
    pairs=st.lists(st.tuples(word, word), min_size=1, max_size=3),
    epoch=st.integers(0, 2**63 - 1) | st.integers(0, 1000),
    n=st.integers(1, 41),
    at_once=st.integers(1, 40),
    step=st.none() | st.integers(0, 1000),
    site=st.integers(0, 40),
)
def test_tensors_give_the_words_of_numpy(
    pairs: list[tuple[int, int]], epoch: int, n: int, at_once: int, step: int | None, site: int
) -> None:
    at: dict[str, Any] = {"step": None if step is None else torch.tensor(step), "site": site}
    by_tensors = words_by_tensors(as_keys(pairs), torch.tensor(epoch), n, at_once, **at)
    assert by_tensors.shape == (len(pairs), n) and by_tensors.dtype is torch.int64
    assert torch.equal(by_tensors, words(as_keys(pairs), torch.tensor(epoch), n, **at))
    for row, pair in zip(by_tensors, pairs, strict=True):
        generator = np.random.Philox(
            key=np.array(pair, dtype=np.uint64), counter=np.array([0, site, step or 0, epoch], dtype=np.uint64)
        )
        np.testing.assert_array_equal(row.numpy().view(np.uint64), generator.random_raw(n))


def test_the_published_test_vector() -> None:
    """Random123's known answer for key 0 and counter 0; numpy counts up before the first block, so from -1."""
    answer = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    lowest = np.array([2**64 - 1] * 4, dtype=np.uint64)
    assert np.random.Philox(key=0, counter=lowest).random_raw(4).tolist() == answer


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ((0, "order"), (6557714879691437969, -2687424323769292060)),
        ((3, "dropout"), (5748495992510905181, -204980930546442471)),
        ((9, "probe", 4, "order"), (-1504972881425597467, -1498183114429136666)),
    ],
)
def test_the_derivation_of_keys_is_fixed(name: tuple[str | int, ...], key: tuple[int, int]) -> None:
    """Another derivation would give every finished replica another number under the same id."""
    assert tuple(stream_keys([name])[0].tolist()) == key


def test_neighbouring_streams_and_epochs_are_uncorrelated() -> None:
    keys = stream_keys([(seed, name) for seed in range(3) for name in ("order", "dropout")])
    rows = torch.cat([words(keys, torch.tensor(epoch), 2000) for epoch in range(3)]).double()
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(rows, 2))
    assert (torch.corrcoef(rows) - torch.eye(len(rows))).abs().max() < 0.1  # 4.5 standard deviations
    assert (rows.mean(1) / 2**63).abs().max() < 0.06  # 4.6 standard deviations
