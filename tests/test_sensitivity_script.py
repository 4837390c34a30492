"""`sweeps/sensitivity.py` from command line to files, in process and on real Ray, interrupted and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from sweeps import sensitivity
from sweeps.service import planner
from sweeps.service.checkpoints import MEMBERS, members_of
from sweeps.service.files import write_text
from sweeps.service.local import InProcessRunner
from sweeps.service.results import ResultsStore
from sweeps.service.sweep import Sweep
from tests.scripts import (
    Asking,
    CountingRunner,
    artifacts_in_mlflow,
    at_twelve_seconds,
    comparable,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script
from tests.service.fakes import fake_train

TINY = "--dataset breast_cancer --preset quick --epochs 2 --probe-epochs 2 --probes 2 --panel tau"


def run(words: str, output: Path, runner: InProcessRunner | None = None) -> int:
    return run_script(sensitivity, words, output, runner)


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real training, real MLflow, two seeds, two epochs."""
    assert run(f"{TINY} --seeds 2", tmp_path, InProcessRunner()) == 0
    assert len(results(tmp_path)) == 10
    folder = tmp_path / "sensitivity" / "breast_cancer"
    assert {path.name for path in folder.iterdir()} == {
        *("figure.png", "figure.pdf", "figure.svg", "caption.txt", "manifest.json"),
        *("replicas.csv", "points.csv", "significance.csv"),
    }
    assert len(pd.read_csv(folder / "replicas.csv")) == 10
    assert list(pd.read_csv(folder / "points.csv")["n"]) == [2] * 5
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["replicas"] == {"asked": 10, "found": 10, "diverged": 0, "trained_by_this_run": 10}
    assert manifest["budget"] == {"epochs": 2, "probe_epochs": 2, "probes": 2}
    assert any("Reduced protocol" in note for note in manifest["notes"])
    assert {"git", "versions", "tables", "protocol", "hardware", "wall_seconds", "core_seconds"} <= manifest.keys()
    assert manifest["options"]["epochs"] == 2
    assert not list((tmp_path / "checkpoints").iterdir())
    shown = capsys.readouterr()
    assert "breast_cancer: 5 points x 2 seeds = 10 replicas, 0 done, 10 to do" in shown.out
    assert "breast_cancer: per replica of the default " in shown.out and " bins per feature at the end" in shown.out
    assert f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db" in shown.out
    assert "/#/experiments/" in shown.out
    assert "5/10 replicas" in shown.err
    assert (tmp_path / "mlflow.db").is_file()

    # Seen by MLflow: one study, its points, their replicas, and the files.
    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [1, 5, 10]
    (study,) = kinds["study"]
    assert artifacts_in_mlflow(tmp_path, study) == {path.name for path in folder.iterdir()}


