"""`sweeps/search.py` from command line to files: real Ray, kills, samplers, halving, spaces that are edited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from adaptbin.config import Budget, Hyperparameters, Replica
from adaptbin.data import get_card
from sweeps import search
from sweeps.service import plan
from sweeps.service.checkpoints import MEMBERS, members_of
from sweeps.service.files import write_text
from sweeps.service.launch import RayRunner
from sweeps.service.local import InProcessRunner
from sweeps.service.memory import MIB, Need
from sweeps.service.points import Point
from sweeps.service.search_space import Space, parse_asked
from sweeps.service.trials import Bracket, Trials
from tests.faults import lock_is_free
from tests.scripts import (
    CountingRunner,
    artifacts_in_mlflow,
    check_refused,
    comparable,
    diverging,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script
from tests.service.fakes import fake_record

SPACE = "--search tau=1e-5..1e-3,log --search masking=none,random --search depth=1,2"
TINY = f"--dataset breast_cancer --epochs 2 --probe-epochs 2 --probes 1 --seeds 2 --confirm-seeds 3 {SPACE}"
FIXED = "--fix width=32 --fix dropout=0.1"
SMALL = f"{TINY} {FIXED} --trials 6"


def run(words: str, output: Path, runner: InProcessRunner | None = None) -> int:
    return run_script(search, words, output, runner)


def folder_of(output: Path) -> Path:
    return output / "search" / "breast_cancer"


def journals(output: Path) -> list[Path]:
    return sorted(folder_of(output).glob("*.journal"))


def trials_of(journal: Path) -> list[optuna.trial.FrozenTrial]:
    (study,) = optuna.study.get_all_study_summaries(JournalStorage(JournalFileBackend(str(journal))))
    return optuna.load_study(
        study_name=study.study_name, storage=JournalStorage(JournalFileBackend(str(journal)))
    ).get_trials()


def halving_train(
    replicas: Any, table: Any, *, rungs: Any, keep: float, device: str, checkpoint: Any, progress: Any
) -> list[dict[str, Any]]:
    """Same signature as ``train_pack_halving``: of the points of a pack the first ones go on."""
    from dataclasses import replace

    points = list(dict.fromkeys((r.hyperparameters, r.architecture) for r in replicas))
    records = []
    for rung in rungs:
        records += [
            fake_record(replace(r, budget=r.budget.at_rung(rung)))
            for r in replicas
            if (r.hyperparameters, r.architecture) in points
        ]
        points = points[: max(1, round(keep * len(points)))]
    return records


def either_train(replicas: Any, table: Any, *, device: str, checkpoint: Any, progress: Any, **halving: Any) -> Any:
    """Trains packs with and without halving."""
    if halving:
        settings = {"device": device, "checkpoint": checkpoint, "progress": progress}
        return halving_train(replicas, table, **halving, **settings)
    return [fake_record(replica) for replica in replicas]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the files of pictures out: they take most of the time of a search that trains nothing in earnest."""
    monkeypatch.setattr("sweeps.service.publish_search.save_figure", lambda *_: [])


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
@pytest.mark.slow
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real Ray, real training, real MLflow."""
    assert search.main([*SMALL.replace("--trials 6", "--trials 11").split(), "--output", str(tmp_path)]) == 0
    folder = folder_of(tmp_path)
    pictures = {f"{name}.{kind}" for name in ("figure", "slices", "parallel", "rank") for kind in ("png", "pdf", "svg")}
    (journal,) = journals(tmp_path)
    assert {path.name for path in folder.iterdir()} == pictures | {
        *("trials.csv", "replicas.csv", "confirmation.csv", "significance.csv", "importances.csv"),
        *("table.md", "caption.txt", "manifest.json", journal.name),
    }
    trials = pd.read_csv(folder / "trials.csv")
    assert list(trials["rank"]) == list(range(1, 12)) and (trials["n"] == 2).all()
    assert trials["val_mean"].is_monotonic_decreasing
    # All fields but the two that were fixed are searched, and the paper's point, with what was fixed, came first.
    assert trials.set_index("trial").loc[0, "is_default"] and trials["is_default"].sum() == 1
    assert trials["w_sord"].nunique() > 5 and set(trials["width"]) == {32}
    asked = trials_of(journal)
    assert [trial.state for trial in asked] == [TrialState.COMPLETE] * 11
    by_number = trials.set_index("trial")["val_mean"]
    assert {trial.number: trial.value for trial in asked} == pytest.approx(dict(by_number))

    # The best three and the default were trained again with seeds that no trial had; test is shown of two.
    confirmation = pd.read_csv(folder / "confirmation.csv")
    assert list(confirmation["place"]) == ["1", "2", "3", "default"] and (confirmation["n"] == 3).all()
    compared = confirmation["winner"] | confirmation["is_default"]
    assert confirmation["winner"].sum() == 1 and list(confirmation["test_mean"].notna()) == list(compared)
    replicas = pd.read_csv(folder / "replicas.csv")
    assert set(replicas.loc[replicas["stage"] == "search", "seed"]) == {0, 1}
    assert set(replicas.loc[replicas["stage"] == "confirmation", "seed"]) == {2, 3, 4}
    assert replicas.loc[replicas["stage"] == "search", ["test", "test_auc"]].isna().all(axis=None)
    assert replicas["test"].notna().sum() == 6
    significance = pd.read_csv(folder / "significance.csv")
    assert list(significance["trial"]) == list(confirmation.loc[confirmation["winner"], "trial"])
    assert significance.loc[0, "n"] == 3 and significance.loc[0, "family"] == 1
    importances = pd.read_csv(folder / "importances.csv")
    assert set(importances["field"]) >= {"tau", "masking", "depth"} and "mask_prob" not in set(importances["field"])
    assert importances["fanova"].sum() == pytest.approx(1) and importances["ped_anova"].sum() == pytest.approx(1)

    assert len(results(tmp_path)) == 11 * 2 + 4 * 3
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["replicas"] == {"asked": 34, "found": 34, "diverged": 0, "trained_by_this_run": 34}
    assert manifest["search"]["winner"]["trial"] == significance.loc[0, "trial"]
    shown = capsys.readouterr().out
    assert "the winner's curse" in shown and f"optuna-dashboard {journal}" in shown
    assert "winner's curse" in (folder / "caption.txt").read_text() and "| rank |" in (folder / "table.md").read_text()

    kinds = runs_in_mlflow(tmp_path)
    assert [len(kinds[kind]) for kind in ("study", "point", "replica")] == [1, 11, 34]
    assert {run.info.status for of_kind in kinds.values() for run in of_kind} == {"FINISHED"}
    assert sum(run.data.tags["adaptbin.chosen"] == "yes" for run in kinds["point"]) == 1
    assert sum("test_mean" in run.data.metrics for run in kinds["point"]) == 2
    (study,) = kinds["study"]
    assert artifacts_in_mlflow(tmp_path, study) == {path.name for path in folder.iterdir()} - {journal.name}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_halving_with_ray(tmp_path: Path) -> None:
    """Real training in packs of nine points: most leave before the last epoch."""
    words = f"{TINY} {FIXED} --trials 10 --halving".replace("--epochs 2", "--epochs 9")
    assert run(words, tmp_path, RayRunner()) == 0  # type: ignore[arg-type]
    trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
    assert sorted(trials["epochs"]) == [1] * 6 + [3] * 2 + [9] * 2  # the default is in no bracket
    assert set(trials.loc[trials["epochs"] < 9, "state"]) == {"pruned"}
    assert set(trials.loc[trials["epochs"] == 9, "state"]) == {"complete"}
    (journal,) = journals(tmp_path)
    told = {trial.number: trial for trial in trials_of(journal)}
    for row in trials[~trials["is_default"]].to_dict("records"):
        trial = told[row["trial"]]
        assert max(trial.intermediate_values) == row["epochs"]
        assert trial.intermediate_values[row["epochs"]] == pytest.approx(row["val_mean"]) == trial.value
    epochs = [record["identity"]["budget"]["epochs"] for record in results(tmp_path).values()]
    assert {e: epochs.count(e) for e in (1, 3, 9)} == {1: 18, 3: 6, 9: 2 * 2 + 3 * 2}
    assert "no claim of significance" in (folder_of(tmp_path) / "caption.txt").read_text()
    kinds = runs_in_mlflow(tmp_path)
    assert {run.info.status for run in kinds["point"]} == {"FINISHED"}


WITHOUT_RAY = """
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from unittest import mock
from adaptbin.training.halving import train_pack_halving
from adaptbin.training.pack import train_pack
from sweeps import search
from sweeps.service.local import InProcessRunner
from sweeps.service.sweep import Sweep

