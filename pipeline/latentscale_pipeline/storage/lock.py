"""The job lock: one run at a time per job folder, built on *create if absent*.

The lock is a series of objects ``lock/000001.json``, ``lock/000002.json``, …, one for each run; the
run with the highest number holds the lock. A run takes it over by creating the next one, which only
one of several contenders can. A holder that ends cleanly creates ``….released``, or removes its
object where nothing shall be left. While it runs, it rewrites its heartbeat object.

If the holder's process ran here and is gone, another run takes over at once. If it ran elsewhere,
its heartbeat must be over a minute old, by its time and by the store's clock, or have stayed the
same for a minute of waiting. *Here* means the same boot of the same machine and the same namespace
of process ids. A host name isn't enough: containers on one machine may have the same name and the
same process ids. Workers that outlive their run do no harm: an artifact that they publish is
correct if it was missing, and refused otherwise.
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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.progress import Echo
from latentscale_pipeline.storage.objects import ObjectStore

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
WAITING_SECONDS = 2.0
"""Pause between checks of a lock that another run holds."""

GRACE_SECONDS = 1.0
"""How long a killed holder may take to disappear before a new run gives up."""


@dataclass(frozen=True)
class Holder:
    """The process that runs a job, with enough data to tell whether it is still alive.

    Attributes
    ----------
    host : str
        Name of the machine or container, for messages.
    pid : int
        Process id, within ``pid_space``.
    process_start : float
        Start time of the process, in seconds since 1970.
    attempt : str
        Unique id of this run.
    pid_space : str
        Scope of the process id, see :func:`pid_space`. Empty if unknown, as in locks of earlier
        versions; then the host name is compared instead.
    start_ticks : int
        Start time of the process in clock ticks since the boot, which a change of the clock doesn't
        move; 0 if unknown.
    """

    host: str
    pid: int
    process_start: float
    attempt: str
    pid_space: str = ""
    start_ticks: int = 0

    @classmethod
    def here(cls) -> Holder:
        """Return a holder for this process, with a new attempt id."""
        pid = os.getpid()
        started = psutil.Process(pid).create_time()
        attempt = uuid.uuid4().hex[:12]
        return cls(socket.gethostname(), pid, started, attempt, pid_space(), start_ticks(pid))

    def is_here(self) -> bool:
        """Return whether its process id is valid in this process' machine and namespace."""
        here = pid_space()
        if self.pid_space and here:
            return self.pid_space == here
        return self.host == socket.gethostname()

    def is_gone(self) -> bool:
        """Return whether it ran on this machine and no longer exists."""
        if not self.is_here():
            return False
        try:
            process = psutil.Process(self.pid)
            # A zombie is gone; its parent just hasn't reaped it.
            return self._is_other(process) or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def _is_other(self, process: psutil.Process) -> bool:
        """Return whether a process with its id started at another time."""
        ticks = start_ticks(process.pid)
        if self.start_ticks and ticks:
            return ticks != self.start_ticks
        return abs(process.create_time() - self.process_start) > 1.0


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot; 0 if that isn't known."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The name of the program may contain spaces; the twenty fields after it don't.
        return int(status.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def pid_space() -> str:
    """Return the scope of process ids: this boot of this machine, and its PID namespace.

    Returns
    -------
    str
        Empty if it is unknown, which is the case on all systems except Linux.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


UNKNOWN = Holder("an unknown host", 0, 0.0, "unknown")
"""Stands for the holder of a lock that can't be read."""

_ATTEMPT = re.compile(r"[A-Za-z0-9-]+")
_LOCK = re.compile(r"(\d{6,})\.(?:json|released)")


class Held(BadInput):
    """Raised if another process holds the lock; ``holder`` names it."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


@dataclass(frozen=True)
class Lock:
    """The state of a job's lock.

    Attributes
    ----------
    generation : int
        Number of runs that have held it so far.
    holder : Holder or None
        The last holder.
    released : bool
        Whether the last holder ended cleanly; True if the lock was never held.
    """

    generation: int
    holder: Holder | None
    released: bool


@dataclass(frozen=True)
class Liveness:
    """Whether a lock's holder is alive, and the evidence.

    Attributes
    ----------
    alive : bool
        False if another run may take over.
    evidence : str
        The evidence, for messages.
    heartbeat_age : float or None
        Seconds since its last heartbeat, by this machine's clock; None without a heartbeat.
    """

    alive: bool
    evidence: str
    heartbeat_age: float | None


@contextmanager
def hold_lock(
    store: ObjectStore,
    *,
    wait: bool = False,
    take_over: bool = False,
    echo: Echo | None = None,
    leave_nothing: bool = False,
    grace_seconds: float = GRACE_SECONDS,
    waiting_seconds: float = WAITING_SECONDS,
) -> Iterator[Holder]:
    """Hold a job folder's lock during a ``with`` block.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    wait : bool
        Wait until the current holder ends instead of giving up.
    take_over : bool
        Take the lock from the current holder even if it is alive.
    echo : callable
        Called with a line that names the holder, when waiting begins.
    leave_nothing : bool
        Remove the lock at the end, instead of noting that it is free. All who use it must say so.
    grace_seconds : float
        How long a killed holder may take to disappear.
    waiting_seconds : float
        Pause between checks of the lock while waiting.

    Raises
    ------
    BadInput
        If another run holds the lock; the message names it.
    """
    me = Holder.here()
    # Other hosts take a holder without a heartbeat for dead, so write one before taking the lock.
    _beat_once(store, me)
    try:
        generation = _acquire(store, me, wait, take_over, echo, grace_seconds, waiting_seconds)
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
        # A failing store must not hide why the run ended. Without the release, others see from the
        # missing process or heartbeat that the lock is free.
        with suppress(LatentscaleError):
            _release(store, generation, me, leave_nothing=leave_nothing)
            store.remove(f"heartbeats/{me.attempt}.json")


def _acquire(
    store: ObjectStore,
    me: Holder,
    wait: bool,
    take_over: bool,
    echo: Echo | None,
    grace_seconds: float,
    waiting_seconds: float,
) -> int:
    begun = time.monotonic()
    waiting_for: Holder | None = None
    silence = _Silence()
    while True:
        lock = read_lock(store)
        holder = lock.holder
        if holder is not None and holder.attempt == me.attempt:
            return lock.generation  # the store listed it late
        if (
            holder is None
            or lock.released
            or take_over
            or not (check_liveness(store, holder).alive or _beats(store, holder, me))
            or silence.is_long(store, holder)
        ):
            mine = lock.generation + 1
            key = _key(mine)
            if time.monotonic() - begun > HEARTBEAT_SECONDS:
                _beat_once(store, me)  # the first one is too old after a long wait
            created = store.create(key, json.dumps(asdict(me)).encode())
            if created and store.create(key, b"{}"):
                if store.create(key, b"[]"):
                    raise BadInput(
                        f"{store.url}: this store overwrites objects that should only be created "
                        "if absent, so it can't lock jobs; use another store, or a newer driver"
                    )
                store.remove(key)  # another process removed ours meanwhile
            # Other runs may have taken the lock since it was read, or removed it.
            if created and _read_holder(store, mine) == me and _succeeds(store, lock, mine):
                return mine
            take_over = False
        elif time.monotonic() - begun >= grace_seconds:
            if not wait:
                who = f"process {holder.pid} on {holder.host}"
                raise Held(
                    f"{store.url}: {who} is running this job; "
                    "use --wait to wait for it or --take-over to take its place",
                    who,
                )
            if echo is not None and holder != waiting_for:
                echo(f"waiting for process {holder.pid} on {holder.host}, which runs this job")
                waiting_for = holder
            time.sleep(waiting_seconds)
        time.sleep(grace_seconds / 4)


def _succeeds(store: ObjectStore, before: Lock, mine: int) -> bool:
    """Return whether a lock is the newest, and follows the one that was there before."""
    if read_lock(store).generation != mine:
        return False
    if before.holder is None or _read_holder(store, before.generation) == before.holder:
        return True
    store.remove(_key(mine))  # that one has ended, and another process holds its number
    return False


def _release(store: ObjectStore, generation: int, me: Holder, *, leave_nothing: bool) -> None:
    if leave_nothing:
        with suppress(LatentscaleError):
            _remove(store, generation, me)
            return
        if _read_holder(store, generation) != me:
            return  # it was removed, though the store's answer was lost
    store.create(_release_key(generation), b"")


def _remove(store: ObjectStore, generation: int, me: Holder) -> None:
    """Remove a lock that is held, with what processes left that were killed."""
    lock = read_lock(store)
    if lock.generation != generation or lock.holder != me:
        return  # another process has taken it over
    for earlier in _generations({key.removeprefix("lock/") for key in store.keys("lock")}):
        if earlier < generation:
            store.remove(f"heartbeats/{_read_holder(store, earlier).attempt}.json")
            store.remove(_release_key(earlier))
            store.remove(_key(earlier))
    for key in store.keys("heartbeats"):
        beaten = _read_heartbeat(store, key)
        if beaten is not None and time.time() - beaten > STALE_SECONDS:
            store.remove(key)
    if _read_holder(store, generation) == me:
        store.remove(_key(generation))  # last: until then no other process begins


def _beats(store: ObjectStore, holder: Holder, me: Holder) -> bool:
    """Return whether a holder elsewhere has a young heartbeat by the clock of the store.

    The store writes down when it got theirs and ours, so neither machine's clock matters.
    """
    if holder.is_here():
        return False
    _beat_once(store, me)
    theirs, ours = (store.written_at(f"heartbeats/{h.attempt}.json") for h in (holder, me))
    return theirs is not None and ours is not None and ours - theirs < STALE_SECONDS


class _Silence:
    """How long a holder elsewhere hasn't written its heartbeat, by this machine's clock alone.

    A heartbeat says the time of the holder's clock, which may be hours ahead.
    """

    def __init__(self) -> None:
        self._last: tuple[Holder, float | None] | None = None
        self._since = 0.0

    def is_long(self, store: ObjectStore, holder: Holder) -> bool:
        if holder == UNKNOWN or holder.is_here():
            return False
        found, now = (holder, _last_heartbeat(store, holder)), time.monotonic()
        if found != self._last:
            self._last, self._since = found, now
        return now - self._since >= STALE_SECONDS


def refuse_if_running(store: ObjectStore) -> None:
    """Raise if a job is running. Another process may still start it a moment later.

    Raises
    ------
    BadInput
        If the holder of the job's lock is alive; the message names it.
    """
    lock = read_lock(store)
    if lock.holder is not None and not lock.released:
        liveness = check_liveness(store, lock.holder)
        if liveness.alive:
            raise BadInput(
                f"{store.url}: {liveness.evidence} is running this job; wait for it, or end it "
                "with latentscale cancel"
            )


def read_lock(store: ObjectStore) -> Lock:
    """Return the state of a job folder's lock."""
    keys = {key.removeprefix("lock/") for key in store.keys("lock")}
    generation = max(_generations(keys), default=0)
    if generation == 0:
        return Lock(0, None, released=True)
    released = f"{generation:06d}.released" in keys
    return Lock(generation, _read_holder(store, generation), released)


def read_holders(store: ObjectStore) -> list[Holder]:
    """Return all holders of a job folder's lock so far, in order."""
    keys = {key.removeprefix("lock/") for key in store.keys("lock")}
    return [_read_holder(store, generation) for generation in sorted(_generations(keys))]


def _generations(keys: set[str]) -> set[int]:
    # A lost lock whose release is still there has been taken: the next run must not use its number.
    return {int(match[1]) for key in keys if (match := _LOCK.fullmatch(key))}


def release_key(store: ObjectStore) -> str:
    """Return the key of the empty object with which the current holder will release the lock."""
    return _release_key(read_lock(store).generation)


def _key(generation: int) -> str:
    return f"lock/{generation:06d}.json"


def _release_key(generation: int) -> str:
    return f"lock/{generation:06d}.released"


def _read_holder(store: ObjectStore, generation: int) -> Holder:
    try:
        holder = Holder(**json.loads(store.read(_key(generation))))
        # The attempt id is checked because it becomes part of other objects' keys.
        known = isinstance(holder.pid, int) and isinstance(holder.pid_space, str)
        known = known and isinstance(holder.start_ticks, int)
        whole = known and _ATTEMPT.fullmatch(holder.attempt)
    except (ValueError, TypeError, FileNotFoundError):
        # The lock may be half written at this moment, so it isn't free.
        return UNKNOWN
    return holder if whole else UNKNOWN


def check_liveness(store: ObjectStore, holder: Holder) -> Liveness:
    """Return whether the holder of a lock that wasn't released is alive."""
    who = f"process {holder.pid} on {holder.host}"
    age = _heartbeat_age(store, holder)
    if holder == UNKNOWN:
        return Liveness(True, "a lock that can't be read", age)
    if holder.is_here():
        if holder.is_gone():
            return Liveness(False, f"{who} is gone", age)
        # A process that is suspended, or can't reach the store, still holds the lock.
        stale = age is not None and age >= STALE_SECONDS
        return Liveness(True, f"{who}, without a heartbeat for {age:.0f} s" if stale else who, age)
    if age is None:
        return Liveness(False, f"{who} has no heartbeat", age)
    alive = age < STALE_SECONDS
    return Liveness(alive, who if alive else f"{who} has had no heartbeat for {age:.0f} s", age)


def _heartbeat_age(store: ObjectStore, holder: Holder) -> float | None:
    beaten = _last_heartbeat(store, holder)
    return None if beaten is None else time.time() - beaten


def _last_heartbeat(store: ObjectStore, holder: Holder) -> float | None:
    """Return the time of a holder's last heartbeat, by its own clock; None without one."""
    return _read_heartbeat(store, f"heartbeats/{holder.attempt}.json")


def _read_heartbeat(store: ObjectStore, key: str) -> float | None:
    try:
        return float(json.loads(store.read(key))["time"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _beat(store: ObjectStore, me: Holder, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_SECONDS):
        with suppress(LatentscaleError):  # one failure is harmless: the next beat may get through
            _beat_once(store, me)


def _beat_once(store: ObjectStore, me: Holder) -> None:
    store.write(f"heartbeats/{me.attempt}.json", json.dumps({"time": time.time()}).encode())
