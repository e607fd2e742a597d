"""Cancellation: stop a run on request, or when another run has taken over its job.

To cancel a run is to create ``cancel/<attempt>.json``; the run looks for it every few seconds. A
request names the run that it is meant for, so one that comes too late ends no other. The run also
looks whether it still holds the lock: one that was suspended until others took it for dead, or was
told to make way, has no reason to go on.

A thread does the looking, because a store may take long to answer; the run itself asks the check
that it was given, which costs nothing.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from latentscale_pipeline.errors import Cancelled, Incomplete, LatentscaleError
from latentscale_pipeline.storage.lock import Holder, read_lock
from latentscale_pipeline.storage.objects import ObjectStore

LOOKING_SECONDS = 1.0
"""Between two looks for a request to cancel."""

LOOKS_PER_LOCK = 10
"""How many of these looks go by before the lock is looked at."""

Check = Callable[[], None]
"""Raises what the run should end with, if it should."""


def never() -> None:
    """Find no reason to stop."""


def request_cancel(store: ObjectStore, holder: Holder) -> bool:
    """Ask the run that holds a job's lock to end.

    Returns
    -------
    bool
        False if it had been asked before.
    """
    request = {"time": time.time(), "host": socket.gethostname()}
    return store.create(_key(holder), json.dumps(request).encode())


def read_cancel_request(store: ObjectStore, holder: Holder) -> dict[str, Any] | None:
    """Return the request to cancel a run: when and on which host it was made; None without one."""
    try:
        request = json.loads(store.read(_key(holder)))
    except FileNotFoundError:
        return None
    except ValueError:
        request = None
    return request if isinstance(request, dict) else {}


@contextmanager
def stop_when_asked(store: ObjectStore, me: Holder) -> Iterator[Check]:
    """Look for reasons to stop for the time of a ``with`` block.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    me : Holder
        This run, which holds the lock. Requests that were meant for others are removed.
    """
    for key in store.keys("cancel"):
        if key != _key(me):
            store.remove(key)
    watch = _Watch(store, me)
    watch.start()
    try:
        yield watch.check
    finally:
        watch.stop()


class _Watch:
    def __init__(self, store: ObjectStore, me: Holder) -> None:
        self._store = store
        self._me = me
        self._reason: LatentscaleError | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()

    def check(self) -> None:
        if self._reason is not None:
            raise self._reason

    def _look_often(self) -> None:
        looks = 0
        while self._reason is None and not self._end.wait(LOOKING_SECONDS):
            looks += 1
            try:
                self._reason = self._cancelled()
                if self._reason is None and looks % LOOKS_PER_LOCK == 0:
                    self._reason = self._succeeded()
            except (LatentscaleError, OSError):
                continue  # the store may answer the next time

    def _cancelled(self) -> LatentscaleError | None:
        request = read_cancel_request(self._store, self._me)
        if request is None:
            return None
        place = f" from {request['host']}" if "host" in request else ""
        return Cancelled(
            f"cancelled{place}; run the same command again, or latentscale resume "
            f"{self._store.url}, to go on"
        )

    def _succeeded(self) -> LatentscaleError | None:
        holder = read_lock(self._store).holder
        if holder is None or holder.attempt in {self._me.attempt, "unknown"}:
            return None
        return Incomplete(
            f"{self._store.url}: process {holder.pid} on {holder.host} has taken this job over"
        )


def _key(holder: Holder) -> str:
    return f"cancel/{holder.attempt}.json"
