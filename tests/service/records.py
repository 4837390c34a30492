"""Made-up result records, for tests of whatever reads them."""

from __future__ import annotations

from typing import Any

from adaptbin.config import Architecture, Budget, Hyperparameters, Replica

DEFAULT = Hyperparameters()
TAU = Hyperparameters(tau=1e-3)
PATIENCE = Hyperparameters(patience=20)


def make_record(
    hyperparameters: Hyperparameters, seed: int, *, epochs: int = 12, diverged: bool = False
) -> dict[str, Any]:
    """A record as training writes it; its numbers are made from seed and epoch alone."""
    replica = Replica(
        dataset="eol",
        fingerprint="0123456789abcdef" * 4,
        architecture=Architecture(width=32, depth=2, batch_size=64),
        hyperparameters=hyperparameters,
        seed=seed,
        budget=Budget(epochs=epochs, probe_epochs=10),
    )
    points = min(epochs, 200)
    epoch = [(i + 1) * epochs // points for i in range(points)]
    score = 0.9 + seed / 1000
    return {
        "schema": 1,
        "id": replica.id,
        "identity": replica.identity(),
        "status": "diverged" if diverged else "finished",
        "diverged_at": epochs if diverged else None,
        "scores": {} if diverged else {"val": {"qwk": score}, "test": {"qwk": score - 0.01, "accuracy": score}},
        "bins": {"features": ["age"], "final": [12], "triggers": 7, "splits": points},
        "curves": {
            "epoch": epoch,
            "loss": [20.0 - e / epochs for e in epoch],
            "mean_bins": [2.0 + e / epochs for e in epoch],
            "max_bins": [float(2 + e) for e in epoch],
            "splits": [1] * points,
        },
        "runtime": {
            "seconds": 12.5,
            "device": "cpu",
            "pack_size": 3,
            "finished_at": f"2026-03-01T10:00:{seed:02d}Z",
            "git": {"sha": "c0ffee", "dirty": False},
        },
    }
