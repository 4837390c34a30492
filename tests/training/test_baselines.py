"""The baseline pretexts: equal to their twin, alone as in a crowd, cut and resumed as not cut, on both paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch

from adaptbin.config import RECONSTRUCTED, Budget, PretextName, Protocol, Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.errors import ConfigError
from adaptbin.replicas.grouping import group_replicas, model_id
from adaptbin.training.checkpoint import FolderCheckpoint
from adaptbin.training.pack import PackProgress, train_pack
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from adaptbin.training.pretexts.baselines import Reconstruction
from sweeps.service import model_card
from tests.paths import BOTH, using
from tests.reference import baselines as twin
from tests.training.tables import ARCHITECTURE, small_replica, small_table

BASELINES: tuple[PretextName, ...] = ("value_recon", "mask_xent", "mask_xent_value_recon", "bin_recon")
DECODERS = {
    "value_recon": ("value",),
    "mask_xent": ("mask",),
    "mask_xent_value_recon": ("mask", "value"),
    "bin_recon": ("index",),
}
BUDGET = Budget(epochs=12, probe_epochs=4, probes=2)
MASKED: dict[str, Any] = {"masking": "random", "mask_prob": 0.3}
FAST: dict[str, Any] = {"learning_rate": 3e-3}


@pytest.fixture(params=BOTH)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs on both paths."""
    with using(request.param):
        yield request.param


def test_every_pretext_is_in_a_crowd_somewhere_and_has_its_names() -> None:
    """A new one must join the tests here, or those of what adaptive binning leaves out."""
    known = {*BASELINES, "adaptive_binning", "adaptive_bin_recon"}
    assert known == set(PRETEXTS) == set(get_args(PretextName)) - {"none"}
    assert known == set(RECONSTRUCTED) - {"none"} == set(model_card.PRETEXT_TITLES)


def make(pretext: PretextName, seed: int = 0, settings: dict[str, Any] | None = None, **point: Any) -> Replica:
    return small_replica(seed, FAST | MASKED | point | {"pretext": pretext}, budget=BUDGET, **(settings or {}))


def crowd(pretext: PretextName) -> list[Replica]:
    """Replicas that differ in all that may differ inside a pack."""
    settings: list[dict[str, Any]] = [
        {},
        {"masking": "constant", "mask_prob": 0.2, "t_init": 10},
        {"learning_rate": 1e-2, "weight_decay": 0.1, "t_init": 7},
        {"mask_prob": 0.1},
        {"t_init": 3},
    ]
    if pretext in ("value_recon", "bin_recon"):
        settings.append({"masking": "none", "mask_prob": 0.0})
    return [make(pretext, seed, **point) for point, seed in zip(settings, (3, 3, 11, 42, 5, 3), strict=False)]


def test_every_baseline_has_its_decoders() -> None:
    for pretext in BASELINES:
        run = PRETEXTS[pretext]([make(pretext)], small_table())
        assert isinstance(run, Reconstruction)
        assert tuple(decoder.name for decoder in run.model.decoders) == tuple(
            f"decoder.{part}" for part in DECODERS[pretext]
        )


def numpy_parameters(run: Reconstruction, r: int, columns: int) -> dict[str, np.ndarray]:
    """Replica ``r``'s, named and laid out as the twin has them, without the outputs that stand for no column."""
    found = {}
    for part in (run.model.encoder, *run.model.decoders):
        last = len(part.sizes) - 2
        for i in range(len(part.sizes) - 1):
            live = slice(None, columns) if part is not run.model.encoder and i == last else slice(None)
            name = f"{part.name.replace('.', '_')}.{2 * i}"
            weight, bias = (run.model.bank.view(f"{part.name}.{i}.{kind}")[r] for kind in ("weight", "bias"))
            found[f"{name}.weight"] = weight[:, live].t().numpy().astype(np.float64)
            found[f"{name}.bias"] = bias[live].numpy().astype(np.float64)
    return found


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", BASELINES)
@pytest.mark.parametrize("cardinalities", [(2, 5), ()])
def test_training_is_the_twins(pretext: PretextName, cardinalities: tuple[int, ...]) -> None:
    table = small_table(150, 3, cardinalities)
    quiet = {"architecture": replace(ARCHITECTURE, dropout=0.0, batch_size=40)}
    replicas = [
        make(pretext, 1, quiet, t_init=4),
        make(pretext, 2, quiet, masking="constant", weight_decay=0.05, t_init=7),
    ]
    run = PRETEXTS[pretext](replicas, table)
    assert isinstance(run, Reconstruction)
    x = table.inputs[table.train].numpy()
    columns, epochs = x.shape[1], 4
    starts = [numpy_parameters(run, r, columns) for r in range(2)]
    drawn = []
    for _ in range(epochs):
        draws = run.draws.at(run.epoch)
        drawn.append([None if part is None else part.clone() for part in (draws.order, draws.uniform, draws.source)])
        run.run_epoch()
    for r, replica in enumerate(replicas):
        point = replica.hyperparameters
        what = {"value": x, "mask": None, "index": twin.bin_targets(x, 3, point.t_init)}
        parameters, losses = twin.pretrain(
            starts[r],
            x.astype(np.float64),
            {f"decoder_{part}": what[part] for part in DECODERS[pretext]},
            [tuple(part[r].numpy() for part in epoch) for epoch in drawn],
            masking=(point.masking, point.mask_prob),
            batch_size=40,
            rate=point.learning_rate,
            decay=point.weight_decay,
        )
        np.testing.assert_allclose(run.history["loss"][r, :epochs], losses, rtol=1e-4)
        for name, found in numpy_parameters(run, r, columns).items():
            np.testing.assert_allclose(found, parameters[name], rtol=2e-3, atol=2e-4, err_msg=name)


