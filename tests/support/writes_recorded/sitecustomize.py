"""Record what every process writes to object stores and removes from them.

Python imports this module when it starts, if its folder is in ``PYTHONPATH``; so do the workers of
a run. Each process appends to a file of its own below ``LATENTSCALE_RECORD_WRITES``: time, bytes
and path of every object that it wrote, and of what it removed, as -1 bytes.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("LATENTSCALE_RECORD_WRITES")


def _record(store: Any, key: str, size: int) -> None:
    path = Path(FOLDER or ".") / f"{os.getpid()}.tsv"
    with path.open("a") as file:
        file.write(f"{time.time():.6f}\t{size}\t{store.locate(key)}\n")


def _recording_writes(write: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(store: Any, key: str, data: Any, *arguments: Any, **options: Any) -> Any:
        written = write(store, key, data, *arguments, **options)
        _record(store, key, len(data))
        return written

    return recorded


def _recording_removals(remove: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(store: Any, key: str = "", *arguments: Any) -> Any:
        _record(store, key, -1)
        return remove(store, key, *arguments)

    return recorded


if FOLDER is not None:
    from latentscale_pipeline.storage.objects import ObjectStore

    ObjectStore._locally = _recording_writes(ObjectStore._locally)  # type: ignore[method-assign]
    ObjectStore.remove = _recording_removals(ObjectStore.remove)  # type: ignore[method-assign]
    ObjectStore.remove_all = _recording_removals(  # type: ignore[method-assign]
        ObjectStore.remove_all
    )
