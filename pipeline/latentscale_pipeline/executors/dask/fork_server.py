"""Start worker processes by forking a process that has imported everything.

A process that begins from nothing imports for more than a second. The fork server imports once, and
every worker that it forks, also one that replaces a dead worker, has what it imported.
The server runs no threads and no tasks. It ends with the process that started it.

Forking is safe only where no library has started threads, which holds for the server on Linux.
Elsewhere, and where the path of a socket would be too long, workers begin from nothing.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from latentscale_pipeline.executors.dask.environment import WORKER_ENVIRONMENT
from latentscale_pipeline.executors.process_environment import environment

MAX_FOLDER_LENGTH = 72
"""Longest path of the folder for temporary files: the server has a socket in it, and the system
limits the length of its path to 107 characters."""

_CLUSTER = "latentscale_pipeline.executors.dask.local"
"""Module whose imports every worker needs."""

COMPILER = "latentscale_pipeline.executors.dask.compiler"
"""Module that loads the compiler when it is imported."""


def start_method() -> str:
    """Return how worker processes on this machine are started: ``forkserver`` or ``spawn``."""
    forks = sys.platform == "linux" and len(tempfile.gettempdir()) <= MAX_FOLDER_LENGTH
    return "forkserver" if forks else "spawn"


def start_fork_server(modules: Iterable[str] = ()) -> None:
    """Start the fork server of this process, unless it is running; it imports in the background.

    Parameters
    ----------
    modules : iterable of str
        Modules that the server imports besides those that every worker needs. A module that can't
        be imported is left out.
    """
    if start_method() == "forkserver":
        from multiprocessing.forkserver import ensure_running

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["distributed", _CLUSTER, COMPILER, *sorted(modules)])
        with block_interrupts(), environment(WORKER_ENVIRONMENT):
            ensure_running()


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes that are started inside: only the driver must act on it.

    It is sent to all processes of a terminal, and processes inherit the block.
    """
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # starting it later would lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
