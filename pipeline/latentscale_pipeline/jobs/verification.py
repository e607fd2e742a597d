"""Verify a job: check every stored byte against its marker.

A run compares only the sizes of existing results, and checks the bytes that it reads. Damage to a
finished job would stay unnoticed until an array is opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from latentscale_pipeline.corpus.verification import Verification
from latentscale_pipeline.engine.collection import PARTS
from latentscale_pipeline.engine.inspection import COLLECTED, GONE
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.stored_plan import read_plan, stage_folder
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.storage.artifacts import (
    Artifact,
    CorruptResult,
    check_bytes,
    need_marker,
    read_marker,
)
from latentscale_pipeline.storage.objects import ObjectStore

_FOLDER = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")


def verify_job(store: ObjectStore, progress: Progress = silent) -> Verification:
    """Read every object of a job's planned stages and compare it with its marker.

    Nothing is changed: a run repairs damage by recomputing. What an unfinished job hasn't computed
    yet isn't damage.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    progress : callable
        ``progress(parts read, total parts)``.

    Raises
    ------
    BadInput
        If the plan can't be read.
    """
    finished = store.exists("results.json")
    problems = check_documents(store, finished)
    parts: list[tuple[str, Collection[str]]] = []
    for stage in _planned_stages(store):
        there, lacking, gone = _parts(store, stage, finished)
        parts += [(part, gone) for part in there]
        problems += [_missing(store, f"{part}.json") for part in lacking]
    files, size = len(parts), 0
    for done, (part, gone) in enumerate(parts, start=1):
        try:
            marker: Artifact = need_marker(store, part)
            files += len(marker.objects.keys() - set(gone))
            size += check_bytes(marker, gone)
        except CorruptResult as damage:
            problems.append(store.locate(damage.problem))
        progress(done, len(parts))
    return Verification(files, size, tuple(problems))


def _planned_stages(store: ObjectStore) -> list[Mapping[str, Any]]:
    plan, place = read_plan(store), store.locate("plan.json")
    if not plan:
        raise BadInput(f"{place}: not the plan of a job; run the job again to rewrite it")
    for stage in plan["stages"]:
        if not _FOLDER.fullmatch(stage["stage"]) or not _FOLDER.fullmatch(stage["key"]):
            raise BadInput(f"{place}: {stage['stage']!r} isn't the name of a stage")
    return list(plan["stages"])


def _parts(
    store: ObjectStore, stage: Mapping[str, Any], finished: bool
) -> tuple[list[str], list[str], Collection[str]]:
    """List a stage's parts that have a marker, those that lack one, and its removed arrays.

    Temporary results that were removed have left a record. The states of an iterated stage are
    needed only if its result is damaged, and are checked only then.
    """
    folder = stage_folder(stage)
    there = [key.removesuffix(".json") for key in store.keys(folder) if key.endswith(".json")]
    record = read_marker(store, f"{folder}/{COLLECTED}")
    if record is not None and f"{folder}/result" not in there:
        return [record.part], [], ()
    if _iterated(stage) and f"{folder}/result" in there:
        there = [f"{folder}/result"]
    expected = _expected(stage, folder, finished)
    if record is not None and not record.values.get(PARTS):
        expected = [f"{folder}/result"]
    gone = () if record is None else record.values.get(GONE, ())
    return there, [part for part in expected if part not in there], gone


def _expected(stage: Mapping[str, Any], folder: str, finished: bool) -> Iterable[str]:
    if finished:
        yield f"{folder}/result"
        if stage["partitions"] > 1 and not _iterated(stage):
            yield from (f"{folder}/part-{index:05d}" for index in range(stage["partitions"]))


def _iterated(stage: Mapping[str, Any]) -> bool:
    return bool(stage.get("depends_on", {}).get("iterated"))


def check_documents(store: ObjectStore, finished: bool) -> list[str]:
    """Return a line for each document of the job that is missing or can't be read."""
    names = ["config.json", "plan.json", *(["results.json"] if finished else [])]
    problems = [problem for name in names if (problem := _unreadable(store, name))]
    if finished and not store.exists("report.html"):
        problems.append(_missing(store, "report.html"))
    return problems


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