def without_runtime(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "runtime"}


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", BASELINES)
@pytest.mark.parametrize(
    ("n_rows", "n_numerical", "cardinalities"), [(400, 4, (2, 5)), (402, 7, ()), (402, 8, ()), (150, 0, (3, 4))]
)
def test_alone_as_in_a_crowd(
    pretext: PretextName, n_rows: int, n_numerical: int, cardinalities: tuple[int, ...]
) -> None:
    """Also with a last batch of one row (402: 257 rows in batches of 64), with columns of one kind only, and with whole
    vectors of them (8)."""
    table = small_table(n_rows, n_numerical, cardinalities)
    replicas = crowd(pretext)
    records = train_pack(replicas, table)
    assert len({str(record["scores"]) for record in records}) > 3, "the crowd must differ"
    for replica, record in zip(replicas, records, strict=True):
        assert record["status"] == "finished"
        (alone,) = train_pack([replica], table)
        assert without_runtime(alone) == without_runtime(record)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", BASELINES)
def test_cut_and_resumed_as_not_cut(pretext: PretextName, tmp_path: Any) -> None:
    table, replicas = small_table(), crowd(pretext)
    whole = train_pack(replicas, table)

    def cut(progress: PackProgress) -> None:
        if progress.epoch == 7:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train_pack(replicas, table, checkpoint=FolderCheckpoint(tmp_path), progress=cut)
    some = [4, 1, 2]
    resumed = train_pack([replicas[i] for i in some], table, checkpoint=FolderCheckpoint(tmp_path))
    assert [record["runtime"]["resumed_epoch"] for record in resumed] == [7, 7, 7]
    assert [without_runtime(record) for record in resumed] == [without_runtime(whole[i]) for i in some]


@pytest.mark.parametrize("asked", [2, 3, 10])
def test_as_many_bins_are_made_as_are_asked_for(asked: int) -> None:
    table = small_table(n_numerical=1)
    (record,) = train_pack([make("bin_recon", t_init=asked)], table)
    assert record["bins"] == {"features": ["x0"], "final": [asked], "triggers": 0, "splits": 0}
    assert record["curves"]["max_bins"] == [asked] * BUDGET.epochs
    settings = {"protocol": Protocol(br_bins="one_less")}
    if asked == 2:
        with pytest.raises(ConfigError, match="t_init must be at least 3 where br_bins makes one bin less"):
            make("bin_recon", settings=settings, t_init=asked)
        return
    (record,) = train_pack([make("bin_recon", settings=settings, t_init=asked)], table)
    assert record["bins"]["final"] == [asked - 1]


@pytest.mark.parametrize("pretext", ["value_recon", "mask_xent", "mask_xent_value_recon"])
def test_the_others_have_no_bins(pretext: PretextName) -> None:
    (record,) = train_pack([make(pretext)], small_table())
    assert record["bins"] == {"features": [], "final": [], "triggers": 0, "splits": 0}
    assert set(record["curves"]["mean_bins"]) == {0.0}


@pytest.mark.parametrize(
    ("protocol", "one_less", "bin_categories"),
    [
        (Protocol(), False, False),
        (Protocol(br_bins="one_less"), True, False),
        (Protocol(br_categorical="binned"), False, True),
        (Protocol(br_bins="one_less", br_categorical="binned"), True, True),
    ],
)
def test_bin_indices_are_the_twins(protocol: Protocol, one_less: bool, bin_categories: bool) -> None:
    table = small_table(150, 3, (2, 9, 30))
    inputs = table.inputs.clone()
    inputs[:, 2] = 1.0  # one index: nothing to predict
    table = replace(table, inputs=inputs)
    asked = (3, 5, 12)
    run = PRETEXTS["bin_recon"]([make("bin_recon", 0, {"protocol": protocol}, t_init=t) for t in asked], table)
    assert isinstance(run, Reconstruction)
    x = table.inputs[table.train].numpy()
    for r, bins in enumerate(asked):
        expected = twin.bin_targets(x, 3, bins, one_less=one_less, bin_categories=bin_categories)
        np.testing.assert_allclose(run._index[r], expected, atol=1e-6)
        assert not run._index[r, :, 2].any()


