"""DIGS: gains and splits against the twin and the released code, and what padding and batching must not change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptbin.binning.discretizer import assign, quantile_edges
from adaptbin.binning.scorer import (
    Candidates,
    SortedColumns,
    candidates,
    choose_splits,
    dispersion_gain,
    split_edges,
    unit_rows,
)
from tests.binning.test_discretizer import padded
from tests.reference import discretizer
from tests.reference import scorer as twin
from tests.strategies import BinnedCase, binned_cases, seeds

with np.load(Path(__file__).parents[1] / "golden" / "digs.npz") as _archive:
    DIGS: Mapping[str, np.ndarray] = dict(_archive)


class Scored(NamedTuple):
    """What the library finds for P (replica, feature) pairs."""

    found: Candidates
    gain_disp: Tensor

    @property
    def score(self) -> Tensor:
        return self.found.gain * self.gain_disp


def score(
    values: np.ndarray,
    embeddings: np.ndarray,
    edges: Tensor,
    feature: Tensor,
    source: Tensor,
    min_bin: Tensor,
    observed: np.ndarray | None = None,
) -> Scored:
    """values and observed [N, D], embeddings [M, N, H]; the rest as in the library."""
    columns = SortedColumns.of(torch.from_numpy(values), None if observed is None else torch.from_numpy(observed))
    found = candidates(columns, edges, feature, min_bin)
    return Scored(found, dispersion_gain(columns, found, feature, unit_rows(torch.from_numpy(embeddings)), source))


def float32_units(embeddings: np.ndarray) -> np.ndarray:
    """The library's own unit rows, so that gains can be compared in float64; they are tested by themselves below."""
    return unit_rows(torch.from_numpy(embeddings)).numpy()


def one_pair(values: np.ndarray, embeddings: np.ndarray, inner: np.ndarray, min_bin: int, slots: int) -> Scored:
    """One feature of one replica."""
    edges, zero = torch.from_numpy(padded(inner, slots))[None], torch.zeros(1, dtype=torch.int64)
    return score(values[:, None], embeddings[None], edges, zero, zero, torch.tensor([min_bin]))


def refine_once(scored: Scored, edges: Tensor, *, tau: float, t_max: int, keep_best: bool) -> tuple[Tensor, Tensor]:
    """New edges [P, K+1] and the splits made [P, K]."""
    pairs = len(edges)
    split = choose_splits(
        scored.found.gain,
        scored.gain_disp,
        scored.found.eligible,
        tau=torch.full((pairs,), tau, dtype=torch.float64),
        count=torch.isfinite(edges).sum(1) + 1,
        t_max=torch.full((pairs,), t_max),
        keep_best=keep_best,
    )
    return split_edges(edges, scored.found.median, split), split


