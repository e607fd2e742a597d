"""Find and copy results that other jobs have under the same key.

Another job's folder may be private, damaged, or changing while it is read. If anything goes wrong
there, the result is computed here instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from latentscale_pipeline.engine.collection import record_collected
from latentscale_pipeline.engine.inspection import COLLECTED, Inspection
from latentscale_pipeline.engine.keys import part_keys
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import FINALISE, part_key
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.storage.artifacts import SPENT, read_marker, reuse_part, reuse_stage
from latentscale_pipeline.storage.objects import ObjectStore


def reuse_result(work: Work, stage: Stage, *, copy: bool, all_arrays: bool) -> str | None:
    """Find another job that has a stage's result, and return that job's name.

    Parameters
    ----------
    work : Work
        The stages and where they live.
    stage : Stage
        The stage.
    copy : bool
        Copy the result and check every byte. Otherwise only markers and sizes are checked, so a
        flipped bit isn't noticed.
    all_arrays : bool
        Whether no array may be missing. Otherwise one that the other job has removed may.
    """
    folder = work.folder(stage)
    for cache in work.caches(work.keys[stage.name]):
        try:
            inspection = Inspection(cache, folder, repair=False, collected=not all_arrays)
            there = _seems_whole(inspection)
        except (OSError, LatentscaleError):
            continue
        if there and (not copy or reuse_stage(cache, work.store, folder, inspection.gone)):
            return _job_name(cache)
    return None


def reuse_parts(work: Work, stage: Stage, waiting: Iterable[int], *, copy: bool) -> list[int]:
    """Find the missing parts of a stage that other jobs have, and return their indices.

    Parameters
    ----------
    work : Work
        The stages and where they live.
    stage : Stage
        The stage.
    waiting : iterable of int
        The missing parts.
    copy : bool
        As for :func:`reuse_result`.
    """
    if not stage.part_inputs:
        return []
    keys, folder = part_keys(stage), work.folder(stage)

    def reuse(index: int) -> bool:
        caches = work.part_caches(keys[index])
        if copy:
            target = part_key(folder, stage, index)
            return any(reuse_part(cache, part, work.store, target) for cache, part in caches)
        return any(_part_seems_whole(cache, part) for cache, part in caches)

    return [index for index in waiting if index != FINALISE and reuse(index)]


def reuse_record(work: Work, stage: Stage, *, copy: bool) -> str | None:
    """Find another job that computed and then removed a temporary result; return its name.

    With ``copy``, the cost of the result in that job is recorded here.
    """
    part = f"{work.folder(stage)}/{COLLECTED}"
    for cache in work.caches(work.keys[stage.name]):
        try:
            record = read_marker(cache, part)
        except (OSError, LatentscaleError):
            continue
        if record is not None:
            if copy:
                record_collected(work.store, work.folder(stage), record.values[SPENT])
            return _job_name(cache)
    return None


def _job_name(cache: ObjectStore) -> str:
    return cache.url.rpartition("/")[2]


def _seems_whole(inspection: Inspection) -> bool:
    parts = [key.removesuffix(".json") for key in inspection.sizes if key.endswith(".json")]
    return f"{inspection.folder}/result" in parts and all(inspection.has(part) for part in parts)


def _part_seems_whole(cache: ObjectStore, part: str) -> bool:
    try:
        marker = read_marker(cache, part)
        return marker is not None and all(
            cache.exists(described["key"]) for described in marker.objects.values()
        )
    except (OSError, LatentscaleError):
        return False