def train(replicas, table, **settings):
    while len(list(Path(sys.argv[-1]).glob("results/*/*.json"))) >= 8:
        time.sleep(1)  # until it is killed
    return (train_pack_halving if "rungs" in settings else train_pack)(replicas, table, **settings)

Sweep._tracking = lambda self, reading: nullcontext(mock.Mock(pages={}))
sys.exit(search.main(sys.argv[1:], runner=InProcessRunner(train)))
"""
"""The script in a process of its own, in which a kill meets the search itself: `test_faults.py` kills what Ray has."""


@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow", "no_pictures")
@pytest.mark.parametrize("halving", ["", " --halving"], ids=["", "halving"])
def test_a_killed_search_goes_on(tmp_path: Path, halving: str) -> None:
    output = tmp_path / "out"
    words = f"{TINY} {FIXED} --trials 12 --pack 6{halving}".replace("--epochs 2", "--epochs 36").split()
    with subprocess.Popen([sys.executable, "-c", WITHOUT_RAY, *words, "--output", str(output)]) as process:
        end = time.monotonic() + 200
        while len(results(output)) < 8 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()
    before = results(output)
    (journal,) = journals(output)
    asked = {trial.number: trial.params for trial in trials_of(journal)}
    with journal.open("a") as file:
        file.write('{"op_code": 6, "wor')  # killed while it wrote, and while it held the journal's lock
    with suppress(FileExistsError):  # it did hold it
        os.symlink(journal, f"{journal}.lock")

    assert search.main([*words, "--output", str(output)], runner=InProcessRunner()) == 0
    after = results(output)
    if halving:  # a bracket of which some records were written is trained again, to the same numbers
        before, after = comparable(before), comparable(after)
    assert all(after[name] == record for name, record in before.items()), "a finished result was trained again"
    trials = {trial.number: trial for trial in trials_of(journal)}
    ended = {TrialState.COMPLETE, TrialState.PRUNED} if halving else {TrialState.COMPLETE}
    assert {trial.state for trial in trials.values() if trial.state != TrialState.FAIL} == ended
    told = pd.read_csv(folder_of(output) / "trials.csv")
    assert len(told) == 12 and set(told["state"]) <= {"complete", "pruned"}
    assert all(trials[number].params == params for number, params in asked.items() if number in set(told["trial"]))
    assert len(pd.read_csv(folder_of(output) / "confirmation.csv")) >= 3
    assert lock_is_free(output) and not list((output / "checkpoints").iterdir())


@pytest.mark.usefixtures("no_mlflow", "no_pictures")
class TestTheSampler:
    @pytest.mark.parametrize("sampler", ["tpe", "cmaes", "random", "qmc"])
    def test_every_sampler_proposes_different_points(self, tmp_path: Path, sampler: str) -> None:
        assert run(f"{TINY} --trials 30 --sampler {sampler}", tmp_path, CountingRunner(workers=2)) == 0
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        assert len(trials) == 30 and trials["tau"].nunique() > 20 and set(trials["state"]) == {"complete"}
        assert set(trials["masking"]) == {"none", "random"} and set(trials["depth"]) == {1, 2}
        assert ((trials["mask_prob"] > 0) == (trials["masking"] == "random")).all()

    def test_a_grid_is_every_combination(self, tmp_path: Path) -> None:
        words = f"{TINY} --sampler grid".replace("tau=1e-5..1e-3,log", "tau=1e-4,1e-3")
        assert run(words, tmp_path) == 0
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        combinations = set(zip(trials["tau"], trials["masking"], trials["depth"], strict=True))
        assert len(trials) == len(combinations) == 8 and set(trials["w_sord"]) == {10}
        assert set(trials["width"]) == {128}

    def test_a_large_grid_is_tried_whole_unless_trials_say_less(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tau = ",".join(f"{step}e-5" for step in range(1, 61))
        words = f"{TINY} --sampler grid --plan".replace("1e-5..1e-3,log", tau)
        assert run(words, tmp_path) == 0
        assert capsys.readouterr().out.startswith("search of breast_cancer: 240 trials x 2 seeds")
        assert run(f"{words} --trials 7", tmp_path) == 0
        shown = capsys.readouterr().out
        assert "the grid has 240 combinations: --trials leaves out the last of them" in shown and ": 7 trials" in shown

    def test_packs_hold_replicas_of_one_shape(self, tmp_path: Path) -> None:
        runner = CountingRunner(workers=2)
        assert run(f"{TINY} --trials 20", tmp_path, runner) == 0
        first = runner.jobs[0].packs
        assert all(len({r.architecture for r in pack.replicas}) == 1 for pack in first)
        assert len(first) > 2, "a pack must wait while others train"

    def test_two_objectives(self, tmp_path: Path) -> None:
        assert run(f"{SMALL} --objective score,seconds", tmp_path) == 0
        (journal,) = journals(tmp_path)
        assert all(trial.values[1] == 0.5 for trial in trials_of(journal))
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        assert trials["val_mean"].is_monotonic_decreasing and (trials["core_seconds"] == 0.5).all()
        assert list(trials["on_front"]) == [True] + [False] * 5  # all take the same time


@pytest.mark.usefixtures("no_mlflow", "no_pictures")
class TestContinuing:
    def test_the_same_command_trains_nothing_and_more_trials_only_what_is_new(self, tmp_path: Path) -> None:
        runner = CountingRunner()
        assert run(SMALL, tmp_path, runner) == 0
        before = results(tmp_path)
        assert run(SMALL, tmp_path, runner) == 0 and len(runner.jobs) == 1
        assert run(SMALL.replace("--trials 6", "--trials 9"), tmp_path, runner) == 0
        assert len(runner.jobs) == 2 and len(journals(tmp_path)) == 1
        new = results(tmp_path).keys() - before.keys()
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        assert len(trials) == 9 and len(new) >= 6
        points = trials[["tau", "w_sord"]].drop_duplicates()
        assert len(points) == 9, "a run that continues draws other points"

    def test_an_edited_space_begins_with_what_lies_in_it(self, tmp_path: Path) -> None:
        assert run(SMALL, tmp_path) == 0
        old = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        narrower = SMALL.replace("depth=1,2", "depth=1,3")
        runner = CountingRunner()
        assert run(narrower, tmp_path, runner) == 0
        assert len(journals(tmp_path)) == 2
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        seeded = trials[trials["seeded_from"].notna()]
        assert len(seeded) == (old["depth"] == 1).sum() > 0 and set(seeded["depth"]) == {1}
        assert len(trials) == 6 + len(seeded)
        trained = {replica.id for job in runner.jobs for pack in job.packs for replica in pack.replicas}
        assert not trained & set(pd.read_csv(folder_of(tmp_path) / "replicas.csv").query("trial < 0")["id"])
        # Other seeds are other conditions: nothing is taken over.
        assert run(narrower.replace("--seeds 2", "--seeds 3"), tmp_path) == 0
        assert pd.read_csv(folder_of(tmp_path) / "trials.csv")["seeded_from"].isna().all()

    def test_results_that_were_deleted_are_trained_again(self, tmp_path: Path) -> None:
        assert run(SMALL, tmp_path) == 0
        before = results(tmp_path)
        lost = sorted(before)[0]
        (tmp_path / "results" / "breast_cancer" / f"{lost}.json").unlink()
        runner = CountingRunner()
        assert run(SMALL, tmp_path, runner) == 0
        assert [r.id for job in runner.jobs for pack in job.packs for r in pack.replicas] == [lost]
        assert results(tmp_path).keys() == before.keys()

    def test_a_grid_is_whole_after_a_kill_between_a_question_and_its_answer(self, tmp_path: Path) -> None:
        words = f"{TINY} --sampler grid".replace("tau=1e-5..1e-3,log", "tau=1e-4,1e-3")
        assert run(f"{words} --trials 4", tmp_path) == 0
        (journal,) = journals(tmp_path)
        lines = journal.read_bytes().splitlines(keepends=True)
        last = max(number for number, line in enumerate(lines) if b'"settings"' in line)
        journal.write_bytes(b"".join(lines[:last]))
        assert run(words, tmp_path) == 0
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        done = trials[trials["state"] == "complete"]
        assert len(done[["tau", "masking", "depth"]].drop_duplicates()) == 8

    def test_rebuild_needs_results_and_the_journal(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SMALL} --rebuild", tmp_path / "none") == 2
        assert "--rebuild needs the journal of this very search" in capsys.readouterr().err
        assert run(SMALL, tmp_path) == 0
        (journal,) = journals(tmp_path)
        kept = journal.read_bytes()
        before = {path.name: path.read_bytes() for path in folder_of(tmp_path).glob("*.csv")}
        for path in folder_of(tmp_path).iterdir():
            path.unlink()
        journal.write_bytes(kept)
        runner = CountingRunner()
        assert run(f"{SMALL} --rebuild", tmp_path, runner) == 0
        assert {path.name: path.read_bytes() for path in folder_of(tmp_path).glob("*.csv")} == before
        assert runner.jobs == []

    def test_a_budget_that_is_over_asks_for_no_more(self, tmp_path: Path) -> None:
        assert run(f"{TINY} {FIXED} --trials 200 --budget 1s", tmp_path) == 0
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        assert 0 < len(trials) < 60
        assert len(pd.read_csv(folder_of(tmp_path) / "confirmation.csv")) == 4


@pytest.mark.usefixtures("no_mlflow", "no_pictures")
class TestWhatFails:
    def test_a_diverged_trial_is_told_as_failed(self, tmp_path: Path) -> None:
        def is_lost(replica: Replica) -> bool:
            return replica.hyperparameters.masking == "random" and replica.seed == 1

        assert run(SMALL, tmp_path, diverging(is_lost)) == 0
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv").set_index("trial")
        lost = trials["masking"] == "random"
        assert 0 < lost.sum() < 6
        assert set(trials.loc[lost, "state"]) == {"failed"} and set(trials.loc[~lost, "state"]) == {"complete"}
        assert set(trials.loc[lost, "reason"]) == {"1 of 2 seeds diverged"}
        (journal,) = journals(tmp_path)
        failed = {trial.number for trial in trials_of(journal) if trial.state == TrialState.FAIL}
        assert failed == set(lost[lost].index)
        confirmed = pd.read_csv(folder_of(tmp_path) / "confirmation.csv")
        assert set(confirmed["masking"]) == {"none"}

    def test_a_pack_that_fails_is_told_and_can_be_asked_for_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def train(replicas: Any, *_: Any, **__: Any) -> list[dict[str, Any]]:
            if replicas[0].hyperparameters.masking == "random":
                raise ValueError("no such thing")
            return [fake_record(replica) for replica in replicas]

        words = f"{SMALL} --pack 2"
        assert run(words, tmp_path, InProcessRunner(train)) == 1
        assert "ValueError: no such thing" in capsys.readouterr().err
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        failed = trials[trials["state"] == "failed"]
        assert set(failed["masking"]) == {"random"} and failed["reason"].str.contains("no such thing").all()
        assert run(words, tmp_path) == 1  # not tried again by itself
        assert run(f"{words} --retry-failed", tmp_path) == 0
        again = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        assert (again["state"] == "complete").sum() == 6

    def test_a_point_that_failed_once_can_win(self, tmp_path: Path) -> None:
        failing = [True]

        def train(replicas: Any, *_: Any, **__: Any) -> list[dict[str, Any]]:
            if failing[0] and any(r.hyperparameters.w_sord != 10 and r.seed < 2 for r in replicas):
                raise ValueError("no such thing")
            return [fake_record(replica) for replica in replicas]

        words = f"{SMALL} --pack 2"
        assert run(words, tmp_path, InProcessRunner(train)) == 1
        failing[0] = False
        assert run(f"{words} --retry-failed", tmp_path, InProcessRunner(train)) == 0
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv").set_index("trial")
        confirmed = pd.read_csv(folder_of(tmp_path) / "confirmation.csv")
        assert confirmed["winner"].sum() == 1
        assert set(trials.loc[confirmed["trial"], "state"]) == {"complete"}

    def test_a_confirmation_that_fails_is_tried_once_a_run(self, tmp_path: Path) -> None:
        packs: list[Any] = []

        def train(replicas: Any, *_: Any, **__: Any) -> list[dict[str, Any]]:
            packs.append(replicas)
            assert len(packs) < 30, "a run that fails must end"
            if any(replica.seed >= 2 for replica in replicas):
                raise ValueError("no such thing")
            return [fake_record(replica) for replica in replicas]

        assert run(f"{SMALL} --retry-failed", tmp_path, InProcessRunner(train)) == 1
        assert not pd.read_csv(folder_of(tmp_path) / "confirmation.csv")["winner"].any()

    def test_a_default_that_diverged_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        def is_default(replica: Replica) -> bool:
            return replica.hyperparameters.w_sord == 10 and replica.seed >= 2

        run(SMALL, tmp_path, diverging(is_default))
        shown = " ".join(capsys.readouterr().out.split())
        assert "with nothing of the default to compare with" in shown and "the default diverged" in shown
        assert "nan" not in (folder_of(tmp_path) / "caption.txt").read_text()

    def test_nothing_complete_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SMALL} --trials 2", tmp_path, diverging(lambda replica: True)) == 0
        assert "No trial is complete, so nothing was found." in capsys.readouterr().out


@pytest.mark.usefixtures("no_mlflow", "no_pictures")
class TestHalving:
    WORDS = f"{TINY} --halving --trials 20".replace("--epochs 2", "--epochs 9")

    def test_shapes_are_proposed_for_being_good_not_for_being_tried(self, tmp_path: Path) -> None:
        """Seven brackets of nine, all but one of a bad shape; each has one whole trial, however bad."""
        card = get_card("breast_cancer")
        default = Point(hyperparameters=Hyperparameters(), architecture=card.architecture, budget=Budget(epochs=100))
        asked = parse_asked(["depth=1,2", "tau=1e-5..1e-3,log"])
        space = Space.of(default, asked=asked, only_asked=True)

        def share_of_the_good_one(told: Bracket | None) -> float:
            path = tmp_path / f"{told is None}.journal"
            trials = Trials(path, "a", directions=["maximize"], names=["auc"], notes={}, bracket=told)
            for bracket in range(7):
                for place in range(9):
                    trials.enqueue({"depth": 1 if bracket == 3 else 2})
                    number = trials.ask(space).number
                    score = (0.9 if bracket == 3 else 0.6) + 0.01 * place
                    if place == 8:
                        trials.complete(number, [score], {11: score, 33: score, 100: score})
                    else:
                        trials.prune(number, {11: score})
            return [trials.ask(space).chosen["depth"] for _ in range(20)].count(1) / 20

        knowing = share_of_the_good_one(Bracket(points=9, whole=1, differs=True))
        assert knowing > max(0.6, 1.3 * share_of_the_good_one(None))

    def test_a_bracket_is_a_pack_of_points_of_one_shape(self, tmp_path: Path) -> None:
        runner = CountingRunner(train=either_train, workers=2)
        assert run(self.WORDS, tmp_path, runner) == 0
        plain, *brackets = runner.jobs[0].packs
        assert plain.halving is None and len(plain.replicas) == 2  # the default
        assert [pack.halving.rungs for pack in brackets if pack.halving] == [(1, 3, 9)] * len(brackets)
        assert all(len(pack.replicas) == 18 for pack in brackets)
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        assert trials["epochs"].value_counts().to_dict() == {1: 12, 3: 4, 9: 4}

    def test_a_checkpoint_of_a_bracket_whose_results_are_all_there_is_removed(self, tmp_path: Path) -> None:
        """A kill between the last record of a bracket and the end of its checkpoint leaves one."""
        runner = CountingRunner(train=either_train)
        assert run(self.WORDS, tmp_path, runner) == 0
        bracket = next(pack for pack in runner.jobs[0].packs if pack.halving is not None)
        left = tmp_path / "checkpoints" / bracket.key
        write_text(left / MEMBERS, members_of(bracket))
        assert run(f"{self.WORDS} --trials 30", tmp_path, CountingRunner(train=either_train)) == 0
        assert not left.exists()

    def test_a_shape_that_does_not_fit_fails_and_others_go_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fits = plan.largest_pack

        def narrow(name: str, need: Need, limit: int, *, on_gpu: bool) -> int:
            """Of width 512 only two models fit."""
            return 2 if need.per_model > 2 * MIB else fits(name, need, limit, on_gpu=on_gpu)

        monkeypatch.setattr("sweeps.service.plan.largest_pack", narrow)
        words = self.WORDS.replace("--seeds 2", "--seeds 3").replace("--search depth=1,2", "--search width=16,512")
        assert run(f"{words} --fix depth=1", tmp_path, CountingRunner(train=either_train)) == 1
        trials = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        assert set(trials.loc[trials["state"] == "failed", "width"]) == {512}
        assert set(trials.loc[trials["state"] == "complete", "width"]) >= {16}
        reason = "failed: under halving all seeds of a point must fit in one pack"
        assert reason in capsys.readouterr().err.split("have no result:")[1]
        again = CountingRunner(train=either_train)
        assert run(f"{words} --fix depth=1", tmp_path, again) == 1 and again.jobs == []

    def test_a_grid_is_halved_too(self, tmp_path: Path) -> None:
        grid = "--sampler grid --search tau=1e-4,1e-3,1e-2 --search w_sord=1,3,10 --search depth=1,2,3"
        words = f"--dataset breast_cancer --epochs 9 --probe-epochs 2 --probes 1 --seeds 2 --halving {grid}"
        assert run(words, tmp_path, CountingRunner(train=either_train)) == 0
        states = pd.read_csv(folder_of(tmp_path) / "trials.csv")["state"].value_counts()
        assert states["pruned"] >= 16
        assert f"{states['pruned']} of {states.sum()} left then" in (folder_of(tmp_path) / "caption.txt").read_text()

    def test_a_bracket_that_was_cut_short_is_trained_as_it_was(self, tmp_path: Path) -> None:
        """The driver ended after a bracket's records were written, before its trials were told; and inside another."""
        runner = CountingRunner(train=either_train)
        assert run(self.WORDS, tmp_path, runner) == 0
        (journal,) = journals(tmp_path)
        before = results(tmp_path)
        told = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        lines = journal.read_text().splitlines(keepends=True)
        told_at = next(i for i, line in enumerate(lines) if '"state":2' in line or '"state":1' in line)
        journal.write_text("".join(lines[:told_at]))
        asked = sum('"op_code":4' in line for line in lines[:told_at])
        assert asked > 1
        assert run(self.WORDS, tmp_path, CountingRunner(train=either_train)) == 0
        again = pd.read_csv(folder_of(tmp_path) / "trials.csv")
        first = again["trial"] < 10
        merged = again[first].merge(told, on="trial", suffixes=("", "_then"))
        assert (merged["epochs"] == merged["epochs_then"]).all() and (merged["state"] == merged["state_then"]).all()
        assert before.keys() <= results(tmp_path).keys()


