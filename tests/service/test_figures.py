"""The figure shows the tables: marks, means, bars, words; the files are deterministic."""

from __future__ import annotations

import itertools
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.errors import DataError
from sweeps.service.captions import axis_label, caption_text, figure_notes, mark_key, value_labels
from sweeps.service.contrasts import significance_frame
from sweeps.service.figures import sensitivity_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.notes import protocol_notes
from sweeps.service.panels import Panel, SensitivityStudy, get_panels
from sweeps.service.tables import points_frame, replica_frame
from tests.service.synthetic import FakeCard, drifting, make_records, metrics_of, seeds
from tests.service.test_choice import choice_of

EIGHT = ("ilpd", "hfc", "ctg", "esr", "eol", "mhr", "pt", "bfp")


def some_diverge(dataset, point, seed, generator):
    if point.panel == "tau" and point.value == 0.1 and seed in (1, 2):
        return None
    return drifting()(dataset, point, seed, generator)


def tabulate(datasets=("eol",), n=10, scorer=None, test="wilcoxon", metrics=None, **options):
    study = SensitivityStudy(cards=tuple(FakeCard(key) for key in datasets), seeds=seeds(n), **options)
    records = make_records(study, scorer or drifting())
    replicas = replica_frame(records, study, metrics or metrics_of(study), metrics_of(study))
    return points_frame(replicas, study), significance_frame(replicas, study, test=test), replicas, study


def texts(figure, prefix):
    """Texts whose id starts with the prefix, by the rest of the id."""
    found = figure.findobj(lambda artist: isinstance(artist, Text) and (artist.get_gid() or "").startswith(prefix))
    return {text.get_gid().removeprefix(prefix): text.get_text() for text in found}


CASES = {
    "one": {},
    "two by t": {"datasets": ("eol", "hfc"), "test": "t"},
    "three": {"datasets": ("eol", "hfc", "pt")},
    "eight, some diverged": {"datasets": EIGHT, "scorer": some_diverge, "n": 6},
    "one, some diverged": {"scorer": some_diverge},
    "one seed": {"n": 1, "budget": Budget(epochs=60)},
    "one seed, two sets": {"n": 1, "datasets": ("eol", "hfc")},
    "two seeds": {"n": 2},
    "one panel": {"panels": get_panels(["tau"])},
    "two panels, split": {"panels": get_panels(["tau", "patience"]), "seeds_vary": "split", "datasets": ("eol", "pt")},
    "probe": {"seeds_vary": "probe"},
    "no spread": {"scorer": lambda *_: 0.9},
    "all diverged": {"scorer": lambda *_: None},
    "all diverged, two sets": {"scorer": lambda *_: None, "datasets": ("eol", "pt")},
}


@pytest.mark.parametrize("case", CASES)
def test_marks_equal_the_table_exactly(case):
    points, significance, replicas, study = tabulate(**CASES[case])
    figure = sensitivity_figure(points, significance, replicas, study)
    expected = {
        f"{row['dataset']}-{row['panel']}-{row['value']:g}": row["mark"]
        for row in significance.to_dict("records")
        if row["mark"]
    }
    assert texts(figure, "mark-") == expected
    counted = points[points["n_diverged"] > 0].to_dict("records")
    assert texts(figure, "diverged-") == {
        f"{row['dataset']}-{row['panel']}-{row['value']:g}": f"†{row['n_diverged']}" for row in counted
    }
    assert len(figure.axes) == len(study.panels)


@pytest.mark.parametrize("case", CASES)
def test_no_text_leaves_the_page_or_overlaps_another(case):
    points, significance, replicas, study = tabulate(**CASES[case])
    figure = sensitivity_figure(points, significance, replicas, study)
    page, boxes = figure.bbox, shown_boxes(figure)
    for text, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text
    for (first, a), (second, b) in itertools.combinations(boxes, 2):
        # Boxes carry the font's line height; a pixel of shared leading is no overlap of ink.
        assert not a.padded(-0.7).overlaps(b.padded(-0.7)), (first, second)


def shown_boxes(figure):
    """Each text that reaches the page, and its box in pixels."""
    figure.canvas.draw()
    drawn = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    shown = [t for t in drawn if any(t is label for label in _visible_labels(figure, drawn))]
    return [(t.get_text(), t.get_window_extent()) for t in shown]


def _visible_labels(figure, drawn):
    """Texts that reach the page: tick labels outside the limits or switched off do not."""
    hidden = []
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                inside = low <= tick.get_loc() <= high
                hidden += [tick.label2] if inside and tick.label1.get_visible() else [tick.label1, tick.label2]
    return [text for text in drawn if not any(text is other for other in hidden)]


