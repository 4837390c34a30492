"""Every setting that decides a number: frozen, checked at construction, and hashed into a replica's identity.

Symbols and values follow the paper (arXiv 2606.19827); each field's default is the paper's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal, Self, get_args, get_type_hints

from adaptbin.errors import ConfigError, nearest

METHOD_VERSION = 2
"""Raised whenever a change of the code changes a score; finished replicas of older versions are then trained anew."""

ENCODER_VERSIONS: dict[str, int] = {"t2g_former": 3}
"""Method versions of encoders whose scores changed while those of the others did not.

They are above METHOD_VERSION, which is next raised above all of them; this is then empty again.
"""

RECORD_SCHEMA = 1
"""Layout of a result record."""

SPLIT_SEED = 123456
"""Random state of the paper's fixed split; under ``seeds_vary="split"`` seed k uses SPLIT_SEED + k."""

MAX_SEED = 2**31
"""Seeds are smaller, so that SPLIT_SEED + seed still fits scikit-learn's 32 bits."""

MaskingKind = Literal["none", "constant", "random"]
SeedsVary = Literal["pretrain", "probe", "split"]
PretextName = Literal[
    "adaptive_binning", "adaptive_bin_recon", "value_recon", "mask_xent", "mask_xent_value_recon", "bin_recon", "none"
]
"""The paper's pretext, the same without HORD (its Table 3), those of its Table 1 (VR, MX, MR and BR), and none."""

EncoderName = Literal["mlp", "resnet", "tabnet", "ft_transformer", "t2g_former"]
"""What embeds rows: the paper's perceptron, and the others of its Table 4."""

RECONSTRUCTED: dict[str, tuple[str, ...]] = {
    "adaptive_binning": ("bins",),
    "adaptive_bin_recon": ("bins",),
    "value_recon": ("value",),
    "mask_xent": ("mask",),
    "mask_xent_value_recon": ("mask", "value"),
    "bin_recon": ("index",),
    "none": (),
}
"""What the decoders of a pretext predict, one decoder each."""


