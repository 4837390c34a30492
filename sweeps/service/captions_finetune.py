"""What the fine-tuning figure and table say in words; all of it is read from the tables."""

from __future__ import annotations

import math

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.captions import Words, axis_metric, figure_notes, floor_text, mark_key, testing_text
from sweeps.service.methods_finetune import AGAINST, ENCODER_TITLES, FinetuneStudy
from sweeps.service.notes import seeds_and_probes
from sweeps.service.rows_finetune import WIDE, goes_beyond
from sweeps.service.tables import rows_of
from sweeps.service.tables_finetune import FinetuneTables
from sweeps.service.typeset import LATEX_WRAPPER
from sweeps.service.typeset_finetune import LETTERS

WORDS = Words("supervised", "supervised", "encoder", "n pairs with a diverged replica")

_METHODS = (
    "supervised is trained on labels alone, from scratch; MR (which entries are masked, and the values), BR (indices "
    "of fixed bins) and Ours (adaptive binning) are pretrained without labels first"
)


def axis_label(dataset: str, tables: FinetuneTables) -> str:
    """Label of the axis of gains of one data set."""
    metric = get_metric(rows_of(tables.replicas, dataset)["metric"].iloc[0])
    return f"Test {metric.label}, {'gain' if metric.higher_is_better else 'decrease'}"


def figure_key(tables: FinetuneTables) -> str:
    """One line that explains the marks of the figure."""
    arrows = "Arrows: goes on beyond the axis." if any(goes_beyond(tables, name) for name in tables.datasets) else ""
    return " ".join(filter(None, [mark_key(tables.against("supervised"), WORDS), arrows]))


def caption_text(tables: FinetuneTables, study: FinetuneStudy) -> str:
    """The caption as plain text: arms, drawing and tests, then a line or two per data set, and notes."""
    lines = [
        f"Fine-tuning of whole models on {', '.join(tables.datasets)} with {_encoders(study)}: {_METHODS}. All are "
        f"then trained as a whole, {study.finetuning.epochs} epochs of which validation chooses one.",
        _drawn(study),
        _arrows(tables),
        *testing_text(tables.against("supervised"), study, WORDS),
        _second_family(tables.against("BR")),
        f"table.tex is a fragment for documents that use the booktabs package; alone it compiles in its own folder in "
        f"{' '.join(LATEX_WRAPPER.split())}.",
    ]
    of_datasets = [line for name in tables.datasets for line in (_dataset_line(tables, name), _bins_line(tables, name))]
    notes = [f"{note}." for note in figure_notes(study, tables.replicas)]
    return "\n".join([" ".join(filter(None, lines)), *filter(None, of_datasets), *notes]) + "\n"


def _encoders(study: FinetuneStudy) -> str:
    return ", ".join(ENCODER_TITLES[name] for name in study.encoders)


def _drawn(study: FinetuneStudy) -> str:
    single = len(study.seeds) == 1
    corrected = ", corrected for shared rows between splits" if study.seeds_vary == "split" else ""
    bars = f"bars: 95 % t intervals of that mean, not adjusted{corrected}; "
    if single or study.seeds_vary == "probe":
        bars = ""
    dots = "" if single else "small dots: single seeds; "
    return (
        "Markers: mean difference of the test score to supervised with the same encoder and seed, over "
        f"{seeds_and_probes(study)}, signed so that right is better; {bars}{dots}grey: the equivalence margin."
    )


def _arrows(tables: FinetuneTables) -> str:
    if not any(goes_beyond(tables, name) for name in tables.datasets):
        return ""
    return (
        f"An encoder that reaches more than {WIDE} times as far as the median encoder does not widen the axis; arrows: "
        "goes on beyond it, see significance.csv and replicas.csv."
    )