def test_one_data_set_shows_scores_with_their_intervals():
    points, significance, replicas, study = tabulate()
    axes = sensitivity_figure(points, significance, replicas, study).axes[4]
    tau = points[points["panel"] == "tau"]
    line = next(line for line in axes.lines if len(line.get_xdata()) == 5 and line.get_linestyle() == "-")
    np.testing.assert_array_equal(line.get_ydata(), tau["mean"])
    bars = np.array([path.vertices[:, 1] for path in axes.collections[0].get_paths()])
    np.testing.assert_array_equal(bars, tau[["low", "high"]])
    dots = [line for line in axes.lines if len(line.get_xdata()) == 10]
    assert len(dots) == 5
    default = tau[tau["is_default"]].iloc[0]
    band = axes.patches[0]
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((default["low"], default["high"]))


def test_several_data_sets_show_paired_differences_up_is_better():
    points, significance, replicas, study = tabulate(("eol", "pt"))
    axes = sensitivity_figure(points, significance, replicas, study).axes[4]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 5 and line.get_linestyle() == "-"]
    for dataset, line in zip(("eol", "pt"), lines, strict=True):
        rows = significance[(significance["dataset"] == dataset) & (significance["panel"] == "tau")]
        drawn = np.delete(line.get_ydata(), 1)
        np.testing.assert_allclose(drawn, rows["difference"])
        assert line.get_ydata()[1] == 0 and drawn[-1] < 0
    assert [patch.get_height() for patch in axes.patches] == pytest.approx([0.04, 0.02])  # both margins


def test_several_data_sets_differ_from_their_own_defaults():
    panel = Panel("t_init", "T", "t_init", (2, 10), "a")
    chosen = choice_of(hyperparameters=Hyperparameters(t_init=10))
    gain = {2: 0.0, 10: 0.01}
    points, significance, replicas, study = tabulate(
        ("eol", "hfc"),
        panels=[panel],
        choices={"eol": chosen},
        scorer=lambda dataset, point, seed, generator: 0.8 + 0.001 * seed + gain[point.hyperparameters.t_init],
    )
    axes = sensitivity_figure(points, significance, replicas, study).axes[0]
    no_difference, *lines = (line.get_ydata() for line in axes.lines if line.get_linestyle() == "-")
    assert list(no_difference) == [0, 0]
    np.testing.assert_allclose(lines, [[-0.01, 0.0], [0.0, 0.01]], atol=1e-12)
    assert [label.get_text() for label in axes.get_xticklabels()] == [r"$\mathbf{2}$", r"$\mathbf{10}$"]
    assert list(significance["default_value"]) == [10, 2]
    caption = caption_text(significance, replicas, study)
    assert "(t_init 2 or 10; bold tick)" in caption
    assert "Default point of eol, chosen on validation with the same seeds: masking none" in caption


def test_errors_are_drawn_in_standard_deviations_of_the_target():
    study = SensitivityStudy(cards=(FakeCard("eol"), FakeCard("pt")), seeds=seeds(5))
    metrics = metrics_of(study)
    replicas = replica_frame(make_records(study, drifting(), target_sd=8.0), study, metrics, metrics)
    points, significance = points_frame(replicas, study), significance_frame(replicas, study)
    axes = sensitivity_figure(points, significance, replicas, study).axes[4]
    line = [line for line in axes.lines if len(line.get_xdata()) == 5 and line.get_linestyle() == "-"][1]
    rows = significance[(significance["dataset"] == "pt") & (significance["panel"] == "tau")]
    np.testing.assert_allclose(np.delete(line.get_ydata(), 1), rows["difference"] / 8.0)


def test_value_labels_are_powers_where_values_are_small_and_the_default_is_bold():
    assert value_labels((0, 1e-3, 0.1, 1), [1e-3]) == [
        r"$\mathrm{0}$", r"$\mathbf{10^{-3}}$", r"$\mathrm{10^{-1}}$", r"$\mathrm{1}$",
    ]  # fmt: skip
    assert value_labels((0.1, 0.3), [0.1]) == [r"$\mathbf{0.1}$", r"$\mathrm{0.3}$"]
    assert value_labels((0.002, 5), [5])[0] == r"$\mathrm{0.002}$"


def test_files_are_the_same_every_time_with_text_as_text(tmp_path):
    frames = tabulate(("eol", "hfc"))
    settings_before = dict(mpl.rcParams)
    first = save_figure(sensitivity_figure(*frames), tmp_path / "a")
    second = save_figure(sensitivity_figure(*frames), tmp_path / "b")
    assert [path.name for path in first] == ["figure.png", "figure.pdf", "figure.svg"]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
    assert dict(mpl.rcParams) == settings_before
    svg = first[2].read_text()
    ElementTree.fromstring(svg)
    assert "<text" in svg and 'id="mark-eol-tau-0.1"' in svg and "<dc:date>" not in svg
    pdf = first[1].read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf and b"CreationDate" not in pdf
    assert "matplotlib.pyplot" not in sys.modules or mpl.pyplot.get_fignums() == []


def test_a_figure_of_nothing_is_refused():
    points, significance, replicas, study = tabulate()
    with pytest.raises(DataError, match="at least one replica, got none"):
        sensitivity_figure(points, significance, replicas.iloc[:0], study)


