"""Use outside a sweep: scikit-learn's fit, transform and predict around pretraining and fine-tuning."""

from adaptbin.estimators.encoder import AdaptiveBinningEncoder

__all__ = ["AdaptiveBinningEncoder"]
