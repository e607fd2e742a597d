"""Verify a job: every stored byte against its marker.

A run compares sizes only, and checks bytes when it reads them; a finished job isn't read again. So
this is how damage is found before somebody opens an array.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.storage.artifacts import (
    Artifact,
    CorruptResult,
    check_bytes,
    need_marker,
)
from latentscale_pipeline.storage.objects import ObjectStore

_FOLDER = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")


@dataclass(frozen=True)
class JobVerification:
    """What was found: files and bytes that were read, and one line for each that is bad.

    ``finished`` says whether the job has results; what an unfinished one lacks isn't damage.
    """

    files: int
    size: int
    finished: bool
    problems: tuple[str, ...]


def verify_job(store: ObjectStore, progress: Progress = silent) -> JobVerification:
    """Read every object of a job's planned stages and compare it with its marker.

    Nothing is changed: that is left to a run, which knows how to compute it again.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    progress : callable
        ``progress(parts read, parts in all)``.

    Raises
    ------
    BadInput
        If the plan can't be read.
    """
    finished = store.exists("results.json")
    problems = check_documents(store, finished)
    parts: list[str] = []
    for stage in _planned(store):
        there, lacking = _parts(store, stage, finished)
        parts += there
        problems += [_missing(store, f"{part}.json") for part in lacking]
    files, size = len(parts), 0
    for done, part in enumerate(parts, start=1):
        try:
            marker: Artifact = need_marker(store, part)
            files += len(marker.objects)
            size += check_bytes(marker)
        except CorruptResult as damage:
            problems.append(store.locate(damage.problem))
        progress(done, len(parts))
    return JobVerification(files, size, finished, tuple(problems))


def _planned(store: ObjectStore) -> list[Mapping[str, Any]]:
    try:
        stages = json.loads(store.read("plan.json"))["stages"]
        named = [(stage["stage"], stage["key"], int(stage["partitions"])) for stage in stages]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        raise BadInput(
            f"{store.locate('plan.json')}: not the plan of a job; run the job again to write it"
        ) from None
    for name, key, _ in named:
        if not _FOLDER.fullmatch(name) or not _FOLDER.fullmatch(key):
            raise BadInput(f"{store.locate('plan.json')}: {name!r} is no stage's name")
    return list(stages)


def _parts(
    store: ObjectStore, stage: Mapping[str, Any], finished: bool
) -> tuple[list[str], list[str]]:
    """List the parts of a stage that have a marker, and those that lack one.

    A temporary result that was removed has left a record. The states that an iterated stage leaves
    beside its result are of use only if that is damaged, and are checked then.
    """
    folder = f"stages/{stage['stage']}/{stage['key']}"
    there = [key.removesuffix(".json") for key in store.keys(folder) if key.endswith(".json")]
    if f"{folder}/collected" in there and f"{folder}/result" not in there:
        return [f"{folder}/collected"], []
    if _iterated(stage) and f"{folder}/result" in there:
        there = [f"{folder}/result"]
    return there, [part for part in _expected(stage, folder, finished) if part not in there]


def _expected(stage: Mapping[str, Any], folder: str, finished: bool) -> Iterator[str]:
    if finished:
        yield f"{folder}/result"
        if stage["partitions"] > 1 and not _iterated(stage):
            yield from (f"{folder}/part-{index:05d}" for index in range(stage["partitions"]))


def _iterated(stage: Mapping[str, Any]) -> bool:
    return bool(stage.get("depends_on", {}).get("iterated"))


def check_documents(store: ObjectStore, finished: bool) -> list[str]:
    """Return a line for each document beside the stages that is missing or can't be read."""
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
