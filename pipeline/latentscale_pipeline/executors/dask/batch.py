"""Workers that are jobs of a batch system: Slurm, PBS, LSF or SGE, through dask-jobqueue.

The scheduler runs in the driver's process, and every worker is a separate batch job with one
process. ``adapt`` with equal bounds keeps their number constant: a job that was killed, or whose
node failed, is replaced; ``scale`` would submit it only once. A worker exits before its walltime
and is replaced. The times are staggered, so that the workers don't exit together. When the driver
ends, its workers end, too: a clean end cancels their jobs, and if the driver is killed, they exit
because the scheduler is gone.

All connections use TLS with certificates of this run, and every other port is closed. Values that
become lines of a script are validated (:mod:`latentscale_pipeline.config.cluster`), and environment
variables are quoted.
"""

from __future__ import annotations

import importlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from latentscale_pipeline.config.cluster import Batch, TlsFiles, walltime_seconds
from latentscale_pipeline.errors import BadInput, how_to_install
from latentscale_pipeline.executors.dask.certificates import (
    DEFAULT_FOLDER,
    certificates,
    security_of,
)
from latentscale_pipeline.executors.dask.environment import TCP_SECONDS, worker_environment
from latentscale_pipeline.executors.dask.executor import connection_errors
from latentscale_pipeline.executors.dask.local import COMMON, SETTINGS, scheduler_here
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.executors.dask.remote import RemoteExecutor
from latentscale_pipeline.progress import Echo

DEATH_SECONDS = 60
"""How long a worker tries to reach a scheduler that doesn't respond, in seconds."""

LEAVING_SHARE, LEAVING_SECONDS = 0.05, 300.0
"""Upper limits of the margin before a worker's walltime: a share of the walltime, and seconds.

A worker exits one to two margins before its walltime.
"""

NANNY_BYTES = 256 << 20
"""Memory of the process that monitors a worker (Dask's nanny), beyond the worker's limit."""

ELASTIC_SETTINGS = SETTINGS | {
    # A queue may be long: the driver's own timeout is cluster.patience.
    "distributed.scheduler.no-workers-timeout": None,
    # Assumed duration of a task until one has ended. With Dask's default of half a second, a
    # handful of long tasks wouldn't start a second worker.
    "distributed.scheduler.unknown-task-duration": "60s",
    "distributed.comm.timeouts.tcp": TCP_SECONDS,
}
"""Settings of Dask for workers that join and leave during a run."""

SYSTEMS = {
    "slurm": ("SLURMCluster", "sbatch"),
    "pbs": ("PBSCluster", "qsub"),
    "lsf": ("LSFCluster", "bsub"),
    "sge": ("SGECluster", "qsub"),
}
"""For each batch system, the class of dask-jobqueue and the command that submits jobs."""


@contextmanager
def batch_cluster(settings: Batch, job: Job, echo: Echo) -> Iterator[RemoteExecutor]:
    """Provide workers in a batch system during a ``with`` block.

    Parameters
    ----------
    settings : Batch
        The section ``cluster`` of the configuration.
    job : Job
        The job. The workers' logs are in ``workers/`` in its folder, if that is on a disk.
    echo : callable
        Called with a one-line warning about a worker that isn't ready.

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
            f"cluster.kind {settings.kind}: the workers can't be submitted ({reason}); check "
            "the queue, then run the same command again to continue"
        )

    with (
        certificates(job.name, job.folder, settings.shared_folder) as made,
        connection_errors(_started(kind, settings, made, job, echo), problem) as executor,
    ):
        yield executor


def worker_script(settings: Batch, name: str, job_folder: Path | None) -> str:
    """Return the script of a worker as it will be submitted; nothing is written.

    What only a run knows is in capitals: ``DRIVER:PORT``, its scheduler, and ``RUN``, the end of
    the name of the folder with its certificates.

    Parameters
    ----------
    settings : Batch
        The section ``cluster`` of the configuration.
    name : str
        Name of the job in the batch system.
    job_folder : Path or None
        The job's folder; None if it isn't on a disk.
    """
    kind = getattr(import_jobqueue(settings), SYSTEMS[settings.kind][0])
    folder = Path(settings.shared_folder or DEFAULT_FOLDER).expanduser() / f"{name}.RUN"
    certificate = str(folder / "certificate.pem")
    made = TlsFiles(ca_file=certificate, cert=certificate, key=str(folder / "key.pem"))
    logs = _log_folder(job_folder, made)
    with tempfile.TemporaryDirectory() as created:  # dask-jobqueue creates the folder of the logs
        worker = kind.job_cls(
            "tls://DRIVER:PORT",
            f"{name}-0",
            security=security_of(made),
            interface=settings.interface,
            **_job_options(settings, name, created),
        )
        return str(worker.job_script()).replace(created, logs)


def import_jobqueue(settings: Batch) -> Any:
    """Return dask-jobqueue; if it is missing, the error says how to install it."""
    try:
        return importlib.import_module("dask_jobqueue")
    except ImportError:
        raise BadInput(
            f"cluster.kind {settings.kind} needs dask-jobqueue, which isn't installed; "
            f"{how_to_install('hpc')}"
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
    kind: Any, settings: Batch, made: TlsFiles, job: Job, echo: Echo
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
        executor = RemoteExecutor(client, settings, echo, link)
        executor.make_ready(job, ours=True)
        least = settings.workers if settings.minimum is None else settings.minimum
        cluster.adapt(minimum=least, maximum=settings.workers)
        yield executor


def _log_folder(job_folder: Path | None, made: TlsFiles) -> str:
    """Choose the folder of the workers' logs.

    In a script its name must not need quotes, nor have what a scheduler replaces.
    """
    if job_folder is not None:
        folder = str(job_folder.absolute() / "workers")
        if shlex.quote(folder) == folder and "%" not in folder:
            return folder
    return str(Path(made.key).parent / "workers")


def _job_options(settings: Batch, job: str, log_folder: str) -> dict[str, Any]:
    """Return dask-jobqueue's options for the jobs of the workers."""
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
    """Return a walltime in the format of the batch system; LSF's has no seconds."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    if kind == "lsf":
        return f"{hours}:{minutes + (rest > 0):02d}"
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


def _accounted(settings: Batch) -> dict[str, Any]:
    name = "account" if settings.kind in {"slurm", "pbs"} else "project"
    return {name: settings.account}


def _reserved(settings: Batch) -> dict[str, Any]:
    """Return the options that request memory for a worker and its nanny."""
    size = settings.memory_limit + NANNY_BYTES
    mebibytes = -(-size // 2**20)
    if settings.kind == "slurm":
        return {"job_mem": f"{mebibytes}M"}
    if settings.kind == "pbs":
        return {"resource_spec": f"select=1:ncpus={settings.threads}:mem={mebibytes}mb"}
    if settings.kind == "lsf":
        return {"mem": size}
    return {"resource_spec": f"h_vmem={mebibytes}M"}
