"""The figure of gains shows the tables: marks, counts, differences, intervals; words fit the page; files stay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.text import Text

from adaptbin.config import Budget, Finetuning, Protocol
from adaptbin.errors import DataError
from sweeps.service.captions_finetune import axis_label, caption_text, figure_key
from sweeps.service.figures_finetune import finetune_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.methods_finetune import ENCODERS, PRETRAINED, FinetuneStudy
from sweeps.service.rows_finetune import drawn_arms, goes_beyond
from sweeps.service.tables import rows_of
from sweeps.service.tables_finetune import finetune_tables
from tests.service.synthetic import FakeCard, gaining, make_finetune_records, metrics_of, seeds
from tests.service.test_figures import EIGHT, shown_boxes, texts


def some_diverge(dataset, encoder, method, seed):
    lost = {("tabnet", "supervised", 1), ("tabnet", "supervised", 2), ("resnet", "BR", 3)}
    return None if (encoder, method, seed) in lost else gaining()(dataset, encoder, method, seed)


def tabulate(datasets=("eol",), n=10, scorer=None, metrics=None, target_sd=1.0, drop=0, **options):
    study = FinetuneStudy(cards=tuple(FakeCard(key) for key in datasets), seeds=seeds(n), **options)
    records = [r | {"target_sd": target_sd} for r in make_finetune_records(study, scorer or gaining())]
    records = records[: len(records) - drop]
    return finetune_tables(records, study, metrics or metrics_of(study), metrics_of(study)), study


def noisy_tabnet(dataset, encoder, method, seed):
    """TabNet's scores scatter ten times as far."""
    return gaining(noise=0.05 if encoder == "tabnet" else 0.004)(dataset, encoder, method, seed)


CASES = {
    "one": {},
    "one, some diverged": {"scorer": some_diverge},
    "one encoder": {"encoders": ("mlp",), "n": 3},
    "an error by t": {"datasets": ("pt",), "test": "t", "target_sd": 8.0},
    "two": {"datasets": ("eol", "bfp"), "encoders": ("mlp", "resnet"), "scorer": some_diverge},
    "three": {"datasets": ("eol", "hfc", "pt"), "scorer": some_diverge},
    "five": {"datasets": EIGHT[:5]},
    "eight, some diverged": {"datasets": EIGHT, "scorer": some_diverge, "n": 6},
    "one seed": {"n": 1, "budget": Budget(epochs=60), "finetuning": Finetuning(epochs=10)},
    "probe": {"seeds_vary": "probe", "n": 3, "protocol": Protocol.named("released")},
    "split, two sets": {"seeds_vary": "split", "datasets": ("eol", "pt")},
    "no spread": {"scorer": lambda *_: 0.9},
    "all diverged": {"scorer": lambda *_: None},
    "an encoder is missing": {"drop": 40},
    "large gains": {"scorer": gaining({"MR": 0.1, "BR": -0.1, "Ours": 0.2})},
    "a noisy encoder": {"scorer": noisy_tabnet},
    "a noisy encoder, three": {"scorer": noisy_tabnet, "datasets": ("eol", "hfc", "pt")},
    "another metric": {"metrics": {"eol": "accuracy"}},
}


@pytest.mark.parametrize("case", CASES)
def test_marks_and_counts_equal_the_tables_exactly(case):
    tables, study = tabulate(**CASES[case])
    figure = finetune_figure(tables, study)
    rows = tables.against("supervised").to_dict("records")
    names = {id(row): f"{row['dataset']}-{row['encoder']}-{row['method']}" for row in rows}
    assert texts(figure, "mark-") == {names[id(row)]: row["mark"] for row in rows if row["mark"]}
    assert texts(figure, "diverged-") == {names[id(row)]: f"†{row['n_diverged']}" for row in rows if row["n_diverged"]}
    scratch = tables.table[(tables.table["method"] == "supervised") & (tables.table["n"] > 0)]
    assert texts(figure, "supervised-") == (
        {f"{r['dataset']}-{r['encoder']}": f"{r['mean']:.4f}" for r in scratch.to_dict("records")}
        if len(study.datasets) == 1
        else {}
    )


@pytest.mark.parametrize("case", CASES)
def test_no_text_leaves_the_page_or_overlaps_another(case):
    figure = finetune_figure(*tabulate(**CASES[case]))
    page, boxes = figure.bbox, shown_boxes(figure)
    for text, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text
    for (first, a), (second, b) in itertools.combinations(boxes, 2):
        assert not a.padded(-0.7).overlaps(b.padded(-0.7)), (first, second)