def _second_family(contrasts: pd.DataFrame) -> str:
    if contrasts.empty or (contrasts["test"] == "none").all():
        return ""
    floor = floor_text(contrasts[contrasts["test"] != "none"])
    return (
        f"{' and '.join(AGAINST['BR'])} are tested against BR, too: of each encoder a family of its own, of "
        f"{len(AGAINST['BR'])}, whose marks are in the table ({floor})."
    )


def _dataset_line(tables: FinetuneTables, dataset: str) -> str:
    """What the tests of one data set rest on: rows, scores from scratch, noise, floors, margin, and what diverged."""
    replicas, contrasts = rows_of(tables.replicas, dataset), rows_of(tables.against("supervised"), dataset)
    scratch = rows_of(tables.table, dataset)
    scratch = scratch[(scratch["method"] == "supervised") & (scratch["n"] > 0)]
    tested = contrasts[contrasts["test"] != "none"]
    sizes = sorted(replicas["n_test"].unique())
    role = ", exploratory: not the primary metric" if (replicas["role"] == "exploratory").any() else ""
    parts = [
        f"{axis_metric(get_metric(replicas['metric'].iloc[0]))}{role}",
        f"n_test = {' to '.join(str(size) for size in dict.fromkeys((sizes[0], sizes[-1])))}",
    ]
    if len(scratch):
        scores = ", ".join(f"{ENCODER_TITLES[row['encoder']]} {row['mean']:.4f}" for row in scratch.to_dict("records"))
        parts.append(f"supervised {scores}")
    if len(errors := replicas["bootstrap_se"].dropna()):
        parts.append(f"bootstrap SE of a score over test rows {errors.mean():.3f}")
    if len(tested):
        pairs = sorted(tested["n"].unique())
        parts.append(f"n = {' to '.join(str(count) for count in dict.fromkeys((pairs[0], pairs[-1])))} pairs")
        parts += [floor_text(tested), f"margin ±{tested['margin'].iloc[0]:.3g}"]
        if out := int(tested["margin_out_of_reach"].sum()):
            parts.append(f"margin out of reach in {out} of {len(tested)} contrasts")
        if not math.isnan(detectable := tested["detectable"].median()):
            parts.append(f"detectable at 80 % power {detectable:.3g} (median of contrasts)")
    if len(tested) and len(untested := contrasts[contrasts["test"] == "none"]):
        parts.append(f"{len(untested)} contrasts without a test")
    diverged = int((replicas["status"] == "diverged").sum())
    parts.append(f"{diverged} of {len(replicas)} replicas diverged" if diverged else "none diverged")
    return f"{dataset}: {'; '.join(parts)}."


def _bins_line(tables: FinetuneTables, dataset: str) -> str:
    """Whether adaptive bins were at work: triggers, splits and bins of Ours with every encoder."""
    rows = rows_of(tables.table, dataset)
    told = [
        f"{ENCODER_TITLES[row['encoder']]} {row['triggers_mean']:.0f}, {row['splits_mean']:.0f}, {row['bins_mean']:.1f}"
        for row in rows[(rows["method"] == "Ours") & (rows["n"] > 0)].to_dict("records")
    ]
    return f"{dataset}, triggers, splits and bins per feature of Ours: {'; '.join(told)}." if told else ""


def table_caption(tables: FinetuneTables, study: FinetuneStudy) -> str:
    """What stands above the table in Markdown and LaTeX."""
    seeds = f"mean ± sd over {len(study.seeds)} seeds" if len(study.seeds) > 1 else "1 seed"
    errors = any(get_metric(name).in_target_units for name in tables.table["metric"].unique())
    notes = "".join(f" {note}." for note in figure_notes(study, tables.replicas))
    words = WORDS._replace(against=" or ".join(AGAINST), lost="n diverged seeds, not in the mean")
    letters = ", ".join(f"{letter} against {other}" for other, letter in LETTERS.items())
    return (
        f"Fine-tuning: test scores × 100{', errors in target units' if errors else ''}, {seeds}. Bold: the best mean "
        f"of an encoder. Marks, {letters}, paired by seed: {mark_key(tables.significance, words)}{notes}"
    )
