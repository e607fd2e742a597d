"""Run an ingest on worker processes, with the engine that runs jobs.

The missing partitions of the corpus become the partitions of one stage, which the engine's loop
hands to the workers. So failed tasks are retried on other workers, memory stays within its limit,
and the workers hold no state. The records in the corpus list the partitions that have been encoded
(:mod:`latentscale_pipeline.corpus.ingest.encoding`); the stage itself exists for one run only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from latentscale_pipeline.config.cluster import IN_THE_DRIVER, ON_THIS_MACHINE, Cluster, Local
from latentscale_pipeline.corpus.ingest.encoding import RECORDS, Run, Work, run_serially
from latentscale_pipeline.corpus.ingest.sources import Sources, describe_sources
from latentscale_pipeline.engine import work as engine
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.memory import IDLE_WORKER_BYTES, check_memory
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.progress import Echo, Progress, silent
from latentscale_pipeline.storage.artifacts import Output

WORTH_WORKERS_BYTES = 16 << 30
"""Size of the sources below which one process is nearly as fast: it saturates a disk alone."""


@dataclass(frozen=True)
class _Partition:
    """A task of the stage: encode one partition of the corpus."""

    work: Work
    partitions: tuple[int, ...]

    def __call__(self, inputs: Inputs) -> Output:
        self.work(self.partitions[inputs.index])
        return Output()


def _combine(inputs: Inputs) -> Output:
    """Return an empty result: the records in the corpus are the result."""
    return Output()


def runner_for(
    cluster: Cluster, progress: Progress, echo: Echo | None = None
) -> Callable[[Sources], Run]:
    """Return the ``run_for`` of an ingest, which says first what is read of the sources."""

    def run_for(sources: Sources) -> Run:
        if echo is not None:
            for line in describe_sources(sources):
                echo(line)
        return ingest_runner(cluster, sources, progress)

    return run_for


def ingest_runner(
    cluster: Cluster,
    sources: Sources,
    progress: Progress = silent,
    worth_workers_bytes: int = WORTH_WORKERS_BYTES,
) -> Run:
    """Return the function that runs the partitions of an ingest, on workers if that is faster.

    Parameters
    ----------
    cluster : Cluster
        The runtime, as in a job's configuration.
    sources : Sources
        The sources to ingest.
    progress : callable
        ``progress(rows read, rows in all)``.
    worth_workers_bytes : int
        Size of the sources from which workers are started.
    """
    size = sum(source.size for source in sources.items)
    here = isinstance(cluster, ON_THIS_MACHINE) and not isinstance(cluster, IN_THE_DRIVER)
    if here and cluster.workers > 1 and size >= worth_workers_bytes:
        workers = Local(**cluster.model_dump(exclude={"kind"}))
        return worker_runner(workers, sources.rows, progress)
    return run_serially


def worker_runner(cluster: Local, rows: int = 0, progress: Progress = silent) -> Run:
    """Return the function that runs the partitions of an ingest on workers of this machine."""

    def run(work: Work, partitions: Sequence[int], memory_bytes: int) -> None:
        stage = Stage(
            name="ingest",
            work=_Partition(work, tuple(partitions)),
            memory_bytes=memory_bytes,
            partitions=len(partitions),
            finalise=_combine,
        )
        # Dask takes a second to import, and a small ingest doesn't need it.
        from latentscale_pipeline.executors.dask.local import local_cluster

        check_memory([stage], cluster.memory_limit)
        store = work.encoding.store.child(f"{RECORDS}/run-{uuid.uuid4().hex[:8]}")
        todo = engine.Work(store, [stage], {"ingest": "run"}, {}, retries=cluster.retries)
        run_stages(
            todo,
            inspect_stages(todo),
            lambda: local_cluster(cluster, IDLE_WORKER_BYTES),
            uuid.uuid4().hex[:8],
            _notify(
                rows, work.encoding.partitions - len(partitions), work.encoding.partitions, progress
            ),
        )
        store.remove_all()

    return run


def _notify(rows: int, before: int, partitions: int, progress: Progress) -> Callable[..., None]:
    def notify(event: str, **fields: Any) -> None:
        if event == "part_done" and fields["part"] >= 0:
            progress(rows * (before + fields["done"]) // partitions, rows)

    return notify
