"""What the replicas of one pack must share, and what may differ."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from adaptbin.config import Architecture, Budget, Finetuning, Hyperparameters, Protocol, Replica, SeedsVary
from adaptbin.replicas.grouping import group_replicas, model_id, stack_key

BASE = Replica(
    dataset="eol",
    fingerprint="f",
    architecture=Architecture(width=16, depth=2, batch_size=64),
    hyperparameters=Hyperparameters(),
    seed=0,
)

SHARED: dict[str, Any] = {
    "dataset": "mhr",
    "fingerprint": "g",
    "architecture": Architecture(width=24, depth=2, batch_size=64),
    "protocol": Protocol(mse_scale="released"),
    "budget": Budget(probes=2),
    "finetuning": Finetuning(),
    "seeds_vary": "probe",
}
FREE: dict[str, Any] = {
    "hyperparameters": Hyperparameters(
        w_sord=1.0,
        w_mse=1.0,
        w_var=1.0,
        patience=50,
        delta=0.1,
        tau=0.1,
        min_bin=2,
        t_init=10,
        t_max=50,
        masking="random",
        mask_prob=0.3,
        learning_rate=1.0,
        weight_decay=1.0,
        refine_every=6,
        split_score="variance",
    ),
    "seed": 7,
}


def test_every_field_of_a_replica_is_either_shared_or_free() -> None:
    assert set(SHARED) | set(FREE) == {field.name for field in fields(Replica)}
    for field in fields(Hyperparameters):
        if field.name == "pretext":  # fixes shapes
            continue
        assert getattr(FREE["hyperparameters"], field.name) != getattr(BASE.hyperparameters, field.name)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_must_be_shared_separates(name: str) -> None:
    other = replace(BASE, **{name: SHARED[name]})
    assert group_replicas([BASE, other]) == [[BASE], [other]]


@pytest.mark.parametrize("name", sorted(FREE))
def test_what_may_differ_does_not(name: str) -> None:
    other = replace(BASE, **{name: FREE[name]})
    assert stack_key(other) == stack_key(BASE)
    assert group_replicas([BASE, other]) == [[BASE, other]]


def test_pretexts_separate() -> None:
    other = replace(BASE, hyperparameters=replace(BASE.hyperparameters, pretext="bin_recon"))
    assert group_replicas([BASE, other, BASE]) == [[BASE, BASE], [other]]
    assert model_id(BASE) != model_id(other)


def test_seeds_separate_where_they_change_the_split() -> None:
    pack = [replace(BASE, seed=seed, seeds_vary="split") for seed in (0, 1, 0)]
    assert [len(group) for group in group_replicas(pack)] == [2, 1]


def test_groups_and_members_keep_their_order_and_nobody_is_lost() -> None:
    pack = [replace(BASE, seed=seed, dataset=dataset) for seed in range(3) for dataset in ("mhr", "eol", "bfp")]
    groups = group_replicas(iter(pack))
    assert [group[0].dataset for group in groups] == ["mhr", "eol", "bfp"]
    assert [[r.seed for r in group] for group in groups] == [[0, 1, 2]] * 3
    assert group_replicas([]) == []


@pytest.mark.parametrize("seeds_vary", ["pretrain", "probe", "split"])
def test_replicas_that_differ_in_their_probes_only_are_one_model(seeds_vary: SeedsVary) -> None:
    one, other = (replace(BASE, seeds_vary=seeds_vary, seed=seed) for seed in (0, 1))
    assert (model_id(one) == model_id(other)) == (seeds_vary == "probe")
    assert model_id(one) == model_id(replace(one, budget=Budget(probes=2, probe_epochs=3)))
    assert model_id(one) == model_id(replace(one, finetuning=Finetuning()))


@pytest.mark.parametrize("name", ["dataset", "fingerprint", "architecture", "protocol", "hyperparameters"])
def test_whatever_else_differs_is_another_model(name: str) -> None:
    assert model_id(replace(BASE, **{name: (SHARED | FREE)[name]})) != model_id(BASE)


def test_more_epochs_are_another_model() -> None:
    assert model_id(replace(BASE, budget=Budget(epochs=7))) != model_id(BASE)