@pytest.mark.parametrize("datasets", [("eol",), ("eol", "pt")])
def test_each_arm_shows_its_difference_interval_and_seeds(datasets):
    tables, study = tabulate(datasets, scorer=some_diverge, target_sd=8.0)
    figure = finetune_figure(tables, study)
    assert len(figure.axes) == len(datasets)
    for dataset, axes in zip(datasets, figure.axes, strict=True):
        assert axes.yaxis_inverted()
        rows, replicas = rows_of(tables.against("supervised"), dataset), rows_of(tables.replicas, dataset)
        bars = [path.vertices for collection in axes.collections for path in collection.get_paths()]
        before = -1.0
        for row in rows.to_dict("records"):  # from the top down, in the order of the table
            (mean,) = (line for line in axes.lines if list(line.get_xdata()) == [row["difference"]])
            (y,) = mean.get_ydata()
            assert y > before
            before = y
            (bar,) = (bar for bar in bars if len(bar) == 2 and bar[0, 1] == y == bar[1, 1])
            np.testing.assert_array_equal(bar[:, 0], [row["low"], row["high"]])
            (dots,) = (
                line for line in axes.lines if len(line.get_xdata()) > 2 and abs(np.mean(line.get_ydata()) - y) < 0.01
            )
            arm, scratch = (
                replicas[(replicas["encoder"] == row["encoder"]) & (replicas["method"] == method)].set_index("seed")
                for method in (row["method"], "supervised")
            )
            gains = (-1 if dataset == "pt" else 1) * (arm["test"] - scratch["test"]).dropna()
            np.testing.assert_allclose(sorted(dots.get_xdata()), sorted(gains), atol=1e-12)
        low, high = axes.get_xlim()
        margin = 0.16 if dataset == "pt" else 0.01
        assert low < -margin and high > margin
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["MLP", "ResNet", "TabNet", "FT-Transformer", "T2G-Former"]
    assert len(rows) == len(ENCODERS) * len(PRETRAINED)


def test_a_noisy_encoder_does_not_widen_the_axis_and_arrows_tell():
    tables, study = tabulate(scorer=noisy_tabnet)
    (axes,) = finetune_figure(tables, study).axes
    low, high = axes.get_xlim()
    arms = drawn_arms(tables, "eol")
    beyond = {arm.name for arm in arms if min(arm.numbers) < low or max(arm.numbers) > high}
    assert beyond and all("tabnet" in name for name in beyond)
    arrows = [line for line in axes.lines if (line.get_gid() or "").startswith("beyond-")]
    assert {line.get_gid().removeprefix("beyond-") for line in arrows} == beyond
    assert {(line.get_marker(), line.get_xdata()[0]) for line in arrows} <= {("<", low), (">", high)}
    assert "Arrows: goes on beyond the axis." in figure_key(tables)
    assert "more than 3 times as far as the median encoder" in caption_text(tables, study)
    usual, study = tabulate()
    assert not goes_beyond(usual, "eol") and "rrows" not in figure_key(usual) + caption_text(usual, study)
    # Nothing is cut of one or two encoders, of which neither is the usual one.
    assert not goes_beyond(tabulate(encoders=("mlp", "tabnet"), scorer=noisy_tabnet)[0], "eol")


def test_words_on_the_figure():
    def words(case):
        return " ".join(text.get_text() for text in finetune_figure(*tabulate(**CASES[case])).findobj(Text))

    assert "** p ≤ 0.01 (vs supervised, Holm within encoder)" in words("one")
    assert "Pretexts of eol, not tuned: MR constant, p_m 0.2; BR none, T 2; Ours none, T_init 2." in words("one")
    assert "†n: n pairs with a diverged" in words("one, some diverged")
    assert "1 seed (full: 10), 60 pretraining epochs (full: 1000), 10 fine-tuning epochs (full: 100)." in words(
        "one seed"
    )
    assert "Exploratory, not the primary metric" in words("another metric")
    assert axis_label("eol", tabulate(("eol", "pt"))[0]) == "Test QWK, gain"
    assert axis_label("pt", tabulate(("eol", "pt"))[0]) == "Test RMSE, decrease"


def test_files_are_the_same_every_time_with_text_as_text(tmp_path):
    drawn = [finetune_figure(*tabulate(scorer=some_diverge)) for _ in range(2)]
    first, second = (save_figure(figure, tmp_path / name) for figure, name in zip(drawn, "ab", strict=True))
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
    assert 'id="mark-eol-mlp-Ours"' in first[2].read_text()


def test_a_figure_of_nothing_is_refused():
    study = FinetuneStudy(cards=(FakeCard("eol"),))
    metrics = metrics_of(study)
    with pytest.raises(DataError, match="at least one replica, got none"):
        finetune_figure(finetune_tables([], study, metrics, metrics), study)


def test_the_caption_says_what_was_compared():
    text = caption_text(*tabulate(scorer=some_diverge))
    for part in (
        "Fine-tuning of whole models on eol with MLP, ResNet, TabNet, FT-Transformer, T2G-Former: supervised is",
        "100 epochs of which validation chooses one.",
        "to supervised with the same encoder and seed, over 10 seeds (one fine-tuned model each; the seed changes",
        "exact two-sided Wilcoxon signed-rank test of point against supervised, paired by seed, Holm over the 3 "
        "contrasts of an encoder of one data set (over all 25 contrasts of a data set: column p_holm_figure",
        "MR and Ours are tested against BR, too: of each encoder a family of its own, of 2, whose marks are in the",
        "eol: QWK (higher is better); n_test = 423; supervised MLP 0.",
        "n = 10 pairs; least possible p 0.00195, adjusted 0.00586: at most **; margin ±0.01;",
        "3 of 200 replicas diverged.",
        "eol, triggers, splits and bins per feature of Ours: MLP 210, 160, 10.0; ResNet",
        "Pretexts of eol, not tuned: ",
    ):
        assert part in text, part
    untested = caption_text(*tabulate(**CASES["probe"]))
    assert (
        "No test was run and no mark is drawn: seeds vary the evaluation alone" in untested
        and "against BR" not in untested
    )
    assert "Seeds vary the fine-tuning only." in untested
    assert "all diverged" not in caption_text(*tabulate(**CASES["all diverged"]))
