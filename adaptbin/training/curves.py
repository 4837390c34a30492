"""What is remembered of every epoch, and how it is thinned for a result record."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from torch import Tensor

HISTORY = ("loss", "mean_bins", "max_bins", "splits", "triggers")


def thinned_curves(history: Mapping[str, Tensor], replica: int, end: int, points: int = 200) -> dict[str, list[float]]:
    """The first ``end`` epochs of one replica at no more than ``points`` of them; splits are summed over those between.

    history: name -> [R, epochs] float64 for each of HISTORY.
    """
    stride = max(1, math.ceil(end / points))
    shown = np.arange(end - 1, -1, -stride)[::-1]
    rows = {name: values[replica, :end].numpy() for name, values in history.items()}
    splits = np.diff(np.concatenate([[0.0], rows["splits"].cumsum()[shown]]))
    return {
        "epoch": [int(e) for e in shown],
        **{name: rows[name][shown].tolist() for name in ("loss", "mean_bins", "max_bins")},
        "splits": splits.tolist(),
    }
