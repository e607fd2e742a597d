"""Options that say what is read of sources which a command line names instead of a job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from latentscale_pipeline.cli.job_arguments import is_job_file
from latentscale_pipeline.cli.options import ON_INVALID
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.jobs.sources import JobSources, SourceChoice
from latentscale_pipeline.measures.registry import MEASURES

COLUMN_OPTIONS = (
    click.option("--vectors", metavar="NAME", help="Column or array with the vectors."),
    click.option("--ids-column", metavar="NAME", help="Column with the ids."),
    click.option("--labels-column", metavar="NAME", help="Column with the labels."),
    click.option("--texts-column", metavar="NAME", help="Column with the texts."),
)
"""Options that name what is read of every source."""

SOURCE_OPTIONS = (
    click.option("--labels", metavar="FILE", help="File with one label per row of the source."),
    click.option("--ids", metavar="FILE", help="File with one id per row of the source."),
    click.option("--texts", metavar="FILE", help="File with one text per row of the source."),
    *COLUMN_OPTIONS,
    click.option("--reference-labels", metavar="FILE", help="The same for the reference."),
    click.option("--reference-ids", metavar="FILE", help="The same for the reference."),
    click.option("--reference-texts", metavar="FILE", help="The same for the reference."),
    *(
        click.option(
            f"--reference-{name}", metavar="NAME", help="The same for the reference, if it differs."
        )
        for name in ("vectors", "ids-column", "labels-column", "texts-column")
    ),
    ON_INVALID,
)
"""Options of a command that takes sources; :func:`choose_sources` takes their values."""


def choose_sources(
    given: Sequence[str], config: JobConfig, values: Mapping[str, Any]
) -> JobSources:
    """Return the sources of each corpus of a job, and what is read of them.

    Parameters
    ----------
    given : sequence of str
        What the command was given: a job file, or sources that are one corpus.
    config : JobConfig
        The job that it describes.
    values : mapping
        Values of :data:`SOURCE_OPTIONS`.

    Raises
    ------
    click.UsageError
        If a job file is given what only sources can have.
    """
    choice = SourceChoice.of(values)
    _refuse_misplaced(given, config, choice)
    return choice.sources_of(config, () if is_job_file(given[0]) else given)


def name_option(name: str) -> str:
    """Return the option that sets a value."""
    return f"--{name.replace('_', '-')}"


def _refuse_misplaced(given: Sequence[str], config: JobConfig, choice: SourceChoice) -> None:
    """Refuse what only a source can have: several files, and a choice of what they hold."""
    for name in given[1:]:
        if name in MEASURES and not Path(name).exists():
            raise click.UsageError(
                f"{name} is a measure; list measures with commas, without spaces"
            )
    if any(map(is_job_file, given)):
        if len(given) > 1:
            raise click.UsageError(f"{' '.join(given)}: name one job file, or only sources")
        if choice.corpus or choice.reference:
            raise click.UsageError(
                f"{given[0]}: a job file can't be given labels, ids, columns or --on-invalid; make "
                "the corpus with latentscale ingest, which takes them too, and name it there"
            )
    if config.reference is None and choice.of_reference:
        raise click.UsageError(f"{name_option(choice.of_reference)} needs --reference")
