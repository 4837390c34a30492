"""Stacked replicas against a plain loop, in one run on one core.

    make bench                                    the whole run (about 13 minutes), added to RESULTS.md
    python -m tests.benchmarks.bench --epochs 40  a short one, printed only
    python -m tests.benchmarks.bench --profile    torch's profiler over a few epochs of a pack

Exit code 1 when, in a full run, an eol pack of 10 or more replicas is not 10 times as fast as the plain loop.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.benchmarks import encoders
from tests.benchmarks.children import Measure, in_children
from tests.benchmarks.machine import cores, description, product_rate
from tests.benchmarks.measure import Job, Measurement, Stacked
from tests.benchmarks.plan import FULL, TYPICAL, Plan, standard_plan
from tests.benchmarks.report import Report, progress_line
from tests.benchmarks.results import write_run

RESULTS = Path(__file__).with_name("RESULTS.md")
PROFILED = Job("eol", 21, 6, changes=TYPICAL)


def run_plan(plan: Plan, measure: Measure) -> Report:
    """Measure everything in ``plan``, one line per job on standard output."""

    def measured(*jobs: Job) -> list[Measurement]:
        found = measure(jobs)
        print(progress_line(jobs, found), flush=True)
        return found

    report = Report(description(), plan.is_full)
    before = product_rate()
    for series in plan.series:
        for job in series.order():
            (found,) = measured(job)
            if job.is_plain:
                report.plain.setdefault(job.shape, []).append(found)
            else:
                report.stacked.append((job, found))
    # The short job comes before, between and after what it is compared with.
    report.alone.append((plan.short, *measured(plan.short)))
    report.variants += [(job, *measured(job)) for job in plan.variants]
    for _ in range(2):
        if cores() > 1:
            report.pairs.append(measured(plan.short, plan.short))
        report.alone.append((plan.short, *measured(plan.short)))
    (report.phases,) = measured(plan.phases)
    after = product_rate()
    report.rates = {name: max(rate, after[name]) for name, rate in before.items()}
    return report


def profile(job: Job = PROFILED, rows: int = 25) -> str:
    """torch's table of the operators that took most of ``job``, two epochs of which pass unwatched."""
    torch.set_num_threads(1)
    subject = Stacked(job)
    for _ in range(2):
        subject.run_epoch()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(job.epochs - 2):
            subject.run_epoch()
    return profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=rows, max_name_column_width=60)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse options, run, print, write."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=FULL, help=f"most epochs of a job (default {FULL}, a full run)")
    parser.add_argument("--write", action="store_true", help=f"add the run to {RESULTS.name}")
    parser.add_argument("--profile", action="store_true", help="only print torch.profiler's top operators")
    options = parser.parse_args(argv)
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")
    torch.set_num_threads(1)
    if options.profile:
        print(profile())
        return 0
    report = run_plan(standard_plan(options.epochs), in_children)
    report.encoders = encoders.section(encoders.in_child) if report.is_full else ""
    section = report.markdown()
    if options.write:
        write_run(RESULTS, section)
    print("\n" + section, end="")
    return 0 if report.passes else 1


if __name__ == "__main__":
    sys.exit(main())
