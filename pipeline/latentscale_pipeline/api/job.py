"""Run a whole job from Python: all measures, the verdict and the report."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from multiprocessing import current_process
from numbers import Real
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.array_types import Int64Array
from latentscale.vendi.scores import order_name
from latentscale_pipeline.api.comparison import JobComparison
from latentscale_pipeline.api.findings import Tabular, data_frame, draw_table
from latentscale_pipeline.compare.jobs import compare
from latentscale_pipeline.compare.rows_changed import count_changes
from latentscale_pipeline.config.job import resolve_config
from latentscale_pipeline.config.section import nearest
from latentscale_pipeline.corpus.corpus import open_corpus
from latentscale_pipeline.corpus.formats.container import STRINGS
from latentscale_pipeline.corpus.in_memory import hold_rows, is_missing
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.sidecars import (
    MAY_BE_MISSING,
    beginning_of,
    format_whole_numbers,
)
from latentscale_pipeline.corpus.ingest.sources import source_key
from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.jobs.run import run_job
from latentscale_pipeline.jobs.sources import (
    SOURCE_NAMES,
    SOURCE_TEXTS,
    SourceChoice,
    ingest_sources,
)
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.finished_job import read_job as read_finished_job
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.progress import silent
from latentscale_pipeline.report import job_report
from latentscale_pipeline.report.scores import title_apart
from latentscale_pipeline.report.terminal_summary import headlines
from latentscale_pipeline.report.verdict import format_verdict
from latentscale_pipeline.results.model import Corpus, Results, Score, Verdict
from latentscale_pipeline.rows.neighbours import find_neighbours
from latentscale_pipeline.rows.query import FoundRows, find_rows
from latentscale_pipeline.storage.canonical import digest
from latentscale_pipeline.storage.lock import Held
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options
from latentscale_pipeline.views.scores import format_range, format_summarised
from latentscale_pipeline.views.svg import draw_panels

Texts = ArrayLike | str | Path
"""Ids, labels or texts: one per row, or the file that has them."""

LONGEST_LINE = 100_000
"""Characters of a text up to which texts are handed over as lines, and not as an array."""

FIELDS = tuple(name for name in SOURCE_NAMES if name.removeprefix("reference_") not in SOURCE_TEXTS)
"""Arguments that say what is read of a file."""

AN_ARRAY = "an array"
"""What stands as the source of rows that were given as an array."""


class Scores(Sequence[Score], Tabular):
    """The scores of a job, in the order of its measures."""

    def __init__(self, scores: Sequence[Score]) -> None:
        self._scores = tuple(scores)

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, place: int) -> Score: ...
    @overload
    def __getitem__(self, place: slice) -> Scores: ...
    def __getitem__(self, place: int | slice) -> Score | Scores:
        """Return a score, or some of them."""
        found = self._scores[place]
        return found if isinstance(found, Score) else Scores(found)

    def where(self, **wanted: object) -> Scores:
        """Return the scores whose fields have the given values, such as ``of="pair"``."""
        unknown = [name for name in wanted if name not in Score.model_fields]
        if unknown:
            fields = ", ".join(Score.model_fields)
            raise ValueError(f"scores have no field {unknown[0]}; it can be {fields}")
        measure = wanted.get("measure")
        if measure is not None and measure not in [*MEASURES]:  # which may be a list
            raise ValueError(f"there is no measure {measure}{nearest(str(measure), MEASURES)}")
        if "of" in wanted and wanted["of"] not in ("corpus", "reference", "pair"):
            raise ValueError(f"of must be 'corpus', 'reference' or 'pair', not {wanted['of']!r}")
        # Orders are texts in results, because infinity is one.
        order = wanted.get("order")
        if isinstance(order, Real):
            wanted["order"] = order_name(float(order))
        return Scores(
            [s for s in self if all(getattr(s, name) == value for name, value in wanted.items())]
        )

    def records(self) -> list[dict[str, Any]]:
        """Return one flat mapping per score; those of ``expected`` are named ``expected_…``."""
        return [score.flat() for score in self]

    def __repr__(self) -> str:
        return "\n".join(f"{title_apart(score)}: {format_summarised(score)}" for score in self)


class Rows:
    """Rows of a corpus of a job, with what it knows of each."""

    def __init__(self, found: FoundRows) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found.numbers)

    @property
    def numbers(self) -> Int64Array:
        """Return the numbers of the rows, in their order."""
        return self._found.numbers

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._found.names)

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping per row."""
        return [
            dict(zip(table, row, strict=True))
            for table in self._found.tables()
            for row in zip(*table.values(), strict=True)
        ]

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per row; needs pandas."""
        return data_frame(self.records(), self.columns)

    @property
    def joined(self) -> str | None:
        """Say how the rows of the table were joined with those of the corpus, if there is one."""
        table = self._found.rows.table
        return None if table is None else table.describe()

    def __repr__(self) -> str:
        said = f"{len(self):,} rows: {', '.join(self.columns)}"
        return said if self.joined is None else f"{said}\n{self.joined}"


@dataclass(frozen=True, repr=False)
class JobResults:
    """The results of a finished job.

    Attributes
    ----------
    folder : str
        The job's folder, with ``results.json``, ``report.html`` and ``config.yaml``.
    document : Results
        The content of ``results.json``.
    """

    folder: str
    document: Results

    @property
    def verdict(self) -> Verdict | None:
        """Return whether the corpus differs from the reference by more than chance."""
        return self.document.verdict

    @property
    def scores(self) -> Scores:
        """Return all scores."""
        return Scores(self.document.scores)

    @property
    def corpora(self) -> Mapping[str, Corpus]:
        """Return the measured corpora by role."""
        return {str(role): corpus for role, corpus in self.document.corpora.by_role().items()}

    def rows(
        self,
        only: str | None = None,
        *,
        of: Role | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        new_since: JobResults | str | Path | None = None,
        table: str | Path | None = None,
    ) -> Rows:
        """Return rows of the corpus or the reference, as ``latentscale rows`` does.

        Parameters
        ----------
        only : str, optional
            A reason to look at rows, such as ``near-duplicates`` or ``leaks``.
        of, columns, where, sort, limit
            As the options of the command; ``columns`` is a sequence.
        new_since : JobResults or str or Path, optional
            Another job, whose corpus doesn't have these rows, by their ids.
        table : str or Path, optional
            Files with more columns for ``columns``, ``where`` and ``sort``, as for ``--table``.

        Raises
        ------
        ValueError
            If a name is unknown, or the condition isn't valid, or ids aren't known.
        """
        for name, text in (("only", only), ("where", where), ("sort", sort)):
            if text is not None and not isinstance(text, str):
                raise ValueError(f"{name} must be a text, not {text!r}")
        if columns is not None:
            given = [columns] if isinstance(columns, str) else _listed(columns)
            if isinstance(columns, str) or not all(isinstance(name, str) for name in given):
                raise ValueError(f"columns must be a list of names, such as [{given[0]!r}]")
            columns = given
        whole = isinstance(limit, int | np.integer) and not isinstance(limit, bool)
        if limit is not None and (not whole or limit < 0):
            raise ValueError(f"limit must be a whole number of at least 0, not {limit!r}")
        if table is not None and not isinstance(table, str | Path):
            raise ValueError(
                f"table must be a file, not a {type(table).__name__}; write one, as "
                "frame.to_parquet('table.parquet')"
            )
        asked: dict[str, Any] = {
            "of": of,
            "columns": columns,
            "where": where,
            "sort": sort,
            "limit": limit,
            "baseline": None if new_since is None else _opened(new_since)._finished(),
            "table": None if table is None else str(table),
        }
        try:
            return Rows(find_rows(FinishedJob(self.folder, self.document), only=only, **asked))
        except BadInput as error:
            raise ValueError(str(error)) from None

    def neighbours(
        self, *, of: Role = "corpus", with_self: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the nearest rows of every row, as ``latentscale export-graph`` writes them.

        Parameters
        ----------
        of : str
            The corpus or the reference.
        with_self : bool
            Name every row as its own first neighbour, at distance 0, as umap-learn does.

        Returns
        -------
        tuple of ndarray, shape (n, k), or (n, k + 1) with the rows themselves
            Row numbers and distances (float32), nearest first.

        Raises
        ------
        ValueError
            If the job didn't find neighbours.
        """
        try:
            found = find_neighbours(FinishedJob(self.folder, self.document), of)
            return found.read(with_self=with_self)
        except BadInput as error:
            raise ValueError(str(error)) from None

    def compare(
        self, baseline: JobResults | str | Path, *, allow_incomparable: bool = False
    ) -> JobComparison:
        """Compare this job with another one, as ``latentscale compare`` does.

        Parameters
        ----------
        baseline : JobResults or str or Path
            The other job, or its folder.
        allow_incomparable : bool
            Whether scores are compared that were measured in different ways, such as on corpora of
            different sizes. Otherwise samples of equal size are.

        Returns
        -------
        JobComparison
            ``.verdict``, ``.changes``, ``.to_pandas()``.

        Raises
        ------
        ValueError
            If there is no finished job in the folder.
        """
        ours, theirs = self._finished(), _opened(baseline)._finished()
        found = compare(ours, theirs, allow_incomparable=allow_incomparable)
        return JobComparison(replace(found, rows=count_changes(ours, theirs)))

    def _finished(self) -> FinishedJob:
        try:
            return read_finished_job(self.folder)
        except BadInput as error:
            raise ValueError(str(error)) from None

    def report(self) -> str:
        """Return the path of the HTML report."""
        return ObjectStore(self.folder).locate("report.html")

    def __repr__(self) -> str:
        lines = [*self._sentences(), *(f"  {name}  {text}" for name, text in self._lines())]
        return "\n".join([self.document.job.id, *lines, f"  report  {self.report()}"])

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._sentences())
        return f"{said}{draw_table(self.document.job.id, self._lines())}{self._curves()}"

    def _curves(self) -> str:
        """Draw every figure of the report, two beside each other."""
        panels = [
            replace(panel, title="" if place else figure.title)
            for section in job_report(self.document).sections
            for figure in section.figures
            for place, panel in enumerate(figure.panels)
        ]
        return draw_panels(panels, columns=2) if panels else ""

    def _sentences(self) -> list[str]:
        verdict = self.verdict
        if verdict is None or verdict.value is None:
            return []
        heading, sentences = format_verdict(verdict)
        return [f"{heading}.", *sentences]

    def _lines(self) -> list[tuple[str, str]]:
        return [(title_apart(s), _in_short(s)) for s in headlines(self.document.scores)]


