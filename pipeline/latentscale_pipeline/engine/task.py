"""Run one task: read its inputs, compute with one thread, write the artifact.

A task is a value that says everything: a worker needs nothing but the job folder and the corpora.
Running a task twice, or two attempts at once, gives the same published result as running it once.
"""

from __future__ import annotations

import math
import traceback
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from threadpoolctl import threadpool_limits

from latentscale_pipeline.corpus import Corpus, CorruptShard
from latentscale_pipeline.engine.iterations import iteration_folder
from latentscale_pipeline.engine.resource_usage import measured
from latentscale_pipeline.engine.stage import Inputs, Stage, Work
from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.storage.artifacts import (
    SPENT,
    Artifact,
    CorruptResult,
    Cost,
    create_marker,
    need_marker,
    read_marker,
    write_arrays,
)
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import without_credentials

FINALISE = -1
"""Index of the task that finalises a stage, or an iteration of it."""

NOTHING_SPENT = {"seconds": 0.0, "tasks": 0, "peak_memory_bytes": 0, "tasks_at_once": 1}


@dataclass(frozen=True)
class Task:
    """One partition of a stage (or its finalising), to be attempted once.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    stage : Stage
        The stage that it is a part of.
    index : int
        Which partition, or :data:`FINALISE`.
    folders : mapping
        Folder of the stage's and its needs' results by name; it names the stage key.
    corpora : mapping
        The corpora by role; a worker opens them again, and refuses one that was replaced.
    attempt : str
        Names the run and the try; each execution adds something of its own.
    iteration : int
        Of an iterated stage: which iteration.
    """

    store: ObjectStore
    stage: Stage
    index: int
    folders: Mapping[str, str]
    corpora: Mapping[str, Corpus] = field(repr=False)
    attempt: str
    iteration: int = 0

    @property
    def folder(self) -> str:
        """Where the stage's results are."""
        return self.folders[self.stage.name]

    @property
    def part(self) -> str:
        """Key of what is published, without ending; a state that finishes becomes the result."""
        if self.stage.advance is None:
            return part_key(self.folder, self.stage, self.index)
        inside = iteration_folder(self.folder, self.iteration)
        return f"{inside}/state" if self.index == FINALISE else f"{inside}/part-{self.index:05d}"

    @property
    def label(self) -> str:
        """Name of the task for people."""
        stage = self.stage
        name = stage.name if stage.advance is None else f"{stage.name}, iteration {self.iteration}"
        if self.index == FINALISE:
            return f"{name}, finalising"
        if stage.advance is None and stage.finalise is None:
            return name
        return f"{name}, part {self.index + 1} of {stage.partitions}"


class TaskFailed(Exception):
    """An attempt at a task failed: why, in one line, and the key of its whole log."""

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(reason, log)
        self.reason = reason
        self.log = log

    def __str__(self) -> str:
        return f"{self.reason} (log: {self.log})"


class WorkerDied(Exception):
    """The process that worked on a task is gone.

    Attributes
    ----------
    worker : str
        Which one it was.
    memory_limit : int
        What it was allowed to hold, in bytes.
    held : int or None
        Memory that it held when it was killed for exceeding the limit; None if unknown.
    """

    def __init__(self, worker: str, memory_limit: int, held: int | None = None) -> None:
        super().__init__(worker, memory_limit, held)
        self.worker = worker
        self.memory_limit = memory_limit
        self.held = held


def part_key(folder: str, stage: Stage, index: int) -> str:
    """Name a part within its stage's folder; a stage's own result is ``result``."""
    if index == FINALISE or (stage.finalise is None and stage.partitions == 1):
        return f"{folder}/result"
    return f"{folder}/part-{index:05d}"


def lasting_parts(folder: str, stage: Stage) -> list[str]:
    """Name the parts of a finished stage, its result last; those of iterations are gone by then."""
    indices = range(stage.partitions if stage.advance is None else 0)
    parts = [part_key(folder, stage, index) for index in indices]
    return list(dict.fromkeys([*parts, f"{folder}/result"]))


