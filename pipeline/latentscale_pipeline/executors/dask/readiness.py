"""Check that a remote worker is ready: versions, corpora and job folder.

It may run another version of the code, which would publish other numbers under the same keys. It
may not see the job's folder or a corpus. Its numba may already compute with many threads. So a
worker offers the resource that every task needs only after these checks. All workers that exist
when a run begins are checked, and the first unfit one ends the run with one line. An unfit worker
that joins later gets no work.
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
from latentscale_pipeline.engine.memory import task_memory, write_gibibytes
from latentscale_pipeline.errors import BadInput, Incomplete, LatentscaleError
from latentscale_pipeline.executors.dask.environment import WORKER_ENVIRONMENT
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import options_in_force, strip_credentials, use_options

PACKAGES = (
    *("latentscale", "numpy", "scipy", "numba", "pynndescent"),
    *("threadpoolctl", "zarr", "fsspec", "xxhash", "dask", "distributed", "cloudpickle"),
)
"""Packages that have to be the same in the driver and in every worker."""


READY = "latentscale-ready"
"""Topic under which workers say that they take tasks."""

NOT_READY = "latentscale-not-ready"
"""Topic under which workers say why they take no tasks."""


@dataclass(frozen=True)
class Job:
    """What a cluster has to know of a job, and what its tasks need of a worker.

    Attributes
    ----------
    name : str
        Plain characters, of this job alone among all of the same user.
    folder : Path or None
        The job's folder; None where it isn't on a disk.
    documents : mapping
        For each place that has to be reached, in words, its URL and the key of an object there.
    idle_bytes : int
        What a process holds without a task.
    largest_bytes : int
        What the largest task holds beside.
    """

    name: str
    folder: Path | None
    documents: Mapping[str, tuple[str, str]]
    idle_bytes: int
    largest_bytes: int


class NotReady(BadInput):
    """A worker that can't do the job's work; says which, why, and what to do."""


class Readiness(distributed.WorkerPlugin):
    """Makes every worker, whenever it starts, ready for tasks, or leaves it without any.

    Parameters
    ----------
    job : Job
        Whose tasks it will do.
    memory_limit : int
        What a worker may hold where it has no limit of its own.
    ours : bool
        Whether the worker was started for this job: its HTTP port, which asks nobody who they are,
        is closed.
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
        """Look, and then offer memory for tasks."""
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
                "its latentscale has other code than the one that hands out the work; install the "
                "same version for both"
            )
        needed = self._job.idle_bytes + self._job.largest_bytes
        if limit < needed:
            raise BadInput(
                f"its memory limit is {limit / 2**30:.1f}GiB and the largest task needs "
                f"{write_gibibytes(needed)}; start workers with more, or set cluster.memory_limit"
            )
        for what, (url, key) in self._job.documents.items():
            reach(what, url, key)


def compute_with_one_thread() -> None:
    """See to it that numba computes with one thread in this process.

    Raises
    ------
    BadInput
        If it has begun to use more, which can't be undone.
    """
    os.environ.update(WORKER_ENVIRONMENT)
    numba = sys.modules.get("numba")
    if numba is None:
        return
    try:
        numba.config.reload_config()
    except RuntimeError:
        raise BadInput(
            f"its numba already uses {numba.config.NUMBA_NUM_THREADS} threads, and a result must "
            "not depend on how many there are; start it with NUMBA_NUM_THREADS=1"
        ) from None


def reach(what: str, url: str, key: str) -> None:
    """Read an object.

    Raises
    ------
    BadInput
        If it can't be read from here.
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
    """Compare the versions of the client with those of the workers that are there.

    Parameters
    ----------
    versions : mapping
        As Dask's client gives them.

    Raises
    ------
    NotReady
        Naming the first that differs.
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
    """Say what the first difference between the versions of two machines is; empty without one."""
    for name in ("python", *PACKAGES):
        here, there = (_comparable(name, versions.get(name)) for versions in (mine, theirs))
        if there is None:
            return (
                f"{name} isn't installed there; install latentscale in the version that the job is "
                "started with"
            )
        if here != there:
            return f"{name} is {there} there and {here} here; install the same versions for both"
    return ""


def _comparable(name: str, version: str | None) -> str | None:
    if version is None or name != "python":
        return version
    return ".".join(version.split(".")[:2])
