"""Text: CSV, TSV, the text format of word2vec (and GloVe), and one value per line.

Each line is a row, but a quoted field may have line breaks. Fields are separated by tabs, commas,
semicolons or blanks. If the first line has no numbers, or counts (``id,0,1,2``), it names the
columns; otherwise their names are their numbers, from 0. A first line with two whole numbers (rows
and dimensions) is word2vec's header. Numeric columns are joined to vectors as in other tables
(:func:`.container.joined_fields`). If some named columns have fractions, those with whole numbers
only are left out of the vectors, unless their names are numbered like those of others. Of these,
and of columns without names, such a first or last one has to be explained by the user. A column of
lists (``"[0.1, 0.2]"``) is a field of vectors. Empty lines are skipped, and an empty cell of a
vector is read as NaN.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import (
    NO_OTHERS,
    STRINGS,
    Container,
    Field,
    NoRows,
    UnknownField,
    joined_fields,
    stem_of,
    unlike_column,
)
from latentscale_pipeline.corpus.formats.file import BLOCK_BYTES, File, file_errors
from latentscale_pipeline.corpus.formats.lines import (
    MAX_ROW_BYTES,
    SNIFFED_BYTES,
    SNIFFED_ROWS,
    Lines,
    count_lines,
    first_lines,
    sniff,
)
from latentscale_pipeline.errors import BadInput

WHITESPACE = " "
"""Delimiter that stands for any run of blanks."""

TABLES = {".csv": ",", ".tsv": "\t"}
"""Suffixes of tables, and what separates their columns."""

NO_DELIMITER = "\x1f"
"""Delimiter of a single column, whose texts may be in quotes: a sign that texts don't have."""

WHOLE_LINE = ""
"""Delimiter that stands for none: each line is one value."""

MIN_COUNTED = 3
"""Fewest columns named 0, 1, 2 … that show a line of names beside others."""

# A field may be as long as a row.
csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))