def _in_short(score: Score) -> str:
    text = format_summarised(score)
    if score.expected is None:
        return text
    found, usual = format_range(score.expected, score.unit)
    return f"{text}; at {score.expected.rows:,} rows {found}, expected {usual}"


def run(
    corpus: ArrayLike | str | Path,
    reference: ArrayLike | str | Path | None = None,
    *,
    ids: Texts | None = None,
    labels: Texts | None = None,
    texts: Texts | None = None,
    reference_ids: Texts | None = None,
    reference_labels: Texts | None = None,
    reference_texts: Texts | None = None,
    measures: str | Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    name: str = "notebook",
    output: str | Path = "jobs/",
    allow_code: bool = False,
    **settings: Any,
) -> JobResults:
    """Run a job, as ``latentscale run`` does, and return its results.

    A finished job is recognised and not computed again; an interrupted one is continued. The job
    runs in this process, unless ``cluster`` asks for workers: ``cluster={"kind": "local"}``. A
    script that asks for them has its work under ``if __name__ == "__main__":``.

    Parameters
    ----------
    corpus, reference : array_like, shape (n, d), or str or Path
        Rows, or whatever ``latentscale ingest`` reads: a file, a folder, a corpus, a URL. Rows are
        stored below ``output``.
    ids, labels, texts, reference_ids, … : array_like or str or Path, optional
        A text or integer for every row, or the file that has them. A source with such columns needs
        none of this; of a file with several columns, ``labels_column`` names one.
    measures : str, sequence of str, or mapping, optional
        Names of measures, or the settings of each by its name. By default all that apply.
    name : str
        Name of the job; its folder's name begins with it.
    output : str or Path
        Folder or URL of jobs.
    allow_code : bool
        Whether functions that the settings name may be imported and run.
    **settings
        Other keys of a job file, such as ``seed=1`` or ``sampling={"samples": 40}``. For a source
        with columns also what the command has as options: ``vectors``, ``ids_column``,
        ``labels_column`` and ``texts_column`` name the columns, ``reference_vectors`` and so on
        those of a reference where they differ, and ``on_invalid="drop"`` leaves out rows with NaN.

    Returns
    -------
    JobResults
        ``.verdict``, ``.scores`` (``.to_pandas()``), ``.report()``.

    Raises
    ------
    ValueError
        If the rows or settings are invalid; the message is one line.
    RuntimeError
        If the job can't be finished.

    Examples
    --------
    >>> results = latentscale.run(generated, reference=real)  # doctest: +SKIP
    >>> results.verdict.value  # doctest: +SKIP
    'no_difference_found'
    """
    asked = {key: settings.pop(key) for key in FIELDS if key in settings}
    fields = {
        key: value
        for key, value in asked.items()
        if value is not None and (key, value) != ("on_invalid", "error")
    }
    if getattr(current_process(), "_inheriting", False):
        raise RuntimeError(
            "a worker has begun to run this script again: put what it does under "
            "if __name__ == '__main__':, as for all processes that Python starts"
        )
    document: dict[str, Any] = {"cluster": {"kind": "serial"}, **settings}
    document |= {"name": name, "output": str(output)}
    if measures is not None:
        document["measures"] = _sections(measures)
    if not isinstance(output, str | Path):
        raise ValueError(f"output must be a folder or URL, not {output!r}")
    options = settings.get("storage_options", {})
    if not (isinstance(options, Mapping) and all(isinstance(o, Mapping) for o in options.values())):
        raise ValueError(f"storage_options must be settings by protocol, not {options!r}")
    try:
        with storage_options(options):
            in_memory = not _is_place(corpus) and not _is_place(reference)
            if fields.get("vectors") is not None and in_memory:
                raise BadInput("vectors names a column of files and URLs; an array has none")
            if "on_invalid" in fields and in_memory:
                raise BadInput(
                    "on_invalid is for files and URLs; leave rows out of an array, as "
                    "rows[np.isfinite(rows).all(axis=1)] or rows[rows.any(axis=1)]"
                )
            given = _given(ids, labels, texts)
            beside = _given(reference_ids, reference_labels, reference_texts)
            columns, others = _take_columns(corpus, reference, given, beside, fields)
            given = _hand_over(corpus, "", given, fields)
            document["corpus"] = _place(corpus, "corpus", str(output), given, columns)
            beside = _hand_over(reference, "reference_", beside, fields)
            alone = [f"reference_{key}" for key in beside]
            alone += [key for key in fields if key.startswith("reference")]
            if reference is not None:
                document["reference"] = _place(reference, "reference", str(output), beside, others)
            elif alone:
                raise BadInput(f"{alone[0]}: there is no reference")
        config = resolve_config(document, "settings", measures=measure_sections())
        values = {**dict.fromkeys(SOURCE_NAMES), "on_invalid": "error", **fields}
        sources = SourceChoice.of(values).sources_of(config)
        config = ingest_sources(config, sources, silent, None, str)
        finished = run_job(make_plan(config, allow_code=allow_code), _ignore)
    except Held as error:
        raise RuntimeError(f"{error.holder} is running this job; wait until it ends") from None
    except BadInput as error:
        raise ValueError(_in_arguments(str(error).removeprefix("settings: "))) from None
    except LatentscaleError as error:
        raise RuntimeError(str(error)) from None
    return JobResults(finished.store.url, finished.results)


