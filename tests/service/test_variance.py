"""The variance study: its replicas, its tables against a model with known variances, and its figure."""

from __future__ import annotations

import io
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from matplotlib.text import Text
from rich.console import Console

from adaptbin.config import SPLIT_SEED, Budget, Hyperparameters
from adaptbin.data import get_card
from adaptbin.errors import ConfigError, DataError
from sweeps.service.captions_variance import caption_text
from sweeps.service.components import MeanSquare, difference, whole
from sweeps.service.figures_style import save_figure
from sweeps.service.figures_variance import variance_figure
from sweeps.service.plan import make_plan
from sweeps.service.tables_variance import COMPONENTS, summary_table, variance_tables
from sweeps.service.variance import KINDS, VarianceStudy
from tests.reference import components as reference
from tests.service.synthetic import METRIC_OF, FakeCard, make_variance_records, seeds
from tests.service.test_choice import choice_of


def nested(split=0.02, pretraining=0.008, probe=0.004, probes=5, base=0.9, study=0):
    """Probe scores of a replica: effects of its split, of its pretraining on it, and of each probe; drawn anew for
    another ``study``."""

    def normal(*names):
        return float(np.random.default_rng([study, *names]).standard_normal())

    def score(replica):
        drawn = replica.seeds
        of_model = (drawn.split, drawn.pretrain)
        effect = split * normal(1, drawn.split) + pretraining * normal(2, *of_model)
        return [base + effect + probe * normal(3, *of_model, drawn.probe, number) for number in range(probes)]

    return score


def tabulate(dataset="eol", n=10, scorer=None, lost=(), drop=0, **options):
    """Tables and study; ``lost`` holds (kind, seed) that diverged, the last ``drop`` records are not there."""
    study = VarianceStudy(cards=(FakeCard(dataset),), seeds=seeds(n), **options)
    usual = scorer or nested()
    records = make_variance_records(study, lambda r: None if (r.seeds_vary, r.seed) in lost else usual(r))
    return variance_tables(records[: len(records) - drop], study, METRIC_OF[dataset]), study


def part(tables, name):
    (row,) = tables.components[tables.components["component"] == name].to_dict("records")
    return row


class TestStudy:
    def test_one_point_under_every_kind_of_seeds(self):
        study = VarianceStudy(cards=(get_card("eol"), get_card("hfc")), choices={"hfc": choice_of("hfc")})
        replicas = study.replicas["hfc"]
        assert Counter(r.seeds_vary for r in replicas) == dict.fromkeys(KINDS, 10)
        assert {r.hyperparameters for r in replicas} == {study.default_of("hfc")} != {Hyperparameters()}
        for kind in KINDS:
            drawn = [r.seeds for r in replicas if r.seeds_vary == kind]
            assert len({seed.split for seed in drawn}) == (10 if kind == "split" else 1)
            assert len({seed.pretrain for seed in drawn}) == (1 if kind == "probe" else 10)

    def test_probes_of_one_pretraining_are_one_pack(self):
        plan = make_plan(VarianceStudy(cards=(get_card("eol"),)), ())
        packs = [pack for pack in plan.packs if pack.replicas[0].seeds_vary == "probe"]
        assert [len(pack.replicas) for pack in packs] == [10] and len(plan.to_do) == 30

    def test_parts_of_it(self):
        study = VarianceStudy(cards=(get_card("eol"), get_card("hfc")), seeds=(1, 2, 5)).only("hfc").only_seeds((2, 5))
        assert len(study.all_replicas) == 6 and study.datasets == ("hfc",)

    def test_what_cannot_be(self):
        with pytest.raises(ConfigError, match="a variance needs at least 2 seeds, got 1"):
            VarianceStudy(cards=(get_card("eol"),), seeds=(3,))
        with pytest.raises(ConfigError, match="vary in every way, so none can be named, got 'probe'"):
            VarianceStudy(cards=(get_card("eol"),), seeds_vary="probe")
        with pytest.raises(ConfigError, match="at least one data set, each named once"):
            VarianceStudy(cards=())
        study = VarianceStudy(cards=(get_card("eol"),))
        with pytest.raises(ConfigError, match="one point, so nothing can be added to it, got tau=0.1"):
            study.with_value("tau", 0.1)
        with pytest.raises(ConfigError, match="one point, so nothing can be cancelled in it, got tau=0.1"):
            study.without_value("tau", 0.1)
        assert study.option_for("tau=0.1") is None


