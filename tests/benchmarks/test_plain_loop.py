"""The plain loop is the same model as the stacked replicas: equal loss and gradients from equal weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from adaptbin.config import Budget, Hyperparameters, Replica
from adaptbin.training.draws import Kept
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from tests.benchmarks.plain_loop import PlainAutoencoder, PlainLoop
from tests.training.tables import ARCHITECTURE, small_table

T_MAX = 24


def matching(plain: PlainAutoencoder, run: AdaptiveBinning, buffer: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Each parameter of the plain model (heads: live columns last) with the same one in replica 0's ``buffer``."""
    model, bank = run.model, run.model.bank
    for part, ours in ((plain.encoder, model.encoder), (plain.decoder, model.decoder)):
        linears = [layer for layer in part if isinstance(layer, nn.Linear)]
        for i, linear in enumerate(linears):
            yield linear.weight, bank.view(f"{ours.name}.{i}.weight", buffer)[0].t()
            yield linear.bias, bank.view(f"{ours.name}.{i}.bias", buffer)[0]
    weight, bias = bank.view("heads.weight", buffer)[0], bank.view("heads.bias", buffer)[0]
    for c, head in enumerate(plain.categorical_heads):
        rows = torch.arange(head.out_features) * model.n_categorical + c
        yield head.weight, weight[rows]
        yield head.bias, bias[rows]
    for d, head in enumerate(plain.numerical_heads):
        rows = model.heads.fixed + torch.arange(int(run.bins.n_bins[0, d])) * model.n_numerical + d
        yield head.weight, weight[rows]
        yield head.bias, bias[rows]


@pytest.mark.parametrize("t_init", [2, 7])
@pytest.mark.parametrize("cardinalities", [(2, 5), ()], ids=["mixed", "numerical only"])
def test_loss_and_gradients_are_ours(t_init: int, cardinalities: tuple[int, ...]) -> None:
    table = small_table(cardinalities=cardinalities)
    point = Hyperparameters(t_init=t_init, t_max=T_MAX, w_mse=0.7, w_var=0.3)
    replica = Replica(
        dataset="small", fingerprint=table.fingerprint, architecture=ARCHITECTURE, hyperparameters=point, seed=0,
        budget=Budget(epochs=1),
    )  # fmt: skip
    run = AdaptiveBinning([replica], table)
    plain = PlainLoop(table, ARCHITECTURE, point)
    plain.model.eval()  # no dropout: the two would draw different units
    assert plain.n_bins == run.bins.n_bins[0].tolist()
    assert torch.equal(plain.bins.t().float(), run.targets[0])
    with torch.no_grad():
        for parameter, ours in matching(plain.model, run, run.model.bank.values):
            parameter[: len(ours)] = ours

    rows = slice(0, 50)
    total, features = plain.loss(plain.x[rows], plain.codes[rows], plain.bins[rows])
    total.backward()
    codes, targets = run.rows.codes[None, :, rows], run.targets[:, :, rows]
    loss, feature_loss = run.model.gradients_(
        run.rows.inputs[None, rows], Kept(None, None), codes, targets.contiguous()
    )

    torch.testing.assert_close(total.detach(), loss[0].to(total.dtype), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.stack(features).detach(), feature_loss[0], rtol=1e-5, atol=1e-6)
    for parameter, ours in matching(plain.model, run, run.model.bank.gradients):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad[: len(ours)], ours, rtol=1e-5, atol=1e-5)
        assert not parameter.grad[len(ours) :].any()  # dead columns


def test_it_learns_and_its_bins_grow() -> None:
    table = small_table(n_rows=600)
    plain = PlainLoop(table, ARCHITECTURE, Hyperparameters(learning_rate=1e-2, patience=1, t_max=T_MAX, min_bin=8))
    batch = plain.x, plain.codes, plain.bins
    before = float(plain.loss(*batch)[0].detach())
    plain.run_epoch()
    assert float(plain.loss(*batch)[0].detach()) < before
    for _ in range(25):
        plain.run_epoch()
    assert max(plain.n_bins) > 2
    assert all(int(plain.bins[:, d].max()) < n for d, n in enumerate(plain.n_bins))
