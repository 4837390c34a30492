"""What the benchmark's figures and tables say in words; all of it is read from the tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.captions_masking import RULE
from sweeps.service.contrasts_benchmark import LEAST_DATASETS
from sweeps.service.methods import METHODS, BenchmarkStudy, Method, candidate_words
from sweeps.service.notes import protocol_notes, seeds_and_probes
from sweeps.service.ranks import LEVEL, critical_distance, missing_cells
from sweeps.service.stats import IDENTICAL_MARK
from sweeps.service.tables_benchmark import BenchmarkTables
from sweeps.service.typeset import LATEX_WRAPPER

_NAMED_CELLS = 5

LATEX_NOTE = (
    "table.tex is a fragment for documents that use the booktabs package; alone it compiles in its own folder in "
    f"{' '.join(LATEX_WRAPPER.split())}"
)


def tuning_text(study: BenchmarkStudy) -> str:
    """How each method's p_m and T were chosen."""
    sides = {name: ", ".join(map(str, values)) for name, values in study.extent.items()}
    if not study.is_tuned:
        return (
            f"No method was tuned: p_m {sides['mask_prob']} where it masks, T (T_init of adaptive bins) "
            f"{sides['t_init']} where it has bins, everything else at the default."
        )
    counts = sorted({len(candidates) for candidates in study.candidates.values()})
    return (
        f"Each method was tuned on validation: p_m {sides['mask_prob']} where it masks, T (T_init of adaptive bins) "
        f"{sides['t_init']} where it has bins, so {counts[0]} to {counts[-1]} candidates, everything else at the "
        f"default; {RULE}. Test scores of candidates that were not chosen are not shown."
    )


def objectives_text(tables: BenchmarkTables) -> str:
    """What is chosen for each objective over all its methods, and for which nothing is; ``choices.json`` in words."""
    chosen = {objective: decision.chosen for objective, decision in tables.objectives.items()}
    told = "; ".join(candidate_words(name, point) for name, point in chosen.items() if point is not None)
    undecided = [
        f" Nothing is chosen for {objective}: {decision.reason}."
        for objective, decision in tables.objectives.items()
        if decision.chosen is None
    ]
    return f"Chosen for each objective, over all its maskings: {told or 'nothing'}.{''.join(undecided)}"


def refinement_text(tables: BenchmarkTables) -> str:
    """Whether adaptive bins were at work: triggers, splits and bins of each masking's choice; empty without one."""
    candidates = tables.candidates
    told = [
        f"{row['masking']} {row['triggers_mean']:.0f}, {row['splits_mean']:.0f}, {row['bins_mean']:.1f}"
        for row in candidates[candidates["chosen"] & (candidates["objective"] == "Ours")].to_dict("records")
    ]
    what = "Triggers and splits per replica, and bins per feature at the end, of adaptive binning by masking"
    return f"{what}: {'; '.join(told)}." if told else ""


def caption_text(tables: BenchmarkTables, study: BenchmarkStudy) -> str:
    """The caption of one data set as plain text: the figure, the tuning, what is missing, departures."""
    (dataset,), table, replicas = study.datasets, tables.table, tables.replicas
    metric = get_metric(table["metric"].iloc[0])
    sizes = sorted(replicas["n_test"].unique())
    rows = f" (n_test = {' to '.join(str(size) for size in dict.fromkeys((sizes[0], sizes[-1])))})" if sizes else ""
    error = table["bootstrap_se"].mean()
    lines = [
        f"Linear probes of {dataset}: test {axis_metric(metric)}{rows} of {len(table)} methods. Dots and bars: mean ± "
        f"sd over {seeds_and_probes(study)}; small dots: single seeds. Beside them: the p_m and T that validation "
        f"chose{'' if study.is_tuned else ' for adaptive binning'}, and the same numbers in print; bold: the best "
        "mean.",
        tuning_text(study),
        f"No test was planned within one data set: differences are descriptive{_error_text(error)}.",
        *undecided_text(table),
        objectives_text(tables),
        refinement_text(tables),
        _diverged_text(table),
        LATEX_NOTE,
        *(f"{note}." for note in protocol_notes(study)),
    ]
    return "\n".join(filter(None, lines)) + "\n"


def joint_caption_text(table: pd.DataFrame, contrasts: pd.DataFrame, study: BenchmarkStudy) -> str:
    """The caption of several data sets: the ranks, or why there are none; the comparisons; departures."""
    named = ", ".join(f"{name} ({metric_of(table, name)})" for name in table["dataset"].unique())
    lines = [
        f"Average ranks of {len(METHODS)} methods over {table['dataset'].nunique()} data sets: {named}.",
        ranks_text(table),
        f"Ranked are mean test scores over {seeds_and_probes(study)}; ties share the mean of their ranks.",
        tuning_text(study),
        contrasts_text(contrasts),
        _diverged_text(table),
        LATEX_NOTE,
        *(f"{note}." for note in protocol_notes(study)),
    ]
    return "\n".join(filter(None, lines)) + "\n"