class TestTables:
    def test_components_are_those_of_the_records(self):
        """From the definitions, on the scores as they are; seed 0 is one model with one set of probes."""
        tables, study = tabulate(n=6)
        scorer, models = nested(), {}
        for replica in study.all_replicas:
            drawn = replica.seeds
            models.setdefault((drawn.split, drawn.pretrain), {})[drawn.probe] = scorer(replica)
        assert sorted(map(len, models.values())) == [1] * 10 + [6]
        single = [[score for probes in seeds.values() for score in probes] for seeds in models.values()]
        value, degrees = reference.average([(reference.mean_square(scores), len(scores) - 1) for scores in single])
        probe = MeanSquare(value / 5, degrees)
        scores = {kind: [np.mean(scorer(r)) for r in study.all_replicas if r.seeds_vary == kind] for kind in KINDS}
        between = {kind: MeanSquare(float(np.var(scores[kind], ddof=1)), 5) for kind in KINDS}
        expected = {
            "split": difference(between["split"], between["pretrain"]),
            "pretraining": difference(between["pretrain"], probe),
            "probe": whole(probe),
            "total": whole(between["split"]),
        }
        assert list(tables.components["component"]) == list(expected)
        for name, component in expected.items():
            row = part(tables, name)
            assert [row["variance"], row["low"], row["high"]] == pytest.approx(list(component), rel=1e-9)
            roots = [max(value, 0.0) ** 0.5 for value in component]
            assert [row["sd"], row["sd_low"], row["sd_high"]] == pytest.approx(roots, rel=1e-9)
        assert list(tables.components["degrees"]) == ["5/5", f"5/{degrees:.4g}", f"{degrees:.4g}", "5"]
        above = [max(expected[name].value, 0.0) for name in COMPONENTS]
        assert list(tables.components["share"])[:3] == pytest.approx([value / sum(above) for value in above])

    def test_estimates_are_unbiased_and_intervals_hold_what_they_say(self):
        """200 studies of 4 seeds: means within 4 standard errors, coverage of 95 % within 5 points (3 errors)."""
        truth = {"split": 4e-4, "pretraining": 6.4e-5, "probe": 1.6e-5 / 5}
        found = {name: [] for name in COMPONENTS}
        for number in range(200):
            tables, _ = tabulate(n=4, scorer=nested(study=number))
            for name in COMPONENTS:
                found[name].append(part(tables, name))
        for name, variance in truth.items():
            values = [row["variance"] for row in found[name]]
            assert np.mean(values) == pytest.approx(variance, abs=4 * np.std(values, ddof=1) / math.sqrt(200)), name
            covered = np.mean([row["low"] <= variance <= row["high"] for row in found[name]])
            assert covered == pytest.approx(0.95, abs=0.05), name

    def test_scores_of_each_kind(self):
        tables, study = tabulate(n=4, lost={("split", 2)}, drop=1)
        assert list(tables.replicas["seeds_vary"]) == ["probe"] * 4 + ["pretrain"] * 4 + ["split"] * 3
        rows = tables.points.set_index("seeds_vary")
        assert list(rows.loc["split", ["n", "n_diverged", "n_missing"]]) == [2, 1, 1]
        for kind, row in rows.iterrows():
            scores = tables.replicas.loc[tables.replicas["seeds_vary"] == kind, "test"].dropna()
            numbers = [scores.mean(), scores.std(), scores.min(), scores.max()]
            assert list(row[["mean", "sd", "least", "most"]]) == pytest.approx(numbers)
        assert study.seeds == (0, 1, 2, 3)

    def test_a_component_below_0_is_told_and_drawn_as_0(self):
        """Splits alike, pretrainings not."""
        tables, _ = tabulate(scorer=lambda r: [0.9 + 0.01 * (r.seed if r.seeds_vary == "pretrain" else 0)] * 5)
        row = part(tables, "split")
        assert row["variance"] < 0 and row["low"] < 0 and (row["sd"], row["sd_low"], row["share"]) == (0, 0, 0)
        assert part(tables, "pretraining")["share"] == 1

    def test_one_probe_each(self):
        """The kind "probe" alone tells of probes."""
        tables, _ = tabulate(scorer=nested(probes=1), budget=Budget(probes=1))
        assert part(tables, "probe")["degrees"] == "9"  # of the one pretraining that has several
        assert part(tables, "probe")["variance"] == pytest.approx(
            tables.points.set_index("seeds_vary")["sd"]["probe"] ** 2
        )

    def test_what_is_not_known(self):
        lost = {("split", seed) for seed in range(9)}
        tables, _ = tabulate(lost=lost)
        assert math.isnan(part(tables, "split")["variance"]) and math.isnan(part(tables, "total")["variance"])
        assert part(tables, "pretraining")["variance"] > 0 and tables.components["share"].isna().all()
        study = VarianceStudy(cards=(FakeCard("eol"),), seeds=(0, 1))
        with pytest.raises(DataError, match="metric 'auc' must be in the record"):
            variance_tables(make_variance_records(study, nested()), study, "auc")

    def test_no_variance_has_no_shares(self):
        tables, _ = tabulate(scorer=lambda r: [0.9] * 5)
        assert (tables.components["variance"] == 0).all() and tables.components["share"].isna().all()

    def test_console(self):
        tables, _ = tabulate(lost={("split", 2)})
        console = Console(file=io.StringIO(), width=120)
        console.print(summary_table(tables))
        shown = console.file.getvalue()
        (line,) = (line for line in shown.splitlines() if line.startswith(" split"))
        row = part(tables, "split")
        assert f"{row['sd']:.4f}" in line and f"{100 * row['share']:.0f} %" in line and "9 (†1)" in line
        assert "where the variance of test QWK is" in shown and " total" in shown


