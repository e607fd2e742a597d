"""Garbage collection: remove the temporary data of stages once nothing reads it any more.

Once a stage has its result, the parts that only its ``finalise`` reads are removed; once every
stage that needs it is done, so are its states, and the arrays, or the whole result, that only other
stages read. A finished job also removes results under keys that it no longer uses.

Before anything is removed, a small record is written, ``collected.json``, with the cost of the
stage and the names of the arrays that may be missing. So if a collection is interrupted, each stage
has its result, its record, or both. The next run goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from latentscale_pipeline.engine.inspection import COLLECTED, GONE, list_stages
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import NOTHING_SPENT, add_costs, lasting_parts
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.storage.artifacts import (
    SPENT,
    CorruptResult,
    Cost,
    create_marker,
    read_marker,
    remove_parts,
)
from latentscale_pipeline.storage.objects import ObjectStore, run_requests

PARTS = "parts"
"""Key in the record of whether parts stay with the result."""


def has_garbage(work: Work, arrays: Iterable[str]) -> bool:
    """Return whether :func:`collect_job` would remove anything."""
    listed = list_stages(work.store)
    superseded = any(True for _ in _superseded(work, listed, frozenset(arrays)))
    return superseded or any(
        _removable(stage, work.folder(stage), listed.get(work.folder(stage), ()), read=True)
        for stage in work.stages
    )


def collect_job(work: Work, arrays: Iterable[str]) -> None:
    """Remove data that a finished job no longer needs.

    Parameters
    ----------
    work : Work
        The job. Its results have been written.
    arrays : iterable of str
        Keys of the arrays that the results refer to; they are kept.
    """
    listed = list_stages(work.store)
    for folder in _superseded(work, listed, frozenset(arrays)):
        work.store.remove_all(folder)
    for stage in work.stages:
        _collect(work, stage, listed.get(work.folder(stage), ()), read=True)


def collect_behind(
    work: Work,
    stage: Stage,
    is_done: Callable[[Stage], bool],
    there: Collection[str] | None = None,
) -> list[Stage]:
    """Remove temporary data that nothing reads any more now that a stage is done.

    Parameters
    ----------
    work : Work
        The job.
    stage : Stage
        The stage that is done.
    is_done : callable
        Whether a stage of the job is done.
    there : collection of str, optional
        Keys of all objects in the stage's folder, if they have just been listed.

    Returns
    -------
    list of Stage
        The stages whose data have been read by all that need them.
    """
    done = [s for s in work.stages if s is stage or (s.name in stage.needs and is_done(s))]
    behind = [other for other in done if all(map(is_done, work.readers(other)))]
    for other in [*behind, *([] if stage in behind else [stage])]:
        listed = there if other is stage else None
        keys = work.store.keys(work.folder(other)) if listed is None else listed
        _collect(work, other, keys, read=other in behind)
    return behind


def _collect(work: Work, stage: Stage, there: Collection[str], *, read: bool) -> None:
    """Remove the temporary data of a stage that is done.

    ``there`` has the keys of all its objects. If ``read`` is false, other stages will still read
    its result.
    """
    store, folder = work.store, work.folder(stage)
    going = _removable(stage, folder, there, read=read)
    if not going:
        return
    gone = _gone_arrays(stage, folder, _removable(stage, folder, there, read=True))
    record_collected(store, folder, stage_spending(store, stage, folder), gone, stage)
    # The marker of the result first: without it no other job copies the stage.
    result = f"{folder}/result.json"
    if result in going:
        store.remove(result)
    staying = [f"{folder}/{COLLECTED}.json", *(key for key in there if key not in going)]
    remove_parts(store, folder, going - {result}, staying)


def _superseded(work: Work, listed: Iterable[str], arrays: Collection[str]) -> Iterator[str]:
    """Yield those of the listed folders that the job no longer uses."""
    current = {work.folder(stage) for stage in work.stages}
    for folder in listed:
        if folder not in current and not any(a.startswith(f"{folder}/") for a in arrays):
            yield folder


def _removable(stage: Stage, folder: str, there: Iterable[str], *, read: bool) -> frozenset[str]:
    """Return the removable ones of the objects in a stage's folder."""
    return frozenset(key for key in there if not _stays(stage, key[len(folder) + 1 :], read=read))


def _stays(stage: Stage, inside: str, *, read: bool) -> bool:
    """Return whether an object of a stage that is done is kept, by its key in its folder."""
    if inside == f"{COLLECTED}.json":
        return True
    if not read:
        # A result that turns out to be damaged is made again from the last state.
        last = stage.advance is not None or inside.endswith(".log")
        return last or _is_of_result(inside, parts=stage.keeps_parts or stage.lasting_parts)
    if stage.temporary == "result" or inside.endswith(".log"):
        return stage.temporary != "result"
    if not _is_of_result(inside, parts=stage.keeps_parts):
        return False
    name = inside.rpartition("/")[2].removesuffix(".npy")
    return inside.endswith(".json") or (stage.temporary == "parts" and name not in stage.passing)


def _is_of_result(inside: str, *, parts: bool) -> bool:
    return inside.startswith("result.") or (parts and inside.startswith("part-"))


def _gone_arrays(stage: Stage, folder: str, keys: Iterable[str]) -> list[str]:
    """Return the names of removed arrays whose markers are kept."""
    inside = [key[len(folder) + 1 :] for key in keys if key.endswith(".npy")]
    lasting = [key for key in inside if _is_of_result(key, parts=stage.keeps_parts)]
    return sorted({key.rpartition("/")[2].removesuffix(".npy") for key in lasting})


def record_collected(
    store: ObjectStore,
    folder: str,
    spent: Mapping[str, Any],
    gone: Sequence[str] = (),
    stage: Stage | None = None,
) -> None:
    """Record that a stage's temporary data may be removed, and what the stage cost."""
    record = f"{folder}/{COLLECTED}"
    cost = Cost(spent["seconds"], spent["peak_memory_bytes"], spent["tasks_at_once"])
    values = {SPENT: dict(spent), GONE: list(gone), PARTS: stage is not None and stage.keeps_parts}
    try:
        create_marker(store, record, COLLECTED, values, {}, cost)
    except CorruptResult:  # one is there, damaged
        store.remove(f"{record}.json")
        create_marker(store, record, COLLECTED, values, {}, cost)


def stage_spending(store: ObjectStore, stage: Stage, folder: str) -> dict[str, Any]:
    """Add up the cost of a stage: seconds, tasks, and the maximum memory and concurrent tasks."""
    record = read_marker(store, f"{folder}/{COLLECTED}")
    if record is not None:
        return dict(record.values[SPENT])
    parts = lasting_parts(folder, stage)
    if stage.advance is not None:
        last = read_marker(store, parts[-1])
        return dict(NOTHING_SPENT if last is None else last.values[SPENT])

    def cost(part: str) -> Cost | None:
        marker = read_marker(store, part)
        return None if marker is None else marker.cost

    costs = [each for each in run_requests(store, cost, parts) if each is not None]
    return add_costs(costs) if costs else dict(NOTHING_SPENT)
