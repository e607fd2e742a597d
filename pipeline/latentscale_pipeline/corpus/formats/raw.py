"""Raw vectors: the formats of the big-ann benchmarks, and the ``vecs`` formats.

The big-ann files (``.fbin .f16bin .u8bin .i8bin``) begin with the numbers of rows and dimensions,
each an unsigned 32-bit integer, followed by the rows. In ``.fvecs`` and ``.bvecs`` every row is
preceded by its number of dimensions, a signed 32-bit integer. Everything is little-endian. Neither
states the type of its values. It follows from the suffix or, without a known one, from the size of
the file (4 or 2 bytes a value; one-byte big-ann files need their suffix).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import Field
from latentscale_pipeline.corpus.formats.file import File
from latentscale_pipeline.corpus.formats.plain import Place, PlainArrays
from latentscale_pipeline.errors import BadInput

BIN_DTYPES = {"fbin": "<f4", "f16bin": "<f2", "u8bin": "u1", "i8bin": "i1"}
"""Dtype of each big-ann format."""

VECS_DTYPES = {"fvecs": "<f4", "bvecs": "u1"}
"""Dtype of each ``vecs`` format."""

INTEGER_SUFFIXES = {".ibin", ".ivecs"}
"""Suffixes of neighbour lists in the same layouts, which hold row numbers, not vectors."""

_HEADER = struct.Struct("<II")


@dataclass(frozen=True)
class Vecs(PlainArrays):
    """Rows that are each preceded by their number of dimensions."""

    def values(self, block: npt.NDArray[Any], field: Field, first: int) -> npt.NDArray[Any]:
        """Return the values of rows without the dimensions before them, which must be equal."""
        stated, d = block["dimensions"], field.shape[1]
        wrong = np.flatnonzero(stated != d)
        if wrong.size:
            row = first + int(wrong[0])
            raise BadInput(
                f"{self.path}: row {row}, at byte {row * block.itemsize}, states "
                f"{stated[wrong[0]]} dimensions instead of {d}; write the file again with rows of "
                "equal length"
            )
        return np.ascontiguousarray(block["values"])


def is_bin(kind: str, file: File, head: bytes) -> bool:
    """Return whether a file has a big-ann format, by its suffix, or by its header and size."""
    if file.suffix in {f".{name}" for name in BIN_DTYPES}:
        return file.suffix == f".{kind}"
    if file.suffix in INTEGER_SUFFIXES or len(head) < _HEADER.size or kind.endswith("8bin"):
        return False
    rows, d = _HEADER.unpack_from(head)
    return bool(rows and d) and _bin_place(kind, rows, d).end == file.size


def open_bin(kind: str, file: File) -> PlainArrays:
    """Open a file in a big-ann format and check its header against its size."""
    head = file.head(_HEADER.size)
    if len(head) < _HEADER.size:
        raise BadInput(
            f"{file.name}: truncated: its header ends at byte {len(head)} of {_HEADER.size}; copy "
            "or write it again"
        )
    place = _bin_place(kind, *_HEADER.unpack(head))
    if place.end != file.size:
        raise BadInput(f"{file.name}: {_wrong_size(file, head, kind)}")
    field = Field("", place.shape, place.dtype)
    return PlainArrays(file.name, (field,), file, (place,), single=True)


def _bin_place(kind: str, rows: int, d: int) -> Place:
    return Place((rows, d), np.dtype(BIN_DTYPES[kind]), _HEADER.size)


def _wrong_size(file: File, head: bytes, kind: str) -> str:
    rows, d = _HEADER.unpack(head)
    turned = struct.unpack(">II", head)
    if _bin_place(kind, *turned).end == file.size:
        return (
            f"its header, bytes 0 to 7, is big-endian ({turned[0]} rows of {turned[1]}); write the "
            "file little-endian"
        )
    place = _bin_place(kind, rows, d)
    what = f"{rows} rows of {d} dimensions (its header, bytes 0 to 7) take {place.end} bytes as "
    what += f".{kind}"
    if file.size < place.end:
        row = (file.size - _HEADER.size) // max(1, place.row_bytes)
        return f"truncated at byte {file.size}, in row {row}: {what}; copy or write it again"
    return (
        f"{what}, but it has {file.size}; if its values are of another type, name it with "
        "ingest --format"
    )


def is_vecs(kind: str, file: File, head: bytes) -> bool:
    """Return whether a file has a ``vecs`` format, by its suffix, or by its first two rows."""
    if file.suffix in {f".{name}" for name in VECS_DTYPES}:
        return file.suffix == f".{kind}"
    if file.suffix in INTEGER_SUFFIXES or len(head) < 4:
        return False
    d = int.from_bytes(head[:4], "little", signed=True)
    record = _record_bytes(d, kind)
    # A single row is too little evidence: the first two must have the same dimensions.
    return (
        d > 0
        and file.size % record == 0
        and len(head) >= record + 4
        and head[record : record + 4] == head[:4]
    )


def open_vecs(kind: str, file: File) -> Vecs:
    """Open a file in a ``vecs`` format and check the dimensions of row 0 against its size."""
    head = file.head(4)
    d = int.from_bytes(head, "little", signed=True)
    turned = int.from_bytes(head, "big", signed=True)
    record = _record_bytes(d, kind)
    if d > 0 and len(head) == 4 and file.size % record == 0:
        rows, values = file.size // record, np.dtype(VECS_DTYPES[kind])
        stored = np.dtype([("dimensions", "<i4"), ("values", values, (d,))])
        field, place = Field("", (rows, d), values), Place((rows,), stored, 0)
        return Vecs(file.name, (field,), file, (place,), single=True)
    if turned > 0 and file.size % _record_bytes(turned, kind) == 0:
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


def _record_bytes(d: int, kind: str) -> int:
    return 4 + d * np.dtype(VECS_DTYPES[kind]).itemsize
