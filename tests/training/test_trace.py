"""60 epochs against the released code: bins exactly, losses to the tolerances in tests/golden/README.md."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adaptbin.config import Replica
from tests.paths import BOTH, using
from tests.training.golden_trace import Trace, load_trace, run_trace

TRACE_SEED = 7


def crowd_of(trace: Trace) -> list[Replica]:
    """The trace's replica comes third."""
    return [
        trace.replica(TRACE_SEED, w_sord=3.0, t_init=10),
        trace.replica(1, patience=7, tau=1e-3),
        trace.replica(TRACE_SEED),
        trace.replica(2, masking="random", mask_prob=0.3, learning_rate=3e-3),
    ]


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("crowd", [False, True], ids=["alone", "in a crowd"])
@pytest.mark.parametrize("name", ["hfc", "eol"])
def test_trace_of_the_released_code(name: str, crowd: bool, path: str) -> None:
    trace = load_trace(name)
    replicas, position = (crowd_of(trace), 2) if crowd else ([trace.replica(TRACE_SEED)], 0)
    with using(path):
        run, bins = run_trace(trace, replicas, TRACE_SEED, position)
        embedding = run.embed(trace.table.inputs[:16])[position]
    np.testing.assert_array_equal(bins, trace.arrays["bins_after_epoch"])
    loss = run.history["loss"][position].numpy()
    expected = trace.arrays["epoch_loss"]
    exact = 20 if name == "eol" else 60
    np.testing.assert_allclose(loss[:exact], expected[:exact], rtol=1e-5)
    np.testing.assert_allclose(loss[exact:], expected[exact:], rtol=2e-3)
    for d, column in enumerate(trace.arrays["numerical"]):
        count = int(run.bins.n_bins[position, d])
        edges = run.bins.edges[position, d, 1:count].numpy()
        np.testing.assert_allclose(edges, trace.arrays[f"final_edges.{column}"], rtol=0, atol=1e-7)
    if name == "hfc":
        first16 = torch.from_numpy(trace.arrays["embedding_first16"])
        torch.testing.assert_close(embedding, first16, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["hfc", "eol"])
def test_both_paths_train_alike(name: str) -> None:
    """Losses differ by 1e-7 until a unit that is as good as 0 opens on one path only, sooner at a larger step size."""
    trace, epochs, runs = load_trace(name), 30, []
    for path in BOTH:
        with using(path):
            runs.append(run_trace(trace, crowd_of(trace), TRACE_SEED, 2, epochs)[0].history)
    compiled, plain = runs
    for r, alike in enumerate((epochs, epochs, epochs, 10)):
        torch.testing.assert_close(compiled["loss"][r, :alike], plain["loss"][r, :alike], rtol=1e-4, atol=0)
        for key in ("splits", "triggers", "mean_bins", "max_bins"):
            assert torch.equal(compiled[key][r, :alike], plain[key][r, :alike])
    assert compiled["splits"][2:, :10].sum(1).min() > 0
