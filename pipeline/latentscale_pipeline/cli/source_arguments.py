"""What is read of sources that a command line names instead of a job file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from latentscale_pipeline.cli.job_arguments import is_job_file
from latentscale_pipeline.cli.options import ON_INVALID
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.corpus.formats.container import UnknownField
from latentscale_pipeline.corpus.ingest.sources import FieldChoice
from latentscale_pipeline.corpus.manifest import MANIFEST_KEY
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options

SOURCE_OPTIONS = (
    click.option("--labels", metavar="FILE", help="File with one label per row of the source."),
    click.option("--ids", metavar="FILE", help="File with one id per row of the source."),
    click.option("--texts", metavar="FILE", help="File with one text per row of the source."),
    click.option("--vectors", metavar="NAME", help="Column or array with the vectors."),
    click.option("--ids-column", metavar="NAME", help="Column with the ids."),
    click.option("--labels-column", metavar="NAME", help="Column with the labels."),
    click.option("--texts-column", metavar="NAME", help="Column with the texts."),
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
"""Options of a command that takes sources; :class:`SourceChoice` takes their values."""

NAMES = ("ids", "labels", "texts")

SOURCE_NAMES = (
    *(
        f"{prefix}{name}"
        for prefix in ("", "reference_")
        for name in ("vectors", *NAMES, *(f"{name}_column" for name in NAMES))
    ),
    "on_invalid",
)
"""Names of their values."""


@dataclass(frozen=True)
class SourceChoice:
    """What is read of the sources of a corpus and of its reference.

    Attributes
    ----------
    corpus, reference : FieldChoice
        Their fields and files.
    of_reference : str
        An option for the reference alone that was given; empty without one.
    """

    corpus: FieldChoice
    reference: FieldChoice
    of_reference: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SourceChoice:
        """Return the choice that the values of :data:`SOURCE_OPTIONS` make."""
        vectors, columns = _fields(values, "")
        own, others = _fields(values, "reference_")
        corpus, reference = (
            FieldChoice(
                *fields,
                {name: file for name in NAMES if (file := values[f"{prefix}{name}"]) is not None},
                values["on_invalid"],
            )
            for prefix, fields in (
                ("", (vectors, columns)),
                ("reference_", (vectors if own is None else own, columns | others)),
            )
        )
        of_reference = next(
            (name for name in SOURCE_NAMES if name.startswith("reference") and values[name]), ""
        )
        return cls(corpus, reference, of_reference and f"--{of_reference.replace('_', '-')}")

    def sources_of(
        self, given: Sequence[str], config: JobConfig
    ) -> dict[Role, tuple[list[str], FieldChoice]]:
        """Return the sources of each corpus of a job, and what is read of them.

        Parameters
        ----------
        given : sequence of str
            What the command was given: a job file, or sources that are one corpus.
        config : JobConfig
            The job that it describes.

        Raises
        ------
        click.UsageError
            If a job file is given what only sources can have.
        """
        _refuse_misplaced(given, config, self)
        found: dict[Role, tuple[list[str], FieldChoice]] = {}
        sources = [config.corpus] if is_job_file(given[0]) else list(given)
        corpus, reference = self.corpus, self.reference
        with storage_options(config.storage_options):
            if config.reference is not None and reference and _is_corpus(config.reference):
                # A corpus has its vectors, ids and labels where every corpus has them.
                reference = FieldChoice(files=reference.files)
            if len(sources) == 1 and corpus and _is_corpus(sources[0]):
                # Columns are those of the reference, if it has some; a corpus has no invalid rows.
                theirs = config.reference is not None and (reference.vectors or reference.columns)
                own = FieldChoice(files=corpus.files)
                corpus = own if theirs else replace(corpus, on_invalid="error")
        found["corpus"] = (sources, corpus)
        if config.reference is not None:
            found["reference"] = ([config.reference], reference)
        return found


@contextmanager
def suggesting_options_of(role: Role) -> Iterator[None]:
    """Suggest the options of the reference where it hasn't the fields of the corpus."""
    try:
        yield
    except UnknownField as error:
        if role != "reference":
            raise
        raise BadInput(
            f"{error} for the reference alone, with --reference-vectors, "
            "--reference-labels-column, --reference-ids-column or --reference-texts-column"
        ) from None


def _fields(values: Mapping[str, Any], prefix: str) -> tuple[str | None, dict[str, str]]:
    """Return the field with the vectors and the columns that options name."""
    columns = {name: values[f"{prefix}{name}_column"] for name in NAMES}
    named = {name: column for name, column in columns.items() if column is not None}
    return values[f"{prefix}vectors"], named


def _is_corpus(source: str) -> bool:
    return ObjectStore(source).exists(MANIFEST_KEY)


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
        raise click.UsageError(f"{choice.of_reference} needs --reference")