_TEXT_BYTES = 128
"""Approximate size of a text value in memory."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf(inity)?)", re.I)
_WHOLE = re.compile(r"[+-]?\d+")
_MISSING = frozenset({"na", "n/a", "null", "none", "-"})
_LIST = re.compile(r"\[\s*(?:[-+.\d]|(?:nan|inf)\b)[^\[\]]*[\s,][^\[\]]*\]", re.I)
_BLANKS = " \t\r\n"
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")

FORMULA = ("=", "+", "-", "@")
"""Characters with which a cell begins, after spaces, that a spreadsheet takes for a formula."""


def escape_formula(text: str) -> str:
    """Return a text with an apostrophe before what a spreadsheet would take for a formula."""
    # One that looks as if it were escaped already is escaped too, so that it stays as it is.
    return f"'{text}" if _is_formula(text) else text


def unescape_formula(text: str) -> str:
    """Return a text as it was before :func:`escape_formula`."""
    return text.removeprefix("'") if _is_formula(text) else text


def _is_formula(text: str) -> bool:
    return text.lstrip("'").lstrip().startswith(FORMULA)


def format_csv_line(cells: Iterable[Any]) -> str:
    """Return a line of a CSV file that reads back as these values, missing ones as empty cells."""
    written = [_csv_cell(cell) for cell in cells]
    # A line of nothing would be no row.
    return (",".join(written) or '""') + "\n"


def _csv_cell(value: Any) -> str:
    if not isinstance(value, str):
        return "" if value is None else repr(value) if type(value) is float else str(value)
    # Blanks at an end belong to a text only between quotes.
    return '"' + value.replace('"', '""') + '"' if _NEEDS_QUOTES.search(value) else value


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

    @property
    def separator(self) -> str:
        """Return the delimiter if fields may be quoted; else nothing."""
        return "" if self.delimiter == WHITESPACE else self.delimiter

    def split(self, line: str) -> list[str]:
        """Split a line into fields."""
        if self.delimiter == WHOLE_LINE:
            return [line]
        if self.delimiter == WHITESPACE:
            return self._split_at_blanks(line)
        if self.delimiter == NO_DELIMITER:
            value = line.strip(_BLANKS)
            return [value[1:-1].replace('""', '"') if _QUOTED.fullmatch(value) else line]
        if '"' in line:
            return next(csv.reader([line], delimiter=self.delimiter), [])
        return line.split(self.delimiter)

    def is_quoted(self, line: str, place: int) -> bool:
        """Return whether a field of a line stands between quotes."""
        if '"' not in line:
            return False
        if self.delimiter == NO_DELIMITER:
            return _QUOTED.fullmatch(line.strip(_BLANKS)) is not None
        start = 0
        for _ in range(place):
            quoted = _QUOTED.match(line, start)
            start = line.find(self.delimiter, quoted.end() if quoted else start) + 1
        return line.startswith('"', start)

    def _split_at_blanks(self, line: str) -> list[str]:
        """Split at blanks; a word before numbers may have some, of which Unicode has many."""
        cells = line.split()
        if not self.names or len(cells) == len(self.names):
            return cells
        line = line.strip(_BLANKS)
        known = re.split(f"[{_BLANKS}]+", line)
        words = known[: 1 + max(0, len(known) - len(self.names))]
        if len(words) > 1 and not any(map(_NUMBER.fullmatch, words)):
            # Published vectors have such words as ". .".
            return line.rsplit(maxsplit=len(self.names) - 1)
        return known

    def guess(self, line: str) -> list[str]:
        """Split a line that may be malformed; reading it reports that."""
        try:
            return self.split(line)
        except csv.Error:
            return line.split(self.delimiter)


@dataclass(frozen=True)
class Text(Container):
    """An open text file."""

    path: str
    fields: tuple[Field, ...]
    lines: Lines
    dialect: Dialect
    single: bool = False
    header: tuple[str, ...] = ()
    only_line: tuple[str, ...] = ()

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one column, or of columns that are joined to vectors."""
        is_text = field.dtype.kind == "T"
        is_list = len(field.shape) == 2 and not field.columns
        places = [self.dialect.names.index(name) for name in field.columns or (field.name,)]
        row_values = field.shape[1] if is_list else len(places)
        most = max(1, BLOCK_BYTES // (_TEXT_BYTES if is_text else 8 * row_values))
        rows = self._rows(start, stop)
        while block := list(itertools.islice(rows, most)):
            if is_text:
                yield np.array([self._text(*row, places[0]) for row in block], STRINGS)
                continue
            values = np.empty((len(block), row_values), field.dtype)
            for i, (row, offset, line, cells) in enumerate(block):
                found = [cells[place] for place in places]
                if is_list:
                    found = self._items(found[0], row_values, row, offset)
                if "_" in line and any("_" in cell for cell in found):
                    raise self._wrong(found, field, row, offset)
                values[i] = self._numbers(found, field, row, offset)
            yield values if field.columns or is_list else values[:, 0]

    def _text(self, row: int, offset: int, line: str, cells: list[str], place: int) -> str:
        text, stripped = cells[place], cells[place].strip()
        kept = self.dialect.delimiter in {WHOLE_LINE, WHITESPACE} or text == stripped
        return text if kept or self.dialect.is_quoted(line, place) else stripped

    def as_written(self, field: Field) -> Field:
        """Return a field with its whole numbers as they are written: 007 isn't 7."""
        return replace(field, dtype=STRINGS) if field.dtype.kind == "i" else field

    def untyped(self, field: Field) -> bool:
        """Return whether a field is one cell a row: no cell has a type."""
        return field.dtype.kind in "ifT"

    def _rows(self, start: int, stop: int) -> Iterator[tuple[int, int, str, list[str]]]:
        """Yield row number, byte offset, line and fields of each row."""
        for row, offset, line in self.lines.read(start, stop):
            try:
                cells = self.dialect.split(line)
            except csv.Error as error:
                raise BadInput(
                    f"{self.path}: row {row}, at byte {offset}: {error}; fix the line"
                ) from None
            if len(cells) != len(self.dialect.names):
                raise BadInput(
                    f"{self.path}: row {row}, at byte {offset}, has {len(cells)} fields instead of "
                    f"{len(self.dialect.names)}; fix the line"
                )
            yield row, offset, line, cells

    def _items(self, cell: str, d: int, row: int, offset: int) -> list[str]:
        items = _items(cell) if cell.strip() else ["nan"] * d
        if len(items) != d:
            raise BadInput(
                f"{self.path}: row {row}, at byte {offset}, has a list of {len(items)} numbers "
                f"instead of {d}; give all rows the same length"
            )
        return items

    def _numbers(self, cells: list[str], field: Field, row: int, offset: int) -> npt.NDArray[Any]:
        try:
            return np.array(cells, field.dtype)
        except (ValueError, OverflowError):
            if len(field.shape) == 2 and not all(cell.strip() for cell in cells):
                filled = [cell if cell.strip() else "nan" for cell in cells]
                return self._numbers(filled, field, row, offset)
            raise self._wrong(cells, field, row, offset) from None

    def _wrong(self, cells: list[str], field: Field, row: int, offset: int) -> BadInput:
        whole = field.dtype.kind == "i"
        pattern, what = (_WHOLE, "a whole number") if whole else (_NUMBER, "a number")
        wrong = next((cell for cell in cells if not pattern.fullmatch(cell.strip())), cells[0])
        return BadInput(
            f"{self.path}: row {row}, at byte {offset}: {wrong[:40]!r} isn't {what}; fix it"
        )


def open_lines(file: File) -> Text:
    """Open a text file with one value per line (ids, labels or weights), and count its lines.

    In a table of one column a value may stand between quotes.
    """
    dialect = Dialect(NO_DELIMITER if file.suffix in TABLES else WHOLE_LINE, ("",), 0)
    lines = count_lines(file, keep_empty=True, separator=dialect.separator)
    return Text(file.name, (Field("", (lines.rows,), STRINGS),), lines, dialect, single=True)


def columns_of_line(file: File) -> int:
    """Return the number of columns of a table's first line; 1 for a file of another kind."""
    separator = TABLES.get(file.suffix)
    if separator is None or file.is_folder:
        return 1
    first = file.head().removeprefix(codecs.BOM_UTF8).split(b"\n", 1)[0].decode(errors="replace")
    return len(Dialect(separator, (), 0).guess(first.lstrip(" ")))


def is_text_vectors(file: File, head: bytes) -> bool:
    """Return whether a file's first lines are rows of several numbers."""
    return _sniffed(file, head, None) is not None


def open_text(file: File, delimiter: str | None = None, *, column: str | None = None) -> Text:
    """Open a text file; without a delimiter it is detected from the first lines.

    If the first line names a ``column``, the file needs no numbers.
    """
    head = sniff(file)
    if b"\r" in head.rstrip(b"\r") and b"\n" not in head:
        raise BadInput(
            f"{file.name}: its lines end with carriage returns alone; write it with line feeds"
        )
    dialect = _sniffed(file, head, delimiter) or _naming(first_lines(head, file.size), column)
    if dialect is None:
        if column is not None:
            _refuse_repeated_name(file, head, column)
            raise UnknownField(
                f"{file.name}: its first line names no column {column!r} (it begins with "
                f"{head[:40]!r}); name one that it has"
            )
        if delimiter is not None or file.suffix in TABLES:
            _refuse_other_tables(file, head, delimiter)
        advice = "name the format with ingest --format, or" if delimiter is None else "check it, or"
        raise BadInput(
            f"{file.name}: its first lines aren't rows of several numbers (it begins with "
            f"{head[:20]!r}); {advice} convert it with numpy.save"
        )
    lines = count_lines(file, dialect.skipped, separator=dialect.separator)
    if dialect.stated is not None and lines.rows != dialect.stated[0]:
        raise BadInput(
            f"{file.name}: its first line states {dialect.stated[0]} rows, but it has {lines.rows} "
            f"(up to byte {file.size}); copy or write it again"
        )
    sniffed = first_lines(head, file.size, dialect.separator)[dialect.skipped :][:SNIFFED_ROWS]
    table = [[cell.strip() for cell in dialect.guess(line)] for line in sniffed]
    table = [row for row in table if len(row) == len(dialect.names)]
    if dialect.delimiter != WHITESPACE:
        _refuse_decimal_commas(file.name, zip(*table, strict=True))
    only = tuple(table[0]) if lines.rows == 1 and not dialect.skipped and table else ()
    names = dialect.names if dialect.skipped and dialect.stated is None else ()
    fields = _fields(table, dialect, lines.rows)
    return Text(file.name, fields, lines, dialect, header=names, only_line=only)


def _refuse_other_tables(file: File, head: bytes, delimiter: str | None) -> None:
    """Say what is wrong with a table that has no vectors, where that is plain."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadInput(f"{file.name}: isn't UTF-8; convert the file")
    if b"\0" in head:
        raise BadInput(f"{file.name}: byte {head.index(0)} is 0, which no text has; check the file")
    lines = first_lines(head, file.size)[:SNIFFED_ROWS]
    if not lines:
        raise NoRows(f"{file.name}: there are no rows; leave the file out")
    for sign in [delimiter] if delimiter else [sign for sign in ";\t," if sign in lines[0]]:
        rows = [[cell.strip() for cell in Dialect(sign, (), 0).guess(line)] for line in lines]
        if len(rows) == 1:
            raise NoRows(
                f"{file.name}: there are no rows, only the line {lines[0][:40]!r}; leave the file "
                "out",
                rows[0],
            )
        rows = [row for row in rows if len(row) == len(rows[0])]
        twice = [name for name, count in Counter(rows[0]).items() if count > 1]
        if len(rows) > 1 and sum(bool(_NUMBER.fullmatch(cell)) for cell in rows[1]) > 1 and twice:
            raise BadInput(f"{file.name}: two columns are called {twice[0]!r}; rename one")
        _refuse_decimal_commas(file.name, zip(*rows[1:], strict=True))


def _sniffed(file: File, head: bytes, delimiter: str | None) -> Dialect | None:
    lines = first_lines(head, file.size)
    if lines and len(lines) < 2 and len(head) < min(file.size, SNIFFED_BYTES):
        with file_errors(file.name):  # long rows: two lines don't fit in the first bytes
            head = sniff(file)
        lines = first_lines(head, file.size)
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
    if delimiter is None:
        cells = re.split(r"[;\s]+", example.strip(" ;\t"))
        if len(cells) > 1 and all(map(_DECIMAL_COMMA.fullmatch, cells)):
            raise _decimal_commas(file.name, cells[0])
    outside = _LIST.sub("", example)
    signs = [delimiter] if delimiter else [sign for sign in "\t,;" if sign in outside]
    # A sign may stand in texts only: the next one separates fields then.
    tried = (_separated(file, head, lines, sign) for sign in signs or [WHITESPACE])
    return next((dialect for dialect in tried if dialect is not None), None)


def _separated(file: File, head: bytes, lines: list[str], delimiter: str) -> Dialect | None:
    """Return the dialect of a file whose fields a sign separates; None if they have no numbers."""
    dialect = Dialect(delimiter, (), 0)
    if any('"' in line for line in lines[:2]):
        lines = first_lines(head, file.size, dialect.separator)
        if not lines:
            return None
    cells = [[cell.strip() for cell in dialect.guess(line)] for line in lines[:2]]
    numbers = [[bool(_NUMBER.fullmatch(cell)) for cell in row] for row in cells]
    if sum(numbers[-1]) < 2 and not any(map(_LIST.fullmatch, cells[-1])):
        return None
    if len(cells) == 2 and len(cells[0]) == len(cells[1]) and _names_columns(cells[0]):
        names = tuple(cells[0])
        return Dialect(delimiter, names, 1) if len(set(names)) == len(names) else None
    if len(lines) > 1 and sum(numbers[0]) < 2 and not any(map(_LIST.fullmatch, cells[0])):
        return None
    return Dialect(delimiter, tuple(str(place) for place in range(len(cells[0]))), 0)


def _naming(lines: Sequence[str], column: str | None) -> Dialect | None:
    """Return the dialect of a first line of names, if a column is one of them; else nothing."""
    if column is None or not lines:
        return None
    # With one column there is none: a tab or a comma in its texts isn't one.
    for delimiter in [sign for sign in "\t,;" if sign in lines[0]] or NO_DELIMITER:
        names = tuple(cell.strip() for cell in Dialect(delimiter, (), 0).guess(lines[0]))
        if column in names and len(set(names)) == len(names):
            return Dialect(delimiter, names, 1)
    return None


def _refuse_repeated_name(file: File, head: bytes, column: str) -> None:
    first = first_lines(head, file.size)[:1]
    for line, delimiter in ((line, sign) for line in first for sign in "\t,;" if sign in line):
        names = [cell.strip() for cell in Dialect(delimiter, (), 0).guess(line)]
        if column in names and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"{file.name}: two of its columns are called {twice!r}; rename one")


def _decimal_commas(name: str, cell: str) -> BadInput:
    return BadInput(f"{name}: its numbers have decimal commas ({cell}); write them with points")


def _refuse_decimal_commas(name: str, columns: Iterable[Sequence[str]]) -> None:
    """Refuse columns of numbers such as 0,25, which aren't 1,500, unless others have points."""
    found = []
    for cells in columns:
        if any("." in cell and _NUMBER.fullmatch(cell) for cell in cells):
            return
        known = [cell for cell in cells if cell]
        if any(map(_LIST.fullmatch, known)):
            return
        if known and all(map(_DECIMAL_COMMA.fullmatch, known)):
            found.append(known)
    fractions = [cell for known in found for cell in known if not _THOUSANDS.fullmatch(cell)]
    if len(found) > 1 and fractions:
        raise _decimal_commas(name, fractions[0])


def _items(cell: str) -> list[str]:
    """Return the items of a list such as ``[0.1, 0.2]`` or ``[0.1 0.2]``."""
    return cell.strip()[1:-1].replace(",", " ").split()


def _names_columns(cells: list[str]) -> bool:
    """Return whether a first line holds column names, which may be a data frame's numbers."""
    numbers = [cell for cell in cells if _NUMBER.fullmatch(cell)]
    from_zero, from_one = (
        [str(first + place) for place in range(len(numbers))] for first in (0, 1)
    )
    if any(cell and cell not in numbers for cell in cells):
        # Beside a name, few numbers that count may be a row.
        counts = len(numbers) >= MIN_COUNTED and numbers in (from_zero, from_one)
    else:
        counts = numbers == from_zero
    return not numbers or counts


def _fields(table: list[list[str]], dialect: Dialect, rows: int) -> tuple[Field, ...]:
    """Return the fields of a text file, with column types detected from the first rows."""
    table = table or [[""] * len(dialect.names)]
    dtypes: dict[str, np.dtype[Any]] = {}
    numbers: dict[str, bool] = {}  # numeric columns, and whether all values there are whole
    lists: dict[str, int] = {}
    mostly_empty: dict[str, bool] = {}
    others: dict[str, bool] = {}
    for place, name in enumerate(dialect.names):
        cells = [row[place] for row in table]
        known = [cell for cell in cells if cell]
        if known and all(map(_LIST.fullmatch, known)):
            lists[name] = len(_items(known[0]))
            continue
        matching = sum(bool(_NUMBER.fullmatch(cell)) for cell in cells)
        whole = all(map(_WHOLE.fullmatch, cells))
        but_gaps = all(not cell or _WHOLE.fullmatch(cell) for cell in cells)
        # Some cells may be malformed: the column stays numeric, and reading it reports them.
        if 2 * matching > len(cells):
            numbers[name] = but_gaps
        values = [cell for cell in known if cell.lower() not in _MISSING]
        if name not in numbers and 2 * matching > len(values):
            mostly_empty[name] = but_gaps
        elif name not in numbers:
            others[name] = not values
        as_numbers = np.dtype(np.int64 if whole else np.float64)
        dtypes[name] = as_numbers if matching == len(cells) else cast("np.dtype[Any]", STRINGS)
    stems = Counter(stem_of(name) for name in numbers)
    series = {stem for stem, count in stems.items() if stem is not None and count > 1}
    numbers |= {name: whole for name, whole in mostly_empty.items() if stem_of(name) in series}
    # With names, a column of whole numbers may be an id; without names, it is taken as values.
    unnamed = dialect.skipped == 0 or dialect.stated is not None
    taken = unnamed or all(numbers.values())
    joined = {
        name: np.dtype(np.float64 if taken or not whole else np.int64)
        for name, whole in numbers.items()
    }
    fields = [Field(name, (rows,), dtype) for name, dtype in dtypes.items()]
    fields += [Field(name, (rows, d), np.dtype(np.float64)) for name, d in lists.items()]
    whole_columns = {
        name: [row[place] for row in table]
        for place, name in enumerate(dialect.names)
        if dialect.stated is None and numbers.get(name)
    }
    return tuple(
        fields
        + [
            replace(field, unlike=unlike_column(field.columns, whole_columns))
            for field in joined_fields(joined, rows, NO_OTHERS if unnamed else others)
        ]
    )
