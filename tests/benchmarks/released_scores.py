"""Ten pretrainings under the released protocol, held against the scores of the paper's released code.

    python -m tests.benchmarks.released_scores --dataset eol,hfc,ilpd --output DIR [any option of the sweeps]

The default point is trained with 10 seeds and 10 probes on the same service as every sweep (finished replicas are not
trained again), and a table is printed and written to DIR/released/scores.md.  eol is shown in both label orders; since
the label order also picks the probes' epochs, the clinical one is a study of its own.  A released score is one
pretraining, so it should lie within t(n-1) * s * sqrt(1 + 1/n) of our mean, with s our sd between pretrainings.  Exit
code 1 when one does not, when s is over 1.5 times the sd that a second implementation gave, or when the bins end
elsewhere.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from adaptbin.config import Protocol
from adaptbin.data.registry import get_card
from adaptbin.metrics import get_metric, primary_metric
from sweeps.service.options import Options, parse_options
from sweeps.service.panels import PANELS, SensitivityStudy
from sweeps.service.parameters import comparison_options, default_point_options
from sweeps.service.results import ResultsStore
from sweeps.service.sweep import run_script
from sweeps.service.work import Runner

OPTIONS = (*default_point_options(), *comparison_options())
GOLDEN = Path(__file__).parents[1] / "golden"
PROTOCOL = ["--protocol", "released", "--seeds", "10", "--probes", "10"]


@dataclass(frozen=True)
class Comparison:
    """One released score next to ours."""

    dataset: str
    metric: str
    paper: str
    released: float
    scores: np.ndarray
    """[n] ours, one per pretraining."""
    sd_elsewhere: float
    """Sd between pretrainings of a second implementation."""
    bins_mean: np.ndarray
    """[n] mean bins per feature at the end."""
    bins_max: np.ndarray
    """[n] most bins of any feature at the end."""
    bins_elsewhere: tuple[tuple[float, float], tuple[float, float]]
    """Ranges of the second implementation's mean and most bins."""

    @property
    def tolerance(self) -> float:
        """Half width of the interval in which one more pretraining should fall."""
        n = len(self.scores)
        return float(t.ppf(0.975, n - 1) * self.scores.std(ddof=1) * np.sqrt(1 + 1 / n))

    @property
    def checks(self) -> dict[str, bool]:
        """Every demand, and whether it is met."""
        (low, high), (least, most) = self.bins_elsewhere
        return {
            "score": bool(abs(self.released - self.scores.mean()) <= self.tolerance),
            "sd": bool(self.scores.std(ddof=1) <= 1.5 * self.sd_elsewhere),
            "mean bins": bool(low <= self.bins_mean.mean() <= high),
            "most bins": bool(least <= np.median(self.bins_max) <= most),
        }


def released_study(options: Options) -> SensitivityStudy:
    """The default point alone, under the released protocol."""
    panel = replace(PANELS["tau"], values=(options.default.tau,))
    made = SensitivityStudy(
        cards=tuple(get_card(name) for name in options.datasets),
        panels=(panel,),
        default=options.default,
        seeds=options.seeds,
        seeds_vary=options.seeds_vary,
        protocol=options.protocol,
        budget=options.budget,
    )
    return replace(made, name="released")


def clinical_study(options: Options) -> SensitivityStudy:
    """The same for eol alone, with ordinal labels in clinical order."""
    made = released_study(options).only("eol")
    return replace(made, name="released-clinical", protocol=replace(made.protocol, label_order="clinical"))


def compare(dataset: str, protocol: Protocol, records: Sequence[Mapping[str, Any]]) -> Comparison:
    """Our records of one data set, trained under ``protocol``, against the golden file."""
    golden = json.loads((GOLDEN / "released_scores.json").read_text())
    tables = json.loads((GOLDEN / "paper_tables.json").read_text())
    (paper,) = (
        row["scores"][dataset]
        for row in tables["linear_probe"]
        if row["objective"] == "Ours" and row["masking"] == "none"
    )
    metric = primary_metric(get_card(dataset).primary_metric, protocol)
    order = "clinical" if metric == "qwk" else ""
    (run,) = (
        run
        for run in golden["runs"]
        if run["set"] == dataset
        and run.get("label_order", "") == order
        and not {"t_init", "mse_scale", "lr_schedule", "masking", "split_and_pretrain_seed"} & set(run)
    )
    listed = golden["independent"]["sets"]
    scores, bins = listed[f"{dataset}_{order}" if order else dataset], listed[dataset]
    percent = 100 if get_metric(metric).higher_is_better else 1
    return Comparison(
        dataset=dataset,
        metric=metric,
        paper=f"{paper[0] / percent:.4g} ± {paper[1] / percent:.2g}",
        released=run["mean"],
        scores=np.array([record["scores"]["test"][metric] for record in records]),
        sd_elsewhere=scores["sd"],
        bins_mean=np.array([np.mean(record["bins"]["final"]) for record in records]),
        bins_max=np.array([max(record["bins"]["final"]) for record in records]),
        bins_elsewhere=(_around(bins["bins_mean"]), _range(bins["bins_max"])),
    )


def _around(text: str) -> tuple[float, float]:
    """``"15.1 +- .6"`` -> two sds around 15.1; a lone ``"3.5"`` is rounded, so half of its last digit either way."""
    numbers = [float(number) for number in re.findall(r"\d*\.\d+|\d+", text)]
    spread = 2 * numbers[1] if len(numbers) > 1 else 0.1
    return numbers[0] - spread, numbers[0] + spread


def _range(text: str) -> tuple[float, float]:
    """``"23-26"`` -> (23, 26); ``"4"`` -> (4, 4)."""
    numbers = [float(number) for number in text.split("-")]
    return numbers[0], numbers[-1]


def as_markdown(comparisons: Sequence[Comparison]) -> str:
    """Reported / released code / ours, side by side."""
    lines = [
        "| data set | metric | paper | released code | ours, mean ± sd (n) | gap | allowed | bins mean, most | agree |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in comparisons:
        failed = [name for name, met in row.checks.items() if not met]
        lines.append(
            f"| {row.dataset} | {row.metric} | {row.paper} | {row.released:.4f} "
            f"| {row.scores.mean():.4f} ± {row.scores.std(ddof=1):.4f} ({len(row.scores)}) "
            f"| {row.released - row.scores.mean():+.4f} | {row.tolerance:.4f} "
            f"| {row.bins_mean.mean():.1f}, {row.bins_max.min()}–{row.bins_max.max()} "
            f"| {'no: ' + ', '.join(failed) if failed else 'yes'} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Train what is missing, then compare."""
    words = [*PROTOCOL, *(sys.argv[1:] if argv is None else argv)]
    options = parse_options(words, prog="released_scores", about=__doc__ or "", own_options=OPTIONS)
    if options is None:
        return 0
    builds = [released_study, *([clinical_study] if "eol" in options.datasets else [])]
    rows = []
    for build in builds:
        code = run_script(words, prog="released_scores", about="", own_options=OPTIONS, build=build, runner=runner)
        if code:
            return code
        if options.plan:
            continue
        made = build(options)
        found = ResultsStore(options.output).read(made.all_replicas).records
        rows += [
            compare(name, made.protocol, [found[replica.id] for replica in made.replicas[name]])
            for name in made.datasets
        ]
    if options.plan:
        return 0
    text = as_markdown(rows)
    folder = options.output / "released"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scores.md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(all(row.checks.values()) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
