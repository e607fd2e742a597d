"""The job lock: one run at a time per job folder, built on *create if absent*.

The lock is a series of objects ``lock/000001.json``, ``lock/000002.json``, …; the highest number
holds the lock. A run takes it over by creating the next one; only one of several contenders can. A
holder that ends cleanly creates ``….released``. While it runs, it rewrites its heartbeat object.

If the holder's process ran here and is gone, another run takes over at once. If it ran elsewhere,
its heartbeat must be over a minute old. *Here* means the same boot of the same machine and the same
namespace of process ids. A host name isn't enough: containers on one machine may have the same name
and the same process ids. Workers that outlive their run do no harm: what they publish was either
missing, and is correct, or is refused.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.storage.objects import ObjectStore

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
WAITING_SECONDS = 2.0
"""Between two looks at a lock that is waited for."""

GRACE_SECONDS = 1.0
"""A killed process takes a moment to disappear; running again at once must not fail on that."""


@dataclass(frozen=True)
class Holder:
    """Who runs a job: enough to tell whether the process still lives.

    Attributes
    ----------
    host : str
        Name of the machine or container, for people.
    pid : int
        Process id, within ``pid_space``.
    process_start : float
        When the process started, in seconds since 1970.
    attempt : str
        Id of this run alone.
    pid_space : str
        What process ids count within, see :func:`pid_space`; empty where that isn't known, as in
        locks of earlier versions. The host name decides then.
    """

    host: str
    pid: int
    process_start: float
    attempt: str
    pid_space: str = ""

    @classmethod
    def here(cls) -> Holder:
        """Describe this process and give its run an attempt id of its own."""
        pid = os.getpid()
        started = psutil.Process(pid).create_time()
        return cls(socket.gethostname(), pid, started, uuid.uuid4().hex[:12], pid_space())

    def is_here(self) -> bool:
        """Return whether its process id means the same process here as where it was noted."""
        here = pid_space()
        if self.pid_space and here:
            return self.pid_space == here
        return self.host == socket.gethostname()

    def is_gone(self) -> bool:
        """Return whether this is a process of this machine that no longer exists."""
        if not self.is_here():
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


def pid_space() -> str:
    """Name what process ids count within: this boot of this machine, and its namespace of them.

    Returns
    -------
    str
        Empty where the system doesn't tell, which is everywhere but on Linux.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


UNKNOWN = Holder("an unknown host", 0, 0.0, "unknown")
"""Whoever holds a lock that can't be read."""

_ATTEMPT = re.compile(r"[A-Za-z0-9-]+")
_LOCK = re.compile(r"\d{6,}\.json")


class Held(BadInput):
    """A lock that someone else holds; ``holder`` says who."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


@dataclass(frozen=True)
class Lock:
    """The state of a job's lock.

    Attributes
    ----------
    generation : int
        How many runs have held it; 0 when none ever did.
    holder : Holder or None
        The last of them.
    released : bool
        Whether that one ended cleanly; True if the lock was never held.
    """

    generation: int
    holder: Holder | None
    released: bool


@dataclass(frozen=True)
class Life:
    """Whether a lock's holder lives, and how one can tell.

    Attributes
    ----------
    alive : bool
        False once others may take over.
    sign : str
        In words.
    heartbeat_age : float or None
        Seconds since its last heartbeat by the clock of this machine; None without one.
    """

    alive: bool
    sign: str
    heartbeat_age: float | None


@contextmanager
def hold_lock(
    store: ObjectStore,
    *,
    wait: bool = False,
    take_over: bool = False,
    tell: Callable[[str], None] | None = None,
    grace_seconds: float = GRACE_SECONDS,
    waiting_seconds: float = WAITING_SECONDS,
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
    tell : callable
        Told in one line who is waited for.
    grace_seconds : float
        How long a holder that has just been killed may take to disappear.
    waiting_seconds : float
        Between two looks at a lock that is waited for.

    Raises
    ------
    BadInput
        If someone else holds the lock; the message names them.
    """
    me = Holder.here()
    # A holder without a heartbeat counts as dead on other hosts, so the heart beats first.
    _beat_once(store, me)
    try:
        generation = _acquire(store, me, wait, take_over, tell, grace_seconds, waiting_seconds)
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
        # A store that fails must not hide why the run ended; its process being gone is enough.
        with suppress(LatentscaleError):
            store.create(f"lock/{generation:06d}.released", b"")
            store.remove(f"heartbeats/{me.attempt}.json")


