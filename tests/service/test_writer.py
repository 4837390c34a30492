from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext

from sweeps.service.writer import BackgroundWriter


def failing(message: str) -> None:
    raise OSError(message)


def run(tasks, context=None, **options) -> tuple[list[str], bool]:
    """Messages of the failures, and whether the queue ran empty."""
    failures: list[str] = []
    writer = BackgroundWriter(
        context or nullcontext(), lambda error: failures.append(str(error)), name="test-writer", **options
    )
    for task in tasks:
        writer.put(task)
    writer.start()
    return failures, writer.close(10.0)


def test_tasks_run_in_order_in_one_other_thread():
    seen: list[tuple[int, int]] = []
    tasks = [lambda i=i: seen.append((i, threading.get_ident())) for i in range(5)]
    assert run(tasks) == ([], True)
    assert [i for i, _ in seen] == [0, 1, 2, 3, 4]
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in seen}) == 1


def test_a_failure_ends_its_task_only():
    done: list[str] = []
    tasks = [lambda: failing("one"), lambda: done.append("kept")] * 3
    assert run(tasks, give_up_after=2) == (["one"] * 3, True)
    assert done == ["kept"] * 3


def test_it_gives_up_after_failures_in_a_row():
    done: list[str] = []
    tasks = [lambda: failing("one"), lambda: failing("two"), lambda: done.append("dropped")]
    assert run(tasks, give_up_after=2) == (["one", "two"], True)
    assert done == []


def test_a_context_that_cannot_be_entered_is_one_failure():
    @contextmanager
    def closed():
        raise OSError("no store")
        yield

    done: list[str] = []
    assert run([lambda: done.append("dropped")], closed()) == (["no store"], True)
    assert done == []


def test_closing_waits_as_long_as_tasks_get_done():
    done: list[int] = []
    tasks = [lambda i=i: time.sleep(0.2) or done.append(i) for i in range(5)]
    writer = BackgroundWriter(nullcontext(), lambda _: None, name="test-writer")
    for task in tasks:
        writer.put(task)
    writer.start()
    assert writer.close(0.5)
    assert done == [0, 1, 2, 3, 4]


def test_closing_waits_no_longer_than_asked_for_one_task():
    release = threading.Event()
    writer = BackgroundWriter(nullcontext(), lambda _: None, name="test-writer")
    writer.start()
    writer.put(lambda: release.wait(10.0) and None)
    assert not writer.close(0.05)
    release.set()
    assert writer.close(10.0)