def test_pretexts_of_one_seed_are_pairs() -> None:
    """They start from one encoder, and see the same batches, masks and dropped units of it."""
    table = small_table()
    runs = [PRETEXTS[pretext]([make(pretext, 7)], table) for pretext in PRETEXTS]
    first = runs[0]
    assert isinstance(first, AdaptiveBinning)
    for run in runs[1:]:
        for name in first.model.encoder.shapes():
            assert torch.equal(run.model.bank.view(name), first.model.bank.view(name))
        ours, theirs = first.draws.at(2), run.draws.at(2)
        for a, b in ((ours.order, theirs.order), (ours.uniform, theirs.uniform), (ours.source, theirs.source)):
            assert a is not None and b is not None and torch.equal(a, b)
        depth = ARCHITECTURE.depth
        assert ours.kept is not None and theirs.kept is not None
        assert torch.equal(ours.kept[:, :depth], theirs.kept[:, :depth])


def test_two_decoders_drop_units_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run = PRETEXTS["mask_xent_value_recon"]([make("mask_xent_value_recon")], small_table())
    assert isinstance(run, Reconstruction)
    used: list[torch.Tensor] = []

    def watched(forward: Any) -> Any:
        def call(x: torch.Tensor, kept: Any) -> torch.Tensor:
            used.extend(units.clone() for units in kept)
            return forward(x, kept)

        return call

    for part in (run.model.encoder, *run.model.decoders):
        monkeypatch.setattr(part, "forward", watched(part.forward))
    kept = run.draws.at(0).kept
    assert kept is not None and kept.shape[1] == ARCHITECTURE.depth + 2
    run.run_epoch()
    first_batch = used[: kept.shape[1]]
    for block, units in enumerate(first_batch):
        assert torch.equal(units, kept[:, block, : ARCHITECTURE.batch_size])
    assert not torch.equal(first_batch[-1], first_batch[-2])


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", BASELINES)
def test_a_replica_that_diverges_is_one_replica(pretext: PretextName) -> None:
    table = small_table()
    calm = make(pretext, 1)
    wild = make(pretext, 2, learning_rate=1e30)
    records = train_pack([calm, wild], table)
    assert [record["status"] for record in records] == ["finished", "diverged"]
    (alone,) = train_pack([calm], table)
    assert without_runtime(alone) == without_runtime(records[0])


def test_what_cannot_be_pretrained_is_refused() -> None:
    for pretext in ("mask_xent", "mask_xent_value_recon"):
        with pytest.raises(ConfigError, match=f"{pretext} predicts which entries are masked, so masking must be on"):
            make(pretext, masking="none", mask_prob=0.0)
    with pytest.raises(ConfigError, match="t_init must be a whole number >= 2, got 1"):
        make("bin_recon", t_init=1)
    with pytest.raises(ConfigError, match=r"pretext must be one of .*, got 'bin_recom'; did you mean 'bin_recon'\?"):
        make("bin_recom")  # type: ignore[arg-type]


def test_pretexts_are_kept_apart() -> None:
    ours, theirs = make("adaptive_binning"), make("value_recon")
    assert ours.id != theirs.id and model_id(ours) != model_id(theirs)
    assert [len(group) for group in group_replicas([ours, theirs, ours])] == [2, 1]
    with pytest.raises(ConfigError, match="replicas of a pack must share pretext, data set"):
        train_pack([ours, theirs], small_table())
    assert Replica.from_identity(theirs.identity()) == theirs


def test_what_came_later_changes_no_id() -> None:
    """Results from before there were baselines keep their names."""
    replica = small_replica(0, {})
    assert "pretext" not in replica.identity()["hyperparameters"]
    assert replica.identity()["protocol"].keys().isdisjoint({"br_bins", "br_categorical"})
    assert Replica.from_identity(replica.identity()) == replica
    other = replace(replica, protocol=Protocol(br_bins="one_less"))
    assert other.id != replica.id and Replica.from_identity(other.identity()) == other


@pytest.mark.usefixtures("path")
def test_losses_fall(path: str) -> None:
    table: EncodedTable = small_table()
    for pretext in BASELINES:
        run = PRETEXTS[pretext]([make(pretext)], table)
        for _ in range(run.epochs):
            run.run_epoch()
        assert run.history["loss"][0, -1] < 0.98 * run.history["loss"][0, 0], pretext
