"""Garbage collection at the end of a job.

Two things go once the results are written: what was stored under keys that the job no longer has,
and temporary results, which only other stages read. A temporary result leaves a small record of
what it cost in its place, ``collected.json``, written before anything is removed. So wherever a
collection is cut short, a stage has its result, or its record, or both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import NOTHING_SPENT, add_costs, lasting_parts
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.storage.artifacts import SPENT, Cost, create_marker, read_marker
from latentscale_pipeline.storage.objects import ObjectStore

COLLECTED = "collected"
"""Name of the record that a temporary result leaves."""


def has_garbage(work: Work, arrays: Iterable[str]) -> bool:
    """Tell whether :func:`collect_job` would remove anything."""
    superseded = next(_superseded(work, tuple(arrays)), None)
    return superseded is not None or any(True for _ in _removable(work))


def collect_job(work: Work, arrays: Iterable[str]) -> None:
    """Remove what a finished job no longer needs.

    Parameters
    ----------
    work : Work
        The job. Its results are written.
    arrays : iterable of str
        Where the arrays are that the results point to; they stay.
    """
    for folder in list(_superseded(work, tuple(arrays))):
        work.store.remove_all(folder)
    for stage, keys in list(_removable(work)):
        folder = work.folder(stage)
        record_collected(work.store, folder, stage_spending(work.store, stage, folder))
        # Markers first: a part without its objects would look damaged, one without a marker absent.
        for key in keys:
            if key.endswith(".json"):
                work.store.remove(key)
        for inside in work.store.folders(folder):
            work.store.remove_all(f"{folder}/{inside}")
        for key in work.store.keys(folder):
            if key != f"{folder}/{COLLECTED}.json":
                work.store.remove(key)


def _superseded(work: Work, arrays: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders of stages, or of keys, that the job no longer has."""
    current = {work.folder(stage) for stage in work.stages}
    for name in work.store.folders("stages"):
        for key in work.store.folders(f"stages/{name}"):
            folder = f"stages/{name}/{key}"
            if folder not in current and not any(a.startswith(f"{folder}/") for a in arrays):
                yield folder


def _removable(work: Work) -> Iterator[tuple[Stage, list[str]]]:
    """Yield temporary stages of which more than the record is there, with the keys of the rest."""
    for stage in work.stages:
        if stage.temporary:
            record = f"{work.folder(stage)}/{COLLECTED}.json"
            keys = [key for key in work.store.keys(work.folder(stage)) if key != record]
            if keys:
                yield stage, keys


def record_collected(store: ObjectStore, folder: str, spent: Mapping[str, Any]) -> None:
    """Record that a temporary result isn't needed any more, and what it cost."""
    cost = Cost(spent["seconds"], spent["peak_memory_bytes"], spent["tasks_at_once"])
    create_marker(store, f"{folder}/{COLLECTED}", COLLECTED, {SPENT: dict(spent)}, {}, cost)


def stage_spending(store: ObjectStore, stage: Stage, folder: str) -> dict[str, Any]:
    """Add up what a stage cost: seconds, tasks, and the most memory and tasks at once."""
    parts = lasting_parts(folder, stage)
    markers = [marker for part in parts if (marker := read_marker(store, part))]
    if not markers:
        record = read_marker(store, f"{folder}/{COLLECTED}")
        return dict(NOTHING_SPENT if record is None else record.values[SPENT])
    if stage.advance is not None:
        return dict(markers[-1].values[SPENT])
    return add_costs([marker.cost for marker in markers])