def _check_number(name: str, value: float, rule: str, holds: bool) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {rule}, got {value!r}")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    """Type hints of a class, which take longer to resolve than all checks that use them."""
    return get_type_hints(kind)


class _Config:
    """Base of the frozen settings: literal fields are checked, unknown keys refused, plain dictionaries returned."""

    _LATER: ClassVar[frozenset[str]] = frozenset()
    """Fields that came later than the first results: they are told only where they are not the default, so that those
    results keep their ids."""

    def _hints(self) -> dict[str, Any]:
        return _hints_of(type(self))  # type: ignore[arg-type]

    def _normalise(self) -> None:
        """Make 5 and 5.0 (and 0.0 and -0.0), which are the same setting, have the same identity."""
        for name, hint in self._hints().items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if hint is float:
                object.__setattr__(self, name, float(value) + 0.0)
            elif hint is int and isinstance(value, float) and value.is_integer():
                object.__setattr__(self, name, int(value))

    def _check_choices(self) -> None:
        for name, hint in self._hints().items():
            choices = get_args(hint)
            if choices and all(isinstance(c, str) for c in choices) and getattr(self, name) not in choices:
                got = getattr(self, name)
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {got!r}{nearest(got, choices)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready dictionary of all fields; of those in ``_LATER``, of the ones that are not the default."""
        values: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        for known in fields(self) if self._LATER else ():  # type: ignore[arg-type]
            if known.name in self._LATER and values[known.name] == known.default:
                del values[known.name]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild from :meth:`to_dict`.  Raises ConfigError on an unknown key, naming the nearest known one."""
        known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in known:
                raise ConfigError(
                    f"unknown key {key!r} for {cls.__name__}{nearest(key, known)} (known: {', '.join(known)})"
                )
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Architecture(_Config):
    """What fixes tensor shapes; one value per pack.  Values per data set: paper, Sec. 3 (implementation details).

    Width, depth and dropout are those of the perceptron and of every decoder; other encoders have settings of their
    own (:mod:`adaptbin.encoders.registry`), which decide their H.
    """

    _LATER = frozenset({"encoder", "encoder_settings"})

    width: int
    """H, units of every hidden layer and of the embedding."""
    depth: int
    """Hidden blocks of the encoder."""
    batch_size: int
    """B, rows per step; the last partial batch is kept."""
    dropout: float = 0.1
    """Probability of dropping a hidden unit, encoder and decoder alike."""
    encoder: EncoderName = "mlp"
    """What embeds."""
    encoder_settings: tuple[tuple[str, float], ...] = ()
    """Settings of an encoder other than the perceptron in place of its usual ones, by name; may be given as a mapping.
    :func:`adaptbin.encoders.registry.settings_of` refuses those that the encoder has not."""

    def __post_init__(self) -> None:
        self._normalise()
        self._check_choices()
        for name in ("width", "depth", "batch_size"):
            value = getattr(self, name)
            _check_number(name, value, "a whole number >= 1", _whole(value, 1))
        _check_number("dropout", self.dropout, "in [0, 1)", _finite(self.dropout) and 0 <= self.dropout < 1)
        wrong = ConfigError(f"encoder_settings must be numbers by name, got {self.encoder_settings!r}")
        try:
            settings = dict(self.encoder_settings)
        except (TypeError, ValueError) as error:
            raise wrong from error
        if not all(isinstance(name, str) for name in settings):
            raise wrong
        for name, value in settings.items():
            _check_number(name, value, "a finite number", _finite(value))
        if settings and self.encoder == "mlp":
            raise ConfigError(f"the mlp has width, depth and dropout and no other settings, got {', '.join(settings)}")
        # 2 and 2.0 are one setting here, too.
        plain = ((name, int(value) if value == int(value) else value) for name, value in settings.items())
        object.__setattr__(self, "encoder_settings", tuple(sorted(plain)))

    def to_dict(self) -> dict[str, Any]:
        """See :class:`_Config`; the encoder's settings as a dictionary of their own."""
        values = super().to_dict()
        if "encoder_settings" in values:
            values["encoder_settings"] = dict(self.encoder_settings)
        return values


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(_Config):
    """One point of a sweep: how a model is pretrained.

    All but the pretext, which fixes tensor shapes, may differ between the replicas of one pack: each becomes an [R]
    tensor.
    """

    _LATER = frozenset({"refine_every", "split_score", "pretext"})

    w_sord: float = 10.0
    """Weight of the soft ordinal cross entropy (HORD)."""
    w_mse: float = 0.1
    """Weight of the squared distance of the expected bin to the target bin (HORD)."""
    w_var: float = 0.001
    """Weight of the variance of the predicted bin distribution (HORD)."""
    patience: int = 5
    """Epochs without improvement before a feature is refined (FPT)."""
    delta: float = 1e-4
    """Decrease of the feature's loss that counts as an improvement (FPT)."""
    tau: float = 1e-4
    """Least Gain_var * Gain_disp of a split (DIGS)."""
    min_bin: int = 32
    """Least train rows on either side of a split (DIGS)."""
    t_init: int = 2
    """Quantile bins per feature at the start (FWA)."""
    t_max: int = 200
    """Most bins a feature may have (FWA); equal to T_init, bins stay as they are (ablation "w/o FWA")."""
    masking: MaskingKind = "none"
    """What replaces a masked input: nothing, 0, or the value of another row of the batch."""
    mask_prob: float = 0.0
    """p_m, probability that an entry is masked; 0 exactly when masking is "none"."""
    learning_rate: float = 1e-4
    """AdamW's step size in pretraining."""
    weight_decay: float = 1e-5
    """AdamW's decoupled decay in pretraining, on every parameter."""
    refine_every: int = 0
    """Refine all features after so many epochs each time, plateau or not; 0: FPT decides (ablation "w/o FPT")."""
    split_score: Literal["product", "variance", "dispersion"] = "product"
    """What must exceed tau: Gain_var * Gain_disp, or one of them alone (ablation "w/o DIGS": variance)."""
    pretext: PretextName = "adaptive_binning"
    """What the model is pretrained to predict."""

    def __post_init__(self) -> None:
        self._normalise()
        self._check_choices()
        for name in ("w_sord", "w_mse", "w_var", "delta", "tau", "weight_decay"):
            value = getattr(self, name)
            _check_number(name, value, "a finite number >= 0", _finite(value) and value >= 0)
        _check_number(
            "learning_rate",
            self.learning_rate,
            "a finite number > 0",
            _finite(self.learning_rate) and self.learning_rate > 0,
        )
        for name, least in (("patience", 1), ("min_bin", 1), ("t_init", 2), ("t_max", 2), ("refine_every", 0)):
            value = getattr(self, name)
            _check_number(name, value, f"a whole number >= {least}", _whole(value, least))
        _check_number("t_init", self.t_init, f"at most t_max ({self.t_max})", self.t_init <= self.t_max)
        _check_number("mask_prob", self.mask_prob, "in [0, 1)", _finite(self.mask_prob) and 0 <= self.mask_prob < 1)
        if self.w_sord == self.w_mse == self.w_var == 0:
            raise ConfigError("at least one of w_sord, w_mse and w_var must be above 0, got 0 for all three")
        if (self.masking == "none") != (self.mask_prob == 0):
            raise ConfigError(
                f"mask_prob must be 0 with masking 'none' and above 0 otherwise, "
                f"got masking {self.masking!r} with mask_prob {self.mask_prob!r}"
            )
        if self.masking == "none" and "mask" in RECONSTRUCTED[self.pretext]:
            raise ConfigError(f"{self.pretext} predicts which entries are masked, so masking must be on, got 'none'")
        if "bins" not in RECONSTRUCTED[self.pretext]:
            for name in ("refine_every", "split_score"):
                value, usual = getattr(self, name), getattr(type(self), name)
                if value != usual:
                    raise ConfigError(
                        f"{name} says how adaptive bins are refined, so with {self.pretext} it must be {usual!r}, "
                        f"got {value!r}"
                    )