@pytest.mark.usefixtures("no_mlflow")
class TestWhatIsTrained:
    def test_a_second_run_trains_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{TINY} --seeds 2", tmp_path) == 0
        runner = CountingRunner()
        capsys.readouterr()
        assert run(f"{TINY} --seeds 2", tmp_path, runner) == 0
        assert runner.jobs == []
        assert f"nothing to train: all 10 replicas have results in {tmp_path}" in capsys.readouterr().out

    def test_a_checkpoint_of_what_has_results_is_removed(self, tmp_path: Path) -> None:
        """A kill between the last record of a pack and the end of its checkpoint leaves one."""
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 2", tmp_path, runner) == 0
        pack, *_ = runner.jobs[0].packs
        others = replace(pack, replicas=tuple(replace(replica, seed=99) for replica in pack.replicas))
        left, of_others = (tmp_path / "checkpoints" / name for name in (pack.key, "others"))
        write_text(left / MEMBERS, members_of(pack))
        write_text(of_others / MEMBERS, members_of(others))
        assert run(f"{TINY} --seeds 2", tmp_path, CountingRunner()) == 0
        assert not left.exists() and of_others.exists()

    def test_replacing_the_figure_of_a_larger_study_is_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{TINY} --seeds 2", tmp_path) == 0
        assert run(f"{TINY} --seeds 3", tmp_path) == 0
        assert "are replaced" not in capsys.readouterr().err
        assert run(f"{TINY} --seeds 2", tmp_path) == 0
        assert "another study (3 seeds, 2 epochs, panels tau) are replaced" in capsys.readouterr().err

    def test_no_password_in_the_manifest(self, tmp_path: Path) -> None:
        assert run(f"{TINY} --seeds 2 --tracking-uri http://me:secret@127.0.0.1:9", tmp_path) == 0
        told = json.loads((tmp_path / "sensitivity" / "breast_cancer" / "manifest.json").read_text())
        assert told["options"]["tracking_uri"] == "http://me:***@127.0.0.1:9"
        assert told["options"]["dataset"] == ["breast_cancer"] and told["options"]["panel"] == ["tau"]
        assert told["tables"]["breast_cancer"]["notes"] and told["tables"]["breast_cancer"]["unseen_categories"] == {}

    def test_a_seed_more_trains_that_seed(self, tmp_path: Path) -> None:
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 2", tmp_path, runner) == 0
        assert run(f"{TINY} --seeds 3", tmp_path, runner) == 0
        assert runner.seeds == [[0, 1], [2]]
        assert len(results(tmp_path)) == 15

    def test_another_panel_shares_the_default_point(self, tmp_path: Path) -> None:
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 1", tmp_path, runner) == 0
        assert run(f"{TINY.replace('tau', 'tau,patience')} --seeds 1", tmp_path, runner) == 0
        assert [len(pack.replicas) for pack in runner.jobs[1].packs] == [4]

    def test_a_truncated_result_is_reported_and_redone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{TINY} --seeds 2", tmp_path) == 0
        before = results(tmp_path)
        path = tmp_path / "results" / "breast_cancer" / f"{next(iter(before))}.json"
        path.write_text(path.read_text()[:100])
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 2", tmp_path, runner) == 0
        assert [[r.id for r in pack.replicas] for pack in runner.jobs[0].packs] == [[path.stem]]
        assert capsys.readouterr().err.count(f"ignored, as if it were not there: {path}: ") == 1
        assert comparable(results(tmp_path)) == comparable(before)

    @pytest.mark.parametrize("extra", ["", "--pack 3", "--seeds-vary probe", "--seeds-vary split", "--seeds 1"])
    def test_the_plan_is_what_is_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: str) -> None:
        words = f"{TINY} --seeds 2 {extra}"
        assert run(f"{words} --plan", tmp_path / "out", CountingRunner(workers=2)) == 0
        planned = capsys.readouterr().out.splitlines()
        assert not (tmp_path / "out").exists()
        runner = CountingRunner(workers=2)
        assert run(words, tmp_path / "out", runner) == 0
        # All but the line with the clock time.
        assert capsys.readouterr().out.splitlines()[:3] == planned[:3]
        (job,) = runner.jobs
        replicas = [replica for pack in job.packs for replica in pack.replicas]
        assert f"{len(replicas)} to do" in planned[0]
        assert planned[1].startswith(f"packs: {len(job.packs)}, of ")
        assert {replica.id for replica in replicas} == results(tmp_path / "out").keys()
        assert job.tables.keys() == {pack.table_key for pack in job.packs}

    def test_a_budget_leaves_seeds_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A seed of five replicas takes a minute, so that three fit.
        monkeypatch.setattr(planner, "speeds", at_twelve_seconds)
        words = f"{TINY} --seeds 5 --budget 3m30s"
        assert run(f"{words} --plan", tmp_path / "out") == 0
        told = "budget 3 min 30 s: 3 of 5 seeds fit; seeds 3, 4 are dropped; without --budget 5 min 12 s"
        shown = capsys.readouterr().out.splitlines()
        assert shown[0] == "sensitivity of breast_cancer: 5 points x 3 seeds = 15 replicas, 0 done, 15 to do"
        assert shown[4:] == [
            told,
            "warning: no difference can be significant: with 3 seeds the test gives p = 0.25 at the least",
        ]
        assert not (tmp_path / "out").exists()

        runner = CountingRunner()
        assert run(words, tmp_path / "out", runner) == 0
        assert runner.seeds == [[0, 1, 2]]
        shown = capsys.readouterr()
        assert told in shown.err and told in shown.out
        manifest = json.loads((tmp_path / "out" / "sensitivity" / "breast_cancer" / "manifest.json").read_text())
        assert manifest["seeds"] == [0, 1, 2]
        assert manifest["options"]["budget"] == 210.0

        # What is finished costs nothing: the same time is now enough for the rest.
        assert run(words, tmp_path / "out", runner) == 0
        assert runner.seeds == [[0, 1, 2], [3, 4]]
        assert "budget 3 min 30 s: all 5 seeds fit" in capsys.readouterr().out

        assert run(f"{TINY} --seeds 7-9 --budget 1m", tmp_path / "none", runner) == 2
        assert "budget must be enough for one seed of every point, about 1 min 12 s" in capsys.readouterr().err
        assert not (tmp_path / "none").exists()

    def test_several_data_sets(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = TINY.replace("breast_cancer", "breast_cancer diabetes")
        assert run(f"{words} --seeds 2", tmp_path) == 0
        shown = capsys.readouterr().out.splitlines()
        for name in ("breast_cancer", "diabetes", "breast_cancer+diabetes"):
            folder = tmp_path / "sensitivity" / name
            assert (folder / "figure.png").is_file()
            assert f"{'together' if '+' in name else name}: {folder}" in shown
        together = pd.read_csv(tmp_path / "sensitivity" / "breast_cancer+diabetes" / "points.csv")
        assert set(together["dataset"]) == {"breast_cancer", "diabetes"}

    def test_rebuild_needs_results_alone(self, tmp_path: Path) -> None:
        assert run(f"{TINY} --seeds 2", tmp_path) == 0
        table = tmp_path / "sensitivity" / "breast_cancer" / "points.csv"
        before = table.read_bytes()
        table.unlink()
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 2 --rebuild", tmp_path, runner) == 0
        assert (table.read_bytes(), runner.jobs) == (before, [])
        # With a seed that was never trained: what there is, and the exit code says that it is not all.
        assert run(f"{TINY} --seeds 3 --rebuild", tmp_path, runner) == 1
        assert runner.jobs == []

    def test_a_failed_pack_is_told_and_tried_again_when_asked(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            if replicas[0].seed == 1:
                raise RuntimeError("worn out")
            return fake_train(replicas, *arguments, **settings)

        assert run(f"{TINY} --seeds 2", tmp_path, InProcessRunner(train)) == 1
        shown = capsys.readouterr().err
        assert "failed: breast_cancer, 5 replicas: RuntimeError: worn out" in shown
        assert "5 of 10 replicas have no result:" in shown
        why = "  breast_cancer: 5 replicas (5 points, seeds 1): failed: RuntimeError: worn out (test_"
        assert why in shown
        assert "what failed is trained again with --retry-failed" in shown
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 3", tmp_path, runner) == 1  # a new seed is trained, the failed one is told again
        assert runner.seeds == [[2]]
        assert why in capsys.readouterr().err
        assert run(f"{TINY} --seeds 3", tmp_path, runner) == 1
        assert len(runner.jobs) == 1
        assert "nothing to train" not in capsys.readouterr().out
        assert run(f"{TINY} --seeds 3 --retry-failed", tmp_path, runner) == 0
        assert runner.seeds == [[2], [1]]
        assert not list((tmp_path / "checkpoints").iterdir())
        assert not list((tmp_path / "failures" / "breast_cancer").iterdir())

    def test_an_interrupted_run_continues(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            if replicas[0].seed == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return fake_train(replicas, *arguments, **settings)

        assert run(f"{TINY} --seeds 3", tmp_path, InProcessRunner(train)) == 130
        assert "interrupted: 5 of 15 replicas are finished; the same command continues" in capsys.readouterr().err
        assert len(list((tmp_path / "checkpoints").iterdir())) == 1
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 3", tmp_path, runner) == 0
        assert runner.seeds == [[1, 2]]
        assert len(results(tmp_path)) == 15
        assert not list((tmp_path / "checkpoints").iterdir())

    def test_points_are_added_and_cancelled_meanwhile(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        requests = (("cancel", "tau", 1e-4), ("add", "patience", 7), ("add", "tau", 0.005), ("cancel", "tau", 0.1))
        asking = Asking(tmp_path, *requests)
        assert run(f"{TINY} --seeds 2", tmp_path, InProcessRunner(asking.train)) == 0
        first, second, third, fourth = asking.answers
        assert third.startswith("tau=0.005 added: 2 replicas in ")
        assert third.endswith("in later runs give --value tau=0.005 to keep it")
        assert fourth.startswith("tau=0.1 cancelled: 2 replicas to train less; results")
        assert first == "refused: the default, which all points are compared with, must stay, got tau=0.0001"
        assert second == "refused: unknown panel of this study 'patience' (known: tau)"
        taus = sorted(
            r["identity"]["hyperparameters"]["tau"] for r in results(tmp_path).values() if r["identity"]["seed"]
        )
        assert taus == [1e-5, 1e-4, 1e-3, 5e-3, 1e-2]
        points = pd.read_csv(tmp_path / "sensitivity" / "breast_cancer" / "points.csv")
        assert list(points["value"]) == taus and list(points["n"]) == [2] * 5
        assert not list((tmp_path / "checkpoints").iterdir())
        # The same in later runs: what was added has an option, what was cancelled is asked for again.
        runner = CountingRunner()
        assert run(f"{TINY} --seeds 2 --value tau=0.005", tmp_path, runner) == 0
        trained = {r.hyperparameters.tau for pack in runner.jobs[0].packs for r in pack.replicas}
        assert trained == {0.1}

    def test_a_moved_output_folder_and_other_packing_train_only_what_is_missing(self, tmp_path: Path) -> None:
        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            if replicas[0].seed == 1:
                settings["checkpoint"].write(lambda stream: stream.write(b"state"))
                os.kill(os.getpid(), signal.SIGTERM)
            return fake_train(replicas, *arguments, **settings)

        assert run(f"{TINY} --seeds 3", tmp_path / "here", InProcessRunner(train)) == 128 + signal.SIGTERM
        (tmp_path / "here").rename(tmp_path / "there")
        states: list[list[bytes]] = []

        def resume(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            states.append([stream.read() for stream in settings["checkpoint"].read()])
            return fake_train(replicas, *arguments, **settings)

        runner = CountingRunner(resume)
        assert run(f"{TINY} --seeds 3 --pack 3", tmp_path / "there", runner) == 0
        assert runner.seeds == [[1, 2]]
        assert len(results(tmp_path / "there")) == 15
        assert sorted(states)[-1] == [b"state"]  # what was begun went on from its state
        assert not (tmp_path / "here").exists()

    def test_checkpoints_in_storage(self, tmp_path: Path) -> None:
        storage = tmp_path / "shared"

        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            settings["checkpoint"].write(lambda stream: stream.write(b"state"))
            if replicas[0].seed == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return fake_train(replicas, *arguments, **settings)

        words = f"{TINY} --seeds 2 --storage {storage}"
        for output in ("out", "other"):
            assert run(words, tmp_path / output, InProcessRunner(train)) == 130
            assert list((tmp_path / output / "checkpoints").iterdir()) == []
        # Two outputs of one study share a storage, and none of what lies there.
        assert [state.read_bytes() for state in storage.glob("*/*/pack.pt")] == [b"state"] * 2
        (tmp_path / "out").rename(tmp_path / "moved")
        assert run(words, tmp_path / "moved") == 0
        (state,) = storage.glob("*/*/pack.pt")
        assert state.parent.parent.name == ResultsStore(tmp_path / "other").id
        assert run(words, tmp_path / "other") == 0
        assert list(storage.glob("*/*")) == []

    def test_checkpoints_of_other_studies_stay(self, tmp_path: Path) -> None:
        other = tmp_path / "checkpoints" / "other"
        other.mkdir(parents=True)
        (other / "replicas.json").write_text('["someone else"]')
        assert run(f"{TINY} --seeds 1", tmp_path) == 0
        assert (other / "replicas.json").is_file()


@pytest.mark.usefixtures("no_mlflow")
class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--dataset breast_cancr", "unknown data set 'breast_cancr'; did you mean 'breast_cancer'?"),
            (f"{TINY} --seeds 0", "seeds must be a number n >= 1"),
            (f"{TINY} --cpus-per-pack 4096", "a pack must fit on one machine, got 4096 cores per pack; there: "),
            (f"{TINY} --rebuild", "--rebuild needs results, got none of this study in"),
            ("--dataset eol --data-dir /nowhere/at/all", "the data folder must be an existing folder"),
            (f"{TINY} --tracking-uri sqlite:///a?b=c", "must be without '?', got"),
        ],
    )
    def test_before_anything_is_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        output = tmp_path / "out"
        runner = CountingRunner()
        code = run(words, output, runner)
        shown = capsys.readouterr()
        assert code == 2
        assert shown.err.startswith("error: ")
        assert message in shown.err
        assert shown.err.count("\n") == 1
        assert (shown.out, runner.jobs, output.exists()) == ("", [], False)

    def test_gpus_where_there_are_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sweeps.service.nodes.local_gpus", lambda: (0, None))
        assert sensitivity.main([*TINY.split(), "--gpus-per-pack", "0.5", "--output", str(tmp_path / "out")]) == 2
        assert "a pack must fit on one machine, got 1 core and 0.5 GPU per pack; there: " in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    def test_an_output_that_cannot_be_written(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "results").touch()
        for output in (tmp_path / "file" / "out", tmp_path):
            runner = CountingRunner()
            assert run(TINY, output, runner) == 2
            assert capsys.readouterr().err.startswith("error: the output folder must be writable, got ")
            assert runner.jobs == []
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "results"]

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert sensitivity.main(["--help"]) == 0
        assert "Train the paper's sensitivity panels" in capsys.readouterr().out


def test_nothing_to_train_starts_no_ray(tmp_path: Path) -> None:
    """In a process of its own, as a person would run it: quick, and without Ray."""
    assert run(f"{TINY} --seeds 1", tmp_path) == 0
    code = (
        "import sys; from sweeps.sensitivity import main; code = main(sys.argv[1:]);"
        "print('ray' in sys.modules); sys.exit(code)"
    )
    words = [*TINY.split(), "--seeds", "1", "--output", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "nothing to train" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


SCRIPT = Path(sensitivity.__file__)


@contextmanager
def started(words: str, output: Path) -> Iterator[subprocess.Popen[str]]:
    """The script, as typed in a shell of another folder; its process group is gone at the end of the block."""
    with (output / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *words.split(), "--output", str(output)],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            cwd=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            for child in [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []:
                child.kill()
            process.kill()
            process.wait()


def until(condition: Callable[[], Any], seconds: float = 90.0) -> Any:
    """What ``condition`` returns once it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    return value


@pytest.mark.slow
def test_ray_killed_interrupted_and_continued(tmp_path: Path, no_mlflow: None) -> None:
    """Kill a worker in mid training, interrupt the run after its first results, continue it: as if nothing happened."""
    words = "--dataset breast_cancer --epochs 300 --probe-epochs 2 --probes 1 --panel tau --seeds 3"
    crowd, calm = tmp_path / "crowd", tmp_path / "calm"
    crowd.mkdir()
    checkpoints = crowd / "checkpoints"

    def stderr() -> str:
        return (crowd / "stderr").read_text()

    with started(words, crowd) as process:

        def workers() -> list[psutil.Process]:
            children = psutil.Process(process.pid).children(recursive=True)
            return [child for child in children if "ImplicitFunc" in " ".join(child.cmdline())]

        until(lambda: list(checkpoints.glob("*/*.pt")))
        descendants = psutil.Process(process.pid).children(recursive=True)
        os.kill(workers()[0].pid, signal.SIGKILL)
        until(lambda: "goes on from its checkpoint" in stderr())
        until(lambda: results(crowd))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert not psutil.wait_procs(descendants, timeout=10)[1]
    finished = results(crowd)
    assert 0 < len(finished) < 15
    assert f"interrupted: {len(finished)} of 15 replicas are finished; the same command continues" in stderr()
    assert "Traceback" not in stderr()

    # On real Ray again, in this process; only what is missing, and the plan is what is run.
    assert sensitivity.main([*words.split(), "--output", str(crowd)]) == 0
    assert not list(checkpoints.iterdir())
    untouched = {name: record for name, record in results(crowd).items() if name in finished}
    assert untouched == finished

    assert run(words, calm, InProcessRunner()) == 0
    assert comparable(results(crowd)) == comparable(results(calm))


@pytest.mark.usefixtures("no_mlflow")
def test_sigterm_outside_training_closes_what_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Sweep, "_publish", lambda *arguments, **settings: os.kill(os.getpid(), signal.SIGTERM))
    assert run(f"{TINY} --seeds 1", tmp_path) == 128 + signal.SIGTERM
    assert "interrupted; the same command continues from what is finished" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
    assert len(results(tmp_path)) == 5
