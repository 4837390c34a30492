"""How long a plan takes: on which basis, and in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, get_args

import pytest

from adaptbin import native
from adaptbin.config import EncoderName, Finetuning
from adaptbin.data import get_card
from sweeps.service.estimate import (
    GUESSED,
    MEASURED,
    SIDE_BY_SIDE,
    START_SECONDS,
    Speed,
    describe,
    estimate,
    guessed_speed,
    longest_first,
    measured_speed,
    speeds,
    work_of,
)
from sweeps.service.kinds import Work
from sweeps.service.memory import GIB, MIB, Need, Sizes
from sweeps.service.nodes import Node
from sweeps.service.plan import Pack, Plan, Resources, make_plan
from sweeps.service.timing import Timing
from sweeps.service.variance import VarianceStudy
from tests.paths import using
from tests.service.fakes import fake_record
from tests.service.moving import EncoderStudy
from tests.service.test_plan import study_of

SIZES = {"eol": Sizes(1351, 16), "hfc": Sizes(191, 12)}
NOW = datetime(2026, 3, 1, 13, 55)


def plan_of(*datasets: str, seeds: int = 2, vary: str = "pretrain", **settings: Any) -> Plan:
    return make_plan(study_of(*datasets, seeds=seeds, vary=vary), (), **settings)


def work(name: str, vary: str = "pretrain") -> Work:
    """What the replicas of a plan are."""
    return work_of(plan_of(name, vary=vary).packs[0])


def records(name: str, seconds: float, **changes: Any) -> list[dict[str, Any]]:
    """Of the first seed; ``changes`` are made to their runtimes."""
    found = [fake_record(replica) for replica in study_of(name, seeds=1).all_replicas]
    for record in found:
        record["runtime"] |= {"seconds": seconds, **changes}
    return found


def test_time_from_finished_replicas() -> None:
    plan = plan_of("eol", workers=1)
    found = speeds(plan, SIZES, records("eol", 0.5))
    assert found == {work("eol", "pretrain"): Speed(0.0, pytest.approx(0.5), MEASURED)}
    guess = estimate(plan, found)
    assert guess.seconds == pytest.approx(18 * 0.5 + START_SECONDS)
    assert guess.core_hours == pytest.approx(9 / 3600)
    assert guess.gpu_hours == 0
    assert guess.basis == "finished replicas of eol"
    both = plan_of("eol", "hfc", workers=2)
    assert estimate(both, speeds(both, SIZES, records("eol", 0.5))).basis == (
        "finished replicas of eol; a guess from model sizes for hfc"
    )
    done = make_plan(study_of(), [r.id for r in study_of().all_replicas])
    assert estimate(done, {}).seconds == 0


def test_only_replicas_that_did_the_same_work_tell_of_time() -> None:
    pack = plan_of("eol").packs[0]
    assert measured_speed(pack, [], "cpu") is None
    assert measured_speed(pack, records("hfc", 1.0), "cpu") is None
    assert measured_speed(pack, records("eol", 1.0, device="cuda:0"), "cpu") is None
    assert measured_speed(pack, records("eol", 1.0, device="cuda:0"), "cuda") == Speed(0.0, 1.0, MEASURED)
    other = "torch" if native.instruction_set() else "avx2"
    assert measured_speed(pack, records("eol", 1.0, kernels=other), "cpu") is None
    short = records("eol", 1.0)
    for record in short:
        record["identity"]["budget"]["epochs"] = 4  # of 10 asked for
    assert measured_speed(pack, short, "cpu") is None
    # The larger of two kinds of packs is nearer to this one of nine.
    mixed = records("eol", 1.0, pack_size=8) + records("eol", 3.0, pack_size=1)
    assert measured_speed(pack, mixed, "cpu") == Speed(0.0, 1.0, MEASURED)


def test_other_encoders_and_fine_tuning_tell_nothing_of_time() -> None:
    study = EncoderStudy(cards=(get_card("eol"),), seeds=(0,))
    packs = make_plan(study, ()).packs
    known = [fake_record(replica) for replica in study.all_replicas]
    for number, record in enumerate(known):
        record["runtime"]["seconds"] = float(number + 1)
    assert [measured_speed(pack, known, "cpu") for pack in packs] == [
        Speed(0.0, float(number + 1), MEASURED) for number in range(4)
    ]
    assert measured_speed(plan_of("eol").packs[0], known, "cpu") is None
    # Without a pretraining, time goes with the epochs of fine-tuning; with one, nobody knows which took it.
    longer = make_plan(replace(study, finetuning=Finetuning(epochs=10)), ()).packs
    assert [measured_speed(pack, known, "cpu") for pack in longer] == [
        Speed(0.0, 2.0, MEASURED), None, Speed(0.0, 6.0, MEASURED), None,
    ]  # fmt: skip
    assert (
        measured_speed(make_plan(replace(study, finetuning=Finetuning(epochs=11)), ()).packs[0], known, "cpu") is None
    )


def test_guesses_of_fine_tuning() -> None:
    study = EncoderStudy(cards=(get_card("eol"),), seeds=(0,))
    plan = make_plan(study, (), workers=1)
    scratch, pretrained, resnet, _ = (speeds(plan, SIZES, [])[pack.work] for pack in plan.packs)
    assert scratch.per_model == 0 < scratch.per_replica == pretrained.per_replica < resnet.per_replica
    assert pretrained.per_model > pretrained.per_replica  # twice the epochs, and a decoder
    assert estimate(plan, speeds(plan, SIZES, [])).seconds > START_SECONDS


def test_timed_steps_replace_a_guess_that_is_worth_it() -> None:
    timed: list[Pack] = []

    def time_it(pack: Pack) -> Timing | None:
        timed.append(pack)
        return Timing(2.0, 0.5) if pack.dataset == "eol" else None

    short = plan_of("eol", workers=1)
    assert speeds(short, SIZES, [], time_it=time_it)[work("eol", "pretrain")].basis == GUESSED
    assert timed == []
    # As large as the sizes say, it takes long.
    long = {name: Sizes(5_000_000, 16) for name in SIZES}
    plan = plan_of("eol", "hfc", workers=2)
    found = speeds(plan, long, [], time_it=time_it)
    assert [pack.dataset for pack in timed] == ["eol", "hfc"]
    assert found[work("eol", "pretrain")] == Speed(2.0 * SIDE_BY_SIDE, 0.5 * SIDE_BY_SIDE, "timed steps of")
    assert found[work("hfc", "pretrain")].basis == GUESSED
    speeds(plan_of("eol", workers=1), long, records("eol", 100.0), time_it=time_it)
    assert len(timed) == 2


@pytest.mark.parametrize(
    ("resources", "workers", "factor"),
    [
        (Resources(1), 1, 1.0),
        (Resources(1), 2, SIDE_BY_SIDE),
        (Resources(0.5), 1, 2.0),
        (Resources(2), 1, 1.0),
        (Resources(1, 0.25), 2, 2.0),  # packs that share a GPU take turns
        (Resources(1, 0.5), 8, 2.0),
        (Resources(1, 1), 8, 1.0),
    ],
)
def test_packs_side_by_side(resources: Resources, workers: int, factor: float) -> None:
    alone = speeds(plan_of("eol", seeds=8, workers=1), SIZES, [])[work("eol", "pretrain")]
    found = speeds(plan_of("eol", seeds=8, workers=workers, resources=resources), SIZES, [])[work("eol", "pretrain")]
    assert found.per_model == pytest.approx(alone.per_model * factor)


def test_what_takes_longest_is_trained_first() -> None:
    plan = plan_of("eol", "hfc", workers=2)
    known = {work("eol", "pretrain"): Speed(0.0, 1.0, MEASURED), work("hfc", "pretrain"): Speed(0.0, 4.0, MEASURED)}
    packs = longest_first(plan.packs, known)
    assert [pack.dataset for pack in packs] == sorted((pack.dataset for pack in plan.packs), reverse=True)
    assert longest_first(plan_of("eol").packs, known) == plan_of("eol").packs  # alike ones stay in order
    in_order = estimate(replace(plan, packs=packs), known)
    assert estimate(plan, known).seconds == in_order.seconds


def test_guesses_grow_with_the_model_and_the_table() -> None:
    esr, wide = get_card("esr").architecture, Sizes(7360, 178)
    per_epoch = {name: guessed_speed(replace(esr, encoder=name), wide) for name in get_args(EncoderName)}
    # Attention among 179 tokens is hundreds of times what a perceptron computes.
    assert per_epoch["ft_transformer"] > 50 * per_epoch["mlp"] and per_epoch["t2g_former"] > 50 * per_epoch["mlp"]
    assert guessed_speed(esr, wide, "none") < guessed_speed(esr, wide, "value_recon") < guessed_speed(esr, wide)
    eol, hfc = get_card("eol").architecture, get_card("hfc").architecture
    assert guessed_speed(eol, Sizes(2000, 16)) > guessed_speed(eol, Sizes(1000, 16))
    assert guessed_speed(hfc, SIZES["hfc"]) > guessed_speed(eol, SIZES["hfc"])


def test_shared_pretrainings_are_counted_once() -> None:
    probe = estimate(plan_of("eol", seeds=4, vary="probe", workers=1), {work("eol", "probe"): Speed(10.0, 1.0, "x")})
    assert probe.seconds == pytest.approx(9 * 10 + 36 * 1 + START_SECONDS)


def test_kinds_of_seeds_have_speeds_of_their_own() -> None:
    """Replicas that share a pretraining cost a tenth of those that have one each."""
    study = VarianceStudy(cards=(get_card("eol"),))
    known = [fake_record(replica) for replica in study.all_replicas]
    for record in known:
        record["runtime"]["seconds"] = 2.0 if record["identity"]["seeds_vary"] == "probe" else 20.0
    plan = make_plan(replace(study, seeds=tuple(range(10, 20))), (), workers=1)
    found = speeds(plan, SIZES, known)
    assert {kind.seeds_vary: speed.per_replica for kind, speed in found.items()} == {
        "probe": 2,
        "pretrain": 20,
        "split": 20,
    }
    guess = estimate(plan, found)
    assert guess.seconds == pytest.approx(10 * (2 + 20 + 20) + START_SECONDS)
    assert guess.basis == "finished replicas of eol"


def test_the_plan_in_words() -> None:
    study = study_of(seeds=3)
    done = [r.id for r in study.all_replicas[:9]]
    begun = {"a": [r.id for r in study.all_replicas[9:18]]}
    need = {work("eol"): Need(100 * MIB, 10 * MIB)}
    plan = make_plan(
        study, done, workers=2, begun=begun, failed=[study.all_replicas[-1].id], nodes=[Node(2, memory=8 * GIB)],
        needs=need,
    )  # fmt: skip
    guess = estimate(plan, {work("eol", "pretrain"): Speed(0.0, 120.0, MEASURED)})
    assert describe(plan, guess, NOW).splitlines()[:4] == [
        "sensitivity of eol: 9 points x 3 seeds = 27 replicas, 9 done, 1 failed before and left out, 17 to do",
        "packs: 3, of 4 to 9 replicas; 1 core each, 2 at once; 1 go on from checkpoints",
        "memory: up to 190 MiB per pack of 3.1 GiB that each is given",
        "time: about 18 min 12 s, done about 14:13; about 0.57 core-hours (from finished replicas of eol)",
    ]
    with using("plain"):
        assert describe(plan, guess, NOW).splitlines()[-1].startswith("no compiled kernels here")


def test_a_plan_that_memory_cuts_and_that_ends_tomorrow() -> None:
    plan = plan_of("eol", pack_size=18, nodes=[Node(1, memory=2 * GIB)], needs={work("eol"): Need(100 * MIB, 60 * MIB)})
    guess = estimate(plan, {work("eol", "pretrain"): Speed(0.0, 7200.0, MEASURED)})
    lines = describe(plan, guess, NOW).splitlines()
    assert lines[2:4] == [
        "memory: up to 640 MiB per pack of 819 MiB that each is given",
        "memory allows packs of 11 models at most, so larger ones were cut",
    ]
    assert "done about 01:55 on Tue 03 Mar; about 36 core-hours" in lines[4]
    on_gpu = plan_of("eol", resources=Resources(1, 0.5))
    assert "about 18 GPU-hours" in describe(
        on_gpu, estimate(on_gpu, {work("eol", "pretrain"): Speed(0.0, 7200.0, "x")}), NOW
    )
