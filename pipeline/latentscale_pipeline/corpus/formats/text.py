"""Text: CSV, TSV, the text format of word2vec (and GloVe), and one value per line.

Each line is a row. Fields are separated by tabs, commas, semicolons or blanks. If the first line
has no numbers, it names the columns; otherwise their names are their numbers, from 0. A first line
with two whole numbers (rows and dimensions) is word2vec's header. Numeric columns are joined to
vectors as in other tables (:func:`.container.joined_fields`). If some named columns have fractions,
those with whole numbers only are left out of the vectors. Empty lines are skipped.

The first pass counts the lines and records the offset of every 4096th row, so that later reads can
start in the middle of a file.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import STRINGS, Container, Field, joined_fields
from latentscale_pipeline.corpus.formats.file import BLOCK_BYTES, File, reaching
from latentscale_pipeline.errors import BadInput

NOTED_ROWS = 4096
"""Distance between rows whose offsets are recorded."""

SNIFFED_BYTES = 1 << 20
SNIFFED_ROWS = 50

WHITESPACE = " "
"""Delimiter that stands for any run of blanks."""

WHOLE_LINE = ""
"""Delimiter that stands for none: each line is one value."""

_TEXT_BYTES = 128
"""Approximate size of a text value in memory."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf(inity)?)", re.I)
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Dialect:
    """Delimiter, columns and header of a text file.

    Attributes
    ----------
    delimiter : str
        A character, :data:`WHITESPACE` or :data:`WHOLE_LINE`.
    names : tuple of str
        Names of the columns.
    skipped : int
        Number of lines before the first row.
    stated : tuple of int or None
        Rows and dimensions in a word2vec header.
    """

    delimiter: str
    names: tuple[str, ...]
    skipped: int
    stated: tuple[int, int] | None = None

    def split(self, line: str) -> list[str]:
        """Split a line into fields."""
        if self.delimiter == WHOLE_LINE:
            return [line]
        if self.delimiter == WHITESPACE:
            return line.split()
        if '"' in line:
            return next(csv.reader([line], delimiter=self.delimiter), [])
        return line.split(self.delimiter)

    def is_row(self, line: bytes) -> bool:
        """Return whether a line is a row; empty lines are rows only if each line is one value."""
        return self.delimiter == WHOLE_LINE or bool(line.strip())


@dataclass(frozen=True)
class Text(Container):
    """An open text file; ``starts`` are the offsets of every 4096th row."""

    path: str
    fields: tuple[Field, ...]
    file: File
    dialect: Dialect
    starts: tuple[int, ...]
    single: bool = False

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one column, or of columns that are joined to vectors."""
        is_text = field.dtype.kind == "T"
        places = [self.dialect.names.index(name) for name in field.columns or (field.name,)]
        most = max(1, BLOCK_BYTES // (_TEXT_BYTES if is_text else 8 * len(places)))
        rows = self._rows(start, stop)
        while block := list(itertools.islice(rows, most)):
            if is_text:
                texts = [cells[places[0]] for _, _, cells in block]
                whole = self.dialect.delimiter == WHOLE_LINE
                yield np.array(texts if whole else [text.strip() for text in texts], STRINGS)
                continue
            values = np.empty((len(block), len(places)), field.dtype)
            for i, (row, offset, cells) in enumerate(block):
                values[i] = self._numbers([cells[place] for place in places], field, row, offset)
            yield values if field.columns else values[:, 0]

    def _rows(self, start: int, stop: int) -> Iterator[tuple[int, int, list[str]]]:
        """Yield row number, byte offset and fields of each row."""
        with _opened(self.file) as opened:
            offset, row = self.starts[start // NOTED_ROWS], start // NOTED_ROWS * NOTED_ROWS
            opened.seek(offset)
            for line in opened:
                if row >= stop:
                    return
                if self.dialect.is_row(line):
                    if row >= start:
                        yield row, offset, self._cells(line, row, offset)
                    row += 1
                offset += len(line)
        if row < stop:
            raise BadInput(
                f"{self.path}: truncated: it ends at byte {offset}, before row {row}; copy or "
                "write it again"
            )

    def _cells(self, line: bytes, row: int, offset: int) -> list[str]:
        try:
            cells = self.dialect.split(line.decode().strip("\r\n\ufeff"))
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{self.path}: row {row}, at byte {offset + error.start}, isn't UTF-8 "
                f"({error.reason}); convert the file"
            ) from None
        if len(cells) != len(self.dialect.names):
            raise BadInput(
                f"{self.path}: row {row}, at byte {offset}, has {len(cells)} fields instead of "
                f"{len(self.dialect.names)}; fix the line"
            )
        return cells

    def _numbers(self, cells: list[str], field: Field, row: int, offset: int) -> npt.NDArray[Any]:
        try:
            return np.array(cells, field.dtype)
        except (ValueError, OverflowError):
            whole = field.dtype.kind == "i"
            pattern, what = (_WHOLE, "a whole number") if whole else (_NUMBER, "a number")
            wrong = next((cell for cell in cells if not pattern.fullmatch(cell.strip())), cells[0])
            raise BadInput(
                f"{self.path}: row {row}, at byte {offset}: {wrong[:40]!r} isn't {what}; fix it"
            ) from None


def open_lines(file: File) -> Text:
    """Open a text file with one value per line (ids, labels or weights), and count its lines."""
    dialect = Dialect(WHOLE_LINE, ("",), 0)
    rows, starts = _count(file, dialect)
    return Text(file.name, (Field("", (rows,), STRINGS),), file, dialect, starts, single=True)


def is_text_vectors(file: File, head: bytes) -> bool:
    """Return whether a file's first lines are rows of several numbers."""
    return _sniffed(file, head, None) is not None


