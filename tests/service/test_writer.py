from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from sweeps.service import writer as module
from sweeps.service.writer import LAST_ATTEMPTS, BackgroundWriter


class Heard:
    """A watcher that writes down what it is told; ValueError is poison."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def is_poisoned(self, error: Exception) -> bool:
        return isinstance(error, ValueError)

    def failing(self, error: Exception) -> None:
        self.told.append(f"failing: {error}")

    def recovered(self) -> None:
        self.told.append("recovered")

    def skipped(self, error: Exception) -> None:
        self.told.append(f"skipped: {error}")


class Away:
    """A task that fails a number of times before it is done."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.left = failures
        self.attempts = 0
        self.done = threading.Event()
        self.error = error or OSError("away")

    def __call__(self) -> None:
        self.attempts += 1
        if self.attempts <= self.left:
            raise self.error
        self.done.set()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)


def started(tasks, connect: Any = nullcontext) -> tuple[BackgroundWriter, Heard]:
    heard = Heard()
    writer = BackgroundWriter(connect, heard, name="test-writer")
    for task in tasks:
        writer.put(task)
    writer.start()
    return writer, heard


def test_tasks_run_in_order_in_one_other_thread():
    seen: list[tuple[int, int]] = []
    writer, heard = started([lambda i=i: seen.append((i, threading.get_ident())) for i in range(5)])
    assert writer.close(10.0)
    assert [i for i, _ in seen] == [0, 1, 2, 3, 4]
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in seen}) == 1
    assert heard.told == []


def test_what_failed_is_tried_again_before_the_rest():
    order: list[str] = []
    away = Away(5)
    writer, heard = started([lambda: order.append("before"), away, lambda: order.append("after")])
    assert away.done.wait(10.0)
    assert writer.close(10.0)
    assert order == ["before", "after"]
    assert away.attempts == 6
    assert heard.told == ["failing: away", "recovered"]


def test_each_outage_is_told_once():
    first, second = Away(3), Away(2)
    writer, heard = started([first, lambda: None, second])
    assert second.done.wait(10.0)
    assert writer.close(10.0)
    assert heard.told == ["failing: away", "recovered"] * 2


def test_the_context_is_made_anew_after_a_failure():
    entered: list[str] = []

    @contextmanager
    def connect():
        entered.append("in")
        if len(entered) == 1:
            raise OSError("no store")
        yield
        entered.append("out")

    away = Away(1)
    writer, heard = started([away], connect)
    assert away.done.wait(10.0)
    assert writer.close(10.0)
    assert entered == ["in", "in", "in", "out"]
    assert heard.told == ["failing: no store", "recovered"]


def test_a_poisoned_task_is_tried_twice_and_blocks_nothing():
    poisoned, after = Away(99, ValueError("poison")), Away(0)
    writer, heard = started([poisoned, after])
    assert writer.close(10.0)
    assert (poisoned.attempts, after.attempts) == (2, 1)
    assert heard.told == ["skipped: poison"]


def test_closing_ends_a_pause_and_tries_a_few_times_more(monkeypatch):
    away = Away(1)
    monkeypatch.setattr(module, "FIRST_PAUSE", 600.0)
    writer, _ = started([away])
    while writer.error is None:
        time.sleep(0.01)
    assert writer.close(10.0)
    assert away.attempts == 2

    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    gone, after = Away(10**9), Away(0)
    writer, _ = started([gone, after])
    while writer.error is None:
        time.sleep(0.01)
    before = gone.attempts
    assert not writer.close(10.0)
    assert gone.attempts - before >= LAST_ATTEMPTS
    assert after.attempts == 0
    assert str(writer.error) == "away"


def test_closing_waits_as_long_as_tasks_get_done():
    done: list[int] = []
    writer, _ = started([lambda i=i: time.sleep(0.2) or done.append(i) for i in range(5)])
    assert writer.close(0.5)
    assert done == [0, 1, 2, 3, 4]


def test_closing_waits_no_longer_than_asked_for_one_task():
    release = threading.Event()
    writer, _ = started([lambda: release.wait(10.0) and None])
    assert not writer.close(0.05)
    release.set()
    assert writer.close(10.0)
