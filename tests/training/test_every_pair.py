"""Every pretext trains every encoder: probed and fine-tuned, and alone as in the crowd."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, get_args

import pytest

from adaptbin.config import Budget, EncoderName, Finetuning, PretextName, Replica
from adaptbin.metrics import metrics_of
from adaptbin.training.pack import train_pack
from tests.training.tables import ARCHITECTURE, EAGER, finetuned_replica, small_table

EPOCHS = 2
PRETEXTS: list[PretextName] = [name for name in get_args(PretextName) if name != "none"]


def replica(seed: int, pretext: PretextName, encoder: EncoderName, *, tuned: bool) -> Replica:
    tuning = Finetuning(epochs=EPOCHS, learning_rate=1e-2)
    made = finetuned_replica(seed, pretext, encoder=encoder, epochs=EPOCHS, finetuning=tuning)
    if pretext == "adaptive_bin_recon":
        made = replace(made, hyperparameters=replace(made.hyperparameters, **EAGER))
    if tuned:
        return made
    return replace(made, finetuning=None, budget=Budget(epochs=EPOCHS, probe_epochs=EPOCHS, probes=1))


def without_runtime(record: dict[str, Any]) -> str:
    return json.dumps({name: held for name, held in record.items() if name != "runtime"}, allow_nan=False)


@pytest.mark.parametrize("encoder", get_args(EncoderName))
@pytest.mark.parametrize("pretext", PRETEXTS)
@pytest.mark.parametrize("tuned", [False, True], ids=["probed", "fine-tuned"])
def test_a_pack_is_trained_and_a_replica_alone_equals_its_own_in_it(
    tuned: bool, pretext: PretextName, encoder: EncoderName
) -> None:
    """Bit for bit, with a last batch of one row."""
    table = small_table(102)
    assert len(table.train) % ARCHITECTURE.batch_size == 1
    replicas = [replica(seed, pretext, encoder, tuned=tuned) for seed in range(3)]
    crowd = train_pack(replicas, table)
    (alone,) = train_pack(replicas[1:2], table)
    assert without_runtime(alone) == without_runtime(crowd[1])
    assert len({json.dumps(record["curves"]["loss"]) for record in crowd}) == 3
    for record in crowd:
        assert record["status"] == "finished" and len(record["curves"]["loss"]) == EPOCHS
        assert ("finetuning" in record) == tuned
        for part in ("val", "test"):
            scores = record["scores"][part]
            assert set(scores) == set(metrics_of(table.card.task))
            assert all(math.isfinite(score) for score in scores.values())
