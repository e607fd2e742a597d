"""NumPy's ``.npy``: one array behind a header.

Rows are read in blocks, of any range of rows, and never mapped: a file that is cut short while it
is mapped ends the process, and pages of a mapping count as its memory. One reader serves files,
objects in a store and members of an ``.npz`` archive. Nothing is ever unpickled, and a header is
checked against the bytes there are before any row is believed.
"""

from __future__ import annotations

import io
import math
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import Container, Field
from latentscale_pipeline.corpus.formats.file import File, fill, first_line, plain_ranges, reaching
from latentscale_pipeline.errors import BadInput

MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class Header:
    """What the header of an NPY file says, and where the values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the first axis."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.offset + self.dtype.itemsize * math.prod(self.shape)


def read_header(file: BinaryIO, where: str) -> Header:
    """Read the header at the beginning of a file.

    Raises
    ------
    BadInput
        When there is no NPY header, it is damaged, or the array holds Python objects.
    """
    counted = _Counted(file)
    try:
        version = np.lib.format.read_magic(counted)
        with warnings.catch_warnings(action="ignore"):  # headers that Python 2 wrote are fine
            if version == (1, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(counted)
            elif version == (2, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(counted)
            else:
                raise BadInput(f"{where}: NPY version {version}, which plain arrays don't have")
    except (
        ValueError, SyntaxError, TypeError, KeyError, AttributeError, OverflowError, MemoryError,
        RecursionError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise BadInput(
            f"{where}: damaged .npy header within its first {counted.count} bytes "
            f"({first_line(error)}); "
            "write the file again"
        ) from error
    if dtype.hasobject:
        raise BadInput(
            f"{where}: holds Python objects, which are never unpickled; save a plain numeric array"
        )
    return Header(shape, dtype, fortran_order, counted.count)


def check_size(header: Header, size: int, where: str) -> None:
    """Refuse a file that has fewer or more bytes than its header says.

    Raises
    ------
    BadInput
        Naming the offset and the row at which it ends.
    """
    if size < header.size:
        whole = "" if header.fortran_order else _in_row(header, size)
        raise BadInput(
            f"{where}: truncated: it ends at byte {size} of {header.size}{whole}; copy or write it "
            "again"
        )
    if size > header.size:
        raise BadInput(
            f"{where}: {size - header.size} bytes follow the array, which ends at byte "
            f"{header.size}; save one array a file"
        )


@dataclass(frozen=True)
class Npy(Container):
    """A ``.npy`` file."""

    path: str
    fields: tuple[Field, ...]
    file: File
    header: Header
    single = True

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows, converted from the file's order of bytes and axes as needed."""
        with reaching(self.path), self.file.open() as file:
            if not self.header.fortran_order:
                file.seek(self.header.offset + start * self.header.row_bytes)
            yield from read_blocks(file, self.header, start, stop, self.path)


def open_npy(file: File) -> Npy:
    """Open a ``.npy``: its header is checked against its size."""
    header = read_header(io.BytesIO(file.head()), file.name)
    check_size(header, file.size, file.name)
    field = Field("", header.shape, header.dtype)
    return Npy(file.name, (field,), file, header)


def read_blocks(
    file: BinaryIO, header: Header, start: int, stop: int, where: str
) -> Iterator[npt.NDArray[Any]]:
    """Yield rows in order, in blocks of about 8 MiB.

    Parameters
    ----------
    file : binary file
        Positioned at row ``start``. One in Fortran order must be seekable; it is read column by
        column.
    header : Header
        Its header.
    start, stop : int
        Which rows.
    where : str
        Its name, for messages.

    Raises
    ------
    BadInput
        When the file ends early.
    """
    read = _read_columns if header.fortran_order and len(header.shape) == 2 else _read_rows
    for first, last in plain_ranges(start, stop, header.row_bytes):
        yield read(file, header, first, last, where)


def _read_rows(
    file: BinaryIO, header: Header, start: int, stop: int, where: str
) -> npt.NDArray[Any]:
    block = np.empty((stop - start, *header.shape[1:]), header.dtype)
    filled = fill(file, block)
    if filled < block.nbytes:
        at = header.offset + start * header.row_bytes + filled
        raise BadInput(
            f"{where}: truncated: it ends at byte {at} of {header.size}{_in_row(header, at)}; copy "
            "or write it again"
        )
    return block


def _read_columns(
    file: BinaryIO, header: Header, start: int, stop: int, where: str
) -> npt.NDArray[Any]:
    rows, columns = header.shape
    block = np.empty((columns, stop - start), header.dtype)
    for column in range(columns):
        file.seek(header.offset + (column * rows + start) * header.dtype.itemsize)
        if fill(file, block[column]) < block[column].nbytes:
            raise BadInput(f"{where}: truncated in column {column}; copy or write it again")
    return block.T


def _in_row(header: Header, size: int) -> str:
    row = max(0, size - header.offset) // max(1, header.row_bytes)
    return f", in row {row} of {header.shape[0]}"


class _Counted(io.RawIOBase):
    """A file that counts what is read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        return data
