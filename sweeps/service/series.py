"""The numbers a sensitivity figure draws: one series per data set and panel.

With one data set they are test scores.  Several data sets have no common scale, so there they are differences to the
default of the same seed, signed so that up is better, errors in standard deviations of the train target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.contrasts import Place, pairs_of
from sweeps.service.point_fields import Value
from sweeps.service.stats import Floats, signed_differences
from sweeps.service.tables import finished_scores, rows_of


@dataclass(frozen=True)
class Series:
    """One line of one panel; every array and tuple has one entry per value of the panel, in its order."""

    dataset: str
    panel: str
    values: tuple[Value, ...]
    means: Floats
    lows: Floats
    """Lower ends of the intervals; nan where there is none."""
    highs: Floats
    dots: tuple[Floats, ...]
    """Per value, one number per finished seed."""
    marks: tuple[str, ...]
    """The `mark` column of the significance table, and "" at the default."""
    diverged: tuple[int, ...]

    def extent(self, with_dots: bool) -> Floats:
        """Every finite number that is drawn, [any length]."""
        dots = self.dots if with_dots else ()
        numbers: Floats = np.concatenate([self.means, self.lows, self.highs, *dots])
        return numbers[np.isfinite(numbers)]

    def top(self, position: int) -> float:
        """The highest number drawn at one value; nan when nothing is."""
        numbers = np.array([self.means[position], self.highs[position], *self.dots[position]])
        return float(numbers[np.isfinite(numbers)].max(initial=-math.inf)) if np.isfinite(numbers).any() else math.nan


def score_series(
    dataset: str, panel: str, points: pd.DataFrame, significance: pd.DataFrame, replicas: pd.DataFrame
) -> Series:
    """Test scores as they are, with the t interval of their mean."""
    rows = rows_of(points, dataset, panel)  # in the panel's order
    values = tuple(rows["value"])
    return Series(
        dataset=dataset,
        panel=panel,
        values=values,
        means=rows["mean"].to_numpy(dtype=np.float64),
        lows=rows["low"].to_numpy(dtype=np.float64),
        highs=rows["high"].to_numpy(dtype=np.float64),
        dots=tuple(finished_scores(rows_of(replicas, dataset, panel, value)) for value in values),
        marks=_marks(significance, dataset, panel, values),
        diverged=tuple(rows["n_diverged"]),
    )


def difference_series(
    dataset: str, panel: str, points: pd.DataFrame, significance: pd.DataFrame, replicas: pd.DataFrame
) -> Series:
    """Paired differences to the default, with the t interval of their mean; the default is 0 by definition."""
    rows = rows_of(points, dataset, panel)  # in the panel's order
    values = tuple(rows["value"])
    of_dataset = rows_of(replicas, dataset)
    scale = difference_scale(of_dataset)
    contrasts = {row["value"]: row for row in rows_of(significance, dataset, panel).to_dict("records")}
    default = {"difference": 0.0, "low": math.nan, "high": math.nan}
    drawn = [contrasts.get(value, default) for value in values]
    dots = []
    for value in values:
        place = {"panel": panel, "value": value}
        dots.append(difference_dots(of_dataset, place) * scale if value in contrasts else np.zeros(0))
    return Series(
        dataset=dataset,
        panel=panel,
        values=values,
        means=np.array([row["difference"] for row in drawn]) * scale,
        lows=np.array([row["low"] for row in drawn]) * scale,
        highs=np.array([row["high"] for row in drawn]) * scale,
        dots=tuple(dots),
        marks=_marks(significance, dataset, panel, values),
        diverged=tuple(rows["n_diverged"]),
    )


def difference_scale(of_dataset: pd.DataFrame) -> float:
    """What a difference of this data set is multiplied with where several data sets share an axis."""
    in_target_units = get_metric(of_dataset["metric"].iloc[0]).in_target_units
    return 1 / float(of_dataset["target_sd"].mean()) if in_target_units else 1.0


def difference_dots(of_dataset: pd.DataFrame, place: Place) -> Floats:
    """Paired differences of a point to the default, one per seed that both finished, signed so that up is better."""
    metric = get_metric(of_dataset["metric"].iloc[0])
    point, default = pairs_of(of_dataset, place)
    finished = ~np.isnan(point) & ~np.isnan(default)  # a pair that lost both has no difference to draw
    return signed_differences(point[finished], default[finished], metric.sign)


def _marks(significance: pd.DataFrame, dataset: str, panel: str, values: tuple[Value, ...]) -> tuple[str, ...]:
    rows = rows_of(significance, dataset, panel)
    marks = dict(zip(rows["value"], rows["mark"], strict=True))
    return tuple(marks.get(value, "") for value in values)
