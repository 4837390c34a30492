"""TabNet: decision steps that each attend to a few columns (Arik & Pfister 2021, arXiv 1908.07442)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptbin.encoders.base import Columns, DropSite
from adaptbin.encoders.checks import check_input, check_kept, check_number, check_whole
from adaptbin.encoders.declared import Declared
from adaptbin.encoders.normalisation import BatchNormalisation, NormalisedEncoder
from adaptbin.encoders.products import Parameters, product
from adaptbin.encoders.sparsemax import sparsemax
from adaptbin.errors import ConfigError

_INPUT_MOMENTUM = 0.01
"""Of the normalisation of the inputs, fixed in pytorch_tabnet; its batch is the whole one."""


@dataclass(frozen=True, kw_only=True)
class TabNetConfig:
    """Settings under the names, and with the default values, of pytorch_tabnet 4.1.0."""

    n_d: int = 8
    """H, units of a step's decision."""
    n_a: int = 8
    """Units that the next step's attention reads."""
    n_steps: int = 3
    """Decision steps."""
    gamma: float = 1.3
    """Relaxation: how often a column may be attended to; at 1 in one step only."""
    n_shared: int = 2
    """Gated layers at the start of a feature transformer whose weights all steps share."""
    n_independent: int = 2
    """Gated layers after them, of each step alone."""
    virtual_batch_size: int = 128
    """Rows that share a mean and a variance in training, at most."""
    momentum: float = 0.02
    """Weight of the newest ghost batch in the running statistics."""
    lambda_sparse: float = 1e-3
    """Weight of the entropy of the attention in the loss."""
    epsilon: float = 1e-15
    """Added to attention before its logarithm is taken."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "n_d", "n_a", "n_steps")
        check_whole(self, 0, "n_shared", "n_independent")
        check_whole(self, 2, "virtual_batch_size")
        check_number(self, 1, "gamma")
        check_number(self, 0, "lambda_sparse")
        check_number(self, 0, "momentum", "epsilon", above=True)
        if self.momentum > 1:
            raise ConfigError(f"momentum must be at most 1, got {self.momentum}")
        if self.n_shared + self.n_independent < 1:
            raise ConfigError("n_shared + n_independent must be at least 1, got 0")


class TabNetEncoder(NormalisedEncoder):
    """R TabNets; the embedding is the sum of the steps' decisions, which the published model's last layer reads.

    With b the normalised inputs, P the prior scale and a the part of a feature transformer's output for attention
    ("Feature selection", "Feature processing")::

        M_i = sparsemax(P_{i-1} Norm(Linear(a_{i-1})))          P_i = P_{i-1} (gamma - M_i),  P_0 = 1
        [d_i, a_i] = FeatureTransformer_i(M_i b)                 a_0 from FeatureTransformer_0(b)
        z = sum_i ReLU(d_i)

    The loss of each replica gains ``lambda_sparse`` times the mean entropy of M_i over rows and steps.

    A feature transformer of its own precedes the first step.  Norm, but for that of the inputs, is over ghost batches.
    Codes of categorical columns are read as numbers.  It drops nothing.
    """

    # DIFF[released->ours] pytorch_tabnet embeds each categorical column, by default in one dimension; ours reads its
    # codes as they are, as the MLP does; there is no switch.

    # DIFF[released->ours] pytorch_tabnet trains with Adam and without weight decay, and clips the gradient's norm to 1.
    # Ours trains all encoders alike, with AdamW; there is no switch.

    def __init__(self, columns: Columns, config: TabNetConfig) -> None:
        super().__init__()
        self.columns, self.config = columns, config
        self._input_norm = BatchNormalisation(
            name=f"{self.name}.input.normalisation", width=columns.inputs, momentum=_INPUT_MOMENTUM
        )
        self._transformers = [self._layers_of(step) for step in range(config.n_steps + 1)]
        attention = [f"{self.name}.attention.{step}" for step in range(1, config.n_steps + 1)]
        self._attention = [
            (f"{own}.weight", self._ghost_norm(f"{own}.normalisation", columns.inputs)) for own in attention
        ]
        self._penalised: Tensor | None = None

    def _ghost_norm(self, name: str, width: int) -> BatchNormalisation:
        config = self.config
        return BatchNormalisation(name=name, width=width, momentum=config.momentum, ghost=config.virtual_batch_size)

    def _layers_of(self, step: int) -> list[tuple[str, BatchNormalisation]]:
        """(name of the weights, normalisation) of the gated layers of one feature transformer, in order."""
        config, gated = self.config, 2 * (self.config.n_d + self.config.n_a)
        own = f"{self.name}.transformers.{step}"
        weights = [f"{self.name}.shared.{i}.weight" for i in range(config.n_shared)]
        weights += [f"{own}.{i}.weight" for i in range(config.n_shared, config.n_shared + config.n_independent)]
        # Normalisations are never shared, as each step has its own distribution.
        return [(weight, self._ghost_norm(f"{own}.{i}.normalisation", gated)) for i, weight in enumerate(weights)]

    @property
    def width(self) -> int:
        """H."""
        return self.config.n_d

    @property
    def drop_sites(self) -> tuple[DropSite, ...]:
        """None."""
        return ()

    @property
    def products(self) -> int:
        """See :class:`ReplicaEncoder`."""
        config, inputs = self.config, self.columns.inputs
        hidden, layers = config.n_d + config.n_a, config.n_shared + config.n_independent
        transformer = 2 * hidden * (inputs + (layers - 1) * hidden)
        return (config.n_steps + 1) * transformer + config.n_steps * config.n_a * inputs

    def kept_numbers(self, rows: int) -> int:
        """See :class:`ReplicaEncoder`.

        Of a gated layer what goes into it, three times its two halves (itself, centred, normalised) and the gates; of a
        step's attention some ten numbers per column.
        """
        config, inputs = self.config, self.columns.inputs
        hidden, layers = config.n_d + config.n_a, config.n_shared + config.n_independent
        return rows * ((config.n_steps + 1) * (inputs + 8 * hidden * layers) + config.n_steps * 10 * inputs)

    @property
    def _normalisations(self) -> Sequence[BatchNormalisation]:
        pairs = [pair for layers in [*self._transformers, self._attention] for pair in layers]
        return [self._input_norm, *(norm for _, norm in pairs)]

    def _declared(self) -> dict[str, Declared]:
        # Variances are 2 / sqrt(fan_in) in gated layers and 1 / sqrt(fan_in) in attention: pytorch_tabnet says so by
        # way of Glorot's rule, with a gain that takes its fan_out away again.
        inputs, hidden, n_a = self.columns.inputs, self.config.n_d + self.config.n_a, self.config.n_a
        declared = {
            weight: Declared((fan_in, 2 * hidden), deviation=math.sqrt(2 / math.sqrt(fan_in)))
            for layers in self._transformers
            for (weight, _), fan_in in zip(layers, [inputs, *[hidden] * (len(layers) - 1)], strict=True)
        }
        for weight, _ in self._attention:
            declared[weight] = Declared((n_a, inputs), deviation=math.sqrt(1 / math.sqrt(n_a)))
        for norm in self._normalisations:
            declared |= norm.declared()
        return declared

    def _embed(
        self, x: Tensor, parameters: Parameters, kept: Sequence[Tensor] | None, members: Tensor | None
    ) -> Tensor:
        check_input(x, self.columns, len(next(iter(parameters.values()))))
        check_kept(kept, (), x)
        config, n_d = self.config, self.config.n_d

        def transform(step: int, h: Tensor) -> Tensor:
            """One feature transformer, h [R, B, F] -> [R, B, n_d + n_a]."""
            for i, (weight, norm) in enumerate(self._transformers[step]):
                gated = self._normalise(norm, product(h, parameters[weight]), parameters, members)
                values, gates = gated.chunk(2, dim=2)
                gain = values * gates.sigmoid()
                # Additions would double the variance otherwise ("Feature processing").
                h = (h + gain) * math.sqrt(0.5) if i else gain
            return h

        b = self._normalise(self._input_norm, x, parameters, members)
        prior, entropies = torch.ones_like(b), []
        a = transform(0, b)[..., n_d:]
        z = b.new_zeros(*b.shape[:2], n_d)
        for step, (weight, norm) in enumerate(self._attention, start=1):
            scores = self._normalise(norm, product(a, parameters[weight]), parameters, members)
            mask = sparsemax(prior * scores)
            entropies.append(-(mask * (mask + config.epsilon).log()).sum(2).mean(1))  # [R]
            prior = prior * (config.gamma - mask)
            out = transform(step, mask * b)
            z = z + out[..., :n_d].relu()
            a = out[..., n_d:]
        if members is None:
            self._penalised = config.lambda_sparse / config.n_steps * torch.stack(entropies).sum()
        return z

    def _penalty(self) -> Tensor | None:
        """The weighted entropies of all replicas' attention, summed, so that each replica's gradient is its own."""
        return self._penalised