def open_text(file: File, delimiter: str | None = None) -> Text:
    """Open a text file; without a delimiter it is detected from the first lines."""
    head = file.head(SNIFFED_BYTES)
    dialect = _sniffed(file, head, delimiter)
    if dialect is None:
        raise BadInput(
            f"{file.name}: its first lines aren't rows of several numbers (it begins with "
            f"{head[:20]!r}); name the format with --format, or convert it with numpy.save"
        )
    rows, starts = _count(file, dialect)
    if dialect.stated is not None and rows != dialect.stated[0]:
        raise BadInput(
            f"{file.name}: its first line states {dialect.stated[0]} rows, but it has {rows} "
            f"(up to byte {file.size}); copy or write it again"
        )
    return Text(file.name, _fields(head, dialect, rows), file, dialect, starts)


def _sniffed(file: File, head: bytes, delimiter: str | None) -> Dialect | None:
    lines = _first_lines(head, file.size)
    if lines and len(lines) < 2 and len(head) < file.size and len(head) < SNIFFED_BYTES:
        with reaching(file.name):  # long rows: two lines don't fit in the first bytes
            lines = _first_lines(file.head(SNIFFED_BYTES), file.size)
    if not lines:
        return None
    second = lines[1].split() if len(lines) > 1 else []
    stated = lines[0].split()
    if delimiter in {None, WHITESPACE} and len(stated) == 2 and all(map(_WHOLE.fullmatch, stated)):
        rows, d = int(stated[0]), int(stated[1])
        if len(second) == d + 1 and all(map(_NUMBER.fullmatch, second[1:])):
            names = ("word", *(str(i) for i in range(d)))
            return Dialect(WHITESPACE, names, 1, (rows, d))
    example = lines[1] if len(lines) > 1 else lines[0]
    found = delimiter or next((sign for sign in "\t,;" if sign in example), WHITESPACE)
    dialect = Dialect(found, (), 0)
    cells = [[cell.strip() for cell in dialect.split(line)] for line in lines[:2]]
    numbers = [[bool(_NUMBER.fullmatch(cell)) for cell in row] for row in cells]
    if sum(numbers[-1]) < 2:
        return None
    if len(cells) == 2 and len(cells[0]) == len(cells[1]) and _names_columns(cells[0]):
        names = tuple(cells[0])
        return Dialect(found, names, 1) if len(set(names)) == len(names) else None
    if len(lines) > 1 and sum(numbers[0]) < 2:
        return None
    return Dialect(found, tuple(str(place) for place in range(len(cells[0]))), 0)


def _names_columns(cells: list[str]) -> bool:
    """Return whether a first line holds column names or a data frame's column numbers."""
    counted = [str(place) for place in range(len(cells))]
    return cells in (counted, ["", *counted[:-1]]) or not any(map(_NUMBER.fullmatch, cells))


def _first_lines(head: bytes, size: int) -> list[str]:
    """Return the complete lines at the beginning of a file; none if it isn't text."""
    if b"\0" in head:
        return []
    whole = head if len(head) >= size else head[: head.rfind(b"\n") + 1] or head
    # Invalid UTF-8 is reported with its position when the row is read.
    text = whole.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()][: SNIFFED_ROWS + 1]


def _fields(head: bytes, dialect: Dialect, rows: int) -> tuple[Field, ...]:
    """Return the fields of a text file, with column types detected from the first rows."""
    lines = _first_lines(head, len(head))[dialect.skipped : dialect.skipped + SNIFFED_ROWS]
    table = [dialect.split(line) for line in lines]
    table = [row for row in table if len(row) == len(dialect.names)] or [[""] * len(dialect.names)]
    dtypes: dict[str, np.dtype[Any]] = {}
    numbers: dict[str, bool] = {}  # numeric columns, and whether all their values are whole
    for place, name in enumerate(dialect.names):
        cells = [row[place].strip() for row in table]
        matching = sum(bool(_NUMBER.fullmatch(cell)) for cell in cells)
        whole = all(map(_WHOLE.fullmatch, cells))
        # Some cells may be malformed: the column stays numeric, and reading it reports them.
        if 2 * matching > len(cells):
            numbers[name] = whole
        as_numbers = np.dtype(np.int64 if whole else np.float64)
        dtypes[name] = as_numbers if matching == len(cells) else cast("np.dtype[Any]", STRINGS)
    # With names, a column of whole numbers may be an id; without names, it is taken as values.
    unnamed = dialect.skipped == 0 or dialect.stated is not None
    taken = unnamed or all(numbers.values())
    joined = {name: np.dtype(np.float64) for name, whole in numbers.items() if taken or not whole}
    fields = [Field(name, (rows,), dtype) for name, dtype in dtypes.items()]
    return tuple(fields + joined_fields(joined, rows))


def _count(file: File, dialect: Dialect) -> tuple[int, tuple[int, ...]]:
    """Count the rows, and return the offset of every 4096th."""
    rows, offset = -dialect.skipped, 0
    starts: list[int] = []
    with _opened(file) as opened:
        for line in opened:
            if dialect.is_row(line):
                if rows >= 0 and rows % NOTED_ROWS == 0:
                    starts.append(offset)
                rows += 1
            offset += len(line)
    return max(rows, 0), tuple(starts) or (offset,)


@contextmanager
def _opened(file: File) -> Iterator[io.BufferedReader[Any]]:
    with (
        reaching(file.name),
        file.open() as raw,
        io.BufferedReader(cast(io.RawIOBase, raw), 1 << 20) as lines,
    ):
        yield lines
