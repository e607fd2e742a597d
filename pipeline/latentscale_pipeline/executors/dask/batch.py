"""Workers that are jobs of a batch system: Slurm, PBS, LSF or SGE, through dask-jobqueue.

The scheduler runs in the driver's process, and every worker is a job of its own with one process.
``adapt`` with equal bounds keeps their number: a job that was killed, or whose node failed, is
replaced, where ``scale`` would only ever have asked for it once. A worker leaves by itself before
its walltime, at times that are spread so that not all leave at once, and the one that follows goes
on. When the driver ends, however that comes, its workers do: a tidy end cancels their jobs, and
those of one that was killed end as soon as the scheduler is gone.

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import distributed
from distributed.utils import silence_logging_cmgr

from latentscale_pipeline.config.cluster import Batch, walltime_seconds
from latentscale_pipeline.errors import BadInput, Incomplete, LatentscaleError
from latentscale_pipeline.executors.dask.certificates import Certificates, certificates
from latentscale_pipeline.executors.dask.environment import TCP_SECONDS, worker_environment
from latentscale_pipeline.executors.dask.executor import Opened, undisturbed
from latentscale_pipeline.executors.dask.local import SETTINGS, dashboard_settings, free_port
from latentscale_pipeline.executors.dask.readiness import Needs
from latentscale_pipeline.executors.dask.remote import RemoteExecutor, Tell
from latentscale_pipeline.storage.urls import options_in_force

DEATH_SECONDS = 60
"""How long a worker looks for a scheduler that doesn't answer."""

LEAVING_SHARE, LEAVING_SECONDS = 0.05, 300.0
"""A worker leaves once this share of its walltime, or so many seconds, is left; at most."""

NANNY_BYTES = 256 << 20
"""What the process that watches a worker holds, beside the worker's own limit."""

UNKNOWN_SECONDS = "60s"
"""How long tasks are thought to take before one has ended.

With Dask's half a second, a handful of long tasks would seem no reason for a second worker.
"""


@dataclass(frozen=True)
class System:
    """A batch system: dask-jobqueue's class for it, and the command that takes jobs."""

    cluster: str
    submit: str


SYSTEMS = {
    "slurm": System("SLURMCluster", "sbatch"),
    "pbs": System("PBSCluster", "qsub"),
    "lsf": System("LSFCluster", "bsub"),
    "sge": System("SGECluster", "qsub"),
}


@contextmanager
def batch_cluster(
    settings: Batch, needs: Needs, job: str, job_folder: Path | None, tell: Tell
) -> Iterator[RemoteExecutor]:
    """Have workers in a batch system for the time of a ``with`` block.

    Parameters
    ----------
    settings : Batch
        How many, how large, for how long, and where.
    needs : Needs
        What a worker has to have.
    job : str
        Name of the jobs: plain characters.
    job_folder : Path or None
        Where the workers' logs go, below ``workers/``; None for a job that isn't on a disk.
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
    with (
        certificates(job, job_folder, settings.shared_folder) as made,
        undisturbed(lambda: _open(kind, settings, made, needs, job, job_folder, tell)) as executor,
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
    system, library = SYSTEMS[settings.kind], import_jobqueue(settings)
    if shutil.which(system.submit) is None:
        raise BadInput(
            f"cluster.kind {settings.kind}: there is no {system.submit} here; run the job on a "
            "machine that can submit jobs"
        )
    return getattr(library, system.cluster)


def _open(
    kind: Any,
    settings: Batch,
    made: Certificates,
    needs: Needs,
    job: str,
    job_folder: Path | None,
    tell: Tell,
) -> Opened[RemoteExecutor]:
    dashboard = settings.dashboard and importlib.util.find_spec("bokeh") is not None
    port = free_port() if dashboard else 0
    with ExitStack() as stack:
        stack.enter_context(silence_logging_cmgr("CRITICAL"))
        stack.enter_context(dask.config.set(_settings(settings, port if dashboard else None)))
        try:
            cluster = stack.enter_context(
                kind(
                    **job_options(settings, made, job, _log_folder(job_folder, made)),
                    name=job,
                    security=made.security,
                    protocol="tls://",
                    interface=settings.interface,
                    scheduler_options={
                        "dashboard": dashboard,
                        "dashboard_address": f"127.0.0.1:{port}",
                    },
                    silence_logs="CRITICAL",
                )
            )
            if not dashboard:
                cluster.scheduler.http_server.stop()
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
            executor = RemoteExecutor(
                client,
                settings.memory_limit,
                patience=settings.patience,
                tell=tell,
                dashboard=cluster.dashboard_link if dashboard else None,
            )
            executor.make_ready(options_in_force(), needs, ours=True)
            keep_workers(cluster, settings)
        except LatentscaleError:
            raise
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise Incomplete(
                f"cluster.kind {settings.kind}: the workers can't be asked for ({reason}); look "
                "at the queue, then run the same command again to go on"
            ) from error
        return Opened(executor, stack.pop_all())


def keep_workers(cluster: Any, settings: Batch) -> None:
    """Keep as many workers as are asked for: those that are lost are replaced."""
    if settings.minimum is None:
        cluster.adapt(minimum=settings.workers, maximum=settings.workers)
    else:
        cluster.adapt(minimum=settings.minimum, maximum=settings.workers)


def elastic_settings() -> dict[str, Any]:
    """Return Dask's settings where workers come and go."""
    return SETTINGS | {
        # A queue may be long: the driver says when it has waited enough.
        "distributed.scheduler.no-workers-timeout": None,
        "distributed.scheduler.unknown-task-duration": UNKNOWN_SECONDS,
        "distributed.comm.timeouts.tcp": TCP_SECONDS,
    }


def _settings(settings: Batch, port: int | None) -> dict[str, Any]:
    return elastic_settings() | ({} if port is None else dashboard_settings(port))


def _log_folder(job_folder: Path | None, made: Certificates) -> str:
    """Choose where workers write what they say; a script takes no name of odd characters."""
    if job_folder is not None:
        folder = str(job_folder.absolute() / "workers")
        if shlex.quote(folder) == folder:
            return folder
    return str(made.folder / "workers")


def job_options(settings: Batch, made: Certificates, job: str, log_folder: str) -> dict[str, Any]:
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
