"""NumPy's ``.npy``: a header followed by one array.

Nothing is ever unpickled, and the header is checked against the file's size before any row is read.
"""

from __future__ import annotations

import io
import tokenize
import warnings
from typing import BinaryIO

import numpy as np

from latentscale_pipeline.corpus.formats.container import Field
from latentscale_pipeline.corpus.formats.file import File
from latentscale_pipeline.corpus.formats.plain import Place, PlainArrays, check_size
from latentscale_pipeline.errors import BadInput, first_line

PYTHON_OBJECTS = "Python objects"
"""What an array of objects holds."""

MAGIC = b"\x93NUMPY"


def read_header(file: BinaryIO, where: str) -> Place:
    """Read the header of an array, with the file positioned at its beginning.

    Raises
    ------
    BadInput
        If the header is missing or damaged, or the array holds Python objects.
    """
    counted = _Counted(file)
    try:
        version = np.lib.format.read_magic(counted)
        with warnings.catch_warnings(action="ignore"):  # headers written by Python 2 are valid
            if version == (1, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(counted)
            elif version == (2, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(counted)
            else:
                raise BadInput(
                    f"{where}: unsupported .npy version {version}; save a plain numeric array"
                )
        if min(shape, default=0) < 0:
            raise ValueError(f"shape is not valid: {shape}")
    except (
        ValueError, SyntaxError, TypeError, KeyError, AttributeError, OverflowError, MemoryError,
        RecursionError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise BadInput(
            f"{where}: damaged .npy header within its first {counted.count} bytes "
            f"({first_line(error)}); "
            "write the file again"
        ) from error
    # A vector is stored the same way in both orders, and Julia writes it in this one.
    return Place(shape, dtype, counted.count, fortran_order and len(shape) > 1)


def open_npy(file: File) -> PlainArrays:
    """Open a ``.npy`` file and check its header against its size."""
    place = read_header(io.BytesIO(file.head()), file.name)
    if place.dtype.hasobject:
        raise BadInput(
            f"{file.name}: contains Python objects, which aren't unpickled; save a plain array: "
            "numbers, or texts with array.astype(str)"
        )
    check_size(place, file.size, file.name)
    field = Field("", place.shape, place.dtype)
    return PlainArrays(file.name, (field,), file, (place,), single=True)


class _Counted(io.RawIOBase):
    """A file that counts the bytes read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        return data
