"""Kill a real sweep at random moments and start it again until it is done: is everything as if nothing had happened?

    python -m tests.faults --kills 20 --seed 0

prints a table of what was killed, when, and what the run said.  ``tests/service/test_faults.py`` is a short one.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sweeps import sensitivity
from sweeps.service.watchdog import MARK

SCRIPT = Path(sensitivity.__file__)

MESSAGES = {
    "driver": "the run ended without cleaning up",
    "group": "the run ended without cleaning up",
    "raylet": "Ray's own process raylet ended before its time",
    "gcs_server": "Ray's own process gcs_server ended before its time",
    "SIGINT": "interrupted",
    "SIGTERM": "interrupted",
}
"""What is killed, or how the driver is asked to stop -> what is said while Ray is there."""

PHASES = ("start-up", "training", "writing", "between packs", "MLflow", "publishing")

WITHOUT_RAY = ("driver", "group", "SIGINT", "SIGTERM")
"""What can be killed when nothing of Ray is there."""

WRITERS = ("driver", "group", "actor")
"""What can be killed while it writes; anything else would be found too late."""

CLEAN_SECONDS = 15.0
"""How long the watchdog may take here; generous, because the cores may be busy."""


@dataclass(frozen=True)
class Kill:
    """One kill, planned: what, and in which phase of the run."""

    kind: str
    phase: str
    seconds: float
    """Delay after the phase began."""


@dataclass(frozen=True)
class Killed:
    """One kill, done."""

    kill: Kill
    after: float
    """Seconds since the run started."""
    code: int | None
    """Exit code; None where the run went on."""
    finished: int
    """Replicas that had a result right after."""
    unfinished: int
    """Files that were being written."""
    clean: float
    """Seconds after the end of the driver until nothing of the run was left."""

    def row(self) -> str:
        """As a row of a Markdown table."""
        code = "went on" if self.code is None else self.code
        cells = (self.kill.phase, self.kill.kind, f"{self.after:.1f}", code, self.finished, self.unfinished)
        return "| " + " | ".join(map(str, cells)) + f" | {self.clean:.1f} |"


HEADER = (
    "| phase | killed | s after start | exit code | replicas finished | half-written files | s until all is gone |\n"
    "|---|---|---|---|---|---|---|"
)


def plan_kills(count: int, seed: int) -> list[Kill]:
    """Kills at random moments: all kinds and phases in turn, those of the end of a run last."""
    dice = random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += dice.sample(["driver", "group", "actor", "raylet", "gcs_server", "SIGINT", "SIGTERM"], 7)
    early = [PHASES[i % 5] for i in range(count - count // 6)]
    dice.shuffle(early)
    phases = early + ["publishing"] * (count // 6)
    kills = []
    for kind, phase in zip(kinds, phases, strict=False):
        if phase == "publishing" and kind not in WITHOUT_RAY:
            kind = dice.choice(WITHOUT_RAY)
        if (phase == "start-up" and kind == "actor") or (phase == "writing" and kind not in WRITERS):
            kind = dice.choice(("driver", "group"))
        longest = {"start-up": 8.0, "training": 1.5, "writing": 0.0, "between packs": 0.3, "MLflow": 0.0}
        kills.append(Kill(kind, phase, dice.uniform(0, longest.get(phase, 2.0))))
    return kills


class Run:
    """One start of the script, in a process group of its own, and all processes and folders that come of it."""

    def __init__(self, words: Sequence[str], output: Path) -> None:
        self.output = output
        self.began = time.monotonic()
        self._at_start = set(results(output))
        self._log = output.parent / f"{output.name}.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *words, "--output", str(output)],
                stdout=log,
                stderr=log,
                cwd=output.parent,
                start_new_session=True,
            )
        self.folders: set[str] = set()
        self._known: set[psutil.Process] = set()

    @property
    def said(self) -> str:
        """Everything that it wrote so far."""
        return self._log.read_text()

    def look(self) -> list[psutil.Process]:
        """Its processes, which are remembered together with their folder."""
        found = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        for process in found:
            self._known.add(process)
            try:
                folder = process.environ().get(MARK)
            except psutil.Error:
                continue
            if folder:
                self.folders.add(folder)
        return found

    def named(self, name: str) -> list[psutil.Process]:
        """Its processes whose command begins like this."""
        found = []
        for process in self.look():
            try:
                command = process.cmdline() or [""]
            except psutil.Error:
                continue
            if Path(command[0].split(" ")[0]).name == name or command[0].startswith(name):
                found.append(process)
        return found

    def reached(self, phase: str) -> bool:
        """Whether it is in that phase now; start-up is from the beginning on."""
        new = len(set(results(self.output)) - self._at_start)
        match phase:
            case "start-up":
                return True
            case "training":
                return bool(self.named("ray::ImplicitFunc"))
            case "between packs":
                return new > 0
            case "writing":
                return False  # seen by whoever looks more closely
            case "MLflow":
                return new > 0 and time.time() - (self.output / "mlflow.db-wal").stat().st_mtime < 0.05
            case _:
                return "MLflow:" not in self.said and (
                    "nothing to train" in self.said or (bool(self.folders) and not os.path.exists(min(self.folders)))
                )

    def victims(self, kind: str) -> list[psutil.Process]:
        """What a kill of that kind would end, most of all the driver."""
        match kind:
            case "driver" | "group" | "SIGINT" | "SIGTERM":
                return [psutil.Process(self.process.pid)] if self.process.poll() is None else []
            case _:
                return self.named("ray::ImplicitFunc" if kind == "actor" else kind)

    def left(self) -> list[str]:
        """What there still is of it: processes, known from before or by their open files, and folders."""
        left = [str(process) for process in self._known if alive(process)]
        for process in psutil.process_iter():
            left += [f"{process}: {path}" for path in opened(process) if any(f in path for f in self.folders)]
        return left + [folder for folder in self.folders if os.path.exists(folder)]

    def wait_until_clean(self) -> float:
        """Seconds until nothing of it was left."""
        began = time.monotonic()
        while left := self.left():
            assert time.monotonic() < began + CLEAN_SECONDS, left
            time.sleep(0.1)
        return time.monotonic() - began


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def opened(process: psutil.Process) -> list[str]:
    """Where the first descriptors of a process lead: those of its output, its logs, its sockets."""
    folder = Path("/proc", str(process.pid), "fd")
    paths = []
    try:
        for name in os.listdir(folder):
            paths.append(os.readlink(folder / name))
    except OSError:
        pass
    return paths


def results(output: Path) -> dict[str, tuple[int, int]]:
    """Name of every result file -> what changes when it is written again."""
    files = (output / "results").glob("*/*.json")
    return {path.stem: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def records(output: Path) -> dict[str, Any]:
    """Everything in the results but when, where and how fast."""
    read = {path.stem: json.loads(path.read_text()) for path in (output / "results").glob("*/*.json")}
    return {name: {k: v for k, v in record.items() if k != "runtime"} for name, record in read.items()}


def half_written(output: Path, *folders: str) -> list[str]:
    """Files that are being written, or were when their writer was killed; quick, because that takes no time."""
    found = []
    for top in folders or ("results", "checkpoints", "sensitivity"):
        for folder, _, names in os.walk(output / top):
            found += [os.path.join(folder, name) for name in names if name.endswith(".part")]
    return found


def lock_is_free(output: Path) -> bool:
    """Whether the next run may start."""
    with open(output / ".lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def torment(words: Sequence[str], output: Path, kills: Sequence[Kill]) -> Iterator[Killed]:
    """Start the script, again and again, until all kills are done and it ended by itself with exit code 0."""
    output.mkdir(parents=True, exist_ok=True)
    waiting = list(kills)
    seen: dict[str, tuple[int, int]] = {}
    run = Run(words, output)
    try:
        while waiting:
            kill = waiting[0]
            victims = reach(run, kill)
            after = time.monotonic() - run.began
            code = clean = None
            if not victims or kill.kind != "actor":
                code = run.process.wait(timeout=60)
                clean = run.wait_until_clean()
            if not victims or (code == 0 and kill.phase == "publishing"):
                # It ended before its moment came, or just then: the next one meets it earlier, while it publishes.
                assert code == 0, run.said
                kind = kill.kind if kill.kind in WITHOUT_RAY else "driver"
                waiting[0] = Kill(kind, "publishing", kill.seconds / 2)
                run = Run(words, output)
                continue
            if code is not None:
                assert code != 0, run.said
                if kill.phase in ("training", "between packs"):
                    assert MESSAGES[kill.kind] in run.said, run.said
                assert "Traceback" not in run.said, run.said
                assert not (output / ".lock").exists() or lock_is_free(output)
            now = results(output)
            assert seen.items() <= now.items(), "a finished result was written again"
            seen = now
            yield Killed(kill, after, code, len(now), len(half_written(output)), clean or 0.0)
            del waiting[0]
            if code is not None:
                run = Run(words, output)
        assert run.process.wait(timeout=240) == 0, run.said
        run.wait_until_clean()
        assert seen.items() <= results(output).items(), "a finished result was written again"
        assert not half_written(output)
        assert not list((output / "checkpoints").iterdir())
        assert lock_is_free(output)
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)


def reach(run: Run, kill: Kill) -> list[psutil.Process]:
    """Wait for the moment of a kill, and do it; what was hit, nothing if the run ended before that."""
    victims = run.victims(kill.kind)
    while run.process.poll() is None and not (victims and run.reached(kill.phase)):
        run.look()
        if kill.phase == "writing":
            looked = time.monotonic()  # a file is there for milliseconds: look without a break
            while victims and time.monotonic() < looked + 0.5:
                if writes(victims[0], kill.kind, run.output):
                    return hit(victims, kill.kind)
        else:
            time.sleep(0.01)
        victims = run.victims(kill.kind)
    run.look()
    end = time.monotonic() + kill.seconds
    while run.process.poll() is None and (time.monotonic() < end or not victims):
        run.look()
        time.sleep(0.01)
        victims = run.victims(kill.kind)
    return hit(victims, kill.kind) if run.process.poll() is None else []


def writes(victim: psutil.Process, kind: str, output: Path) -> bool:
    """Whether a file is being written whose writer a kill of that kind ends."""
    match kind:
        case "driver":
            return bool(half_written(output, "results"))
        case "actor":
            return any(name.endswith(f"-{victim.pid}.part") for name in half_written(output, "checkpoints"))
        case _:
            return bool(half_written(output))


def hit(victims: Sequence[psutil.Process], kind: str) -> list[psutil.Process]:
    """End the first one."""
    victim = victims[0]
    if kind == "group":
        os.killpg(victim.pid, signal.SIGKILL)
    else:
        os.kill(victim.pid, signal.Signals[kind] if kind.startswith("SIG") else signal.SIGKILL)
    return [victim]


def tracked(output: Path) -> dict[str, list[str]]:
    """``adaptbin.key`` -> status of every run with that key in MLflow's database."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{output}/mlflow.db")
    found: dict[str, list[str]] = {}
    for experiment in client.search_experiments():
        token = None
        while True:
            page = client.search_runs([experiment.experiment_id], max_results=1000, page_token=token)
            for run in page:
                found.setdefault(run.data.tags["adaptbin.key"], []).append(run.info.status)
            token = page.token
            if not token:
                break
    return found


