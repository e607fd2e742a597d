"""Cancellation: stop a run on request, or when another run has taken over its job.

A run is cancelled by creating ``cancel/<attempt>.json``; the run checks for it every second. A
request names its run, so a late request can't end another run. Less often, the run checks that it
still holds the lock. It ends if another run has taken over, either because this one was suspended
for too long or because of ``--take-over``.

The checks happen in a thread, because a store may respond slowly; the run only reads the thread's
result.
"""

from __future__ import annotations

import json
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from latentscale_pipeline.errors import Cancelled, Incomplete, LatentscaleError
from latentscale_pipeline.storage.lock import Holder, read_lock
from latentscale_pipeline.storage.objects import ObjectStore

POLL_SECONDS = 1.0
"""Pause between checks for a request to cancel."""

LOOKS_PER_LOCK = 10
"""Number of these checks for each check of the lock."""

Check = Callable[[], None]
"""Raises the error that the run should end with, if it should end."""


def never() -> None:
    """Never stop."""


def request_cancel(store: ObjectStore, holder: Holder) -> bool:
    """Ask the run that holds a job's lock to end.

    Returns
    -------
    bool
        False if there was a request already.
    """
    request = {"time": time.time(), "host": socket.gethostname()}
    return store.create(_key(holder), json.dumps(request).encode())


def read_cancel_request(store: ObjectStore, holder: Holder) -> dict[str, Any] | None:
    """Return the request to cancel a run, with its time and host, or None without one."""
    try:
        request = json.loads(store.read(_key(holder)))
    except FileNotFoundError:
        return None
    except ValueError:
        request = None
    return request if isinstance(request, dict) else {}


@contextmanager
def stop_when_asked(
    store: ObjectStore, me: Holder, poll_seconds: float = POLL_SECONDS
) -> Iterator[Check]:
    """Check for reasons to stop during a ``with`` block, which gets the function to call.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    me : Holder
        This run, which holds the lock. Requests to earlier runs are deleted.
    poll_seconds : float
        Pause between checks.
    """
    for key in store.keys("cancel"):
        if key != _key(me):
            store.remove(key)
    reasons: list[LatentscaleError] = []
    end = threading.Event()

    def look_often() -> None:
        looks = 0
        while not reasons and not end.wait(poll_seconds):
            looks += 1
            with suppress(LatentscaleError, OSError):  # the next check may succeed
                reasons.extend(_cancelled(store, me))
                if not reasons and looks % LOOKS_PER_LOCK == 0:
                    reasons.extend(_succeeded(store, me.attempt))

    def check() -> None:
        for reason in reasons:
            raise reason

    threading.Thread(target=look_often, daemon=True).start()
    try:
        yield check
    finally:
        end.set()


def _cancelled(store: ObjectStore, me: Holder) -> Iterator[LatentscaleError]:
    request = read_cancel_request(store, me)
    if request is not None:
        place = f" from {request['host']}" if "host" in request else ""
        yield Cancelled(
            f"cancelled{place}; to continue, run the same command again, or latentscale resume "
            f"{shlex.quote(store.url)}"
        )


def refuse_if_succeeded(store: ObjectStore, attempt: str) -> None:
    """Raise :class:`Incomplete` if another run has taken over a job from the run of an attempt."""
    for reason in _succeeded(store, attempt):
        raise reason


def _succeeded(store: ObjectStore, attempt: str) -> Iterator[LatentscaleError]:
    holder = read_lock(store).holder
    if holder is not None and holder.attempt not in {attempt, "unknown"}:
        yield Incomplete(
            f"{store.url}: process {holder.pid} on {holder.host} has taken over this job"
        )


def _key(holder: Holder) -> str:
    return f"cancel/{holder.attempt}.json"
