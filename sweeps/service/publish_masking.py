"""What a masking study leaves: tables, heat maps, caption, manifest, and its choice for later studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from sweeps.service.captions_masking import caption_text, choice_text
from sweeps.service.choice import CHOICE_FILE, write_choice
from sweeps.service.decision import choice_of
from sweeps.service.figures_masking import masking_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.files import write_text
from sweeps.service.grid import MaskingStudy
from sweeps.service.notes import protocol_notes
from sweeps.service.publish import Published
from sweeps.service.tables import write_manifest, write_tables
from sweeps.service.tables_grid import point_summaries
from sweeps.service.tables_masking import masking_tables, summary_table


def publish(
    study: MaskingStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    primary: Mapping[str, str],
    show_test: bool,
    manifest: Mapping[str, Any],
) -> Published:
    """Write ``replicas.csv``, ``points.csv``, the figure, ``caption.txt``, ``choice.json`` and ``manifest.json``.

    ``study`` is of one data set; ``primary`` names its primary metric.  Where nothing can be chosen there is no
    ``choice.json`` afterwards.
    """
    (dataset,) = study.datasets
    metric = primary[dataset]
    tables = masking_tables(records, study, metric, show_test=show_test)
    choice = choice_of(tables.decision, study, metric)
    if choice is None:
        # An earlier one rests on other results than the tables that come now.
        (folder / CHOICE_FILE).unlink(missing_ok=True)
    files = write_tables(folder, replicas=tables.replicas, points=tables.points)
    files += save_figure(masking_figure(tables, study, show_test=show_test), folder)
    files.append(write_text(folder / "caption.txt", caption_text(tables, study, show_test=show_test)))
    if choice is not None:
        files.append(write_choice(choice, folder))
    notes = list(protocol_notes(study))
    chosen = None if choice is None else choice.hyperparameters.to_dict()
    told = {
        **manifest,
        "notes": notes,
        "metrics": {dataset: metric},
        "chosen": chosen,
    }
    files.append(write_manifest(folder / "manifest.json", told))
    return Published(
        folder,
        tuple(files),
        summaries={(dataset, study.seeds_vary): point_summaries(tables.points, study)},
        shown=(summary_table(tables, study, show_test=show_test), Text(choice_text(tables, study))),
    )
