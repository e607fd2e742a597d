"""A registry entry: one evaluated job as a Parquet file with a row per score.

Every row repeats the identification of the job, so that a query over all files of a registry needs
no join: ``select finished, value from 'history/entries/*.parquet' where measure = 'vendi'``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.control_chart import JobOfSeries
from latentscale_pipeline.results.model import Score, Verdict
from latentscale_pipeline.storage.urls import strip_credentials

PARQUET_MISSING = (
    "a history is stored in Parquet, which needs pyarrow; pip install 'latentscale[history]'"
)


@dataclass(frozen=True)
class Entry:
    """A finished job in a registry.

    Attributes
    ----------
    job, name, url : str
        Its id, name and folder, without credentials.
    finished, registered : str
        UTC times in ISO 8601.
    version : str
        Version of the program that computed it.
    corpus_fingerprint, reference_fingerprint : str or None
        Fingerprints of the corpora.
    corpus_rows : int
        Number of rows of the corpus.
    source : str or None
        Where the corpus was read from, without credentials; None in earlier versions.
    seconds, peak_memory_bytes : float or None, int or None
        Total time of all stages, and the peak memory of a process.
    workflow, evaluation, baseline : str or None
        The workflow that ran it, the key of that evaluation, and the job that it was compared with;
        None for a job that was added by hand.
    passed : bool or None
        Whether its gates passed; None if there were none.
    failures, warnings : str
        The messages of gates that failed, and of those that warned, one line each.
    verdict, verdict_reason : str or None
        The verdict on the baseline or, without one, on the reference, with its reason; None if
        nothing was compared.
    settings : str or None
        The settings of its measures, as JSON; None if they aren't known, as in earlier versions.
    corpus_weighted, reference_weighted : bool or None
        Whether their rows have weights; None if that isn't known, as in earlier versions.
    corpus_dimension, reference_dimension : int or None
        Number of their dimensions; None if that isn't known, as in earlier versions.
    companions : str or None
        Checksum of the labels and weights of its corpora; None for a job that no workflow ran.
    scores : tuple of Score
        Its scores, in the order of its results.
    accepted, rejected : str or None
        Why it was accepted although it changed, or rejected whatever its gates said; None if it
        wasn't. Not stored in the entry.
    """

    job: str
    name: str
    url: str
    finished: str
    registered: str
    version: str
    corpus_fingerprint: str
    reference_fingerprint: str | None
    corpus_rows: int
    source: str | None
    seconds: float | None
    peak_memory_bytes: int | None
    workflow: str | None
    evaluation: str | None
    baseline: str | None
    passed: bool | None
    failures: str
    warnings: str
    verdict: str | None
    verdict_reason: str | None
    settings: str | None
    corpus_weighted: bool | None
    reference_weighted: bool | None
    corpus_dimension: int | None
    reference_dimension: int | None
    companions: str | None
    scores: tuple[Score, ...]
    accepted: str | None = None
    rejected: str | None = None

    @property
    def failed(self) -> bool:
        """Return whether its gates failed and nobody accepted it."""
        return self.passed is False and self.accepted is None

    @property
    def is_usual(self) -> bool:
        """Return whether it may be a baseline, and sets limits."""
        return not self.failed and self.rejected is None

    @property
    def key(self) -> str:
        """Return its key in the registry; the same job and evaluation have the same key."""
        return f"entries/{self.job}{'.' + self.evaluation if self.evaluation else ''}.parquet"


ADDED: Mapping[str, str | None] = {
    "source": None,
    "seconds": None,
    "peak_memory_bytes": None,
    "warnings": "",
    "verdict": None,
    "verdict_reason": None,
    "settings": None,
    "corpus_weighted": None,
    "reference_weighted": None,
    "corpus_dimension": None,
    "reference_dimension": None,
    "companions": None,
}
"""Columns that entries of earlier versions don't have, and what stands for them."""

JOB_COLUMNS = tuple(
    field.name for field in fields(Entry) if field.name not in {"scores", "accepted", "rejected"}
)
"""Columns that describe the job and its evaluation."""

NO_SCORE = Score(measure="none", of="corpus", score="none", value=None).flat()
SCORE_COLUMNS = tuple(NO_SCORE)
"""Columns of a single score, as in ``results.json``; those of its parts are ``expected_…``."""

NUMBERS: Mapping[str, str] = {
    **dict.fromkeys(("scale", "value", "lower", "upper", "sampling_error", "seconds"), "float64"),
    **dict.fromkeys(("corpus_rows", "peak_memory_bytes", "rows", "share_of"), "int64"),
    **dict.fromkeys(("passed", "size_dependent", "corpus_weighted", "reference_weighted"), "bool_"),
    **{name: "float64" for name in SCORE_COLUMNS if name.startswith("expected_")},
    **dict.fromkeys(("corpus_dimension", "reference_dimension", "expected_rows"), "int64"),
    "sampling_freedom": "int64",
    "expected_reason": "string",
}
"""Arrow types of the columns that aren't text."""


