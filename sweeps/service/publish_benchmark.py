"""What a benchmark leaves: tables to compute with and to read, comparisons, figure, caption and manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.text import Text

from sweeps.service.captions_benchmark import (
    caption_text,
    contrasts_text,
    joint_caption_text,
    objectives_text,
    ranks_text,
    refinement_text,
    table_caption,
)
from sweeps.service.contrasts import PROBE_NOTE
from sweeps.service.contrasts_benchmark import contrasts_frame, pairs_frame
from sweeps.service.figures_benchmark import benchmark_figure, rank_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.files import write_text
from sweeps.service.methods import BenchmarkStudy
from sweeps.service.notes import protocol_notes
from sweeps.service.pretext_choices import PretextChoices, write_choices
from sweeps.service.publish import Published
from sweeps.service.ranks import ranks_frame
from sweeps.service.tables import write_manifest, write_tables
from sweeps.service.tables_benchmark import benchmark_tables, ranks_table, summary_table
from sweeps.service.tables_grid import point_summaries
from sweeps.service.typeset_benchmark import latex, markdown

if TYPE_CHECKING:
    from rich.console import RenderableType

RANKED_FILES = ("ranks.csv", "figure.png", "figure.pdf", "figure.svg")
"""Files of several data sets that are there only while no cell is missing."""


def publish(
    study: BenchmarkStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    primary: Mapping[str, str],
    manifest: Mapping[str, Any],
) -> Published:
    """Write ``table.csv``, ``table.md``, ``table.tex``, ``caption.txt`` and ``manifest.json``.

    Of one data set also ``candidates.csv``, ``replicas.csv``, ``choices.json`` and the figure; of several
    ``contrasts.csv``, ``contrast_pairs.csv`` and, unless a cell is missing, ``ranks.csv`` and the rank diagram.
    ``primary`` names the primary metric per data set.
    """
    per_dataset = {name: benchmark_tables(records, study.only(name), primary[name]) for name in study.datasets}
    table = pd.concat([tables.table for tables in per_dataset.values()], ignore_index=True)
    files = write_tables(folder, table=table)
    shown: list[RenderableType] = []
    if len(per_dataset) == 1:
        (tables,) = per_dataset.values()
        files += write_tables(folder, candidates=tables.candidates, replicas=tables.replicas)
        files += save_figure(benchmark_figure(tables, study), folder)
        choices = PretextChoices.of(tables.objectives, study, primary[study.datasets[0]])
        files.append(write_choices(choices, folder))
        caption = caption_text(tables, study)
        sentences = filter(None, (objectives_text(tables), refinement_text(tables)))
        shown += [summary_table(table), *map(Text, sentences)]
    else:
        pairs = pairs_frame(table)
        contrasts = contrasts_frame(pairs, table, untested=PROBE_NOTE if study.seeds_vary == "probe" else "")
        ranks = ranks_frame(table)
        files += write_tables(folder, contrasts=contrasts, contrast_pairs=pairs)
        if ranks is None:
            # Those of an earlier run rest on other results than the tables that come now.
            for name in RANKED_FILES:
                (folder / name).unlink(missing_ok=True)
            shown.append(Text(ranks_text(table)))
        else:
            files += write_tables(folder, ranks=ranks)
            files += save_figure(rank_figure(table, study), folder)
            shown.append(ranks_table(ranks))
        shown.append(Text(contrasts_text(contrasts)))
        caption = joint_caption_text(table, contrasts, study)
    words = table_caption(table, study)
    files.append(write_text(folder / "table.md", markdown(table, words)))
    files.append(write_text(folder / "table.tex", latex(table, words)))
    files.append(write_text(folder / "caption.txt", caption))
    metrics = {name: primary[name] for name in study.datasets}
    told = {**manifest, "notes": list(protocol_notes(study)), "metrics": metrics}
    files.append(write_manifest(folder / "manifest.json", told))
    return Published(
        folder,
        tuple(files),
        summaries={
            (name, study.seeds_vary): point_summaries(tables.points, study.only(name))
            for name, tables in per_dataset.items()
        },
        shown=tuple(shown),
    )
