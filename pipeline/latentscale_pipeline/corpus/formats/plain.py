"""Values as plain bytes: arrays that lie in a file as in memory, behind a header.

Rows are read in blocks, of any range of rows, and never mapped: a file that is cut short while it
is mapped ends the process, and pages of a mapping count as its memory. One reader serves files,
objects in a store and members of an archive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import Container, Field
from latentscale_pipeline.corpus.formats.file import File, fill, plain_ranges, reaching
from latentscale_pipeline.errors import BadInput


@dataclass(frozen=True)
class Place:
    """Where an array's values begin in a file, and how they lie there."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    fortran_order: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the first axis."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def end(self) -> int:
        """The byte after the last value."""
        return self.offset + self.dtype.itemsize * math.prod(self.shape)

    def row_at(self, byte: int) -> str:
        """Say which row a byte is in; nothing where rows don't follow each other."""
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
        """Yield rows, converted from the file's order of bytes and axes as needed."""
        place = self.place(field)
        first = start
        with reaching(self.path), self.file.open() as file:
            if not place.fortran_order:
                file.seek(place.offset + start * place.row_bytes)
            for block in read_blocks(file, place, start, stop, self.locate(field)):
                yield self.values(block, field, first)
                first += len(block)

    def place(self, field: Field) -> Place:
        """Return where a field is."""
        return self.places[[known.name for known in self.fields].index(field.name)]

    def values(self, block: npt.NDArray[Any], field: Field, first: int) -> npt.NDArray[Any]:
        """Turn rows as they are stored, from number ``first`` on, into those of a field."""
        return block


def check_size(place: Place, size: int, where: str) -> None:
    """Refuse a file that has fewer or more bytes than the array needs.

    Raises
    ------
    BadInput
        Naming the offset and the row at which it ends.
    """
    if size < place.end:
        raise _truncated(place, size, where)
    if size > place.end:
        raise BadInput(
            f"{where}: {size - place.end} bytes follow the array, which ends at byte "
            f"{place.end}; save one array a file"
        )


def read_blocks(
    file: BinaryIO, place: Place, start: int, stop: int, where: str
) -> Iterator[npt.NDArray[Any]]:
    """Yield rows in order, in blocks of about 1 MiB.

    Parameters
    ----------
    file : binary file
        Positioned at row ``start``. One in Fortran order must be seekable; it is read column by
        column.
    place : Place
        Where and how the array lies in it.
    start, stop : int
        Which rows.
    where : str
        Its name, for messages.

    Raises
    ------
    BadInput
        When the file ends early.
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
