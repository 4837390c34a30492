"""All tables of a report: what it rests on, scores, orderings, and counts; together they are report.csv."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from sweeps.service.report_architectures import architectures_frame
from sweeps.service.report_orderings import counts_frame, orderings_frame
from sweeps.service.report_ranks import average_ranks_frame, over_datasets_frame
from sweeps.service.report_scores import alternatives_frame, scores_frame, variance_frame, within_frame
from sweeps.service.report_searches import searches_frame
from sweeps.service.report_sources import TABLES, Sources


@dataclass(frozen=True)
class Report:
    """The tables of a page."""

    sources: Sources
    basis: pd.DataFrame
    """One row per source: data set, study, protocol, and how many replicas it asked for, found and saw diverge."""
    scores: pd.DataFrame
    """See :func:`sweeps.service.report_scores.scores_frame`; likewise the next three."""
    within: pd.DataFrame
    variance: pd.DataFrame
    alternatives: pd.DataFrame
    architectures: pd.DataFrame
    """See :func:`sweeps.service.report_architectures.architectures_frame`."""
    searches: pd.DataFrame
    """See :func:`sweeps.service.report_searches.searches_frame`."""
    orderings: pd.DataFrame
    """See :func:`sweeps.service.report_orderings.orderings_frame`; likewise the next."""
    counts: pd.DataFrame
    ranks: pd.DataFrame
    """See :func:`sweeps.service.report_ranks.average_ranks_frame`."""
    over_datasets: pd.DataFrame
    """See :func:`sweeps.service.report_ranks.over_datasets_frame`."""

    @classmethod
    def of(cls, sources: Sources) -> Report:
        """Read all tables.  Raises DataError when one lacks what it must have."""
        scores, orderings = scores_frame(sources), orderings_frame(sources)
        return cls(
            sources=sources,
            basis=_basis(sources),
            scores=scores,
            within=within_frame(scores),
            variance=variance_frame(sources),
            alternatives=alternatives_frame(sources),
            architectures=architectures_frame(sources),
            searches=searches_frame(sources),
            orderings=orderings,
            counts=counts_frame(orderings),
            ranks=average_ranks_frame(sources),
            over_datasets=over_datasets_frame(sources),
        )

    @property
    def table(self) -> pd.DataFrame:
        """All tables as one; `section` says which of them a row is of."""
        parts = {
            "rests on": self.basis,
            "scores": self.scores,
            "within": self.within,
            "average ranks": self.ranks,
            "orderings": self.orderings,
            "counts": self.counts,
            "over data sets": self.over_datasets,
            "variance": self.variance,
            "architectures": self.architectures,
            "searches": self.searches,
            "without pretraining": self.alternatives,
        }
        # As objects, so that whole numbers stay whole beside rows that lack them.
        frames = [frame.assign(section=name).astype(object) for name, frame in parts.items() if len(frame)]
        every = pd.concat(frames, ignore_index=True)
        return every[["section", *(name for name in every if name != "section")]]


def _basis(sources: Sources) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "dataset": source.datasets[0],
                "study": source.study,
                "protocol": source.protocol,
                "method_version": source.manifest.get("method_version", "not told"),
                **{f"replicas_{name}": source.replicas.get(name, "") for name in ("asked", "found", "diverged")},
            }
            for study in TABLES
            for source in sources.of(study)
        ]
    )