@dataclass(frozen=True, kw_only=True)
class Protocol(_Config):
    """Named choices where paper, released code and we differ; a default is the paper's, or ours where it is silent."""

    _LATER = frozenset({"br_bins", "br_categorical"})

    label_order: Literal["clinical", "alphabetical"] = "clinical"
    """Order of ordinal labels in the quadratic weighted kappa."""
    mse_scale: Literal["none", "released"] = "none"
    """Whether target and expected bin are scaled by ((T-1)/2, sqrt((T^2-1)/12)) before squaring."""
    unseen_category: Literal["own", "zero"] = "own"
    """Code of a category never seen in train: the cardinality, or 0."""
    bin_cap: Literal["best", "none"] = "best"
    """Splits past T_max: keep the best-scoring ones, or keep none of that feature's."""
    pretrain_schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate over all pretraining steps."""
    probe_schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate over all probe steps."""
    decoder_depth: Literal["one", "encoder"] = "one"
    """Hidden blocks of the decoder: one, or as many as the encoder has."""
    plateau_scale: Literal["none", "weights"] = "none"
    """Plateau metric: the feature's loss, or that loss over w_sord + w_mse + w_var."""
    br_bins: Literal["asked", "one_less"] = "asked"
    """Bins that BinRecon makes of T: as many, or T - 1."""
    br_categorical: Literal["codes", "binned"] = "codes"
    """What BinRecon predicts of a categorical column: its codes, or their bins where it has T levels or more."""

    def __post_init__(self) -> None:
        self._check_choices()

    @classmethod
    def choices(cls) -> dict[str, tuple[str, ...]]:
        """Name of each choice -> the values it has."""
        return {each.name: get_args(_hints_of(cls)[each.name]) for each in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def named(cls, name: str) -> Protocol:
        """The protocol called ``"paper"`` or ``"released"``.  Raises ConfigError for any other name."""
        if name == "paper":
            return cls()
        if name == "released":
            return cls(label_order="alphabetical", mse_scale="released", unseen_category="zero", bin_cap="none")
        raise ConfigError(
            f"protocol must be one of paper, released, got {name!r}{nearest(name, ('paper', 'released'))}"
        )


@dataclass(frozen=True, kw_only=True)
class Budget(_Config):
    """How long a replica trains and how often it is probed."""

    epochs: int = 1000
    """Pretraining epochs; 0 exactly where nothing is pretrained."""
    probe_epochs: int = 100
    """Epochs of each linear probe."""
    probes: int = 5
    """Linear probes per replica; the replica's score is their mean."""

    def __post_init__(self) -> None:
        self._normalise()
        for name, least in (("epochs", 0), ("probe_epochs", 1), ("probes", 1)):
            value = getattr(self, name)
            _check_number(name, value, f"a whole number >= {least}", _whole(value, least))

    def at_rung(self, epochs: int) -> Budget:
        """What a replica has had that halving ranks after so many epochs.

        Before the last epoch that is one probe of a fifth of the probe epochs: enough to tell which points are worth
        going on with, where full probes would cost more than halving saves.
        """
        if epochs == self.epochs:
            return self
        return Budget(epochs=epochs, probe_epochs=-(-self.probe_epochs // 5), probes=1)


@dataclass(frozen=True, kw_only=True)
class Finetuning(_Config):
    """How a whole model, encoder and linear head, is trained on labels (method, Sec. 3)."""

    epochs: int = 100
    """Epochs; the best one on validation counts."""
    learning_rate: float = 1e-3
    """AdamW's step size."""
    weight_decay: float = 1e-5
    """AdamW's decoupled decay, on every parameter."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate over all steps."""

    def __post_init__(self) -> None:
        self._normalise()
        self._check_choices()
        _check_number("epochs", self.epochs, "a whole number >= 1", _whole(self.epochs, 1))
        rate, decay = self.learning_rate, self.weight_decay
        _check_number("learning_rate", rate, "a finite number > 0", _finite(rate) and rate > 0)
        _check_number("weight_decay", decay, "a finite number >= 0", _finite(decay) and decay >= 0)


@dataclass(frozen=True)
class Seeds:
    """Which seed feeds which named streams of one replica."""

    split: int
    pretrain: int
    probe: int


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One trained model: a point, a seed, and everything else that decides its number."""

    dataset: str
    """Key of the data set's card."""
    fingerprint: str
    """Fingerprint of the parsed table."""
    architecture: Architecture
    hyperparameters: Hyperparameters
    seed: int
    seeds_vary: SeedsVary = "pretrain"
    """What the seed changes: pretraining and probes, probes only, or the split as well."""
    protocol: Protocol = field(default_factory=Protocol)
    budget: Budget = field(default_factory=Budget)
    finetuning: Finetuning | None = None
    """How the whole model is trained on labels after pretraining; None: linear probes read its embeddings instead.
    With it, settings of probes are put to their defaults."""

    def __post_init__(self) -> None:
        fits = _whole(self.seed, 0) and self.seed < MAX_SEED
        _check_number("seed", self.seed, f"a whole number in [0, {MAX_SEED})", fits)
        if self.seeds_vary not in get_args(SeedsVary):
            raise ConfigError(f"seeds_vary must be one of {', '.join(get_args(SeedsVary))}, got {self.seeds_vary!r}")
        if self.hyperparameters.pretext == "none":
            _check_number("epochs", self.budget.epochs, "0 where nothing is pretrained", self.budget.epochs == 0)
            if self.finetuning is None:
                raise ConfigError("a model that is not pretrained must be trained on labels, got no fine-tuning")
            if self.hyperparameters != Hyperparameters(pretext="none"):
                raise ConfigError(
                    f"hyperparameters of pretraining must be at their defaults where there is none, "
                    f"got {self.hyperparameters}"
                )
        else:
            _check_number("epochs", self.budget.epochs, "a whole number >= 1", self.budget.epochs >= 1)
        if self.finetuning is not None:  # without probes, what is said of them decides nothing
            object.__setattr__(self, "budget", Budget(epochs=self.budget.epochs))
            object.__setattr__(self, "protocol", replace(self.protocol, probe_schedule=Protocol.probe_schedule))
        if (self.hyperparameters.pretext, self.protocol.br_bins) == ("bin_recon", "one_less"):
            bins = self.hyperparameters.t_init
            _check_number(
                "t_init", bins, "at least 3 where br_bins makes one bin less: one is nothing to predict", bins > 2
            )

    @property
    def seeds(self) -> Seeds:
        """Seeds of split, pretraining and probe (method: "Splits, seeds")."""
        return Seeds(
            split=SPLIT_SEED + (self.seed if self.seeds_vary == "split" else 0),
            pretrain=0 if self.seeds_vary == "probe" else self.seed,
            probe=self.seed,
        )

    def identity(self) -> dict[str, Any]:
        """Everything that decides the number, as plain JSON.  Paths, hosts, packing and devices take no part."""
        evaluated: dict[str, Any] = {"budget": self.budget.to_dict()}
        if self.finetuning is not None:
            evaluated = {"budget": {"epochs": self.budget.epochs}, "finetuning": self.finetuning.to_dict()}
        return {
            "method_version": method_version_of(self.architecture.encoder),
            "dataset": self.dataset,
            "fingerprint": self.fingerprint,
            "architecture": self.architecture.to_dict(),
            "hyperparameters": self.hyperparameters.to_dict(),
            "protocol": self.protocol.to_dict(),
            **evaluated,
            "seed": self.seed,
            "seeds_vary": self.seeds_vary,
        }

    @cached_property
    def id(self) -> str:
        """Names this replica everywhere; see :func:`id_of`."""
        return id_of(self.identity())

    @classmethod
    def from_identity(cls, values: Mapping[str, Any]) -> Replica:
        """Rebuild from :meth:`identity`.  Raises ConfigError on unknown keys or another method version."""
        values = dict(values)
        version, encoder = values.pop("method_version", None), encoder_of(values)
        if version != method_version_of(encoder):
            raise ConfigError(
                f"method_version must be {method_version_of(encoder)}, got {version!r} with the encoder {encoder!r}"
            )
        parts = {
            "architecture": Architecture,
            "hyperparameters": Hyperparameters,
            "protocol": Protocol,
            "budget": Budget,
            "finetuning": Finetuning,
        }
        known = [f.name for f in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(f"unknown key {key!r} for Replica{nearest(key, known)} (known: {', '.join(known)})")
        return cls(**{k: parts[k].from_dict(v) if k in parts else v for k, v in values.items()})  # type: ignore[attr-defined]


def method_version_of(encoder: str) -> int:
    """The version of what is trained with an encoder."""
    return ENCODER_VERSIONS.get(encoder, METHOD_VERSION)


def encoder_of(identity: Mapping[str, Any]) -> str:
    """The encoder of a replica of that :meth:`Replica.identity`, of which nothing is taken for granted."""
    architecture = identity.get("architecture")
    return str(architecture.get("encoder", "mlp")) if isinstance(architecture, Mapping) else "mlp"


def pretext_of(identity: Mapping[str, Any]) -> str:
    """What a replica of that :meth:`Replica.identity` was pretrained on."""
    return str(identity["hyperparameters"].get("pretext", Hyperparameters.pretext))


def id_of(identity: Mapping[str, Any]) -> str:
    """First 24 hex digits of the SHA-256 of the canonical JSON of :meth:`Replica.identity`."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
