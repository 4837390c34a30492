"""The benchmark from end to end on a tiny table; what it times is nobody's business here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import bench
from tests.benchmarks.children import in_children
from tests.benchmarks.measure import Job, Measurement, Stacked, run_job
from tests.benchmarks.phases import OTHER, TIMED
from tests.benchmarks.plan import Plan, Series, standard_plan
from tests.benchmarks.report import GOAL, Report
from tests.benchmarks.results import RUN
from tests.benchmarks.shapes import replicas, shape

TINY = Job("tiny", 2, 3)
PLAN = Plan(
    series=(Series(replace(TINY, replicas=0), (replace(TINY, replicas=1), TINY)),),
    short=TINY,
    variants=(replace(TINY, changes={"t_max": 50}, name="T_max 50"),),
    phases=replace(TINY, phases=True),
)


def here(jobs: Sequence[Job]) -> list[Measurement]:
    """In this process, one after the other."""
    return [run_job(job) for job in jobs]


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tiny plan in this process, on a machine of two cores, with results in a folder of the test's own."""
    monkeypatch.setattr(bench, "product_rate", lambda: {"torch.bmm": 100.0})
    monkeypatch.setattr(bench, "cores", lambda: 2)
    monkeypatch.setattr(bench, "standard_plan", lambda epochs: PLAN)
    monkeypatch.setattr(bench, "in_children", here)
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "RESULTS.md")


@pytest.mark.usefixtures("fast")
def test_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--epochs", "3", "--write"]) == 0
    printed = capsys.readouterr().out
    for part in ("plain loop, median of 3", "R=2", "T_max 50", "two processes", "AdamW", "(shortened)"):
        assert part in printed
    assert "tiny R=2 and tiny R=2" in printed
    section = printed[printed.index(RUN) :]
    assert section.strip() in bench.RESULTS.read_text()
    assert section.splitlines()[-1].startswith("No eol pack")


@pytest.mark.usefixtures("fast")
def test_plain_loop_is_sampled_before_between_and_after() -> None:
    report = bench.run_plan(PLAN, here)
    assert (len(report.plain["tiny"]), len(report.stacked), len(report.alone)) == (3, 2, 3)
    every = [job.replicas for job in standard_plan(5).series[0].order()]
    assert every == [0, 1, 0, 10, 0, 21, 0, 42, 0]


def test_profile_names_operators() -> None:
    assert "aten::" in bench.profile(TINY)


def test_a_job_in_a_process_of_its_own() -> None:
    (found,) = in_children([TINY])
    expected = run_job(TINY)
    assert (found.mflop, found.final_bins) == (expected.mflop, expected.final_bins)
    assert 0 < found.memory_imports < found.memory_peak < 5000


def test_phases_count_every_second_once() -> None:
    found = run_job(replace(TINY, phases=True))
    assert {OTHER, "draws"} <= set(found.phases) <= {OTHER, *(phase for phase, _, _ in TIMED)}
    assert sum(found.phases.values()) == pytest.approx(found.wall_seconds)


def test_packs_are_those_of_the_sweep() -> None:
    for count in (1, 10, 21, 42):
        pack = replicas("eol", count, 7, {"t_max": 50})
        assert len({(r.hyperparameters, r.seed) for r in pack}) == count
        assert {r.seed for r in pack} == set(range(-(-count // 21)))
        assert all(r.hyperparameters.t_max == 50 and r.budget.epochs == 7 for r in pack)
    assert replicas("eol", 1, 7, {})[0].hyperparameters.tau == 1e-4


def test_esr_has_the_bins_it_is_asked_for() -> None:
    what = shape("esr")
    assert (what.n_rows, what.table.inputs.shape[1], what.steps_per_epoch) == (7360, 178, 29)
    for job in standard_plan().series[2].jobs:
        if "16 bins" in job.name and job.replicas == 1:
            assert Stacked(job).bins().unique().tolist() == [16.0]


def test_floor_counts_needed_products_only() -> None:
    # 6 inputs -> 16 units, four products of 16 x 16 (depth 2: two in the encoder, two in the decoder), 10 columns.
    what = shape("tiny")
    expected = 2 * what.n_rows * (2 * 6 * 16 + 3 * (4 * 16 * 16 + 10 * 16))
    assert what.flops_per_epoch(10) == expected


@pytest.mark.parametrize("ms, is_full, passes", [(1.0, True, True), (1.2, True, False), (1.2, False, True)])
def test_verdict(ms: float, is_full: bool, passes: bool) -> None:
    made = Measurement(ms, ms, 1.0, 50.0, 2.0, 2.0, 200.0, 300.0, 300.0, 300.0)
    report = Report({"date": "today", "commit": "abc"}, is_full, rates={"torch.bmm": 100.0})
    report.plain["eol"] = [replace(made, cpu_ms=GOAL * factor) for factor in (0.9, 1.0, 1.5)]
    report.stacked = [(Job("eol", 1, 5), replace(made, cpu_ms=5.0)), (Job("eol", 10, 5), made)]
    assert report.passes is passes
    assert ("MISSED" in report.verdict()) is (not passes)
    assert "R=1 " not in report.verdict()
