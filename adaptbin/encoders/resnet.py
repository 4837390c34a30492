"""The residual network for tables of Gorishniy et al. 2021 (arXiv 2106.11959, Sec. 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from adaptbin.encoders.base import Columns, DropSite
from adaptbin.encoders.checks import check_input, check_kept, check_number, check_probability, check_whole
from adaptbin.encoders.declared import Declared, linear_parameters
from adaptbin.encoders.normalisation import BatchNormalisation, NormalisedEncoder
from adaptbin.encoders.products import Parameters, linear, two_layers
from adaptbin.errors import ConfigError

_MOMENTUM = 0.1
"""Of the batch statistics (torch's default, which the published model has)."""


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    """Settings under the names of the authors' package rtdl_revisiting_models 0.0.2.

    That package has no default values for this model: ours are those of its documentation (README, "ResNet").
    """

    n_blocks: int = 2
    """Residual blocks."""
    d_block: int = 192
    """H, width between blocks."""
    d_hidden_multiplier: float = 2.0
    """Width inside a block, as a multiple of ``d_block``, rounded down."""
    dropout1: float = 0.15
    """Probability of dropping a unit inside a block."""
    dropout2: float = 0.0
    """Probability of dropping a unit of what a block adds."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "n_blocks", "d_block")
        check_number(self, 0, "d_hidden_multiplier", above=True)
        check_probability(self, "dropout1", "dropout2")
        if self.d_hidden < 1:
            raise ConfigError(
                f"d_block times d_hidden_multiplier must be at least 1, got {self.d_block} x {self.d_hidden_multiplier}"
            )

    @property
    def d_hidden(self) -> int:
        """Width inside a block."""
        return int(self.d_block * self.d_hidden_multiplier)


class ResNetEncoder(NormalisedEncoder):
    """R residual networks; the embedding is what the published model's output layer reads (Sec. 3.2).

    ::

        h = Linear(x)
        h = h + Dropout2(Linear2(Dropout1(ReLU(Linear1(Norm(h))))))        for every block
        z = ReLU(Norm(h))

    Norm is batch normalisation.  Codes of categorical columns are read as numbers.
    """

    # DIFF[released->ours] the authors' package leaves categorical columns to its user, and one-hot encodes them in its
    # examples; ours reads their codes as they are, as the MLP does; there is no switch.

    def __init__(self, columns: Columns, config: ResNetConfig) -> None:
        super().__init__()
        self.columns, self.config = columns, config
        self._block_names = [f"{self.name}.blocks.{i}" for i in range(config.n_blocks)]
        names = [*self._block_names, f"{self.name}.output"]
        self._norms = [
            BatchNormalisation(name=f"{name}.normalisation", width=config.d_block, momentum=_MOMENTUM) for name in names
        ]
        rates = (config.dropout1, config.dropout2)
        units = (config.d_hidden, config.d_block)
        self._sites = [
            DropSite(unit, rate) for _ in self._block_names for unit, rate in zip(units, rates, strict=True) if rate > 0
        ]

    @property
    def width(self) -> int:
        """H."""
        return self.config.d_block

    @property
    def drop_sites(self) -> tuple[DropSite, ...]:
        """Block by block, inside the block and then of what it adds."""
        return tuple(self._sites)

    @property
    def products(self) -> int:
        """See :class:`ReplicaEncoder`."""
        config = self.config
        return config.d_block * (self.columns.inputs + 2 * config.n_blocks * config.d_hidden)

    def kept_numbers(self, rows: int) -> int:
        """See :class:`ReplicaEncoder`.

        Of a block three times what is between blocks (itself, centred, normalised) and twice what is inside; compiled
        kernels keep less.
        """
        config = self.config
        block = 3 * config.d_block + 2 * config.d_hidden
        return rows * (self.columns.inputs + config.n_blocks * block + 3 * config.d_block)

    @property
    def _normalisations(self) -> Sequence[BatchNormalisation]:
        return self._norms

    def _declared(self) -> dict[str, Declared]:
        inner, outer = self.config.d_hidden, self.config.d_block
        declared = linear_parameters(f"{self.name}.input", self.columns.inputs, outer)
        for block in self._block_names:
            declared |= linear_parameters(f"{block}.linear1", outer, inner)
            declared |= linear_parameters(f"{block}.linear2", inner, outer)
        for norm in self._norms:
            declared |= norm.declared()
        return declared

    def _embed(
        self, x: Tensor, parameters: Parameters, kept: Sequence[Tensor] | None, members: Tensor | None
    ) -> Tensor:
        check_input(x, self.columns, len(next(iter(parameters.values()))))
        check_kept(kept, self._sites, x)
        masks = iter([] if kept is None else kept)

        def dropped(h: Tensor, probability: float) -> Tensor:
            return h if kept is None or probability == 0 else h * next(masks) / (1 - probability)

        h = linear(f"{self.name}.input", x, parameters)
        for name, norm in zip(self._block_names, self._norms, strict=False):
            inner = self._normalise(norm, h, parameters, members)
            rate = self.config.dropout1
            units = next(masks) if kept is not None and rate > 0 else None
            layers = (f"{name}.linear1", f"{name}.linear2")
            h = h + dropped(two_layers(layers, inner, parameters, units, rate), self.config.dropout2)
        return self._normalise(self._norms[-1], h, parameters, members).relu()