CASES = {
    "usual": {},
    "an error": {"dataset": "pt", "scorer": nested(2.0, 1.0, 0.5, base=14.0)},
    "diverged": {"lost": {("split", 1), ("split", 2), ("probe", 0)}},
    "missing": {"drop": 12},
    "all diverged": {"scorer": lambda replica: None},
    "no spread": {"scorer": lambda replica: [0.9] * 5},
    "two seeds": {"n": 2, "budget": Budget(epochs=60)},
    "one probe": {"scorer": nested(probes=1), "budget": Budget(probes=1)},
}


def texts(figure, prefix):
    found = figure.findobj(lambda artist: isinstance(artist, Text) and (artist.get_gid() or "").startswith(prefix))
    return {text.get_gid().removeprefix(prefix): text.get_text() for text in found}


@pytest.mark.parametrize("case", CASES)
class TestFigure:
    def test_numbers_are_the_tables(self, case):
        tables, study = tabulate(**CASES[case])
        figure = variance_figure(tables, study)
        rows = tables.components.set_index("component").loc[list(COMPONENTS)]
        assert texts(figure, "sd-") == {n: "–" if math.isnan(v) else f"{v:.4f}" for n, v in rows["sd"].items()}
        shares = {n: "–" if math.isnan(v) else f"{100 * v:.0f} %" for n, v in rows["share"].items()}
        assert texts(figure, "share-") == shares
        lost = {name: tables.points.set_index("seeds_vary")["n_diverged"][kind] for name, kind in COMPONENTS.items()}
        assert texts(figure, "diverged-") == {name: f"†{count}" for name, count in lost.items() if count}
        dots = [line.get_xdata() for line in figure.axes[0].lines if line.get_marker() == "o"]
        for (_, kind), drawn in zip(COMPONENTS.items(), dots, strict=True):
            group = tables.replicas[tables.replicas["seeds_vary"] == kind]
            assert list(drawn) == list(group["test"].dropna())

    def test_no_text_leaves_the_page_or_overlaps_another(self, case):
        figure = variance_figure(*tabulate(**CASES[case]))
        figure.canvas.draw()
        boxes = []
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text().strip():
                boxes.append((text.get_text(), text.get_window_extent()))
        for axes in figure.axes:
            low, high = axes.get_xlim()
            outside = [t.label1 for t in axes.xaxis.get_major_ticks() if not low <= t.get_loc() <= high]
            gone = {label.get_window_extent().bounds for label in outside}
            boxes = [(text, box) for text, box in boxes if box.bounds not in gone]
        assert len(boxes) > 12
        for text, box in boxes:
            assert box.x0 >= figure.bbox.x0 and box.x1 <= figure.bbox.x1, text
            assert box.y0 >= figure.bbox.y0 and box.y1 <= figure.bbox.y1, text
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            assert not a.padded(-0.7).overlaps(b.padded(-0.7)), (one, other)

    def test_the_caption_tells_the_same(self, case):
        tables, study = tabulate(**CASES[case])
        told = caption_text(tables, study)
        assert "nan" not in told and "  " not in told
        for row in tables.components.to_dict("records"):
            known = not math.isnan(row["variance"])
            assert (f"{row['component']} {row['sd']:.4f} (" if known else f"{row['component']} not estimated") in told

    def test_equal_tables_give_equal_files(self, case, tmp_path):
        pages = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            paths = save_figure(variance_figure(*tabulate(**CASES[case])), tmp_path / name)
            pages.append([path.read_bytes() for path in paths])
        assert pages[0] == pages[1]


def test_a_figure_needs_a_replica():
    study = VarianceStudy(cards=(FakeCard("eol"),), seeds=(0, 1))
    with pytest.raises(DataError, match="at least one replica"):
        variance_figure(variance_tables([], study, "qwk"), study)


def test_caption_places_the_usual_split_among_the_others():
    """Not among those that it is one of: it would never be far from them."""
    tables, study = tabulate(scorer=lambda r: [0.8 if r.seeds.split == SPLIT_SEED else 0.9 + 0.001 * r.seed] * 5)
    others = [0.9 + 0.001 * seed for seed in range(1, 10)]
    told = f"use: mean 0.8000, against {np.mean(others):.4f} (sd {np.std(others, ddof=1):.4f}) over 9 other splits."
    assert told in caption_text(tables, study)
    without_0 = variance_study_of_seeds((3, 4))
    assert "over 2 other splits." in without_0 and "Seed 0 is the same model" not in without_0
    assert "Seed 0 is the same model" in caption_text(tables, study)
    tables, study = tabulate(choices={"eol": choice_of("eol")})
    assert "use, on whose validation rows the default point was chosen: mean 0." in caption_text(tables, study)


def variance_study_of_seeds(numbers):
    study = VarianceStudy(cards=(FakeCard("eol"),), seeds=numbers)
    return caption_text(variance_tables(make_variance_records(study, nested()), study, "qwk"), study)
