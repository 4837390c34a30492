"""The fine-tuning study: its arms and their points, pretraining settings with and without choices, what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest

from adaptbin.config import Budget, Finetuning, Hyperparameters, SeedsVary
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from adaptbin.replicas.grouping import by_model
from sweeps import finetune
from sweeps.service.methods import PRETEXTS
from sweeps.service.methods_finetune import ENCODERS, METHODS, PRETRAINED, Arm, FinetuneStudy
from sweeps.service.notes import protocol_notes
from sweeps.service.options import parse_options
from sweeps.service.plan import make_plan
from sweeps.service.pretext_choices import PretextChoices, write_choices
from tests.service.test_choice import choice_of

MASKED: dict[str, Any] = {
    "MR": {"masking": "random", "mask_prob": 0.3},
    "BR": {"masking": "constant", "mask_prob": 0.1, "t_init": 10},
    "Ours": {"t_init": 10},
}


def choices(dataset: str = "eol", **changes: Any) -> Any:
    return {
        name: choice_of(dataset, hyperparameters=Hyperparameters(pretext=PRETEXTS[name], **MASKED[name]), **changes)
        for name in PRETRAINED
    }


def study_of(*datasets: str, **options: Any) -> FinetuneStudy:
    return FinetuneStudy(cards=tuple(get_card(name) for name in datasets or ("eol",)), **{"seeds": (0, 1), **options})


def test_every_encoder_has_every_method() -> None:
    study = study_of(budget=Budget(epochs=7), finetuning=Finetuning(epochs=3))
    points = study.points_of("eol")
    assert [(p.architecture.encoder, p.hyperparameters.pretext) for p in points] == [
        (encoder, PRETEXTS.get(method, "none")) for encoder in ENCODERS for method in METHODS
    ]
    assert len(set(points)) == 20 and len(study.all_replicas) == 40
    for point in points:
        assert point.budget.epochs == (0 if point.hyperparameters.pretext == "none" else 7)
        assert point.finetuning == Finetuning(epochs=3)
        assert replace(point.architecture, encoder="mlp") == get_card("eol").architecture
    some = study_of(encoders=("tabnet", "mlp"))
    assert {r.architecture.encoder for r in some.all_replicas} == {"tabnet", "mlp"} and len(some.all_replicas) == 16
    assert some.arms[:4] == tuple(Arm("tabnet", method) for method in METHODS)


def test_without_choices_nothing_is_masked_but_where_masks_are_predicted() -> None:
    study = study_of()
    assert study.hyperparameters_of("eol", "supervised") == Hyperparameters(pretext="none") == study.default_of("eol")
    assert study.hyperparameters_of("eol", "MR") == Hyperparameters(
        pretext="mask_xent_value_recon", masking="constant", mask_prob=0.2
    )
    assert study.hyperparameters_of("eol", "BR") == Hyperparameters(pretext="bin_recon")
    assert study.hyperparameters_of("eol", "Ours") == Hyperparameters()
    assert [study.setting_of("eol", method) for method in METHODS] == [
        "not pretrained",
        "constant, p_m 0.2",
        "none, T 2",
        "none, T_init 2",
    ]


@pytest.mark.parametrize("vary", get_args(SeedsVary))
@pytest.mark.parametrize("workers", [1, 2, 7])
def test_no_pretraining_is_done_twice(vary: SeedsVary, workers: int) -> None:
    """A pack pretrains each of its models once: every pretext, encoder and seed has its models in one pack alone."""
    study = study_of(seeds=tuple(range(3)), seeds_vary=vary)
    packs = make_plan(study, (), workers=workers).packs
    pretrained = Counter(
        name
        for pack in packs
        for name, (first, *_) in by_model(pack.replicas).items()
        if first.hyperparameters.pretext != "none"
    )
    seeds = 1 if vary == "probe" else 3  # else all evaluations read one pretraining
    assert set(pretrained.values()) == {1} and len(pretrained) == len(PRETRAINED) * len(ENCODERS) * seeds
    assert sum(len(pack.replicas) for pack in packs) == len(METHODS) * len(ENCODERS) * 3
    trained = [r for pack in packs for r in pack.replicas if r.hyperparameters.pretext != "none"]
    assert {(r.hyperparameters.pretext, r.architecture.encoder, r.seeds.pretrain) for r in trained} == {
        (PRETEXTS[method], encoder, seed) for method in PRETRAINED for encoder in ENCODERS for seed in range(seeds)
    }


def test_choices_are_taken_over_by_all_encoders_of_their_data_set_alone() -> None:
    study = study_of("eol", "hfc", pretext_choices={"eol": choices()})
    for method in PRETRAINED:
        wanted = Hyperparameters(pretext=PRETEXTS[method], **MASKED[method])
        assert {study.point_of("eol", Arm(encoder, method)).hyperparameters for encoder in ENCODERS} == {wanted}
        assert study.hyperparameters_of("hfc", method) == study_of("hfc").hyperparameters_of("hfc", method)
    assert study.setting_of("eol", "BR") == "constant, p_m 0.1, T 10"
    assert study.only("eol").pretext_choices.keys() == {"eol"} and not study.only("hfc").pretext_choices
    assert study.only("eol").replicas["eol"] == study.replicas["eol"]
    assert (
        "hfc Ours none, T_init 2" in study.extent["setting"] and "eol Ours none, T_init 10" in study.extent["setting"]
    )


def test_notes_tell_how_pretexts_were_trained() -> None:
    untuned = "not tuned: MR constant, p_m 0.2; BR none, T 2; Ours none, T_init 2"
    assert protocol_notes(study_of("eol", "hfc", seeds=range(10))) == (f"Pretexts of eol, hfc, {untuned}",)
    tuned = "MR random, p_m 0.3; BR constant, p_m 0.1, T 10; Ours none, T_init 10"
    study = study_of("eol", "hfc", seeds=tuple(range(10)), pretext_choices={"hfc": choices("hfc", seeds=(0, 1, 2))})
    assert protocol_notes(study) == (
        f"Pretexts of eol, {untuned}",
        f"Pretexts of hfc, chosen by linear probes on validation with seeds 0 to 2 (here seeds 0 to 9): {tuned}",
    )
    assert protocol_notes(study_of(budget=Budget(epochs=60), finetuning=Finetuning(epochs=10)))[0] == (
        "Reduced protocol: 2 seeds (full: 10), 60 pretraining epochs (full: 1000), 10 fine-tuning epochs (full: 100)"
    )


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"at least one encoder, each named once, got \[\]"):
        study_of(encoders=())
    with pytest.raises(ConfigError, match=r"at least one encoder, each named once, got \['mlp', 'mlp'\]"):
        study_of(encoders=("mlp", "mlp"))
    with pytest.raises(ConfigError, match="encoder must be one of mlp, .*, got 'lstm'"):
        study_of(encoders=("lstm",))
    partial = {name: choice for name, choice in choices().items() if name != "BR"}
    with pytest.raises(ConfigError, match="all pretexts of eol must be chosen, or none, got none for BR"):
        study_of(pretext_choices={"eol": partial})
    for change in (study_of().with_value, study_of().without_value):
        with pytest.raises(ConfigError, match="no values, so none can be .*, got t_init=10; --encoder says"):
            change("t_init", 10)
    assert study_of().option_for("t_init=10") is None


def study_for(words: str) -> FinetuneStudy:
    options = parse_options(words.split(), prog="finetune.py", about="", own_options=finetune.OPTIONS)
    assert options is not None
    return finetune.study(options)


def test_options() -> None:
    study = study_for("--dataset eol --encoder resnet,mlp --finetune-epochs 5 --test t")
    assert (study.encoders, study.finetuning, study.test) == (("mlp", "resnet"), Finetuning(epochs=5), "t")
    assert study_for("--dataset eol --encoder resnet mlp").encoders == ("mlp", "resnet")
    for words in ("--dataset eol", "--dataset eol --encoder all"):
        assert study_for(words).encoders == ENCODERS
    for preset, seeds, epochs, tuned in (("paper", 10, 1000, 100), ("quick", 3, 60, 10)):
        study = study_for(f"--dataset eol --preset {preset}")
        assert study.finetuning is not None
        assert (len(study.seeds), study.budget.epochs, study.finetuning.epochs) == (seeds, epochs, tuned)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--encoder resnt", "unknown encoder 'resnt'; did you mean 'resnet'"),
        ("--encoder ,", "encoder must be one of mlp, .* or all, got ','"),
        ("--finetune-epochs 0", "epochs must be a whole number >= 1, got 0"),
        ("--epochs 0", "epochs must be a whole number >= 1, got 0"),
        ("--probes 3", "unknown option --probes"),
        ("--probe-epochs 3", "unknown option --probe-epochs"),
        ("--masking random", "unknown option --masking"),
    ],
)
def test_words_that_make_no_sense_are_refused(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study_for(f"--dataset eol {words}")


class TestChoiceFrom:
    def write(self, folder: Any, dataset: str = "eol", **changes: Any) -> Any:
        made = choices(dataset, **changes)
        return write_choices(PretextChoices(made=made, undecided={}), folder / "benchmark" / dataset)

    def test_a_folder_or_a_file(self, tmp_path: Any) -> None:
        path = self.write(tmp_path)
        for named in (tmp_path, path):
            study = study_for(f"--dataset eol --choice-from {named}")
            assert study.pretext_choices == {"eol": choices()}
            assert study.hyperparameters_of("eol", "BR").t_init == 10

    def test_other_conditions_are_refused(self, tmp_path: Any) -> None:
        path = self.write(tmp_path)
        for words, message in (
            ("--dataset eol --epochs 60", "the budget .*, epochs 60, got epochs 1000 in"),
            ("--dataset eol --protocol released", "the protocol"),
            ("--dataset eol --seeds-vary split", "the seeds-vary .*, split, got pretrain"),
            ("--dataset eol,hfc", "choice-from must be a choices.json, or a folder that holds benchmark/hfc/choices"),
        ):
            with pytest.raises(ConfigError, match=message):
                study_for(f"{words} --choice-from {tmp_path}")
        with pytest.raises(ConfigError, match="the data set .*, hfc, got eol in"):
            study_for(f"--dataset hfc --choice-from {path}")
        undecided = PretextChoices(made={"BR": choices()["BR"]}, undecided={"MR": "every point has a diverged seed"})
        path = write_choices(undecided, tmp_path / "other")
        with pytest.raises(ConfigError, match="made for MR of eol, got none: every point has a diverged seed"):
            study_for(f"--dataset eol --choice-from {path}")

    def test_probes_and_encoders_may_differ(self, tmp_path: Any) -> None:
        self.write(tmp_path, budget=Budget(probe_epochs=3, probes=1))
        study = study_for(f"--dataset eol --encoder tabnet --finetune-epochs 7 --choice-from {tmp_path}")
        assert study.setting_of("eol", "Ours") == "none, T_init 10"
