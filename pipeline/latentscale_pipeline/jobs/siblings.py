"""What other jobs below the same output have, found without reading their plans.

Every job that stores its plan enters the keys of its stages, and of parts that don't depend on the
rest, into an index beside the jobs: ``.index/<key>/<job>``, which says where in the job the result
is, or will be. So a key is looked up by listing one small folder, however many jobs there are. An
entry promises nothing: whoever follows it checks what is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from latentscale_pipeline.engine.keys import part_keys
from latentscale_pipeline.engine.task import part_key
from latentscale_pipeline.engine.work import Earlier
from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.stored_plan import planned_code, planned_stages, read_plan
from latentscale_pipeline.storage.objects import ObjectStore

INDEX = ".index"
"""Folder of the index, below the output."""

EARLIER_JOBS = 8
"""Jobs of the same name that are asked why a stage is computed again."""

WRITERS = 16
"""Entries that are written at once: a remote store is slow to answer."""

_PART = re.compile(r"stages/([^/]+)/[0-9a-f]{16}/(?:part-\d{5,}|result)")


def enter_in_index(plan: Plan) -> None:
    """Let other jobs find what this one has, or will have."""
    output = ObjectStore(plan.config.output)
    entries: dict[str, str] = {}
    for stage in plan.stages:
        folder = f"{stage.folder}/{plan.keys[stage.name]}"
        entries[plan.keys[stage.name]] = folder
        for index, key in enumerate(part_keys(stage)):
            entries[key] = part_key(folder, stage, index)

    def enter(entry: tuple[str, str]) -> None:
        key, place = entry
        output.write(f"{INDEX}/{key}/{plan.id}", place.encode(), durable=False)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(enter, entries.items()))


def find_caches(plan: Plan) -> Callable[[str], list[ObjectStore]]:
    """Return a function that finds the other jobs with a stage of a given key."""
    output = ObjectStore(plan.config.output)
    return lambda key: [output.child(job) for job in _jobs(output, key) if job != plan.id]


def find_part_caches(plan: Plan) -> Callable[[str], Iterator[tuple[ObjectStore, str]]]:
    """Return a function that finds the other jobs with a part of a given key, and its place."""
    output = ObjectStore(plan.config.output)
    names = {stage.name for stage in plan.stages if stage.part_inputs}

    def find(key: str) -> Iterator[tuple[ObjectStore, str]]:
        for job in _jobs(output, key):
            try:
                place = output.read(f"{INDEX}/{key}/{job}").decode("utf-8", "replace")
            except (OSError, LatentscaleError):
                continue
            match = _PART.fullmatch(place)
            # An entry from elsewhere must not lead out of its job.
            if job != plan.id and match and match[1] in names:
                yield output.child(job), place

    return find


def _jobs(output: ObjectStore, key: str) -> list[str]:
    try:
        return [entry.rpartition("/")[2] for entry in output.keys(f"{INDEX}/{key}")]
    except (OSError, LatentscaleError):
        return []


def find_earlier(plan: Plan) -> Callable[[str], Iterable[Earlier]]:
    """Return a function that finds what a stage depended on in earlier plans.

    In this job first, then in a few jobs of the same name. Plans are read when they're asked for.
    """
    output = ObjectStore(plan.config.output)
    named = plan.id.rpartition("-")[0]

    @cache
    def others() -> list[str]:
        same = [name for name in output.folders() if name.rpartition("-")[0] == named]
        return [name for name in same if name != plan.id][:EARLIER_JOBS]

    @cache
    def stored(job: str) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Mapping[str, str]]]:
        try:
            found = read_plan(output.child(job))
        except (OSError, LatentscaleError):
            found = {}
        return planned_stages(found), planned_code(found)

    def jobs() -> Iterator[str]:
        yield plan.id
        yield from others()

    def find(name: str) -> Iterator[Earlier]:
        for job in jobs():
            stages, code = stored(job)
            stage = stages.get(name, {})
            same = job == plan.id and stage.get("key") == plan.keys.get(name)
            dependences = stage.get("before" if same else "depends_on")
            if isinstance(dependences, dict):
                yield Earlier("the last run" if job == plan.id else job, dependences, code)

    return find
