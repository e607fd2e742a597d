"""Garbage collection at the end of a job.

Once the results are written, two kinds of data are removed: results under keys that the job no
longer uses, and the temporary data of every stage. Temporary are parts and states that only the
stage itself reads, and arrays or whole results that only other stages read. Before anything is
removed, a small record is written, ``collected.json``, with the cost of the stage and the names of
the removed arrays. So if a collection is interrupted, each stage has its result, its record, or
both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from latentscale_pipeline.engine.inspection import COLLECTED, GONE
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import NOTHING_SPENT, add_costs, lasting_parts
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.storage.artifacts import SPENT, Cost, create_marker, read_marker
from latentscale_pipeline.storage.objects import ObjectStore

PARTS = "parts"
"""Key in the record of whether parts stay with the result."""


def has_garbage(work: Work, arrays: Iterable[str]) -> bool:
    """Return whether :func:`collect_job` would remove anything."""
    named = frozenset(arrays)
    return any(_superseded(work, named)) or any(True for _ in _removable(work, named))


def collect_job(work: Work, arrays: Iterable[str]) -> None:
    """Remove data that a finished job no longer needs.

    Parameters
    ----------
    work : Work
        The job. Its results have been written.
    arrays : iterable of str
        Keys of the arrays that the results refer to; they are kept.
    """
    named = frozenset(arrays)
    for folder in list(_superseded(work, named)):
        work.store.remove_all(folder)
    for stage, keys in list(_removable(work, named)):
        folder = work.folder(stage)
        spent = stage_spending(work.store, stage, folder)
        record_collected(work.store, folder, spent, _gone_arrays(stage, folder, keys), stage)
        # Markers first: a marker without its objects would look damaged.
        for key in keys:
            if key.endswith(".json"):
                work.store.remove(key)
        staying = {_top(folder, key) for key in work.store.keys(folder) if key not in keys}
        for inside in work.store.folders(folder):
            if inside not in staying:
                work.store.remove_all(f"{folder}/{inside}")
        for key in work.store.keys(folder):
            if key in keys:
                work.store.remove(key)


def _superseded(work: Work, arrays: Collection[str]) -> Iterator[str]:
    """Yield the folders of stages, or of keys, that the job no longer uses."""
    current = {work.folder(stage) for stage in work.stages}
    for name in work.store.folders("stages"):
        for key in work.store.folders(f"stages/{name}"):
            folder = f"stages/{name}/{key}"
            if folder not in current and not any(a.startswith(f"{folder}/") for a in arrays):
                yield folder


def _removable(work: Work, arrays: Collection[str]) -> Iterator[tuple[Stage, Collection[str]]]:
    """Yield the stages that have removable objects, with the keys of these."""
    for stage in work.stages:
        folder = work.folder(stage)
        keys = {
            key
            for key in work.store.keys(folder)
            if key not in arrays and not _stays(stage, key[len(folder) + 1 :])
        }
        if keys:
            yield stage, keys


def _stays(stage: Stage, inside: str) -> bool:
    """Return whether an object of a finished stage is kept, by its key in the stage's folder."""
    if inside == f"{COLLECTED}.json":
        return True
    if stage.temporary == "result" or inside.endswith(".log"):
        return stage.temporary != "result"
    if not _has_lasting_marker(stage, inside):
        return False
    name = inside.rpartition("/")[2].removesuffix(".npy")
    return inside.endswith(".json") or (stage.temporary == "parts" and name not in stage.passing)


def _has_lasting_marker(stage: Stage, inside: str) -> bool:
    return inside.startswith("result.") or (stage.keeps_parts and inside.startswith("part-"))


def _gone_arrays(stage: Stage, folder: str, keys: Iterable[str]) -> list[str]:
    """Return the names of removed arrays whose markers are kept."""
    inside = [key[len(folder) + 1 :] for key in keys if key.endswith(".npy")]
    lasting = [key for key in inside if _has_lasting_marker(stage, key)]
    return sorted({key.rpartition("/")[2].removesuffix(".npy") for key in lasting})


def _top(folder: str, key: str) -> str:
    return key[len(folder) + 1 :].partition("/")[0]


def record_collected(
    store: ObjectStore,
    folder: str,
    spent: Mapping[str, Any],
    gone: Sequence[str] = (),
    stage: Stage | None = None,
) -> None:
    """Record that a stage's temporary data may be removed, and what the stage cost."""
    cost = Cost(spent["seconds"], spent["peak_memory_bytes"], spent["tasks_at_once"])
    values = {SPENT: dict(spent), GONE: list(gone), PARTS: stage is not None and stage.keeps_parts}
    create_marker(store, f"{folder}/{COLLECTED}", COLLECTED, values, {}, cost)


def stage_spending(store: ObjectStore, stage: Stage, folder: str) -> dict[str, Any]:
    """Add up the cost of a stage: seconds, tasks, and the maximum memory and concurrent tasks."""
    record = read_marker(store, f"{folder}/{COLLECTED}")
    if record is not None:
        return dict(record.values[SPENT])
    parts = lasting_parts(folder, stage)
    markers = [marker for part in parts if (marker := read_marker(store, part))]
    if not markers:
        return dict(NOTHING_SPENT)
    if stage.advance is not None:
        return dict(markers[-1].values[SPENT])
    return add_costs([marker.cost for marker in markers])
