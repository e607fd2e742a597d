"""Verify a job: check every file that it must have, byte by byte.

A finished job has an inventory of its files. Of an unfinished job, and of one that an earlier
version finished, the parts that the plan names are checked against their markers.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from latentscale_pipeline.corpus.verification import Verification
from latentscale_pipeline.jobs.inventory import (
    INVENTORY_KEY,
    Files,
    planned_folders,
    read_inventory,
    stage_parts,
)
from latentscale_pipeline.jobs.stored_plan import stage_folder
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.storage.artifacts import (
    CorruptResult,
    StoredArtifact,
    check_bytes,
    need_marker,
    read_checked,
)
from latentscale_pipeline.storage.objects import ObjectStore


def verify_job(store: ObjectStore, progress: Progress = silent) -> Verification:
    """Read every file that a job must have and compare it with its inventory, or its marker.

    Nothing is changed: a run repairs damage by recomputing. What an unfinished job hasn't computed
    yet isn't damage.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    progress : callable
        ``progress(files or parts read, total)``.

    Raises
    ------
    BadInput
        If there is no inventory, and the plan can't be read.
    """
    try:
        files = read_inventory(store)
    except CorruptResult as damage:
        found = _verify_parts(store, progress)
        problems = (store.locate(damage.problem), *found.problems)
        return Verification(found.objects, found.size, problems)
    return _verify_parts(store, progress) if files is None else _verify(store, files, progress)


def find_damage(store: ObjectStore, *, thorough: bool) -> list[str]:
    """Compare a finished job with its inventory; return one line for each damaged file.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    thorough : bool
        Compare checksums; else only sizes, with one listing of the folder.

    Returns
    -------
    list of str
        Empty if the job has no inventory: it isn't finished, or an earlier version finished it.
    """
    try:
        files = read_inventory(store)
    except CorruptResult as damage:
        return [store.locate(damage.problem)]
    if files is None:
        return []
    if thorough:
        return list(_verify(store, files, silent).problems)
    sizes = store.sizes()
    return [
        f"{store.locate(key)} has {sizes[key]} bytes, not {file['size']}"
        if key in sizes
        else f"{store.locate(key)} is missing"
        for key, file in files.items()
        if sizes.get(key) != file["size"]
    ]


def is_barely_begun(store: ObjectStore) -> bool:
    """Return whether a job's folder holds nothing that was computed yet."""
    results = (INVENTORY_KEY, "results.json", "report.html", "stages")
    return not any(map(store.exists, results))


def _verify(store: ObjectStore, files: Files, progress: Progress) -> Verification:
    problems: list[str] = []
    size = 0
    for done, (key, file) in enumerate(files.items(), start=1):
        try:
            size += len(read_checked(store, key, file))
        except CorruptResult as damage:
            problems.append(store.locate(damage.problem))
        progress(done, len(files))
    return Verification(len(files), size, tuple(problems))


def _verify_parts(store: ObjectStore, progress: Progress) -> Verification:
    """Compare the parts of a job's planned stages with their markers."""
    finished = store.exists("results.json")
    names = ["config.json", "plan.json", *(["results.json"] if finished else [])]
    problems = [problem for name in names if (problem := _unreadable(store, name))]
    if finished and not store.exists("report.html"):
        problems.append(_missing(store, "report.html"))
    parts: list[tuple[str, Collection[str]]] = []
    for stage in planned_folders(store):
        keys = store.keys(stage_folder(stage))
        there, lacking, gone = stage_parts(store, stage, keys, finished=finished)
        parts += [(part, gone) for part in there]
        problems += [_missing(store, f"{part}.json") for part in lacking]
    files, size = len(names) + finished + len(parts), 0
    for done, (part, gone) in enumerate(parts, start=1):
        try:
            marker: StoredArtifact = need_marker(store, part)
            files += len(marker.objects.keys() - set(gone))
            size += check_bytes(marker, gone)
        except CorruptResult as damage:
            problems.append(store.locate(damage.problem))
        progress(done, len(parts))
    return Verification(files, size, tuple(problems))


def _unreadable(store: ObjectStore, name: str) -> str | None:
    try:
        json.loads(store.read(name))
    except FileNotFoundError:
        return _missing(store, name)
    except ValueError:
        return f"{store.locate(name)} is damaged"
    return None


def _missing(store: ObjectStore, key: str) -> str:
    return f"{store.locate(key)} is missing"
