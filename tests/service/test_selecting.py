"""Which replica ``--point`` and ``--seed`` mean, and what is said of those that mean none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol, Replica
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from sweeps.service.choice import Choice
from sweeps.service.methods_finetune import FinetuneStudy
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.points import Study
from sweeps.service.projection import describe_point
from sweeps.service.results import ResultsStore
from sweeps.service.selecting import find_replica, name_of
from tests.service.fakes import fake_record

CARD = get_card("breast_cancer")
CHOICE = Choice(
    dataset=CARD.key,
    fingerprint=CARD.fingerprint,
    architecture=CARD.architecture,
    protocol=Protocol(),
    budget=Budget(),
    seeds=(0, 1),
    seeds_vary="pretrain",
    metric="auc",
    higher_is_better=True,
    hyperparameters=Hyperparameters(masking="random", mask_prob=0.3, t_init=10),
    val_mean=0.9,
    points_compared=14,
    points_diverged=0,
)
SENSITIVITY = SensitivityStudy(
    cards=(CARD,), panels=get_panels(("tau",)), seeds=(2, 4), choices={CARD.key: CHOICE}, budget=Budget(epochs=7)
)
FINETUNE = FinetuneStudy(cards=(CARD,), encoders=("mlp",), seeds=(0,), budget=Budget(epochs=7))
BEST = CHOICE.hyperparameters


def find(study: Study, asked: str | None, output: Path, seed: int | None = None) -> Replica:
    return find_replica(study, CARD.key, asked, seed, ResultsStore(output))


@pytest.mark.parametrize(
    "asked, hyperparameters, name",
    [
        (None, BEST, "default"),
        ("default", BEST, "default"),
        ("tau=0.003", replace(BEST, tau=0.003), "tau = 0.003"),
        ("w_sord = 3, tau = 0.001", replace(BEST, w_sord=3.0, tau=0.001), "w_sord = 3, tau = 0.001"),
        ("patience=9.0", replace(BEST, patience=9), "patience = 9"),
        ("masking=none,mask_prob=0", replace(BEST, masking="none", mask_prob=0.0), "masking = none, mask_prob = 0"),
        ("t_init=10", BEST, "default"),
        ("pretext=bin_recon", replace(BEST, pretext="bin_recon"), "pretext = bin_recon"),
    ],
)
def test_fields_are_relative_to_what_was_chosen(
    asked: str | None, hyperparameters: Hyperparameters, name: str, tmp_path: Path
) -> None:
    replica = find(SENSITIVITY, asked, tmp_path)
    assert replica == SENSITIVITY.replica(CARD, hyperparameters, 2)
    assert name_of(SENSITIVITY, replica) == name
    assert find(SENSITIVITY, name, tmp_path, seed=77) == replace(replica, seed=77), "its name says the same"


def test_fields_beside_hyperparameters(tmp_path: Path) -> None:
    replica = find(SENSITIVITY, "width=64,encoder=resnet,epochs=3", tmp_path)
    assert replica.architecture == replace(CARD.architecture, width=64, encoder="resnet")
    assert replica.budget == Budget(epochs=3)
    assert name_of(SENSITIVITY, replica) == "width = 64, encoder = resnet, epochs = 3"


def test_pretexts_of_fine_tuning_are_those_of_its_methods(tmp_path: Path) -> None:
    """MR predicts masks, so that it cannot do without, as the default point does."""
    scratch, masked = (find(FINETUNE, asked, tmp_path) for asked in (None, "pretext=mask_xent_value_recon"))
    assert scratch.hyperparameters.pretext == "none" and scratch.budget.epochs == 0
    assert masked.hyperparameters == FINETUNE.hyperparameters_of(CARD.key, "MR")
    assert masked.budget.epochs == 7 and masked.finetuning == FINETUNE.finetuning
    assert {scratch.id, masked.id} <= {replica.id for replica in FINETUNE.all_replicas}


def test_ids(tmp_path: Path) -> None:
    for study in (SENSITIVITY, FINETUNE):
        for replica in study.all_replicas[-2:]:
            for asked in (replica.id, replica.id[:10], f"replica:{replica.id}", replica.id.upper()):
                assert find(study, asked, tmp_path) == replica
            assert find(study, replica.id, tmp_path, seed=replica.seed) == replica
        for point in study.points_of(CARD.key):
            key = describe_point(point.settings(study.moved), {}).key
            assert find(study, f"point:{key}", tmp_path, seed=9) == study.replica(CARD, point, 9)


def test_a_result_of_any_study(tmp_path: Path) -> None:
    other = replace(SENSITIVITY, protocol=Protocol.named("released"), seeds=(5,)).all_replicas[0]
    store = ResultsStore(tmp_path)
    store.write(fake_record(other))
    assert find(SENSITIVITY, other.id[:8], tmp_path) == other
    path = store.path(CARD.key, other.id)
    path.rename(path.with_stem("0" * 24))
    with pytest.raises(ConfigError, match=f"named after, got {other.id} in .*000000.json"):
        find(SENSITIVITY, "000000", tmp_path)
    for text in ("{", json.dumps({"identity": {"method_version": 1}}), "[]"):
        path.with_stem("0" * 24).write_text(text)
        with pytest.raises(ConfigError, match="a result must be that of a replica, got .*000000.json"):
            find(SENSITIVITY, "000000", tmp_path)


REPLICA = SENSITIVITY.all_replicas[0]


@pytest.mark.parametrize(
    "asked, seed, message",
    [
        ("taus=3", None, "unknown field of a point 'taus'; did you mean 'tau'"),
        ("tau", None, "field=value pairs such as w_sord=3,tau=0.001, got 'tau'"),
        ("tau=", None, "field=value pairs"),
        ("tau=1,", None, "field=value pairs"),
        ("tau=small", None, "tau must be a number, got 'small'"),
        ("patience=2.5", None, "patience must be a whole number >= 1, got 2.5"),
        ("patience=x", None, "patience must be a whole number, got 'x'"),
        ("tau=-1", None, "tau must be a finite number >= 0"),
        ("tau=nan", None, "tau must be a finite number >= 0"),
        ("tau=1,tau=2", None, "each field of a point must be given once"),
        ("masking=randon", None, "did you mean 'random'"),
        ("masking=none", None, "mask_prob must be 0 with masking 'none'"),
        ("encoder=mlps", None, "encoder must be one of"),
        ("width=0", None, "width must be a whole number >= 1"),
        ("epochs=0", None, "epochs must be a whole number >= 1"),
        ("pretext=none", None, "must be trained on labels, got no fine-tuning"),
        ("abcdef", None, "the id of a point or replica of this study or of a result in .*, got 'abcdef'"),
        (None, -1, "seed must be a whole number in"),
        (None, 2**31, "seed must be a whole number in"),
        (REPLICA.id, REPLICA.seed + 1, f"seed must be that of replica {REPLICA.id}, {REPLICA.seed}, or left out"),
    ],
)
def test_what_is_refused(asked: str | None, seed: int | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        find(SENSITIVITY, asked, tmp_path, seed)


def test_beginnings_of_several_ids(tmp_path: Path) -> None:
    other = f"{REPLICA.id[:8]}{'0' * 16}"
    path = ResultsStore(tmp_path).path(CARD.key, other)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(ConfigError, match=f"must name one point or replica, got '{REPLICA.id[:8]}': .*{REPLICA.id}"):
        find(SENSITIVITY, REPLICA.id[:8], tmp_path)
    assert find(SENSITIVITY, REPLICA.id, tmp_path) == REPLICA
