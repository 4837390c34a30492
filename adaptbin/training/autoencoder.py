"""The autoencoder of R replicas: encoder, decoder and heads over one parameter bank, with the HORD loss on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from adaptbin import native
from adaptbin.config import Architecture, Protocol
from adaptbin.encoders.base import Columns
from adaptbin.encoders.mlp import mlp_decoder
from adaptbin.encoders.registry import make_encoder
from adaptbin.pretext.hord import DEAD_LOGIT, BinContext, HordWeights, HordWorkspace, cross_entropy_, hord_
from adaptbin.replicas.heads import GrowingHeads
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.streams import stream
from adaptbin.training.draws import Kept
from adaptbin.training.live_heads import LiveHeads


class Autoencoder:
    """R stacked autoencoders with C categorical and D numerical heads (method, Sec. 1).

    The numerical heads are as wide as the widest live feature of the stack (K slots) and grow with it.
    """

    def __init__(
        self,
        columns: Columns,
        architecture: Architecture,
        protocol: Protocol,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        self.seeds = tuple(seeds)
        self.device = device
        self.mse_scale = protocol.mse_scale
        self.cardinalities = columns.cardinalities
        self.n_categorical, self.n_numerical = len(columns.cardinalities), columns.numerical
        self.levels = max(columns.cardinalities, default=0)
        self.encoder = make_encoder(columns, architecture)
        width = architecture.width
        self.decoder = mlp_decoder(architecture, protocol, inputs=self.encoder.width, outputs=width)
        self.heads = self._make_heads(width)
        code = torch.arange(self.levels, device=device)[:, None]
        # A column with fewer levels than the widest one has dead rows, like a feature with fewer bins.
        dead_codes = code >= torch.tensor(columns.cardinalities, dtype=torch.int64, device=device)
        self._dead_codes = dead_codes.flatten()
        self._live_codes = (~dead_codes).unsqueeze(-1).to(torch.float32)
        self.bank = ParameterBank(self._shapes(0), len(self.seeds), device)
        self._initialise_body()
        self.heads.initialise(self.bank, self.seeds, 0, 0)
        self._workspaces: dict[int, HordWorkspace] = {}
        self._context: BinContext | None = None
        self._dead: Tensor
        self._bound: ParameterBank | None = None
        self._live: LiveHeads | None = None

    def _make_heads(self, width: int) -> GrowingHeads:
        return GrowingHeads(width, self.levels * self.n_categorical, self.n_numerical)

    def _shapes(self, capacity: int) -> dict[str, tuple[int, ...]]:
        return self.encoder.shapes() | self.decoder.shapes() | self.heads.shapes(capacity)

    def _initialise_body(self) -> None:
        for part in (self.encoder, self.decoder):
            generators = {seed: stream(seed, "init", part.name) for seed in self.seeds}
            part.initialise(self.bank, [generators[seed] for seed in self.seeds])

    def reserve(self, capacity: int, decay_of_past_steps: Callable[[Tensor], None] | None = None) -> None:
        """Widen the heads to ``capacity`` slots; the new ones are drawn from the init streams.

        ``decay_of_past_steps`` is called with the new rows of the values, so that weight decay catches up.
        """
        held = self.heads.capacity
        if capacity <= held:
            return
        self.bank = self.bank.widened(self._shapes(capacity))
        self.heads.capacity = capacity
        self.heads.initialise(self.bank, self.seeds, held, capacity)
        if decay_of_past_steps is not None:
            begin = self.heads.rows(held)
            decay_of_past_steps(self.bank.view("heads.weight")[:, begin:])
            decay_of_past_steps(self.bank.view("heads.bias")[:, begin:])

    def set_bins(self, count: Tensor, slots: int, weights: HordWeights) -> bool:
        """Use ``slots`` head slots, of which ``count`` [R, D] are live per feature; capacity must suffice.

        -> whether tensors of a step have changed shape or place; if not, they were updated where they are.
        """
        moved = self._bound is not self.bank or self.heads.slots != slots
        if moved:
            self.heads.bind(self.bank, self.heads.capacity, slots)
            self.encoder.bind(self.bank)
            self.decoder.bind(self.bank)
            self._bound, self._weights, self._workspaces = self.bank, weights, {}
        if native.serves(self.bank.values):
            self._live = LiveHeads(self.heads, self.bank, self.cardinalities, count, weights, self.mse_scale)
            return moved
        replicas = len(self.seeds)
        dead_bins = torch.arange(slots, device=self.device)[:, None] >= count[:, None]
        dead = torch.cat([self._dead_codes.expand(replicas, -1), dead_bins.reshape(replicas, -1)], 1)
        context = BinContext.of(count, slots, weights, self.mse_scale) if self.n_numerical else None
        if moved:
            self._dead, self._context = dead, context
            return True
        self._dead.copy_(dead)
        for held, new in zip(self._context or (), context or (), strict=True):
            held.copy_(new)
        return False

    def gradients_(
        self, x: Tensor, kept: Kept, codes: Tensor, bins: Tensor, entries: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One forward and backward pass; gradients land in the bank.

        x [R, B, D + C] corrupted inputs; kept: units of the encoder and of the decoder that are not dropped;
        codes [R, C, B] int64; bins [R, D, B] float32; entries [R, D, B] float32: weights of the bins in the loss, None
        for 1 -> total loss [R] and L_num per feature [R, D].
        """
        embedding = self.encoder.forward(x, kept.encoder)
        hidden = self.decoder.forward(embedding, kept.decoders)
        total, feature_loss, below = self._reconstruct(hidden, codes, bins, entries)
        gradient = self.decoder.backward(below, input_gradient=True)
        assert gradient is not None
        self.encoder.backward(gradient, input_gradient=False)
        return total, feature_loss

    def _reconstruct(
        self, hidden: Tensor, codes: Tensor, bins: Tensor, entries: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Heads and losses, forward and backward -> total [R], L_num [R, D], gradient of ``hidden`` [R, B, H]."""
        if self._live is not None:
            return self._live(hidden, codes, bins, entries)
        logits = self.heads.forward(hidden, self._dead, DEAD_LOGIT)
        replicas, batch = hidden.shape[:2]
        columns = self.n_categorical + self.n_numerical
        # --- total = C/(C+D) mean_c L_cat + D/(C+D) mean_n L_num: every column weighs 1/(C+D)
        scale = 1.0 / (columns * batch)
        total = hidden.new_zeros(replicas)
        feature_loss = hidden.new_zeros(replicas, 0)
        if self.n_categorical:
            part = logits[:, : self.heads.fixed].view(replicas, self.levels, self.n_categorical, batch)
            total = total + cross_entropy_(part, codes, self._live_codes, scale).sum(1)
        if self.n_numerical and self._context is not None:
            part = logits[:, self.heads.fixed :].view(replicas, self.heads.slots, self.n_numerical, batch)
            feature_loss = hord_(part, bins, self._context, self._weights, scale, self._workspace(batch), entries)
            total = total + feature_loss.sum(1)
        # --- end total
        return total / columns, feature_loss, self.heads.backward()

    def _workspace(self, batch: int) -> HordWorkspace:
        if batch not in self._workspaces:
            self._workspaces[batch] = HordWorkspace(
                len(self.seeds), self.heads.slots, self.n_numerical, batch, self.device
            )
        return self._workspaces[batch]