def run_task(task: Task) -> Cost:
    """Compute one task and publish its result, unless that is there already.

    Raises
    ------
    LatentscaleError
        When the input is at fault; nothing would change by trying again.
    CorruptResult
        When the result of an earlier stage turns out to be damaged.
    TaskFailed
        Anything else, its traceback stored beside the part.
    """
    store = task.store
    done = _found(store, task)
    if done is not None:
        return done.cost
    # An executor may start a task again while a first, cut-off worker still runs it.
    attempt = f"{task.attempt}-{uuid.uuid4().hex[:8]}"
    try:
        with threadpool_limits(limits=1), measured() as measurement:
            inputs = _inputs(store, task)
            output = _work(task)(inputs)
            advanced = task.stage.advance is not None and task.index == FINALISE
            part = f"{task.folder}/result" if advanced and output.finished else task.part
            objects = write_arrays(store, part, attempt, output)
        cost = measurement.cost()
        values = dict(output.values)
        if advanced:
            # What all iterations so far cost: their parts don't outlive them.
            before = {} if inputs.state is None else inputs.state.values[SPENT]
            costs = [cost, *(part.cost for part in inputs.parts)]
            values[SPENT] = add_costs(costs, {**NOTHING_SPENT, **before})
        return create_marker(store, part, attempt, values, objects, cost).cost
    except CorruptShard as damage:
        raise BadInput(f"{damage}{_way_out(task, damage)}") from None
    except (LatentscaleError, CorruptResult):
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a measure raises is logged and retried
        log = f"{task.part}.{attempt}.log"
        store.write(log, without_credentials(traceback.format_exc()).encode())
        reason = without_credentials(str(error).splitlines()[0] if str(error) else "")
        raise TaskFailed(f"{type(error).__name__}: {reason}".rstrip(": "), log) from None


def _way_out(task: Task, damage: CorruptShard) -> str:
    """Say how a job can do without the rows of a damaged shard."""
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


def _found(store: ObjectStore, task: Task) -> Artifact | None:
    found = read_marker(store, task.part)
    if found is None and task.stage.advance is not None and task.index == FINALISE:
        return read_marker(store, f"{task.folder}/result")
    return found


def _work(task: Task) -> Work:
    stage = task.stage
    finalise = stage.finalise if stage.advance is None else stage.advance
    work = finalise if task.index == FINALISE else stage.work
    if work is None:
        raise ValueError(f"stage {stage.name} has nothing to finalise")
    return work


def _inputs(store: ObjectStore, task: Task) -> Inputs:
    stage = task.stage
    first = stage.advance is not None and task.iteration == 0
    parts: list[Artifact] = []
    if task.index == FINALISE and not first:
        siblings = (replace(task, index=index) for index in range(stage.partitions))
        parts = [need_marker(store, sibling.part) for sibling in siblings]
    before = iteration_folder(task.folder, task.iteration - 1)
    reading = stage.reads_last_iteration and task.index != FINALISE and task.iteration > 1
    last = _Parts(store, before, stage.partitions if reading else 0)
    return Inputs(
        stage=stage,
        index=task.index,
        corpora=task.corpora,
        results={name: need_marker(store, f"{task.folders[name]}/result") for name in stage.needs},
        parts=parts,
        state=None if stage.advance is None or first else need_marker(store, f"{before}/state"),
        iteration=task.iteration,
        last_iteration=last,
    )


class _Parts(Sequence[Artifact]):
    """The parts of an iteration, each looked up when it's asked for: a task needs few of many."""

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
    """Add up what tasks cost: seconds, their number, and the most memory and tasks at once."""
    return {
        "seconds": math.fsum([before["seconds"], *(cost.seconds for cost in costs)]),
        "tasks": before["tasks"] + len(costs),
        "peak_memory_bytes": max(
            before["peak_memory_bytes"], *(cost.peak_memory_bytes for cost in costs)
        ),
        "tasks_at_once": max(before["tasks_at_once"], *(cost.tasks_at_once for cost in costs)),
    }
