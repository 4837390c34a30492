"""The figure of own panels shows the tables: marks, scores, differences, words; words fit the page; files repeat."""

from __future__ import annotations

import functools
import itertools
import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle

from adaptbin.config import Budget, Hyperparameters
from adaptbin.errors import DataError
from sweeps.service.captions_own import caption_text
from sweeps.service.contrasts import significance_frame
from sweeps.service.figures_own import own_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.own_grids import parse_grid
from sweeps.service.own_panels import OwnPanelsStudy, panels_and_maps
from sweeps.service.point_fields import value_text
from sweeps.service.tables import points_frame, replica_frame, summary_table, write_tables
from tests.service.synthetic import METRIC_OF, FakeCard, make_records, metrics_of, seeds
from tests.service.test_figures import shown_boxes, texts

MAP = "w_sord=1,3,10*tau=1e-4,1e-3"


def falling(dataset, place, seed, generator):
    """Scores that fall as fields move away from the paper's, more for some; errors rise instead."""
    point, architecture = place.point.hyperparameters, place.point.architecture
    loss = 0.01 * abs(math.log10(point.w_sord / 10)) + 0.012 * abs(math.log10(point.tau / 1e-4))
    loss += 0.006 * (point.masking == "random") + 0.004 * abs(math.log2(architecture.width / 8))
    own = np.random.default_rng([seed, int(point.w_sord), int(1e6 * point.tau), len(point.masking), architecture.width])
    shared = 0.01 * float(np.random.default_rng(seed).standard_normal())
    sign = -1 if METRIC_OF[dataset] == "rmse" else 1
    return 0.9 + shared - sign * loss + 0.003 * float(own.standard_normal())


def some_diverge(dataset, place, seed, generator):
    if place.value in ("1*0.001", "random") and seed in (1, 2):
        return None
    return falling(dataset, place, seed, generator)


def tabulate(*grids, datasets=("eol",), n=10, scorer=falling, drop=0, **options):
    """Points, contrasts, replicas and study; the last ``drop`` records are not there."""
    cards = tuple(FakeCard(key) for key in datasets)
    study = OwnPanelsStudy(cards=cards, seeds=seeds(n), **panels_and_maps(map(parse_grid, grids)), **options)
    records = make_records(study, scorer)
    replicas = replica_frame(records[: len(records) - drop], study, metrics_of(study), metrics_of(study))
    return points_frame(replicas, study), significance_frame(replicas, study), replicas, study


TWELVE = (
    *("w_sord=1,3", "w_mse=.3,1", "w_var=0,1", "tau=1e-5,1e-3", "lr=1e-3,1e-5", "patience=3,10", "masking=random"),
    *("split_score=variance,dispersion", "width=4,16", "depth=2", "dropout=0,.5", "batch_size=32,64,128"),
)
CASES = {
    "one panel": (["w_sord=1,3"], {}),
    "words": (["masking=constant,random"], {}),
    "words of two sets": (["masking=constant,random"], {"datasets": ("eol", "pt")}),
    "one map": ([MAP], {}),
    "a map of two sets": ([MAP], {"datasets": ("eol", "pt")}),
    "mixed": ([MAP, "masking=random", "width=4", "masking=constant,random*p_m=.1,.3"], {"scorer": some_diverge}),
    "mixed of four": ([MAP, "masking=random", "width=4"], {"datasets": ("eol", "hfc", "pt", "bfp")}),
    "twelve": (TWELVE, {}),
    "twelve of three": (TWELVE, {"datasets": ("eol", "hfc", "pt"), "scorer": some_diverge}),
    "seven and a map": ([*TWELVE[:7], MAP], {"n": 3, "budget": Budget(epochs=60)}),
    "many values": (["w_sord=1,2,3,4,5,6,7,8,9", "tau=1e-5,2.5e-5,1e-3,1e-2", "w_var=0"], {}),
    "a wide map": (["w_sord=1,2,3,4,5,6,7,8,9,11,12*tau=1e-3", "width=4"], {"n": 5}),
    "diverged": ([MAP, "masking=random"], {"scorer": some_diverge, "datasets": ("eol", "hfc")}),
    "all diverged": ([MAP, "masking=random"], {"scorer": lambda *_: None}),
    "all diverged, two sets": ([MAP, "masking=random"], {"scorer": lambda *_: None, "datasets": ("eol", "pt")}),
    "missing": ([MAP, "masking=random"], {"drop": 25}),
    "one seed": ([MAP, "masking=random"], {"n": 1}),
    "probes": ([MAP, "masking=random"], {"seeds_vary": "probe", "n": 3}),
    "splits": ([MAP, "masking=random"], {"seeds_vary": "split"}),
    "a masked default": (["p_m=.1", MAP], {"default": Hyperparameters(masking="random", mask_prob=0.3)}),
}  # fmt: skip


