"""``latentscale matrix``: every two of many corpora."""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import has_magic
from itertools import combinations
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from latentscale_pipeline.cli.job_arguments import (
    SETTINGS_OPTIONS,
    is_job_file,
    name_of,
    read_job,
)
from latentscale_pipeline.cli.options import ON_INVALID, QUIET, taking
from latentscale_pipeline.cli.run import ingest_given, plan_job, run_plan
from latentscale_pipeline.cli.source_arguments import COLUMN_OPTIONS
from latentscale_pipeline.compare.matrix import Matrix, Places, format_csv, format_json
from latentscale_pipeline.compare.matrix_report import matrix_lines, matrix_report
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import Plan, measure_sections
from latentscale_pipeline.jobs.shared_scales import read_scales
from latentscale_pipeline.jobs.sources import SOURCE_NAMES, SourceChoice
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.html import format_html
from latentscale_pipeline.storage.canonical import digest, slug
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options
from latentscale_pipeline.views.formatting import printable
from latentscale_pipeline.views.terminal import print_lines

NAME_LENGTH = 200
"""Longest name of a job."""

_NAMED = re.compile(r"([^=/\\:]+)=(.+)")


@click.command(no_args_is_help=True)
@click.argument("given", metavar="[NAME=]SOURCE...", nargs=-1, required=True)
@taking(*SETTINGS_OPTIONS, *COLUMN_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print matrix.json.")
@taking(ON_INVALID, QUIET)
def matrix(
    given: tuple[str, ...], name: str | None, as_json: bool, quiet: bool, **settings: Any
) -> None:
    """Compare every two of many corpora, and say which are near each other.

    A job is run for every two sources, of all their rows and at the same scales, which the first of
    these jobs derives. What one job knows of a corpus, the others use, so temporary data stays
    until the last is done. Unless measures are named they are heat and, where all corpora have
    equally many dimensions, mmd; with --pair heat and alignment. Distances and similarities become
    matrices, with a tree of the corpora. The folder NAME-matrix-… below --output then holds
    report.html, matrix.json and matrix.csv, which has all scores of every two; NAME is corpora
    without --name. A source is named after its file or folder, unless NAME= stands before it.
    Columns, and what is done with invalid rows, are the same for all sources.

    Without -o sampling.method=auto there are no verdicts and no expected ranges, which every job
    would draw samples for.

    \b
    Example:
      latentscale matrix en.npy de.npy fr.npy --name languages
      latentscale matrix old=a.zarr new=b.zarr newest=c.zarr --pair ids --measures alignment
    """
    sources = _named(given)
    name = name or "corpora"
    read = {key: settings.pop(key, None) for key in SOURCE_NAMES}
    plans, jobs = _run(sources, name, settings, SourceChoice.of(read), quiet)
    for plan in plans:  # the temporary data that jobs took from each other can go
        run_plan(plan, quiet=True, verbose=False)
    found = Matrix(list(sources), jobs)
    document = format_json(found)
    with storage_options(plans[0].config.storage_options):
        hashed = digest([plan.id for plan in plans])[:8]
        store = ObjectStore(plans[0].config.output).child(f"{slug(name)}-matrix-{hashed}")
        store.write("matrix.csv", format_csv(found).encode())
        store.write("report.html", format_html(matrix_report(found, name)).encode())
        store.write("matrix.json", document.encode())
    if as_json:
        click.echo(document, nl=False)
        return
    print_lines(Console(), matrix_lines(found))
    click.echo(f"matrices  {store.locate('matrix.json')}")
    click.echo(f"scores    {store.locate('matrix.csv')}")
    click.echo(f"report    {store.locate('report.html')}")


def _usual_measures(*, paired: bool, alike: bool) -> str:
    """Return what is measured if nothing is named, of corpora with equally many dimensions or not.

    Paired rows are those of models, whose coordinates have nothing to do with each other.
    """
    return ",".join(
        name
        for name, section in measure_sections().items()
        if section.of_many
        if (alike or not section.equal_dimensions) and (paired or not section.row_by_row)
    )


def _has_equal_dimensions(plan: Plan) -> bool:
    return len({corpus.d for corpus in plan.corpora.values()}) == 1


def _named(given: Sequence[str]) -> dict[str, str]:
    """Return the sources by their names."""
    pairs = [_name(one) for one in given]
    for _, source in pairs:
        if is_job_file(source):
            raise BadInput(f"{source}: a job file; name the sources of vectors instead")
    counts = Counter(name for name, _ in pairs)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        first, second, *_ = (source for name, source in pairs if name == twice)
        raise BadInput(f"{first} and {second} are both called {twice}; write NAME={second}")
    if len(pairs) < 2:
        raise BadInput("matrix compares every two sources; name at least two")
    return dict(pairs)


def _name(given: str) -> tuple[str, str]:
    """Return the name of a source, and the source."""
    is_there = os.path.exists(given)
    match = None if is_there or has_magic(given) else _NAMED.fullmatch(given)
    if match:
        return match[1], match[2]
    stem = Path(given.partition("?")[0]).stem
    return (name_of(given) if has_magic(given) or not stem else stem), given


def _run(
    sources: Mapping[str, str],
    name: str,
    settings: Mapping[str, Any],
    choice: SourceChoice,
    quiet: bool,
) -> tuple[list[Plan], dict[Places, FinishedJob]]:
    """Run the job of every two sources; return the plans, and the finished jobs by places."""
    names, found, plans = list(sources), dict[Places, FinishedJob](), list[Plan]()
    told = set[int]()
    overrides = ["sampling.method=none", *settings["overrides"]]
    scaled = any(override.startswith("scales_from=") for override in overrides)

    def plan(one: int, other: int) -> Plan:
        config = read_job(
            sources[names[one]],
            overrides,
            reference=sources[names[other]],
            **{key: value for key, value in settings.items() if key != "overrides"},
            name=f"{name}-{names[one]}-{names[other]}"[:NAME_LENGTH],
        )
        known = quiet or {one, other} <= told
        told.update({one, other})
        with _of_both(names[one], names[other]):
            if choice.corpus:
                config = ingest_given(config, choice.sources_of(config), quiet=known)
            return plan_job(config, allow_code=False, quiet=known)

    unnamed = settings["measures"] is None and settings["preset"] is None
    paired = settings["pair"] is not None
    if unnamed:
        settings = {**settings, "measures": _usual_measures(paired=paired, alike=False)}
    # What can't be compared is refused before any work.
    first = [plan(0, other) for other in range(1, len(names))]
    if unnamed and not paired and all(_has_equal_dimensions(each) for each in first):
        settings = {**settings, "measures": _usual_measures(paired=paired, alike=True)}
    every_two = list(combinations(range(len(names)), 2))
    waiting, before = deque(every_two), list[Places]()
    while waiting:
        one, other = waiting.popleft()
        if not quiet:
            number = every_two.index((one, other)) + 1
            said = f"[{number}/{len(every_two)}] {names[one]} against {names[other]}"
            click.echo(printable(said), err=True)
        plans.append(plan(one, other))
        with _of_both(names[one], names[other]):
            finished = run_plan(plans[-1], quiet=True, verbose=False, keep=True)
        used = plans[-1].config.model_dump(mode="json")
        found[one, other] = FinishedJob(finished.store.url, finished.results, used)
        if not scaled and _has_scales(plans[-1].config, finished.store.address):
            overrides, scaled = [*overrides, f"scales_from={finished.store.address}"], True
            waiting.extend(before)  # jobs that derived no scale of their own
        before.append((one, other))
    return plans, {places: found[places] for places in every_two}


@contextmanager
def _of_both(one: str, other: str) -> Iterator[None]:
    """Say of which two corpora a mistake is."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{printable(one)} against {printable(other)}: {error}") from None


def _has_scales(config: JobConfig, folder: str) -> bool:
    """Return whether a finished job derived all scales that others need."""
    try:
        with storage_options(config.storage_options):
            read_scales(config.model_copy(update={"scales_from": folder}))
    except BadInput:
        return False
    return True
