"""Adaptive binning for tabular self-supervised learning (arXiv 2606.19827), many replicas at a time.

Axis legend, the same in every docstring; the replica axis comes first and nothing reduces over it:
R replica, N row, B batch row, D numerical column, C categorical column, K bin slot, H embedding width.
"""

from adaptbin.config import Architecture, Budget, Hyperparameters, Protocol, Replica
from adaptbin.errors import AdaptBinError, ConfigError, DataError, DataNotFoundError, ResourceError, ShapeError
from adaptbin.tasks import Task

__all__ = [
    "AdaptBinError",
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
]
