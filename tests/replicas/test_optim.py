"""AdamW and clipping per replica, against torch.optim and the twin."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.replicas.optim import ReplicaAdamW, clip_per_replica_, schedule_factor
from adaptbin.replicas.parameters import ParameterBank
from tests.paths import BOTH, switched, usable_sets, using
from tests.reference import optimizer as twin
from tests.replicas.banks import fill_, only
from tests.strategies import seeds

SHAPES: dict[str, tuple[int, ...]] = {"a": (5, 3), "b": (3,), "tail": (30, 7)}
RATES = [1e-3, 1e-2, 3e-2, 1e-3]
DECAYS = [1e-5, 0.0, 0.1, 0.3]


def gradients_(bank: ParameterBank, generator: torch.Generator, size: float = 1.0) -> None:
    """Fresh gradients in every parameter; padding stays 0."""
    for name in bank.shapes:
        view = bank.gradient(name)
        view.copy_(torch.randn(view.shape, generator=generator) * size)


@pytest.mark.parametrize("path", BOTH)
def test_fifty_steps_are_torchs_with_a_rate_and_decay_per_replica(path: str) -> None:
    with using(path):
        fifty_steps_are_torchs()


def fifty_steps_are_torchs() -> None:
    bank = fill_(ParameterBank(SHAPES, 4), 0)
    theirs = [[torch.nn.Parameter(bank.view(name)[r].clone()) for name in SHAPES] for r in range(4)]
    others = [
        torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
        for parameters, rate, decay in zip(theirs, RATES, DECAYS, strict=True)
    ]
    ours = ReplicaAdamW(bank, RATES, DECAYS)
    generator = torch.Generator().manual_seed(1)
    for step in range(50):
        gradients_(bank, generator, 10.0 ** (step % 5 - 2))
        for r, optimizer in enumerate(others):
            for parameter, name in zip(theirs[r], SHAPES, strict=True):
                parameter.grad = bank.gradient(name)[r].clone()
            optimizer.step()
        ours.step()
        for r, parameters in enumerate(theirs):
            for parameter, name in zip(parameters, SHAPES, strict=True):
                torch.testing.assert_close(bank.view(name)[r], parameter.detach(), rtol=1e-5, atol=1e-6)
    assert ours.step_count == 50


@pytest.mark.parametrize("path", BOTH)
@settings(max_examples=20, deadline=None)
@given(seed=seeds, limit=st.sampled_from([0.5, 5.0, 1e6]), schedule=st.sampled_from(["constant", "cosine"]))
def test_clipped_and_scheduled_steps_are_the_twins(path: str, seed: int, limit: float, schedule: str) -> None:
    with using(path):
        steps_are_the_twins(seed, limit, schedule)


def steps_are_the_twins(seed: int, limit: float, schedule: str) -> None:
    bank = fill_(ParameterBank(SHAPES, 4), seed)
    arrays = [{name: bank.view(name)[r].double().numpy() for name in SHAPES} for r in range(4)]
    twins = [twin.AdamW(rate=rate, decay=decay) for rate, decay in zip(RATES, DECAYS, strict=True)]
    ours, generator = ReplicaAdamW(bank, RATES, DECAYS, max_norm=limit), torch.Generator().manual_seed(seed)
    for step in range(6):
        gradients_(bank, generator)
        for r in range(4):
            given_ = {name: bank.gradient(name)[r].double().numpy() for name in SHAPES}
            rate = twin.scheduled(RATES[r], step, 6, schedule)
            arrays[r] = twins[r].step(arrays[r], twin.clip(given_, limit), rate)
        ours.step(schedule_factor(schedule, ours.step_count, 6))
    for r in range(4):
        for name in SHAPES:
            expected = torch.from_numpy(arrays[r][name])
            torch.testing.assert_close(bank.view(name)[r].double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("path", BOTH)
@settings(max_examples=30, deadline=None)
@given(
    seed=seeds,
    lengths=st.lists(st.sampled_from([64, 128, 192, 384]), min_size=4, max_size=4),
    limit=st.sampled_from([None, 0.5, 50.0]),
    schedule=st.sampled_from(["constant", "cosine"]),
)
def test_each_replica_is_torchs_over_its_own_length(
    path: str, seed: int, lengths: list[int], limit: float | None, schedule: str
) -> None:
    """Bit for bit what it is alone, and torch's AdamW after torch's clipping; a frozen one stays as it is."""
    with using(path):
        own_lengths_are_torchs(seed, lengths, limit, schedule)


def own_lengths_are_torchs(seed: int, lengths: list[int], limit: float | None, schedule: str) -> None:
    bank = fill_(ParameterBank(SHAPES, 4), seed)
    crowd = ReplicaAdamW(bank, RATES, DECAYS, max_norm=limit)
    crowd.attach(bank, lengths)
    frozen, before = 2, bank.values.clone()
    crowd.freeze([frozen])
    singles = [only(bank, r) for r in range(4)]
    alone = [ReplicaAdamW(single, [RATES[r]], [DECAYS[r]], max_norm=limit) for r, single in enumerate(singles)]
    theirs = [torch.nn.Parameter(bank.values[r, :length].clone()) for r, length in enumerate(lengths)]
    others = [
        torch.optim.AdamW([parameter], lr=rate, weight_decay=decay)
        for parameter, rate, decay in zip(theirs, RATES, DECAYS, strict=True)
    ]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(other, lambda step: schedule_factor(schedule, step, 5)) for other in others
    ]
    generator = torch.Generator().manual_seed(seed)
    for step in range(5):
        gradients_(bank, generator, 10.0)
        for r, length in enumerate(lengths):
            bank.gradients[r, length:] = 0
            singles[r].gradients[0] = bank.gradients[r]
            theirs[r].grad = bank.gradients[r, :length].clone()
            if limit is not None:
                torch.nn.utils.clip_grad_norm_([theirs[r]], limit)
            others[r].step()
            schedules[r].step()
            alone[r].attach(singles[r], [length])
            alone[r].step(schedule_factor(schedule, step, 5))
        crowd.step(schedule_factor(schedule, step, 5))
    for r, length in enumerate(lengths):
        assert torch.equal(bank.values[r, length:], before[r, length:])
        if r == frozen:
            assert torch.equal(bank.values[r], before[r]) and not bank.first_moments[r].any()
            continue
        torch.testing.assert_close(bank.values[r, :length], theirs[r].detach(), rtol=1e-5, atol=1e-6)
        for mine, buffer in ((singles[r].values, bank.values), (singles[r].second_moments, bank.second_moments)):
            assert torch.equal(mine[0], buffer[r])


@settings(max_examples=30, deadline=None)
@given(seed=seeds, length=st.sampled_from([64, 128, 448]), size=st.sampled_from([1e-12, 1e-3, 1.0, 1e4]))
def test_every_instruction_set_gives_the_same_bits(seed: int, length: int, size: float) -> None:
    found = []
    for name in usable_sets():
        with switched(name):
            bank = fill_(ParameterBank(SHAPES, 2), seed)
            optimizer = ReplicaAdamW(bank, RATES[1:3], DECAYS[1:3], max_norm=3.0)
            optimizer.attach(bank, [length, 64])
            generator = torch.Generator().manual_seed(seed)
            for _ in range(3):
                gradients_(bank, generator, size)
                optimizer.step(0.7)
            found.append(bank)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other.buffers(), found[0].buffers(), strict=True))


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("blown_up", [1e4, 1e30, math.inf, math.nan])
def test_a_blown_up_gradient_is_its_replicas_own_affair(path: str, blown_up: float) -> None:
    banks = [fill_(ParameterBank(SHAPES, 3), 0) for _ in range(2)]
    with using(path):
        for bank in banks:
            optimizer = ReplicaAdamW(bank, RATES[:3], DECAYS[:3], max_norm=5.0)
            gradients_(bank, torch.Generator().manual_seed(1))
            if bank is banks[1]:
                bank.gradients[1, 7] = blown_up
            optimizer.step()
    for r in (0, 2):
        assert torch.equal(banks[0].values[r], banks[1].values[r])
    finite = blown_up < math.inf
    assert bool(banks[1].values[1].isfinite().all()) == finite


@pytest.mark.parametrize("path", BOTH)
def test_only_the_attached_length_moves(path: str) -> None:
    with using(path):
        bank = fill_(ParameterBank(SHAPES, 2), 0)
        before = bank.values.clone()
        optimizer = ReplicaAdamW(bank, [0.1, 0.2], [0.5, 0.5])
        optimizer.attach(bank, [bank.live_length(4)] * 2)
        bank.gradients.fill_(1.0)
        optimizer.step()
        length = bank.live_length(4)
        assert torch.equal(bank.values[:, length:], before[:, length:]) and (bank.first_moments[:, length:] == 0).all()
        assert (bank.first_moments[:, :length] != 0).all()


@pytest.mark.parametrize("path", BOTH)
def test_a_late_column_moves_by_the_global_step_count(path: str) -> None:
    """Zero moments and the count of all steps: the first update is 3.15 step sizes, not 1."""
    with using(path):
        bank = ParameterBank({"tail": (2, 64)}, 1)
        optimizer = ReplicaAdamW(bank, [1e-3], [0.0])
        optimizer.attach(bank, [64])
        bank.gradients[:, :64] = 1.0
        for _ in range(10_000):
            optimizer.step()
        optimizer.attach(bank, [128])
        bank.gradients.fill_(1.0)
        optimizer.step()
        np_ratio = 0.1 / math.sqrt(0.001)
        assert bank.values[0, 64:].unique().item() == pytest.approx(-1e-3 * np_ratio, rel=1e-3)
        assert np_ratio == pytest.approx(3.16, abs=0.01)


@pytest.mark.parametrize("path", BOTH)
def test_decay_too_small_for_float32_is_nothing(path: str) -> None:
    with using(path):
        bank = fill_(ParameterBank({"tail": (4, 64)}, 2), 0)
        before = bank.values.clone()
        optimizer = ReplicaAdamW(bank, [1e-4, 1e-2], [1e-5, 0.1])
        optimizer.step()
        assert torch.equal(bank.values[0], before[0])
        torch.testing.assert_close(bank.values[1], before[1] * (1 - 1e-3), rtol=1e-6, atol=0)


@pytest.mark.parametrize("path", BOTH)
def test_a_frozen_replica_stays_and_its_neighbours_go_on(path: str) -> None:
    with using(path):
        banks = [fill_(ParameterBank(SHAPES, 3), 0) for _ in range(2)]
        optimizers = [ReplicaAdamW(bank, RATES[:3], DECAYS[:3]) for bank in banks]
        generator = torch.Generator().manual_seed(2)
        for step in range(5):
            gradients_(banks[0], generator)
            banks[1].gradients.copy_(banks[0].gradients)
            if step == 2:
                optimizers[1].freeze([1])
                still = banks[1].values[1].clone()
            if step >= 2:
                banks[1].gradients[1] = torch.nan
            for optimizer in optimizers:
                optimizer.step()
        assert optimizers[1].alive == [True, False, True] and torch.equal(banks[1].values[1], still)
        for r in (0, 2):
            assert torch.equal(banks[0].values[r], banks[1].values[r])
        optimizers[1].attach(banks[1], [banks[1].live_length(30)] * 3)  # growing again does not wake it
        optimizers[1].step()
        assert torch.equal(banks[1].values[1], still)


# --- clipping


@given(seed=seeds, size=st.sampled_from([1e-3, 1.0, 1e4]), limit=st.sampled_from([0.1, 100.0]))
def test_clipping_is_torchs_for_every_replica(seed: int, size: float, limit: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(3, 200, generator=generator) * torch.tensor([[size], [1.0], [30.0]])
    expected = []
    for row in gradients:
        parameter = torch.nn.Parameter(torch.zeros(200))
        parameter.grad = row.clone()
        torch.nn.utils.clip_grad_norm_([parameter], limit)
        expected.append(parameter.grad)
    clip_per_replica_(gradients, limit)
    torch.testing.assert_close(gradients, torch.stack(expected), rtol=1e-6, atol=1e-7)
    assert (torch.linalg.vector_norm(gradients, dim=1) <= limit * (1 + 1e-5)).all()


@pytest.mark.parametrize("blown_up", [1e4, 1e30, math.inf, math.nan])
def test_one_replica_cannot_throttle_the_others(blown_up: float) -> None:
    gradients = torch.randn(3, 256, generator=torch.Generator().manual_seed(0))
    gradients[2] *= 50  # is clipped itself
    alone = gradients[2:].clone()
    clip_per_replica_(alone, 100.0)
    crowd = gradients.clone()
    crowd[1] *= blown_up
    clip_per_replica_(crowd, 100.0)
    assert torch.equal(crowd[0], gradients[0]) and torch.equal(crowd[2], alone[0])


def test_zeros_at_the_end_change_no_bit_of_the_norm() -> None:
    gradients = 30 * torch.randn(1, 640, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(gradients, (0, 64 * 37))
    for each in (gradients, padded):
        clip_per_replica_(each, 100.0)
    assert torch.equal(gradients, padded[:, :640]) and gradients.norm() < 100.1


# --- schedule


def test_schedules() -> None:
    assert [schedule_factor("cosine", step, 4) for step in (0, 2, 4)] == pytest.approx([1.0, 0.5, 0.0])
    assert {schedule_factor("constant", step, 4) for step in range(5)} == {1.0}
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=1.0)
    anneal = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 37)
    for step in range(37):
        assert schedule_factor("cosine", step, 37) == pytest.approx(anneal.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        anneal.step()
