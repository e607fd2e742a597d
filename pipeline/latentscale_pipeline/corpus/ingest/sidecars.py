"""Ids, labels, texts and weights: one value for every row of the vectors.

They are columns of the sources, or come from separate files in the same row order: a file in any
known format with one suitable or named column, or UTF-8 text with one value a line. They are read
as streams, so they may be larger than memory. Of a text its beginning is stored, by which people
recognise a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale.array_types import Float64Array
from latentscale_pipeline.corpus.formats import open_values
from latentscale_pipeline.corpus.formats.container import STRINGS, Container, Field
from latentscale_pipeline.corpus.formats.file import File
from latentscale_pipeline.corpus.formats.text import columns_of_line
from latentscale_pipeline.corpus.ingest.sources import Listing, Sources, find_files
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.objects import retry_while_unreachable
from latentscale_pipeline.storage.urls import strip_credentials

DTYPES = {"ids": "string", "labels": "string", "texts": "string", "weights": "float64"}
"""Stored dtypes of the arrays that a corpus may have in addition to its vectors."""

KINDS = {"ids": "USTiu", "labels": "USTiub", "texts": "USTiub", "weights": "fiu"}
"""Accepted kinds of numpy dtypes in a file, for each of them."""

MAY_BE_MISSING = ("labels", "texts")
"""Those of which a row may have none; it is stored as an empty text."""

MAX_WEIGHT = 1e200
"""Largest weight; no sum of such weights overflows."""

TEXT_LENGTH = 200
"""Characters of a text that are stored."""


@dataclass(frozen=True)
class Sidecar:
    """One value for every row of the sources.

    Attributes
    ----------
    name : str
        ``ids``, ``labels``, ``texts`` or ``weights``.
    path : str
        File or column it comes from, without credentials.
    rows : int
        Number of values.
    blocks : callable
        ``blocks()`` yields the values in order: arrays of str, or of float64 for weights.
    listing : Listing or None
        Its files; None for a column of the sources.
    """

    name: str
    path: str
    rows: int
    blocks: Callable[[], Iterator[npt.NDArray[Any]]]
    listing: Listing | None = None


@retry_while_unreachable
def open_sidecar(name: str, url: str, rows: int, column: str | None = None) -> Sidecar:
    """Open a file of ids, labels, texts or weights, and check that it has one value per row.

    Parameters
    ----------
    name : str
        ``ids``, ``labels``, ``texts`` or ``weights``.
    url : str
        Path or fsspec URL of a file, or of several (a folder or a glob, in natural order).
    rows : int
        Number of rows of the sources, before any are dropped.
    column : str, optional
        Name of the column in the file.

    Raises
    ------
    BadInput
        If the file can't be read, or has another number of values.
    """
    where = strip_credentials(url)
    with suggesting_column(name, url):
        files = find_files(url)
    listing = Listing.of(url, files)
    if column is None:
        _refuse_columns(name, where, files)  # a table isn't read line by line
    opened = [open_values(file, KINDS[name], column) for file in files]
    counted = sum(field.shape[0] if field.shape else 0 for _, field in opened)
    sidecar = _sidecar(name, where, opened)
    if counted != rows:
        raise BadInput(
            f"{where}: {counted} {name} for {rows} rows of vectors; give exactly one per row, "
            "in the order of the sources"
        )
    return replace(sidecar, listing=listing)


def _refuse_columns(name: str, where: str, files: Sequence[File]) -> None:
    if any(columns_of_line(file) > 1 for file in files):
        raise BadInput(
            f"{where}: its lines have several columns; name one in its header with "
            f"--{name}-column, or give a text file with one value a line"
        )


def read_column(name: str, url: str, column: str | None = None) -> Iterator[npt.NDArray[Any]]:
    """Yield ids, labels, texts or weights from a file, or a column of it, of any length."""
    opened = [open_values(file, KINDS[name], column) for file in find_files(url)]
    return _sidecar(name, strip_credentials(url), opened).blocks()


@contextmanager
def suggesting_column(name: str, url: str) -> Iterator[None]:
    """Say how a column is named where a file isn't found and may have been meant for one."""
    try:
        yield
    except BadInput as error:
        if "/" in url or "." in url:
            raise
        raise BadInput(f"{error}, or name a column of the source with --{name}-column") from None


def column_sidecar(name: str, sources: Sources) -> Sidecar:
    """Return ids, labels, texts or weights from a column of the sources."""
    first = sources.items[0]
    where = first.container.locate(first.columns[name])
    return _sidecar(name, where, [(s.container, s.columns[name]) for s in sources.items])


