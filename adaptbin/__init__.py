"""Adaptive binning for tabular self-supervised learning (arXiv 2606.19827), many replicas at a time.

Axis legend, the same in every docstring; the replica axis comes first and nothing reduces over it:
R replica, N row, B batch row, D numerical column, C categorical column, K bin slot, H embedding width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adaptbin.config import Architecture, Budget, Hyperparameters, Protocol, Replica
from adaptbin.errors import (
    AdaptBinError,
    ConfigError,
    DataError,
    DataNotFoundError,
    ResourceError,
    ShapeError,
    TrainingError,
)
from adaptbin.tasks import Task

if TYPE_CHECKING:
    from adaptbin.estimators import (
        AdaptiveBinningClassifier,
        AdaptiveBinningEncoder,
        AdaptiveBinningRegressor,
        load,
    )

__all__ = [
    "AdaptBinError",
    "AdaptiveBinningClassifier",
    "AdaptiveBinningEncoder",
    "AdaptiveBinningRegressor",
    "Architecture",
    "Budget",
    "ConfigError",
    "DataError",
    "DataNotFoundError",
    "Hyperparameters",
    "Protocol",
    "Replica",
    "ResourceError",
    "ShapeError",
    "Task",
    "TrainingError",
    "load",
]

_ESTIMATORS = ("AdaptiveBinningClassifier", "AdaptiveBinningEncoder", "AdaptiveBinningRegressor", "load")


def __getattr__(name: str) -> Any:
    """What scikit-learn's users want, imported when it is used: torch and scikit-learn take seconds."""
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from adaptbin import estimators

    return getattr(estimators, name)
