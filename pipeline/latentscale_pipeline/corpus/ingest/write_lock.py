"""The write lock: one process at a time writes a corpus.

Zarr fixes the keys of an array's shards, so two processes that write the same corpus would write
the same objects. Each therefore holds a lock below ``writing/`` while it writes, and removes it at
its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.progress import Echo
from latentscale_pipeline.storage.lock import Held, hold_lock
from latentscale_pipeline.storage.objects import ObjectStore

WRITING = "writing"
"""Folder of a corpus that holds the lock."""


def are_of_a_write_lock(keys: Iterable[str]) -> bool:
    """Return whether all objects of a folder are those of a write lock."""
    return all(key.startswith((f"{WRITING}/lock/", f"{WRITING}/heartbeats/")) for key in keys)


@contextmanager
def hold_write_lock(
    store: ObjectStore, *, wait: bool = False, echo: Echo | None = None
) -> Iterator[None]:
    """Keep other processes from writing a corpus during a ``with`` block.

    Parameters
    ----------
    store : ObjectStore
        The corpus.
    wait : bool
        Wait until another process has ended, instead of giving up.
    echo : callable, optional
        Called with a line when waiting begins.

    Raises
    ------
    Incomplete
        If another process writes the corpus.
    """
    place = store.child(WRITING)

    def tell(line: str) -> None:
        if echo is not None:
            echo(f"{store.url}: waiting for another process, which writes it")

    try:
        with hold_lock(place, wait=wait, echo=tell, leave_nothing=True):
            yield
    except Held as held:
        raise Incomplete(
            f"{store.url}: {held.holder} is writing it; run the same command again once that has "
            "ended"
        ) from None
    finally:
        for folder in ("lock", "heartbeats", ""):
            place.child(folder).remove_empty_folder()
