"""HORD, the hierarchical ordinal reconstruction loss ("how"), with its gradient in closed form.

Paper: arXiv 2606.19827, Sec. 2; equations as listed in the method notes.  The head's logits come bin-major,
[R, K, D, B]: every pass then runs over long contiguous stretches, sums over bins add whole slices, and heads grow by
appending.  Bins t >= T_n of a feature are dead: they take part in no sum, loss or gradient.

For each feature and row, with p = softmax(l) over live bins, target bin y, and q_t ~ exp(-(t - y)^2):
    SORD = -sum_t q_t log p_t,   mu = sum_t p_t t,   sigma^2 = max(0, sum_t p_t t^2 - mu^2)
    L_num = w_SORD SORD + w_mse (mu - y)^2 + w_var sigma^2
    dL_num / dl_t = w_SORD (p_t - q_t) + p_t [2 w_mse (mu - y)(t - mu) + w_var ((t - mu)^2 - sigma^2)]
All of it is computed in d = t - y, where float32 loses nothing to the size of t.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

DEAD_LOGIT = -1e9
"""Finite stand-in for minus infinity, so that 0 times it is still a number."""

SLOT_MULTIPLE = 4
"""Slots come in fours: torch adds slices in four interleaved runs, so only then do further dead slots change no bit."""

_DEEP = 80.0
"""exp(-80) is 1e-35 and adds nothing to a sum that holds exp(0); arguments that underflow are ten times slower."""


class HordWeights(NamedTuple):
    """Loss weights of R replicas, each [R]."""

    sord: Tensor
    mse: Tensor
    var: Tensor


class BinContext(NamedTuple):
    """What the loss needs to know about the current bins; changes only when bins split."""

    live: Tensor
    """[R, K, D, 1] float32, 1 for t < T_n."""
    normaliser: Tensor
    """[R, D, K] float32, 1 / sum_t exp(-(t - y)^2) over live t, looked up by y."""
    mse_weight: Tensor
    """[R, D, 1] float32, w_mse with the scale of the squared error folded in."""

    @classmethod
    def of(cls, count: Tensor, bins: int, weights: HordWeights, mse_scale: str) -> BinContext:
        """Context for ``count`` [R, D] live bins in ``bins`` slots."""
        slot = torch.arange(bins, device=count.device)
        live = slot < count.unsqueeze(-1)
        distance = (slot[:, None] - slot[None, :]).to(torch.float64)
        kernel = torch.exp(-distance.square())
        total = torch.einsum("yt,rdt->rdy", kernel, live.to(torch.float64))
        # Slots y >= T_n are never looked up; 1 keeps them finite.
        normaliser = torch.where(live, 1.0 / total, torch.ones_like(total)).to(torch.float32)
        mse_weight = scaled_mse_weight(count, weights.mse, mse_scale)
        return cls(live.transpose(1, 2).unsqueeze(-1).to(torch.float32), normaliser, mse_weight.unsqueeze(-1))


def scaled_mse_weight(count: Tensor, w_mse: Tensor, mse_scale: str) -> Tensor:
    """w_mse with the scale of the squared error folded in.  count [R, D] live bins, w_mse [R] -> [R, D] float32."""
    weight = w_mse[:, None].expand(count.shape)
    if mse_scale == "released":
        # DIFF[paper->released] paper: (mu - y)^2 on raw indices.  Released code: both scaled by
        # ((T-1)/2, sqrt((T^2-1)/12)), which leaves (mu - y)^2 * 12 / (T^2 - 1).  Switch: `mse_scale`.
        squares = count.to(torch.float32).square()
        weight = torch.where(count > 1, weight * 12.0 / (squares - 1.0).clamp(min=1.0), weight)
    return weight.contiguous()


class HordWorkspace:
    """Buffers of one batch shape, kept between steps; fresh memory would cost more than the arithmetic."""

    def __init__(self, replicas: int, bins: int, features: int, rows: int, device: torch.device | str = "cpu") -> None:
        shape = (replicas, bins, features, rows)
        self.distance, self.soft, self.scratch = (torch.empty(shape, device=device) for _ in range(3))
        self.slot = torch.arange(bins, dtype=torch.float32, device=device).view(1, bins, 1, 1)


def hord_(
    logits: Tensor,
    target: Tensor,
    context: BinContext,
    weights: HordWeights,
    scale: float,
    work: HordWorkspace,
    entries: Tensor | None = None,
) -> Tensor:
    """Per-feature losses; ``logits`` is overwritten by the gradient.

    logits [R, K, D, B] with dead slots at DEAD_LOGIT; target [R, D, B] float32 bins; ``scale`` multiplies the gradient
    (the share of one feature and row in the total); entries [R or 1, D, B]: weight of each feature and row, 0 where the
    value is missing, None for 1 -> L_num per feature, weighted mean over the batch, [R, D] in nats.
    On return ``logits`` holds scale * entries * dL_num/dl, exactly 0 in dead slots.
    """
    share = scale if entries is None else entries * scale
    distance, soft, scratch = work.distance, work.soft, work.scratch
    w_sord, w_var = weights.sord[:, None, None], weights.var[:, None, None]
    normaliser = context.normaliser.gather(2, target.to(torch.int64))
    shifted = logits.sub_(logits.amax(1, keepdim=True))
    torch.sub(work.slot, target.unsqueeze(1), out=distance)
    torch.mul(distance, distance, out=scratch)
    torch.neg(scratch.clamp_(max=_DEEP), out=soft).exp_().mul_(context.live)
    # --- SORD = logsumexp(l) - sum_t q_t l_t, since sum_t q_t = 1
    torch.mul(shifted, soft, out=scratch)
    crossed = scratch.sum(1).mul_(normaliser)
    exponential = shifted.clamp_(min=-_DEEP).exp_().mul_(context.live)
    total = exponential.sum(1)
    sord = torch.log(total).sub_(crossed)
    # --- end SORD
    # --- mu - y = sum_t p_t d;  sigma^2 = max(0, sum_t p_t d^2 - (mu - y)^2)
    inverse = total.reciprocal()
    torch.mul(distance, exponential, out=scratch)
    error = scratch.sum(1).mul_(inverse)
    second = scratch.mul_(distance).sum(1).mul_(inverse)
    variance = (second - error.square()).clamp_(min=0.0)
    # --- end moments
    loss = w_sord * sord + context.mse_weight * error.square() + w_var * variance
    # --- dL/dl_t = p_t (c0 + c1 d + c2 d^2) - w_SORD q_t, the bracket expanded in d
    slope = 2.0 * context.mse_weight * error
    c0 = (w_sord - slope * error + w_var * (error.square() - variance)).mul_(inverse).mul_(share)
    c1 = (slope - 2.0 * w_var * error).mul_(inverse).mul_(share)
    c2 = (w_var * inverse).mul_(share)
    torch.addcmul(c1.unsqueeze(1), distance, c2.unsqueeze(1), out=scratch)
    torch.addcmul(c0.unsqueeze(1), scratch, distance, out=scratch)
    exponential.mul_(scratch).addcmul_(soft, (w_sord * normaliser).mul_(-share).unsqueeze(1))
    # --- end gradient
    return (loss if entries is None else loss.mul_(entries)).mean(-1)


def cross_entropy_(logits: Tensor, target: Tensor, live: Tensor, scale: float) -> Tensor:
    """Per-column cross entropy of the categorical columns; ``logits`` is overwritten by the gradient.

    logits [R, V, C, B] with slots past a column's cardinality at DEAD_LOGIT, target [R, C, B] int64 codes,
    live [V, C, 1] float32, 1 for codes below the cardinality -> mean over the batch, [R, C] in nats.
    """
    shifted = logits.sub_(logits.amax(1, keepdim=True))
    picked = shifted.gather(1, target.unsqueeze(1)).squeeze(1)
    exponential = shifted.clamp_(min=-_DEEP).exp_().mul_(live)
    total = exponential.sum(1)
    loss = torch.log(total).sub_(picked)
    exponential.mul_(total.reciprocal().mul_(scale).unsqueeze(1))
    exponential.scatter_add_(1, target.unsqueeze(1), exponential.new_full((), -scale).expand_as(target.unsqueeze(1)))
    return loss.mean(-1)
