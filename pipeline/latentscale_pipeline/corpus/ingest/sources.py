"""The source files of a corpus: find, order and check them before reading rows.

Arguments are used in the given order. A folder stands for the files below it, and a glob for the
files it matches, each in natural order (``img_2`` before ``img_10``). The format is detected from
the content (:mod:`.formats`). Opening reads only headers, except that the lines of text files are
counted. Any range of rows can be read, in blocks of a few MiB (of a Zarr, in whole shards).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale_pipeline.corpus.formats import SUFFIXES, open_container
from latentscale_pipeline.corpus.formats.container import (
    KINDS,
    Container,
    Field,
    NoRows,
    choose_column,
    choose_vectors,
    find_column,
)
from latentscale_pipeline.corpus.formats.file import File, file_errors
from latentscale_pipeline.corpus.formats.npy import PYTHON_OBJECTS
from latentscale_pipeline.corpus.formats.zarr import CorpusRows, is_zarr
from latentscale_pipeline.errors import BadInput, SourceChanged, first_line
from latentscale_pipeline.storage.objects import ObjectStore, is_refused, retry_while_unreachable
from latentscale_pipeline.storage.urls import (
    is_archive,
    open_url,
    strip_credentials,
    unsigned_query,
    without_credentials,
)

COLUMNS = {"ids": ("id", "ids"), "labels": ("label", "labels"), "texts": ("text", "texts")}
"""Names of columns that are taken for ids, labels and texts if no other is asked for."""

NAMES = {name: what for what, names in COLUMNS.items() for name in names}
"""What is taken from a column of each of these names."""

WEIGHTS = frozenset({"weight", "weights"})
"""Names of columns that are suggested as weights."""

SUGGESTED = 3
"""Number of columns that are suggested as labels."""

NAMED = 5
"""Number of files that are left out and named; the rest are counted."""


@dataclass(frozen=True)
class Source:
    """Rows from one file, archive member, Zarr array or corpus.

    Attributes
    ----------
    container : Container
        The open file.
    field : Field
        The field with the vectors.
    columns : mapping of str to Field
        The fields with ids, labels, texts or weights, if they are columns of the source.
    """

    container: Container
    field: Field
    columns: Mapping[str, Field]

    @property
    def path(self) -> str:
        """Path or URL without credentials, for records and messages."""
        return self.container.locate(self.field)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.field.shape[0]

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.field.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values in the source."""
        return self.field.dtype

    @property
    def names(self) -> frozenset[str]:
        """Names of the fields of its file."""
        return frozenset(field.name for field in self.container.fields)

    @property
    def size(self) -> int:
        """Size of the values in bytes, in the source's dtype."""
        return self.rows * self.d * self.dtype.itemsize

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """Yield the rows from ``start`` up to ``stop`` in order; by default all rows."""
        return self.container.blocks(self.field, start, self.rows if stop is None else stop)


@dataclass(frozen=True)
class Listing:
    """The states of the files that some arguments stand for, to see whether they changed since.

    Attributes
    ----------
    patterns, target
        The arguments, as :func:`open_sources` takes them.
    states : mapping of str to int
        Hash of path, size and times of change (or etag), by the files' names.
    """

    patterns: tuple[str, ...]
    target: str | None
    states: Mapping[str, int]

    @staticmethod
    def of(pattern: str, files: Sequence[File]) -> Listing:
        """Return the listing of the files that an argument stands for."""
        return Listing((pattern,), None, {file.name: _state(file) for file in files})

    @retry_while_unreachable
    def refuse_changes(self) -> None:
        """Raise if a file was replaced, changed or removed; new ones don't matter.

        Raises
        ------
        SourceChanged
            With the name of the file.
        """
        there: dict[str, int] = {}
        for pattern in self.patterns:
            with contextlib.suppress(BadInput):  # nothing is left of it
                found = find_files(pattern, self.target)
                there |= {file.name: _state(file) for file in found if file.name in self.states}
        for name, state in self.states.items():
            if there.get(name) != state:
                raise SourceChanged(
                    f"{name}: it was changed while it was read; run the same command again"
                )


