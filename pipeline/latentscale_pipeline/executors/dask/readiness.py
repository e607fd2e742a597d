"""Check that a remote worker is ready: versions, corpora and job folder.

A worker may run another version of the code, which would publish different numbers under the same
keys. It may not see the job's folder or a corpus. Its numba may already use many threads. So a
worker offers the resource ``memory``, which every task needs, only after these checks. If a worker
fails them at the beginning of a run, the run ends with a one-line message. A worker that fails them
later gets no tasks.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import distributed

from latentscale_pipeline.engine.keys import code_version
from latentscale_pipeline.engine.memory import format_gibibytes, task_memory
from latentscale_pipeline.errors import BadInput, Incomplete, LatentscaleError
from latentscale_pipeline.executors.dask.environment import WORKER_ENVIRONMENT
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import options_in_force, strip_credentials, use_options

PACKAGES = (
    *("latentscale", "numpy", "scipy", "numba", "pynndescent"),
    *("threadpoolctl", "zarr", "fsspec", "xxhash", "dask", "distributed", "cloudpickle"),
)
"""Packages whose versions must be the same in the driver and in every worker."""


READY = "latentscale-ready"
"""Topic of events in which workers report that they are ready."""

NOT_READY = "latentscale-not-ready"
"""Topic of events in which workers report why they aren't ready."""


@dataclass(frozen=True)
class Job:
    """What a cluster needs to know about a job.

    Attributes
    ----------
    name : str
        A name without special characters, unique among the user's jobs.
    folder : Path or None
        The job's folder; None if it isn't on a disk.
    documents : mapping
        For each place that workers must reach, described in words, its URL and the key of an object
        to read there.
    idle_bytes : int
        Memory of a process without a task.
    largest_bytes : int
        Memory of the largest task, in addition.
    """

    name: str
    folder: Path | None
    documents: Mapping[str, tuple[str, str]]
    idle_bytes: int
    largest_bytes: int


class NotReady(BadInput):
    """Raised for a worker that can't run the job; the message says which, why, and what to do."""


class Readiness(distributed.WorkerPlugin):
    """Checks every worker when it starts, and lets it take tasks only if it is ready.

    Parameters
    ----------
    job : Job
        The job to run.
    memory_limit : int
        Memory limit in bytes; a worker's own limit applies if it is lower.
    ours : bool
        Whether the worker was started for this job. Then its HTTP port, which has no
        authentication, is closed.
    """

    name = "latentscale-readiness"

    def __init__(self, job: Job, memory_limit: int, *, ours: bool) -> None:
        self._options = options_in_force()
        self._job = job
        self._memory_limit = memory_limit
        self._ours = ours
        self._code = code_version()
        self._versions = installed_versions()

    async def setup(self, worker: distributed.Worker) -> None:
        """Run the checks, and then offer memory for tasks."""
        if self._ours:
            worker.http_server.stop()
        where = f"worker {worker.address} on {platform.node()}"
        try:
            limit = min(self._memory_limit, worker.memory_manager.memory_limit or sys.maxsize)
            await asyncio.to_thread(self._check, limit)
        except LatentscaleError as error:
            refusal = NotReady(f"{where}: {error}")
            await worker.scheduler.log_event(topic=NOT_READY, msg={"problem": str(refusal)})
            raise refusal from None
        await worker.set_resources(memory=task_memory(limit, self._job.idle_bytes))
        await worker.scheduler.log_event(topic=READY, msg={"worker": worker.address})

    def _check(self, limit: int) -> None:
        use_options(self._options)
        compute_with_one_thread()
        differing = _difference(self._versions, installed_versions())
        if differing:
            raise BadInput(differing)
        if code_version() != self._code:
            raise BadInput(
                "its latentscale has different code from the driver's; install the same version "
                "for both"
            )
        needed = self._job.idle_bytes + self._job.largest_bytes
        if limit < needed:
            raise BadInput(
                f"its memory limit is {limit / 2**30:.1f}GiB, but the largest task needs "
                f"{format_gibibytes(needed)}; start workers with more, or set cluster.memory_limit"
            )
        for what, (url, key) in self._job.documents.items():
            reach(what, url, key)


def compute_with_one_thread() -> None:
    """Make numba use one thread in this process.

    Raises
    ------
    BadInput
        If it already uses more, which can't be changed any more.
    """
    os.environ.update(WORKER_ENVIRONMENT)
    numba = sys.modules.get("numba")
    if numba is None:
        return
    try:
        numba.config.reload_config()
    except RuntimeError:
        raise BadInput(
            f"its numba already uses {numba.config.NUMBA_NUM_THREADS} threads, but results must "
            "not depend on the number of threads; start it with NUMBA_NUM_THREADS=1"
        ) from None


def reach(what: str, url: str, key: str) -> None:
    """Check that an object can be read from this machine.

    ``what`` describes its place in the message.

    Raises
    ------
    BadInput
        If it can't be read.
    """
    shown = strip_credentials(url)
    try:
        ObjectStore(url).read(key)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"{what} can't be seen from there ({shown} has no {key}); use a folder that all "
            "machines share, or an object store"
        ) from None
    except Incomplete as error:
        raise BadInput(f"{what} can't be reached from there: {error}") from None


def check_versions(versions: Mapping[str, Any]) -> None:
    """Compare the client's package versions with those of the workers.

    Parameters
    ----------
    versions : mapping
        The result of ``get_versions`` of Dask's client.

    Raises
    ------
    NotReady
        Names the first worker and package that differ.
    """
    mine = versions["client"]["packages"]
    for address, theirs in versions["workers"].items():
        differing = _difference(mine, theirs["packages"])
        if differing:
            raise NotReady(f"worker {address}: {differing}")


def installed_versions() -> dict[str, str | None]:
    """Return the versions of Python and of :data:`PACKAGES` in this process."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _difference(mine: Mapping[str, str | None], theirs: Mapping[str, str | None]) -> str:
    """Return the first difference between the versions of two processes, or an empty text."""
    for name in ("python", *PACKAGES):
        here, there = (_comparable(name, versions.get(name)) for versions in (mine, theirs))
        if there is None:
            return (
                f"{name} isn't installed there; install the version of latentscale that starts the "
                "job"
            )
        if here != there:
            return f"{name} is {there} there and {here} here; install the same versions for both"
    return ""


def _comparable(name: str, version: str | None) -> str | None:
    if version is None or name != "python":
        return version
    return ".".join(version.split(".")[:2])
