"""The benchmark's figures show its tables; words fit the page; files are deterministic; captions say what was done."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Text

from adaptbin.config import Budget, Protocol
from adaptbin.errors import DataError
from sweeps.service.captions_benchmark import caption_text, contrasts_text, joint_caption_text, ranks_text
from sweeps.service.contrasts_benchmark import contrasts_frame, pairs_frame
from sweeps.service.figures_benchmark import benchmark_figure, rank_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.methods import METHODS, BenchmarkStudy, Method
from sweeps.service.ranks import critical_distance, ranks_frame
from sweeps.service.tables_benchmark import benchmark_tables
from tests.service.synthetic import METRIC_OF, FakeCard, as_printed, make_benchmark_records, seeds


def diverging(dataset, method, point, seed):
    gone = method == METHODS[0] or (method.objective == "BR" and point.mask_prob == 0.2)
    return None if gone and seed < 2 else as_printed(dataset, method, point, seed)


CASES = {
    "usual": {},
    "an error": {"dataset": "pt"},
    "diverged": {"scorer": diverging},
    "missing": {"drop": 3},
    "all missing but one": {"drop": 46 * 4},
    "all diverged": {"scorer": lambda *_: None},
    "no spread": {"scorer": lambda *_: (0.9, 0.9)},
    "one seed": {"n": 1, "budget": Budget(epochs=60)},
    "probe": {"n": 2, "seeds_vary": "probe", "protocol": Protocol.named("released")},
    "split": {"n": 2, "seeds_vary": "split"},
}


@cache
def tabulate(case):
    """Tables and study of one data set."""
    options = {"dataset": "eol", "n": 4, "scorer": as_printed, "drop": 0} | CASES[case]
    dataset, n, scorer, drop = (options.pop(name) for name in ("dataset", "n", "scorer", "drop"))
    study = BenchmarkStudy(cards=(FakeCard(dataset),), seeds=seeds(n), **options)
    records = make_benchmark_records(study, scorer)
    return benchmark_tables(records[: len(records) - drop], study, METRIC_OF[dataset]), study


@cache
def joint(datasets, scorer=as_printed, drop=0):
    """Table of methods and study of several data sets."""
    study = BenchmarkStudy(cards=tuple(FakeCard(name) for name in datasets), seeds=(0, 1))
    records = make_benchmark_records(study, scorer)
    records = records[: len(records) - drop]
    tables = [benchmark_tables(records, study.only(name), METRIC_OF[name]).table for name in datasets]
    return pd.concat(tables, ignore_index=True), study


def found(figure, kind, prefix):
    """Texts or lines whose id starts with the prefix, by the rest of the id."""
    artists = figure.findobj(lambda artist: isinstance(artist, kind) and (artist.get_gid() or "").startswith(prefix))
    return {artist.get_gid().removeprefix(prefix): artist for artist in artists}


def texts(figure, prefix):
    return {name: text.get_text() for name, text in found(figure, Text, prefix).items()}


def require_a_tidy_page(figure, least):
    figure.canvas.draw()
    page = figure.bbox
    boxes = [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip()
    ]
    low, high = figure.axes[0].get_xlim()
    ticks = figure.axes[0].xaxis.get_major_ticks()
    outside = {tick.label1.get_text() for tick in ticks if not low <= tick.get_loc() <= high}
    boxes = [(text, box) for text, box in boxes if text not in outside]
    assert len(boxes) >= least
    for text, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert not a.padded(-0.7).overlaps(b.padded(-0.7)), (one, other)


@pytest.mark.parametrize("case", CASES)
def test_marks_equal_the_table_exactly(case):
    tables, study = tabulate(case)
    figure = benchmark_figure(tables, study)
    rows = {Method.of_row(row).name: row for row in tables.table.to_dict("records")}
    chosen = {name: row for name, row in rows.items() if row["status"] == "chosen"}
    spread = {name: "" if math.isnan(row["sd"]) else f" ± {row['sd']:.4f}" for name, row in chosen.items()}
    printed = {name: f"{row['mean']:.4f}{spread[name]}" for name, row in chosen.items()}
    assert texts(figure, "score-") == {name: printed.get(name, f"– ({row['status']})") for name, row in rows.items()}
    assert texts(figure, "mask_prob-") == {
        name: f"{row['mask_prob']:g}" for name, row in chosen.items() if row["masking"] != "none"
    }
    assert texts(figure, "t_init-") == {
        name: f"{row['t_init']}" for name, row in chosen.items() if row["binning"] != "none"
    }
    assert texts(figure, "diverged-") == {
        name: f"†{row['n_diverged']}" for name, row in rows.items() if row["n_diverged"]
    }
    means = found(figure, Line2D, "mean-")
    assert {name: list(line.get_xdata()) for name, line in means.items()} == {
        name: [row["mean"]] for name, row in chosen.items()
    }
    dots = found(figure, Line2D, "seeds-")
    assert dots.keys() == chosen.keys()
    for name, line in dots.items():
        of_method = tables.replicas[[Method.of_row(row).name == name for row in tables.replicas.to_dict("records")]]
        assert list(line.get_xdata()) == list(of_method["test"]) and len(of_method) == chosen[name]["n"]
        assert abs(line.get_ydata() - means[name].get_ydata()[0]).max() < 0.05
    best = {name for name, row in rows.items() if row["rank"] == tables.table["rank"].min() and name in chosen}
    bold = {name for name, text in found(figure, Text, "score-").items() if text.get_weight() == "bold"}
    assert bold == best


@pytest.mark.parametrize("case", CASES)
def test_no_text_leaves_the_page_or_overlaps_another(case):
    require_a_tidy_page(benchmark_figure(*tabulate(case)), least=13 * 3)


@pytest.mark.parametrize("n", [2, 8])
def test_the_rank_diagram_shows_the_ranks(n):
    table, study = joint(tuple(METRIC_OF)[:n])
    figure = rank_figure(table, study)
    require_a_tidy_page(figure, least=13 * 4)
    ranks = ranks_frame(table)
    rows = {Method.of_row(row).name: row for row in ranks.to_dict("records")}
    assert texts(figure, "rank-") == {name: f"{row['average']:.2f}" for name, row in rows.items()}
    averages = found(figure, Line2D, "average-")
    assert {name: line.get_xdata()[0] for name, line in averages.items()} == {
        name: row["average"] for name, row in rows.items()
    }
    singles = found(figure, Line2D, "ranks-")
    for name, row in rows.items():
        assert list(singles[name].get_xdata()) == [row[dataset] for dataset in study.datasets]
    order = sorted(averages, key=lambda name: averages[name].get_ydata()[0])
    assert [rows[name]["average"] for name in order] == sorted(ranks["average"])
    (bar,) = found(figure, Line2D, "critical-distance").values()
    start, end = bar.get_xdata()
    distance = critical_distance(13, n)
    assert start == ranks["average"].min() and end == min(start + distance, 13.5)
    words = {text.get_text() for text in figure.axes[0].texts}
    assert f"Nemenyi critical distance {distance:.2f} (descriptive)" in words


def test_no_rank_diagram_while_a_cell_is_missing():
    table, study = joint(("eol", "pt"), drop=1)
    with pytest.raises(DataError, match="needs a result in every cell, got none in pt adaptive/random/Ours"):
        rank_figure(table, study)


def test_files_are_the_same_every_time_with_text_as_text(tmp_path):
    first = save_figure(benchmark_figure(*tabulate("diverged")), tmp_path / "a")
    second = save_figure(benchmark_figure(*tabulate("diverged")), tmp_path / "b")
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
    svg = first[2].read_text()
    assert 'id="score-adaptive/random/Ours"' in svg and "<text" in svg and "<image" not in svg


def test_the_caption_says_what_chose_and_what_is_descriptive():
    tables, study = tabulate("diverged")
    text = caption_text(tables, study)
    for part in (
        "Linear probes of eol: test QWK (higher is better) (n_test = 423) of 13 methods.",
        "mean ± sd over 4 seeds (each the mean of 5 linear probes",
        "tuned on validation: p_m 0.1, 0.2, 0.3 where it masks, T (T_init of adaptive bins) 2, 10 where it has bins, "
        "so 1 to 6 candidates",
        "best mean validation score over all seeds; a point with a diverged seed cannot be chosen, and ties go to",
        "Test scores of candidates that were not chosen are not shown.",
        "No test was planned within one data set: differences are descriptive; bootstrap SE of a test score over test "
        "rows 0.019",
        "Nothing is chosen for none/none/VR: every point has a diverged seed.",
        f"({tables.table['n_diverged'].sum()} in all); a candidate with one cannot be chosen, and a method without "
        "another (†) has the worst rank.",
        r"\input{table.tex}",
        "Reduced protocol: 4 seeds (full: 10).",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("usual", ["No replica diverged."]),
        ("an error", ["test RMSE (lower is better)"]),
        ("missing", ["Nothing is chosen for adaptive/random/Ours: 1 of 6 points lack results"]),
        ("all diverged", ["of 13 methods", "and 8 more.", "(188 in all)"]),
        ("one seed", ["over 1 seed (", "Reduced protocol: 1 seed"]),
        ("probe", ["Seeds vary the probes only."]),
    ],
)
def test_caption_of_special_studies(case, parts):
    text = caption_text(*tabulate(case))
    for part in parts:
        assert part in text, part


def test_the_caption_of_several_data_sets():
    table, study = joint(tuple(METRIC_OF))
    contrasts = contrasts_frame(pairs_frame(table), table)
    text = joint_caption_text(table, contrasts, study)
    row = contrasts.iloc[0]
    for part in (
        "Average ranks of 13 methods over 8 data sets: eol (QWK), mhr (QWK), ilpd (AUC)",
        "Ranks are descriptive.",
        "critical distance of the Nemenyi test (6.45 ranks for 13 methods on 8 data sets, level 0.05)",
        "ties share the mean of their ranks",
        "Comparisons named beforehand (on each data set an arm is the method of it with the best validation score",
        "Holm over 5 comparisons; least possible p 0.0078, adjusted 0.039; fewer than 6 data sets are not tested",
        f"Ours against BR: {row['difference']:+.4f}, better on 8 of 8, p 0.0078, adjusted 0.039 *; Ours against VR",
        "Ours, masked against Ours, not masked: ",
        "No replica diverged.",
    ):
        assert part in text, part


def test_missing_cells_are_named_and_nothing_is_tested():
    table, study = joint(("eol", "pt"), drop=30)
    contrasts = contrasts_frame(pairs_frame(table), table)
    text = joint_caption_text(table, contrasts, study)
    missing = table[table["status"] == "missing"]
    assert len(missing) == 4
    assert (
        "No average ranks, and no rank diagram: 4 of 26 cells have no result (pt fixed/random/BR, "
        "pt adaptive/none/Ours, pt adaptive/constant/Ours, pt adaptive/random/Ours)."
    ) in text
    assert "not tested: 4 cells have no result): Ours against BR: " in text and "critical distance" not in text
    many, _ = joint(("eol", "pt"), drop=47 * 2)
    assert "13 of 26 cells have no result" in ranks_text(many) and "and 8 more)." in ranks_text(many)
    alone = contrasts_frame(pairs_frame(many[13:]), many[13:])
    assert contrasts_text(alone).endswith("not tested: 13 cells have no result).")
    assert np.isnan(alone["difference"]).all()
