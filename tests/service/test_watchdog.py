"""Whatever a run started is ended and its folder removed, however the run ends; nobody else's is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps.service import guard, watchdog
from sweeps.service.guard import guarded
from sweeps.service.interrupt import Interruption
from sweeps.service.watchdog import MARK, end_all, make_folder, members, remove_stale, watched

DRIVER = """
import json, os, subprocess, sys, time
from pathlib import Path
from sweeps.service.watchdog import watched
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
daemon = f"import os, sys; os.fork() and os._exit(0); os.setsid(); os.environ.clear(); exec({stubborn!r})"
with watched(Path(sys.argv[1])):
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=session)
        for code, session in ((stubborn, False), (stubborn, True), (daemon, False))
    ]
    for child in children:
        child.stdout.readline()
    print("ready", flush=True)
    sys.stdin.readline()
"""
"""Starts a child, one in another session, and a daemon that nobody's child is; none of them hears SIGTERM."""


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    return value


def start(folder: Path) -> subprocess.Popen[str]:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    assert len(members(folder)) == 3
    return driver


def watchdog_of(driver: subprocess.Popen[str]) -> psutil.Process:
    children = psutil.Process(driver.pid).children()
    (found,) = (
        child for child in children if child.status() != psutil.STATUS_ZOMBIE and watchdog.__file__ in child.cmdline()
    )
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ab-test"
    made.mkdir()
    return made


@pytest.mark.parametrize("kind", ["end", "driver", "group"])
def test_nothing_is_left(folder: Path, kind: str) -> None:
    (folder / "session").mkdir()
    with start(folder) as driver:
        if kind == "end":
            assert driver.stdin is not None
            driver.stdin.write("\n")
            driver.stdin.flush()
        elif kind == "driver":
            driver.kill()
        else:
            os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait() == (0 if kind == "end" else -signal.SIGKILL)
        until(lambda: not members(folder) and not folder.exists())
        assert driver.stderr is not None
        said = driver.stderr.read()
    assert said == "" if kind == "end" else "the run ended without cleaning up" in said


def test_signals_do_not_end_the_watchdog(folder: Path) -> None:
    with start(folder) as driver:
        dog = watchdog_of(driver)
        assert os.getsid(dog.pid) != os.getsid(driver.pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            dog.send_signal(number)
        driver.kill()
        until(lambda: not members(folder) and not folder.exists())


def test_a_killed_watchdog_harms_nobody(folder: Path) -> None:
    with start(folder) as driver:
        watchdog_of(driver).kill()
        assert driver.stdin is not None
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.wait() == 0
    assert not folder.exists()
    assert end_all(folder) == 3


def test_other_processes_are_left_alone(folder: Path, tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    # Another run's, whose folder's name begins like this one's; and a person's who looks at the folder.
    longer = subprocess.Popen(sleep, env={**os.environ, MARK: f"{folder}2"})
    onlooker = subprocess.Popen([*sleep, str(folder)], cwd=folder)
    try:
        with watched(folder):
            inside = subprocess.Popen(sleep)
            until(lambda: members(folder) == [inside.pid])
        assert MARK not in os.environ
        assert inside.wait() == -signal.SIGTERM
        assert (longer.poll(), onlooker.poll()) == (None, None)
    finally:
        for process in (longer, onlooker):
            process.kill()
            process.wait()


def test_folders_that_nobody_will_remove_are_removed(tmp_path: Path) -> None:
    living, foreign, dead = (tmp_path / f"ab-{name}" for name in ("living", "foreign", "dead"))
    for made in (living, foreign, dead):
        made.mkdir()
    with start(dead) as driver:
        dog = watchdog_of(driver)
        assert remove_stale(tmp_path) == []
        dog.kill()  # first, as in a power cut
        os.killpg(driver.pid, signal.SIGKILL)
        end_all(dead)
    with watched(living):
        assert remove_stale(tmp_path) == [dead]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ab-foreign", "ab-living"]


def test_names_of_folders_are_short_enough_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # as long as they come
    made = make_folder()
    made.rmdir()
    # A socket's path has at most 107 bytes; Ray's are the folder, session_<date>_<time>_<number> and sockets/<name>.
    longest = f"{made}/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    assert len(longest) <= 107


def server(name: str, tmp_path: Path) -> subprocess.Popen[bytes]:
    """A child of this process that has the name of one of Ray's."""
    link = tmp_path / name
    link.symlink_to("/bin/sleep")
    return subprocess.Popen([link, "600"])


def test_a_server_that_ends_before_its_time_stops_the_run(tmp_path: Path) -> None:
    interruption = Interruption()
    with server("raylet", tmp_path) as raylet:

        def train() -> None:
            raylet.kill()
            until(lambda: interruption.error)
            interruption.check()

        with pytest.raises(ChildProcessError, match="Ray's own process raylet ended before its time"):
            with guarded(interruption):
                time.sleep(1.0)  # it is seen first
                train()


def test_a_server_that_ends_in_its_time_is_not_missed(tmp_path: Path) -> None:
    interruption = Interruption()
    with server("gcs_server", tmp_path) as gcs, guarded(interruption) as guarding:
        time.sleep(1.0)
        guarding.rest()
        gcs.kill()
        gcs.wait()
        time.sleep(1.0)
    interruption.check()
    assert interruption.error is None


HANGS = """
import subprocess, sys, time
from sweeps.service import guard
from sweeps.service.interrupt import Interruption
guard.PATIENCE_SECONDS = 0.5
raylet = subprocess.Popen([sys.argv[1], "600"])
with guard.guarded(Interruption()):
    time.sleep(1)
    raylet.kill()
    time.sleep(600)
"""


def test_a_run_that_hangs_without_a_server_is_ended(tmp_path: Path) -> None:
    link = tmp_path / guard.SERVERS[1]
    link.symlink_to("/bin/sleep")
    done = subprocess.run([sys.executable, "-c", HANGS, link], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Ray's own process raylet ended before its time")
    assert json.dumps(done.stderr).count("\\n") == 1
