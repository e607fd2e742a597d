"""Safetensors: a JSON header with the offsets of all tensors, followed by their values.

The file begins with the header's length (unsigned, 64-bit, little-endian). The header comes next,
then all tensors in C order, little-endian. Offsets count from the end of the header. ``BF16``,
which NumPy lacks, is converted to float32 without loss.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import Field
from latentscale_pipeline.corpus.formats.file import File, file_errors
from latentscale_pipeline.corpus.formats.plain import Place, PlainArrays
from latentscale_pipeline.errors import BadInput

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<f4", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
"""NumPy dtypes of the supported types in a header; tensors of other types are ignored."""

MAX_HEADER_BYTES = 100_000_000
"""Limit of the format itself."""

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Safetensors(PlainArrays):
    """A ``.safetensors`` file."""

    def values(self, block: npt.NDArray[Any], field: Field, first: int) -> npt.NDArray[Any]:
        """Convert BF16, whose bits are the upper half of a float32."""
        if block.dtype == field.dtype:
            return block
        return (block.astype("<u4") << 16).view("<f4")


def is_safetensors(file: File, head: bytes) -> bool:
    """Return whether a file begins with a plausible header length and a JSON object."""
    if len(head) < 9 or head[8:9] != b"{":
        return False
    return bool(_LENGTH.unpack_from(head)[0] <= min(file.size - 8, MAX_HEADER_BYTES))


def open_safetensors(file: File) -> Safetensors:
    """Open a ``.safetensors`` file and check its header against its size."""
    where = file.name
    with file_errors(where), file.open() as opened:
        start = opened.read(8)
        length = _LENGTH.unpack(start)[0] if len(start) == 8 else -1
        if not 0 < length <= min(file.size - 8, MAX_HEADER_BYTES):
            raise BadInput(
                f"{where}: bytes 0 to 7 state a header of {length} bytes, but the file has "
                f"{file.size} bytes; copy or write it again"
            )
        data = b""
        while len(data) < length and (piece := opened.read(length - len(data))):
            data += piece
    try:
        header = json.loads(data)
        entries = {name: about for name, about in header.items() if name != "__metadata__"}
        places = {
            name: _place(about, 8 + length, file.size)
            for name, about in entries.items()
            if about["dtype"] in DTYPES
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"{where}: damaged header in bytes 8 to {8 + length} ({error}); copy or write it again"
        ) from error
    fields = tuple(
        Field(name, place.shape, np.dtype(DTYPES[entries[name]["dtype"]]))
        for name, place in places.items()
    )
    return Safetensors(where, fields, file, tuple(places.values()))


def _place(about: dict[str, Any], begin: int, size: int) -> Place:
    kind, shape = about["dtype"], tuple(about["shape"])
    first, last = about["data_offsets"]
    numbers = (first, last, *shape)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError(f"invalid shape {shape} or offsets {first} and {last}")
    place = Place(shape, np.dtype("<u2" if kind == "BF16" else DTYPES[kind]), begin + first)
    if begin + last != place.end:
        raise ValueError(f"{last - first} bytes don't match shape {shape} of {kind}")
    if place.end > size:
        raise ValueError(f"truncated: a tensor ends at byte {place.end} of {size}")
    return place