def _sections(measures: Any) -> dict[str, Any]:
    """Return measures that are given by name, or with their settings, as a document has them."""
    if isinstance(measures, Mapping):
        return {key: {} if section is None else section for key, section in measures.items()}
    names = [measures] if isinstance(measures, str) else _listed(measures)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"measures must be names, or settings by name, not {measures!r}")
    return {name: {} for name in names}


def _listed(given: Any) -> list[Any]:
    """Return the entries of any collection; what is none is an entry by itself."""
    return list(given) if isinstance(given, Iterable) else [given]


def _opened(job: JobResults | str | Path) -> JobResults:
    return job if isinstance(job, JobResults) else read_job(job)


def read_job(folder: str | Path) -> JobResults:
    """Read the results of a finished job.

    Parameters
    ----------
    folder : str or Path
        The job's folder, local or a URL; the hash at the end of its name may be left out if one job
        fits, and ``NAME@latest`` is the one that finished last.

    Raises
    ------
    ValueError
        If there is no finished job.
    """
    if not isinstance(folder, str | Path):
        raise ValueError(
            f"a job is named by its folder, a str or Path, not {type(folder).__name__}"
        )
    try:
        found = read_finished_job(str(folder))
    except BadInput as error:
        raise ValueError(str(error)) from None
    return JobResults(found.url, found.results)


