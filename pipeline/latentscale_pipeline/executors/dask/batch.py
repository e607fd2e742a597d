"""Workers that are jobs of a batch system: Slurm, PBS, LSF or SGE, through dask-jobqueue.

The scheduler runs in the driver's process, and every worker is a separate batch job with one
process. ``adapt`` with equal bounds keeps their number: a job that was killed, or whose node
failed, is replaced; ``scale`` would submit it only once. A worker leaves by itself before its
walltime, and its successor continues. These times are spread, so that not all leave at once. When
the driver ends, its workers end, too: a clean end cancels their jobs, and if the driver is killed,
they end as soon as the scheduler is gone.

Everything speaks TLS with certificates of this run, and every other port is closed. What becomes a
line of a script was checked to be one (:mod:`latentscale_pipeline.config.cluster`), and what
comes from the environment is quoted.
"""

from __future__ import annotations

import importlib
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from latentscale_pipeline.config.cluster import Batch, TlsFiles, walltime_seconds
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.executors.dask.certificates import certificates, security_of
from latentscale_pipeline.executors.dask.environment import TCP_SECONDS, worker_environment
from latentscale_pipeline.executors.dask.executor import undisturbed
from latentscale_pipeline.executors.dask.local import COMMON, SETTINGS, scheduler_here
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.executors.dask.remote import RemoteExecutor, Tell

DEATH_SECONDS = 60
"""How long a worker looks for a scheduler that doesn't answer."""

LEAVING_SHARE, LEAVING_SECONDS = 0.05, 300.0
"""A worker leaves once this share of its walltime, or so many seconds, is left; at most."""

NANNY_BYTES = 256 << 20
"""What the process that watches a worker holds, beside the worker's own limit."""

ELASTIC_SETTINGS = SETTINGS | {
    # A queue may be long: the driver says when it has waited enough.
    "distributed.scheduler.no-workers-timeout": None,
    # Assumed duration of a task until one has ended. With Dask's default of half a second, a
    # handful of long tasks wouldn't start a second worker.
    "distributed.scheduler.unknown-task-duration": "60s",
    "distributed.comm.timeouts.tcp": TCP_SECONDS,
}
"""Dask's settings where workers come and go."""

SYSTEMS = {
    "slurm": ("SLURMCluster", "sbatch"),
    "pbs": ("PBSCluster", "qsub"),
    "lsf": ("LSFCluster", "bsub"),
    "sge": ("SGECluster", "qsub"),
}
"""Of each batch system: dask-jobqueue's class for it, and the command that takes jobs."""


@contextmanager
def batch_cluster(settings: Batch, job: Job, tell: Tell) -> Iterator[RemoteExecutor]:
    """Have workers in a batch system for the time of a ``with`` block.

    Parameters
    ----------
    settings : Batch
        How many, how large, for how long, and where.
    job : Job
        The workers' logs go below ``workers/`` of its folder, if that is on a disk.
    tell : callable
        Told of workers that aren't fit.

    Raises
    ------
    BadInput
        If this machine can't submit jobs of that kind.
    Incomplete
        If the jobs can't be submitted.
    """
    kind = _cluster_class(settings)

    def problem(reason: str) -> str:
        return (
            f"cluster.kind {settings.kind}: the workers can't be asked for ({reason}); look "
            "at the queue, then run the same command again to go on"
        )

    with (
        certificates(job.name, job.folder, settings.shared_folder) as made,
        undisturbed(_started(kind, settings, made, job, tell), problem) as executor,
    ):
        yield executor


def import_jobqueue(settings: Batch) -> Any:
    """Import what submits the workers, or say how it is installed."""
    try:
        return importlib.import_module("dask_jobqueue")
    except ImportError:
        raise BadInput(
            f"cluster.kind {settings.kind} needs dask-jobqueue, which isn't installed; "
            "pip install 'latentscale[hpc]'"
        ) from None


def _cluster_class(settings: Batch) -> Any:
    (cluster, submit), library = SYSTEMS[settings.kind], import_jobqueue(settings)
    if shutil.which(submit) is None:
        raise BadInput(
            f"cluster.kind {settings.kind}: there is no {submit} here; run the job on a "
            "machine that can submit jobs"
        )
    return getattr(library, cluster)


@contextmanager
def _started(
    kind: Any, settings: Batch, made: TlsFiles, job: Job, tell: Tell
) -> Iterator[RemoteExecutor]:
    options = _job_options(settings, job.name, _log_folder(job.folder, made)) | {
        "name": job.name,
        "security": security_of(made),
        "interface": settings.interface,
    }
    with scheduler_here(
        lambda scheduler: kind(**options, **COMMON, scheduler_options=scheduler),
        ELASTIC_SETTINGS,
        dashboard=settings.dashboard,
    ) as (cluster, client, link):
        executor = RemoteExecutor(client, settings, tell, link)
        executor.make_ready(job, ours=True)
        least = settings.workers if settings.minimum is None else settings.minimum
        cluster.adapt(minimum=least, maximum=settings.workers)
        yield executor


def _log_folder(job_folder: Path | None, made: TlsFiles) -> str:
    """Choose where workers write what they say; a script takes no name of odd characters."""
    if job_folder is not None:
        folder = str(job_folder.absolute() / "workers")
        if shlex.quote(folder) == folder:
            return folder
    return str(Path(made.key).parent / "workers")


def _job_options(settings: Batch, job: str, log_folder: str) -> dict[str, Any]:
    """Return what dask-jobqueue makes the script of a worker's job from."""
    seconds = walltime_seconds(settings.walltime)
    leaving = min(LEAVING_SHARE * seconds, LEAVING_SECONDS)
    options: dict[str, Any] = {
        "cores": settings.threads,
        "processes": 1,
        "memory": f"{settings.memory_limit}B",
        "job_name": job,
        "queue": settings.queue,
        "walltime": _walltime(settings.kind, seconds),
        "job_extra_directives": list(settings.directives),
        "job_script_prologue": [
            f"export {name}={shlex.quote(value)}"
            for name, value in (worker_environment() | settings.environment).items()
        ],
        "log_directory": log_folder,
        "python": shlex.quote(sys.executable),
        "death_timeout": DEATH_SECONDS,
        "worker_extra_args": [
            "--no-dashboard",
            "--lifetime",
            f"{seconds - 2 * leaving:.0f}s",
            "--lifetime-stagger",
            f"{leaving:.0f}s",
        ],
    }
    return options | _accounted(settings) | _reserved(settings)


def _walltime(kind: str, seconds: int) -> str:
    """Write a walltime as a batch system wants it: LSF has no seconds."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    if kind == "lsf":
        return f"{hours}:{minutes + (rest > 0):02d}"
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


def _accounted(settings: Batch) -> dict[str, Any]:
    name = "account" if settings.kind in {"slurm", "pbs"} else "project"
    return {name: settings.account}


def _reserved(settings: Batch) -> dict[str, Any]:
    """Ask for the memory of a worker and of the process that watches it."""
    size = settings.memory_limit + NANNY_BYTES
    mebibytes = -(-size // 2**20)
    if settings.kind == "slurm":
        return {"job_mem": f"{mebibytes}M"}
    if settings.kind == "pbs":
        return {"resource_spec": f"select=1:ncpus={settings.threads}:mem={mebibytes}mb"}
    if settings.kind == "lsf":
        return {"mem": size}
    return {"resource_spec": f"h_vmem={mebibytes}M"}
