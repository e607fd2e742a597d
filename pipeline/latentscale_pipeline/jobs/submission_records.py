"""Record the submissions of a job in its folder.

Each submission writes one object: ``submissions/000001.json``, ``submissions/000002.json``, …. It
records the scheduler, the scheduler's id of the driver, and how many runs had held the job's lock
by then; a higher number now means that the driver has started. If the driver was withdrawn before
it started, there is also ``submissions/000001.cancelled``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from latentscale_pipeline.storage.objects import ObjectStore

_KEY = re.compile(r"submissions/(\d{6,})\.json")
_ID = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True)
class Submission:
    """A driver that was submitted to a scheduler.

    Attributes
    ----------
    scheduler : str
        ``slurm`` or ``kubernetes``.
    id : str
        The scheduler's id of the driver.
    place : str
        Namespace or cluster, if there may be several; else empty.
    runs : int
        How many runs had held the job's lock before the submission.
    requeue : bool
        Whether the scheduler restarts it if it dies.
    time : float
        When it was submitted, in seconds since 1970.
    """

    scheduler: str
    id: str
    place: str
    runs: int
    requeue: bool
    time: float

    @property
    def label(self) -> str:
        """Return its name for display."""
        return f"{self.scheduler} job {self.id}"


def record_submission(store: ObjectStore, made: Submission) -> Submission:
    """Record a submitted driver."""
    number = max(_numbers(store.keys("submissions")), default=0) + 1
    while not store.create(_key(number), json.dumps(asdict(made)).encode()):
        number += 1
    return made


def last_submission(store: ObjectStore, keys: Iterable[str] | None = None) -> Submission | None:
    """Return the last submitted driver; None if there is none or it was withdrawn.

    Parameters
    ----------
    store : ObjectStore
        The job's folder.
    keys : iterable of str, optional
        The keys of the folder's objects, if they have been listed already.
    """
    known = set(store.keys("submissions") if keys is None else keys)
    numbers = _numbers(known)
    if not numbers or _withdrawn(max(numbers)) in known:
        return None
    try:
        found = Submission(**json.loads(store.read(_key(max(numbers)))))
        # Both are passed to commands as arguments.
        whole = _ID.fullmatch(found.id) and _ID.fullmatch(found.place or "-")
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return found if whole else None


def withdraw_submission(store: ObjectStore) -> None:
    """Record that the last driver was withdrawn before it started."""
    numbers = _numbers(store.keys("submissions"))
    if numbers:
        store.create(_withdrawn(max(numbers)), b"")


def _numbers(keys: Iterable[str]) -> list[int]:
    return [int(match[1]) for key in keys if (match := _KEY.fullmatch(key))]


def _key(number: int) -> str:
    return f"submissions/{number:06d}.json"


def _withdrawn(number: int) -> str:
    return f"submissions/{number:06d}.cancelled"
