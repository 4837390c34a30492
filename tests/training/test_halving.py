"""Halving leaves fewer replicas, never other ones: what it records is what shorter and longer trainings give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adaptbin.config import Budget, Finetuning, Protocol, Replica
from adaptbin.errors import ConfigError
from adaptbin.tasks import Task
from adaptbin.training.checkpoint import FolderCheckpoint
from adaptbin.training.halving import train_pack_halving
from adaptbin.training.pack import PackProgress, train_pack
from tests.paths import BOTH, using
from tests.training.tables import EAGER, small_replica, small_table

BUDGET = Budget(epochs=18, probe_epochs=4, probes=2)
RUNGS = (2, 6, 18)
POINTS: list[dict[str, Any]] = [
    {},
    {"w_sord": 1.0, "t_init": 10},
    {"masking": "random", "mask_prob": 0.3},
    {"learning_rate": 1e-2},
    {"patience": 4, "tau": 1e-3},
    {"min_bin": 2, "delta": 0.1},
    {"learning_rate": 1e-6},
]
SEEDS = (3, 11)
TABLE = small_table()


def make(seed: int, point: dict[str, Any], **settings: Any) -> Replica:
    return small_replica(seed, EAGER | point, **{"budget": BUDGET, "seeds_vary": "pretrain"} | settings)


PACK = [make(seed, point) for point in POINTS for seed in SEEDS]


def without_runtime(records: Sequence[dict[str, Any]]) -> list[str]:
    return [json.dumps({k: v for k, v in record.items() if k != "runtime"}, allow_nan=False) for record in records]


def at(rung: int, replicas: Sequence[Replica]) -> list[Replica]:
    return [replace(r, budget=r.budget.at_rung(rung)) for r in replicas]


def rung_of(record: dict[str, Any]) -> int:
    return int(record["identity"]["budget"]["epochs"])


def halved(replicas: Sequence[Replica] = PACK, **settings: Any) -> list[dict[str, Any]]:
    return train_pack_halving(replicas, TABLE, **{"rungs": RUNGS, "keep": 1 / 3} | settings)


def best_points(records: Sequence[dict[str, Any]], count: int) -> set[str]:
    """By hand: points of the highest mean validation kappa over seeds."""
    scores: dict[str, list[float]] = {}
    for record in records:
        point = json.dumps(record["identity"]["hyperparameters"])
        scores.setdefault(point, []).append(record["scores"]["val"]["qwk"])
    return set(sorted(scores, key=lambda point: -sum(scores[point]) / len(scores[point]))[:count])


@pytest.fixture(params=BOTH)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    with using(request.param):
        yield request.param


@pytest.mark.usefixtures("path")
def test_a_record_of_a_rung_is_that_of_a_replica_with_so_many_epochs() -> None:
    found = halved()
    for rung in RUNGS:
        there = [record for record in found if rung_of(record) == rung]
        expected = {record["id"]: record for record in train_pack(at(rung, PACK), TABLE)}
        assert there and without_runtime(there) == without_runtime([expected[record["id"]] for record in there])


def test_rungs_are_probed_once_and_shortly() -> None:
    budget = Budget(epochs=100, probe_epochs=51, probes=5)
    assert budget.at_rung(11) == Budget(epochs=11, probe_epochs=11, probes=1)
    assert budget.at_rung(100) is budget
    probes = {rung_of(record): len(record["probes"]) for record in halved()}
    assert probes == {2: 1, 6: 1, 18: BUDGET.probes}


def test_the_best_third_on_validation_goes_on_with_all_seeds() -> None:
    found = halved()
    by_rung = {rung: [record for record in found if rung_of(record) == rung] for rung in RUNGS}
    assert [len(by_rung[rung]) for rung in RUNGS] == [7 * 2, 3 * 2, 1 * 2]
    for rung, following, count in ((2, 6, 3), (6, 18, 1)):
        went_on = {json.dumps(record["identity"]["hyperparameters"]) for record in by_rung[following]}
        assert went_on == best_points(by_rung[rung], count)
        assert all(
            {r["identity"]["seed"] for r in by_rung[following] if json.dumps(r["identity"]["hyperparameters"]) == p}
            == set(SEEDS)
            for p in went_on
        )


def test_a_metric_of_which_less_is_better() -> None:
    table = small_table(task=Task.REGRESSION)
    replicas = [replace(r, fingerprint=table.fingerprint) for r in PACK]
    found = train_pack_halving(replicas, table, rungs=RUNGS, keep=0.1)
    first = [record for record in found if rung_of(record) == 2]
    (best,) = {json.dumps(r["identity"]["hyperparameters"]) for r in found if rung_of(r) == 6}
    means = {
        point: sum(r["scores"]["val"]["rmse"] for r in first if json.dumps(r["identity"]["hyperparameters"]) == point)
        for point in {json.dumps(r["identity"]["hyperparameters"]) for r in first}
    }
    assert best == min(means, key=lambda point: means[point])


def test_a_point_with_a_diverged_seed_does_not_go_on() -> None:
    broken = [make(seed, {"learning_rate": 1e30}) for seed in SEEDS]
    found = halved([*broken, *PACK[:4]], keep=0.9)
    ids = {replica.id for rung in RUNGS for replica in at(rung, broken)}
    assert [rung_of(record) for record in found if record["id"] in ids] == [2, 2]
    assert all(record["status"] == "diverged" for record in found if record["id"] in ids)
    assert sum(rung_of(record) == 18 for record in found) == 4


def test_a_pack_that_diverges_whole_ends_at_the_first_rung() -> None:
    found = halved([make(seed, {"learning_rate": 1e30}) for seed in SEEDS])
    assert [(rung_of(record), record["status"]) for record in found] == [(2, "diverged")] * 2


def test_the_time_spent_is_shared_by_those_who_were_there() -> None:
    found = halved()
    spent = {rung: [r["runtime"]["seconds"] for r in found if rung_of(r) == rung] for rung in RUNGS}
    assert len(set(spent[2])) == 1 and len(set(spent[18])) == 1
    assert 0 < spent[2][0] < spent[6][0] < spent[18][0]


class Cut(Exception):
    pass


@pytest.mark.parametrize("cut_at", [1, 2, 4, 6, 17])
def test_cut_and_resumed_equals_not_cut(tmp_path: Path, cut_at: int) -> None:
    whole = halved()

    def cut(progress: PackProgress) -> None:
        if progress.epoch == cut_at and progress.phase == "pretrain":
            raise Cut

    checkpoint = FolderCheckpoint(tmp_path)
    with pytest.raises(Cut):
        halved(checkpoint=checkpoint, progress=cut)
    epochs: list[int] = []
    resumed = halved(checkpoint=checkpoint, progress=lambda p: epochs.append(p.epoch))
    assert min(epochs) >= cut_at
    assert without_runtime(resumed) == without_runtime(whole)
    assert [r["runtime"]["pack_size"] for r in resumed] == [len(PACK)] * len(whole)


def test_half_of_a_pack_that_was_cut_off_goes_on_by_itself(tmp_path: Path) -> None:
    def cut(progress: PackProgress) -> None:
        if progress.epoch == 4:
            raise Cut

    with pytest.raises(Cut):
        halved(checkpoint=FolderCheckpoint(tmp_path), progress=cut)
    half = PACK[: len(PACK) // 2]
    resumed = halved(half, checkpoint=FolderCheckpoint(tmp_path))
    assert without_runtime(resumed) == without_runtime(halved(half))
    assert all(record["runtime"]["core_seconds"] >= 0 for record in resumed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rungs": ()}, "rungs must be ascending"),
        ({"rungs": (6, 2, 18)}, "rungs must be ascending"),
        ({"rungs": (2, 2, 18)}, "rungs must be ascending"),
        ({"rungs": (0, 18)}, "rungs must be ascending"),
        ({"rungs": (2, 6)}, "that end at 18, got \\[2, 6\\]"),
        ({"keep": 1.0}, "keep.*must be in \\(0, 1\\), got 1.0"),
        ({"keep": 0.0}, "keep.*must be in \\(0, 1\\), got 0.0"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        halved(**settings)


def test_replicas_that_cannot_be_halved_are_refused() -> None:
    cosine = replace(Protocol(), pretrain_schedule="cosine")
    with pytest.raises(ConfigError, match="constant schedule"):
        halved([make(3, {}, protocol=cosine)])
    with pytest.raises(ConfigError, match="fine-tuned"):
        halved([replace(make(3, {}), finetuning=Finetuning(epochs=2))])
