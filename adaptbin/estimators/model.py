"""What transformer, classifier and regressor have in common: their settings, and the pretraining these ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from adaptbin.config import (
    MAX_SEED,
    Architecture,
    Budget,
    EncoderName,
    Finetuning,
    Hyperparameters,
    MaskingKind,
    PretextName,
    Replica,
)
from adaptbin.encoders.registry import settings_of
from adaptbin.errors import ConfigError, DataError, ResourceError
from adaptbin.estimators.columns import FittedColumns
from adaptbin.estimators.folder import Saved, read_folder, write_folder
from adaptbin.estimators.reading import GivenColumn, read_columns
from adaptbin.estimators.trained import TrainedEncoder
from adaptbin.training.pretrain import Pretraining

_ARCHITECTURE = ("width", "depth", "dropout", "batch_size", "encoder")
_HYPERPARAMETERS = (
    "w_sord",
    "w_mse",
    "w_var",
    "patience",
    "delta",
    "tau",
    "min_bin",
    "t_init",
    "t_max",
    "masking",
    "mask_prob",
    "learning_rate",
    "weight_decay",
)


@dataclass(kw_only=True, eq=False, repr=False)
class PretrainedModel(BaseEstimator):  # type: ignore[misc]
    """A model of one table that is pretrained on all of its rows.

    Settings are those of the paper where it has them, and are checked in fit, before anything is trained.  A model that
    a sweep trained and exported (:mod:`adaptbin.estimators.exported`) has ``origin_``, which says what it is from.
    """

    encoder: EncoderName = "mlp"
    """What embeds: mlp, resnet, tabnet, ft_transformer or t2g_former."""
    encoder_settings: Mapping[str, float] | None = None
    """Settings of an encoder other than the mlp that are not its usual ones, by name."""
    width: int = 128
    """Units of every hidden layer of the mlp, whose embedding has as many, and of every decoder."""
    depth: int = 2
    """Hidden blocks of the mlp."""
    dropout: float = 0.1
    """Probability of dropping a hidden unit of the mlp and of decoders."""
    batch_size: int = 64
    """Rows per step; all rows where there are fewer."""
    epochs: int = 1000
    """Of pretraining."""
    learning_rate: float = 1e-4
    """Of pretraining; likewise the next one."""
    weight_decay: float = 1e-5
    pretext: PretextName = "adaptive_binning"
    """What is predicted in pretraining."""
    masking: MaskingKind = "none"
    """What replaces a masked input in pretraining: nothing, 0 ("constant"), or the value of another row ("random")."""
    mask_prob: float = 0.0
    """Probability that an entry is masked; above 0 exactly when masking is not "none"."""
    t_init: int = 2
    """Bins per numerical column at the start."""
    t_max: int = 200
    """Most bins per column."""
    min_bin: int = 32
    """Least rows on either side of a split: a table of fewer than twice as many keeps the bins it starts with."""
    patience: int = 5
    """Epochs without improvement before a column's bins are refined."""
    delta: float = 1e-4
    """Decrease of a column's loss that counts as improvement."""
    tau: float = 1e-4
    """Least gain of a split."""
    w_sord: float = 10.0
    """Weight of the soft ordinal cross entropy; likewise the next two, of the squared distance and the variance."""
    w_mse: float = 0.1
    w_var: float = 0.001
    categorical_features: Any = "from_dtype"
    """Which columns are categories: "from_dtype", those of words, truth values and pandas categories; "auto", those and
    every column with at most 20 distinct values (the paper's rule); or a list of names, positions or truth values."""
    random_state: int = 0
    """Seed of everything that is drawn."""
    device: str = "cpu"
    """Where to train and embed, as torch names it."""

    # ----------------------------------------------------------------------------------------------------- settings

    def _setting(self, name: str) -> Any:
        return _own_number(getattr(self, name))

    def _replica(self, rows: int, pretext: PretextName | None = None, finetuning: Finetuning | None = None) -> Replica:
        """The one replica to train on a table of ``rows`` rows.  Raises ConfigError for a setting out of range."""
        seed = self._setting("random_state")
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < MAX_SEED:
            raise ConfigError(
                f"random_state must be a whole number in [0, {MAX_SEED}), so that fit gives the same model again, "
                f"got {seed!r}"
            )
        values = {name: self._setting(name) for name in _ARCHITECTURE}
        if isinstance(values["batch_size"], int):
            values["batch_size"] = min(values["batch_size"], rows)
        given = {} if self.encoder_settings is None else self.encoder_settings
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"encoder_settings must be a mapping, as {{'n_blocks': 2}}, or None, got {self.encoder_settings!r}"
            )
        settings = {name: _own_number(value) for name, value in given.items()}
        architecture = Architecture(**values, encoder_settings=settings)  # type: ignore[arg-type]
        settings_of(architecture)
        pretext = pretext or self._setting("pretext")
        return Replica(
            dataset="table",
            fingerprint="",
            architecture=architecture,
            hyperparameters=Hyperparameters(
                **{name: self._setting(name) for name in _HYPERPARAMETERS}, pretext=pretext
            ),
            seed=seed,
            budget=Budget(epochs=0 if pretext == "none" else self._setting("epochs")),
            finetuning=finetuning,
        )

    def _device(self) -> torch.device:
        """Raises ConfigError for a name that torch does not know, ResourceError for a GPU that is not there."""
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(
                f"device must be one that torch knows, as 'cpu' or 'cuda', got {self.device!r}"
            ) from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ResourceError(f"device {self.device!r} needs a GPU, got none; set_params(device='cpu') does without")
        return device

    # ------------------------------------------------------------------------------------------------------- fitting

    def _fit_columns(self, X: Any) -> list[GivenColumn]:
        # A fit that fails must not leave the model of another table behind.
        for name in ("model_", "origin_"):
            self.__dict__.pop(name, None)
        given = read_columns(self, X, fitting=True)
        self.columns_ = FittedColumns.of(given, self.categorical_features)
        return given

    def _remember(self, pretraining: Pretraining | None) -> None:
        """Keep what a user may want to look at of a pretraining."""
        self.bin_edges_: dict[str, list[float]] = {}
        self.loss_curve_: list[float] = []
        if pretraining is None:
            return
        self.loss_curve_ = pretraining.history["loss"][0].tolist()
        bins = getattr(pretraining, "bins", None)  # of adaptive binning only
        if bins is None:
            return
        edges, counts = bins.edges[0].cpu().numpy(), bins.n_bins[0].tolist()
        scale = self.columns_.standardisation
        for column, name in enumerate(self.columns_.names_of("numerical")):
            self.bin_edges_[name] = scale.undone(edges[column, 1 : counts[column]], column).tolist()

    # ---------------------------------------------------------------------------------------------------- embedding

    def _inputs(self, X: Any) -> Tensor:
        check_is_fitted(self, "model_")
        return self.columns_.inputs(read_columns(self, X, fitting=False))

    def embed(self, X: Any) -> np.ndarray:
        """Embeddings [N, H] float32 of rows with the columns of fit; a row's does not depend on the other rows.

        Raises ValueError for other columns, and DataError (a ValueError, too) for infinite values or other kinds.
        """
        embedding: np.ndarray = self._embedding(X).numpy()
        return embedding

    def _embedding(self, X: Any) -> Tensor:
        """[N, H] float32."""
        inputs = self._inputs(X)
        model: TrainedEncoder = self.model_
        return model.embed(inputs, self._device())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # ------------------------------------------------------------------------------------------------ saving, loading

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the fitted model to ``folder``, which is made if need be, in place of one that was saved there.

        Raises sklearn's NotFittedError before fit, ConfigError for a setting that JSON cannot hold, OSError as writing
        does.
        """
        check_is_fitted(self, "model_")
        settings = {name: _plain(name, value) for name, value in self.get_params(deep=False).items()}
        values, tensors = self._fitted()
        write_folder(Path(folder), Saved({"estimator": type(self).__name__, "settings": settings, **values}, tensors))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """The model that was saved to ``folder``: the same embeddings and predictions.  No code in it is run.

        Raises DataNotFoundError where none was saved, DataError where it is another estimator's, was saved by a newer
        version, was changed, or its tensors are not those of its encoder.
        """
        return cls._of(read_folder(Path(folder)))

    @classmethod
    def _of(cls, saved: Saved) -> Self:
        told = saved.values.get("estimator")
        if told != cls.__name__:
            raise DataError(f"a folder that {cls.__name__} loads must hold one, got {told}")
        loaded = cls(**saved.values["settings"])
        loaded._take_fitted(saved)
        return loaded

    def _fitted(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """All that fit made, as JSON's values and as tensors."""
        model: TrainedEncoder = self.model_
        values = {
            "n_features_in": self.n_features_in_,
            "feature_names_in": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
            "columns": self.columns_.to_dict(),
            "architecture": model.architecture.to_dict(),
            "bin_edges": self.bin_edges_,
            "loss_curve": self.loss_curve_,
            "origin": getattr(self, "origin_", None),
        }
        return values, dict(model.tensors)

    def _take_fitted(self, saved: Saved) -> None:
        values = saved.values
        self.n_features_in_ = values["n_features_in"]
        if values["feature_names_in"] is not None:
            self.feature_names_in_ = np.array(values["feature_names_in"], dtype=object)
        self.columns_ = FittedColumns.from_dict(values["columns"])
        architecture = _saved_architecture(values)
        tensors = {name: held for name, held in saved.tensors.items() if not name.startswith("head.")}
        self.model_ = TrainedEncoder(self.columns_.for_encoder, architecture, tensors)
        self.model_.check()
        self.bin_edges_, self.loss_curve_ = values["bin_edges"], values["loss_curve"]
        if values.get("origin") is not None:
            self.origin_: dict[str, Any] = values["origin"]


def _saved_architecture(values: Mapping[str, Any]) -> Architecture:
    """Of a saved model, whose settings are those of its encoder that were not the usual ones then."""
    architecture = Architecture.from_dict(values["architecture"])
    if values["schema"] < 3 and architecture.encoder == "t2g_former":
        # It usually had a third more hidden units than its width, and since then a little less.
        settings = {"ffn_d_hidden_multiplier": 4 / 3} | dict(architecture.encoder_settings)
        architecture = replace(architecture, encoder_settings=tuple(settings.items()))
    return architecture


def _own_number(value: Any) -> Any:
    """A number of numpy's, as grids of settings are made of, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _plain(name: str, value: Any) -> Any:
    """A setting as JSON's kinds of values."""
    value = _own_number(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(name, held) for key, held in value.items()}
    if np.iterable(value) and not isinstance(value, str):
        return [_plain(name, held) for held in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ConfigError(f"{name} must be text, a number or a list of them to be saved, got {value!r}")