@functools.cache
def drawn(case):
    grids, options = CASES[case]
    frames = tabulate(*grids, **options)
    return own_figure(*frames), *frames


def names_of(study):
    """(Panel, value of the tables) -> what ids of the figure call the place, and whether it is a cell of a map."""
    cells = {
        (of_two.key, value): "-".join(map(value_text, place.values()))
        for of_two in study.maps
        for value, place in of_two.cells.items()
    }

    def name(row):
        value = cells.get((row["panel"], row["value"]), value_text(row["value"]))
        return f"{row['dataset']}-{row['panel']}-{value}"

    return name, {key for key, _ in cells}


@pytest.mark.parametrize("case", CASES)
def test_marks_and_counts_equal_the_tables_exactly(case):
    figure, points, significance, _, study = drawn(case)
    name, maps = names_of(study)
    assert texts(figure, "mark-") == {name(row): row["mark"] for row in significance.to_dict("records") if row["mark"]}
    rows = points.to_dict("records")
    lines = [row for row in rows if row["panel"] not in maps]
    assert texts(figure, "diverged-") == {name(row): f"†{row['n_diverged']}" for row in lines if row["n_diverged"]}
    told = texts(figure, "count-")
    for row in rows:
        if row["panel"] in maps:
            there = row["n"] + row["n_diverged"]
            diverged = f"†{row['n_diverged']}" if row["n_diverged"] else ""
            missing = f"{there}/{len(study.seeds)}" if there < len(study.seeds) else ""
            assert told.get(name(row), "") == " ".join(filter(None, [diverged, missing])), name(row)


@pytest.mark.parametrize("case", CASES)
def test_cells_show_what_the_tables_say(case):
    figure, points, significance, _, study = drawn(case)
    name, maps = names_of(study)
    cells = [row for row in points.to_dict("records") if row["panel"] in maps]
    differences = {name(row): row["difference"] for row in significance.to_dict("records")}
    values = texts(figure, "value-")
    assert values.keys() == {name(row) for row in cells}
    for row in cells:
        number, form = row["mean"], ".4f"
        if len(study.datasets) > 1:
            number, form = 0.0 if row["is_default"] else differences[name(row)], "+.4f"
        assert values[name(row)] == ("–" if math.isnan(number) else format(number, form)), name(row)
    frames = figure.findobj(
        lambda artist: isinstance(artist, Rectangle) and (artist.get_gid() or "").startswith("is_default-")
    )
    assert {frame.get_gid() for frame in frames} == {f"is_default-{name(row)}" for row in cells if row["is_default"]}


@pytest.mark.parametrize("case", CASES)
def test_no_text_leaves_the_page_or_overlaps_another(case):
    figure = drawn(case)[0]
    page, boxes = figure.bbox, shown_boxes(figure)
    for text, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text
    for (first, a), (second, b) in itertools.combinations(boxes, 2):
        assert not a.padded(-0.7).overlaps(b.padded(-0.7)), (first, second)


def test_colours_are_those_of_the_numbers():
    figure, points, *_ = drawn("one map")
    (mesh,) = figure.axes[0].findobj(QuadMesh)
    rows = points.to_dict("records")
    assert list(np.asarray(mesh.get_array()).ravel()) == [row["mean"] for row in rows]  # row by row
    figure, _, significance, _, _ = drawn("a map of two sets")
    meshes = [axes.findobj(QuadMesh)[0] for axes in figure.axes[:2]]
    most = significance["difference"].abs().max()
    assert [mesh.get_clim() for mesh in meshes] == [(-most, most)] * 2


def test_words_are_categories_that_no_line_joins():
    figure, points, *_ = drawn("words")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        r"$\mathbf{none}$", r"$\mathrm{constant}$", r"$\mathrm{random}$",
    ]  # fmt: skip
    (means,) = (line for line in axes.lines if len(line.get_xdata()) == 3)
    assert means.get_linestyle() == "None"
    np.testing.assert_array_equal(means.get_ydata(), points["mean"])
    assert list(points["value"]) == ["none", "constant", "random"]


