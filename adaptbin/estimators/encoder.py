"""Adaptive binning as a scikit-learn transformer: rows in, embeddings out, no labels needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from adaptbin.errors import ConfigError
from adaptbin.estimators.model import PretrainedModel
from adaptbin.estimators.trained import TrainedEncoder
from adaptbin.estimators.training import pretrained


@dataclass(kw_only=True, eq=False, repr=False)
class AdaptiveBinningEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PretrainedModel):  # type: ignore[misc]
    """Embeds rows of a table by an encoder that was pretrained on the table fit was given.

    A table is a pandas frame, or an array of numbers; settings are those of :class:`PretrainedModel`.  The same
    settings and table give the same embeddings, bit for bit, on one machine with as many threads.

    After fit there are ``columns_`` (kinds, means, spreads, categories), ``model_`` (the encoder's tensors),
    ``bin_edges_`` (numerical column -> inner edges of its bins, in its own units; empty for pretexts without adaptive
    bins), ``loss_curve_`` (mean loss of every epoch), and scikit-learn's ``n_features_in_`` and ``feature_names_in_``.

    Columns are read by their type.  A column with one value in fit is left out, and what it holds later is not read; a
    category that fit had not has a code of its own.  Values may be missing (NaN, None or pandas' NA).  Of categories
    that is one more.  A number that is missing becomes the median of those of fit and is not predicted in pretraining,
    and where fit lacks some the model also reads, as a category, whether the number is missing.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Pretrain on all rows of X [N, F], N >= 2; ``y`` is ignored.

        Raises ConfigError for a setting out of range, DataError for a table that cannot be trained on, and
        TrainingError when the loss is no longer finite.
        """
        if self.pretext == "none":
            raise ConfigError("pretext must name what to pretrain on, got 'none'")
        given = self._fit_columns(X)
        replica = self._replica(len(given[0].values))
        pretraining = pretrained(replica, self.columns_.rows(given), self._device())
        model = pretraining.model
        self.model_ = TrainedEncoder.of(model.encoder, model.bank, self.columns_.for_encoder, replica.architecture)
        self._remember(pretraining)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """What :meth:`embed` gives, under the name that scikit-learn has for it."""
        return self.embed(X)

    @property
    def _n_features_out(self) -> int:
        return self.model_.width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32 whatever X is
        return tags
