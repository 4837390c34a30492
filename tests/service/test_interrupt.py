"""Requests to stop: noted once, raised where they arrive, but not in the middle of an import."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.service.interrupt import Interrupted, Terminated, noting_signals, raising_signals
from tests.cluster.harness import wait_until


@pytest.fixture(autouse=True)
def usual_sigint() -> Iterator[None]:
    """A shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_signal_acts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), noting_signals() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.signum == signal.SIGINT
        with pytest.raises(Interrupted, match="SIGINT"):
            interruption.check()
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_signals_are_raised_where_they_arrive(number: signal.Signals, raised: type[BaseException]) -> None:
    before = signal.getsignal(number)
    with pytest.raises(raised) as error, raising_signals():
        signal.raise_signal(number)
    assert type(error.value) is raised
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_an_import_is_not_cut_short(
    number: signal.Signals, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock would stay held, and whoever needs the module, too, would wait for good."""
    name = f"slow_to_import_{number}"
    (tmp_path / f"{name}.py").write_text("import time\nfor _ in range(20):\n    time.sleep(0.01)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
    began = time.monotonic()
    with pytest.raises(raised), raising_signals():
        importlib.import_module(name)
        time.sleep(5.0)
    assert time.monotonic() - began < 4.0
    assert sys.modules[name].whole is True


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with raising_signals():
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_no_thread_or_descriptor_is_left() -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "signals"]

    wait_until(lambda: not threads(), "threads of earlier tests")
    before = os.listdir("/proc/self/fd")
    with raising_signals():
        assert len(threads()) == 1
    wait_until(lambda: not threads(), "the thread")
    assert os.listdir("/proc/self/fd") == before
