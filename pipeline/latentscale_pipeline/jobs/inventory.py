"""The inventory of a finished job: every file that it must have, with size and checksum.

It is ``inventory.json`` in the job's folder. A run writes it last, and removes it before anything
is recomputed. It lists the documents, the markers of the planned stages and the arrays that these
name, and the records of runs: locks, events and submissions. What a finished job can do without
isn't listed: heartbeats, logs of failed tries, the states of iterated stages, and events of runs
that were killed or lost their lock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.collection import PARTS
from latentscale_pipeline.engine.inspection import COLLECTED, GONE, group_by_stage
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.jobs.stored_plan import read_plan, stage_folder
from latentscale_pipeline.storage.artifacts import (
    CorruptResult,
    describe_object,
    parse_marker,
    read_marker,
)
from latentscale_pipeline.storage.canonical import digest
from latentscale_pipeline.storage.objects import ObjectStore, run_requests

INVENTORY_KEY = "inventory.json"
SCHEMA = "latentscale.inventory/1"

DOCUMENTS = (
    *("config.json", "config.yaml", "plan.json"),
    *("provenance.json", "report.html", "results.json"),
)
"""The documents of a finished job."""

Files = Mapping[str, Mapping[str, Any]]
"""Key, size and XXH3-64 of each file, as markers describe their objects, by key."""

_NAME = r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]"
_FOLDER = re.compile(_NAME)
_KEY = re.compile(rf"{_NAME}(/{_NAME})*")
_RECORDS = re.compile(r"events/[^/]+\.jsonl|lock/\d+\.\w+|submissions/\d+\.(json|cancelled)")


def read_inventory(store: ObjectStore) -> Files | None:
    """Return the files that a finished job must have.

    Returns
    -------
    mapping or None
        None if the job isn't finished, or was finished by a version that wrote no inventory.

    Raises
    ------
    CorruptResult
        If the inventory is damaged, or is missing though the job's provenance names it.
    """
    try:
        data = store.read(INVENTORY_KEY)
    except FileNotFoundError:
        if store.exists("results.json") and _is_named(store):
            raise CorruptResult(INVENTORY_KEY, f"{INVENTORY_KEY} is missing") from None
        return None
    try:
        document = json.loads(data)
        recorded = document.pop("digest")
        files = {file["key"]: file for file in document["files"]}
        # A manipulated inventory must not refer to files outside the job's folder.
        whole = digest(document) == recorded and all(map(_KEY.fullmatch, files))
    except (ValueError, KeyError, AttributeError, TypeError):
        whole = False
    if not whole:
        raise CorruptResult(INVENTORY_KEY, f"{INVENTORY_KEY} is damaged")
    return files


def is_as_listed(store: ObjectStore, key: str) -> bool:
    """Return whether a file is there with the size and checksum of the inventory."""
    try:
        listed = (read_inventory(store) or {}).get(key)
        return listed is not None and describe_object(key, store.read(key)) == listed
    except (CorruptResult, FileNotFoundError):
        return False


def _is_named(store: ObjectStore) -> bool:
    try:
        return bool(json.loads(store.read("provenance.json"))["inventory"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False


def write_inventory(store: ObjectStore, to_come: Collection[str] = ()) -> None:
    """List the files of a job that has just been finished; the caller holds the job's lock.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    to_come : collection of str
        Keys of empty files that will be written after the inventory.

    Raises
    ------
    Incomplete
        If a marker was damaged since the stage was done.
    """
    # What is listed already may have been damaged since: only a run that removed the inventory
    # has written everything anew.
    known = read_inventory(store) or {} if store.exists(INVENTORY_KEY) else {}
    sizes = store.sizes()
    kept = [
        key
        for key in sizes
        if key in DOCUMENTS or (_RECORDS.fullmatch(key) and not _may_grow(store, key))
    ]
    files = dict(
        zip(
            kept,
            run_requests(store, lambda key: _known_or_read(store, key, known), kept),
            strict=True,
        )
    )
    files |= {key: describe_object(key, b"") for key in to_come}
    files |= _stage_files(store, sizes)
    _write(store, files)


def refresh_inventory(store: ObjectStore, keys: Iterable[str]) -> None:
    """Enter files in the inventory that a command has rewritten; nothing else is looked at."""
    try:
        files = read_inventory(store)
    except CorruptResult:
        return  # verify tells it
    changed = [key for key in keys if files is not None and key in files]
    if files is not None and changed:
        _write(store, {**files, **{key: _known_or_read(store, key, {}) for key in changed}})


def _write(store: ObjectStore, files: Files) -> None:
    document = {"schema": SCHEMA, "files": [files[key] for key in sorted(files)]}
    document["digest"] = digest(document)
    store.write_checked(INVENTORY_KEY, json.dumps(document, indent=1).encode())


def _may_grow(store: ObjectStore, key: str) -> bool:
    """Return whether a run may still write to a record: one whose place another run has taken."""
    return key.startswith("events/") and b'"event": "run_ended"' not in store.read(key)


def _known_or_read(store: ObjectStore, key: str, known: Files) -> Mapping[str, Any]:
    return known[key] if key in known else describe_object(key, store.read(key))


def _stage_files(store: ObjectStore, sizes: Mapping[str, int]) -> Files:
    """Describe the markers of all planned stages and the arrays that these name."""

    def describe(part: str, gone: Collection[str]) -> list[Mapping[str, Any]]:
        data = store.read(f"{part}.json")
        marker = parse_marker(store, part, data)
        if marker is None:
            raise Incomplete(
                f"{store.locate(part)}.json is damaged; check this disk, then run the same command "
                "again with --verify"
            )
        there = [
            described
            for name, described in marker.objects.items()
            if name not in gone or described["key"] in sizes
        ]
        arrays = [{name: file[name] for name in ("key", "size", "xxh3")} for file in there]
        return [describe_object(f"{part}.json", data), *arrays]

    listed = group_by_stage(sizes)

    def find(stage: Mapping[str, Any]) -> list[tuple[str, Collection[str]]]:
        keys = listed.get(stage_folder(stage), ())
        there, _, gone = stage_parts(store, stage, keys, finished=True)
        return [(part, gone) for part in there]

    parts = [part for found in run_requests(store, find, planned_folders(store)) for part in found]
    described = run_requests(store, lambda part: describe(*part), parts)
    return {file["key"]: file for files in described for file in files}


def planned_folders(store: ObjectStore) -> list[Mapping[str, Any]]:
    """Return the stages of a job's stored plan.

    Raises
    ------
    BadInput
        If the plan can't be read, or a stage's name isn't that of a folder.
    """
    plan, place = read_plan(store), store.locate("plan.json")
    if not plan:
        raise BadInput(f"{place}: not the plan of a job; run the job again to rewrite it")
    for stage in plan["stages"]:
        if not _FOLDER.fullmatch(stage["stage"]) or not _FOLDER.fullmatch(stage["key"]):
            raise BadInput(f"{place}: {stage['stage']!r} isn't the name of a stage")
    return list(plan["stages"])


def stage_parts(
    store: ObjectStore, stage: Mapping[str, Any], keys: Collection[str], *, finished: bool
) -> tuple[list[str], list[str], Collection[str]]:
    """List a stage's parts that have a marker, those that lack one, and its removed arrays.

    ``keys`` are those of all objects in the stage's folder.
    Temporary results that were removed have left a record. The states of an iterated stage are
    needed only if its result is damaged, and are left out if the result is there.
    """
    folder = stage_folder(stage)
    there = sorted(key.removesuffix(".json") for key in keys if key.endswith(".json"))
    collected = f"{folder}/{COLLECTED}"
    record = read_marker(store, collected) if collected in there else None
    if record is not None and f"{folder}/result" not in there:
        return [record.part], [], ()
    if _iterated(stage) and f"{folder}/result" in there:
        there = [f"{folder}/result", *([record.part] if record is not None else [])]
    expected = _expected(stage, folder, finished)
    if record is not None and not record.values.get(PARTS):
        expected = iter([f"{folder}/result"])
    gone = () if record is None else record.values.get(GONE, ())
    return there, [part for part in expected if part not in there], gone


def _expected(stage: Mapping[str, Any], folder: str, finished: bool) -> Iterator[str]:
    if finished:
        yield f"{folder}/result"
        if stage["partitions"] > 1 and not _iterated(stage):
            yield from (f"{folder}/part-{index:05d}" for index in range(stage["partitions"]))


def _iterated(stage: Mapping[str, Any]) -> bool:
    return bool(stage.get("depends_on", {}).get("iterated"))
