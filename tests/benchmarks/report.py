"""What one benchmark run found, as markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.benchmarks.measure import Job, Measurement
from tests.benchmarks.results import RUN, table

GOAL, PAIR_GOAL = 10.0, 1.9
JUDGED_SHAPE, JUDGED_REPLICAS = "eol", 10

Measured = tuple[Job, Measurement]

HEADER = ("", "epochs", "bins: mean, end", "CPU ms", "wall ms", "x plain", "of floor", "peak MiB", "at 1/3, end")


@dataclass
class Report:
    """Measurements in the order of their plan."""

    machine: dict[str, str]
    is_full: bool
    rates: dict[str, float] = field(default_factory=dict)
    """GFLOP/s by product, the best seen in the run."""
    plain: dict[str, list[Measurement]] = field(default_factory=dict)
    """Samples of the plain loop by shape."""
    stacked: list[Measured] = field(default_factory=list)
    alone: list[Measured] = field(default_factory=list)
    """The short job, measured several times."""
    pairs: list[list[Measurement]] = field(default_factory=list)
    """The short job in two processes at once."""
    variants: list[Measured] = field(default_factory=list)
    phases: Measurement | None = None
    encoders: str = ""
    """Section on fine-tuning, of a full run (:mod:`tests.benchmarks.encoders`)."""

    def plain_ms(self, shape: str) -> float:
        """CPU ms per step of the plain loop, median of the samples."""
        return statistics.median(sample.cpu_ms for sample in self.plain[shape])

    def ratio(self, job: Job, found: Measurement) -> float | None:
        """How many times faster than the plain loop, which has T_max 200; None under another T_max."""
        return self.plain_ms(job.shape) / found.cpu_ms if job.changes.get("t_max", 200) == 200 else None

    def floor_ms(self, found: Measurement) -> float:
        """What the needed matrix products alone would take at the best rate."""
        return found.mflop / max(self.rates.values())

    def pair_efficiency(self) -> tuple[float, float] | None:
        """Throughput of two processes over that of one, by the clock and by CPU time; None where it was not measured.

        By the clock is what a sweep gets; CPU time leaves out what others took of the two cores meanwhile.
        """
        if not self.pairs:
            return None
        wall = statistics.median(found.wall_ms for _, found in self.alone)
        cpu = statistics.median(found.cpu_ms for _, found in self.alone)
        return (
            2 * wall / statistics.median(max(m.wall_ms for m in pair) for pair in self.pairs),
            2 * cpu / statistics.median(max(m.cpu_ms for m in pair) for pair in self.pairs),
        )

    @property
    def judged(self) -> dict[int, float]:
        """Ratio to the plain loop by R, of the jobs that must reach the goal."""
        ratios = {
            job.replicas: self.ratio(job, found)
            for job, found in self.stacked
            if job.shape == JUDGED_SHAPE and job.replicas >= JUDGED_REPLICAS
        }
        return {count: ratio for count, ratio in ratios.items() if ratio is not None}

    @property
    def passes(self) -> bool:
        """False where a full run misses the goal."""
        return not self.is_full or all(ratio >= GOAL for ratio in self.judged.values())

    def verdict(self) -> str:
        """The last line."""
        if not self.judged:
            return f"No {JUDGED_SHAPE} pack of {JUDGED_REPLICAS} or more replicas was measured."
        listed = ", ".join(f"R={count} {ratio:.1f}x" for count, ratio in self.judged.items())
        against = f"{JUDGED_SHAPE} against the plain loop: {listed}; goal {GOAL:.0f}x"
        if not self.is_full:
            return f"{against}; not judged, because the run was shortened."
        return f"{against}: {'reached' if self.passes else 'MISSED'}."

    # ------------------------------------------------------------------------------------------------- markdown

    def markdown(self) -> str:
        """The section of this run."""
        kind = "" if self.is_full else " (shortened)"
        parts = [f"{RUN}{self.machine['date']}, commit {self.machine['commit']}{kind}", self._machine()]
        for shape in self.plain:
            parts += [f"### {shape}", self._series(shape)]
        parts += ["### Linear in replicas, rows and live bins; two cores", self._linearity()]
        if self.phases is not None:
            bins = self.phases.mean_bins
            parts += [f"### Where the time goes: eol, R=21, {bins:.0f} bins per feature", self._phases(self.phases)]
        if self.encoders:
            parts.append(self.encoders)
        return "\n\n".join([*parts, self.verdict()]) + "\n"

    def _machine(self) -> str:
        lines = [f"- {name}: {text}" for name, text in self.machine.items() if name not in ("date", "commit")]
        rates = ", ".join(f"{name} {rate:.1f}" for name, rate in self.rates.items())
        lines.append(f"- best rate of batched 128 x 128 x 128 float32 products, GFLOP/s: {rates}")
        lines.append(
            "- ms per replica and step, everything included (draws, FPT, DIGS), averaged over all epochs; floor: the "
            "needed matrix products over live head columns at the best rate; memory: of a fresh process, and in "
            "brackets what it held after imports"
        )
        return "\n".join(lines)

    def _series(self, shape: str) -> str:
        samples = self.plain[shape]
        spread = sorted(sample.cpu_ms for sample in samples)
        first = samples[0]
        name = f"plain loop, median of {len(samples)} ({spread[0]:.3g}–{spread[-1]:.3g} ms)"
        wall = statistics.median(sample.wall_ms for sample in samples)
        rows = [
            (name, "sample", _bins(first), f"{self.plain_ms(shape):.3f}", f"{wall:.3f}", "1", self._share(first))
            + (_peak(first), _held(first))
        ]
        for job, found in self.stacked:
            if job.shape == shape:
                ratio = self.ratio(job, found)
                rows.append(
                    (job.label, str(job.epochs), _bins(found), f"{found.cpu_ms:.3f}", f"{found.wall_ms:.3f}")
                    + ("–" if ratio is None else f"{ratio:.1f}", self._share(found), _peak(found), _held(found))
                )
        return table(HEADER, rows)

    def _share(self, found: Measurement) -> str:
        return f"{self.floor_ms(found) / found.cpu_ms:.0%}"

    def _linearity(self) -> str:
        rows = [
            (f"{job.shape} {job.label}", str(job.epochs), f"{m.cpu_ms:.3f}", f"{m.wall_ms:.3f}")
            for job, m in [*self.alone, *self.variants]
        ]
        job = self.alone[0][0]
        for pair in self.pairs:
            rows.append(
                (f"{job.shape} {job.label}, two processes", str(job.epochs))
                + (
                    " / ".join(f"{m.cpu_ms:.3f}" for m in pair),
                    " / ".join(f"{m.wall_ms:.3f}" for m in pair),
                )
            )
        efficiency = self.pair_efficiency()
        said = (
            "Two processes on two cores: not measured, this process may use one core only."
            if efficiency is None
            else f"Two processes on two cores do {efficiency[0]:.2f} times the work of one by the clock, "
            f"{efficiency[1]:.2f} times by CPU time (goal {PAIR_GOAL}; the two differ where others use the cores)."
        )
        return table(("", "epochs", "CPU ms", "wall ms"), rows) + "\n\n" + said

    def _phases(self, found: Measurement) -> str:
        total = sum(found.phases.values())
        rows = [(phase, f"{spent / total:.1%}") for phase, spent in found.phases.items()]
        return table(("phase", "of the time"), rows)


def _bins(found: Measurement) -> str:
    return f"{found.mean_bins:.1f}, {found.final_bins:.1f}"


def _peak(found: Measurement) -> str:
    return f"{found.memory_peak:.0f} ({found.memory_imports:.0f})"


def _held(found: Measurement) -> str:
    return f"{found.memory_third:.0f}, {found.memory_end:.0f}"


def progress_line(jobs: Sequence[Job], found: Sequence[Measurement]) -> str:
    """One line per measurement, for whoever waits."""
    names = " and ".join(f"{job.shape} {job.label}" for job in jobs)
    return f"  {names}: " + ", ".join(f"{m.cpu_ms:.3f} ms CPU, {m.wall_ms:.3f} ms wall" for m in found)
