"""What the ablation figure draws, and where: the numbers of each variant's row, and the rows' places in inches.

With one data set differences are in the metric's unit.  Several have no common scale but for errors, which are then in
standard deviations of the train target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptbin.metrics import get_metric
from sweeps.service.contrasts import margin_of
from sweeps.service.series import difference_dots, difference_scale
from sweeps.service.stats import Floats
from sweeps.service.tables import rows_of
from sweeps.service.tables_ablation import AblationTables
from sweeps.service.variants import GROUPS

ROW, LINE, BETWEEN = 0.22, 0.12, 0.1
"""Height of a variant of one data set; of each line of a variant of several, and the room between these variants."""
HEAD = 0.2
"""Height of a group's name."""


@dataclass(frozen=True)
class DrawnVariant:
    """One variant of one data set against full; of full itself there are only its diverged replicas."""

    dataset: str
    variant: str
    difference: float
    low: float
    """Lower end of the interval; nan where there is none."""
    high: float
    dots: Floats
    """One paired difference per seed that both finished."""
    mark: str
    """The `mark` column of the significance table."""
    diverged: int

    @property
    def name(self) -> str:
        """What the ids of its texts end with."""
        return name_of(self.dataset, self.variant)

    def numbers(self, with_dots: bool) -> Floats:
        """Every finite number that is drawn, [any length]."""
        dots = self.dots if with_dots else ()
        numbers: Floats = np.array([self.difference, self.low, self.high, *dots])
        return numbers[np.isfinite(numbers)]


def name_of(dataset: str, variant: str) -> str:
    """``eol-w/o_FWA``."""
    return f"{dataset}-{variant.replace(' ', '_')}"


def drawn_variants(tables: AblationTables) -> list[DrawnVariant]:
    """All variants of all data sets that have a replica, full included."""
    is_single = len(tables.datasets) == 1
    found = []
    for dataset in tables.datasets:
        of_dataset = rows_of(tables.replicas, dataset)
        scale = 1.0 if is_single else difference_scale(of_dataset)
        contrasts = {row["variant"]: row for row in rows_of(tables.significance, dataset).to_dict("records")}
        nothing: dict[Any, Any] = {"difference": math.nan, "low": math.nan, "high": math.nan, "mark": ""}
        for point in rows_of(tables.points, dataset).to_dict("records"):
            row, place = contrasts.get(point["variant"], nothing), {"variant": point["variant"]}
            found.append(
                DrawnVariant(
                    dataset=dataset,
                    variant=point["variant"],
                    difference=row["difference"] * scale,
                    low=row["low"] * scale,
                    high=row["high"] * scale,
                    dots=np.zeros(0) if point["is_default"] else difference_dots(of_dataset, place) * scale,
                    mark=row["mark"],
                    diverged=point["n_diverged"],
                )
            )
    return found


def margins_of(tables: AblationTables) -> list[float]:
    """Equivalence margins on the axis of differences, widest first."""
    is_single = len(tables.datasets) == 1
    found = set()
    for dataset in tables.datasets:
        of_dataset = rows_of(tables.replicas, dataset)
        metric, sd = get_metric(of_dataset["metric"].iloc[0]), float(of_dataset["target_sd"].mean())
        found.add(margin_of(metric, sd if is_single else 1.0))
    return sorted(found, reverse=True)


@dataclass(frozen=True)
class Rows:
    """Inches below the top of the axes."""

    datasets: tuple[str, ...]
    middles: dict[str, float]
    """Variant -> the middle of its row.  With one data set full has a row, too, for its numbers."""
    heads: dict[str, float]
    """Group -> the top of the row with its name."""
    height: float

    @classmethod
    def of(cls, tables: AblationTables) -> Rows:
        """Rows for all variants, the paper's above the further ones."""
        datasets = tuple(tables.datasets)
        row = ROW if len(datasets) == 1 else LINE * len(datasets) + BETWEEN
        middles: dict[str, float] = {}
        heads: dict[str, float] = {}
        down = 0.0
        for group, points in rows_of(tables.points, datasets[0]).groupby("group", sort=False):
            if group in GROUPS:
                heads[str(group)] = down
                down += HEAD
            elif len(datasets) > 1:
                continue
            for variant in points["variant"]:
                middles[variant] = down + row / 2
                down += row
        return cls(datasets, middles, heads, down)

    def place(self, drawn: DrawnVariant) -> float | None:
        """Where a variant of a data set is; None where it has no row."""
        if drawn.variant not in self.middles:
            return None
        within = self.datasets.index(drawn.dataset) - (len(self.datasets) - 1) / 2
        return self.middles[drawn.variant] + LINE * within
