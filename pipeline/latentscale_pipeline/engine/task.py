"""The work of one task, wherever it runs: read, compute with one thread, publish.

A task is a value that says everything: a worker needs nothing but the job folder and the corpora.
Running a task twice, or two attempts at once, gives the same published result as running it once.
"""

from __future__ import annotations

import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
from threadpoolctl import threadpool_limits

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.job.publishing import (
    CorruptResult,
    Cost,
    Published,
    need_marker,
    publish,
    read_marker,
)
from latentscale_pipeline.objects import ObjectStore

FINALISE = -1
"""Index of the task that combines a stage's partitions."""

SAMPLING_SECONDS = 0.05


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
    """

    store: ObjectStore
    stage: Stage
    index: int
    folders: Mapping[str, str]
    corpora: Mapping[str, Corpus] = field(repr=False)
    attempt: str

    @property
    def part(self) -> str:
        """Key of what is published, without ending."""
        return part_key(self.folders[self.stage.name], self.stage, self.index)

    @property
    def label(self) -> str:
        """Name of the task for people."""
        if self.stage.partitions == 1:
            return self.stage.name
        if self.index == FINALISE:
            return f"{self.stage.name} (combining)"
        return f"{self.stage.name} {self.index + 1}/{self.stage.partitions}"


class TaskFailed(Exception):
    """A task raised: the last line of what it said, and where the whole log is."""


def part_key(folder: str, stage: Stage, index: int) -> str:
    """Name a part within its stage's folder; a stage's own result is ``result``."""
    if index == FINALISE or (stage.finalise is None and stage.partitions == 1):
        return f"{folder}/result"
    return f"{folder}/part-{index:05d}"


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
    done = read_marker(store, task.part)
    if done is not None:
        return done.cost
    # An executor may start a task again while a first, cut-off worker still runs it.
    attempt = f"{task.attempt}-{uuid.uuid4().hex[:8]}"
    try:
        with threadpool_limits(limits=1), _measured() as costs:
            work = task.stage.finalise if task.index == FINALISE else task.stage.work
            if work is None:
                raise ValueError(f"stage {task.stage.name} has nothing to finalise")
            output = work(_inputs(store, task))
        return publish(store, task.part, attempt, output, costs.total()).cost
    except (LatentscaleError, CorruptResult):
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a measure raises is logged and retried
        log = f"{task.part}.{attempt}.log"
        store.write(log, traceback.format_exc().encode())
        reason = str(error).splitlines()[0] if str(error) else ""
        raise TaskFailed(f"{type(error).__name__}: {reason} (log: {log})") from None


def _inputs(store: ObjectStore, task: Task) -> Inputs:
    stage = task.stage
    parts: list[Published] = []
    if task.index == FINALISE:
        folder = task.folders[stage.name]
        parts = [need_marker(store, part_key(folder, stage, i)) for i in range(stage.partitions)]
    return Inputs(
        stage=stage,
        index=task.index,
        corpora=task.corpora,
        results={name: need_marker(store, f"{task.folders[name]}/result") for name in stage.needs},
        parts=parts,
    )


@contextmanager
def _measured() -> Iterator[_Costs]:
    """Measure a block's wall time and the process's peak resident memory during it."""
    costs = _Costs()
    costs.start()
    try:
        yield costs
    finally:
        costs.stop()


class _Costs:
    def __init__(self) -> None:
        self._process = psutil.Process()
        self._peak = 0
        self._seconds = 0.0
        self._begun = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def total(self) -> Cost:
        return Cost(round(self._seconds, 3), self._peak)

    def start(self) -> None:
        self._begun = time.perf_counter()
        self._thread.start()

    def stop(self) -> None:
        self._seconds = time.perf_counter() - self._begun
        self._end.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self._peak = max(self._peak, int(self._process.memory_info().rss))
            if self._end.wait(SAMPLING_SECONDS):
                return
