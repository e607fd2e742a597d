"""JSON lines: one object, or one array of numbers, on each line.

The keys of the first objects are the fields: a list of numbers is a field of vectors, and numbered
keys are joined to vectors as in other tables (:func:`.container.joined_fields`). Keys of inner
objects are joined with dots (``meta.lang``). A vector that is missing or null is read as NaN, so
that an ingest can name its row or drop it. A document that isn't one value a line is refused.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import (
    NO_VALUE,
    STRINGS,
    Container,
    Field,
    columns_beside,
    joined_fields,
    unlike_column,
)
from latentscale_pipeline.corpus.formats.file import BLOCK_BYTES, File
from latentscale_pipeline.corpus.formats.lines import (
    SNIFFED_ROWS,
    Lines,
    count_lines,
    sniff,
)
from latentscale_pipeline.errors import BadInput

SUFFIXES = (".jsonl", ".ndjson")

NOT_LINES = (
    "JSON, but not one row a line; for an array of rows run jq -c '.[]' FILE.json > FILE.jsonl, or "
    "save the vectors with numpy.save"
)

_BEGINNING = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*["}]|\[\s*(-?\d|\[|\{|"|\]))')
_TEXT_BYTES = 128
"""Approximate size of a text value in memory."""


@dataclass(frozen=True)
class JsonLines(Container):
    """An open file of JSON lines."""

    path: str
    fields: tuple[Field, ...]
    lines: Lines
    single: bool = False

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one field."""
        d = field.shape[1] if len(field.shape) == 2 else 1
        row_bytes = _TEXT_BYTES if field.dtype.kind == "T" else 8 * d
        rows = self.lines.read(start, stop)
        while block := list(islice(rows, max(1, BLOCK_BYTES // row_bytes))):
            values = [self._value(field, *row) for row in block]
            try:
                yield np.array(values, field.dtype)
            except OverflowError:
                raise BadInput(
                    f"{self.path}: rows {block[0][0]} to {block[-1][0]}: {field.name} has a number "
                    f"too large for {field.dtype}; fix it"
                ) from None

    def as_written(self, field: Field) -> Field:
        """Return a field with its whole numbers and flags as texts: a later row may have a text."""
        return replace(field, dtype=STRINGS) if field.dtype.kind in "iub" else field

    def untyped(self, field: Field) -> bool:
        """Return whether later values may be of another type; texts stay texts."""
        return len(field.shape) == 1 and (field.unseen or field.dtype.kind in "iufb")

    def _value(self, field: Field, row: int, offset: int, line: str) -> Any:
        """Return one row's value of a field."""
        where = f"{self.path}: row {row}, at byte {offset}"
        try:
            found = _flat(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{where}: not valid JSON ({_problem(error)}); fix the line") from None
        if field.columns:
            return [_number(found.get(name), field, f"{where}: {name}") for name in field.columns]
        value = found.get(field.name)
        where = f"{where}: {field.name}" if field.name else where
        if len(field.shape) == 2:
            return _vector(value, field.shape[1], where)
        if value is None and field.empty_for_null:
            return "" if field.dtype.kind == "T" else np.nan
        if value is None:
            raise BadInput(f"{where} {NO_VALUE}")
        return _text(value) if field.dtype.kind == "T" else _number(value, field, where)


def begins_as_json(head: bytes) -> bool:
    """Return whether a file with these first bytes is a JSON object or array, or several."""
    return _BEGINNING.match(head) is not None


def is_json_lines(file: File, head: bytes) -> bool:
    """Return whether a file's first lines are JSON objects, or arrays of numbers."""
    if not begins_as_json(head):
        return False
    if file.suffix in SUFFIXES:
        return True
    first = _first_objects(sniff(file), file.size)
    # One line of a .json is a document, even if it could be a row.
    return _are_rows(first) and not (len(first) == 1 and file.suffix == ".json")


def open_json_lines(file: File) -> JsonLines:
    """Open a file of JSON lines, and count its rows.

    Raises
    ------
    BadInput
        If it is a JSON document of another form.
    """
    first = _first_objects(sniff(file), file.size)
    if not _are_rows(first):
        raise BadInput(f"{file.name}: {NOT_LINES}")
    lines = count_lines(file)
    names = dict.fromkeys(name for found in first for name in found)
    fields = [_field(name, [found.get(name) for found in first], lines.rows) for name in names]
    known = tuple(field for field in fields if field is not None)
    numbers = {f.name: f.dtype for f in known if f.dtype.kind in "iuf" and len(f.shape) == 1}
    values = {
        name: [found.get(name) for found in first]
        for name, dtype in numbers.items()
        if dtype.kind != "f"
    }
    others = columns_beside(known, numbers)
    joined = [
        replace(field, unlike=unlike_column(field.columns, values))
        for field in joined_fields(numbers, lines.rows, others)
    ]
    return JsonLines(file.name, (*known, *joined), lines, single=[*names] == [""])


def _first_objects(head: bytes, size: int) -> list[dict[str, Any]]:
    """Return the first lines as flat mappings, up to one that isn't valid."""
    texts = [text for text in head.removeprefix(b"\xef\xbb\xbf").split(b"\n") if text.strip()]
    if len(head) < size and len(texts) > 1:
        texts.pop()  # its end may be missing
    found: list[dict[str, Any]] = []
    with contextlib.suppress(ValueError, RecursionError):  # reading the row reports its position
        for text in texts[:SNIFFED_ROWS]:
            found.append(_flat(json.loads(text)))  # noqa: PERF401 -- those before an error are kept
    return found


def _are_rows(first: list[dict[str, Any]]) -> bool:
    """Return whether the first values can be rows: objects, or arrays of numbers."""
    arrays = [found[""] for found in first if [*found] == [""]]
    return bool(first) and (not arrays or _kind(arrays) == "vector")


def _flat(value: Any) -> dict[str, Any]:
    """Return an object with the keys of inner objects joined by dots; an array has an empty key."""
    if not isinstance(value, dict):
        return {"": value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat |= {f"{key}.{name}": deep for name, deep in _flat(inner).items()}
        else:
            flat[key] = inner
    return flat


def _field(name: str, values: list[Any], rows: int) -> Field | None:
    """Return the field of a key with these first values, or None if it can't be used."""
    kind = _kind(values)
    if kind == "vector":
        d = len(next(value for value in values if _is_vector(value)))
        return Field(name, (rows, d), np.dtype(np.float64))
    if all(value is None for value in values):
        return Field(name, (rows,), STRINGS, unseen=True)
    dtypes = {
        "integer": np.dtype(np.int64),
        "unsigned": np.dtype(np.uint64),
        "number": np.dtype(np.float64),
        "flag": np.dtype(bool),
        "text": STRINGS,
    }
    return Field(name, (rows,), cast("np.dtype[Any]", dtypes[kind])) if kind else None


def _kind(values: Iterable[Any]) -> str | None:
    present = [value for value in values if value is not None]
    if not present:
        return None
    # Some values may be malformed: reading them reports their rows.
    if 2 * sum(map(_is_vector, present)) > len(present):
        return "vector"
    if not all(isinstance(value, str | bool | int | float) for value in present):
        return None
    if all(isinstance(value, bool) for value in present):
        return "flag"
    if all(_is_number(value) for value in present):
        if not all(isinstance(value, int) for value in present):
            return "number"
        if all(-(2**63) <= value < 2**63 for value in present):
            return "integer"
        # Hashes of 64 bits; larger numbers are texts, because a float would round them.
        return "unsigned" if all(0 <= value < 2**64 for value in present) else "text"
    return "text"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_vector(value: Any) -> bool:
    """Return whether a value is a list of numbers and nulls that isn't empty."""
    numeric = isinstance(value, list) and all(_is_number(x) or x is None for x in value)
    return numeric and bool(value)


def _vector(value: Any, d: int, where: str) -> list[float]:
    if value is None:
        return [np.nan] * d
    if not _is_vector(value):
        raise BadInput(f"{where}: {_shown(value)} isn't a list of numbers; fix it")
    if len(value) != d:
        raise BadInput(
            f"{where}: {len(value)} dimensions, but the first row has {d}; give all rows the same "
            "length"
        )
    return [np.nan if x is None else x for x in value]


def _number(value: Any, field: Field, where: str) -> Any:
    whole = field.dtype.kind in "iu"
    if value is None and not whole:
        return np.nan
    if not _is_number(value) or (whole and not isinstance(value, int)):
        wanted = "a whole number" if whole else "a number"
        raise BadInput(f"{where}: {_shown(value)} isn't {wanted}; fix it")
    return value


def _text(value: Any) -> str:
    # True and false are spelt as columns of other formats have them.
    as_is = isinstance(value, str | bool)
    text = str(value) if as_is else json.dumps(value, ensure_ascii=False)
    # A text that was cut may end in half of a character, which no encoding has. It stays escaped,
    # so that ids that differ in it stay different.
    return text.encode(errors="backslashreplace").decode()


def _shown(value: Any) -> str:
    return json.dumps(value)[:40]


def _problem(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