def check_tracked(found: Mapping[str, Sequence[str]], finished: Sequence[str], points: int) -> None:
    """Exactly one run per replica, point and study, and every one of them finished."""
    kinds = [key.partition(":")[0] for key in found]
    assert {key.partition(":")[2] for key in found if key.startswith("replica:")} == set(finished)
    assert (kinds.count("study"), kinds.count("point"), len(kinds)) == (1, points, 1 + points + len(finished))
    assert set(map(tuple, found.values())) == {("FINISHED",)}, found


def calm(words: Sequence[str], output: Path) -> int:
    """The same sweep in this process, undisturbed and without MLflow."""
    from contextlib import nullcontext
    from unittest import mock

    from sweeps.service.local import InProcessRunner
    from sweeps.service.sweep import Sweep

    with mock.patch.object(Sweep, "_tracking", lambda self, reading: nullcontext(mock.Mock(pages={}))):
        return sensitivity.main([*words, "--output", str(output)], runner=InProcessRunner())


def survive(words: Sequence[str], folder: Path, kills: Sequence[Kill], tell: Callable[[str], object]) -> None:
    """Kill, continue, and compare with a run that nobody disturbed."""
    tell(HEADER)
    for killed in torment(words, folder / "tormented", kills):
        tell(killed.row())
    assert calm(words, folder / "calm") == 0
    assert records(folder / "tormented") == records(folder / "calm")
    check_tracked(tracked(folder / "tormented"), list(results(folder / "calm")), points=5)


def main() -> None:
    """The long version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # About a second of training per kill, on two cores.
    words = "--dataset breast_cancer --epochs 300 --probes 1 --probe-epochs 5 --panel tau --seeds".split()
    words.append(str(max(4, given.kills // 2)))
    with tempfile.TemporaryDirectory() as folder:
        survive(words, Path(folder), plan_kills(given.kills, given.seed), lambda line: print(line, flush=True))
    print(f"\n{given.kills} kills (seed {given.seed}): results and MLflow runs are those of an undisturbed run.")


if __name__ == "__main__":
    main()
