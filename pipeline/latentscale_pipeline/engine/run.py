"""The loop that brings a job's stages from what is there to what is asked for.

The job folder is the truth. A run begins by looking at which results are there and whole, takes
over what a sibling job has already computed under the same key, and hands the rest to an executor
in the order in which needs are met. Stages that don't depend on each other run side by side. A
part that fails is tried again, elsewhere where there is an elsewhere; when it keeps failing the
stages that need it are given up, the rest goes on, and the run ends incomplete.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.executor import Ending, Executor
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import FINALISE, Task, part_key
from latentscale_pipeline.errors import BadInput, Incomplete, TargetMissed
from latentscale_pipeline.job.publishing import (
    CorruptResult,
    Cost,
    Published,
    adopt,
    is_whole,
    need_marker,
    read_marker,
    sweep_losers,
    withdraw,
)
from latentscale_pipeline.objects import ObjectStore

ATTEMPTS = 3
"""How often a part is tried, and a damaged result replaced, in one run."""


class Notify(Protocol):
    """Receives what happens: an event's name and its fields."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Take note of an event."""


@dataclass(frozen=True)
class Work:
    """Everything a run works on.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    stages : sequence of Stage
        Each after those it needs.
    keys : mapping
        Stage keys by name.
    corpora : mapping
        The corpora by role.
    lenders : mapping
        By stage key: other job folders that planned the same stage and may have its result.
    """

    store: ObjectStore
    stages: Sequence[Stage]
    keys: Mapping[str, str]
    corpora: Mapping[str, Corpus]
    lenders: Mapping[str, Sequence[ObjectStore]] = field(default_factory=dict)

    def folder(self, stage: Stage) -> str:
        """Where a stage's results are: its name and its key."""
        return f"{stage.folder}/{self.keys[stage.name]}"

    def result(self, stage: Stage) -> Published:
        """Return the result of a stage that is done."""
        return need_marker(self.store, f"{self.folder(stage)}/result")


@dataclass
class Standing:
    """Where one stage stands in this run."""

    stage: Stage
    folder: str
    done: bool = False
    waiting: deque[int] = field(default_factory=deque)
    running: set[int] = field(default_factory=set)
    found: int = 0
    reason: str = ""
    failure: Exception | None = None
    started: bool = False


def survey(work: Work) -> list[Standing]:
    """Look at what is there: for every stage, whether it is done and which parts are missing."""
    return [_stand(work, stage) for stage in work.stages]


def _stand(work: Work, stage: Stage) -> Standing:
    folder = work.folder(stage)
    standing = Standing(stage, folder)
    sizes = work.store.sizes(folder)
    whole = _is_published(work.store, f"{folder}/result", sizes)
    lender = None if whole else _borrow(work, stage)
    if lender is not None:
        sizes = work.store.sizes(folder)
        whole = _is_published(work.store, f"{folder}/result", sizes)
    parts = range(stage.partitions)
    missing = [i for i in parts if not _is_published(work.store, part_key(folder, stage, i), sizes)]
    standing.found = stage.partitions - len(missing)
    standing.done = whole and not missing
    standing.reason = f"reused from {lender}" if lender else _reason(work.store, standing)
    standing.waiting.extend(missing)
    if not missing and not whole:
        standing.waiting.append(FINALISE)
    return standing


def _is_published(store: ObjectStore, part: str, sizes: Mapping[str, int]) -> bool:
    if f"{part}.json" not in sizes:
        return False
    marker = read_marker(store, part)
    if marker is not None and is_whole(marker, sizes):
        return True
    withdraw(store, part)
    return False


def _borrow(work: Work, stage: Stage) -> str | None:
    """Copy a stage's result from another job, and return that job's name."""
    for lender in work.lenders.get(work.keys[stage.name], ()):
        if adopt(lender, work.store, work.folder(stage)):
            return lender.url.rpartition("/")[2]
    return None


def _reason(store: ObjectStore, standing: Standing) -> str:
    if standing.done:
        return "already done"
    if standing.found:
        return f"resumed: {standing.found} of {standing.stage.partitions} parts were there"
    if store.folders(standing.stage.folder):
        return "computed: configuration, input or code differ from an earlier run"
    return "computed"


def run_stages(
    work: Work,
    standings: Sequence[Standing],
    open_executor: Callable[[], AbstractContextManager[Executor]],
    attempt: str,
    notify: Notify,
) -> None:
    """Compute what is missing.

    Parameters
    ----------
    work : Work
        The stages and where they live.
    standings : sequence of Standing
        What :func:`survey` found; brought up to date.
    open_executor : callable
        Starts the executor; not called when nothing is missing.
    attempt : str
        Identifies this run in the names of what it writes.
    notify : callable
        Told of every event.

    Raises
    ------
    BadInput
        If a corpus turns out to be damaged.
    Incomplete, TargetMissed
        If parts kept failing; everything that doesn't depend on them is done.
    """
    for standing in standings:
        if standing.done:
            notify("stage_found", stage=standing.stage.name, reason=standing.reason)
    if all(standing.done for standing in standings):
        return
    with open_executor() as executor:
        _Loop(work, standings, executor, attempt, notify).run()
    failed = [standing for standing in standings if standing.failure]
    if failed:
        more = f" (and {len(failed) - 1} more stages)" if len(failed) > 1 else ""
        message = f"stage {failed[0].stage.name}: {failed[0].failure}{more}"
        if all(isinstance(standing.failure, TargetMissed) for standing in failed):
            raise TargetMissed(message)
        raise Incomplete(f"{message}; run the same command again to retry")


