"""The architecture study: its points, its tables against the records, its heat map and its words."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from rich.console import Console
from scipy import stats as scipy_stats

from adaptbin.config import Architecture, Budget, Finetuning, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from sweeps.service.architectures import ArchitectureStudy
from sweeps.service.captions_architecture import caption_text, choice_text
from sweeps.service.figures_architecture import architecture_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.points import point_of
from sweeps.service.tables_architecture import architecture_tables, summary_table
from sweeps.service.tables_grid import TEST_OF_POINT, point_summaries
from tests.service.heat import check_words_can_be_read, texts
from tests.service.synthetic import METRIC_OF, FakeCard, make_grid_records, seeds

PAPER = (2, 256)
"""Depth and width of the made-up card."""


def card_of(dataset="eol"):
    return FakeCard(dataset, architecture=Architecture(width=PAPER[1], depth=PAPER[0], batch_size=16))


def place(point):
    return point.architecture.depth, point.architecture.width


def best_at(where, gap=0.01, noise=0.002):
    """Validation scores that are highest at one place, by ``gap``; test scores tell nothing of them."""

    def score(point, seed):
        own = np.random.default_rng([*place(point), seed])
        shared = 0.02 * float(np.random.default_rng(seed).standard_normal())
        return 0.9 + shared + gap * (place(point) == where) + noise * float(own.standard_normal()), own.uniform(
            0.4, 0.6
        )

    return score


def tabulate(dataset="eol", n=10, scorer=None, best=(3, 512), lost=(), drop=0, **options):
    """Tables and study; ``lost`` holds (depth, width, seed) that diverged, the last ``drop`` records are not there."""
    study = ArchitectureStudy(cards=(card_of(dataset),), seeds=seeds(n), **options)
    usual = scorer or best_at(best)
    records = make_grid_records(study, lambda p, seed: None if (*place(p), seed) in lost else usual(p, seed))
    return architecture_tables(records[: len(records) - drop], study, METRIC_OF[dataset]), study


class TestStudy:
    def test_every_depth_with_every_width_from_scratch(self):
        study = ArchitectureStudy(cards=(get_card("eol"), get_card("hfc")))
        assert [place(point) for point in study.points] == [
            (depth, width) for depth in (1, 2, 3, 4, 5) for width in (128, 256, 512, 1024)
        ]
        for card in study.cards:
            points = study.points_of(card.key)
            assert {point.architecture.batch_size for point in points} == {card.architecture.batch_size}
            assert {point.hyperparameters.pretext for point in points} == {"none"}
            assert {(point.budget.epochs, point.finetuning) for point in points} == {(0, Finetuning())}
            assert study.default_point_of(card.key) in points
        assert len(study.all_replicas) == 2 * 20 * 10
        assert {point_of(replica) for replica in study.replicas["hfc"]} == set(study.points_of("hfc"))

    def test_the_papers_choice_is_always_there(self):
        study = ArchitectureStudy(cards=(get_card("eol"), get_card("hfc")), depths=(4,), widths=(64,))
        assert (study.depths, study.widths) == ((2, 4, 5), (64, 128, 512))
        assert study.extent == {"depth": [2, 4, 5], "width": [64, 128, 512]}
        assert study.only("hfc").only("hfc").points == study.points_of("hfc")

    def test_values_come_and_go(self):
        study = ArchitectureStudy(cards=(get_card("eol"),))
        assert study.with_value("depth", 6.0).depths == (1, 2, 3, 4, 5, 6)
        assert study.without_value("width", 1024).widths == (128, 256, 512)
        for change, message in (
            (lambda: study.without_value("width", 128), "the paper's choice, .* must stay, got width=128"),
            (lambda: study.without_value("depth", 9), "a value to cancel must be one of 1, 2, 3, 4, 5, got depth=9"),
            (lambda: study.with_value("depth", 2), "a value to add must be a new one, got depth=2"),
            (lambda: study.with_value("depht", 2), "did you mean 'depth'"),
            (lambda: study.with_value("depth", 0), "depth must be a whole number >= 1, got 0"),
            (lambda: study.with_value("width", 1.5), "width must be a whole number >= 1, got 1.5"),
            (lambda: replace(study, depths=(1, 1)), "at least one depth, each named once"),
            (lambda: replace(study, widths=()), "at least one width, each named once"),
            (lambda: replace(study, budget=Budget(epochs=5)), "pretrains nothing, got 5 epochs"),
        ):
            with pytest.raises(ConfigError, match=message):
                change()


class TestTables:
    def test_numbers_agree_with_scipy(self):
        tables, study = tabulate()
        assert len(tables.replicas) == 200 and len(tables.points) == 20
        scorer = best_at((3, 512))
        val = {point: np.array([scorer(point, seed)[0] for seed in study.seeds]) for point in study.points}
        for point, row in zip(study.points, tables.points.to_dict("records"), strict=True):
            assert (row["depth"], row["width"]) == place(point)
            assert row["val_mean"] == pytest.approx(val[point].mean())
            assert row["val_sd"] == pytest.approx(val[point].std(ddof=1))
            assert (row["chosen"], row["paper"]) == (place(point) == (3, 512), place(point) == PAPER)
        best, paper = (val[next(p for p in study.points if place(p) == where)] for where in ((3, 512), PAPER))
        found = tables.comparison
        assert found.paper.difference == pytest.approx((best - paper).mean())
        assert found.standard_error == pytest.approx(best.std(ddof=1) / math.sqrt(10))
        low, high = scipy_stats.t.interval(0.95, 9, (best - paper).mean(), scipy_stats.sem(best - paper))
        assert (found.paper.low, found.paper.high) == pytest.approx((low, high))
        (row,) = tables.comparison_frame.to_dict("records")
        assert (row["chosen_depth"], row["chosen_width"], row["paper_depth"], row["paper_width"]) == (3, 512, *PAPER)
        assert row["chosen_val_mean"] - row["paper_val_mean"] == pytest.approx(row["difference"])
        assert not row["reproduced"] and row["within_one_standard_error"] == (
            row["difference"] <= row["standard_error"]
        )

    def test_models_without_bins_have_no_columns_of_them(self):
        tables, _ = tabulate(n=2)
        for frame in (tables.replicas, tables.points):
            assert not [name for name in frame if name.startswith(("bins", "splits", "triggers"))]

    @pytest.mark.parametrize("best", [(3, 512), PAPER])
    def test_test_scores_of_the_choice_and_the_papers_alone(self, best):
        tables, study = tabulate(best=best)
        for frame, columns in ((tables.points, TEST_OF_POINT), (tables.replicas, ["test", "bootstrap_se"])):
            shown = frame["chosen"] | frame["paper"]
            assert {place for place in zip(frame[shown]["depth"], frame[shown]["width"], strict=True)} == {best, PAPER}
            assert frame.loc[shown, columns].notna().all(axis=None)
            assert frame.loc[~shown, columns].isna().all(axis=None)
        hidden = tables.replicas[~tables.replicas[["chosen", "paper"]].any(axis=1)]
        assert hidden[["test_qwk", "test_accuracy"]].isna().all(axis=None) and hidden["val_qwk"].notna().all()
        summaries = point_summaries(tables.points, study)
        assert sum(not math.isnan(summary["test_mean"]) for summary in summaries.values()) == len({best, PAPER})
        assert [place(point) for point, summary in summaries.items() if summary["chosen"] == "yes"] == [best]

    def test_the_papers_choice_may_be_within_one_standard_error(self):
        near, far = (tabulate(scorer=best_at((3, 512), gap=gap))[0].comparison for gap in (0.004, 0.05))
        assert near.is_within and not far.is_within
        assert near.standard_error == pytest.approx(far.standard_error, rel=1e-6)

    def test_reproduced(self):
        tables, _ = tabulate(best=PAPER)
        found = tables.comparison
        assert found.is_reproduced and found.is_within and found.paper.difference == 0
        assert tables.comparison_frame["reproduced"].tolist() == [True]

    def test_an_error_is_better_when_it_is_smaller(self):
        tables, _ = tabulate("pt", best=(3, 512), scorer=best_at((3, 512), gap=-0.01))
        assert tables.comparison.paper.difference > 0
        assert tables.points.loc[tables.points["chosen"], "val_mean"].iloc[0] == tables.points["val_mean"].min()

    @pytest.mark.parametrize("options", [{"drop": 1}, {"lost": {(*PAPER, 0)}}, {"scorer": lambda p, s: None, "n": 2}])
    def test_what_cannot_be_compared(self, options):
        tables, study = tabulate(**options)
        assert tables.comparison is None and tables.comparison_frame.empty
        assert list(tables.comparison_frame) == list(tabulate(n=2)[0].comparison_frame)
        told = choice_text(tables, study)
        assert told.startswith("Nothing is chosen: ") or "depth 2, width 256) has a diverged seed" in told

    def test_console(self):
        tables, study = tabulate(lost={(1, 128, 0)})
        console = Console(width=110, file=io.StringIO(), force_terminal=False)
        console.print(summary_table(tables, study))
        lines = console.file.getvalue().splitlines()
        assert "eol: validation QWK from scratch (higher is better)" in lines[0]
        row = tables.points[tables.points["chosen"]].iloc[0]
        (line,) = (line for line in lines if line.rstrip().endswith("chosen"))
        assert f"{row['val_mean']:.4f}" in line and f"{row['test_mean']:.4f}" in line
        assert sum("the paper's" in line for line in lines) == 1 and sum("9 (†1)" in line for line in lines) == 1


CASES = {
    "usual": {},
    "reproduced": {"best": PAPER},
    "an error": {"dataset": "pt", "scorer": best_at((1, 128), gap=-0.01)},
    "diverged": {"lost": {(1, 128, 1), (1, 128, 2), (5, 1024, 0)}},
    "the paper's diverged": {"lost": {(*PAPER, 3)}},
    "missing": {"drop": 14},
    "all diverged": {"scorer": lambda point, seed: None},
    "no spread": {"scorer": lambda point, seed: (0.9, 0.9)},
    "one seed, few epochs": {"n": 1, "finetuning": Finetuning(epochs=10), "protocol": Protocol.named("released")},
    "a small grid": {"depths": (2,), "widths": (256,)},
    "a large grid": {"depths": tuple(range(1, 9)), "widths": (64, 128, 256, 512, 1024, 2048)},
}


@pytest.mark.parametrize("case", CASES)
def test_marks_equal_the_table_exactly(case):
    tables, study = tabulate(**CASES[case])
    figure = architecture_figure(tables, study)
    rows = {f"{row['width']}-{row['depth']}": row for row in tables.points.to_dict("records")}
    assert texts(figure, "value-") == {
        name: "–" if math.isnan(row["val_mean"]) else f"{row['val_mean']:.4f}" for name, row in rows.items()
    }
    assert texts(figure, "test-") == {
        name: f"({row['test_mean']:.4f})" for name, row in rows.items() if not math.isnan(row["test_mean"])
    }
    frames = figure.findobj(lambda artist: isinstance(artist, Rectangle) and bool(artist.get_gid()))
    marked = [f"{column}-{name}" for column in ("chosen", "paper") for name, row in rows.items() if row[column]]
    assert sorted(frame.get_gid() for frame in frames) == sorted(marked)
    told = " ".join(text.get_text() for text in figure.texts)
    assert " ".join(choice_text(tables, study).split()) in " ".join(told.split())


@pytest.mark.parametrize("case", CASES)
def test_no_text_leaves_the_page_or_overlaps_another(case):
    tables, study = tabulate(**CASES[case])
    check_words_can_be_read(architecture_figure(tables, study))


def test_equal_tables_give_equal_files(tmp_path):
    tables, study = tabulate()
    first, second = (
        [path.read_bytes() for path in save_figure(architecture_figure(tables, study), tmp_path / name)]
        for name in "ab"
    )
    assert first == second


class TestWords:
    def test_not_reproduced(self):
        tables, study = tabulate(scorer=best_at((3, 512), gap=0.05))
        text, found = choice_text(tables, study), tables.comparison
        chosen, paper = (tables.points[tables.points[column]].iloc[0] for column in ("chosen", "paper"))
        assert text.startswith("The paper's choice is not reproduced. Chosen: depth 3, width 512; validation ")
        for row in (chosen, paper):
            assert f"validation {row['val_mean']:.4f} ± {row['val_sd']:.4f}, test {row['test_mean']:.4f} ± " in text
        assert "The paper's: depth 2, width 256; validation" in text
        assert f"behind by {found.paper.difference:.2g} on validation, paired by seed (95 % t interval" in text
        assert text.endswith(f"not within one standard error of the best ({found.standard_error:.2g}).")
        near = choice_text(*tabulate(scorer=best_at((3, 512), gap=0.004)))
        assert ", within one standard error of the best" in near

    def test_reproduced(self):
        text = choice_text(*tabulate(best=PAPER))
        assert text.startswith("The paper's choice is reproduced: depth 2, width 256; validation 0.9")
        assert "(mean ± sd over 10 seeds); runner-up: depth " in text

    def test_one_seed(self):
        assert "on validation, paired by seed, and one seed has no standard error." in choice_text(*tabulate(n=1))

    def test_caption(self):
        tables, study = tabulate(finetuning=Finetuning(epochs=10), n=9)
        lines = caption_text(tables, study).splitlines()
        assert lines[0].startswith("Depth and width of the MLP on eol: mean validation QWK")
        assert "of 20 architectures (depth 1, 2, 3, 4, 5; width 128, 256, 512, 1024) over 9 seeds" in lines[0]
        assert "from scratch, 10 epochs of which validation chooses one" in lines[0]
        assert "(one fine-tuned model each; the seed changes initial weights, batch order and dropout; " in lines[0]
        assert "lower depth, then lower width" in lines[1] and choice_text(tables, study) in lines[2]
        assert lines[3:5] == ["Test scores of the other architectures are not shown.", "No replica diverged."]
        # Nothing is pretrained or probed, so only these amounts can be reduced.
        assert lines[5:] == ["Reduced protocol: 9 seeds (full: 10), 10 fine-tuning epochs (full: 100)."]
        assert len(caption_text(*tabulate()).splitlines()) == 5
