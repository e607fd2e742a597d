"""Find the results of other jobs below the same output, without reading their plans.

When a job stores its plan, it adds the keys of its stages, and of parts with keys of their own, to
an index beside the jobs. An entry ``.index/<key>/<job>`` holds the place of the result within the
job. So a lookup lists one small folder, however many jobs there are. An entry doesn't guarantee
that the result exists; the reader checks it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from latentscale_pipeline.engine.keys import part_keys
from latentscale_pipeline.engine.task import part_key
from latentscale_pipeline.engine.work import EarlierPlan
from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.stored_plan import planned_code, planned_stages, read_plan
from latentscale_pipeline.storage.objects import ObjectStore, run_requests

INDEX = ".index"
"""Folder of the index below the output."""

EARLIER_JOBS = 8
"""How many jobs of the same name are searched for the reason why a stage is recomputed."""

_PART = re.compile(r"stages/([^/]+)/[0-9a-f]{16}/(?:part-\d{5,}|result)")


def enter_in_index(plan: Plan) -> None:
    """Add the stages and parts of this job to the index, so that other jobs can find them."""
    output = ObjectStore(plan.config.output)
    entries: dict[str, str] = {}
    for stage in plan.stages:
        folder = f"{stage.folder}/{plan.keys[stage.name]}"
        entries[plan.keys[stage.name]] = folder
        for index, key in enumerate(part_keys(stage)):
            entries[key] = part_key(folder, stage, index)

    def enter(entry: tuple[str, str]) -> None:
        key, place = entry
        # Others need not find what is here, and the folder may be that of another user.
        with contextlib.suppress(BadInput):
            output.write(f"{INDEX}/{key}/{plan.id}", place.encode(), durable=False)

    run_requests(output, enter, entries.items())


def find_stored_results(plan: Plan) -> Callable[[str], list[ObjectStore]]:
    """Return a function that finds the other jobs that have a stage with a given key."""
    output = ObjectStore(plan.config.output)

    @cache
    def jobs() -> Mapping[str, list[str]]:
        keys = list(plan.keys.values())
        return dict(zip(keys, run_requests(output, partial(_jobs, output), keys), strict=True))

    return lambda key: [output.child(job) for job in jobs()[key] if job != plan.id]


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
            # Entries aren't trusted: they must not lead out of their job's folder.
            if job != plan.id and match and match[1] in names:
                yield output.child(job), place

    return find


def _jobs(output: ObjectStore, key: str) -> list[str]:
    try:
        return [entry.rpartition("/")[2] for entry in output.keys(f"{INDEX}/{key}")]
    except (OSError, LatentscaleError):
        return []


def find_earlier(plan: Plan) -> Callable[[str], Iterable[EarlierPlan]]:
    """Return a function that finds what a stage depended on in earlier plans.

    It searches this job first, then a few jobs of the same name. Plans are read on demand.
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

    def find(name: str) -> Iterator[EarlierPlan]:
        for job in jobs():
            stages, code = stored(job)
            stage = stages.get(name, {})
            same = job == plan.id and stage.get("key") == plan.keys.get(name)
            dependencies = stage.get("before" if same else "depends_on")
            if isinstance(dependencies, dict):
                yield EarlierPlan("the last run" if job == plan.id else job, dependencies, code)

    return find
