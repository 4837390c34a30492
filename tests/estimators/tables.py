"""Small tables as users have them, and settings with which fitting takes a fraction of a second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

TINY: dict[str, Any] = {"epochs": 3, "width": 16, "depth": 1}
"""Settings of every estimator."""

TINY_TUNING: dict[str, Any] = {**TINY, "finetune_epochs": 30, "finetune_learning_rate": 1e-2}
"""Settings of classifier and regressor, with which they learn well separated classes."""


def clinic(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    """Columns of every kind: numbers, whole numbers, words, truth values, ordered categories, and one constant."""
    rng = np.random.default_rng(seed)
    grade = pd.Categorical(rng.choice(["mild", "severe", "grave"], rows), ["mild", "severe", "grave"], ordered=True)
    return pd.DataFrame(
        {
            "age": rng.normal(60.0, 12.0, rows),
            "beds": rng.integers(1, 5, rows),
            "ward": rng.choice(["east", "north", "west"], rows),
            "smoker": rng.random(rows) < 0.3,
            "grade": grade,
            "site": "here",
        }
    )


def outcome(table: pd.DataFrame) -> np.ndarray:
    """[N] words that follow the age and the ward."""
    signal = (table["age"] > 60).to_numpy() | (table["ward"] == "north").to_numpy()
    return np.where(signal, "bad", "good")