@dataclass(frozen=True)
class Sources:
    """All sources of a corpus in order; all have ``d`` dimensions.

    ``skipped`` names the files in folders whose format is unknown, and ``empty`` those without
    rows. ``key`` is a hash of the files' states (see :func:`source_key`), of the chosen fields and
    of how these are decoded. ``listing`` has the files that are read, but for corpora, whose rows
    never change; None if there are none.
    """

    items: tuple[Source, ...]
    skipped: tuple[str, ...]
    key: str
    listing: Listing | None = None
    empty: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of all sources together."""
        return sum(source.rows for source in self.items)

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.items[0].d

    @property
    def left_out(self) -> tuple[str, ...]:
        """Fields that aren't used, unless they are parts of one that is.

        Those that are named as ids, labels or texts have with them why: their type if it isn't one,
        how to take labels that may be whole numbers, or a source that has no such field.
        """
        found: dict[str, str] = {}
        for source in self.items:
            used = [source.field, *source.columns.values()]
            names = {name for one in used for name in (one.name, *one.columns)}
            for left in source.container.fields:
                taken = {left.name, *left.columns} & names
                if not (taken or left.loose or left.name in found):
                    found[left.name] = self._described(left)
        return tuple(found.values())

    def _described(self, field: Field) -> str:
        if field.name not in NAMES:
            return field.name or "a column without a name"
        if field.dtype.kind not in _kinds(NAMES[field.name]) or field.dated or field.unseen:
            return f"{field.name} ({field.kind}: {_why_left_out(field)})"
        lacking = (source.path for source in self.items if field.name not in source.names)
        without = next(lacking, None)
        return field.name if without is None else f"{field.name} ({without} has none)"

    @property
    def unused_labels(self) -> tuple[str, ...]:
        """Fields of the first source that could be labels, if it has none."""
        first = self.items[0]
        used = {"", first.field.name, *first.field.columns}
        used |= {column.name for column in first.columns.values()}
        return tuple(
            field.name
            for field in first.container.fields
            if "labels" not in first.columns
            and field.name not in used
            and field.name not in {*COLUMNS["ids"], *COLUMNS["texts"]}
            and field.shape == (first.rows,)
            and field.dtype.kind in KINDS
            and not field.unseen
            and all(field.name in source.names for source in self.items)
        )[:SUGGESTED]

    @property
    def unused_weights(self) -> str | None:
        """A field of the first source that is called weights, if it has none."""
        first = self.items[0]
        names = {
            field.name
            for field in first.container.fields
            if field.shape == (first.rows,) and not field.unseen
        }
        found = sorted(names & WEIGHTS)
        return found[0] if found and "weights" not in first.columns else None


@dataclass(frozen=True)
class FieldChoice:
    """What is read as the vectors, ids, labels, texts and weights, where that isn't obvious.

    Attributes
    ----------
    vectors : str or None
        The field with the vectors.
    columns : mapping of str to str
        The column for ``ids``, ``labels``, ``texts`` or ``weights``: of its file or, without a
        file, of the sources; an empty name is for none.
    files : mapping of str to str
        Files with the ``ids``, ``labels``, ``texts`` or ``weights``, one value per row.
    on_invalid : {"error", "drop", "drop-zero"}
        What to do with a row that holds NaN or infinity, or is out of the stored dtype's range: end
        with an error, or leave it out, and with ``drop-zero`` also rows that are all zero.
    """

    vectors: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    on_invalid: str = "error"

    def __bool__(self) -> bool:
        """Return whether anything is chosen."""
        return bool(self.vectors or self.columns or self.files or self.on_invalid != "error")

    @property
    def inside(self) -> dict[str, str]:
        """The columns of the sources themselves; none for what comes from a file."""
        return {**self.columns, **dict.fromkeys(self.files, "")}


def describe_sources(
    sources: Sources, beside: Collection[str] | None = None, dtype: npt.DTypeLike = np.float32
) -> Iterator[str]:
    """Yield what is taken beside the vectors, what is left out, and what is rounded.

    ``beside`` names what the corpus has beside its vectors, if it was there before; its vectors are
    of a dtype.
    """
    kept = {*sources.items[0].columns, "labels", "weights"} if beside is None else beside
    for names, why in ((sources.skipped, "unknown format"), (sources.empty, "no rows")):
        for name in names[:NAMED]:
            yield f"{name}: left out, {why}"
        if more := len(names[NAMED:]):
            yield f"{more:,} more files: left out, {why}"
    for name, column in sources.items[0].columns.items():
        if name in kept:
            yield f"{name} from column {column.name}"
        else:
            yield f"left out: {column.name}, because the corpus has no {name}"
    if sources.left_out:
        yield f"left out: {', '.join(sources.left_out)}"
    if (candidates := sources.unused_labels) and "labels" in kept:
        yield f"no labels; --labels-column takes a column as labels: {', '.join(candidates)}"
    if (candidate := sources.unused_weights) and "weights" in kept:
        yield f"no weights; ingest --weights-column takes a column as weights: {candidate}"
    found = {source.dtype for source in sources.items}
    yield from sorted(_rounded(each, dtype) for each in found if not np.can_cast(each, dtype))


def _rounded(dtype: np.dtype[Any], stored: npt.DTypeLike) -> str:
    """Say what a dtype that hasn't every value of another one does to its values."""
    to = np.finfo(np.dtype(stored))
    if dtype.kind in "iu":
        most = 2 ** (to.nmant + 1)
        return f"{dtype} is stored as {to.dtype}, which rounds whole numbers beyond {most:,}"
    return f"{dtype} is rounded to {to.dtype}, to {round(-math.log10(to.epsneg))} digits"