def _is_place(source: object) -> bool:
    """Return whether rows are in a file or at a URL."""
    return isinstance(source, str | Path)


def _take_columns(
    corpus: object,
    reference: object,
    given: Mapping[str, Texts],
    beside: Mapping[str, Texts],
    fields: dict[str, Any],
) -> tuple[dict[str, str], dict[str, str]]:
    """Take the columns of files beside rows that are given as arrays; a source has its own.

    A column of the corpus is one of the reference, too, unless another is named or it is that of a
    file beside the corpus.
    """
    columns: dict[str, str] = {}
    others: dict[str, str] = {}
    for name in SOURCE_TEXTS:
        own, other = f"{name}_column", f"reference_{name}_column"
        column, named = fields.get(own), fields.get(other)
        in_file, beside_in_file = (
            isinstance(each.get(name), str | Path) for each in (given, beside)
        )
        of_corpus = _is_place(corpus) or in_file
        of_reference = reference is not None and (_is_place(reference) or beside_in_file)
        if column and not (of_corpus or of_reference):
            raise BadInput(_no_column(own, name))
        if named and reference is not None and not of_reference:
            raise BadInput(_no_column(other, f"reference_{name}"))
        if not _is_place(corpus):
            fields.pop(own, None)
            columns |= {name: str(column)} if column and in_file else {}
            if _is_place(reference) and column and not in_file and name not in beside:
                fields.setdefault(other, column)
        if reference is not None and not _is_place(reference):
            fields.pop(other, None)
            # A file of one value a line has no columns.
            lines = str(beside.get(name, "")).endswith(".txt")
            taken = named or (None if lines else column)
            others |= {name: str(taken)} if taken and beside_in_file else {}
    return columns, others


