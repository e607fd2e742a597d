"""The worker pool of a job: how many tasks run at once, and whether they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from latentscale_pipeline.config.cluster import IN_THE_DRIVER, ON_THIS_MACHINE
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.engine.memory import format_gibibytes, idle_memory, tasks_that_fit
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.jobs.automatic_cluster import choose_cluster
from latentscale_pipeline.jobs.machine import usable_cores

STARTUP_SECONDS, STARTUP_IN_DRIVER_SECONDS = 2.0, 0.8
"""Time until everything is imported and workers have started; for tasks in the driver's process."""


@dataclass(frozen=True)
class WorkerPool:
    """The workers of a job: how many tasks they run at once, and on how many cores.

    Attributes
    ----------
    workers, threads : int
        Number of worker processes, and of concurrent tasks in each.
    memory_limit : int
        Memory limit of each process, in bytes.
    idle_bytes : int
        Memory of a process that runs no task, in bytes.
    cores : int
        Number of cores for all of them.
    here : bool
        Whether they run on this machine.
    in_driver : bool
        Whether tasks run in the driver's process, and no other is started.
    """

    workers: int
    threads: int
    memory_limit: int
    idle_bytes: int
    cores: int
    here: bool = True
    in_driver: bool = False

    @staticmethod
    def of(config: JobConfig, stages: Sequence[Stage]) -> WorkerPool:
        """Return the worker pool of a job; remote workers have one core per task."""
        cluster = choose_cluster(config.cluster, stages)
        here = isinstance(cluster, ON_THIS_MACHINE)
        return WorkerPool(
            workers=cluster.workers,
            threads=cluster.threads,
            memory_limit=cluster.memory_limit,
            idle_bytes=idle_memory(stages),
            cores=usable_cores() if here else cluster.workers * cluster.threads,
            here=here,
            in_driver=isinstance(cluster, IN_THE_DRIVER),
        )

    @property
    def startup_seconds(self) -> float:
        """Time before the first task runs."""
        return STARTUP_IN_DRIVER_SECONDS if self.in_driver else STARTUP_SECONDS

    @property
    def busy_cores(self) -> int:
        """Number of cores of this machine that compute at once; one where workers are remote."""
        return min(self.workers * self.threads, self.cores) if self.here else 1

    def slots(self, stage: Stage) -> int:
        """Return how many tasks of a stage fit at once, however many tasks it has."""
        fit = tasks_that_fit(stage, self.memory_limit, self.idle_bytes)
        return self.workers * min(self.threads, fit)

    def at_once(self, stage: Stage) -> int:
        """Return how many tasks of a stage run at once."""
        return min(self.slots(stage), stage.side_by_side)

    def memory(self, stage: Stage) -> int:
        """Return the memory in bytes of all processes while a stage runs."""
        return self.workers * self.idle_bytes + self.at_once(stage) * stage.memory_bytes


def memory_shortfall(worker_pool: WorkerPool, stages: Sequence[Stage], memory: int) -> str | None:
    """Return why the processes together don't fit in a machine's memory; None if they do.

    The sentence gives the number of workers that would fit.
    """
    for stage in sorted(stages if worker_pool.here else (), key=worker_pool.memory, reverse=True):
        alone, together = worker_pool.idle_bytes + stage.memory_bytes, worker_pool.memory(stage)
        if together <= memory:
            continue
        has = f"this machine has {memory / 2**30:.1f}GiB"
        if alone > memory:
            return (
                f"stage {stage.name} needs {format_gibibytes(alone)} in one process and {has}; run "
                "it on a larger one, use fewer rows, or leave this measure out"
            )
        needs = (
            f"stage {stage.name} needs {format_gibibytes(together)} for "
            f"{worker_pool.at_once(stage)} tasks at once"
        )
        fewer = (
            replace(worker_pool, workers=workers)
            for workers in range(worker_pool.workers - 1, 0, -1)
        )
        fitting = next((other.workers for other in fewer if other.memory(stage) <= memory), None)
        if fitting is None:
            return f"{needs} and {has}; set cluster.workers and cluster.threads to 1"
        return (
            f"{needs} on {worker_pool.workers} workers and {has}; set cluster.workers to {fitting}"
        )
    return None