class _Loop:
    def __init__(
        self,
        work: Work,
        standings: Sequence[Standing],
        executor: Executor,
        attempt: str,
        notify: Notify,
    ) -> None:
        self._work = work
        self._standings = {standing.stage.name: standing for standing in standings}
        self._executor = executor
        self._attempt = attempt
        self._notify = notify
        self._tries: Counter[str] = Counter()
        self._running = 0
        self._steps = 0
        self._submitted: dict[str, int] = {}
        self._withdrawn: dict[str, int] = {}
        self._folders = {name: standing.folder for name, standing in self._standings.items()}

    def run(self) -> None:
        while self._submit_ready() or self._running:
            task, ending = self._executor.next_ended()
            self._running -= 1
            self._steps += 1
            standing = self._standings[task.stage.name]
            standing.running.discard(task.index)
            self._settle(standing, task, ending)

    def _submit_ready(self) -> bool:
        submitted = False
        for standing in self._standings.values():
            if standing.done or standing.failure or not self._needs_met(standing):
                continue
            while standing.waiting and self._running < self._executor.window:
                self._submit(standing, standing.waiting.popleft())
                submitted = True
        return submitted

    def _needs_met(self, standing: Standing) -> bool:
        return all(self._standings[name].done for name in standing.stage.needs)

    def _submit(self, standing: Standing, index: int) -> None:
        stage = standing.stage
        if not standing.started:
            standing.started = True
            self._notify(
                "stage_started",
                stage=stage.name,
                parts=stage.partitions,
                found=standing.found,
                reason=standing.reason,
            )
        names = (stage.name, *stage.needs)
        task = Task(
            store=self._work.store,
            stage=stage,
            index=index,
            folders={name: self._folders[name] for name in names},
            corpora={role: self._work.corpora[role] for role in stage.corpora},
            attempt=f"{self._attempt}-{self._tries.total()}",
        )
        standing.running.add(index)
        self._submitted[task.part] = self._steps
        self._running += 1
        self._executor.submit(task)

    def _settle(self, standing: Standing, task: Task, ending: Ending) -> None:
        if isinstance(ending, Cost):
            self._settle_done(standing, task, ending)
        elif isinstance(ending, CorruptResult):
            self._repair(standing, task, ending)
        elif isinstance(ending, BadInput) or not isinstance(ending, Exception):
            raise ending
        elif isinstance(ending, TargetMissed):
            self._fail(standing, task, ending)
        else:
            self._retry(standing, task, ending)

    def _settle_done(self, standing: Standing, task: Task, cost: Cost) -> None:
        stage = standing.stage
        self._notify(
            "part_done",
            stage=stage.name,
            part=task.index,
            parts=stage.partitions,
            done=stage.partitions - len(standing.waiting) - len(standing.running),
            seconds=cost.seconds,
            peak_memory_bytes=cost.peak_memory_bytes,
        )
        if task.part.endswith("/result"):
            standing.done = True
            sweep_losers(self._work.store, standing.folder)
            self._notify("stage_done", stage=stage.name)
        elif not standing.waiting and not standing.running:
            standing.waiting.append(FINALISE)

    def _repair(self, standing: Standing, task: Task, problem: CorruptResult) -> None:
        """Redo the damaged part of an earlier result, and then this task."""
        owner = next(
            (s for s in self._standings.values() if problem.part.startswith(f"{s.folder}/")), None
        )
        if self._submitted[task.part] < self._withdrawn.get(problem.part, -1):
            # It read the damaged result before that was withdrawn on another reader's word.
            standing.waiting.append(task.index)
            return
        self._tries[problem.part] += 1
        if owner is None or self._tries[problem.part] >= ATTEMPTS:
            self._fail(standing, task, problem)
            return
        self._notify("part_corrupt", stage=owner.stage.name, problem=str(problem))
        withdraw(self._work.store, problem.part)
        self._withdrawn[problem.part] = self._steps
        owner.done = False
        name = problem.part.rpartition("/")[2]
        damaged = FINALISE if name == "result" else int(name.removeprefix("part-"))
        if part_key(owner.folder, owner.stage, 0).endswith("/result"):
            damaged = 0
        if damaged not in owner.waiting and damaged not in owner.running:
            owner.waiting.append(damaged)
        if standing is not owner:
            standing.waiting.append(task.index)

    def _retry(self, standing: Standing, task: Task, error: Exception) -> None:
        self._tries[task.part] += 1
        if self._tries[task.part] >= ATTEMPTS:
            self._fail(standing, task, error)
            return
        self._notify("part_retried", stage=task.stage.name, part=task.index, problem=str(error))
        standing.waiting.append(task.index)

    def _fail(self, standing: Standing, task: Task, error: Exception) -> None:
        standing.failure = error
        self._notify("stage_failed", stage=task.stage.name, problem=str(error))