def _sidecar(name: str, where: str, opened: Sequence[tuple[Container, Field]]) -> Sidecar:
    for container, field in opened:
        # A text file with one value a line has no type; its values are checked when they are read.
        # Data frames hold whole numbers as floats where some are missing.
        kinds = KINDS[name] + ("T" if container.single else "") + ("f" if name == "labels" else "")
        if len(field.shape) != 1 or field.dtype.kind not in kinds:
            wanted = "numbers" if name == "weights" else "text or integers"
            raise BadInput(
                f"{container.locate(field)}: {name} must be {wanted}, one per row, but this is an "
                f"array of shape {field.shape} and dtype {field.dtype}; use another column"
            )

    def blocks() -> Iterator[npt.NDArray[Any]]:
        for container, chosen in opened:
            row = 0
            written = chosen if name == "weights" else container.as_written(chosen)
            field = replace(written, empty_for_null=name in MAY_BE_MISSING)
            for block in container.blocks(field, 0, field.shape[0]):
                yield _converted(name, block, row, container.locate(field))
                row += len(block)

    return Sidecar(name, where, sum(field.shape[0] for _, field in opened), blocks)


def _converted(name: str, block: npt.NDArray[Any], row: int, where: str) -> npt.NDArray[Any]:
    if name == "weights":
        is_text = block.dtype.kind == "T"
        values = _numbers(block.tolist(), row, where) if is_text else block.astype(np.float64)
        return checked_weights(values, row, where)
    if block.dtype.kind == "S":
        found = [_decoded(text, row + i, where) for i, text in enumerate(block.tolist())]
    elif block.dtype.kind == "T" and name != "texts":
        return block
    elif block.dtype.kind == "f":
        found = format_whole_numbers(block, row, where)
    else:
        found = [str(value) for value in block.tolist()]
    kept = [beginning_of(text) for text in found] if name == "texts" else found
    try:
        return np.array(kept, STRINGS)
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{where}: row {row + kept.index(str(error.object))} has half of a character, "
            f"{error.object!r}; leave it out, as text.encode(errors='ignore').decode() does"
        ) from None


def format_whole_numbers(block: npt.NDArray[Any], row: int, where: str) -> list[str]:
    """Return floats as the whole numbers they are, with an empty text for NaN."""
    block = block.astype(np.float64)
    large = np.flatnonzero(np.isfinite(block) & (np.abs(block) > 2.0**53))
    if large.size:
        raise BadInput(
            f"{where}: row {row + large[0]}: {block[large[0]]} is too large for a float to tell it "
            "from the next whole number; write whole numbers, or text"
        )
    wrong = np.flatnonzero(~np.isnan(block) & ~(np.isfinite(block) & (block == np.floor(block))))
    if wrong.size:
        raise BadInput(
            f"{where}: row {row + wrong[0]}: {block[wrong[0]]} isn't a whole number, and labels "
            "are text or whole numbers; use another column, or make text of it"
        )
    return ["" if np.isnan(value) else str(int(value)) for value in block.tolist()]


def beginning_of(text: str) -> str:
    """Return the beginning of a text, on one line."""
    # Spaces are joined before the text is cut, in a part of it that has enough of it left.
    joined = " ".join(text[: 4 * TEXT_LENGTH].split())
    return joined if len(joined) <= TEXT_LENGTH else f"{joined[: TEXT_LENGTH - 1]}…"


def _decoded(text: bytes, row: int, where: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{where}: row {row} isn't UTF-8 ({error.reason}); convert the file"
        ) from None


def _numbers(lines: list[str], row: int, where: str) -> Float64Array:
    values = np.empty(len(lines))
    for i, line in enumerate(lines):
        try:
            values[i] = float(line)
        except ValueError:
            raise BadInput(f"{where}: row {row + i}: {line!r} isn't a number; fix it") from None
    return values


def checked_weights(values: Float64Array, row: int, where: str) -> Float64Array:
    """Return weights, and refuse any that aren't finite or are negative.

    ``row`` is the number of the first row, for the message.
    """
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0) & (values <= MAX_WEIGHT)))
    if bad.size:
        raise BadInput(
            f"{where}: row {row + bad[0]}: weight {values[bad[0]]}; weights must be finite and "
            f"non-negative, and at most {MAX_WEIGHT:g}"
        )
    return values
