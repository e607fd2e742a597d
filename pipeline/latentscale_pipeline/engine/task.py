"""Run one task: read its inputs, compute on one thread, write its result.

A task is self-contained: besides it, a worker needs only the job folder and the corpora. Running a
task twice, even concurrently, publishes the same result as running it once.
"""

from __future__ import annotations

import math
import sys
import traceback
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

from latentscale_pipeline.corpus import Corpus, CorruptShard
from latentscale_pipeline.engine.iterations import iteration_folder
from latentscale_pipeline.engine.resource_usage import measured
from latentscale_pipeline.engine.stage import Inputs, Stage, Work
from latentscale_pipeline.errors import BadInput, LatentscaleError, first_line
from latentscale_pipeline.storage.artifacts import (
    SPENT,
    Artifact,
    CorruptResult,
    Cost,
    StoredArtifact,
    checked_marker,
    create_marker,
    need_marker,
    read_markers,
    write_arrays,
)
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import without_credentials

FINALISE = -1
"""Index of the task that finalises a stage, or an iteration of it."""

NOTHING_SPENT = {"seconds": 0.0, "tasks": 0, "peak_memory_bytes": 0, "tasks_at_once": 1}


@dataclass(frozen=True)
class Task:
    """One attempt at a partition of a stage, or at finalising the stage.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    stage : Stage
        The stage that it belongs to.
    index : int
        The partition, or :data:`FINALISE`.
    folders : mapping
        Folders of the results of the stage and the stages that it needs, by name; each contains the
        stage's key.
    corpora : mapping
        The corpora by role. A worker opens them again, and refuses a corpus that was replaced.
    attempt : str
        Identifies the run and the attempt; each execution adds a random suffix.
    iteration : int
        The iteration of an iterated stage.
    place : int
        The place of its stage in the plan. Of tasks that wait for a worker, those of the earliest
        stage begin first, so that what a stage leaves behind is soon read and removed.
    """

    store: ObjectStore
    stage: Stage
    index: int
    folders: Mapping[str, str]
    corpora: Mapping[str, Corpus] = field(repr=False)
    attempt: str
    iteration: int = 0
    place: int = 0

    @property
    def folder(self) -> str:
        """Return the folder of the stage's results."""
        return self.folders[self.stage.name]

    @property
    def part(self) -> str:
        """Return the part's key, without extension; the last state becomes the result instead."""
        if self.stage.advance is None:
            return part_key(self.folder, self.stage, self.index)
        inside = iteration_folder(self.folder, self.iteration)
        return f"{inside}/state" if self.index == FINALISE else f"{inside}/part-{self.index:05d}"

    @property
    def label(self) -> str:
        """Return the name of the task for display."""
        stage = self.stage
        name = stage.name if stage.advance is None else f"{stage.name}, iteration {self.iteration}"
        if self.index == FINALISE:
            return f"{name}, finalising"
        if stage.advance is None and stage.finalise is None:
            return name
        return f"{name}, part {self.index + 1} of {stage.partitions}"


class TaskFailed(Exception):
    """An attempt at a task failed: a one-line reason, and the key of the full log."""

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(reason, log)
        self.reason = reason
        self.log = log

    def __str__(self) -> str:
        return f"{self.reason} (log: {self.log})"


class WorkerDied(Exception):
    """The worker process of a task died.

    Attributes
    ----------
    worker : str
        Name of the worker.
    memory_limit : int
        Its memory limit, in bytes.
    held : int or None
        Its memory when it was killed for exceeding the limit, in bytes; None if unknown.
    """

    def __init__(self, worker: str, memory_limit: int, held: int | None = None) -> None:
        super().__init__(worker, memory_limit, held)
        self.worker = worker
        self.memory_limit = memory_limit
        self.held = held


def part_key(folder: str, stage: Stage, index: int) -> str:
    """Return the key of a part in its stage's folder; the stage's result is named ``result``."""
    if index == FINALISE or (stage.finalise is None and stage.partitions == 1):
        return f"{folder}/result"
    return f"{folder}/part-{index:05d}"


def lasting_parts(folder: str, stage: Stage) -> list[str]:
    """Return the parts of a finished stage, its result last; those of iterations are gone."""
    indices = range(stage.partitions if stage.advance is None else 0)
    parts = [part_key(folder, stage, index) for index in indices]
    return list(dict.fromkeys([*parts, f"{folder}/result"]))


