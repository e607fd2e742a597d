"""One run at a time on a job folder, without trusting anything but *create if absent*.

The lock is a series of objects ``lock/000001.json``, ``lock/000002.json``, …; the highest holds.
To take it over is to create the next one, which only one of several contenders can do. A holder
that ends tidily creates ``….released``. While it lives it rewrites its own heartbeat object.

A holder on this host whose process is gone is succeeded at once; one on another host when its
heartbeat is over a minute old. Workers that outlive their run can only lose: what they publish
either was missing, and is right, or is refused.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psutil

from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.objects import ObjectStore

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
GRACE_SECONDS = 1.0
"""A killed process takes a moment to disappear; running again at once must not fail on that."""


@dataclass(frozen=True)
class Holder:
    """Who runs a job: enough to tell whether the process still lives."""

    host: str
    pid: int
    process_start: float
    attempt: str

    @classmethod
    def here(cls) -> Holder:
        """Describe this process and give its run an attempt id of its own."""
        pid = os.getpid()
        started = psutil.Process(pid).create_time()
        return cls(socket.gethostname(), pid, started, uuid.uuid4().hex[:12])

    def is_gone(self) -> bool:
        """Tell whether this is a process of this host that no longer exists."""
        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            # A killed process whose parent hasn't collected it is gone all the same.
            return (
                abs(process.create_time() - self.process_start) > 1.0
                or process.status() == psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return True


UNKNOWN = Holder("an unknown host", 0, 0.0, "unknown")
"""Whoever holds a lock that can't be read."""

_LOCK = re.compile(r"\d{6,}\.json")


@contextmanager
def hold_lock(
    store: ObjectStore, *, wait: bool = False, take_over: bool = False
) -> Iterator[Holder]:
    """Hold a job folder's lock for the time of a ``with`` block.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    wait : bool
        Wait until the present holder ends instead of giving up.
    take_over : bool
        Succeed the present holder whether or not it lives.

    Raises
    ------
    BadInput
        If someone else holds the lock; the message names them.
    """
    me = Holder.here()
    # A holder without a heartbeat counts as dead on other hosts, so the heart beats first.
    _beat_once(store, me)
    try:
        generation = _acquire(store, me, wait, take_over)
    except BaseException:
        store.remove(f"heartbeats/{me.attempt}.json")
        raise
    stop = threading.Event()
    beating = threading.Thread(target=_beat, args=(store, me, stop), daemon=True)
    beating.start()
    try:
        yield me
    finally:
        stop.set()
        beating.join(timeout=HEARTBEAT_SECONDS)
        store.create(f"lock/{generation:06d}.released", b"")
        store.remove(f"heartbeats/{me.attempt}.json")


def _acquire(store: ObjectStore, me: Holder, wait: bool, take_over: bool) -> int:
    begun = time.monotonic()
    while True:
        generation, holder = _current(store)
        if holder is None or take_over or not _lives(store, holder):
            mine = generation + 1
            key = f"lock/{mine:06d}.json"
            created = store.create(key, json.dumps(asdict(me)).encode())
            if created and store.create(key, b"{}"):
                raise BadInput(
                    f"{store.url}: this store overwrites objects that it was told to create only "
                    "if absent, so a job can't be locked there; choose another, or a newer driver"
                )
            # Between the look and the creation others may have gone further.
            if created and _current(store)[0] == mine:
                return mine
            take_over = False
        elif not wait and time.monotonic() - begun >= GRACE_SECONDS:
            raise BadInput(
                f"{store.url}: process {holder.pid} on {holder.host} is running this job; "
                "use --wait to wait for it or --take-over to succeed it"
            )
        time.sleep(GRACE_SECONDS / 4)


def _current(store: ObjectStore) -> tuple[int, Holder | None]:
    """Return the highest lock and who holds it (None when it is free)."""
    keys = {key.removeprefix("lock/") for key in store.keys("lock")}
    numbers = [int(key.removesuffix(".json")) for key in keys if _LOCK.fullmatch(key)]
    if not numbers:
        return 0, None
    highest = max(numbers)
    if f"{highest:06d}.released" in keys:
        return highest, None
    try:
        return highest, Holder(**json.loads(store.read(f"lock/{highest:06d}.json")))
    except (ValueError, TypeError, FileNotFoundError):
        # Perhaps it is being written this moment: that is no reason to think it free.
        return highest, UNKNOWN


def _lives(store: ObjectStore, holder: Holder) -> bool:
    if holder == UNKNOWN:
        return True
    if holder.host == socket.gethostname():
        return not holder.is_gone()
    try:
        beaten = float(json.loads(store.read(f"heartbeats/{holder.attempt}.json"))["time"])
    except (FileNotFoundError, ValueError, KeyError):
        return False
    return time.time() - beaten < STALE_SECONDS


def _beat(store: ObjectStore, me: Holder, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        try:
            _beat_once(store, me)
        except LatentscaleError:
            continue  # the next beat may get through; a minute without one is what counts


def _beat_once(store: ObjectStore, me: Holder) -> None:
    store.write(f"heartbeats/{me.attempt}.json", json.dumps({"time": time.time()}).encode())
