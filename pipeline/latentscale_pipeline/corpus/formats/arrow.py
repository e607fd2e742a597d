"""Parquet and Arrow tables: vectors in a list column, or one dimension per column.

A column of lists, of fixed or equal length, or of fixed-shape tensors is a field of vectors.
Numbered float columns are joined to one (:func:`.container.joined_fields`). Null in a vector of
floats is read as NaN, so that an ingest can name its row or drop it. Rows are decoded in batches of
a few MiB. Arrow's file format, also known as Feather 2, gives access to any batch; its stream
format is read from the beginning.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentscale_pipeline.corpus.formats.container import (
    NO_VALUE,
    STRINGS,
    Container,
    Field,
    columns_beside,
    joined_fields,
)
from latentscale_pipeline.corpus.formats.file import BLOCK_BYTES, File, decoding
from latentscale_pipeline.errors import BadInput

_TEXT_ROW_BYTES = 64

_FIRST_ROWS = 64
"""Number of rows at a time in which a first vector is sought, to learn its length."""


@dataclass(frozen=True)
class Table(Container):
    """A table whose batches are decoded on demand.

    Attributes
    ----------
    kind : str
        ``parquet``, ``arrow file`` or ``arrow stream``.
    groups : tuple of int
        Number of rows of each row group (Parquet) or record batch (Arrow).
    ranges : mapping of str to range
        Columns that aren't stored: pandas notes an even index in the metadata.
    """

    path: str
    fields: tuple[Field, ...]
    file: File
    kind: str
    groups: tuple[int, ...]
    ranges: Mapping[str, range] = dataclasses.field(default_factory=dict)

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one field; earlier row groups or batches aren't decoded."""
        if (even := self.ranges.get(field.name)) is not None:
            for first in range(start, stop, BLOCK_BYTES // 8):
                part = even[first : min(first + BLOCK_BYTES // 8, stop)]
                yield np.arange(part.start, part.stop, part.step).astype(field.dtype)
            return
        names = field.columns or (field.name,)
        row = start
        with decoding(self.path, self.kind, self.file.size):
            for first, batch in self._batches(names, field, start, stop):
                low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                if low < high:
                    yield self._values(batch.slice(low, high - low), field, first + low)
                    row = first + high
        if row < stop:
            raise BadInput(
                f"{self.path}: truncated: it ends after {row} of the {stop} rows that its metadata "
                "states; copy or write it again"
            )

    def _batches(
        self, names: Sequence[str], field: Field, start: int, stop: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield the batches that hold the rows, each with the number of its first row."""
        ends = list(itertools.accumulate(self.groups))
        wanted = [
            (end - rows, index)
            for index, (end, rows) in enumerate(zip(ends, self.groups, strict=True))
            if end - rows < stop and end > start
        ]
        with _opened(self.file) as source:
            if self.kind == "parquet":
                yield from _parquet_batches(source, wanted, names, field, start)
            elif self.kind == "arrow file":
                reader = pa.ipc.open_file(source, options=_only(source, names))
                for first, index in wanted:
                    yield first, _checked(reader.get_batch(index).select(list(names)))
            else:
                first = 0
                for batch in pa.ipc.open_stream(source):
                    if first < stop and first + batch.num_rows > start:
                        yield first, _checked(batch.select(list(names)))
                    first += batch.num_rows

    def _values(self, batch: Any, field: Field, first: int) -> npt.NDArray[Any]:
        """Convert a batch of one field's columns to an array."""
        if field.columns:
            columns = [_floats(batch.column(name)) for name in field.columns]
            return np.stack(columns, axis=1).astype(field.dtype, copy=False)
        array = batch.column(field.name)
        if len(field.shape) == 2:
            return self._lists(array, field, first)
        return self._column(array, field, first)

    def _column(self, array: Any, field: Field, first: int) -> npt.NDArray[Any]:
        where = f"{self.path}:{field.name}"
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if _is_dated(array.type):
            array = array.cast(pa.string())
        if pa.types.is_decimal(array.type):
            array = _from_decimals(array)
        if not field.empty_for_null:
            _refuse_gaps(array, where, first, NO_VALUE)
        elif array.null_count and field.dtype.kind != "f":
            # As values are written where none is missing: true isn't True.
            return np.array(["" if v is None else str(v) for v in array.to_pylist()], STRINGS)
        if _is_text(array.type):
            return np.array(array.to_pylist(), STRINGS)
        return np.asarray(array.to_numpy(zero_copy_only=False))

    def _lists(self, array: Any, field: Field, first: int) -> npt.NDArray[Any]:
        d = field.shape[1]
        where = f"{self.path}:{field.name}"
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if field.dtype.kind != "f":
            _refuse_gaps(array, where, first, "has no vector; fill it in or leave it out")
        there = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        present = array.drop_null()
        if not pa.types.is_fixed_size_list(array.type):
            lengths = np.diff(present.offsets.to_numpy())
            wrong = np.flatnonzero(lengths != d)
            if wrong.size:
                raise BadInput(
                    f"{where}: row {first + there[wrong[0]]} has {lengths[wrong[0]]} dimensions, "
                    f"but the first vector has {d}; give all rows the same length"
                )
        values = present.flatten()
        if field.dtype.kind != "f":
            _refuse_gaps(
                values, where, first, "contains a null; fill it in or leave the row out", d
            )
        found = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, d)
        if len(there) == len(array):
            return found
        rows = np.full((len(array), d), np.nan, field.dtype)
        rows[there] = found
        return rows


def _floats(array: Any) -> npt.NDArray[Any]:
    """Return a column of floats, with NaN for nulls."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _from_decimals(array: Any) -> Any:
    """Return whole numbers as they are, with more digits than an integer has as text."""
    if array.type.scale:
        return array.cast(pa.float64())
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else str(v) for v in array.to_pylist()], pa.string())


def _refuse_gaps(array: Any, where: str, first: int, fault: str, row_values: int = 1) -> None:
    """Refuse nulls in the values of rows; ``first`` is the number of the first row."""
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        raise BadInput(f"{where}: row {first + nulls.argmax() // row_values} {fault}")


def open_parquet(file: File) -> Table:
    """Open a Parquet file: read its metadata, and the first rows of its list columns."""
    with decoding(file.name, "Parquet", file.size), _opened(file) as source:
        opened = pq.ParquetFile(source, pre_buffer=False)
        about = opened.metadata
        groups = tuple(about.row_group(i).num_rows for i in range(about.num_row_groups))
        lengths = _Lengths(opened.schema_arrow)
        for column in tuple(lengths.unknown):
            valued = _groups_with_values(about, column)
            for batch in opened.iter_batches(_FIRST_ROWS, valued, [column]) if valued else ():
                lengths.read(batch)
                if column in lengths.known:
                    break
        schema = opened.schema_arrow
        ranges = _ranges(schema, sum(groups))
        fields = (*_fields(schema, sum(groups), lengths.known), *_fields_of(ranges))
    return Table(file.name, fields, file, "parquet", groups, ranges)


def _groups_with_values(about: Any, column: str) -> list[int]:
    """Return the row groups of a column that don't say that all their values are null."""
    places = range(about.num_columns)
    leaves = [i for i in places if f"{about.schema.column(i).path}.".startswith(f"{column}.")]
    found = []
    for group in range(about.num_row_groups):
        parts = [about.row_group(group).column(leaf) for leaf in leaves]
        known = [(part.statistics, part.num_values) for part in parts]
        if not all(s is not None and s.has_null_count and s.null_count == n for s, n in known):
            found.append(group)
    return found


def open_arrow(file: File) -> Table:
    """Open an Arrow file or stream: read the row counts of its batches, and its first rows."""
    if file.head(4) == b"FEA1":
        raise BadInput(
            f"{file.name}: Feather version 1, which isn't supported; write it again as Feather 2 "
            "or Parquet"
        )
    is_file = file.head(6) == b"ARROW1"
    groups: list[int] = []
    with decoding(file.name, "Arrow", file.size), _opened(file) as source:
        if is_file:
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            reader = pa.ipc.open_stream(source)
            batches = iter(reader)
        lengths = _Lengths(reader.schema)
        for batch in batches:
            for start in range(0, batch.num_rows, _FIRST_ROWS):
                if not lengths.unknown:
                    break
                lengths.read(_checked(batch.slice(start, _FIRST_ROWS).select(lengths.unknown)))
            groups.append(batch.num_rows)
        ranges = _ranges(reader.schema, sum(groups))
        fields = (*_fields(reader.schema, sum(groups), lengths.known), *_fields_of(ranges))
    kind = "arrow file" if is_file else "arrow stream"
    return Table(file.name, fields, file, kind, tuple(groups), ranges)


@contextmanager
def _opened(file: File) -> Iterator[Any]:
    source = pa.OSFile(file.path) if file.is_local else pa.PythonFile(file.open(), mode="r")
    try:
        yield source
    finally:
        source.close()


def _parquet_batches(
    source: Any, wanted: list[tuple[int, int]], names: Sequence[str], field: Field, start: int
) -> Iterator[tuple[int, Any]]:
    itemsize = _TEXT_ROW_BYTES if field.dtype.kind == "T" else field.dtype.itemsize
    row_bytes = itemsize * int(np.prod(field.shape[1:], dtype=np.int64))
    opened = pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK_BYTES)
    for first, index in wanted:
        for batch in opened.iter_batches(
            batch_size=max(1, BLOCK_BYTES // max(1, row_bytes)),
            row_groups=[index],
            columns=list(names),
            use_threads=False,
        ):
            yield first, batch
            first += batch.num_rows


def _checked(batch: Any) -> Any:
    """Return a batch of an Arrow file, whose offsets and lengths nobody has checked so far.

    Those of a damaged file may point beyond its buffers, and reading there ends the process.
    """
    batch.validate(full=True)
    return batch


def _only(source: Any, names: Sequence[str]) -> Any:
    """Return options that read these columns only, so that the others aren't decompressed."""
    schema = pa.ipc.open_file(source).schema
    return pa.ipc.IpcReadOptions(
        included_fields=[schema.get_field_index(name) for name in names], use_threads=False
    )


class _Lengths:
    """The lengths of the first list with values in each column that has lists of numbers."""

    def __init__(self, schema: Any) -> None:
        self.known: dict[str, int] = {}
        self.unknown: list[str] = []
        for column in schema:
            if pa.types.is_fixed_size_list(kind := _storage(column.type)):
                self.known[column.name] = int(kind.list_size)
            elif _list_type(column.type) is not None:
                self.unknown.append(column.name)

    def read(self, batch: Any) -> None:
        """Take those that are known from some rows; others have no list there."""
        for name in set(self.unknown).intersection(batch.schema.names):
            lengths = pc.list_value_length(batch.column(name).drop_null())
            if first := next(filter(None, lengths.to_pylist()), None):
                self.known[name] = first
                self.unknown.remove(name)


def _fields(schema: Any, rows: int, lengths: Mapping[str, int]) -> tuple[Field, ...]:
    """Return the fields of a table: its vectors, text and numbers.

    ``lengths`` are those of lists, without the columns that hold none.
    """
    fields: list[Field] = []
    floats: dict[str, np.dtype[Any]] = {}
    index = _index_columns(schema)
    for column in schema:
        values = _list_type(column.type)
        if values is not None:
            d = lengths.get(column.name, 0)
            fields.append(Field(column.name, (rows, d), np.dtype(values.to_pandas_dtype())))
        elif _is_text(column.type):
            fields.append(Field(column.name, (rows,), STRINGS))
        elif pa.types.is_null(column.type):
            fields.append(Field(column.name, (rows,), STRINGS, unseen=True))
        elif _is_dated(column.type):
            fields.append(Field(column.name, (rows,), STRINGS, dated=True))
        elif _is_number(_decoded(column.type)):
            dtype = np.dtype(_decoded(column.type).to_pandas_dtype())
            fields.append(Field(column.name, (rows,), dtype))
            is_plain = column.name not in index and not pa.types.is_dictionary(column.type)
            if is_plain and dtype.kind == "f":
                floats[column.name] = dtype
        elif pa.types.is_decimal(column.type):
            dtype = np.dtype(np.int64 if column.type.scale == 0 else np.float64)
            fields.append(Field(column.name, (rows,), dtype))
        elif pa.types.is_boolean(column.type):
            fields.append(Field(column.name, (rows,), np.dtype(bool)))
        else:
            unread = str(column.type)
            fields.append(Field(column.name, (rows,), np.dtype(object), unread=unread))
    others = columns_beside(fields, {*floats, *index})
    return tuple(fields + joined_fields(floats, rows, others))


def _index_columns(schema: Any) -> set[str]:
    """Return the columns that are the index of a pandas data frame, and no dimensions."""
    return {each for each in _index(schema) if isinstance(each, str)}


def _ranges(schema: Any, rows: int) -> dict[str, range]:
    """Return the named even indices of a pandas data frame, which has as many rows."""
    ranges = {}
    for each in _index(schema):
        with suppress(ValueError, TypeError, KeyError):
            even = range(each["start"], each["stop"], each["step"])
            if isinstance(each["name"], str) and len(even) == rows:
                ranges[each["name"]] = even
    return {name: even for name, even in ranges.items() if name not in schema.names}


def _index(schema: Any) -> list[Any]:
    """Return what the metadata of a pandas data frame says of its index."""
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
        return found if isinstance(found, list) else []
    return []


def _fields_of(ranges: Mapping[str, range]) -> Iterator[Field]:
    for name, even in ranges.items():
        yield Field(name, (len(even),), np.dtype(np.int64))


def _list_type(kind: Any) -> Any | None:
    """Return the type of a list's values, or None if the column isn't a list of numbers."""
    kind = _storage(kind)
    is_list = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    return kind.value_type if is_list and _is_number(kind.value_type) else None


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _decoded(kind: Any) -> Any:
    """Return the type of a column's values, also if each is stored once."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_dated(kind: Any) -> bool:
    """Return whether values are dates or times, which are read as the text they are written as."""
    types = pa.types
    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind))


def _is_text(kind: Any) -> bool:
    return _decoded(kind) in {pa.string(), pa.large_string(), pa.string_view()}
