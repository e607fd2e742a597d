"""What a job reads of sources that aren't corpora yet, where a job file can't say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.formats.container import UnknownField
from latentscale_pipeline.corpus.ingest.create import UningestedCorpus, ensure_corpus, find_corpus
from latentscale_pipeline.corpus.ingest.sources import FieldChoice
from latentscale_pipeline.corpus.manifest import MANIFEST_KEY
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.ingestion import runner_for
from latentscale_pipeline.jobs.plan import corpus_sources
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.progress import Echo, Progress
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options
from latentscale_pipeline.views.formatting import counted

SOURCE_TEXTS = ("ids", "labels", "texts")
"""What a row may have besides its vector."""

SOURCE_NAMES = (
    *(
        f"{prefix}{name}"
        for prefix in ("", "reference_")
        for name in ("vectors", *SOURCE_TEXTS, *(f"{name}_column" for name in SOURCE_TEXTS))
    ),
    "on_invalid",
)
"""Names of the values of which :meth:`SourceChoice.of` makes a choice."""

OF_REFERENCE = tuple(
    f"reference_{name}" for name in ("vectors", "labels_column", "ids_column", "texts_column")
)
"""Names of the fields of a reference that differ from those of its corpus."""

JobSources = dict[Role, tuple[list[str], FieldChoice]]
"""Paths or patterns of each corpus of a job, and what is read of them."""


@dataclass(frozen=True)
class SourceChoice:
    """What is read of the sources of a corpus and of its reference.

    Attributes
    ----------
    corpus, reference : FieldChoice
        Their fields and files.
    of_reference : str
        The name of a value for the reference alone that was given; empty without one.
    """

    corpus: FieldChoice
    reference: FieldChoice
    of_reference: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SourceChoice:
        """Return the choice that values by :data:`SOURCE_NAMES` make; None is for none."""
        vectors, columns = _fields(values, "")
        own, others = _fields(values, "reference_")
        # A column of a file beside the corpus is none of a reference without such a file.
        usual = {
            name: column
            for name, column in columns.items()
            if values[name] is None or values[f"reference_{name}"] is not None
        }
        corpus, reference = (
            FieldChoice(
                *fields,
                {
                    name: file
                    for name in SOURCE_TEXTS
                    if (file := values[f"{prefix}{name}"]) is not None
                },
                values["on_invalid"],
            )
            for prefix, fields in (
                ("", (vectors, columns)),
                ("reference_", (vectors if own is None else own, usual | others)),
            )
        )
        of_reference = (name for name in SOURCE_NAMES if name.startswith("reference"))
        return cls(corpus, reference, next((name for name in of_reference if values[name]), ""))

    def sources_of(self, config: JobConfig, patterns: Sequence[str] = ()) -> JobSources:
        """Return the sources of each corpus of a job, and what is read of them.

        Parameters
        ----------
        config : JobConfig
            The job.
        patterns : sequence of str
            JobSources that are its corpus; by default the one that it names.
        """
        sources = list(patterns) or [config.corpus]
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
        found: JobSources = {"corpus": (sources, corpus)}
        if config.reference is not None:
            found["reference"] = ([config.reference], reference)
        return found


def find_corpora(
    config: JobConfig, sources: JobSources | None = None
) -> dict[Role, Corpus | UningestedCorpus]:
    """Return the corpora of a job; what isn't ingested is known from its headers.

    Nothing is written. ``sources`` are those of :meth:`SourceChoice.sources_of`, by default those
    that the job names.

    Raises
    ------
    BadInput, Incomplete
        As :func:`find_corpus`.
    """
    found: dict[Role, Corpus | UningestedCorpus] = {}
    for role, (url, excluded) in corpus_sources(config).items():
        patterns, fields = (sources or {}).get(role, ([url], FieldChoice()))
        found[role] = find_corpus(patterns, config.output, fields=fields).without(excluded)
    return found


def ingest_sources(
    config: JobConfig,
    sources: JobSources,
    progress: Progress,
    echo: Echo | None,
    name_key: Callable[[str], str],
) -> JobConfig:
    """Ingest what a job file can't name: several sources, or a choice of what they hold.

    Parameters
    ----------
    config : JobConfig
        The job.
    sources : mapping
        Of :meth:`SourceChoice.sources_of`.
    progress : callable
        ``progress(rows read, rows in all)``.
    echo : callable or None
        Receives what is to be said of the sources.
    name_key : callable
        Returns how the user writes one of :data:`SOURCE_NAMES`, for messages.

    Returns
    -------
    JobConfig
        The job of the corpora that were made.

    Raises
    ------
    BadInput, Incomplete
        As :func:`ensure_corpus`.
    """
    made = {}
    with storage_options(config.storage_options):
        chosen = {role: s for role, s in sources.items() if s[1] or len(s[0]) > 1}
        for role, (patterns, choice) in list(sources.items())[1:] if "corpus" in chosen else ():
            with _suggesting_own_fields(role, name_key):  # told before a long ingest
                find_corpus(patterns, config.output, fields=choice)
        for role, (patterns, choice) in chosen.items():
            with _suggesting_own_fields(role, name_key):
                run_for = runner_for(config.cluster, progress, echo)
                made[role] = ensure_corpus(
                    patterns, config.output, progress, run_for, fields=choice, echo=echo
                )
    for role, corpus in made.items():
        if echo is not None and (dropped := corpus.manifest.dropped).count:
            rows, first = counted(dropped.count, "row"), dropped.rows[0]
            zero = ", or zero" if sources[role][1].on_invalid == "drop-zero" else ""
            why = f"NaN, infinity, or out of the range of {corpus.dtype}{zero}"
            echo(f"{rows} of the {role} left out ({why}); the first is source row {first}")
    return config.model_copy(update={role: corpus.address for role, corpus in made.items()})


@contextmanager
def _suggesting_own_fields(role: Role, name_key: Callable[[str], str]) -> Iterator[None]:
    """Suggest to name fields of the reference where it hasn't those of the corpus.

    Options in messages are named as the user writes them.
    """
    try:
        yield
    except UnknownField as error:
        if role != "reference":
            raise
        *names, last = map(name_key, OF_REFERENCE)
        raise BadInput(
            f"{error} for the reference alone, with {', '.join(names)} or {last}"
        ) from None
    except BadInput as error:
        prefix = "" if role == "corpus" else "reference_"
        named = re.sub(
            r"--(ids|labels|texts)-column\b",
            lambda found: name_key(f"{prefix}{found[1]}_column"),
            str(error),
        )
        raise BadInput(named) from None


def _fields(values: Mapping[str, Any], prefix: str) -> tuple[str | None, dict[str, str]]:
    """Return the field with the vectors and the columns that values name."""
    columns = {name: values[f"{prefix}{name}_column"] for name in SOURCE_TEXTS}
    named = {name: column for name, column in columns.items() if column is not None}
    return values[f"{prefix}vectors"], named


def _is_corpus(source: str) -> bool:
    return ObjectStore(source).exists(MANIFEST_KEY)