def _acquire(
    store: ObjectStore,
    me: Holder,
    wait: bool,
    take_over: bool,
    tell: Callable[[str], None] | None,
    grace_seconds: float,
    waiting_seconds: float,
) -> int:
    begun = time.monotonic()
    waiting_for: Holder | None = None
    while True:
        lock = read_lock(store)
        holder = lock.holder
        if holder is None or lock.released or take_over or not look_for_life(store, holder).alive:
            mine = lock.generation + 1
            key = _key(mine)
            created = store.create(key, json.dumps(asdict(me)).encode())
            if created and store.create(key, b"{}"):
                raise BadInput(
                    f"{store.url}: this store overwrites objects that it was told to create only "
                    "if absent, so a job can't be locked there; choose another, or a newer driver"
                )
            # Other runs may have taken the lock since it was read.
            if created and read_lock(store).generation == mine:
                return mine
            take_over = False
        elif time.monotonic() - begun >= grace_seconds:
            if not wait:
                who = f"process {holder.pid} on {holder.host}"
                raise Held(
                    f"{store.url}: {who} is running this job; "
                    "use --wait to wait for it or --take-over to succeed it",
                    who,
                )
            if tell is not None and holder != waiting_for:
                tell(f"waiting for process {holder.pid} on {holder.host}, which runs this job")
                waiting_for = holder
            time.sleep(waiting_seconds)
        time.sleep(grace_seconds / 4)


def refuse_if_running(store: ObjectStore) -> None:
    """Refuse a job whose lock's holder lives; it may be taken a moment later, of course.

    Raises
    ------
    BadInput
        Naming the holder.
    """
    lock = read_lock(store)
    if lock.holder is not None and not lock.released:
        life = look_for_life(store, lock.holder)
        if life.alive:
            raise BadInput(
                f"{store.url}: {life.sign} is running this job; wait for it, or end it with "
                "latentscale cancel"
            )


def read_lock(store: ObjectStore) -> Lock:
    """Return the state of a job folder's lock: three requests at most."""
    keys = {key.removeprefix("lock/") for key in store.keys("lock")}
    generation = max(_generations(keys), default=0)
    if generation == 0:
        return Lock(0, None, released=True)
    return Lock(generation, _read_holder(store, generation), f"{generation:06d}.released" in keys)


def read_holders(store: ObjectStore) -> list[Holder]:
    """Return everyone who ever held a job folder's lock, in order."""
    keys = {key.removeprefix("lock/") for key in store.keys("lock")}
    return [_read_holder(store, generation) for generation in sorted(_generations(keys))]


def _generations(keys: set[str]) -> list[int]:
    return [int(key.removesuffix(".json")) for key in keys if _LOCK.fullmatch(key)]


def _key(generation: int) -> str:
    return f"lock/{generation:06d}.json"


def _read_holder(store: ObjectStore, generation: int) -> Holder:
    try:
        holder = Holder(**json.loads(store.read(_key(generation))))
        # The attempt becomes part of the keys of other objects.
        known = isinstance(holder.pid, int) and isinstance(holder.pid_space, str)
        whole = known and _ATTEMPT.fullmatch(holder.attempt)
    except (ValueError, TypeError, FileNotFoundError):
        # It may be half written at this moment, so it doesn't count as free.
        return UNKNOWN
    return holder if whole else UNKNOWN


def look_for_life(store: ObjectStore, holder: Holder) -> Life:
    """Return whether the holder of a lock that wasn't released is still there."""
    who = f"process {holder.pid} on {holder.host}"
    age = _heartbeat_age(store, holder)
    if holder == UNKNOWN:
        return Life(True, "a lock that can't be read", age)
    if holder.is_here():
        if holder.is_gone():
            return Life(False, f"{who} is gone", age)
        # A process that was stopped, or can't reach the store, still holds its job.
        stale = age is not None and age >= STALE_SECONDS
        return Life(True, f"{who}, without a heartbeat for {age:.0f} s" if stale else who, age)
    if age is None:
        return Life(False, f"{who} has no heartbeat", age)
    alive = age < STALE_SECONDS
    return Life(alive, who if alive else f"{who} has had no heartbeat for {age:.0f} s", age)


def _heartbeat_age(store: ObjectStore, holder: Holder) -> float | None:
    try:
        beaten = float(json.loads(store.read(f"heartbeats/{holder.attempt}.json"))["time"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return time.time() - beaten


def _beat(store: ObjectStore, me: Holder, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        with suppress(LatentscaleError):  # the next beat may get through; a minute without counts
            _beat_once(store, me)


def _beat_once(store: ObjectStore, me: Holder) -> None:
    store.write(f"heartbeats/{me.attempt}.json", json.dumps({"time": time.time()}).encode())
