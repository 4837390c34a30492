"""The paper's ablations, each equal to its twin; mixed packs; what they leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from adaptbin.config import Budget, Hyperparameters, PretextName, Replica
from adaptbin.errors import ConfigError
from adaptbin.training.pack import train_pack
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretexts.adaptive_bin_recon import AdaptiveBinRecon
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from tests.paths import BOTH, using
from tests.reference import autoencoder as twin
from tests.training.tables import ARCHITECTURE, EAGER, small_replica, small_table

EPOCHS = 10
QUIET = replace(ARCHITECTURE, dropout=0.0)


@pytest.fixture(params=BOTH)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs on both paths."""
    with using(request.param):
        yield request.param


def make(seed: int, pretext: PretextName = "adaptive_binning", **point: Any) -> Replica:
    budget = Budget(epochs=EPOCHS, probe_epochs=2, probes=1)
    return small_replica(seed, EAGER | {"delta": 0.2} | point | {"pretext": pretext}, architecture=QUIET, budget=budget)


def numpy_parameters(run: AdaptiveBinning, r: int) -> dict[str, np.ndarray]:
    """Replica ``r``'s with room for 64 bins, named and laid out as the twin has them."""
    model = run.model
    index = isinstance(run, AdaptiveBinRecon)
    if not index:
        model.reserve(64)
        run._fit_heads()
    found: dict[str, torch.Tensor] = {}
    for part in (model.encoder, model.decoder):
        for i in range(len(part.sizes) - 1):
            found[f"{part.name}.{2 * i}.weight"] = model.bank.view(f"{part.name}.{i}.weight")[r].t()
            found[f"{part.name}.{2 * i}.bias"] = model.bank.view(f"{part.name}.{i}.bias")[r]
    weight, bias = model.bank.view("heads.weight")[r], model.bank.view("heads.bias")[r]
    for j, levels in enumerate(model.cardinalities):
        rows = torch.arange(levels) * model.n_categorical + j
        found[f"cat_heads.{j}.weight"], found[f"cat_heads.{j}.bias"] = weight[rows], bias[rows]
    for d in range(model.n_numerical):
        slots = torch.arange(1 if index else 64)
        first = model.levels * model.n_categorical
        rows = first + slots * model.n_numerical + d
        found[f"num_heads.{d}.weight"], found[f"num_heads.{d}.bias"] = weight[rows], bias[rows]
    return {name: value.numpy().astype(np.float64) for name, value in found.items()}


ABLATIONS: list[tuple[PretextName, dict[str, Any]]] = [
    ("adaptive_binning", {}),
    ("adaptive_binning", {"t_max": 2}),
    ("adaptive_binning", {"refine_every": 3}),
    ("adaptive_binning", {"split_score": "variance", "tau": 0.05}),
    ("adaptive_binning", {"split_score": "dispersion", "tau": 1e-3}),
    ("adaptive_binning", {"split_score": "variance", "t_max": 5, "refine_every": 2}),
    ("adaptive_bin_recon", {}),
    ("adaptive_bin_recon", {"refine_every": 4, "t_init": 5}),
]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("pretext", "point"), ABLATIONS)
@pytest.mark.parametrize("cardinalities", [(2, 5), ()])
def test_every_ablation_is_its_twin(
    pretext: PretextName, point: dict[str, Any], cardinalities: tuple[int, ...]
) -> None:
    table = small_table(300, 3, cardinalities)
    replica = make(4, pretext, **point)
    run = PRETEXTS[pretext]([make(9, pretext), replica], table)
    assert isinstance(run, AdaptiveBinning)
    start = numpy_parameters(run, 1)
    orders, bins, triggers = [], [], []
    for epoch in range(EPOCHS):
        orders.append(run.draws.at(epoch).order[1].numpy().copy())
        run.run_epoch()
        bins.append(run.bins.n_bins[1].tolist())
        triggers.append(int(run.history["triggers"][1, epoch]))
    chosen = replica.hyperparameters
    settings = twin.Settings(
        weights=(chosen.w_sord, chosen.w_mse, chosen.w_var),
        patience=chosen.patience,
        tau=chosen.tau,
        batch_size=QUIET.batch_size,
        rate=chosen.learning_rate,
        delta=chosen.delta,
        min_bin=chosen.min_bin,
        t_init=chosen.t_init,
        t_max=chosen.t_max,
        refine_every=chosen.refine_every,
        split_score=chosen.split_score,
        numerical_loss="index" if pretext == "adaptive_bin_recon" else "hord",
    )
    x = table.inputs[table.train].numpy()
    expected = twin.pretrain(start, x, table.n_numerical, np.stack(orders), settings)
    np.testing.assert_allclose(run.history["loss"][1], expected.loss, rtol=1e-3)
    assert bins == expected.bins
    assert triggers == [sum(fired) for fired in expected.triggered]
    if chosen.t_max > 2:
        assert max(bins[-1]) > chosen.t_init, "bins must grow, or nothing was tested"


