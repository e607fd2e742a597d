"""Run stages in the calling thread, with all results in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.executor import Ending
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import StageState, inspect_stages
from latentscale_pipeline.engine.task import Task, TaskFailed, run_task
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.storage.artifacts import Artifact
from latentscale_pipeline.storage.in_memory import InMemoryStore


def run_in_memory(
    stages: Sequence[Stage],
    corpora: Mapping[str, Corpus],
    store: InMemoryStore,
    *,
    keys: Mapping[str, str] | None = None,
    keep: bool = False,
) -> Callable[[str], Artifact]:
    """Run stages, one task at a time, and return a function that gives their results by name.

    Parameters
    ----------
    stages : sequence of Stage
        The stages, each after those that it needs.
    corpora : mapping
        The corpora by role.
    store : InMemoryStore
        Where results are put. A stage whose result is there under its key isn't run.
    keys : mapping, optional
        The key of every stage; not needed if nothing is found in the store.
    keep : bool
        Keep temporary data.

    Raises
    ------
    RuntimeError
        If a task fails, with its traceback.
    """
    by_name = {stage.name: stage for stage in stages}
    work = Work(
        store=store,
        stages=stages,
        keys=dict.fromkeys(by_name, "0") if keys is None else keys,
        corpora=corpora,
        retries=0,
        keep=keep,
    )
    states = inspect_stages(work)
    try:
        run_stages(work, states, lambda: nullcontext(_ThisThread()), "1", ignore_event)
    except Incomplete as error:
        raise RuntimeError(_log(states, store) or str(error)) from None
    return lambda name: work.result(by_name[name])


def _log(states: list[StageState], store: InMemoryStore) -> str:
    """Return the tracebacks of the tasks that failed."""
    failures = [state.failure for state in states]
    logs = [store.read(failure.log) for failure in failures if isinstance(failure, TaskFailed)]
    return "\n".join(log.decode() for log in logs)


@dataclass
class _ThisThread:
    """Runs tasks in the calling thread, so that Ctrl-C stops them."""

    window = 1
    task: Task | None = None

    def submit(self, task: Task) -> None:
        """Accept the next task."""
        self.task = task

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        """Run the task."""
        task, self.task = self.task, None
        if task is None:
            return None
        try:
            return task, run_task(task)
        except Exception as error:  # noqa: BLE001 -- the loop handles it
            return task, error


def ignore_event(event: str, **fields: Any) -> None:
    """Ignore progress events."""