@pytest.mark.usefixtures("no_mlflow", "no_pictures")
class TestWhatIsAskedFor:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--dataset diabetes", "a search is of one data set, got breast_cancer, diabetes"),
            ("--trials 0", "trials must be a whole number >= 1, got 0"),
            ("--sampler tpee", "unknown sampler 'tpee'; did you mean 'tpe'?"),
            ("--sampler grid --search tau=1..2", "a grid needs values such as tau=a,b,c, got the range tau=1..2"),
            ("--sampler grid", "a search must try two values of one field at least"),
            ("--objective speed", "unknown objective 'speed'"),
            ("--confirm-seeds 0", "confirm seeds must be a whole number >= 1, got 0"),
            ("--search tao=1..2", "unknown field of a point 'tao'; did you mean 'tau'?"),
            ("--search tau=2..1", "tau: a range must go upwards, got 2..1"),
            ("--fix tau=1,2", "tau: a fixed field has one value, got 1,2"),
            ("--search tau=1,2 --fix tau=1", "a field is either searched or fixed, got --search and --fix of tau"),
            ("--space no.yaml", "a space must be a YAML file, got no.yaml"),
            ("--rungs 1,2", "rungs are those of --halving, got --rungs without it"),
            ("--halving --epochs 2", "halving needs epochs enough for 3 rungs, got 2; --rungs says which"),
            ("--halving --rungs 5,3", "the last rung must be all epochs, 1000, got 3"),
            ("--halving --rungs 5,3,1000", "rungs must be two whole numbers or more, each above the last"),
            ("--halving --rungs a", "rungs must be whole numbers such as 11,33,100, got 'a'"),
            ("--halving --objective score,seconds", "halving ranks points by their score"),
            ("--halving --pack 3 --seeds 2", "--pack must be 4 or more for 2 seeds, got 3"),
            ("--sampler cmaes --objective score,seconds", "the sampler cmaes takes the objective score alone"),
            ("--seeds-vary probe", "unknown option --seeds-vary"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_trained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        check_refused(search, f"--dataset breast_cancer {words}", message, tmp_path / "out", capsys)

    def test_a_plan_says_what_is_searched(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SMALL} --plan", tmp_path / "out") == 0
        shown = capsys.readouterr().out
        assert shown.startswith("search of breast_cancer: 6 trials x 2 seeds, sampler tpe, objective score (validation")
        assert "  tau = 1e-05..0.001,log" in shown and not (tmp_path / "out").exists()
