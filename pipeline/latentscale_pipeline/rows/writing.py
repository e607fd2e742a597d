"""Write tables of rows: Parquet, CSV, JSON lines."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from latentscale_pipeline.corpus.export import new_file
from latentscale_pipeline.corpus.formats.text import escape_formula, format_csv_line
from latentscale_pipeline.errors import BadInput, how_to_install
from latentscale_pipeline.rows.table import ColumnValues, Kind


def write_rows(
    tables: Iterator[ColumnValues], kinds: Mapping[str, Kind], target: str, *, overwrite: bool
) -> int:
    """Write rows to a file, by its suffix; return their number.

    Raises
    ------
    BadInput
        If the suffix is unknown, the file exists, or it can't be written.
    """
    with new_file(target, WRITERS, overwrite=overwrite) as (file, write):
        return write(tables, file, kinds)


def json_lines(tables: Iterator[ColumnValues], *, plain: bool = False) -> Iterator[str]:
    """Yield a JSON object for every row, with escapes for all but plain characters if asked to."""
    for table in tables:
        for cells in zip(*table.values(), strict=True):
            row = {name: _finite(cell) for name, cell in zip(table, cells, strict=True)}
            yield json.dumps(row, ensure_ascii=plain, allow_nan=False)


def _finite(cell: Any) -> Any:
    """Return the text of an infinite number, which JSON has no other way to write."""
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def write_json_lines(
    tables: Iterator[ColumnValues], file: BinaryIO, kinds: Mapping[str, Kind]
) -> int:
    """Write a line for every row; return the number of rows."""
    del kinds
    count = 0
    for line in json_lines(tables):
        file.write(f"{line}\n".encode())
        count += 1
    return count


def write_csv(tables: Iterator[ColumnValues], file: BinaryIO, kinds: Mapping[str, Kind]) -> int:
    """Write a header and a line for every row; return the number of rows.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    count = 0
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.write(format_csv_line(kinds))
    for table in tables:
        for cells in zip(*table.values(), strict=True):
            text.write(format_csv_line(map(_cell, cells)))
            count += 1
    text.flush()
    text.detach()
    return count


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape_formula(value) if isinstance(value, str) else value


def write_parquet(tables: Iterator[ColumnValues], file: BinaryIO, kinds: Mapping[str, Kind]) -> int:
    """Write a row group for every table; return the number of rows."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BadInput(
            f"a Parquet file needs pyarrow; install it with: {how_to_install('parquet')}, or "
            "write .csv or .jsonl"
        ) from None
    types = {
        "text": pa.string(),
        "number": pa.float64(),
        "row": pa.int64(),
        "unsigned": pa.uint64(),
        "flag": pa.bool_(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    count = 0
    with pq.ParquetWriter(file, schema) as writer:
        for table in tables:
            found = pa.table(table, schema=schema)
            writer.write_table(found)
            count += found.num_rows
    return count


WRITERS: dict[str, Callable[[Iterator[ColumnValues], BinaryIO, Mapping[str, Kind]], int]] = {
    ".parquet": write_parquet,
    ".csv": write_csv,
    ".jsonl": write_json_lines,
}
"""The writer for every suffix."""
