"""Planning: every missing replica exactly once, in packs that can be stacked and that keep the workers busy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.config import SPLIT_SEED, Budget, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from adaptbin.replicas.grouping import group_replicas
from sweeps.service.estimate import Sizes, describe, estimate, guessed_speed, measured_speeds
from sweeps.service.nodes import Node
from sweeps.service.plan import Pack, Resources, make_plan
from sweeps.service.points import PANELS, Study, get_panels, sensitivity_study
from tests.paths import using
from tests.service.fakes import fake_record


def study_of(*datasets: str, seeds: int = 3, vary: str = "pretrain", panels: str = "w_sord,tau") -> Study:
    return sensitivity_study(
        [get_card(name) for name in datasets or ("eol",)],
        panels=get_panels(panels.split(",")),
        seeds=range(seeds),
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
    first = make_plan(study, (), workers=1).packs[0]
    part = Pack(first.replicas[:4])
    begun = {part.key: tuple(r.id for r in part.replicas)}
    plan = make_plan(study, (), workers=1, begun=begun)
    assert plan.packs[0] == part
    assert sum(len(pack.replicas) for pack in plan.packs) == 27
    # One of them finished meanwhile: the others go on from the state of all.
    finished = {part.replicas[0].id}
    assert make_plan(study, finished, begun=begun).packs[0] == Pack(part.replicas[1:], resumes=(part.key,))
    assert make_plan(study, (), begun={"x": ("nowhere",), "y": ()}) == make_plan(study, ())


def test_what_failed_is_left_out() -> None:
    study = study_of(seeds=2)
    failed = {r.id for r in study.all_replicas if r.seed == 1}
    plan = make_plan(study, (), failed=failed)
    assert {r.id for r in plan.failed} == failed
    assert [r.seed for r in plan.to_do] == [0] * 9
    assert make_plan(study, failed, failed=failed).failed == ()


def test_halves_cover_the_pack() -> None:
    pack = make_plan(study_of(seeds=2, vary="probe"), ()).packs[0]
    halves = pack.halves()
    assert [len(half.replicas) for half in halves] == [8, 10]
    assert {r.id for half in halves for r in half.replicas} == {r.id for r in pack.replicas}
    shared = Pack(pack.replicas[:1] + tuple(r for r in pack.replicas if r.seed == 1)[:1])
    assert [len(half.replicas) for half in shared.halves()] == [1, 1]


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
    theirs = sensitivity_study(ours.cards, panels=ours.panels, seeds=(0,), protocol=Protocol.named("released"))
    assert not {r.id for r in ours.all_replicas} & {r.id for r in theirs.all_replicas}


SIZES = {"eol": Sizes(1351, 16), "hfc": Sizes(191, 12)}


def test_time_from_finished_replicas() -> None:
    study = study_of("eol", "hfc", seeds=2)
    records = [fake_record(replica) for replica in study.replicas["eol"]]
    assert measured_speeds(records) == {"eol": pytest.approx(0.05)}  # 0.5 s for 10 epochs
    plan = make_plan(study.only("eol"), (), workers=1)
    guess = estimate(plan, SIZES, measured_speeds(records))
    assert guess.seconds == pytest.approx(18 * 10 * 0.05 + 12)
    assert guess.basis == "measured on finished replicas of eol"
    both = estimate(make_plan(study, (), workers=2), SIZES, measured_speeds(records))
    assert both.basis == "measured on finished replicas of eol; guessed from model sizes for hfc"
    assert estimate(make_plan(study, [r.id for r in study.all_replicas]), SIZES, {}).seconds == 0


def test_guesses_grow_with_the_model_and_the_table() -> None:
    eol, hfc = get_card("eol").architecture, get_card("hfc").architecture
    assert guessed_speed(eol, Sizes(2000, 16)) > guessed_speed(eol, Sizes(1000, 16))
    assert guessed_speed(hfc, SIZES["hfc"]) > guessed_speed(eol, SIZES["hfc"])


def test_shared_pretrainings_are_counted_once() -> None:
    probe = estimate(make_plan(study_of(seeds=4, vary="probe"), (), workers=1), SIZES, {"eol": 1.0})
    assert probe.seconds == pytest.approx(9 * 10 * 1.0 + 12)


def test_the_plan_in_words() -> None:
    study = study_of(seeds=3)
    done = [r.id for r in study.all_replicas[:9]]
    text = describe(make_plan(study, done, workers=2), SIZES, [])
    assert text.splitlines()[:2] == [
        "sensitivity of eol: 9 points x 3 seeds = 27 replicas, 9 done, 18 to do",
        "packs: 2, of 9 replicas; 1 core each, 2 at once",
    ]
    assert text.splitlines()[2].endswith("(guessed from model sizes for eol)")
    with using("plain"):
        slower = describe(make_plan(study, done, workers=2), SIZES, [])
    assert slower.splitlines()[3].startswith("no compiled kernels here")