def check_bins(scored: Scored, pair: int, expected: list[twin.Candidate]) -> None:
    """Every bin of one pair against the twin's; slots past the last bin must be empty."""
    found, gain_disp = scored.found, scored.gain_disp[pair]
    for k, one in enumerate(expected):
        assert bool(found.eligible[pair, k]) == (not np.isnan(one.median))
        if found.eligible[pair, k]:
            assert found.median[pair, k].item() == one.median  # float32, exactly
            np.testing.assert_allclose(found.gain[pair, k], one.gain_var, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(gain_disp[k], one.gain_disp, rtol=1e-9, atol=1e-12)
        else:
            assert gain_disp[k] == 0
    assert not found.eligible[pair, len(expected) :].any()


# --- the released code's numbers


@pytest.mark.parametrize("feature", [0, 1])
def test_two_columns_of_the_released_code_over_four_rounds(feature: int) -> None:
    values, embeddings = DIGS["values"], DIGS["embeddings"]
    inner = quantile_edges(values[:, feature], 2)
    for round_ in range(4):
        np.testing.assert_array_equal(inner, DIGS[f"round{round_}_f{feature}_edges_before"])
        edges = torch.from_numpy(padded(inner, 200))[None]
        scored = score(values, embeddings[None], edges, torch.tensor([feature]), torch.tensor([0]), torch.tensor([32]))
        check_bins(scored, 0, twin.score_bins(values[:, feature], float32_units(embeddings), inner, 32))
        if feature == round_ == 0:
            found = scored.found
            columns = torch.stack([found.median.double(), found.gain, scored.gain_disp, scored.score], -1)[0, :2]
            np.testing.assert_allclose(columns, DIGS["first_round_f0_median_gainvar_gaindisp_score"], atol=1e-6)
        after, _ = refine_once(scored, edges, tau=1e-4, t_max=200, keep_best=True)
        inner = after[0][torch.isfinite(after[0])].numpy()
        np.testing.assert_array_equal(inner, DIGS[f"round{round_}_f{feature}_edges_after"])


@pytest.mark.parametrize(
    ("case", "n_rounds", "tau", "t_max"),
    [
        ("case2", 4, 1e-4, 200),
        ("case3", 4, float(DIGS["case3_tau"]), 200),
        ("case4", 3, 1e-4, int(DIGS["case4_t_max"])),
    ],
)
def test_scores_near_tau_and_the_released_cap(case: str, n_rounds: int, tau: float, t_max: int) -> None:
    values, embeddings = DIGS["case2_values"], DIGS["case2_embeddings"]
    inner = quantile_edges(values, 2)
    for round_ in range(n_rounds):
        key = f"{case}_round{round_}"
        np.testing.assert_array_equal(inner, DIGS[f"{key}_edges_before"])
        scored, expected = one_pair(values, embeddings, inner, 32, t_max), DIGS[f"{key}_median_gainvar_gaindisp_score"]
        bins, eligible = len(expected), ~np.isnan(expected[:, 0])
        np.testing.assert_array_equal(scored.found.eligible[0, :bins], eligible)
        found = [part[0, :bins].double().numpy() for part in (scored.found.median, scored.found.gain, scored.gain_disp)]
        np.testing.assert_array_equal(found[0][eligible], expected[eligible, 0])
        np.testing.assert_allclose(found[1][eligible], expected[eligible, 1], rtol=1e-11)
        # The released code takes the mean direction in float32: up to 9e-7 from the exact one.
        np.testing.assert_allclose(found[2][eligible], expected[eligible, 2], atol=1e-6)
        np.testing.assert_allclose(scored.score[0, :bins][eligible], expected[eligible, 3], atol=3e-7, rtol=1e-4)
        edges = torch.from_numpy(padded(inner, t_max))[None]
        after, _ = refine_once(scored, edges, tau=tau, t_max=t_max, keep_best=False)
        inner = after[0][torch.isfinite(after[0])].numpy()
        np.testing.assert_array_equal(inner, DIGS[f"{key}_edges_after"])


def test_our_cap_keeps_the_two_best_of_four() -> None:
    before, expected = DIGS["case4_round1_edges_before"], DIGS["case4_round1_median_gainvar_gaindisp_score"]
    scored = one_pair(DIGS["case2_values"], DIGS["case2_embeddings"], before, 32, 6)
    edges = torch.from_numpy(padded(before, 6))[None]
    assert refine_once(scored, edges, tau=1e-4, t_max=6, keep_best=False)[1].sum() == 0
    after, split = refine_once(scored, edges, tau=1e-4, t_max=6, keep_best=True)
    best = expected[np.argsort(expected[:, 3])[-2:], 0]
    assert split.sum() == 2 and (after[0, 1:6] < np.inf).all()  # 6 bins
    np.testing.assert_array_equal(after[0, 1:6], np.sort(np.concatenate([before, best])))


# --- the twin


@settings(max_examples=60, deadline=None)
@given(
    case=binned_cases(),
    min_bin=st.integers(1, 4),
    seed=seeds,
    extra=st.integers(0, 3),
    share=st.sampled_from([0.0, 0.2, 0.9]),
)
def test_every_bin_of_every_pair_is_the_twins(
    case: BinnedCase, min_bin: int, seed: int, extra: int, share: float
) -> None:
    """Two replicas, each with embeddings, edges and min_bin of its own, all features at once; a share is missing."""
    rng = np.random.default_rng(seed)
    embeddings = np.stack([case.embeddings, rng.normal(size=case.embeddings.shape).astype(np.float32)])
    n_features = case.values.shape[1]
    inner = [*case.edges, *[quantile_edges(column, 3) for column in case.values.T]]
    slots = max(len(edges) for edges in inner) + 1 + extra
    edges = torch.tensor(np.stack([padded(one, slots) for one in inner]))
    feature, source = torch.arange(2 * n_features) % n_features, torch.arange(2 * n_features) // n_features
    least = min_bin + source
    there = rng.random(case.values.shape) >= share
    scored = score(case.values, embeddings, edges, feature, source, least, there if share else None)
    for pair in range(len(inner)):
        here = there[:, feature[pair]]
        unit = float32_units(embeddings[source[pair]])[here]
        values = case.values[here, feature[pair]]
        check_bins(scored, pair, twin.score_bins(values, unit, inner[pair], int(least[pair])))


@settings(deadline=None)
@given(
    seed=seeds,
    bins=st.integers(1, 8),
    room=st.integers(0, 6),
    tau=st.sampled_from([0.0, 0.25, 0.5]),
    best=st.booleans(),
)
def test_choice_and_cap_are_the_twins(seed: int, bins: int, room: int, tau: float, best: bool) -> None:
    """Gains in quarters, so that scores tie, equal tau, and are 0 or of two negative gains."""
    rng = np.random.default_rng(seed)
    gain_var, gain_disp = (torch.tensor(rng.integers(-2, 5, size=(3, bins)) / 4.0) for _ in range(2))
    eligible = torch.tensor(rng.random((3, bins)) < 0.8)
    t_max = bins + room
    split = choose_splits(
        gain_var,
        gain_disp,
        eligible,
        tau=torch.full((3,), tau, dtype=torch.float64),
        count=torch.full((3,), bins),
        t_max=torch.full((3,), t_max),
        keep_best=best,
    )
    inner, median = np.arange(1.0, bins), torch.arange(bins) + 0.5
    edges = torch.from_numpy(padded(inner, t_max)).expand(3, -1)
    full = torch.nn.functional.pad(split, (0, room))
    after = split_edges(edges, torch.nn.functional.pad(median, (0, room)).float().expand(3, -1), full)
    for pair in range(3):
        cuts, scores = [], []
        for k in range(bins):
            v, d = float(gain_var[pair, k]), float(gain_disp[pair, k])
            if eligible[pair, k] and twin.Candidate(k + 0.5, v, d, v * d).qualifies(tau):
                cuts.append(k + 0.5)
                scores.append(v * d)
        expected = discretizer.refine(inner, cuts, scores, t_max, "best" if best else "none")
        np.testing.assert_array_equal(after[pair], padded(expected, t_max))
        assert split[pair].sum() == len(expected) - len(inner) <= room


def test_gains_that_are_not_numbers_split_nothing() -> None:
    nan = torch.full((1, 3), torch.nan, dtype=torch.float64)
    for gain_var, gain_disp in ((nan, torch.ones_like(nan)), (torch.ones_like(nan), nan)):
        split = choose_splits(
            gain_var,
            gain_disp,
            torch.ones(1, 3, dtype=torch.bool),
            tau=torch.zeros(1, dtype=torch.float64),
            count=torch.tensor([3]),
            t_max=torch.tensor([200]),
            keep_best=True,
        )
        assert not split.any()


# --- rules of a split


@settings(max_examples=60, deadline=None)
@given(case=binned_cases(), min_bin=st.integers(1, 4), room=st.integers(0, 4), keep_best=st.booleans())
def test_refining_until_nothing_splits(case: BinnedCase, min_bin: int, room: int, keep_best: bool) -> None:
    for d, inner in enumerate(case.edges):
        t_max = len(inner) + 1 + room
        values = case.values[:, d]
        for _ in range(room + 1):
            scored = one_pair(values, case.embeddings, inner, min_bin, t_max)
            edges = torch.from_numpy(padded(inner, t_max))[None]
            edges, split = refine_once(scored, edges, tau=0.0, t_max=t_max, keep_best=keep_best)
            after = edges[0][torch.isfinite(edges[0])].numpy()
            assert (np.diff(after) > 0).all() and set(inner) <= set(after)  # no bin is ever lost
            assert len(after) == len(inner) + int(split.sum()) <= t_max - 1
            counts = torch.bincount(assign(torch.from_numpy(values)[None], edges)[0], minlength=t_max)
            assert counts.sum() == len(values)
            before = discretizer.assign(values, inner)
            for k in split[0].nonzero().flatten().tolist():
                sides = assign(torch.from_numpy(values[before == k])[None], edges)[0].unique(return_counts=True)[1]
                assert len(sides) == 2 and sides.min() >= min_bin
            if not split.any():
                break
            inner = after
        assert not split.any()


def test_what_makes_a_bin_ineligible() -> None:
    def eligible(values: list[float], inner: list[float], min_bin: int) -> list[bool]:
        array = np.array(values, np.float32)
        embeddings = np.eye(len(array), dtype=np.float32)
        found = one_pair(array, embeddings, np.array(inner), min_bin, len(inner) + 1).found
        return found.eligible[0].tolist()

    assert eligible([0, 1, 2, 3], [], 2) == [True]
    assert eligible([0, 1, 2], [], 2) == [False]  # |S| < 2 min_bin
    assert eligible([0, 1, 1, 1, 1], [], 2) == [False]  # left side < min_bin
    assert eligible([0, 0, 0, 1, 2, 3], [0.0], 1) == [False, True]  # bin 0 is empty
    assert eligible([0, 0, 0, 0, 1, 2], [0.0], 1) == [False, False]  # the median is the bin's lower edge
    assert eligible([5, 5, 5, 5], [], 1) == [False]  # one value


def test_the_median_is_the_float32_mean_of_the_middle_two() -> None:
    values = np.array([0.0, 0.1, 0.3, 1.0], np.float32)
    found = one_pair(values, np.eye(4, dtype=np.float32), np.array([]), 1, 1).found
    assert found.median.dtype is torch.float32
    assert found.median.item() == (values[1] + values[2]) / np.float32(2)


def test_unit_rows_are_the_twins_and_floor_the_norm() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    rows[3], rows[4] = 0.0, 1e-20
    np.testing.assert_allclose(unit_rows(torch.from_numpy(rows)), twin.unit_rows(rows), rtol=3e-7)
    assert (unit_rows(torch.zeros(2, 3)) == 0).all()


def test_a_single_row_disperses_nothing() -> None:
    """Two rows, one on either side, that point the same way: what is left is the epsilon of the whole bin."""
    values, embeddings = np.array([0.0, 1.0], np.float32), np.array([[2.0, 0.0], [3.0, 0.0]], np.float32)
    scored = one_pair(values, embeddings, np.array([]), 1, 1)
    assert scored.gain_disp.item() == pytest.approx(np.log1p(1e-6), rel=1e-9)
    opposite = one_pair(values, embeddings * np.array([[1], [-1]], np.float32), np.array([]), 1, 1)
    assert opposite.gain_disp.item() == pytest.approx(-np.log(1e-6), rel=1e-9)


def test_thousands_of_rows_are_summed_in_float64() -> None:
    rng = np.random.default_rng(0)
    values, embeddings = rng.normal(size=5000).astype(np.float32), rng.normal(1, 1, (5000, 4)).astype(np.float32)
    embeddings += values[:, None]
    scored = one_pair(values, embeddings, np.array([0.5]), 32, 2)
    check_bins(scored, 0, twin.score_bins(values, float32_units(embeddings), np.array([0.5]), 32))


# --- padding and batching


@settings(max_examples=60, deadline=None)
@given(case=binned_cases(), extra=st.integers(1, 40), seed=seeds)
def test_neither_slots_nor_other_pairs_change_a_bit(case: BinnedCase, extra: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_features = case.values.shape[1]
    embeddings = np.stack([case.embeddings, rng.normal(size=case.embeddings.shape).astype(np.float32)])
    slots = max(len(inner) for inner in case.edges) + 1
    wide = torch.tensor(np.stack([padded(inner, slots + extra) for inner in case.edges] * 2))
    feature, source = torch.arange(2 * n_features) % n_features, torch.arange(2 * n_features) // n_features
    together = score(case.values, embeddings, wide, feature, source, torch.full((2 * n_features,), 2))
    for pair in range(2 * n_features):
        inner = case.edges[pair % n_features]
        only = torch.from_numpy(padded(inner, slots))[None]
        alone = score(
            case.values,
            embeddings[[pair // n_features]],
            only,
            feature[[pair]],
            torch.tensor([0]),
            torch.tensor([2]),
        )
        assert torch.equal(alone.gain_disp[0], together.gain_disp[pair, :slots])
        assert torch.equal(alone.found.gain[0], together.found.gain[pair, :slots])
        assert torch.equal(alone.found.eligible[0], together.found.eligible[pair, :slots])
        assert not together.found.eligible[pair, slots:].any()


def test_no_eligible_bin_needs_no_embedding() -> None:
    scored = one_pair(np.zeros(5, np.float32), np.full((5, 2), np.nan, np.float32), np.array([0.0]), 1, 4)
    assert not scored.found.eligible.any() and torch.equal(scored.gain_disp, torch.zeros(1, 4, dtype=torch.float64))
