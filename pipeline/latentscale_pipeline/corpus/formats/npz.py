"""NumPy's ``.npz``: a ZIP archive of ``.npy`` members, stored or compressed.

Members are read as streams and never extracted to disk, so a malicious member name does no harm.
A member's checksum is compared when its end is reached.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy.typing as npt

from latentscale_pipeline.corpus.formats import npy
from latentscale_pipeline.corpus.formats.container import Field
from latentscale_pipeline.corpus.formats.file import File, decoding
from latentscale_pipeline.corpus.formats.plain import (
    Place,
    PlainArrays,
    check_size,
    read_blocks,
)
from latentscale_pipeline.errors import BadInput

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")

_SKIPPED_AT_ONCE = 8 << 20


@dataclass(frozen=True)
class Npz(PlainArrays):
    """A ``.npz`` archive; ``places`` are relative to the beginning of each member."""

    sequential = True

    def check(self, field: Field) -> None:
        """Refuse a member whose size differs from that in its header."""
        with self.file.open() as file, zipfile.ZipFile(file) as archive:
            size = archive.getinfo(_member(archive, field.name)).file_size
        check_size(self.place(field), size, self.locate(field))

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows; earlier rows are decompressed and skipped."""
        place, where = self.place(field), self.locate(field)
        with (
            decoding(where, ".npz", self.file.size),
            self.file.open() as file,
            zipfile.ZipFile(file) as archive,
            archive.open(_member(archive, field.name)) as packed,
        ):
            values = cast(BinaryIO, packed)
            if place.fortran_order:
                # Seeking back in a compressed member would decompress it again from its beginning.
                values = io.BytesIO(packed.read())
            else:
                _skip(packed, place.offset + start * place.row_bytes)
            yield from read_blocks(values, place, start, stop, where)
            if stop == place.shape[0]:
                packed.read(1)  # zipfile compares the checksum when the end is reached


def open_npz(file: File) -> Npz:
    """Open a ``.npz`` archive and read the header of every array; other members are ignored."""
    places: dict[str, Place] = {}
    unpacking = decoding(file.name, ".npz", file.size)
    with unpacking, file.open() as opened, zipfile.ZipFile(opened) as archive:
        if any(member.flag_bits & 1 for member in archive.infolist()):
            raise BadInput(f"{file.name}: the archive is encrypted; save it without a password")
        for member in archive.namelist():
            with archive.open(member) as packed:
                if cast(io.BufferedReader, packed).peek(8).startswith(npy.MAGIC):
                    with contextlib.suppress(BadInput):
                        place = npy.read_header(cast(BinaryIO, packed), file.name)
                        places[member.removesuffix(".npy")] = place
    if not places:
        raise BadInput(
            f"{file.name}: a ZIP archive without .npy arrays (PyTorch's and Excel's files are such "
            "archives, too); save the vectors with numpy.save"
        )
    fields = tuple(
        Field(name, at.shape, at.dtype, unread=npy.PYTHON_OBJECTS if at.dtype.hasobject else "")
        for name, at in places.items()
    )
    return Npz(file.name, fields, file, tuple(places.values()))


def _member(archive: zipfile.ZipFile, name: str) -> str:
    return f"{name}.npy" if f"{name}.npy" in archive.namelist() else name


def _skip(packed: zipfile.ZipExtFile | Any, count: int) -> None:
    while count > 0:
        skipped = len(packed.read(min(count, _SKIPPED_AT_ONCE)))
        if not skipped:
            return  # the member is truncated: read_blocks reports it
        count -= skipped
