"""What a table asks for: two classes, several, ordered ones, or a number."""

from __future__ import annotations

from enum import StrEnum


class Task(StrEnum):
    """The kind of target; it fixes the head's width, the loss, and which metrics exist."""

    BINARY = "binary"
    MULTICLASS = "multiclass"
    ORDINAL = "ordinal"
    REGRESSION = "regression"

    @property
    def is_classification(self) -> bool:
        """Whether targets are class codes 0, 1, ... (else float values in target units)."""
        return self is not Task.REGRESSION

    def n_outputs(self, n_classes: int) -> int:
        """Width of the prediction head: one logit for binary, one per class, or one value."""
        return n_classes if self in (Task.MULTICLASS, Task.ORDINAL) else 1
