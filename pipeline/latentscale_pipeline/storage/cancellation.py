"""Cancellation: stop a run on request, or when another run has taken over its job.

A run is cancelled by creating ``cancel/<attempt>.json``; the run looks for it every few seconds. A
request names its run, so a late request can't end another run. The run also checks that it still
holds the lock. It ends if another run has taken over, because this one was suspended for too long
or was told to make way.

A thread looks for requests, because a store may answer slowly; the run only reads what the thread
found.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
def stop_when_asked(
    store: ObjectStore, me: Holder, looking_seconds: float = LOOKING_SECONDS
) -> Iterator[Check]:
    """Look for reasons to stop for the time of a ``with`` block.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    me : Holder
        This run, which holds the lock. Requests that were meant for others are removed.
    looking_seconds : float
        Between two looks.
    """
    for key in store.keys("cancel"):
        if key != _key(me):
            store.remove(key)
    reasons: list[LatentscaleError] = []
    end = threading.Event()

    def look_often() -> None:
        looks = 0
        while not reasons and not end.wait(looking_seconds):
            looks += 1
            with suppress(LatentscaleError, OSError):  # the store may answer the next time
                reasons.extend(_cancelled(store, me))
                if not reasons and looks % LOOKS_PER_LOCK == 0:
                    reasons.extend(_succeeded(store, me))

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
            f"cancelled{place}; run the same command again, or latentscale resume "
            f"{store.url}, to go on"
        )


def _succeeded(store: ObjectStore, me: Holder) -> Iterator[LatentscaleError]:
    holder = read_lock(store).holder
    if holder is not None and holder.attempt not in {me.attempt, "unknown"}:
        yield Incomplete(
            f"{store.url}: process {holder.pid} on {holder.host} has taken this job over"
        )


def _key(holder: Holder) -> str:
    return f"cancel/{holder.attempt}.json"
