"""Rows as plain bytes: the big-ann family and the ``vecs`` family.

The big-ann files (``.fbin .f16bin .u8bin .i8bin``) begin with the numbers of rows and of
dimensions, unsigned 32-bit, and go on with the rows. In ``.fvecs`` and ``.bvecs`` every row has its
number of dimensions, signed 32-bit, before it. Everything is little-endian, and neither says what
its values are: that is known from the size of the file (4, 2 or 1 byte a value), and for bytes from
the name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import Container, Field
from latentscale_pipeline.corpus.formats.file import File, fill, plain_ranges, reaching
from latentscale_pipeline.errors import BadInput

BIN_DTYPES = {"fbin": "<f4", "f16bin": "<f2", "u8bin": "u1", "i8bin": "i1"}
"""Values of each format of the big-ann family."""

VECS_DTYPES = {"fvecs": "<f4", "bvecs": "u1"}
"""Values of each format of the ``vecs`` family."""

INTEGER_SUFFIXES = {".ibin", ".ivecs"}
"""Lists of neighbours in the same layouts: they hold row numbers, not vectors."""

_HEADER = struct.Struct("<II")


@dataclass(frozen=True)
class RawRows(Container):
    """Rows of equal length behind a header, each with ``prefix`` bytes before its values."""

    path: str
    fields: tuple[Field, ...]
    file: File
    offset: int
    prefix: int
    single = True

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows; where each states its dimensions, all have to state the same."""
        rows, d = field.shape
        record = self.prefix + d * field.dtype.itemsize
        with reaching(self.path), self.file.open() as file:
            file.seek(self.offset + start * record)
            for first, last in plain_ranges(start, stop, record):
                block = np.empty((last - first, record), np.uint8)
                filled = fill(file, block)
                if filled < block.nbytes:
                    at = self.offset + first * record + filled
                    raise BadInput(
                        f"{self.path}: truncated: it ends at byte {at} of "
                        f"{self.offset + rows * record}, in row {(at - self.offset) // record} of "
                        f"{rows}; copy or write it again"
                    )
                if self.prefix:
                    self._check_dimensions(block, first, d, record)
                    block = np.ascontiguousarray(block[:, self.prefix :])
                yield block.view(field.dtype)

    def _check_dimensions(
        self, block: npt.NDArray[np.uint8], first: int, d: int, record: int
    ) -> None:
        stated = np.ascontiguousarray(block[:, :4]).view("<i4")[:, 0]
        wrong = np.flatnonzero(stated != d)
        if wrong.size:
            row = first + int(wrong[0])
            raise BadInput(
                f"{self.path}: row {row}, at byte {row * record}, states {stated[wrong[0]]} "
                f"dimensions instead of {d}; write the file again, all rows equally long"
            )


def recognises_bin(kind: str) -> Callable[[File, bytes], bool]:
    """Return the test for one format of the big-ann family: by name, or by size of 4 or 2 bytes."""

    def recognises(file: File, head: bytes) -> bool:
        if file.suffix in {f".{name}" for name in BIN_DTYPES}:
            return file.suffix == f".{kind}"
        if file.suffix in INTEGER_SUFFIXES or len(head) < _HEADER.size or kind.endswith("8bin"):
            return False
        rows, d = _HEADER.unpack_from(head)
        return bool(rows and d) and _bin_size(rows, d, kind) == file.size

    return recognises


def opens_bin(kind: str) -> Callable[[File], RawRows]:
    """Return what opens one format of the big-ann family."""

    def open_bin(file: File) -> RawRows:
        head = file.head(_HEADER.size)
        if len(head) < _HEADER.size:
            raise BadInput(
                f"{file.name}: its header ends at byte {len(head)} of {_HEADER.size}; copy or "
                "write it again"
            )
        rows, d = _HEADER.unpack(head)
        size = _bin_size(rows, d, kind)
        if size != file.size:
            raise BadInput(f"{file.name}: {_wrong_size(file, head, kind)}")
        field = Field("", (rows, d), np.dtype(BIN_DTYPES[kind]))
        return RawRows(file.name, (field,), file, _HEADER.size, 0)

    return open_bin


def _bin_size(rows: int, d: int, kind: str) -> int:
    return _HEADER.size + rows * d * np.dtype(BIN_DTYPES[kind]).itemsize


def _wrong_size(file: File, head: bytes, kind: str) -> str:
    rows, d = _HEADER.unpack(head)
    turned = struct.unpack(">II", head)
    if _bin_size(turned[0], turned[1], kind) == file.size:
        return (
            f"its header, bytes 0 to 7, is big-endian ({turned[0]} rows of {turned[1]}); write the "
            "file little-endian"
        )
    size = _bin_size(rows, d, kind)
    what = f"{rows} rows of {d} dimensions (its header, bytes 0 to 7) take {size} bytes as .{kind}"
    if file.size < size:
        row = (file.size - _HEADER.size) // max(1, (size - _HEADER.size) // max(1, rows))
        return f"truncated at byte {file.size}, in row {row}: {what}; copy or write it again"
    return (
        f"{what}, but it has {file.size}; if its values are of another type, name it with --format"
    )


def recognises_vecs(kind: str) -> Callable[[File, bytes], bool]:
    """Return the test for one format of the ``vecs`` family: by name, or by what rows state."""

    def recognises(file: File, head: bytes) -> bool:
        if file.suffix in {f".{name}" for name in VECS_DTYPES}:
            return file.suffix == f".{kind}"
        if file.suffix in INTEGER_SUFFIXES or len(head) < 4:
            return False
        d = int.from_bytes(head[:4], "little", signed=True)
        record = _record(d, kind)
        # At least two rows that say the same: fewer could be anything.
        return (
            d > 0
            and file.size % record == 0
            and len(head) >= record + 4
            and head[record : record + 4] == head[:4]
        )

    return recognises


def opens_vecs(kind: str) -> Callable[[File], RawRows]:
    """Return what opens one format of the ``vecs`` family."""

    def open_vecs(file: File) -> RawRows:
        head = file.head(4)
        d = int.from_bytes(head, "little", signed=True)
        turned = int.from_bytes(head, "big", signed=True)
        record = _record(d, kind)
        if d > 0 and len(head) == 4 and file.size % record == 0:
            field = Field("", (file.size // record, d), np.dtype(VECS_DTYPES[kind]))
            return RawRows(file.name, (field,), file, 0, 4)
        if turned > 0 and file.size % _record(turned, kind) == 0:
            what = f"row 0 states its dimensions ({turned}) in big-endian order"
            raise BadInput(f"{file.name}: {what}, at byte 0; write the file little-endian")
        if d <= 0 or record > file.size:
            raise BadInput(
                f"{file.name}: row 0, at byte 0, states {d} dimensions, which {file.size} bytes "
                f"can't hold as .{kind}; copy or write it again"
            )
        raise BadInput(
            f"{file.name}: truncated: it ends at byte {file.size}, {file.size % record} bytes into "
            f"row {file.size // record} of {d} dimensions; copy or write it again"
        )

    return open_vecs


def _record(d: int, kind: str) -> int:
    return 4 + d * np.dtype(VECS_DTYPES[kind]).itemsize