def _no_column(key: str, texts: str) -> str:
    return f"{key}: an array has no columns; give the file that has it as {texts}"


def _hand_over(
    source: object, prefix: str, given: Mapping[str, Texts], fields: dict[str, Any]
) -> dict[str, Texts]:
    """Put files with texts beside the columns of their source, if any are named.

    Returns the texts that remain.
    """
    if not fields or not _is_place(source):
        return dict(given)
    for name, texts in given.items():
        if not isinstance(texts, str | Path):
            named = next(iter(fields))
            raise BadInput(
                f"{prefix}{name}: give a file or a column, as {named} is given, no array"
            )
        fields[f"{prefix}{name}"] = str(texts)
    return {}


def _in_arguments(message: str) -> str:
    """Name arguments instead of the command's options in a message."""
    names = sorted(SOURCE_NAMES, key=len, reverse=True)
    options = "|".join(name.replace("_", "-") for name in names)
    named = re.sub(r"--on-invalid (drop(?:-zero)?)", r"on_invalid='\1'", message)
    named = re.sub(r"--pair (rows|ids)", r"pair='\1'", named)
    named = re.sub(r"--reference \(reference: in a job file\)", "a reference", named)
    named = named.replace(" (pair: in a job file)", "")
    return re.sub(rf"--({options})\b", lambda found: found[1].replace("-", "_"), named)


def _given(ids: Texts | None, labels: Texts | None, texts: Texts | None) -> dict[str, Texts]:
    given = {"ids": ids, "labels": labels, "texts": texts}
    return {name: value for name, value in given.items() if value is not None}


def _place(
    given: ArrayLike | str | Path,
    role: str,
    output: str,
    texts: Mapping[str, Texts],
    columns: Mapping[str, str],
) -> str:
    """Return where the rows are; what is given as arrays is stored, named by its content."""
    if isinstance(given, str | Path):
        if not texts:
            return str(given)
        rows, key = None, source_key([str(given)], output)
    else:
        rows = hold_rows(given, role)
        key = rows.fingerprint
    prefix = "" if role == "corpus" else f"{role}_"
    held = {name: _hold_texts(value, name, prefix) for name, value in texts.items()}
    if held:
        keys = {name: _text_key(held[name], output) for name in held}
        keys |= {f"{name}_column": column for name, column in columns.items()}
        key = digest({"rows": key, **keys})[:32]
    target = f"{output.rstrip('/')}/corpora/{key}.zarr"
    with contextlib.suppress(BadInput):
        open_corpus(target).check_sizes()
        return target
    with tempfile.TemporaryDirectory() as folder:
        source = str(given) if rows is None else _file_of(rows.read_all(), f"{folder}/{role}")
        files = {name: _file_of(held[name], f"{folder}/{prefix}{name}") for name in held}
        there = ObjectStore(target).exists("")
        try:
            ingest(
                [source],
                target,
                ids=files.get("ids"),
                labels=files.get("labels"),
                texts=files.get("texts"),
                columns=columns,
                overwrite=there,
                source_name=None if rows is None else AN_ARRAY,
            )
        except BadInput as error:
            # The message is about an argument, not about the file that holds it for a moment.
            such = rf"{re.escape(folder)}/(\w+)\.(npy|jsonl)(:value)?"
            said = re.sub(such, r"\1", str(error))
            if prefix:
                said = re.sub(r"--(\w+-column)\b", r"--reference-\1", said)
            raise BadInput(said) from None
    return target


