"""The report as a person gets it: page, table, console, refusals, and the committed page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from adaptbin.config import Protocol
from sweeps import ablation, masking, report, sensitivity
from sweeps.service.parameters import PAPERS
from sweeps.service.report_page import page
from sweeps.service.report_sources import find_sources
from sweeps.service.report_tables import Report
from sweeps.service.tables import write_frame
from tests.scripts import CountingRunner
from tests.service.report_folders import (
    REDUCED,
    ablation_tables,
    alternatives_table,
    architecture_tables,
    benchmark_table,
    finetune_tables,
    lost,
    masking_tables,
    search_tables,
    sensitivity_tables,
    variance_tables,
    write_study,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """All studies of two data sets, one of them reduced."""
    folder = tmp_path / "results"
    shifts = {"adaptive/none/Ours": -0.1}
    for name in ("eol", "bfp"):
        write_study(folder, "benchmark", name, {"table": benchmark_table(name, shifts)})
        write_study(folder, "ablation", name, ablation_tables(name, {"w/o HORD": 0.05}))
        write_study(folder, "alternatives", name, alternatives_table(name))
    write_study(folder, "masking", "eol", masking_tables("eol"))
    write_study(folder, "variance", "eol", variance_tables("eol"))
    write_study(folder, "architecture", "eol", architecture_tables("eol"))
    write_study(folder, "search", "eol", search_tables("eol"), search={"halving": [11, 33, 100]})
    write_study(folder, "finetune", "eol", finetune_tables("eol", {"MLP/BR": 0.05}))
    write_study(
        folder, "sensitivity", "eol", sensitivity_tables("eol", {("tau", 1e-3): -0.02, ("patience", 3.0): 0.004})
    )
    write_study(folder, "sensitivity", "bfp", sensitivity_tables("bfp", {("tau", 1e-3): -0.02}), notes=[REDUCED])
    return folder


def rows_below(text: str, heading: str) -> list[list[str]]:
    """Cells of the first Markdown table below a heading, without its head."""
    lines = text[text.index(heading) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    assert all(len(row) == len(table[0]) for row in table)
    return table[2:]


def test_the_page_has_every_part(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--dataset", "eol", "bfp", "--results", str(results)]) == 0
    text = (results / "report.md").read_text(encoding="utf-8")
    assert "Data sets: eol, bfp." in text
    basis = rows_below(text, "## What it rests on")
    assert ["bfp", "sensitivity", REDUCED, "19 of 20, 1 diverged", "2"] in [row[:5] for row in basis]
    assert "Not run: masking (bfp); finetune (bfp); variance (bfp); architecture (bfp); search (bfp)." in text
    parts = rows_below(text, "## Where the variance is")
    assert [row[:9] for row in parts] == [
        ["eol", "split", "QWK, clinical order", "0.00", "0.10 to 20.00", "0 %", "87.00 ± 5.00 †1", "9", "–"],
        ["eol", "pretraining", "QWK, clinical order", "3.00", "0.10 to 20.00", "36 %", "92.00 ± 5.00", "10", "–"],
        ["eol", "probe", "QWK, clinical order", "4.00", "0.10 to 20.00", "64 %", "91.00 ± 5.00", "10", "–"],
    ]
    scores = rows_below(text, "## Table 1: linear probes")
    name = "adaptive/none/Ours"
    assert [row[:8] for row in scores if row[:2] == ["eol", name]] == [
        ["eol", name, "QWK, clinical order", "93.78 ± 0.4", "83.78 ± 0.40", "10", "-10.00", "no"],
        ["eol", name, "QWK, clinical order", "93.78 ± 0.4", "93.78 ± 0.20", "10", "+0.00", "yes"],
        ["eol", name, "QWK, alphabetical order (exploratory)", "93.78 ± 0.4", "92.68 ± 0.10", "3", "-1.10", "no"],
    ]
    assert [row[4] for row in scores if row[:2] == ["bfp", name]] == ["4.55 ± 0.00", "4.65 ± 0.00"]
    assert len(rows_below(text, "## Table 3: ablations")) == 10
    tuned = rows_below(text, "## Table 4: fine-tuning")
    assert len(tuned) == 40 and tuned[4][:8] == [
        *("eol", "MLP/BR", "QWK, clinical order", "94.74 ± 0.6", "99.74 ± 0.20", "10", "+5.00", "no")
    ]
    console = capsys.readouterr().out.splitlines()
    assert console[-1] == f"report: {results / 'report.md'}"
    for line in console[:-1]:
        assert f"- {line}" in text.splitlines()
    told = "\n".join(console)
    assert "Table 1 (full): 24 of 26 numbers that were run are within the paper's ± 1 sd." in told
    assert "with the same masking (full): 4 of 6 hold, 2 fail; in the paper 5 of the same 6 hold." in told
    assert "paper's sensitivity panels (full): 1 of 2 hold (1 significantly), 1 fail (0 significantly)." in told
    assert f"paper's sensitivity panels ({REDUCED}): 1 of 1 hold" in told
    assert "fine-tuned > BR with the same encoder (full): 2 of 5 hold (1 significantly), 3 fail (1 signif" in told
    assert (
        "fine-tuned > MR with the same encoder (full): 3 of 5 hold, 2 fail; in the paper 3 of the same 5 hold." in told
    )
    exceptions = rows_below(text, "Exceptions to: full > each ablation of Table 3 (full)")
    assert exceptions == [["eol", "w/o HORD", "no", "-2.610", "10", "0.0078", "**", "+2.39"]]
    assert ["eol", "patience 3", "no", "-0.400", "10", "0.4", ""] in rows_below(text, "Exceptions to: default ≥")
    assert "- Ours against BR: better on 1 of 2; no test: needs at least 6 data sets, got 2" in text
    assert [row[:4] for row in rows_below(text, "## Depth and width of the MLP")] == [
        ["eol", "QWK", "3 × 512", "2 × 128"]
    ]
    (found,) = rows_below(text, "## Searched settings")
    assert found[:8] == ["eol", "QWK", "4 (2 complete)", "11, 33", "97.00", "96.00", "94.00", "95.00"]
    assert ["eol", "trees", "QWK", "75.00", "1", "85.00"] in rows_below(text, "## Without pretraining")
    assert "compared, and counted, in the clinical order" in text


def test_every_number_on_the_page_is_in_the_table(results: Path) -> None:
    assert report.main(["--dataset", "eol,bfp", "--results", str(results)]) == 0
    text = (results / "report.md").read_text(encoding="utf-8")
    table = pd.read_csv(results / "report.csv")
    assert set(table["section"]) == {
        *("rests on", "scores", "within", "orderings", "counts", "over data sets", "variance", "without pretraining"),
        *("architectures", "searches", "average ranks"),
    }
    numbers = table.select_dtypes("number").stack().abs()
    shown = [row for line in text.splitlines() if line.startswith(("|", "- ")) for row in line.split("|")]
    words = re.compile(
        r"\[.*?\)|p_m [\d.]+|T \d+|w/o \w+|Reduced protocol: .*?\(full: 10\)|tau [\d.]+|patience \d+|95 % interval"
        r"|(?<= )11, 33(?= )|at least 6 data sets"
    )
    found = [number for cell in shown for number in re.findall(r"\d+(?:\.\d+)?", words.sub("", cell))]
    assert len(found) > 200
    for number in set(found) - {"1", "2", "3", "4", ".05", ".01"}:  # of "± 1 sd", "Table 3"
        half = 0.5001 * 10.0 ** -len(number.partition(".")[2])
        assert ((numbers - float(number)).abs() <= half).any(), number


def test_tables_say_where_they_are_from_the_page(results: Path, tmp_path: Path) -> None:
    for output in (results, tmp_path / "else" / "where"):
        assert report.main(["--dataset", "eol", "--results", str(results), "--output", str(output)]) == 0
        links = re.findall(r"\]\(([^)]+)\)", (output / "report.md").read_text(encoding="utf-8"))
        assert len(links) == 10 and all((output / link).is_file() for link in links)


def test_a_page_of_one_study_says_what_was_not_run(tmp_path: Path) -> None:
    write_study(tmp_path, "alternatives", "breast_cancer", alternatives_table("breast_cancer"))
    assert report.main(["--dataset", "breast_cancer", "--results", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.count("None of its numbers was run.") == 3 and "Nothing of it was run." in text
    assert "Difference:" not in text and "Not run: benchmark (breast_cancer); masking (breast_cancer)" in text


def test_diverged_and_left_out_are_shown(results: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    changed = {"adaptive/random/Ours": lost("diverged")}
    write_study(more, "benchmark", "hfc", {"table": benchmark_table("hfc", **changed)})
    write_study(more, "ablation", "eol", ablation_tables("eol"))
    words = ["--dataset", "eol,hfc", "--results", str(results), "--results", str(more)]
    assert report.main(words) == 0
    text = (results / "report.md").read_text(encoding="utf-8")
    assert "Left out, since an earlier folder has the same study: ablation of eol in [../more/ablation/eol/" in text
    (row,) = (row for row in rows_below(text, "## Table 1") if row[:2] == ["hfc", "adaptive/random/Ours"])
    assert row[4:8] == ["† †3", "0", "–", "no"] and row[8] == "benchmark: every candidate diverged"
    assert ["hfc", "adaptive/random/Ours against fixed/random/BR", "no", "– †1"] in [
        row[:4] for row in rows_below(text, "Exceptions to: adaptive binning > BinRecon")
    ]


def test_benchmarks_of_all_data_sets_have_ranks_and_tests(tmp_path: Path) -> None:
    for name in PAPERS:
        notes = [REDUCED] if name == "pt" else []
        write_study(tmp_path, "benchmark", name, {"table": benchmark_table(name)}, notes=notes)
    assert report.main(["--dataset", "all", "--results", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    seven = rows_below(text, "Over 7 data sets, ilpd, hfc, ctg, esr, eol, mhr, bfp (full):")
    eight = rows_below(text, "Over 8 data sets, ilpd, hfc, ctg, esr, eol, mhr, pt, bfp (whatever the protocol):")
    assert len(seven) == len(eight) == 13
    assert ["adaptive/constant/Ours", "2.50", "2.50", "+0.00"] in eight, "the paper prints 2.50"
    lines = [line for line in text.splitlines() if line.startswith("- Ours against")]
    assert lines[0] == (
        "- Ours against BR: better on 7 of 7; p 0.016, adjusted 0.078; nothing can be significant: least adjusted p is "
        "0.0781"
    )
    assert lines[4] == "- Ours against BR: better on 8 of 8; no test: protocols differ"
    assert "Table 1 (full): 91 of 91 numbers that were run are within" in text
    assert "with the same masking (full): 20 of 21 hold, 1 fail; in the paper 20 of the same 21 hold." in text


def test_a_benchmark_without_ranks_is_named(tmp_path: Path) -> None:
    table = benchmark_table("hfc", **{"adaptive/random/Ours": lost("missing")})
    write_study(tmp_path, "benchmark", "hfc", {"table": table})
    assert report.main(["--dataset", "hfc", "--results", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## Table 1: average ranks\n\nWithout ranks, since a cell of the table is missing: hfc.\n" in text


def test_what_is_undecided_is_named(results: Path) -> None:
    frames = sensitivity_tables("eol", {("tau", 1e-3): -0.02, ("tau", 1e-2): -0.03})
    frames["significance"].loc[1, ["n_diverged", "statistic", "mark", "verdict"]] = [10, float("nan"), "", "no test"]
    write_study(results, "sensitivity", "eol", frames)
    assert report.main(["--dataset", "eol", "--results", str(results)]) == 0
    text = (results / "report.md").read_text(encoding="utf-8")
    assert "panels (full): 1 of 2 hold (1 significantly), 0 fail (0 significantly), 1 undecided." in text
    (row,) = rows_below(text, "Exceptions to: default ≥")
    assert row[:4] == ["eol", "tau 0.01", "undecided", "+3.000 †10"]


@pytest.mark.usefixtures("no_mlflow")
def test_what_the_scripts_leave_gives_a_page(tmp_path: Path) -> None:
    common = ["--dataset", "breast_cancer", "--seeds", "2", "--output", str(tmp_path)]
    assert sensitivity.main(common, runner=CountingRunner()) == 0
    assert masking.main(common, runner=CountingRunner()) == 0
    assert ablation.main(common, runner=CountingRunner()) == 0
    assert report.main(["--dataset", "breast_cancer", "--results", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    basis = rows_below(text, "## What it rests on")
    protocol = "Reduced protocol: 2 seeds (full: 10)"
    assert [row[:5] for row in basis] == [
        ["breast_cancer", "masking", protocol, "28 of 28, 0 diverged", "2"],
        ["breast_cancer", "ablation", protocol, "16 of 16, 0 diverged", "2"],
        ["breast_cancer", "sensitivity", protocol, "42 of 42, 0 diverged", "2"],
    ]
    assert re.search(rf"paper's sensitivity panels \({re.escape(protocol)}\): \d+ of 20 hold", text)
    assert re.search(rf"full > each ablation of Table 3 \({re.escape(protocol)}\): \d of 4 hold", text)
    released = ["--dataset", "breast_cancer", "--results", str(tmp_path), "--protocol", "released"]
    assert report.main(released) == 2


class TestRefused:
    def test_nothing_is_written(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "empty").mkdir()
        words = ["--dataset", "eol", "--results", str(tmp_path / "empty"), "--output", str(tmp_path / "out")]
        assert report.main(words) == 2
        assert "error: a results folder must hold tables of benchmark" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--dataset", "eol"], "error: --results must be given; see --help"),
            (["--results", "x"], "error: --dataset must be given; see --help"),
            (["--dataset", "eel", "--results", "x"], "error: unknown data set 'eel'; did you mean 'eol'?"),
            (["--dataset", "eol", "--results", "x", "--seeds", "3"], "error: unknown option --seeds"),
        ],
    )
    def test_words(self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert report.main(words) == 2
        assert message in capsys.readouterr().err

    def test_an_output_that_cannot_be_written(self, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (results / "file").write_text("")
        words = ["--dataset", "eol", "--results", str(results), "--output", str(results / "file")]
        assert report.main(words) == 1
        assert "error: " in capsys.readouterr().err


def test_help_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(option in told for option in ("--dataset", "--results", "--protocol", "--output"))
    assert "--epochs" not in told


def test_neither_ray_nor_mlflow_nor_torch_is_imported() -> None:
    code = "import sys, sweeps.report; print({'ray', 'mlflow', 'torch', 'matplotlib', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_committed_results_give_the_committed_page(tmp_path: Path) -> None:
    """After new results: python sweeps/report.py --dataset all --results docs/results."""
    made = Report.of(find_sources([RESULTS], PAPERS, Protocol()))
    wanted = {"dataset": "eol", "metric": "qwk", "study": "sensitivity"}
    (row,) = made.scores[(made.scores[list(wanted)] == pd.Series(wanted)).all(axis=1)].to_dict("records")
    assert (row["study"], row["n"], round(row["mean"], 2), round(row["gap"], 2)) == ("sensitivity", 10, 99.1, 5.32)
    assert page(made, RESULTS) == (RESULTS / "report.md").read_text(encoding="utf-8")
    assert write_frame(tmp_path / "report.csv", made.table).read_text() == (RESULTS / "report.csv").read_text()
