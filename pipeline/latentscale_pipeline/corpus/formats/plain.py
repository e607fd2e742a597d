"""Plain arrays: values stored after a header exactly as in memory.

Any range of rows can be read, in blocks. Files aren't memory-mapped: if a mapped file is truncated
while it is read, the process is killed, and mapped pages count as the process's memory. The same
reader serves files, objects in a store and members of an archive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import Container, Field
from latentscale_pipeline.corpus.formats.file import File, file_errors, fill, plain_ranges
from latentscale_pipeline.errors import BadInput


@dataclass(frozen=True)
class Place:
    """Position, shape, dtype and order of an array's values in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    fortran_order: bool = False

    @property
    def row_bytes(self) -> int:
        """Size of one row (an entry of the first axis) in bytes."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def end(self) -> int:
        """Offset of the byte after the last value."""
        return self.offset + self.dtype.itemsize * math.prod(self.shape)

    def row_at(self, byte: int) -> str:
        """Return which row contains a byte, for messages; empty in Fortran order."""
        row = max(0, byte - self.offset) // max(1, self.row_bytes)
        return "" if self.fortran_order else f", in row {row} of {self.shape[0]}"


@dataclass(frozen=True)
class PlainArrays(Container):
    """A file of arrays; ``places`` are in the order of ``fields``."""

    path: str
    fields: tuple[Field, ...]
    file: File
    places: tuple[Place, ...]
    single: bool = False

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one field."""
        place = self.place(field)
        first = start
        with file_errors(self.path), self.file.open() as file:
            if not place.fortran_order:
                file.seek(place.offset + start * place.row_bytes)
            for block in read_blocks(file, place, start, stop, self.locate(field)):
                yield self.values(block, field, first)
                first += len(block)

    def place(self, field: Field) -> Place:
        """Return the place of a field."""
        return self.places[[known.name for known in self.fields].index(field.name)]

    def values(self, block: npt.NDArray[Any], field: Field, first: int) -> npt.NDArray[Any]:
        """Convert stored rows to rows of the field; ``first`` is the number of the first row."""
        return block


def check_size(place: Place, size: int, where: str) -> None:
    """Check that a file ends where its array ends.

    Raises
    ------
    BadInput
        If it is too short, with the offset and the row at which it ends, or too long.
    """
    if size < place.end:
        raise _truncated(place, size, where)
    if size > place.end:
        raise BadInput(
            f"{where}: {size - place.end} bytes follow the array, which ends at byte "
            f"{place.end}; save one array per file"
        )


def read_blocks(
    file: BinaryIO, place: Place, start: int, stop: int, where: str
) -> Iterator[npt.NDArray[Any]]:
    """Yield rows in order, in blocks of about 1 MiB.

    Parameters
    ----------
    file : binary file
        The file, positioned at row ``start``. In Fortran order it must be seekable, and is read
        column by column.
    place : Place
        The array's place in the file.
    start, stop : int
        Range of rows.
    where : str
        Name of the array, for messages.

    Raises
    ------
    BadInput
        If the file is truncated.
    """
    by_columns = place.fortran_order and len(place.shape) == 2
    for first, last in plain_ranges(start, stop, place.row_bytes):
        if by_columns:
            yield _read_columns(file, place, first, last, where)
            continue
        block = np.empty((last - first, *place.shape[1:]), place.dtype)
        filled = fill(file, block)
        if filled < block.nbytes:
            raise _truncated(place, place.offset + first * place.row_bytes + filled, where)
        yield block


def _read_columns(
    file: BinaryIO, place: Place, start: int, stop: int, where: str
) -> npt.NDArray[Any]:
    rows, columns = place.shape
    block = np.empty((columns, stop - start), place.dtype)
    for column in range(columns):
        file.seek(place.offset + (column * rows + start) * place.dtype.itemsize)
        if fill(file, block[column]) < block[column].nbytes:
            raise BadInput(f"{where}: truncated in column {column}; copy or write it again")
    return block.T


def _truncated(place: Place, size: int, where: str) -> BadInput:
    return BadInput(
        f"{where}: truncated: it ends at byte {size} of {place.end}{place.row_at(size)}; copy or "
        "write it again"
    )