def make_entry(
    job: FinishedJob,
    *,
    workflow: str | None = None,
    evaluation: str | None = None,
    baseline: str | None = None,
    companions: str | None = None,
    passed: bool | None = None,
    failures: str = "",
    warnings: str = "",
    verdict: Verdict | None = None,
    scores: Sequence[Score] | None = None,
) -> Entry:
    """Make an entry of a finished job, with the verdict and the ranges of a baseline if given."""
    verdict = verdict or job.results.verdict
    reference = job.corpora.get("reference")
    settings = job.measure_settings
    return Entry(
        job=job.id,
        name=job.name,
        url=strip_credentials(job.url),
        finished=job.finished,
        # Microseconds order the jobs that finished in the same second.
        registered=datetime.now(UTC).isoformat(timespec="microseconds"),
        version=job.version,
        corpus_fingerprint=job.corpora["corpus"].fingerprint,
        reference_fingerprint=None if reference is None else reference.fingerprint,
        corpus_rows=job.corpora["corpus"].n,
        source=strip_credentials(job.source) if job.source else None,
        seconds=job.seconds,
        peak_memory_bytes=job.peak_memory_bytes,
        workflow=workflow,
        evaluation=evaluation,
        baseline=None if baseline is None else strip_credentials(baseline),
        passed=passed,
        failures=failures,
        warnings=warnings,
        verdict=verdict.value if verdict else None,
        verdict_reason=verdict.reason if verdict and verdict.value else None,
        settings=json.dumps(settings, sort_keys=True) if settings else None,
        corpus_weighted=job.corpora["corpus"].weighted,
        reference_weighted=None if reference is None else reference.weighted,
        corpus_dimension=job.corpora["corpus"].d,
        reference_dimension=None if reference is None else reference.d,
        companions=companions,
        scores=tuple(job.scores if scores is None else scores),
    )


def format_gates(entry: Entry) -> str:
    """Say whether the gates of a job passed, and whether it was accepted or rejected."""
    said = [{True: "passed", False: "failed", None: ""}[entry.passed]]
    for word, reason in (("accepted", entry.accepted), ("rejected", entry.rejected)):
        said += [] if reason is None else [f"{word}: {reason}".removesuffix(": ")]
    return ", ".join(filter(None, said))


def last_evaluations(entries: Sequence[Entry], name: str | None = None) -> list[Entry]:
    """Return the entry of every job that was registered last, in the order of the entries.

    Gates that were changed since an earlier evaluation may judge the job otherwise. Entries of the
    workflow that is named go before those of other ones, which have gates of their own.
    """

    def rank(entry: Entry) -> tuple[bool, str]:
        return entry.workflow == name, entry.registered

    last: dict[str, Entry] = {}
    for entry in entries:
        if entry.job not in last or rank(entry) > rank(last[entry.job]):
            last[entry.job] = entry
    return [entry for entry in entries if last[entry.job] is entry]


def in_use(entry: Entry) -> str:
    """Return when a job was last in use: what is added by hand may be older than that."""
    return entry.finished if entry.evaluation is None else entry.registered


def moment_of_use(entry: Entry) -> datetime | None:
    """Return when a job was last in use, in UTC; None if that is unknown."""
    try:
        moment = datetime.fromisoformat(in_use(entry))
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def last_used(entry: Entry) -> str:
    """Format when a job was last in use, in UTC."""
    moment = moment_of_use(entry)
    return in_use(entry) if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def limiting(entries: Sequence[Entry], name: str | None = None) -> list[Entry]:
    """Return the entries that set limits for the next job, the oldest first.

    A failed or rejected job sets none. An accepted one changed what is usual, so those before it
    set none. Of a job that was evaluated several times the last evaluation counts.
    """
    last = last_evaluations(entries, name)
    changes = (
        place for place, entry in enumerate(last) if entry.accepted is not None and entry.is_usual
    )
    return [entry for entry in last[max(changes, default=0) :] if entry.is_usual]


def series_of(entry: Entry) -> str:
    """Return the name of the series that a job belongs to."""
    return entry.workflow or entry.name


def job_of_series(entry: Entry) -> JobOfSeries:
    """Return what control limits need of an entry."""
    return JobOfSeries(
        entry.corpus_rows,
        entry.reference_fingerprint,
        entry.scores,
        json.loads(entry.settings or "{}"),
        {"corpus": entry.corpus_weighted, "reference": entry.reference_weighted},
        {"corpus": entry.corpus_dimension, "reference": entry.reference_dimension},
    )


def dump_entry(entry: Entry) -> bytes:
    """Return an entry as a Parquet file."""
    pyarrow, parquet = _arrow()
    job = {name: getattr(entry, name) for name in JOB_COLUMNS}
    # A job without scores is stored as one row whose score columns are null.
    scores = [score.flat() for score in entry.scores] or [dict.fromkeys(SCORE_COLUMNS)]
    types = {name: getattr(pyarrow, NUMBERS.get(name, "string"))() for name in {**job, **scores[0]}}
    rows = [{**job, **score} for score in scores]
    stream = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(types)), stream)
    return stream.getvalue()


def load_entry(data: bytes, where: str) -> Entry:
    """Parse an entry.

    Raises
    ------
    BadInput
        If it isn't an entry.
    """
    pyarrow, parquet = _arrow()
    try:
        # A command that ends at once may end before threads of Arrow have begun, which aborts it.
        file = parquet.ParquetFile(io.BytesIO(data), pre_buffer=False)
        rows: list[dict[str, Any]] = file.read(use_threads=False).to_pylist()
        known = [name for name in JOB_COLUMNS if name in rows[0] or name not in ADDED]
        job: dict[str, Any] = {**ADDED} | {name: rows[0][name] for name in known}
        scores = tuple(Score.unflatten(row) for row in rows if row["measure"] is not None)
        return Entry(**job, scores=scores)
    except (pyarrow.ArrowException, ValueError, KeyError, TypeError, IndexError, OSError):
        raise BadInput(
            f"{where}: not an entry of a history; the file is damaged, remove it and add the job "
            "again"
        ) from None


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput(PARQUET_MISSING) from None
    return pyarrow, parquet
