"""What the figure of gains draws: the numbers of each arm, and how far the axis of a data set reaches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

import numpy as np

from adaptbin.config import EncoderName
from adaptbin.metrics import get_metric
from sweeps.service.contrasts import margin_of
from sweeps.service.methods_finetune import PretrainedMethod
from sweeps.service.series import difference_dots
from sweeps.service.stats import Floats
from sweeps.service.tables import rows_of
from sweeps.service.tables_finetune import FinetuneTables

WIDE = 3
"""An encoder whose numbers reach so many times as far as those of the median encoder does not widen the axis."""


@dataclass(frozen=True)
class DrawnArm:
    """One pretext with one encoder on one data set, against what is not pretrained; in the metric's unit."""

    dataset: str
    encoder: EncoderName
    method: PretrainedMethod
    difference: float
    low: float
    """Lower end of the interval; nan where there is none."""
    high: float
    dots: Floats
    """One paired difference per seed that both finished."""
    mark: str
    """The `mark` column of the significance table."""
    diverged: int
    """Pairs with a diverged replica."""

    @property
    def name(self) -> str:
        """What the ids of its texts end with."""
        return f"{self.dataset}-{self.encoder}-{self.method}"

    @property
    def numbers(self) -> list[float]:
        """Every finite number that is drawn."""
        return [float(n) for n in (self.difference, self.low, self.high, *self.dots) if math.isfinite(n)]


def drawn_arms(tables: FinetuneTables, dataset: str) -> list[DrawnArm]:
    """All arms of a data set whose encoder has records, in the order of the table."""
    replicas, found = rows_of(tables.replicas, dataset), []
    for row in rows_of(tables.against("supervised"), dataset).to_dict("records"):
        of_encoder = replicas[replicas["encoder"] == row["encoder"]]
        if of_encoder.empty:
            continue
        of_encoder = of_encoder.assign(is_default=of_encoder["method"] == "supervised")
        found.append(
            DrawnArm(
                dataset=dataset,
                encoder=row["encoder"],
                method=row["method"],
                difference=row["difference"],
                low=row["low"],
                high=row["high"],
                dots=difference_dots(of_encoder, {"method": row["method"]}),
                mark=row["mark"],
                diverged=row["n_diverged"],
            )
        )
    return found


def margin_on(tables: FinetuneTables, dataset: str) -> float:
    """The equivalence margin of a data set."""
    replicas = rows_of(tables.replicas, dataset)
    return margin_of(get_metric(replicas["metric"].iloc[0]), float(replicas["target_sd"].mean()))


def limits_of(tables: FinetuneTables, dataset: str) -> tuple[float, float]:
    """Ends of the axis of gains: the margin, and the numbers of all encoders that are not :data:`WIDE`."""
    numbers: dict[EncoderName, list[float]] = {}
    for arm in drawn_arms(tables, dataset):
        numbers.setdefault(arm.encoder, []).extend(arm.numbers)
    reach = {encoder: float(np.abs(found).max()) for encoder, found in numbers.items() if found}
    usual = WIDE * median(reach.values()) if reach else 0.0
    margin = margin_on(tables, dataset)
    shown = [n for encoder, far in reach.items() if far <= max(usual, margin) for n in numbers[encoder]]
    low, high = min([*shown, -1.1 * margin]), max([*shown, 1.1 * margin])
    return low - 0.04 * (high - low), high + 0.04 * (high - low)


def goes_beyond(tables: FinetuneTables, dataset: str) -> bool:
    """Whether some number lies outside of :func:`limits_of`."""
    low, high = limits_of(tables, dataset)
    return any(not low <= number <= high for arm in drawn_arms(tables, dataset) for number in arm.numbers)