def test_cells_that_do_not_exist_are_empty():
    figure, _, _, _, study = drawn("mixed")
    masked = study.maps[1]
    assert len(masked.cells) == 5
    (mesh,) = figure.axes[3].findobj(QuadMesh)
    assert np.ma.getmaskarray(mesh.get_array()).sum() == 4
    assert sum(name.startswith("eol-masking*mask_prob-") for name in texts(figure, "value-")) == 5


def test_each_cell_is_tested_within_its_map():
    _, significance, _, study = tabulate(MAP, "masking=constant,random", "w_sord=1")
    families = significance.groupby("panel", sort=False)["family"].agg(["count", "first"])
    assert families.to_dict("index") == {
        "masking": {"count": 2, "first": 2},
        "w_sord": {"count": 1, "first": 1},
        "w_sord*tau": {"count": 5, "first": 5},
    }
    assert set(significance["figure_family"]) == {8}
    same = significance[significance["value"].isin([1.0, "1*0.0001"])]
    assert len(same) == 2 and same["p"].nunique() == 1  # one pair of replicas a seed
    assert list(same["p_holm"] / same["p"]) != [1.0, 1.0]
    defaults = significance.drop_duplicates("panel").set_index("panel")["default_value"].to_dict()
    assert defaults == {"masking": "none", "w_sord": 10.0, "w_sord*tau": "10*0.0001"}


def test_tables_of_words_can_be_read_back(tmp_path):
    points, significance, replicas, study = tabulate(MAP, "masking=random", "w_sord=1")
    write_tables(tmp_path, points=points, significance=significance, replicas=replicas)
    again = pd.read_csv(tmp_path / "points.csv", dtype={"value": str})
    assert list(again["value"]) == ["none", "random", "1.0", "10.0", *study.maps[0].cells]
    table = summary_table(points, significance, study, "eol")
    assert [cell for cell in table.columns[0].cells if cell] == ["masking", "w_sord", "w_sord*tau"]
    assert list(table.columns[1].cells) == ["none", "random", "1", "10", *study.maps[0].cells]


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        (
            "mixed",
            [
                "Sensitivity of eol to masking, width, w_sord × tau, masking × mask_prob. Each panel moves one of "
                "them, each map moves two; everything else stays at the default (masking none, width 8, w_sord 10, "
                "tau 0.0001, mask_prob 0; bold tick, framed cell).",
                "Cells of maps: mean test score over 10 seeds",
                "Holm over the 1 or 4 or 5 contrasts of a panel or map of one data set",
                "The panels are the user's own, not the paper's: masking none, random; width 4, 8; w_sord 1, 3, 10 × "
                "tau 0.0001, 0.001; masking none, constant, random × mask_prob 0, 0.1, 0.3.\n",
                "Where masking is moved and p_m is not, p_m is 0.2; with none, 0.\n",
                "cells that say otherwise stay empty.\n",
            ],
        ),
        ("one map", ["The map moves two;", "w_sord 10, tau 0.0001; framed cell)", "brighter is better"]),
        ("one panel", ["One field moves;", "(w_sord 10; bold tick). Markers: mean", "contrasts of a panel of one"]),
        ("a map of two sets", ["mean paired difference of the test score", "above 0 (blue) is better"]),
        ("one seed", ["No test was run and no mark is drawn"]),
    ],
)
def test_caption_says_whose_panels_these_are(case, parts):
    _, _, significance, replicas, study = drawn(case)
    text = caption_text(significance, replicas, study)
    for part in parts:
        assert part in text, part
    shown = " ".join(line.get_text() for line in drawn(case)[0].texts)
    assert "The panels are the user's own, not the paper's" in shown and "The panels are the user's own" in text


def test_files_are_the_same_every_time(tmp_path):
    frames = tabulate(MAP, "masking=random", datasets=("eol", "hfc"))
    before = dict(mpl.rcParams)
    first, second = (save_figure(own_figure(*frames), tmp_path / name) for name in "ab")
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True))
    assert dict(mpl.rcParams) == before
    assert 'id="mark-eol-w_sord*tau-1-0.001"' in first[2].read_text()


def test_a_figure_of_nothing_is_refused():
    points, significance, replicas, study = tabulate(MAP)
    with pytest.raises(DataError, match="at least one replica, got none"):
        own_figure(points, significance, replicas.iloc[:0], study)
