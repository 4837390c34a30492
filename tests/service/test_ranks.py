"""Ranks: the paper's own from its printed scores, ties, errors, diverged methods, and the critical distance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sweeps.service.methods import METHOD, METHODS
from sweeps.service.ranks import critical_distance, missing_cells, rank_scores, ranks_frame
from tests.service.synthetic import METRIC_OF, PAPER


def table_of(scores: dict[str, list[float]], status: str = "chosen") -> pd.DataFrame:
    """A table of methods with the columns that ranks are made from."""
    rows = []
    for dataset, means in scores.items():
        ranks = rank_scores(np.array(means), -1 if METRIC_OF[dataset] == "rmse" else 1)
        for method, rank in zip(METHODS, ranks, strict=True):
            rows.append(dict(zip(METHOD, method.words, strict=True)) | {"dataset": dataset, "rank": rank})
    return pd.DataFrame(rows).assign(status=status)


def test_the_papers_average_ranks_come_from_its_scores() -> None:
    printed = PAPER["linear_probe"]
    table = table_of({name: [row["scores"][name][0] for row in printed] for name in METRIC_OF})
    ranks = ranks_frame(table)
    assert ranks is not None and list(ranks.columns) == [*METHOD, *METRIC_OF, "average"]
    assert [tuple(row) for row in ranks[list(METHOD)].to_numpy()] == [method.words for method in METHODS]
    np.testing.assert_allclose(ranks["average"], [row["average_rank"] for row in printed], atol=0.0051)


def test_ties_share_the_mean_rank_and_errors_count_upwards() -> None:
    np.testing.assert_array_equal(rank_scores(np.array([0.9, 0.7, 0.9, 0.8]), 1), [1.5, 4, 1.5, 3])
    np.testing.assert_array_equal(rank_scores(np.array([4.5, 5.0, 4.5, 4.5]), -1), [2, 4, 2, 2])
    # The order of a sum is no difference, a real one is.
    np.testing.assert_array_equal(rank_scores(np.array([0.9, 0.9 + 1e-15, 0.9 + 1e-9]), 1), [2.5, 2.5, 1])


def test_a_diverged_method_has_the_worst_rank() -> None:
    scores = np.array([np.nan, 1.0, np.nan, 2.0])
    np.testing.assert_array_equal(rank_scores(scores, 1), [3.5, 2, 3.5, 1])
    np.testing.assert_array_equal(rank_scores(scores, -1), [3.5, 1, 3.5, 2])


def test_no_average_while_a_cell_is_missing() -> None:
    table = table_of({"eol": list(np.arange(13.0)), "pt": list(np.arange(13.0))})
    ranks = ranks_frame(table)
    assert ranks is not None and list(ranks["average"]) == [7.0] * 13
    table.loc[[3, 14], "status"] = "missing"
    assert ranks_frame(table) is None
    assert missing_cells(table) == ["eol none/constant/MR", "pt none/constant/VR"]
    table.loc[[3, 14], "status"] = "diverged"
    assert ranks_frame(table) is not None and missing_cells(table) == []


def test_the_critical_distance_is_nemenyis() -> None:
    # Demsar (2006), table 5: q at .05 for 2, 5 and 10 methods.
    for k, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        assert critical_distance(k, 10) == pytest.approx(q * np.sqrt(k * (k + 1) / 60), abs=2e-3)
    assert critical_distance(13, 8) == pytest.approx(6.45, abs=0.005)
    assert critical_distance(13, 32) == pytest.approx(critical_distance(13, 8) / 2)
