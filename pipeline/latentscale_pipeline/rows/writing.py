"""Write tables of rows: Parquet, CSV, JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from latentscale_pipeline.corpus.export import new_file
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.rows.table import Table

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters with which a cell begins that a spreadsheet takes for a formula."""


def write_rows(
    tables: Iterator[Table], names: Sequence[str], target: str, *, overwrite: bool
) -> int:
    """Write rows to a file, by its suffix; return their number.

    Raises
    ------
    BadInput
        If the suffix is unknown, the file exists, or it can't be written.
    """
    with new_file(target, WRITERS, overwrite=overwrite) as (file, write):
        return write(tables, file, names)


def json_lines(tables: Iterator[Table]) -> Iterator[str]:
    """Yield a JSON object for every row."""
    for table in tables:
        for cells in zip(*table.values(), strict=True):
            yield json.dumps(dict(zip(table, cells, strict=True)), ensure_ascii=False)


def write_json_lines(tables: Iterator[Table], file: BinaryIO, names: Sequence[str]) -> int:
    """Write a line for every row; return the number of rows."""
    del names
    count = 0
    for line in json_lines(tables):
        file.write(f"{line}\n".encode())
        count += 1
    return count


def write_csv(tables: Iterator[Table], file: BinaryIO, names: Sequence[str]) -> int:
    """Write a header and a line for every row; return the number of rows.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    count = 0
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for table in tables:
        for cells in zip(*table.values(), strict=True):
            writer.writerow([_cell(cell) for cell in cells])
            count += 1
    text.flush()
    text.detach()
    return count


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def write_parquet(tables: Iterator[Table], file: BinaryIO, names: Sequence[str]) -> int:
    """Write a row group for every table; return the number of rows."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BadInput(
            "a Parquet file needs pyarrow; install it with: pip install 'latentscale[parquet]', or "
            "write .csv or .jsonl"
        ) from None
    count, writer = 0, None
    for table in tables:
        found = pa.table(table)
        if writer is None:
            # A column of nothing but nulls in the first block may have text in a later one.
            schema = pa.schema([_with_a_type(field, pa) for field in found.schema])
            writer = pq.ParquetWriter(file, schema)
        writer.write_table(found.cast(schema))
        count += found.num_rows
    if writer is None:
        writer = pq.ParquetWriter(file, pa.schema([(name, pa.string()) for name in names]))
    writer.close()
    return count


def _with_a_type(field: Any, pa: Any) -> Any:
    return field.with_type(pa.string()) if pa.types.is_null(field.type) else field


WRITERS: dict[str, Callable[[Iterator[Table], BinaryIO, Sequence[str]], int]] = {
    ".parquet": write_parquet,
    ".csv": write_csv,
    ".jsonl": write_json_lines,
}
"""The writer for every suffix."""
