"""Timed steps stand for a run: how they are scaled, and that they leave no trace."""

from __future__ import annotations

import pytest
import torch

from adaptbin.config import Budget, EncoderName, Finetuning, Hyperparameters, Replica
from adaptbin.data import EncodedTable, get_card
from sweeps.service import timing
from sweeps.service.panels import SensitivityStudy
from sweeps.service.timing import BINS_PER_EPOCH, QUIET_EPOCHS, mean_bins, time_pack
from tests.paths import using
from tests.service.moving import EncoderStudy
from tests.training.tables import finetuned_replica, small_table, with_missing, with_unlabelled


def replicas(epochs: int, probe_epochs: int = 2) -> tuple[Replica, ...]:
    budget = Budget(epochs=epochs, probe_epochs=probe_epochs, probes=2)
    return SensitivityStudy(cards=(get_card("breast_cancer"),), seeds=(0,), budget=budget).all_replicas


def test_bins_grow_from_the_first_to_the_most() -> None:
    point = Hyperparameters()
    assert mean_bins(QUIET_EPOCHS, point, 1350) == 2
    assert mean_bins(QUIET_EPOCHS + 10, point, 1350) == pytest.approx(2 + 10 * 10 * BINS_PER_EPOCH / 2 / 40)
    # On eol, 1000 epochs: 11.5 on average over 210 real replicas.
    assert mean_bins(1000, point, 1350) == pytest.approx(11.5, rel=0.1)
    assert mean_bins(10**6, point, 1350) == pytest.approx(1350 / 96, rel=0.01)
    assert mean_bins(10**6, Hyperparameters(t_max=5), 1350) == pytest.approx(5, rel=0.01)
    assert mean_bins(1000, Hyperparameters(t_init=50), 1350) == 50
    assert mean_bins(1, point, 10) == 2


@pytest.mark.parametrize("path", ["compiled", "plain"])
def test_a_pack_is_timed(breast_cancer: EncodedTable, path: str) -> None:
    if path == "compiled":
        found = time_pack(replicas(1000), breast_cancer, seconds=0.3)
    else:
        with using("plain"):
            found = time_pack(replicas(1000)[:3], breast_cancer, seconds=0.3)
    assert 0.05 < found.per_model < 500
    assert 0 < found.per_replica < 50


def test_timing_leaves_threads_and_random_state_alone(breast_cancer: EncodedTable) -> None:
    before, state = torch.get_num_threads(), torch.get_rng_state()
    pack = replicas(10)
    time_pack(pack[:2], breast_cancer, threads=before + 1, seconds=0.05)
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)
    assert pack == replicas(10)


@pytest.mark.parametrize("slow", [timing.SLOW, 0.0])
def test_a_part_of_the_rows_stands_for_all(
    breast_cancer: EncodedTable, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SLOW", slow)
    # No time at all: two steps of one stack must do, or one of one model.
    found = time_pack(replicas(1000), breast_cancer, seconds=1e-9)
    assert 0.05 < found.per_model < 500


@pytest.mark.parametrize("slow", [timing.SLOW, 0.0])
@pytest.mark.parametrize("encoder", ["mlp", "tabnet"])
def test_fine_tuning_is_timed(
    breast_cancer: EncodedTable, encoder: EncoderName, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SLOW", slow)
    study = EncoderStudy(
        cards=(get_card("breast_cancer"),),
        seeds=(0, 1),
        encoders=(encoder,),
        finetuning=Finetuning(epochs=100),
        budget=Budget(epochs=1000),
    )
    scratch, pretrained = (
        time_pack([r for r in study.all_replicas if r.hyperparameters == point], breast_cancer, seconds=1e-3)
        for point in study.unique_points
    )
    assert scratch.per_model == 0 < pretrained.per_model
    assert 0.001 < scratch.per_replica < 500 and 0.001 < pretrained.per_replica < 500


def test_rows_without_a_label_are_steps_of_pretraining() -> None:
    table = with_missing(with_unlabelled(small_table(), 2000), {0: 0.3})
    for rows, unlabelled in ((100, 0), (256, 0), (400, 144), (9999, 2000)):
        cut = timing._cut(table, rows)
        assert len(cut.pretraining) == min(rows, 2256) and len(cut.pretraining) - len(cut.train) == unlabelled
    found = time_pack([finetuned_replica(0, "adaptive_binning", epochs=100)], table, seconds=0.05)
    assert found.per_model > 0 and found.per_replica > 0