@retry_while_unreachable
def open_sources(
    patterns: Sequence[str],
    target: str | None = None,
    *,
    kind: str | None = None,
    vectors: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Sources:
    """Find the sources and read their headers.

    Parameters
    ----------
    patterns : sequence of str
        Files, globs, folders, Zarr arrays or groups, corpora; paths or fsspec URLs.
    target : str, optional
        The output, which is skipped if a folder or glob contains it.
    kind : str, optional
        The format of all files (a key of ``FORMATS``); by default it is detected.
    vectors : str, optional
        Name of the field that holds the vectors, if a file holds several.
    columns : mapping, optional
        The columns that hold ``ids``, ``labels``, ``texts`` or ``weights``; an empty name is for
        none. Without one, columns of all sources that are named as in :data:`COLUMNS` are taken.

    Raises
    ------
    BadInput
        If a file doesn't exist, can't be read, or doesn't hold vectors; the message names it.
    """
    lists = [find_files(pattern, target) for pattern in patterns]
    found = [(file, len(files) == 1) for files in lists for file in files]
    opened: list[tuple[File, int, Container]] = []
    skipped: list[str] = []
    empty = _EmptyFiles(allowed=len(found) > 1)
    whole = xxhash.xxh3_128()
    for file, alone in found:
        identity = _identity(file)
        whole.update(identity)
        with empty.noting(file):
            must = alone or file.suffix in SUFFIXES or file.is_folder
            container = open_container(file, must, kind)
            if container is None:
                skipped.append(file.name)
            else:
                opened.append((file, xxhash.xxh3_64_intdigest(identity), container))
    headers = {container.header for _, _, container in opened}
    items: list[Source] = []
    states: dict[str, int] = {}
    for file, state, container in opened:
        with empty.noting(file):
            if container.only_line and container.only_line in headers:
                raise NoRows(f"{file.name}: there are no rows", container.only_line)
            items.append(_source(container, vectors, columns or {}))
            if not isinstance(container, CorpusRows):  # whose rows never change
                states[file.name] = state
    empty.refuse(headers, all_of_them=not items)
    if not items:
        raise BadInput(
            f"{' '.join(patterns) or 'no source given'}: none of the {len(skipped)} files there "
            "has a known format; name the files that hold the vectors"
        )
    for source in items[1:]:
        if source.d != items[0].d:
            raise BadInput(
                f"{source.path}: rows of {source.d} dimensions, but {items[0].path} has "
                f"{items[0].d}; ingest them into separate corpora"
            )
    items = _with_named([_in_order_of(items[0], source) for source in items], columns or {})
    for source in items:
        taken = {name: column.name for name, column in source.columns.items()}
        chosen = [source.field.name, source.field.columns, *([taken] if taken else [])]
        decoded = [type(source.container).__name__, source.dtype.str]
        whole.update(json.dumps([*chosen, *decoded]).encode())
    listing = Listing(tuple(patterns), target, states)
    return Sources(tuple(items), tuple(skipped), whole.hexdigest(), listing, tuple(empty.files))


@dataclass(frozen=True)
class _EmptyFiles:
    """The files without rows: of a table in parts, some may have none."""

    allowed: bool
    files: dict[str, NoRows] = field(default_factory=dict)

    @contextlib.contextmanager
    def noting(self, file: File) -> Iterator[None]:
        """Note a file that has no rows."""
        try:
            yield
        except NoRows as problem:
            if not self.allowed:
                raise
            self.files[file.name] = problem

    def refuse(self, headers: Collection[tuple[str, ...]], *, all_of_them: bool) -> None:
        """Refuse a file whose only line is no header of another one, or all of them."""
        for problem in self.files.values():
            if all_of_them or (problem.line and problem.line not in headers):
                raise problem


def _kinds(name: str) -> str:
    """Return the kinds of dtypes of columns that are ids, labels or texts by their names."""
    return f"{KINDS}b" if name == "labels" else KINDS


def _why_left_out(field: Field) -> str:
    if NAMES[field.name] == "labels" and field.dtype.kind == "f":
        return f"--labels-column {field.name} takes it if all are whole numbers"
    if field.dated or field.unseen:
        return f"--{NAMES[field.name]}-column {field.name} takes it as text"
    if field.unread == PYTHON_OBJECTS:
        return "make text of them with array.astype(str)"
    return "neither text nor whole numbers"


def _with_named(items: list[Source], columns: Mapping[str, str]) -> list[Source]:
    """Return the sources with the columns that are taken by their names, if all have them."""
    for name, names in COLUMNS.items():
        found = [
            find_column(source.container, names, source.rows, _kinds(name)) for source in items
        ]
        if name in columns or not any(found):
            continue
        found = [own or _lacking(source, name) for source, own in zip(items, found, strict=True)]
        taken = [(source, own) for source, own in zip(items, found, strict=True) if own]
        if len(taken) < len(items):
            continue
        for source, column in taken:
            source.container.check(column)
        items = [replace(source, columns={**source.columns, name: own}) for source, own in taken]
    return items


def _lacking(source: Source, name: str) -> Field | None:
    """Return a column of labels or texts of which a file has none, or lacks some.

    Whole numbers of which one is missing are floats to other programs. What other files have by
    this name says that these are labels.
    """
    return next(
        (
            field
            for field in source.container.fields
            if name != "ids" and field.name in COLUMNS[name] and field.shape == (source.rows,)
            if field.unseen or (name == "labels" and field.dtype.kind == "f")
        ),
        None,
    )


def _in_order_of(first: Source, source: Source) -> Source:
    """Return a source whose joined columns have the order that they have in the first one."""
    names, others = first.field.columns, source.field.columns
    positions = tuple(map(str, range(len(names))))
    if names == others or not (names and others) or positions in (names, others):
        return source
    if set(names) != set(others):
        strange = next(name for name in others if name not in names)
        raise BadInput(
            f"{source.path}: its vectors have a column {strange}, which {first.path} doesn't have; "
            "ingest them into separate corpora, or give their columns the same names"
        )
    return replace(source, field=replace(source.field, columns=names))


def _source(container: Container, vectors: str | None, columns: Mapping[str, str]) -> Source:
    named = {name: column for name, column in columns.items() if column}
    # A column that is named as ids, labels, texts or weights is no dimension unless all are asked
    # for.
    used = {*named.values(), *(() if vectors else {*NAMES, *WEIGHTS})}
    field = choose_vectors(container, vectors, used)
    chosen = {name: choose_column(container, column, "") for name, column in named.items()}
    for column in chosen.values():
        if column.shape != field.shape[:1]:
            raise BadInput(
                f"{container.locate(column)}: {column.shape} values for {field.shape[0]} rows of "
                "vectors; name a column with one value a row"
            )
    return Source(container, field, chosen)


@retry_while_unreachable
def source_key(patterns: Sequence[str], target: str | None = None) -> str:
    """Return a hash of the state of sources without reading them: 32 hexadecimal characters.

    It covers path, size and times of change (or etag) of every file, in order. The arguments are
    those of :func:`open_sources`.
    """
    whole = xxhash.xxh3_128()
    for pattern in patterns:
        for file in find_files(pattern, target):
            whole.update(_identity(file))
    return whole.hexdigest()


def _state(file: File) -> int:
    return xxhash.xxh3_64_intdigest(_identity(file))


def _identity(file: File) -> bytes:
    """Return path, size and times of change (or etag) of a file, or of all files in a folder.

    A server may tell neither for its files; parts of their content stand for it then.

    Files on the web whose addresses differ in their queries differ, unless it is in signatures.
    """
    files = [file]
    if file.is_folder:
        with file_errors(file.name):
            found = file.fs.find(file.path, detail=True)
        files = [File.of(file.fs, found[path] | {"name": path}) for path in sorted(found)]
    lines = []
    for each in files:
        changed = each.changed
        if changed is None and not each.is_folder:
            with file_errors(each.name):
                changed = each.sample_content()
        lines.append(json.dumps([_distinct_name(each), each.size, changed]) + "\n")
    return "".join(lines).encode()


def _distinct_name(file: File) -> str:
    query = unsigned_query(file.path)
    return f"{file.name}?{query}" if query else file.name


def natural_order(path: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares runs of digits as numbers, folder by folder."""
    parts = re.findall(r"\d+|/|[^\d/]+", path)
    return [
        (0, 0, "") if part == "/" else (1, int(part), part) if part.isdecimal() else (2, 0, part)
        for part in parts
    ]


def find_files(pattern: str, target: str | None = None) -> list[File]:
    """Return the files and Zarr folders that one argument stands for, in order.

    Raises
    ------
    BadInput
        If there are none.
    """
    results = ObjectStore(target).url if target else None
    shown = strip_credentials(pattern)
    with file_errors(shown):
        fs, path = open_url(pattern)
        if is_archive(fs):
            raise BadInput(f"{shown}: files within an archive can't be read; unpack it first")
        fs.invalidate_cache()  # a cached listing may be outdated
        path = path.rstrip("/") or "/"
        if _is_there(fs, path, shown):
            given = [File.of(fs, fs.info(path))]
        elif any(sign in path for sign in "*?["):
            matches = fs.glob(path, detail=True)
            matching = {str(match).rstrip("/"): about for match, about in matches.items()}
            entries = [File.of(fs, matching[m]) for m in sorted(matching, key=natural_order)]
            # A matching folder includes everything below it, so matches inside it are left out.
            given = [
                entry
                for entry in entries
                if entry.name != results and not any(a in matching for a in _above(entry.path))
            ]
            if not matching:
                raise BadInput(f"{shown}: no file matches; check the pattern")
        else:
            raise BadInput(f"{shown}: no such file or folder; check the path")
        found = [entry for item in given for entry in _below(item, results)]
        if not found:
            listed = any(item.is_folder and fs.ls(item.path) for item in given)
            what = "nothing here but hidden files and jobs" if listed else "the folder is empty"
            raise BadInput(f"{shown}: {what}; name the files that hold the vectors")
        found = [_sized(file) for file in found]
    for file in found:
        # Bytes of a name that aren't UTF-8 are halves of characters, which no manifest can hold.
        if any("\ud800" <= sign <= "\udfff" for sign in file.name):
            name = os.fsencode(file.name).decode("utf-8", "replace")
            raise BadInput(f"{name}: the file's name isn't UTF-8; rename it")
    return found


def _is_there(fs: Any, path: str, shown: str) -> bool:
    try:
        if fs.exists(path):
            return True
        if not any(sign in path for sign in "*?["):
            fs.info(path)  # says why not
    except FileNotFoundError as error:
        if is_refused(error.__cause__):
            raise PermissionError(shown) from error
    except ValueError as error:  # of an address that is none
        reason = first_line(error, without_credentials)
        raise BadInput(f"{shown}: can't open this kind of URL ({reason}); check it") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    return False


def _sized(file: File) -> File:
    """Return a file with its size, which the list of a web server lacks."""
    if file.is_folder or file.is_local or file.size:
        return file
    about = file.fs.info(file.path)
    if about["size"] is None:
        raise BadInput(
            f"{file.name}: the server doesn't tell the file's size, so its parts can't be read; "
            "download the file and name it there"
        )
    return File.of(file.fs, about)


JOB_FILES = frozenset({"config.json", "plan.json"})
"""Files that tell the folder of a job from a folder of vectors."""

COPY = re.compile(r"[0-9a-f]{32}\.zarr")
"""Name of a corpus that a job made of a source, in the folder ``corpora`` of its output."""

NOTES = frozenset({"_metadata", "_common_metadata", "_delta_log"})
"""What other programs note beside the files of a table, in formats that could be read."""


def _above(path: str) -> list[str]:
    """Return the paths of all folders that contain a path."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _below(entry: File, results: str | None) -> list[File]:
    """Return the entry itself or, for a plain folder, all files and Zarr folders below it.

    The arrays of jobs aren't vectors, so their folders are left out; so are the corpora beside
    them, which were made of sources. So is what is hidden, or noted beside a table.
    """
    if not entry.is_folder or is_zarr(entry):
        return [entry]
    with file_errors(entry.name):
        listed = [File.of(entry.fs, about) for about in entry.fs.ls(entry.path, detail=True)]
    names = {child.path.rsplit("/", 1)[-1] for child in listed}
    if names >= JOB_FILES:
        return []
    if entry.path.endswith("/corpora") and any(map(COPY.fullmatch, names)):
        return []
    return [
        found
        for child in sorted(listed, key=lambda child: natural_order(child.path))
        if child.path != entry.path
        and child.name != results
        and not (name := child.path.rsplit("/", 1)[-1]).startswith(".")
        and name not in NOTES
        for found in _below(child, results)
    ]