def run_task(task: Task) -> Cost:
    """Compute one task and publish its result, unless the result is there already.

    Raises
    ------
    LatentscaleError
        If the input is at fault, so retrying would fail again.
    CorruptResult
        If the result of an earlier stage is damaged.
    TaskFailed
        On any other error; its traceback is stored beside the part.
    """
    store = task.store
    # An executor may restart a task while a disconnected worker still runs it.
    attempt = f"{task.attempt}-{uuid.uuid4().hex[:8]}"
    try:
        with one_thread(), measured() as measurement:
            known = _read_markers(store, task)
            done = next((m for part in _own(task) if (m := known[part]) is not None), None)
            if done is not None:
                return done.cost
            inputs = _inputs(store, task, known)
            output = _work(task)(inputs)
            advanced = task.stage.advance is not None and task.index == FINALISE
            part = f"{task.folder}/result" if advanced and output.finished else task.part
            objects = write_arrays(store, part, attempt, output)
        cost = measurement.cost()
        values = dict(output.values)
        if advanced:
            # A state holds the cost of all iterations so far, because their parts are removed.
            before = {} if inputs.state is None else inputs.state.values[SPENT]
            costs = [
                cost,
                *(part.cost for part in inputs.parts if isinstance(part, StoredArtifact)),
            ]
            values[SPENT] = add_costs(costs, {**NOTHING_SPENT, **before})
        return create_marker(store, part, attempt, values, objects, cost).cost
    except CorruptShard as damage:
        raise BadInput(f"{damage}{_exclusion_hint(task, damage)}") from None
    except (LatentscaleError, CorruptResult):
        raise
    # Every error of a measure is logged and retried; exiting would take the worker with it.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        log = f"{task.part}.{attempt}.log"
        store.write(log, without_credentials(traceback.format_exc()).encode())
        name, reason = type(error).__name__, first_line(error, without_credentials)
        raise TaskFailed(name if reason == name else f"{name}: {reason}", log) from None


def one_thread() -> AbstractContextManager[object]:
    """Let the libraries that are loaded compute on one thread, as far as this thread decides."""
    limit: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1)
    return limit


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Find the libraries with threads; looked for again once more modules are imported."""
    return ThreadpoolController()


def _exclusion_hint(task: Task, damage: CorruptShard) -> str:
    """Return a hint on how to exclude a damaged shard from the job; empty if that is impossible."""
    for role, corpus in task.corpora.items():
        shards = {shard.key: shard for shard in corpus.manifest.vectors.shards}
        if str(damage).startswith(f"{corpus.url}/{damage.key}: ") and damage.key in shards:
            if corpus.shard_count == 1:
                return ""
            excluded = ", ".join([*corpus.excluded, damage.key])
            return (
                f"; or leave its {shards[damage.key].rows} rows out of the job: "
                f"-o 'exclude_shards.{role}=[{excluded}]'"
            )
    return ""


def _read_markers(store: ObjectStore, task: Task) -> dict[str, StoredArtifact | None]:
    """Read what a task may have published before, and what it needs, at once."""
    parts = [*_own(task), *_siblings(task), *_needs(task).values(), *_state(task)]
    return dict(zip(parts, read_markers(store, parts), strict=True))


def _own(task: Task) -> list[str]:
    """Return the parts of which a task publishes one; the last state becomes the result."""
    advanced = task.stage.advance is not None and task.index == FINALISE
    return [task.part, *([f"{task.folder}/result"] if advanced else [])]


def _siblings(task: Task) -> list[str]:
    """Return the parts that a task finalises."""
    if task.index != FINALISE or _is_first(task):
        return []
    return [replace(task, index=index).part for index in range(task.stage.partitions)]


def _needs(task: Task) -> dict[str, str]:
    return {name: f"{task.folders[name]}/result" for name in task.stage.needs}


def _state(task: Task) -> list[str]:
    """Return the state of the previous iteration, if there is one."""
    if task.stage.advance is None or _is_first(task):
        return []
    return [f"{iteration_folder(task.folder, task.iteration - 1)}/state"]


def _is_first(task: Task) -> bool:
    """Return whether a task makes the first state of an iterated stage, of no parts."""
    return task.stage.advance is not None and task.iteration == 0


def _work(task: Task) -> Work:
    stage = task.stage
    finalise = stage.finalise if stage.advance is None else stage.advance
    work = finalise if task.index == FINALISE else stage.work
    if work is None:
        raise ValueError(f"stage {stage.name} has nothing to finalise")
    return work


def _inputs(store: ObjectStore, task: Task, known: Mapping[str, StoredArtifact | None]) -> Inputs:
    def need(part: str) -> StoredArtifact:
        return checked_marker(part, known[part])

    stage = task.stage
    before = iteration_folder(task.folder, task.iteration - 1)
    reading = stage.reads_last_iteration and task.index != FINALISE and task.iteration > 1
    last = _Parts(store, before, stage.partitions if reading else 0)
    return Inputs(
        stage=stage,
        index=task.index,
        corpora=task.corpora,
        results={name: need(part) for name, part in _needs(task).items()},
        parts=list(map(need, _siblings(task))),
        state=next(map(need, _state(task)), None),
        iteration=task.iteration,
        last_iteration=last,
    )


class _Parts(Sequence[Artifact]):
    """The parts of an iteration, loaded on demand because a task needs only a few of them."""

    def __init__(self, store: ObjectStore, folder: str, count: int) -> None:
        self._store, self._folder, self._count = store, folder, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(f"part {index} of {self._count}")
        return need_marker(self._store, f"{self._folder}/part-{index:05d}")


def add_costs(
    costs: Sequence[Cost], before: Mapping[str, float] = NOTHING_SPENT
) -> dict[str, float]:
    """Add up the costs of tasks: seconds, number, and the maximum memory and concurrent tasks."""
    return {
        "seconds": math.fsum([before["seconds"], *(cost.seconds for cost in costs)]),
        "tasks": before["tasks"] + len(costs),
        "peak_memory_bytes": max(
            before["peak_memory_bytes"], *(cost.peak_memory_bytes for cost in costs)
        ),
        "tasks_at_once": max(before["tasks_at_once"], *(cost.tasks_at_once for cost in costs)),
    }
