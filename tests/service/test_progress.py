"""The view of a run: counts, speed, time left, as lines and as a live view."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from adaptbin.config import Budget, Finetuning
from adaptbin.data import get_card
from adaptbin.training.pack import PackProgress
from sweeps.service.methods_finetune import FinetuneStudy
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.plan import Plan, make_plan
from sweeps.service.progress import Meter, ProgressView, duration
from sweeps.service.work import Failure
from tests.service.fakes import progress_at

STUDY = SensitivityStudy(
    cards=(get_card("eol"),), panels=get_panels(["tau"]), seeds=tuple(range(4)), budget=Budget(epochs=100)
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def plan() -> Plan:
    return make_plan(STUDY, [r.id for r in STUDY.all_replicas[:5]])


def test_meter(plan: Plan) -> None:
    clock = Clock()
    meter = Meter(plan, clock)
    assert str(meter) == "5/20 replicas"
    first, second, third = plan.packs
    meter.advance(first, 1)
    clock.now = 10.0
    meter.advance(first, 20)
    assert (meter.trained, meter.speed, meter.share) == (100, 10.0, 100 / 1500)
    assert meter.seconds_left == pytest.approx(140)
    assert str(meter) == "5/20 replicas, 10 replica-epochs/s, 2 min 20 s left"
    meter.finish(first)
    assert (meter.finished, meter.trained) == (10, 500)
    meter.give_up(second)
    meter.finish(third)
    assert meter.share == 1.0


def test_epochs_of_fine_tuning_count_too() -> None:
    study = FinetuneStudy(
        cards=STUDY.cards, encoders=("mlp",), seeds=(0,), budget=Budget(epochs=100), finetuning=Finetuning(epochs=10)
    )
    plan = make_plan(study, ())
    meter = Meter(plan)
    scratch = next(pack for pack in plan.packs if pack.replicas[0].budget.epochs == 0)
    tuned = next(pack for pack in plan.packs if pack.replicas[0].budget.epochs == 100)
    meter.finish(scratch)
    assert meter.share == pytest.approx(10 / (10 + 3 * 110))
    stream = io.StringIO()
    with ProgressView(plan, stream) as view:
        view.began(tuned, {})
        for phase, epoch, share in (("pretrain", 100, 100), ("finetune", 5, 105)):
            state = PackProgress(phase, epoch, 100, 1, 0, 1.0, 0.0)
            view.progress(tuned, state)
            assert view._meter.share == pytest.approx(share / 340)
        assert view.status["training"][0].endswith("finetune 5/100, loss 1")


def test_epochs_of_a_checkpoint_are_not_speed(plan: Plan) -> None:
    clock = Clock()
    meter = Meter(plan, clock)
    clock.now = 10.0
    meter.advance(plan.packs[0], 60)
    assert (meter.trained, meter.speed) == (300, None)
    clock.now = 20.0
    meter.advance(plan.packs[0], 80)
    assert meter.speed == pytest.approx(5.0)


def test_a_lost_pack_counts_from_the_start_again(plan: Plan) -> None:
    clock = Clock()
    meter = Meter(plan, clock)
    meter.advance(plan.packs[0], 1)
    clock.now = 1.0
    meter.advance(plan.packs[0], 50)
    meter.drop(plan.packs[0])
    assert (meter.trained, meter.speed) == (0, None)


def test_speed_forgets_the_distant_past(plan: Plan) -> None:
    clock = Clock()
    meter = Meter(plan, clock)
    meter.advance(plan.packs[0], 1)
    for second in range(1, 100):
        clock.now = 10.0 * second
        meter.advance(plan.packs[0], second if second < 50 else 50)
    assert meter.speed is None  # nothing has moved for a minute


def lines_of(stream: io.StringIO) -> Iterator[str]:
    return iter(stream.getvalue().splitlines())


def test_plain_lines(plan: Plan) -> None:
    clock, stream = Clock(), io.StringIO()
    with ProgressView(plan, stream, clock) as view:
        view.progress(plan.packs[0], progress_at(1, 100))
        assert stream.getvalue() == ""
        clock.now = 16.0
        view.progress(plan.packs[0], progress_at(64, 100))
        view.progress(plan.packs[0], progress_at(65, 100))
        view.finished(plan.packs[0])
        view.retried(plan.packs[1], "its worker died")
        view.failed(plan.packs[1], Failure("ValueError: no", "Traceback\n  File x\n    raise it\nValueError: no"))
    assert list(lines_of(stream)) == [
        "eol: 5/20 replicas, 20 replica-epochs/s, 59 s left",
        "eol: 10/20 replicas, 31 replica-epochs/s, 32 s left",
        "again: eol, 5 replicas: its worker died",
        "failed: eol, 5 replicas: ValueError: no",
        "    Traceback",
        "    File x",
        "    raise it",
    ]
    assert view.status["failures"] == ["eol, 5 replicas: ValueError: no"]
    assert view.status["progress"].startswith("10/20 replicas")


def test_live_view(plan: Plan) -> None:
    stream = Terminal()
    with ProgressView(plan, stream) as view:
        view.began(plan.packs[0], {"host": "far"})
        view.progress(plan.packs[0], progress_at(40, 100))
        view.failed(plan.packs[1], Failure("no room"))
        view.ask(-5)
        view.say("news")
        view._live.refresh()
    shown = stream.getvalue()
    assert "news" in shown
    assert "5/15 replicas" in shown
    assert "eol, 5 replicas on far: pretrain 40/100, loss 1, 2.0 bins" in shown
    assert "failed: eol, 5 replicas: no room" in shown  # stays in sight


@pytest.mark.parametrize(("seconds", "text"), [(4.4, "4 s"), (95, "1 min 35 s"), (3600, "1 h 00 min"), (0, "0 s")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