def test_without_fwa_bins_stay() -> None:
    """Also where a column has repeated percentiles, and so fewer than T_init from the start."""
    table = small_table()
    inputs = table.inputs.clone()
    inputs[:, 2] = inputs[:, 2].clamp(min=0.0)  # half of the rows are 0
    records = train_pack(
        [make(0, t_init=10, t_max=10), make(0, t_init=10, t_max=10, refine_every=2), make(0, t_init=10)],
        replace(table, inputs=inputs),
    )
    for record in records[:2]:
        assert record["bins"]["final"] == [10, 10, 6, 10]
        assert record["bins"]["triggers"] == record["bins"]["splits"] == 0
    assert records[2]["bins"]["final"][2] > 6, "with room it would have grown"


def test_the_clock_fires_for_its_replica_alone() -> None:
    table = small_table()
    run = AdaptiveBinning([make(1, refine_every=4, patience=50), make(1, patience=50)], table)
    for _ in range(EPOCHS):
        run.run_epoch()
    fired = run.history["triggers"]
    assert fired[0].nonzero().flatten().tolist() == [3, 7]
    assert not fired[1].any()


def test_a_score_without_embeddings_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    run = AdaptiveBinning([make(1, split_score="variance")], small_table())

    def fail(*arguments: Any) -> None:
        raise AssertionError("no embedding is needed")

    monkeypatch.setattr(run.model.encoder, "evaluate", fail)
    for _ in range(EPOCHS):
        run.run_epoch()
    assert int(run.history["splits"].sum()) > 0


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", ["adaptive_binning", "adaptive_bin_recon"])
@pytest.mark.parametrize("n_rows", [400, 402])
def test_alone_as_in_a_crowd(pretext: PretextName, n_rows: int) -> None:
    table = small_table(n_rows)
    points: list[dict[str, Any]] = [
        {},
        {"refine_every": 3},
        {"split_score": "variance", "tau": 0.02},
        {"split_score": "dispersion"},
        {"t_max": 2},
        {"masking": "random", "mask_prob": 0.3, "t_init": 6},
    ]
    replicas = [replace(make(3 + k % 2, pretext, **point), architecture=ARCHITECTURE) for k, point in enumerate(points)]
    records = train_pack(replicas, table)
    assert len({tuple(record["bins"]["final"]) for record in records}) > 3
    for replica, record in zip(replicas, records, strict=True):
        (alone,) = train_pack([replica], table)
        del alone["runtime"], record["runtime"]
        assert alone == record


def test_bad_points_are_refused() -> None:
    with pytest.raises(ConfigError, match="refine_every must be a whole number >= 0, got -1"):
        Hyperparameters(refine_every=-1)
    with pytest.raises(ConfigError, match=r"split_score must be one of .*, got 'varianc'; did you mean 'variance'\?"):
        Hyperparameters(split_score="varianc")  # type: ignore[arg-type]


def test_what_came_later_is_told_only_where_it_differs() -> None:
    assert Hyperparameters().to_dict().keys().isdisjoint({"refine_every", "split_score"})
    point = Hyperparameters(refine_every=6, split_score="variance")
    assert point.to_dict().items() >= {"refine_every": 6, "split_score": "variance"}.items()
    assert Hyperparameters.from_dict(point.to_dict()) == point
