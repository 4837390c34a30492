"""The benchmark's methods and candidates: the paper's table, what cannot be, and packs of one pretext each."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from sweeps.service.captions_benchmark import table_caption, tuning_text
from sweeps.service.choice import Choice
from sweeps.service.decision import Decision, choice_of
from sweeps.service.grid import MaskingStudy
from sweeps.service.methods import METHODS, PRETEXTS, BenchmarkStudy, Method
from sweeps.service.notes import is_departure, protocol_notes
from sweeps.service.plan import make_plan
from sweeps.service.projection import describe_point
from tests.service.synthetic import PAPER


def test_the_methods_are_the_papers_in_its_order() -> None:
    printed = [(row["binning"], row["masking"], row["objective"]) for row in PAPER["linear_probe"]]
    assert [method.words for method in METHODS] == printed
    assert len({method.name for method in METHODS}) == 13
    assert {method.pretext for method in METHODS} == set(PRETEXTS.values())
    assert [method.has_bins for method in METHODS] == [False] * 7 + [True] * 6


def test_candidates_are_tuned_over_what_a_method_has() -> None:
    study = BenchmarkStudy(cards=(get_card("eol"), get_card("hfc")))
    counts = {method.name: len(candidates) for method, candidates in study.candidates.items()}
    assert list(counts.values()) == [1] + [3] * 6 + [2, 6, 6] + [2, 6, 6]
    assert len(study.points) == len(set(study.points)) == 47
    assert study.unique_points_of("hfc") == study.points
    assert len(study.all_replicas) == len({replica.id for replica in study.all_replicas}) == 2 * 47 * 10
    for method, candidates in study.candidates.items():
        for point in candidates:
            assert (point.pretext, point.masking) == (method.pretext, method.masking)
            assert study.method_of(point) == method
            moved = {k for k, v in point.to_dict().items() if v != Hyperparameters().to_dict().get(k)}
            assert moved <= {"pretext", "masking", "mask_prob"} | ({"t_init"} if method.has_bins else set())
        assert {point.mask_prob for point in candidates} == ({0} if method.masking == "none" else {0.1, 0.2, 0.3})
        assert {point.t_init for point in candidates} == ({2, 10} if method.has_bins else {2})
    # Ties go to the first: lower p_m, then lower T.
    tuned = [(point.mask_prob, point.t_init) for point in study.candidates[Method("fixed", "random", "BR")]]
    assert tuned == [(0.1, 2), (0.1, 10), (0.2, 2), (0.2, 10), (0.3, 2), (0.3, 10)]


def test_adaptive_binning_is_shared_with_the_masking_study() -> None:
    benchmark, masking = BenchmarkStudy(cards=(get_card("eol"),)), MaskingStudy(cards=(get_card("eol"),))
    assert {replica.id for replica in masking.all_replicas} < {replica.id for replica in benchmark.all_replicas}
    assert Hyperparameters() in benchmark.points and benchmark.default_of("eol") == Hyperparameters()


def test_replicas_carry_everything_that_was_asked_for() -> None:
    asked = BenchmarkStudy(
        cards=(get_card("eol"),),
        seeds=(4, 7),
        seeds_vary="split",
        protocol=Protocol.named("released"),
        budget=Budget(epochs=3),
    )
    assert [replica.seed for replica in asked.all_replicas] == [4] * 47 + [7] * 47
    assert {(r.seeds_vary, r.protocol, r.budget.epochs) for r in asked.all_replicas} == {("split", asked.protocol, 3)}
    for arguments in ({"cards": []}, {"cards": [get_card("eol")] * 2}, {"cards": [get_card("eol")], "seeds": ()}):
        with pytest.raises(ConfigError, match="each named once"):
            BenchmarkStudy(**arguments)


def test_a_pack_holds_one_pretext() -> None:
    packs = make_plan(BenchmarkStudy(cards=(get_card("breast_cancer"),), seeds=(0, 1)), set()).packs
    pretexts = [{replica.hyperparameters.pretext for replica in pack.replicas} for pack in packs]
    assert all(len(names) == 1 for names in pretexts)
    assert set.union(*pretexts) == set(PRETEXTS.values())
    assert sum(len(pack.replicas) for pack in packs) == 94


def test_methods_that_cannot_be_are_refused() -> None:
    study = BenchmarkStudy(cards=(get_card("eol"),), seeds=(0,))
    with pytest.raises(ConfigError, match="mask_xent predicts which entries are masked, so masking must be on"):
        replace(study.points[0], pretext="mask_xent")
    with pytest.raises(ConfigError, match="t_init must be a whole number >= 2, got 1"):
        BenchmarkStudy(cards=(get_card("eol"),), t_inits=(1, 2))
    with pytest.raises(ConfigError, match="got masking 'constant' with mask_prob 0.0"):
        study.with_value("mask_prob", 0)


def made(dataset: str, **chosen: object) -> Choice:
    study = MaskingStudy(cards=(get_card(dataset),))
    decision = Decision(replace(Hyperparameters(), **chosen), reason="", n_points=14, n_diverged=0, val_mean=0.9)
    choice = choice_of(decision, study, "auc")
    assert choice is not None
    return choice


class TestNothingTuned:
    """All methods start from what the masking study chose for adaptive binning, each data set from its own."""

    study = BenchmarkStudy(
        cards=(get_card("hfc"), get_card("ilpd")),
        choices={
            "hfc": made("hfc", masking="random", mask_prob=0.3, t_init=10),
            "ilpd": made("ilpd"),
        },
    )

    @pytest.mark.parametrize(("dataset", "mask_prob", "t_init"), [("hfc", 0.3, 10), ("ilpd", 0.2, 2)])
    def test_every_method_has_the_p_m_and_t_of_the_choice(self, dataset: str, mask_prob: float, t_init: int) -> None:
        points = self.study.unique_points_of(dataset)
        assert [self.study.method_of(point) for point in points] == list(METHODS)
        assert self.study.only(dataset).points == points
        for method, point in zip(METHODS, points, strict=True):
            assert point.mask_prob == (0 if method.masking == "none" else mask_prob)
            assert point.t_init == (t_init if method.has_bins else 2)
            assert point in BenchmarkStudy(cards=(get_card(dataset),)).points  # so results are shared
        chosen = self.study.default_of(dataset)
        assert chosen in points and self.study.method_of(chosen).objective == "Ours"

    def test_that_is_told(self) -> None:
        assert self.study.extent["mask_prob"] == [0.2, 0.3] and self.study.extent["t_init"] == [2, 10]
        *defaults, untuned = protocol_notes(self.study)
        assert len(defaults) == 2 and is_departure(untuned) and not any(map(is_departure, defaults))
        assert untuned.startswith(
            "Nothing was tuned: all methods have the p_m and T that validation chose for adaptive"
        )
        assert tuning_text(self.study.only("hfc")).startswith(
            "No method was tuned: p_m 0.3 where it masks, T (T_init of"
        )
        assert "of each method were chosen" not in table_caption(
            pd.DataFrame({"metric": ["auc"], "dataset": "hfc"}), self.study
        )

    def test_no_value_is_added_or_cancelled(self) -> None:
        for change in (self.study.with_value, self.study.without_value):
            value = 0.4 if change == self.study.with_value else 0.1
            with pytest.raises(ConfigError, match="p_m and T are those of --choice-from, so none is added or canc"):
                change("mask_prob", value)


def test_values_come_and_go() -> None:
    study = BenchmarkStudy(cards=(get_card("eol"),), seeds=(0,))
    more = study.with_value("mask_prob", 0.4).with_value("t_init", 5)
    assert len(more.points) == 1 + 6 * 4 + 2 * (3 + 2 * 4 * 3)
    assert more.extent["mask_prob"] == [0.1, 0.2, 0.3, 0.4] and more.extent["t_init"] == [2, 5, 10]
    assert more.without_value("t_init", 5).without_value("mask_prob", 0.4) == study
    # What has no bins is trained once whatever T is.
    assert len(study.without_value("t_init", 2).points) == 1 + 6 * 3 + 7 + 7
    assert more.option_for("t_init=5") == "--t-init 2,5,10"
    with pytest.raises(ConfigError, match=r"unknown side of this grid 'tau' \(known: mask_prob, t_init\)"):
        study.with_value("tau", 0.1)


def test_names_of_points() -> None:
    study = BenchmarkStudy(cards=(get_card("eol"),), seeds=(0,))
    words = [study.words_of(point) for point in study.points]
    assert words[:2] == ["none/none/VR", "none/constant/VR, p_m 0.1"]
    assert words[-1] == "adaptive/random/Ours, p_m 0.3, T_init 10"
    assert "fixed/none/BR, T 2" in words and len(set(words)) == 47
    default = study.default_of("eol").to_dict()
    names = [describe_point(point.to_dict(), default).name for point in study.points]
    assert names[0] == "pretext = value_recon" and "default" in names and len(set(names)) == 47
    assert "masking = random, mask_prob = 0.3, pretext = mask_xent" in names
