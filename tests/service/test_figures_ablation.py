"""The ablation figure shows the tables: marks, differences, intervals, bins; words fit the page; files are the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.text import Text

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.errors import DataError
from sweeps.service.captions_ablation import axis_label, caption_text
from sweeps.service.figures_ablation import ablation_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.rows_ablation import drawn_variants, margins_of, name_of
from sweeps.service.tables import rows_of
from sweeps.service.tables_ablation import ablation_tables
from sweeps.service.variants import AblationStudy
from tests.service.synthetic import FakeCard, lacking, make_ablation_records, metrics_of, seeds
from tests.service.test_choice import choice_of
from tests.service.test_figures import EIGHT, shown_boxes, texts
from tests.service.test_tables_ablation import LOSS, some_diverge


def full_diverges(dataset, variant, seed):
    return None if variant == "full" and seed == 3 else some_diverge(dataset, variant, seed)


def tabulate(datasets=("eol",), n=10, scorer=None, metrics=None, target_sd=1.0, **options):
    study = AblationStudy(cards=tuple(FakeCard(key) for key in datasets), seeds=seeds(n), **options)
    records = [r | {"target_sd": target_sd} for r in make_ablation_records(study, scorer or lacking(LOSS))]
    return ablation_tables(records, study, metrics or metrics_of(study), metrics_of(study)), study


CASES = {
    "one": {},
    "an error by t": {"datasets": ("pt",), "test": "t", "target_sd": 8.0},
    "three": {"datasets": ("eol", "hfc", "pt"), "scorer": full_diverges},
    "eight, some diverged": {"datasets": EIGHT, "scorer": some_diverge, "n": 6},
    "one, some diverged": {"scorer": full_diverges},
    "one seed": {"n": 1, "budget": Budget(epochs=60)},
    "one seed, two sets": {"n": 1, "datasets": ("eol", "hfc")},
    "probe": {"seeds_vary": "probe", "n": 3, "protocol": Protocol.named("released")},
    "split, two sets": {"seeds_vary": "split", "datasets": ("eol", "pt")},
    "full itself": {"default": Hyperparameters(t_max=2), "t_maxs": (10,)},
    "many bounds": {"t_maxs": (3, 10, 20, 50, 100, 150)},
    "no bounds": {"t_maxs": ()},
    "no spread": {"scorer": lambda *_: 0.9},
    "all diverged": {"scorer": lambda *_: None},
    "all diverged, two sets": {"scorer": lambda *_: None, "datasets": ("eol", "pt")},
    "another metric": {"metrics": {"eol": "accuracy"}},
}


@pytest.mark.parametrize("case", CASES)
def test_marks_and_counts_equal_the_tables_exactly(case):
    tables, study = tabulate(**CASES[case])
    figure = ablation_figure(tables, study)
    marked = tables.significance[tables.significance["mark"] != ""].to_dict("records")
    assert texts(figure, "mark-") == {name_of(row["dataset"], row["variant"]): row["mark"] for row in marked}
    counted = tables.points[tables.points["n_diverged"] > 0].to_dict("records")
    several = len(study.datasets) > 1
    assert texts(figure, "diverged-") == {
        name_of(row["dataset"], row["variant"]): f"†{row['n_diverged']}"
        for row in counted
        if not (several and row["is_default"])
    }
    if several:  # full has no row there, so the legend counts it
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        for row in counted:
            assert not row["is_default"] or any(f"full †{row['n_diverged']})" in label for label in labels)


@pytest.mark.parametrize("case", CASES)
def test_no_text_leaves_the_page_or_overlaps_another(case):
    figure = ablation_figure(*tabulate(**CASES[case]))
    page, boxes = figure.bbox, shown_boxes(figure)
    for text, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text
    for (first, a), (second, b) in itertools.combinations(boxes, 2):
        assert not a.padded(-0.7).overlaps(b.padded(-0.7)), (first, second)


def test_each_row_shows_its_difference_interval_seeds_and_bins():
    tables, study = tabulate(scorer=some_diverge)
    axes = ablation_figure(tables, study).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == list(tables.points["variant"])
    middles = dict(zip(labels, axes.get_yticks(), strict=True))
    assert list(middles.values()) == sorted(middles.values()) and axes.yaxis_inverted()
    bars = [path.vertices for collection in axes.collections for path in collection.get_paths()]
    for row in tables.significance.to_dict("records"):
        y = middles[row["variant"]]
        (mean,) = (line for line in axes.lines if list(line.get_ydata()) == [y])
        assert mean.get_xdata()[0] == row["difference"]
        (bar,) = (bar for bar in bars if bar[0, 1] == y)
        np.testing.assert_array_equal(bar[:, 0], [row["low"], row["high"]])
        near = [line for line in axes.lines if len(line.get_xdata()) > 2 and abs(np.mean(line.get_ydata()) - y) < 0.01]
        (dots,) = near
        of_variant, full = (
            tables.replicas[tables.replicas["variant"] == name].set_index("seed")["test"]
            for name in (row["variant"], "full")
        )
        np.testing.assert_allclose(sorted(dots.get_xdata()), sorted((of_variant - full).dropna()), atol=1e-12)
    shown = ablation_figure(tables, study)
    for head, column in (("triggers", "triggers_mean"), ("splits", "splits_mean"), ("bins", "bins_mean")):
        assert texts(shown, f"{head}-eol-") == {
            row["variant"].replace(" ", "_"): f"{row[column]:.1f}" for row in tables.points.to_dict("records")
        }
    assert texts(shown, "triggers-eol-")["w/o_FWA"] == "0.0"


def test_the_papers_variants_stand_above_the_further_ones():
    axes = ablation_figure(*tabulate()).axes[0]
    places = {text.get_text(): text.xy[1] for text in axes.texts if text.get_style() == "italic"}
    middles = dict(zip((label.get_text() for label in axes.get_yticklabels()), axes.get_yticks(), strict=True))
    assert middles["full"] < places["the paper's (Table 3)"] < middles["w/o FWA"]
    assert middles["w/o HORD"] < places["further"] < middles["w/o Gain_var"]


def test_one_data_set_is_drawn_in_its_unit_and_several_in_standard_deviations_of_the_target():
    one, _ = tabulate(("pt",), target_sd=8.0)
    two, _ = tabulate(("eol", "pt"), target_sd=8.0)
    assert margins_of(one) == [0.16] and margins_of(two) == [0.02, 0.01]
    for tables, scale in ((one, 1.0), (two, 1 / 8)):
        differences = rows_of(tables.significance, "pt").set_index("variant")["difference"]
        for drawn in drawn_variants(tables):
            if drawn.dataset == "pt" and drawn.variant != "full":
                assert drawn.difference == pytest.approx(differences[drawn.variant] * scale)
                assert np.mean(drawn.dots) == pytest.approx(drawn.difference)
    lost = {drawn.variant: drawn.difference for drawn in drawn_variants(one)}
    assert lost["w/o FWA"] < 0  # a higher error is worse, and worse is left
    assert axis_label(one) == "Test RMSE, full − variant of the same seed (right is better)"
    assert axis_label(two).endswith(
        " against full of the same seed (right is better; errors in sd of the train target)"
    )
    assert axis_label(tabulate()[0]) == "Test QWK, variant − full of the same seed (right is better)"


def test_a_pair_of_which_a_replica_diverged_has_no_dot():
    def scorer(dataset, variant, seed):
        lost = {0: ("full",), 1: ("w/o HORD",), 2: ("full", "w/o HORD")}.get(seed, ())
        return None if variant in lost else lacking(LOSS)(dataset, variant, seed)

    tables, _ = tabulate(scorer=scorer)
    dots = {drawn.variant: len(drawn.dots) for drawn in drawn_variants(tables)}
    assert (dots["w/o HORD"], dots["w/o FWA"], dots["full"]) == (7, 8, 0)
    nothing = drawn_variants(tabulate(scorer=lambda *_: None)[0])
    assert [len(drawn.numbers(with_dots=True)) for drawn in nothing] == [0] * 8


def test_words_on_the_figure():
    def words(case):
        return " ".join(text.get_text() for text in ablation_figure(*tabulate(**CASES[case])).findobj(Text))

    tables, _ = tabulate()
    mean = tables.points["mean"].iloc[0]
    assert f"eol: test QWK (higher is better); full {mean:.4f}" in words("one")
    assert "** p ≤ 0.01 (vs full, Holm within group); ≈ equivalent within ±0.01." in words("one")
    assert "Reduced protocol: 1 seed (full: 10), 60 pretraining epochs (full: 1000)." in words("one seed")
    assert "≡ identical scores" in words("full itself")
    assert "Exploratory, not the primary metric: accuracy of eol" in words("another metric").replace("Acc", "acc")
    assert "hfc (AUC, full †1)" in words("three")


def test_files_are_the_same_every_time_with_text_as_text(tmp_path):
    drawn = [ablation_figure(*tabulate(scorer=some_diverge)) for _ in range(2)]
    first, second = (save_figure(figure, tmp_path / name) for figure, name in zip(drawn, "ab", strict=True))
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
    assert 'id="mark-eol-w/o_FWA"' in first[2].read_text()


def test_a_figure_of_nothing_is_refused():
    study = AblationStudy(cards=(FakeCard("eol"),))
    metrics = metrics_of(study)
    with pytest.raises(DataError, match="at least one replica, got none"):
        ablation_figure(ablation_tables([], study, metrics, metrics), study)


def test_the_caption_says_what_was_compared_and_what_the_parts_did():
    text = caption_text(*tabulate(scorer=some_diverge))
    for part in (
        "Ablation of adaptive binning on eol. Full is the default point; each variant changes one thing of it: "
        "w/o FWA: t_max = 2; w/o FPT: refine_every = 6; w/o DIGS: split_score = variance; w/o HORD: pretext = "
        "adaptive_bin_recon; w/o Gain_var: split_score = dispersion; T_max 10: t_max = 10; T_max 50: t_max = 50.",
        "the paper's (Table 3) 4 (w/o FWA, w/o FPT, w/o DIGS, w/o HORD), further 3 (w/o Gain_var, T_max 10, T_max 50)",
        "mean difference of the test score to full of the same seed, over 10 seeds (each the mean of 5 linear probes",
        "exact two-sided Wilcoxon signed-rank test of point against full, paired by seed, Holm over the 3 or 4 "
        "contrasts of a group of one data set (over all 7 contrasts of a data set: column p_holm_figure",
        "Equivalence: two one-sided paired t tests (90 % interval inside the margin), Holm within group.",
        "eol: QWK (higher is better); n_test = 423; full 0.",
        "per replica of full 210 triggers, 160 splits, 10.0 bins per feature at the end; 2 of 80 replicas diverged.",
        "eol, triggers, splits and bins per replica of the variants: w/o FWA 0, 0, 2.0; w/o FPT 210, 160, 10.0;",
    ):
        assert part in text, part
    assert "default" not in text.replace("default point", "")


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("probe", ["no mark is drawn: seeds vary the evaluation alone", "Seeds vary the probes only."]),
        ("one seed", ["needs at least 2 pairs, got 1", "over 1 seed"]),
        ("split, two sets", ["corrected for shared rows between splits", "errors in sd of the train target"]),
        ("full itself", ["w/o FWA: nothing", "≡ identical scores", "Default point: t_max 2."]),
        ("all diverged", ["every pair has a diverged replica", "per replica of the variants: none finished."]),
        ("another metric", ["exploratory: not the primary metric"]),
    ],
)  # fmt: skip
def test_caption_of_special_studies(case, parts):
    text = caption_text(*tabulate(**CASES[case]))
    for part in parts:
        assert part in text, part


def test_variants_that_agree_with_each_other_but_not_with_full_are_named():
    def scorer(dataset, variant, seed):
        alike = {"w/o Gain_var": "w/o DIGS", "T_max 50": "full"}
        return lacking(LOSS)(dataset, alike.get(variant, variant), seed)

    text = caption_text(*tabulate(scorer=scorer))
    assert text.count("in every seed") == 1
    assert "T_max 50 210, 160, 10.0. w/o DIGS and w/o Gain_var have the same scores in every seed.\n" in text
    assert "in every seed" not in caption_text(*tabulate())
    assert "in every seed" not in caption_text(*tabulate(scorer=lambda *_: None))


def test_data_sets_may_differ_in_a_change():
    chosen = choice_of(hyperparameters=Hyperparameters(t_init=5))
    text = caption_text(*tabulate(("eol", "hfc"), choices={"eol": chosen}))
    assert "w/o FWA: t_max = 5 or t_max = 2; " in text
    assert "Default point of eol, chosen on validation with the same seeds: masking none" in text