def metric_of(table: pd.DataFrame, dataset: str) -> str:
    """Label of the metric of a data set."""
    return get_metric(table.loc[table["dataset"] == dataset, "metric"].iloc[0]).label


def ranks_text(table: pd.DataFrame) -> str:
    """What the average ranks can tell, or which cells keep them from being printed."""
    missing = missing_cells(table)
    if missing:
        more = f" and {len(missing) - _NAMED_CELLS} more" if len(missing) > _NAMED_CELLS else ""
        return (
            f"No average ranks, and no rank diagram: {len(missing)} of {len(table)} cells have no result "
            f"({', '.join(missing[:_NAMED_CELLS])}{more})."
        )
    n_datasets = table["dataset"].nunique()
    distance = critical_distance(len(METHODS), n_datasets)
    return (
        f"Large dots: average ranks; small dots: ranks on single data sets. Ranks are descriptive. Grey: less than the "
        f"critical distance of the Nemenyi test ({distance:.2f} ranks for {len(METHODS)} methods on {n_datasets} data "
        f"sets, level {LEVEL:g}) from the best; methods within it cannot be told apart from it by their ranks."
    )


def contrasts_text(contrasts: pd.DataFrame) -> str:
    """The comparisons that were named beforehand, with their test, or why there is none."""
    tested = contrasts[contrasts["test"] != "none"]
    how = (
        "on each data set an arm is the method of it with the best validation score; differences of mean test scores, "
        "signed so that positive is better, errors in sd of the train target"
    )
    if tested.empty:
        reason = str(contrasts["note"].iloc[0]).removeprefix("no test: ")
        test = f"not tested: {reason}"
    else:
        test = (
            f"exact two-sided Wilcoxon signed-rank test over data sets, Holm over {len(contrasts)} comparisons; least "
            f"possible p {tested['p_floor'].min():.2g}, adjusted {tested['p_floor_holm'].min():.2g}; fewer than "
            f"{LEAST_DATASETS} data sets are not tested"
        )
    told = "; ".join(_contrast_text(row) for row in contrasts.to_dict("records") if row["n"])
    return f"Comparisons named beforehand ({how}; {test}){': ' if told else ''}{told}."


def _contrast_text(row: dict[Any, Any]) -> str:
    equal = f", equal on {row['n_equal']}" if row["n_equal"] else ""
    p = "" if row["test"] == "none" else f", p {row['p']:.2g}, adjusted {row['p_holm']:.2g}"
    mark = f" {row['mark']}" if row["mark"] and row["mark"] != IDENTICAL_MARK else ""
    return (
        f"{row['arm']} against {row['against']}: {row['difference']:+.4f}, better on {row['n_better']} of {row['n']}"
        f"{equal}{p}{mark}"
    )


def undecided_text(table: pd.DataFrame) -> list[str]:
    """Why validation could choose nothing for some methods; nothing where it chose for all."""
    rows = table[table["status"] != "chosen"].to_dict("records")
    told = [f"{Method.of_row(row).name}: {row['reason']}" for row in rows[:_NAMED_CELLS]]
    more = [f"and {len(rows) - _NAMED_CELLS} more"] if len(rows) > _NAMED_CELLS else []
    return [f"Nothing is chosen for {'; '.join([*told, *more])}."] if rows else []


def _diverged_text(table: pd.DataFrame) -> str:
    diverged = int(table["n_diverged"].sum())
    if not diverged:
        return "No replica diverged."
    worst = (table["status"] == "diverged").any()
    return (
        f"†n: n replicas diverged, over all candidates of a method ({diverged} in all); a candidate with one cannot be "
        f"chosen{', and a method without another (†) has the worst rank' if worst else ''}."
    )


def _error_text(error: float) -> str:
    return "" if pd.isna(error) else f"; bootstrap SE of a test score over test rows {error:.3f}, in no bar"


def table_caption(table: pd.DataFrame, study: BenchmarkStudy) -> str:
    """What stands above the table in Markdown and LaTeX."""
    notes = "".join(f" {note}." for note in protocol_notes(study))
    seeds = f"mean ± sd over {len(study.seeds)} seeds" if len(study.seeds) > 1 else "1 seed"
    errors = any(get_metric(name).in_target_units for name in table["metric"].unique())
    tuned = "; p_m and T of each method were chosen on validation" if study.is_tuned else ""
    ranks = " Ranks are descriptive." if table["dataset"].nunique() > 1 else ""
    return (
        f"Linear probes: test scores × 100{', errors in target units' if errors else ''}, {seeds}{tuned}. "
        f"Bold: best; underlined: second best.{ranks}{notes}"
    )
