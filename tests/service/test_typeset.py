"""The table for reading repeats ``table.csv``: numbers, best and second best, ties, empty cells, in both formats."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from sweeps.service.captions_benchmark import table_caption
from sweeps.service.methods import METHOD, METHODS, BenchmarkStudy
from sweeps.service.ranks import rank_scores, ranks_frame
from sweeps.service.tables_benchmark import benchmark_tables
from sweeps.service.typeset import LATEX_WRAPPER
from sweeps.service.typeset_benchmark import latex, markdown, sheet_of
from tests.service.synthetic import METRIC_OF, FakeCard, as_printed, make_benchmark_records

DATASETS = ("eol", "pt")
STUDY = BenchmarkStudy(cards=tuple(FakeCard(name) for name in DATASETS), seeds=(0, 1))


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    records = make_benchmark_records(STUDY, as_printed)
    tables = [benchmark_tables(records, STUDY.only(name), METRIC_OF[name]).table for name in DATASETS]
    return pd.concat(tables, ignore_index=True)


def with_means(table: pd.DataFrame, dataset: str, means: list[float]) -> pd.DataFrame:
    """The table with other means on one data set."""
    changed, rows = table.copy(), table["dataset"] == dataset
    changed.loc[rows, "mean"] = means
    changed.loc[rows, "rank"] = rank_scores(np.array(means), -1 if METRIC_OF[dataset] == "rmse" else 1)
    return changed


def markdown_rows(text: str) -> list[list[str]]:
    """Cells of every line of both tables in the text."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]


def latex_rows(text: str) -> list[list[str]]:
    """Cells of every line between the rules."""
    return [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if line.endswith(r"\\")]


def test_both_formats_print_the_tables_numbers(table: pd.DataFrame) -> None:
    ranks = ranks_frame(table)
    assert ranks is not None
    shown = markdown_rows(markdown(table, "A caption."))
    typeset = latex_rows(latex(table, "A caption."))
    assert shown[0] == [*METHOD, "eol<br>QWK ↑", "pt<br>RMSE ↓", "rank<br>average ↓"]
    assert typeset[0][3:] == ["eol", "pt", "rank"]
    assert typeset[1][3:] == [r"QWK $\uparrow$", r"RMSE $\downarrow$", r"average $\downarrow$"]
    for number, method in enumerate(METHODS):
        line, row = shown[2 + number], typeset[2 + number]
        assert tuple(line[:3]) == tuple(row[:3]) == method.words
        for column, (dataset, scale) in enumerate(zip(DATASETS, (100, 1), strict=True), start=3):
            cell = table[table["dataset"] == dataset].iloc[number]
            expected = [f"{scale * cell[name]:.2f}" for name in ("mean", "sd")]
            assert re.findall(r"\d+\.\d\d", line[column]) == re.findall(r"\d+\.\d\d", row[column]) == expected
        assert re.findall(r"\d+\.\d\d", line[5]) == [f"{ranks['average'][number]:.2f}"]


def test_the_best_is_bold_and_the_second_underlined(table: pd.DataFrame) -> None:
    shown, typeset = markdown_rows(markdown(table, ""))[2:15], latex_rows(latex(table, ""))[2:]
    for column, numbers in ((3, -table["mean"][:13].to_numpy()), (4, table["mean"][13:].to_numpy())):
        first, second = np.argsort(numbers)[:2]
        assert [number for number, line in enumerate(shown) if "**" in line[column]] == [first]
        assert [number for number, line in enumerate(shown) if "<u>" in line[column]] == [second]
        assert [number for number, row in enumerate(typeset) if "textbf" in row[column]] == [first]
        assert [number for number, row in enumerate(typeset) if "underline" in row[column]] == [second]