def test_a_reduced_protocol_is_written_on_the_figure():
    options = {"n": 3, "budget": Budget(epochs=60, probe_epochs=30), "protocol": Protocol.named("released")}
    frames = tabulate(**options, default=Hyperparameters(masking="random", mask_prob=0.2))
    shown = " ".join(text.get_text() for text in sensitivity_figure(*frames).texts)
    reduced = "Reduced protocol: 3 seeds (full: 10), 60 pretraining epochs (full: 1000), 30 probe epochs (full: 100)."
    assert reduced in shown
    assert "Departures: label_order alphabetical" in shown
    assert "Default point: masking random, mask_prob 0.2." in shown
    assert reduced in caption_text(*frames[1:])


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ({}, ()),
        ({"n": 12}, ("Changed protocol: 12 seeds (full: 10)",)),
        ({"n": 1}, ("Reduced protocol: 1 seed (full: 10)",)),
        ({"seeds_vary": "split"}, ("Seeds vary the split too",)),
        ({"seeds_vary": "probe"}, ("Seeds vary the probes only",)),
    ],
)
def test_protocol_notes(options, notes):
    study = SensitivityStudy(cards=(FakeCard("eol"),), seeds=seeds(options.pop("n", 10)), **options)
    assert protocol_notes(study) == notes


def test_an_exploratory_metric_is_labelled_on_figure_and_caption():
    frames = tabulate(metrics={"eol": "accuracy"})
    assert figure_notes(frames[3], frames[2]) == ("Exploratory, not the primary metric: Accuracy of eol",)
    assert "Exploratory" in " ".join(text.get_text() for text in sensitivity_figure(*frames).texts)
    assert "exploratory: not the primary metric" in caption_text(*frames[1:])
    assert figure_notes(tabulate()[3], tabulate()[2]) == ()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "* p ≤ 0.05; ** p ≤ 0.01 (vs default, Holm within panel); ≈ equivalent within ±0.01."),
        ({"n": 5}, "No difference can be significant (least adjusted p 0.25); ≈ equivalent within ±0.01."),
        ({"n": 1}, "No marks: needs at least 2 pairs, got 1."),
        (
            {"seeds_vary": "probe"},
            "No marks: seeds vary the evaluation alone, and one pretraining says nothing about another.",
        ),
    ],
)
def test_mark_key_names_only_what_can_appear(options, key):
    assert mark_key(tabulate(**options)[1]) == key


def test_mark_key_explains_three_stars_identity_and_divergence():
    assert "*** p ≤ 0.001" in mark_key(tabulate(test="t")[1])
    assert "≡ identical scores" in mark_key(tabulate(scorer=lambda *_: 0.9)[1])
    assert "†n: n diverged replicas" in mark_key(tabulate(scorer=some_diverge)[1])
    assert "±0.01 or ±0.02 sd of the train target" in mark_key(tabulate(("eol", "pt"))[1])


def test_caption_says_what_the_reader_must_know():
    text = caption_text(*tabulate(scorer=some_diverge)[1:], titles={"eol": "Obesity levels"})
    for part in (
        "Sensitivity of Obesity levels to w_sord, w_mse, w_var, patience, tau.",
        "mean test score over 10 seeds",
        "the split is fixed",
        "95 % t intervals over seeds, not adjusted",
        "exact two-sided Wilcoxon signed-rank test of point against default, paired by seed",
        "Holm over the 4 contrasts of a panel",
        "over all 20 contrasts",
        "No mark means undecided, not robust.",
        "conditional on the split",
        "n_test = 423",
        "bootstrap SE over test rows 0.019",
        "n = 10 pairs",
        "least possible p 0.00195, adjusted 0.00781: at most **",
        "margin ±0.01",
        "2 of 210 replicas diverged",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"seeds_vary": "probe"}, ["No test was run and no mark is drawn: seeds vary the evaluation alone"]),
        ({"n": 1}, ["over 1 seed", "dashed line: the default", "needs at least 2 pairs, got 1"]),
        ({"n": 3}, ["adjusted 1: no star can be reached", "margin out of reach in"]),
        ({"seeds_vary": "split"}, ["corrected resampled t test", "no floor on p", "Each seed has its own split."]),
        ({"datasets": ("eol", "pt")}, ["difference of the test score to the default", "errors in sd of the train"]),
        ({"test": "t", "scorer": some_diverge}, ["two-sided paired t test", "1 contrasts without a test"]),
    ],
)  # fmt: skip
def test_caption_of_special_studies(options, parts):
    text = caption_text(*tabulate(**options)[1:])
    for part in parts:
        assert part in text, part


def test_axis_label_breaks_before_the_direction_when_long():
    assert axis_label(tabulate()[2]) == "Test QWK (higher is better)"
    assert axis_label(tabulate(("eol", "hfc"))[2]) == "Test score − default\n(up is better)"
