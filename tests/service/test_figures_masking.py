"""The heat maps show the tables: scores, colours, counts, the choice; words fit the page; files are deterministic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle

from adaptbin.config import Budget, Hyperparameters, Protocol
from sweeps.service.captions_masking import caption_text
from sweeps.service.figures_masking import masking_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.grid import MASKINGS, MaskingStudy, mask_probs_of
from sweeps.service.tables_masking import masking_tables
from tests.service.heat import check_words_can_be_read, texts
from tests.service.synthetic import METRIC_OF, FakeCard, make_grid_records, peaked, seeds

BEST = Hyperparameters(masking="random", mask_prob=0.2, t_init=10)
LOST = Hyperparameters(masking="constant", mask_prob=0.1, t_init=10)


def tabulate(dataset="eol", n=10, scorer=None, lost=(), drop=0, show_test=False, **options):
    """Tables and study; ``lost`` holds (point, seed) that diverged, the last ``drop`` records are not there."""
    study = MaskingStudy(cards=(FakeCard(dataset),), seeds=seeds(n), **options)
    usual = scorer or peaked(BEST)
    records = make_grid_records(study, lambda point, seed: None if (point, seed) in lost else usual(point, seed))
    records = records[: len(records) - drop]
    return masking_tables(records, study, METRIC_OF[dataset], show_test=show_test), study


CASES = {
    "usual": {},
    "an error": {"dataset": "pt"},
    "test shown": {"show_test": True},
    "diverged": {"lost": {(LOST, 1), (LOST, 2), (BEST, 0)}, "show_test": True},
    "missing": {"drop": 14},
    "diverged and missing": {"drop": 3, "lost": {(LOST, 1), (Hyperparameters(), 4)}},
    "all diverged": {"scorer": lambda point, seed: None},
    "no spread": {"scorer": lambda point, seed: (0.9, 0.9)},
    "one seed": {"n": 1, "budget": Budget(epochs=60)},
    "probe": {"seeds_vary": "probe", "n": 3, "protocol": Protocol.named("released")},
    "split": {"seeds_vary": "split"},
    "a larger grid": {"mask_probs": (0.1, 0.15, 0.2, 0.3, 0.45), "t_inits": (2, 5, 10, 20)},
    "a small grid": {"mask_probs": (0.2,), "t_inits": (10,)},
}


def drawn(case):
    show_test = CASES[case].get("show_test", False)
    tables, study = tabulate(**CASES[case])
    return masking_figure(tables, study, show_test=show_test), tables, study


def name_of(row):
    return f"{row['masking']}-{row['mask_prob']:g}-{row['t_init']}"


@pytest.mark.parametrize("case", CASES)
def test_marks_equal_the_table_exactly(case):
    figure, tables, _ = drawn(case)
    rows = tables.points.to_dict("records")
    assert texts(figure, "value-") == {
        name_of(row): "–" if math.isnan(row["val_mean"]) else f"{row['val_mean']:.4f}" for row in rows
    }
    frames = figure.findobj(
        lambda artist: isinstance(artist, Rectangle) and (artist.get_gid() or "").startswith("chosen-")
    )
    assert [frame.get_gid() for frame in frames] == [f"chosen-{name_of(row)}" for row in rows if row["chosen"]]
    counts = {
        name_of(row): (row["n_diverged"], row["n_missing"], row["n"])
        for row in rows
        if row["n_diverged"] or row["n_missing"]
    }
    told = texts(figure, "count-")
    assert told.keys() == counts.keys()
    for name, (diverged, missing, n) in counts.items():
        there = n + diverged
        expected = [f"†{diverged}"] * bool(diverged) + [f"{there}/{there + missing}"] * bool(missing)
        assert told[name] == " ".join(expected)
    shown = CASES[case].get("show_test", False)
    assert texts(figure, "test-") == {name_of(row): f"({row['test_mean']:.4f})" for row in rows if shown and row["n"]}


@pytest.mark.parametrize("case", CASES)
def test_no_text_leaves_the_page_or_overlaps_another(case):
    figure, _, _ = drawn(case)
    check_words_can_be_read(figure)


@pytest.mark.parametrize("dataset", ["eol", "pt"])
def test_one_colour_scale_for_all_maps_and_brighter_is_better(dataset):
    tables, study = tabulate(dataset)
    figure = masking_figure(tables, study)
    meshes = [mesh for axes in figure.axes[:-1] for mesh in axes.collections if isinstance(mesh, QuadMesh)]
    scores = tables.points["val_mean"]
    assert len(meshes) == len(MASKINGS)
    assert {mesh.get_clim() for mesh in meshes} == {(scores.min(), scores.max())}
    for masking, mesh in zip(MASKINGS, meshes, strict=True):
        rows = tables.points[tables.points["masking"] == masking].pivot(
            index="t_init", columns="mask_prob", values="val_mean"
        )
        np.testing.assert_array_equal(np.asarray(mesh.get_array()), rows.to_numpy())
    brightness = [float(np.sum(meshes[0].cmap(meshes[0].norm(score))[:3])) for score in np.sort(scores)]
    assert brightness == sorted(brightness, reverse=dataset == "pt")
    assert [axes.get_title() for axes in figure.axes[:-1]] == list(MASKINGS)
    for axes in figure.axes[:-1]:
        assert list(axes.get_yticks()) == [0, 1] and axes.yaxis_inverted()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["2", "10"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0"]
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["0.1", "0.2", "0.3"]


def test_each_score_stands_in_its_cell():
    tables, study = tabulate()
    for axes, masking in zip(masking_figure(tables, study).axes, MASKINGS, strict=False):
        for row in tables.points[tables.points["masking"] == masking].to_dict("records"):
            (text,) = (text for text in axes.texts if text.get_gid() == f"value-{name_of(row)}")
            column, line = (
                mask_probs_of(masking, study.mask_probs).index(row["mask_prob"]),
                study.t_inits.index(row["t_init"]),
            )
            assert text.get_position() == (column, line)
            assert (text.get_weight() == "bold") == row["chosen"]
    (frame,) = (patch for axes in masking_figure(tables, study).axes for patch in axes.patches if patch.get_gid())
    assert frame.get_xy() == (0.5, 0.5) and frame.axes.get_title() == "random"


def test_words_on_the_figure():
    shown = " ".join(text.get_text() for text in drawn("usual")[0].texts)
    assert "eol: mean validation QWK (higher is better)" in shown
    assert "Chosen: random, p_m 0.2, T_init 10; validation 0.9" in shown
    assert "Reduced" not in shown
    assert "pt: mean validation RMSE (lower is better)" in " ".join(
        text.get_text() for text in drawn("an error")[0].texts
    )
    one = " ".join(text.get_text() for text in drawn("one seed")[0].texts)
    assert "Reduced protocol: 1 seed (full: 10), 60 pretraining epochs (full: 1000)." in one and "(1 seed)" in one
    missing = " ".join(text.get_text() for text in drawn("missing")[0].texts)
    assert (
        "Nothing is chosen: 2 of 14 points lack results: " in missing and "n/m: n of m seeds have a result" in missing
    )


def test_files_are_the_same_every_time_with_text_as_text(tmp_path):
    first = save_figure(drawn("diverged")[0], tmp_path / "a")
    second = save_figure(drawn("diverged")[0], tmp_path / "b")
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
    svg = first[2].read_text()
    assert 'id="value-random-0.2-10"' in svg and "<text" in svg and "<dc:date>" not in svg
    assert svg.count("<image") <= 1  # maps are drawn, the bar may be pixels


def test_the_caption_says_what_the_choice_rests_on():
    tables, study = tabulate(lost={(LOST, 1)})
    text = caption_text(tables, study)
    row = tables.points[tables.points["chosen"]].iloc[0]
    runner_up = tables.decision.runner_up
    for part in (
        "Masking and first bins of eol: mean validation QWK (higher is better) of 14 points",
        "masking none, constant, random; p_m 0.1, 0.2, 0.3; T_init 2, 10; everything else at the default",
        "over 10 seeds (each the mean of 5 linear probes",
        "All cell values are validation scores (n_val = 338)",
        "†n: n diverged seeds, so not to be chosen.",
        "best mean validation score over all seeds; a point with a diverged seed cannot be chosen, and ties go to",
        f"Chosen: random, p_m 0.2, T_init 10; validation {row['val_mean']:.4f} ± {row['val_sd']:.4f}, "
        f"test {row['test_mean']:.4f} ± {row['test_sd']:.4f} (mean ± sd over 10 seeds)",
        f"behind by {runner_up.difference:.2g} on validation, paired by seed (95 % t interval {runner_up.low:.2g} to "
        f"{runner_up.high:.2g})",
        "the best of 13, flatters it; its test score (n_test = 423) does not",
        "descriptive: no test was planned",
        "bootstrap SE of the test score over test rows 0.019",
        "Test scores of the other points are not shown.",
        "T_init 2: 210 triggers, 160 splits, 10.0 bins per feature at the end",
        "1 of 140 replicas diverged.",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("test shown", ["with test scores in brackets below", "shown because they were asked for; they took no part"]),
        ("missing", ["Nothing is chosen: 2 of 14 points lack results: ", "n/m: n of m seeds have a result."]),
        ("all diverged", ["Nothing is chosen: every point has a diverged seed.", "140 of 140 replicas diverged."]),
        ("no spread", ["Chosen: none, T_init 2;", "with the same mean on validation, paired by seed"]),
        ("one seed", ["over 1 seed", "(1 seed)", "Reduced protocol: 1 seed"]),
        ("probe", ["no interval: one pretraining says nothing about another", "Seeds vary the probes only."]),
        ("split", ["intervals are corrected for shared rows between splits", "Seeds vary the split too."]),
    ],
)  # fmt: skip
def test_caption_of_special_studies(case, parts):
    _, tables, study = drawn(case)
    text = caption_text(tables, study, show_test=CASES[case].get("show_test", False))
    for part in parts:
        assert part in text, part
    assert ("Test scores of the other points are not shown" in text) == (
        case not in ("test shown", "missing", "all diverged")
    )
