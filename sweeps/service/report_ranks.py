"""Average ranks over the data sets whose benchmark was run, beside the paper's over the same, and contrasts over them.

They rest on the tables of single data sets, so it does not matter whether these were trained by one command or by
several, on one machine or on many.  A rank compares methods on one data set under one protocol; therefore data sets of
several protocols can be averaged, too, and are, beside the averages of each protocol; but nothing is tested over them,
since what was named beforehand are tests over data sets of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.contrasts import PROBE_NOTE
from sweeps.service.contrasts_benchmark import contrasts_frame, pairs_frame
from sweeps.service.methods import METHOD
from sweeps.service.paper import linear_probe_scores
from sweeps.service.ranks import critical_distance, missing_cells, rank_scores, ranks_frame
from sweeps.service.report_sources import Source, Sources

EVERY_PROTOCOL = "whatever the protocol"
"""What the group of all data sets is called, where their protocols differ."""

_ALSO = {"n_equal": "equal", "n_diverged": "with a diverged arm"}
"""Counts of a contrast that are told where they are not 0."""

RANK_COLUMNS = ("name", "datasets", "n_datasets", "protocol", "paper_mean", "mean", "gap", "critical_distance")

RANKS = (
    "Ranks are descriptive; 1 is the best. Paper: ranks over the same data sets of the means that it prints. Averages "
    "that differ by less than {distance:.2f} cannot be told apart (Nemenyi, level .05)."
)
"""What a reader of ranks must know; `distance` is their critical distance."""


def average_ranks_frame(sources: Sources) -> pd.DataFrame:
    """One row per group of data sets and method, with columns :data:`RANK_COLUMNS`.

    A group holds all data sets of one protocol whose table has no missing cell, or all of whatever protocol, and at
    least two.  `mean` is our average rank over them; `paper_mean` the paper's over the same, from the means that its
    Table 1 prints, and empty where it lacks one of them; `gap` is ours minus the paper's.  Average ranks nearer to each
    other than `critical_distance` cannot be told apart (Nemenyi).
    """
    rows: list[dict[str, Any]] = []
    for protocol, group in _groups(sources):
        ranks = ranks_frame(_joined(group))
        assert ranks is not None  # no group holds a missing cell
        datasets, paper = _names(group), _paper_ranks(group)
        for row in ranks.to_dict("records"):
            name = "/".join(row[part] for part in METHOD)
            rows.append(
                {
                    "name": name,
                    "datasets": "+".join(datasets),
                    "n_datasets": len(datasets),
                    "protocol": protocol,
                    "paper_mean": paper.get(name, math.nan),
                    "mean": row["average"],
                    "gap": row["average"] - paper.get(name, math.nan),
                    "critical_distance": critical_distance(len(ranks), len(datasets)),
                }
            )
    return pd.DataFrame(rows, columns=list(RANK_COLUMNS))


def over_datasets_frame(sources: Sources) -> pd.DataFrame:
    """The contrasts over data sets that were named beforehand, with `datasets` and `protocol` of their group.

    Columns: :data:`sweeps.service.contrasts_benchmark.COLUMNS`, whose module says what is tested, and these two.
    """
    frames = []
    for protocol, group in _groups(sources):
        table = _joined(group)
        contrasts = contrasts_frame(pairs_frame(table), table, untested=_untested(protocol, group))
        frames.append(contrasts.assign(datasets="+".join(_names(group)), protocol=protocol))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["datasets", "protocol"])


def contrast_lines(contrasts: pd.DataFrame, protocol: str, datasets: str) -> list[str]:
    """The rows of :func:`over_datasets_frame` that are of one group, in words."""
    alike = contrasts[(contrasts["protocol"] == protocol) & (contrasts["datasets"] == datasets)]
    lines = [f"- {_contrast_text(row)}" for row in alike.to_dict("records")]
    return ["Contrasts that were named beforehand, over these data sets:", "", *lines]


def _contrast_text(row: Mapping[Any, Any]) -> str:
    counts = [f"better on {row['n_better']} of {row['n']}"]
    counts += [f"{words} on {row[name]}" for name, words in _ALSO.items() if row[name]]
    tested = [] if row["test"] == "none" else [f"p {row['p']:.2g}, adjusted {row['p_holm']:.2g} {row['mark']}".strip()]
    told = "; ".join([", ".join(counts), *tested, *filter(None, [row["note"]])])
    return f"{row['arm']} against {row['against']}: {told}"


def without_rank(sources: Sources) -> list[str]:
    """Data sets with a benchmark in which a cell is missing, so that nobody has a rank."""
    return [source.datasets[0] for source in sources.of("benchmark") if missing_cells(_table(source))]


def _untested(protocol: str, group: Sequence[Source]) -> str:
    """Why nothing is tested over a group; empty where it is."""
    if protocol == EVERY_PROTOCOL:
        return "no test: protocols differ"
    return PROBE_NOTE if any(source.manifest.get("seeds_vary") == "probe" for source in group) else ""


def _groups(sources: Sources) -> Iterator[tuple[str, Sequence[Source]]]:
    whole = [source for source in sources.of("benchmark") if not missing_cells(_table(source))]
    protocols = list(dict.fromkeys(source.protocol for source in whole))
    for protocol in protocols:
        alike = [source for source in whole if source.protocol == protocol]
        if len(alike) > 1:
            yield protocol, alike
    if len(protocols) > 1:
        yield EVERY_PROTOCOL, whole


def _names(group: Sequence[Source]) -> list[str]:
    return [source.datasets[0] for source in group]


def _paper_ranks(group: Sequence[Source]) -> dict[str, float]:
    """Method -> average over the group of its rank by the paper's printed means; empty unless it prints them all."""
    scores = linear_probe_scores()
    ranks = []
    for source in group:
        (dataset,) = source.datasets
        if any(dataset not in of_method for of_method in scores.values()):
            return {}
        means = np.array([of_method[dataset].mean for of_method in scores.values()])
        ranks.append(rank_scores(means, get_metric(source.manifest["metrics"][dataset]).sign))
    return dict(zip(scores, np.mean(ranks, axis=0).tolist(), strict=True))


def _joined(group: Sequence[Source]) -> pd.DataFrame:
    return pd.concat([_table(source) for source in group], ignore_index=True)


def _table(source: Source) -> pd.DataFrame:
    table = source.table("table.csv")
    assert table is not None  # without it there is no source
    return table
