"""Use outside a sweep: scikit-learn's fit, transform and predict around pretraining and fine-tuning."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from adaptbin.errors import DataError
from adaptbin.estimators.encoder import AdaptiveBinningEncoder
from adaptbin.estimators.folder import read_folder
from adaptbin.estimators.model import PretrainedModel
from adaptbin.estimators.supervised import AdaptiveBinningClassifier, AdaptiveBinningRegressor

__all__ = ["AdaptiveBinningClassifier", "AdaptiveBinningEncoder", "AdaptiveBinningRegressor", "load"]

_ESTIMATORS: dict[str, type[PretrainedModel]] = {
    estimator.__name__: estimator
    for estimator in (AdaptiveBinningEncoder, AdaptiveBinningClassifier, AdaptiveBinningRegressor)
}


def load(folder: str | PathLike[str]) -> PretrainedModel:
    """The estimator that was saved to ``folder``, whichever it is; raises as :meth:`PretrainedModel.load` does."""
    saved = read_folder(Path(folder))
    name = saved.values.get("estimator")
    if name not in _ESTIMATORS:
        raise DataError(f"{folder} must hold one of {', '.join(_ESTIMATORS)}, got {name}")
    return _ESTIMATORS[name]._of(saved)
