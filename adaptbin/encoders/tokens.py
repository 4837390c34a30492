"""The feature tokeniser (Gorishniy et al. 2021, Sec. 3.3): every column of a row becomes one token of W numbers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from adaptbin.encoders.base import Columns
from adaptbin.encoders.declared import Declared
from adaptbin.encoders.products import Parameters


class Tokeniser:
    """T = 1 + F tokens of a row: the readout token ("CLS"), numerical columns, categorical columns.

    Token of a numerical column: value * weight + bias; of a categorical one: its code's row of ``categories`` + bias.
    The readout token is the same for all rows.  Everything starts from U(+-1/sqrt(W)), as both published models do.
    """

    def __init__(self, columns: Columns, width: int) -> None:
        self.columns = columns
        self.width = width
        self.count = columns.inputs + 1

    def declared(self) -> dict[str, Declared]:
        """``readout`` [W], ``numerical`` [D, W], ``categories`` [all columns' codes, W], ``bias`` [F, W].

        What belongs to columns of a kind that the table lacks is left out.
        """
        rows = {"numerical": self.columns.numerical, "categories": sum(self.columns.cardinalities)}
        shapes = {"readout": (self.width,), **{name: (count, self.width) for name, count in rows.items() if count}}
        shapes["bias"] = (self.columns.inputs, self.width)
        return {name: Declared(shape, fan_in=self.width) for name, shape in shapes.items()}

    def bind(self, device: torch.device) -> None:
        """Put on ``device`` what says where the codes of a column are in ``categories``."""
        self._levels = torch.tensor(self.columns.cardinalities, dtype=torch.int64, device=device)
        self._first = self._levels.cumsum(0) - self._levels

    def __call__(self, x: Tensor, parameters: Parameters) -> Tensor:
        """x [R, B, F] -> [R, B, T, W]."""
        numerical = self.columns.numerical
        bias = parameters["bias"].unsqueeze(1)
        tokens = [parameters["readout"][:, None, None].expand(-1, x.shape[1], -1, -1)]
        if numerical:
            values, weight = x[..., :numerical, None], parameters["numerical"].unsqueeze(1)
            tokens.append(torch.addcmul(bias[:, :, :numerical], values, weight))
        if self.columns.cardinalities:
            found = self._looked_up(x[..., numerical:].long(), parameters["categories"])
            tokens.append(found + bias[:, :, numerical:])
        return torch.cat(tokens, dim=2)

    def _looked_up(self, codes: Tensor, categories: Tensor) -> Tensor:
        """codes [R, B, C], categories [R, S, W] -> [R, B, C, W]."""
        # DIFF[released->ours] the published models fail on a code that training has not seen; ours, the cardinality of
        # its column, has no row of its own and adds nothing to the bias: nothing is known of it.  Switch:
        # `unseen_category`, "zero".
        replicas, rows = categories.shape[:2]
        with_nothing = functional.pad(categories, (0, 0, 0, 1)).flatten(0, 1)
        seen = (codes >= 0) & (codes < self._levels)
        place = torch.where(seen, codes + self._first, rows)
        replica = torch.arange(replicas, device=codes.device)[:, None, None]
        return functional.embedding(place + replica * (rows + 1), with_nothing)