def test_ties_are_marked_alike(table: pd.DataFrame) -> None:
    tied = with_means(table, "eol", [0.9, 0.9, 0.8, 0.8, 0.8, *[0.7] * 8])
    assert [row[0].place for row in sheet_of(tied).cells] == ["best"] * 2 + ["second"] * 3 + [""] * 8
    same = with_means(table, "eol", [0.9] * 13)
    assert [row[0].place for row in sheet_of(same).cells] == ["best"] * 13
    # Means that print alike are still ranked by all their digits.
    close = with_means(table, "pt", [5.001, 5.0, *[6.0] * 11])
    assert [row[1].place for row in sheet_of(close).cells][:3] == ["second", "best", ""]


def test_cells_without_a_score_and_counts_of_diverged_replicas() -> None:
    def lost(dataset, method, point, seed):
        gone = method == METHODS[0] or (method == METHODS[1] and point.mask_prob == 0.3)
        return None if gone and seed == 0 else as_printed(dataset, method, point, seed)

    study = STUDY.only("eol")
    records = make_benchmark_records(study, lost)
    cells = [row[0] for row in sheet_of(benchmark_tables(records, study, "qwk").table).cells]
    assert (cells[0].mean, cells[0].sd, cells[0].place, cells[0].count) == ("†", "", "", "")
    assert cells[1].count == "†1" and [cell.place for cell in cells].count("best") == 1

    missing = benchmark_tables(records[:-1], study, "qwk").table
    cells = [row[0] for row in sheet_of(missing).cells]
    assert cells[-1].mean == "–" and {cell.place for cell in cells} == {""}
    shown = markdown_rows(markdown(missing, ""))
    assert [shown[number][3] for number in (2, 14)] == ["†", "–"]
    assert [shown[number][3] for number in (17, 29)] == ["†", "–"]  # nor was anything chosen
    assert latex_rows(latex(missing, ""))[2][3] == r"$\dagger$" and latex_rows(latex(missing, ""))[-1][3] == "--"
    both = pd.concat([missing, missing.assign(dataset="hfc")])
    assert [head for head, _ in sheet_of(both).heads] == ["eol", "hfc"]  # no average rank


def test_what_was_chosen_is_told(table: pd.DataFrame) -> None:
    text = markdown(table, "A caption.")
    assert text.startswith("A caption.\n\n| binning")
    choices = markdown_rows(text)[17:]
    assert len(choices) == 13 and choices[0][3:] == ["one candidate"] * 2
    for number, row in enumerate(table[:13].to_dict("records")):
        told = choices[number][3]
        assert (f"p_m {row['mask_prob']:g}" in told) == (row["masking"] != "none")
        assert (f"T {row['t_init']}" in told) == (row["binning"] == "fixed")
        assert (f"T_init {row['t_init']}" in told) == (row["binning"] == "adaptive")


def test_the_fragment_says_how_to_compile_it(table: pd.DataFrame) -> None:
    text = latex(table.assign(dataset=table["dataset"].replace("eol", "breast_cancer")), "10 % & p_m ± 1 × 2")
    comment = [line.removeprefix("% ") for line in text.splitlines() if line.startswith("%")]
    assert comment[1:] == LATEX_WRAPPER.splitlines()
    assert text.isascii() and r"breast\_cancer" in text
    assert r"\caption{10 \% \& p\_m $\pm$ 1 $\times$ 2}" in text
    for rule, count in (("toprule", 1), ("midrule", 3), ("bottomrule", 1)):
        assert text.count(f"\\{rule}") == count
    columns = len(latex_rows(text)[0])
    assert {len(row) for row in latex_rows(text)} == {columns} and columns == 6


def test_the_caption_of_the_table(table: pd.DataFrame) -> None:
    text = table_caption(table, STUDY)
    assert "test scores × 100, errors in target units, mean ± sd over 2 seeds" in text
    assert "chosen on validation" in text and "Ranks are descriptive." in text
    assert "Reduced protocol: 2 seeds (full: 10)." in text
    alone = table_caption(table[:13], STUDY.only("eol").only_seeds([0]))
    assert "test scores × 100, 1 seed;" in alone and "Ranks" not in alone
