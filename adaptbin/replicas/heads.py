"""Output heads of R stacked decoders: a fixed part, and a part that grows by appending equal blocks of rows.

Rows are slot-major: row ``slot * columns + column`` of each part.  A head that becomes wider therefore appends rows,
and what is live is a prefix of the parameter bank.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from adaptbin.replicas.parameters import ParameterBank, uniform_
from adaptbin.replicas.products import add_product
from adaptbin.replicas.streams import stream

_BLOCK_ROWS = 64


class GrowingHeads:
    """R linear maps from H units to ``fixed`` rows and then ``slots x columns`` rows; only live slots are computed.

    Sums over rows (the gradient towards the decoder) go block by block of fixed size, so that a replica's result does
    not depend on how wide its pack mates' heads are.
    """

    def __init__(self, width: int, fixed: int, columns: int) -> None:
        self.width = width
        self.fixed = fixed
        self.columns = columns
        self.block = max(8, -(-_BLOCK_ROWS // columns)) if columns else 0
        """Slots per block: capacity comes in whole blocks, each drawn from a stream of its own."""
        self.capacity = 0
        self.slots = 0

    def rows(self, slots: int) -> int:
        """Rows of the fixed part and of ``slots`` slots."""
        return self.fixed + slots * self.columns

    def capacity_for(self, slots: int) -> int:
        """Least capacity, in whole blocks, that holds ``slots``."""
        return -(-slots // self.block) * self.block if self.columns else 0

    def shapes(self, capacity: int) -> dict[str, tuple[int, ...]]:
        """Per-replica parameter shapes at ``capacity`` slots; the weight is the bank's tail."""
        rows = self.rows(capacity)
        return {"heads.bias": (rows,), "heads.weight": (rows, self.width)}

    def initialise(self, bank: ParameterBank, seeds: tuple[int, ...], first_slot: int, capacity: int) -> None:
        """Draw the slots [first_slot, capacity) from the init streams of ``seeds`` (one per replica).

        The fixed part is drawn with slot 0.  Block b always comes from the same stream, whenever it comes into use.
        """
        parts = [] if first_slot else [("fixed", slice(0, self.fixed))]
        for block in range(
            first_slot // self.block if self.columns else 0, capacity // self.block if self.columns else 0
        ):
            begin = self.rows(block * self.block)
            parts.append((str(block), slice(begin, begin + self.block * self.columns)))
        weight, bias = bank.view("heads.weight"), bank.view("heads.bias")
        for name, rows in parts:
            generators = {seed: stream(seed, "init", "heads", name) for seed in seeds}
            uniform_(weight[:, rows], self.width, [generators[seed] for seed in seeds])
            uniform_(bias[:, rows], self.width, [generators[seed] for seed in seeds])

    def bind(self, bank: ParameterBank, capacity: int, slots: int) -> None:
        """Look up the views for ``slots`` slots in use; call again whenever bank, capacity or slots change."""
        self.capacity, self.slots = capacity, slots
        rows = self.rows(slots)
        weight, weight_gradient = bank.view("heads.weight"), bank.gradient("heads.weight")
        self._weight, self._bias = weight[:, :rows], bank.view("heads.bias")[:, :rows]
        self._weight_gradient, self._bias_gradient = weight_gradient[:, :rows], bank.gradient("heads.bias")[:, :rows]
        edges = [0, self.fixed] if self.fixed else [0]
        padded = self.capacity_for(slots)
        # A GPU promises no equal bits in other packs; there one product is faster than one per block.
        size = self.block if bank.device.type == "cpu" else max(padded, 1)
        edges += [self.rows(end) for end in range(size, padded + 1, size)] if self.columns else []
        self._blocks = [(slice(a, b), weight[:, a:b]) for a, b in zip(edges[:-1], edges[1:], strict=True)]
        self._buffers: dict[int, Tensor] = {}

    def forward(self, hidden: Tensor, dead: Tensor, dead_logit: float) -> Tensor:
        """Logits in a reused buffer.  hidden [R, B, H], dead [R, rows] bool: outside every softmax -> [R, rows, B]."""
        batch = hidden.shape[1]
        buffer = self._buffers.get(batch)
        if buffer is None:
            buffer = hidden.new_zeros(hidden.shape[0], self.rows(self.capacity_for(self.slots)), batch)
            self._buffers[batch] = buffer
        self._hidden, self._buffer = hidden, buffer
        logits = buffer[:, : self._weight.shape[1]]
        bias = self._bias.masked_fill(dead, dead_logit).unsqueeze(-1)
        if batch == 1:
            # A product with one column is rounded differently for other numbers of rows, hence for other pack mates.
            return torch.add(bias, (self._weight * hidden).sum(-1, keepdim=True), out=logits)
        turned = hidden.transpose(1, 2)
        if hidden.device.type != "cpu":
            return torch.baddbmm(bias, self._weight, turned, out=logits)
        # So is one with few columns or rows, by some processors: blocks are of one size, whatever is in use.
        used = logits.shape[1]
        bias = functional.pad(bias, (0, 0, 0, buffer.shape[1] - used))
        for rows, weight in self._blocks:
            add_product(bias[:, rows], weight, turned, out=buffer[:, rows])
        buffer[:, used:] = 0.0
        return logits

    def backward(self) -> Tensor:
        """Gradients of weights and biases from the buffer, now holding the logits'; -> the hidden units', [R, B, H]."""
        gradient = self._buffer[:, : self._weight.shape[1]]
        add_product(self._weight_gradient, gradient, self._hidden, beta=0.0, out=self._weight_gradient)
        torch.sum(gradient, dim=-1, out=self._bias_gradient)
        below = torch.empty_like(self._hidden)
        for i, (rows, weight) in enumerate(self._blocks):
            # Rows past the slots in use hold zeros: they change nothing but make every product the same size.
            if below.shape[1] == 1:
                # One row is multiplied by other routines where there is one replica, and then rounded otherwise.
                part = (self._buffer[:, rows] * weight).sum(1, keepdim=True)
                below = part if i == 0 else below + part
            else:
                add_product(below, self._buffer[:, rows].transpose(1, 2), weight, beta=float(i > 0), out=below)
        return below
