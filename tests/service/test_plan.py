"""Planning: every missing replica exactly once, in packs that can be stacked and that keep the workers busy."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.config import SPLIT_SEED, Budget, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError, ResourceError
from adaptbin.replicas.grouping import group_replicas
from sweeps.service.kinds import Work, work_of
from sweeps.service.memory import GIB, KEPT_BACK, MIB, USABLE, Need
from sweeps.service.nodes import Node
from sweeps.service.panels import PANELS, SensitivityStudy, get_panels
from sweeps.service.plan import Halving, Pack, Plan, Resources, make_plan
from sweeps.service.points import Study, point_of
from tests.service.moving import EncoderStudy


def study_of(*datasets: str, seeds: int = 3, vary: str = "pretrain", panels: str = "w_sord,tau") -> Study:
    return SensitivityStudy(
        cards=tuple(get_card(name) for name in datasets or ("eol",)),
        panels=get_panels(panels.split(",")),
        seeds=tuple(range(seeds)),
        seeds_vary=vary,  # type: ignore[arg-type]
        budget=Budget(epochs=10),
    )


studies = st.builds(
    lambda datasets, seeds, vary, panels: study_of(*datasets, seeds=seeds, vary=vary, panels=",".join(panels)),
    st.lists(st.sampled_from(["eol", "hfc", "pt"]), min_size=1, max_size=2, unique=True),
    st.integers(1, 4),
    st.sampled_from(["pretrain", "probe", "split"]),
    st.lists(st.sampled_from(list(PANELS)), min_size=1, max_size=3, unique=True),
)


@settings(deadline=None, max_examples=50)  # a loaded machine must not fail a test
@given(studies, st.data(), st.integers(1, 9), st.none() | st.integers(1, 50))
def test_every_missing_replica_is_planned_once_and_can_be_stacked(
    study: Study, data: st.DataObject, workers: int, pack_size: int | None
) -> None:
    finished = {r.id for r in study.all_replicas if data.draw(st.booleans())}
    plan = make_plan(study, finished, workers=workers, pack_size=pack_size)
    planned = [replica.id for pack in plan.packs for replica in pack.replicas]
    assert sorted(planned) == sorted({r.id for r in study.all_replicas} - finished)
    assert {r.id for r in plan.done} == finished
    assert {r.id for r in plan.to_do} == set(planned)
    for pack in plan.packs:
        assert len(group_replicas(pack.replicas)) == 1
    assert len({pack.key for pack in plan.packs}) == len(plan.packs)
    assert make_plan(study, finished, workers=workers, pack_size=pack_size) == plan


@settings(deadline=None, max_examples=50)  # a loaded machine must not fail a test
@given(studies, st.integers(1, 50))
def test_pack_sizes(study: Study, pack_size: int) -> None:
    whole = len(study.seeds) if study.seeds_vary == "probe" else 1  # these share a pretraining and stay together
    for pack in make_plan(study, (), pack_size=pack_size).packs:
        assert len(pack.replicas) <= max(pack_size, whole)


@settings(deadline=None, max_examples=50)  # a loaded machine must not fail a test
@given(studies, st.integers(1, 9), st.none() | st.integers(1, 50))
def test_no_pretraining_is_done_twice(study: Study, workers: int, pack_size: int | None) -> None:
    homes: dict[object, set[str]] = {}
    for pack in make_plan(study, (), workers=workers, pack_size=pack_size).packs:
        for r in pack.replicas:
            homes.setdefault((r.dataset, r.seeds.split, r.seeds.pretrain, r.hyperparameters), set()).add(pack.key)
    assert all(len(packs) == 1 for packs in homes.values())


def sizes(study: Study, **settings: object) -> list[int]:
    return [len(pack.replicas) for pack in make_plan(study, (), **settings).packs]  # type: ignore[arg-type]


def test_by_default_a_pack_is_a_seed() -> None:
    study = study_of(seeds=10, panels=",".join(PANELS))
    plan = make_plan(study, (), workers=2)
    assert [len(pack.replicas) for pack in plan.packs] == [21] * 10
    assert [{r.seed for r in pack.replicas} for pack in plan.packs] == [{seed} for seed in range(10)]


def test_fewer_seeds_than_workers_are_cut_evenly() -> None:
    one = study_of(seeds=1, panels=",".join(PANELS))
    assert sizes(one, workers=1) == [21]
    assert sorted(sizes(one, workers=2)) == [10, 11]
    assert sizes(one, workers=3) == [7, 7, 7]
    assert len(sizes(one, workers=64)) == 21
    # Three packs on two workers would leave one idle for a third of the time.
    assert sorted(sizes(study_of(seeds=3, panels=",".join(PANELS)), workers=2)) == [10, 10, 10, 11, 11, 11]


def test_seeds_of_few_points_are_joined_where_workers_have_enough_without() -> None:
    study = EncoderStudy(cards=(get_card("eol"),), seeds=tuple(range(10)))  # four kinds of work, a point each
    few = make_plan(study, (), workers=2)
    assert [len(pack.replicas) for pack in few.packs] == [5] * 8
    assert [r.seed for r in few.packs[0].replicas] == [0, 1, 2, 3, 4]
    assert len(make_plan(study, (), workers=40).packs) == 40
    by_split = EncoderStudy(cards=(get_card("eol"),), seeds=tuple(range(10)), seeds_vary="split")
    assert len(make_plan(by_split, (), workers=1).packs) == 40  # they see other rows


def test_an_explicit_size_may_join_seeds_but_never_splits() -> None:
    assert sizes(study_of(seeds=4), pack_size=1000) == [36]
    assert sizes(study_of(seeds=4), pack_size=10) == [9, 9, 9, 9]
    assert sizes(study_of(seeds=4, vary="split"), pack_size=1000) == [9] * 4
    plan = make_plan(study_of(seeds=2, vary="split"), ())
    assert [pack.split_seed for pack in plan.packs] == [SPLIT_SEED, SPLIT_SEED + 1]


def test_probe_seeds_share_their_points_pretraining() -> None:
    plan = make_plan(study_of(seeds=4, vary="probe"), (), workers=2)
    assert [len(pack.replicas) for pack in plan.packs] == [16, 20]
    for pack in plan.packs:
        assert {r.seed for r in pack.replicas} == {0, 1, 2, 3}


def test_begun_packs_stay_together() -> None:
    study = study_of(seeds=3)
    members = make_plan(study, (), workers=1).packs[0].replicas[:4]
    ids = tuple(r.id for r in members)
    plan = make_plan(study, (), workers=1, begun={"a": ids})
    assert plan.packs[0] == Pack(members, resumes=("a",))
    assert sum(len(pack.replicas) for pack in plan.packs) == 27
    # One of them finished meanwhile, one failed: the others go on.
    plan = make_plan(study, {ids[0]}, begun={"a": ids}, failed={ids[2]})
    assert plan.packs[0] == Pack((members[1], members[3]), resumes=("a",))
    # The newest folder has a replica first.
    plan = make_plan(study, (), begun={"new": ids[1:3], "old": ids})
    assert plan.packs[:2] == (Pack(members[1:3], ("new",)), Pack((members[0], members[3]), ("old",)))
    assert plan.packs[0].key == Pack(members[1:3]).key
    plan = make_plan(study, (), pack_size=3, begun={"a": ids})
    assert plan.packs[:2] == (Pack(members[:2], ("a",)), Pack(members[2:], ("a",)))
    # A folder of that very pack is simply its own.
    own = Pack(members)
    assert make_plan(study, (), begun={own.key: ids}).packs[0] == own
    # Those of another study are of no use.
    assert make_plan(study, (), begun={"a": ("nowhere",), "b": ()}) == make_plan(study, ())


def test_failed_replicas_are_left_out_unless_asked_for() -> None:
    study = study_of(seeds=2)
    failed = [r.id for r in study.all_replicas[:3]]
    plan = make_plan(study, failed[:1], failed=[*failed, "of another study"])
    assert [r.id for r in plan.failed] == failed[1:]
    assert (len(plan.done), len(plan.to_do)) == (1, 15)
    assert sum(len(pack.replicas) for pack in plan.packs) == 15
    again = make_plan(study, failed[:1], failed=failed, retry_failed=True)
    assert (again.failed, len(again.to_do)) == ((), 17)


def memory_for(models: float) -> Node:
    """A machine with one core, whose memory holds a pack of so many models of 10 MiB."""
    return Node(1, memory=math.ceil((100 * MIB + models * 10 * MIB + KEPT_BACK) / USABLE))


def needs_of(study: Study) -> dict[Work, Need]:
    need = Need(fixed=100 * MIB, per_model=10 * MIB)
    return {work_of(replica): need for replica in study.all_replicas}


@settings(deadline=None, max_examples=50)  # a loaded machine must not fail a test
@given(studies, st.data(), st.integers(1, 4), st.none() | st.integers(1, 50), st.integers(1, 30))
def test_no_pack_exceeds_its_memory(
    study: Study, data: st.DataObject, workers: int, pack_size: int | None, most: int
) -> None:
    ids = [r.id for r in study.all_replicas]
    begun = {name: data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=40)) for name in ("a", "b")}
    failed = data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=3))
    plan = make_plan(
        study, ids[:2], workers=workers, pack_size=pack_size, begun=begun, failed=failed,
        nodes=[memory_for(most + 0.5)], needs=needs_of(study),
    )  # fmt: skip
    planned = [replica.id for pack in plan.packs for replica in pack.replicas]
    assert sorted(planned) == sorted(set(ids) - set(ids[:2]) - set(failed))
    assert plan.memory_limit is not None and plan.memory <= plan.memory_limit
    for pack in plan.packs:
        models = {(r.hyperparameters, r.seeds.pretrain) for r in pack.replicas}
        assert len(models) <= most
        assert len(group_replicas(pack.replicas)) == 1
        assert all({r.id for r in pack.replicas} <= set(begun[name]) for name in pack.resumes)
        assert pack.resumes != ("b",) or not {r.id for r in pack.replicas} & set(begun["a"])
    for name, members in begun.items():
        resumed = {r.id for pack in plan.packs if pack.resumes == (name,) for r in pack.replicas}
        assert resumed == {i for i in members if i in planned and (name == "a" or i not in begun["a"])}


def test_a_pack_is_cut_to_the_smallest_share_of_memory() -> None:
    study = study_of(seeds=4, panels=",".join(PANELS))
    plan = make_plan(study, (), pack_size=50, nodes=[Node(1, memory=64 * GIB), memory_for(10.5)], needs=needs_of(study))
    assert {len(pack.replicas) for pack in plan.packs} == {9, 10}
    assert (plan.cut_to, plan.memory) == (10, 200 * MIB)
    assert make_plan(study, (), nodes=[Node(1, memory=64 * GIB)], needs=needs_of(study)).cut_to is None
    # Four packs at once share what one had.
    shared = Node(4, memory=round((4 * 205 * MIB + KEPT_BACK) / USABLE))
    assert make_plan(study, (), workers=4, nodes=[shared], needs=needs_of(study)).cut_to == 10
    assert make_plan(study, (), workers=1, nodes=[shared], needs=needs_of(study)).cut_to is None
    # On a GPU its memory counts; a machine that cannot hold a pack at all does not.
    gpu = Node(8, gpus=1, memory=1, gpu_memory=round(4 * 205 * MIB / USABLE))
    asked = Resources(1, 0.25)
    plan = make_plan(study, (), resources=asked, workers=4, nodes=[gpu, Node(8, memory=1)], needs=needs_of(study))
    assert plan.cut_to == 10


def test_memory_that_is_too_small_for_one_replica_is_refused() -> None:
    small = [memory_for(0.5)]
    with pytest.raises(ResourceError, match="got 10[45] MiB of its node for one replica of eol, which needs about 110"):
        make_plan(study_of(), (), nodes=small, needs=needs_of(study_of()))
    everything = [r.id for r in study_of().all_replicas]
    assert make_plan(study_of(), everything, nodes=small, needs=needs_of(study_of())).packs == ()


def test_fine_tuned_models_share_a_pretraining_and_no_memory() -> None:
    study = EncoderStudy(cards=(get_card("eol"),), seeds=tuple(range(4)), seeds_vary="probe")
    roomy = make_plan(study, (), nodes=[Node(1, memory=64 * GIB)], needs=needs_of(study))
    assert sorted(len(pack.replicas) for pack in roomy.packs) == [4, 4, 4, 4]
    asked = make_plan(study, (), pack_size=3, nodes=[Node(1, memory=64 * GIB)], needs=needs_of(study))
    assert max(len(pack.replicas) for pack in asked.packs) <= 3
    tight = make_plan(study, (), nodes=[memory_for(2.5)], needs=needs_of(study))
    assert {len(pack.replicas) for pack in tight.packs} == {2} and tight.cut_to == 2
    assert tight.memory == 120 * MIB
    with pytest.raises(ResourceError, match=r"for one replica of eol \(fine-tuned\)"):
        make_plan(study, (), nodes=[memory_for(0.5)], needs=needs_of(study))


def test_ten_thousand_replicas_are_planned() -> None:
    study = study_of(seeds=477, panels=",".join(PANELS))
    ids = [r.id for r in study.all_replicas]
    plan = make_plan(study, ids[:100], workers=64, nodes=[Node(1, memory=64 * GIB)] * 64, needs=needs_of(study))
    assert len(ids) == len(set(ids)) == 10_017
    assert sum(len(pack.replicas) for pack in plan.packs) == 9_917


def test_halves_cover_the_pack() -> None:
    pack = make_plan(study_of(seeds=2, vary="probe"), ()).packs[0]
    halves = pack.halves()
    assert [len(half.replicas) for half in halves] == [8, 10]
    assert {r.id for half in halves for r in half.replicas} == {r.id for r in pack.replicas}
    shared = Pack(pack.replicas[:1] + tuple(r for r in pack.replicas if r.seed == 1)[:1])
    assert [len(half.replicas) for half in shared.halves()] == [1, 1]


def test_points_stay_whole_where_they_are_ranked() -> None:
    study = study_of(seeds=3)  # nine points, of which one, the default, is in both panels

    def points_in(plan: Plan) -> list[list[int]]:
        """Per pack how many seeds of each of its points it has."""
        return [list(Counter(point_of(r) for r in pack.replicas).values()) for pack in plan.packs]

    parted = make_plan(study, (), pack_size=27, nodes=[memory_for(8.5)], needs=needs_of(study))
    assert any(set(seeds) != {3} for seeds in points_in(parted))
    whole = make_plan(study, (), pack_size=27, nodes=[memory_for(8.5)], needs=needs_of(study), whole_points=True)
    assert points_in(whole) and all(seeds in ([3], [3, 3]) for seeds in points_in(whole))
    assert sum(map(len, points_in(whole))) == 9 and whole.cut_to == 8
    with pytest.raises(ResourceError, match="memory allows packs of 2 of this shape, got 3 seeds"):
        make_plan(study, (), pack_size=27, nodes=[memory_for(2.5)], needs=needs_of(study), whole_points=True)


def test_halves_of_a_bracket_keep_points_whole() -> None:
    study = study_of(seeds=3)
    bracket = replace(make_plan(study, (), pack_size=27, whole_points=True).packs[0], halving=Halving(rungs=(3, 10)))
    halves = bracket.halves()
    assert [len(half.replicas) for half in halves] == [12, 15] and {half.halving for half in halves} == {
        bracket.halving
    }
    assert all(set(Counter(map(point_of, half.replicas)).values()) == {3} for half in halves)
    alone = replace(bracket, replicas=bracket.replicas[:3])
    assert [len(half.replicas) for half in alone.halves()] == [2, 1]


@pytest.mark.parametrize(
    ("resources", "cpus", "gpus", "at_once"),
    [
        (Resources(1), 2, 0, 2),
        (Resources(2), 7, 0, 3),
        (Resources(0.5), 2, 0, 4),
        (Resources(3), 2, 0, 0),
        (Resources(1, 0.25), 16, 2, 8),
        (Resources(1, 0.4), 16, 2, 4),  # two per GPU: a share never spans GPUs
        (Resources(1, 0.1), 4, 1, 4),
        (Resources(1, 2), 16, 5, 2),
        (Resources(1, 1), 16, 0, 0),
    ],
)
def test_packs_at_once(resources: Resources, cpus: float, gpus: float, at_once: int) -> None:
    assert resources.fit(Node(cpus, gpus)) == at_once


@pytest.mark.parametrize("gpus", [-1.0, 1.5, float("nan"), float("inf")])
def test_gpu_requests_nobody_can_fill(gpus: float) -> None:
    with pytest.raises(ConfigError, match="gpus per pack must be a share in"):
        Resources(1, gpus)


def test_other_refusals() -> None:
    with pytest.raises(ConfigError, match="cpus per pack must be a finite number > 0, got 0"):
        Resources(0)
    with pytest.raises(ConfigError, match="pack must be a whole number >= 1, got 0"):
        make_plan(study_of(), (), pack_size=0)


def test_a_protocol_is_part_of_the_shape() -> None:
    ours = study_of(seeds=1)
    theirs = SensitivityStudy(cards=ours.cards, panels=ours.panels, seeds=(0,), protocol=Protocol.named("released"))
    assert not {r.id for r in ours.all_replicas} & {r.id for r in theirs.all_replicas}
