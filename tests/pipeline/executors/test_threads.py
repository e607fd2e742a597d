"""Tasks on threads of this process."""

import os
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from latentscale_pipeline.engine import TASK_THREAD
from latentscale_pipeline.engine.task import one_thread
from latentscale_pipeline.executors import threads


class Slow(threading.Thread):
    """A thread that takes a while to end after its work."""

    def run(self) -> None:
        super().run()
        time.sleep(0.2)


def test_no_thread_is_left_of_a_task_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that found one would end the process at once."""
    monkeypatch.setattr(threads, "run_task", lambda task: 7)
    monkeypatch.setattr(threading, "Thread", Slow)
    with threads.ThreadExecutor() as executor:
        only = task(1)
        executor.submit(only)
        assert executor.next_ended(5.0) == (only, 7)
        assert all(thread.name != TASK_THREAD for thread in threading.enumerate())


def task(memory: int) -> Any:
    return SimpleNamespace(stage=SimpleNamespace(memory_bytes=memory))


def most_at_once(
    monkeypatch: pytest.MonkeyPatch,
    executor: threads.ThreadExecutor,
    memory: list[int],
    expected: int,
) -> int:
    """Return how many of these tasks run at once if each waits for as many as are expected."""
    running, most, lock, reached = 0, 0, threading.Lock(), threading.Event()

    def run(task: Any) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if most >= expected:
            reached.set()
        reached.wait(10.0)
        time.sleep(0.05)  # for one more to come
        with lock:
            running -= 1
        return 7

    monkeypatch.setattr(threads, "run_task", run)
    tasks = [task(bytes_) for bytes_ in memory]
    with executor:
        for each in tasks:
            executor.submit(each)
        ended = [executor.next_ended(5.0) for _ in tasks]
    assert {id(found[0]) for found in ended if found} == set(map(id, tasks))
    return most


@pytest.mark.parametrize(
    ("count", "limit", "memory", "at_once"),
    [
        (1, None, [5, 5, 5], 1),
        (3, None, [5, 5, 5, 5], 3),
        (3, 10, [5, 5, 5, 5], 2),
        (3, 10, [11, 11], 1),  # a task that never fits isn't left waiting
        (2, 10, [3, 3, 3], 2),
    ],
)
def test_as_many_run_at_once_as_there_are_threads_and_memory(
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    limit: int | None,
    memory: list[int],
    at_once: int,
) -> None:
    executor = threads.ThreadExecutor(count, limit)
    assert most_at_once(monkeypatch, executor, memory, at_once) == at_once


def test_libraries_have_one_thread_from_the_first_task_to_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever task ends first, and whichever loads a library."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    found: list[int] = []

    def run(task: Any) -> int:
        with one_thread():
            time.sleep(0.01 * task.stage.memory_bytes)
        found.extend(library["num_threads"] for library in threadpool_info())
        found.append(int(os.environ["OPENBLAS_NUM_THREADS"]))
        return 7

    monkeypatch.setattr(threads, "run_task", run)
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(3):
        before = [library["num_threads"] for library in threadpool_info()]
        with threads.ThreadExecutor(2) as executor:
            for length in (1, 20, 1):
                executor.submit(task(length))
            for _ in range(3):
                assert executor.next_ended(5.0) is not None
        assert [library["num_threads"] for library in threadpool_info()] == before
    assert 3 in before
    assert len(found) > 3
    assert set(found) == {1}
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
