"""Points that differ in more than hyperparameters: their replicas, packs and MLflow runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptbin.config import Budget, Finetuning, Hyperparameters
from adaptbin.data import get_card
from adaptbin.replicas.grouping import group_replicas
from sweeps.service.failures import what_is_missing
from sweeps.service.kinds import pretraining_of
from sweeps.service.panels import SensitivityStudy
from sweeps.service.plan import make_plan
from sweeps.service.points import point_of
from sweeps.service.publish import Published
from sweeps.service.results import ResultsStore
from sweeps.service.study_runs import StudyRuns
from sweeps.service.tracker import Tracker
from tests.service.fakes import fake_record
from tests.service.moving import EncoderStudy
from tests.service.tracked import look

EOL = get_card("eol")


def study_of(seeds: int = 2, **options: Any) -> EncoderStudy:
    return EncoderStudy(cards=(EOL,), seeds=tuple(range(seeds)), **options)


def test_a_study_that_moves_hyperparameters_alone_has_the_cards_architecture() -> None:
    study = SensitivityStudy(cards=(EOL,))
    points = study.points_of("eol")
    assert [point.hyperparameters for point in points] == list(study.unique_points)
    assert {(point.architecture, point.budget, point.finetuning) for point in points} == {
        (EOL.architecture, Budget(), None)
    }
    assert points[0] == study.default_point_of("eol") == study.point("eol", Hyperparameters())
    assert points[0].settings() == Hyperparameters().to_dict()
    assert study.replica(EOL, points[3], 7) == study.replica(EOL, points[3].hyperparameters, 7)


def test_replicas_are_of_the_points_of_their_study() -> None:
    study = study_of()
    points = study.points_of("eol")
    assert [point_of(replica) for replica in study.all_replicas] == [*points, *points]
    assert [(point.architecture.encoder, point.hyperparameters.pretext) for point in points] == [
        (encoder, pretext) for encoder in ("mlp", "resnet") for pretext in ("none", "value_recon")
    ]
    other = study_of(budget=Budget(epochs=10, probes=2))
    assert other.points_of("eol") == points, "nothing is probed"
    # Nothing is pretrained from scratch, whatever the study's budget.
    assert [point.budget.epochs for point in points] == [0, 10, 0, 10]
    assert {point.finetuning for point in points} == {Finetuning(epochs=5)}


def test_settings_tell_what_a_study_moves() -> None:
    scratch, _, resnet, _ = study_of().points_of("eol")
    assert scratch.settings(("encoder",)) == scratch.hyperparameters.to_dict() | {"encoder": "mlp"}
    assert resnet.settings(("encoder", "depth")) == scratch.hyperparameters.to_dict() | {
        "encoder": "resnet",
        "depth": EOL.architecture.depth,
    }
    assert resnet.settings(("finetuning.epochs", "epochs"))["finetuning.epochs"] == 5
    assert resnet.settings(("finetuning.epochs", "epochs"))["epochs"] == 0


@pytest.mark.parametrize("vary", ["pretrain", "probe"])
def test_a_pack_holds_one_architecture(vary: Any) -> None:
    study = study_of(3, seeds_vary=vary)
    packs = make_plan(study, ()).packs
    assert all(len(group_replicas(pack.replicas)) == 1 for pack in packs)
    assert sorted(r.id for pack in packs for r in pack.replicas) == sorted(r.id for r in study.all_replicas)
    # Models from scratch share no pretraining.
    scratch = [r for r in study.all_replicas if r.budget.epochs == 0]
    pretrained = [r for r in study.all_replicas if r.budget.epochs]
    assert len({pretraining_of(replica) for replica in scratch}) == 6
    assert len({pretraining_of(replica) for replica in pretrained}) == (2 if vary == "probe" else 6)


def test_what_is_missing_counts_points() -> None:
    study = study_of(1)
    told = what_is_missing(study.all_replicas[1:], 4, {})
    assert "3 replicas (3 points, seeds 0)" in told


def test_points_have_runs_of_their_own(store: Any, tmp_path: Path) -> None:
    study = study_of(encoders=("mlp",))
    results = ResultsStore(tmp_path / "out")
    records = {replica.id: fake_record(replica) for replica in study_of().all_replicas}
    for record in records.values():
        results.write(record)

    def project(study: EncoderStudy) -> Any:
        with Tracker(store, on_problem=pytest.fail) as tracker:
            runs = StudyRuns(tracker, study, results, records)
            runs.replicas(records[replica.id] for replica in study.all_replicas)
            summaries: Any = {
                ("eol", "pretrain"): {
                    point: {"test_mean": 0.5, "n": 2, "diverged": 0, "metric": "qwk"}
                    for point in study.points_of("eol")
                }
            }
            runs.finish(study, Published(tmp_path, (), summaries, ()))
        return look(store)

    assert len(project(study).of_kind("point")) == 2
    seen = project(study_of())  # the other encoder joins the tree
    assert {run.info.run_name for run in seen.of_kind("point")} == {
        "default", "encoder = resnet", "pretext = value_recon", "pretext = value_recon, encoder = resnet",
    }  # fmt: skip
    assert len(seen.of_kind("study")) == 1 and len(seen.of_kind("replica")) == 8
    run = seen.named("encoder = resnet")
    assert (run.data.params["encoder"], run.data.params["pretext"]) == ("resnet", "none")
    assert (run.info.status, run.data.metrics["missing"], run.data.metrics["n"]) == ("FINISHED", 0, 2)
    (replica,) = (run for run in seen.of_kind("replica") if run.info.run_name == "seed 1, encoder = resnet")
    # Pretraining has a learning rate and epochs, too.
    told = {name: replica.data.params[name] for name in ("learning_rate", "finetuning.learning_rate", "epochs")}
    assert told == {"learning_rate": "0.0001", "finetuning.learning_rate": "0.001", "epochs": "0"}
    assert replica.data.params["finetuning.epochs"] == "5"