def _hold_texts(given: Texts, kind: str, prefix: str) -> Texts:
    """Check the texts of the rows; the path of a file is returned as it is."""
    name = f"{prefix}{kind}"
    if isinstance(given, str | Path):
        return given
    texts = _as_array(given)
    if texts.dtype.kind == "O" and texts.ndim == 1:
        held = (_text_of(text, row, name, kind) for row, text in enumerate(texts))
        # Only beginnings of texts are stored.
        shown = [beginning_of(text) if kind == "texts" else text for text in held]
        # A first line of JSON that is very long isn't known as one.
        brief = max(map(len, shown), default=0) <= LONGEST_LINE
        try:
            return np.array(shown, STRINGS if brief else str)
        except UnicodeEncodeError as error:
            row = shown.index(str(error.object))
            raise BadInput(
                f"{name}: row {row} has half of a character, {error.object!r}; leave it out, as "
                "text.encode(errors='ignore').decode() does"
            ) from None
    if kind == "labels" and texts.ndim == 1 and texts.dtype.kind == "f":
        texts = np.array(format_whole_numbers(texts, 0, name))
    if texts.ndim != 1 or texts.dtype.kind not in ("UTiub" if kind == "labels" else "UTiu"):
        raise BadInput(
            f"{name} must be one text or integer per row; got shape {texts.shape} and dtype "
            f"{texts.dtype}"
        )
    plain = texts.astype(str, copy=False)
    signs = np.ascontiguousarray(plain, plain.dtype.newbyteorder("=")).view(np.uint32)
    if ((signs >= 0xD800) & (signs <= 0xDFFF)).any():  # halves of characters
        return _hold_texts(texts.astype(object), kind, prefix)
    return plain


def _as_array(given: Any) -> NDArray[Any]:
    """Return values as an array; of objects where NumPy would turn missing values into texts."""
    if isinstance(given, np.ma.MaskedArray):
        values = given.data.astype(object)
        values[np.ma.getmaskarray(given)] = None
        return values
    if hasattr(given, "__array__"):
        texts = np.asarray(given)
        return texts.astype(object) if texts.dtype.kind == "T" else texts
    return np.asarray(given, dtype=object)


def _text_of(value: object, row: int, name: str, kind: str) -> str:
    """Return the text of a row, empty for a missing one."""
    if is_missing(value) and kind in MAY_BE_MISSING:
        return ""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    if whole and kind == "labels":
        return format_whole_numbers(np.asarray([value], np.float64), row, name)[0]
    boolean = isinstance(value, bool | np.bool_)
    if isinstance(value, str | int | np.integer | np.bool_) and (kind == "labels" or not boolean):
        return str(value)
    raise BadInput(f"{name}: row {row} has {value!r}; give every row a text or a whole number")


def _text_key(held: Texts, output: str) -> str:
    if isinstance(held, str | Path):
        return source_key([str(held)], output)
    return digest(np.asarray(held).tolist())


def _file_of(held: Texts, stem: str) -> str:
    """Return the file that has an array, or the one that was given."""
    if isinstance(held, str | Path):
        return str(held)
    values = np.asarray(held)
    if values.dtype.kind != "T":
        np.save(f"{stem}.npy", values)
        return f"{stem}.npy"
    # An array on disk has the length of the longest text for each row.
    with Path(f"{stem}.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"value": text}) + "\n" for text in values.tolist())
    return file.name


def _ignore(event: str, **fields: Any) -> None:
    """Ignore progress events."""
