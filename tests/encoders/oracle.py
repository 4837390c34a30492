"""Published single models as judges: their parameters, gradients and batch statistics under our names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from adaptbin.encoders.base import ReplicaEncoder
from adaptbin.replicas.parameters import ParameterBank

STATISTICS = {"mean": "running_mean", "variance": "running_var"}


class Kept(nn.Module):
    """Dropout with a given mask, which has the shape of what it drops units of."""

    def __init__(self, kept: Tensor, probability: float) -> None:
        super().__init__()
        self.kept, self.probability = kept, probability

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept / (1 - self.probability)


def turned(tensor: Tensor) -> Tensor:
    """Weights [out, in] as [in, out] and back; vectors as they are."""
    return tensor.t() if tensor.ndim == 2 else tensor


def assert_same(found: Tensor, right: Tensor, tolerance: float) -> None:
    """Up to ``tolerance``, of each entry or of the largest: sums round in proportion to their largest terms."""
    scale = max(1.0, float(right.abs().max()))
    torch.testing.assert_close(found / scale, right / scale, rtol=tolerance, atol=tolerance)


def copy_into(
    model: nn.Module, encoder: ReplicaEncoder, bank: ParameterBank, r: int, theirs: Callable[[str], str]
) -> dict[str, nn.Parameter]:
    """Give ``model`` the parameters and batch statistics of replica ``r``; -> its parameters under our names.

    theirs: our name of a parameter, without the encoder's own, -> that of the model.
    """
    inside = len(encoder.name) + 1
    parameters = {name: model.get_parameter(theirs(name[inside:])) for name in encoder.shapes()}
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(turned(bank.view(name)[r]))
    for buffer, held in statistics_of(model, encoder, theirs).items():
        held.copy_(encoder.statistics[buffer][r])
    return parameters


def statistics_of(model: nn.Module, encoder: ReplicaEncoder, theirs: Callable[[str], str]) -> Mapping[str, Tensor]:
    """The model's running statistics under our names."""
    inside = len(encoder.name) + 1
    found = {}
    for name in encoder.statistics:
        layer, what = name[inside:].rsplit(".", 1)
        prefix = theirs(f"{layer}.weight").removesuffix("weight")
        found[name] = model.get_buffer(prefix + STATISTICS[what])
    return found
