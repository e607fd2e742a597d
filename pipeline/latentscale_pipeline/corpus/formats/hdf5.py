"""HDF5: datasets by their paths inside the file.

Only the file itself is read: links to other files aren't followed, and datasets whose values are
in other files (external storage, virtual datasets) are refused. HDF5 returns zeros for values that
were never written, so a dataset with such values is refused, too.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import h5py
import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.formats.container import STRINGS, Container, Field
from latentscale_pipeline.corpus.formats.file import File, block_ranges, decoding, fill
from latentscale_pipeline.errors import BadInput, Incomplete


@dataclass(frozen=True)
class Hdf5(Container):
    """An HDF5 file; the names of its fields are the datasets' paths."""

    path: str
    fields: tuple[Field, ...]
    file: File

    def check(self, field: Field) -> None:
        """Refuse a dataset that isn't completely stored in this file."""
        where = self.locate(field)
        with decoding(where, "HDF5", self.file.size), _opened(self.file) as file:
            dataset = file[field.name]
            if dataset.is_virtual or dataset.external:
                raise BadInput(
                    f"{where}: its values are in other files, which aren't read; name those "
                    "files, or copy the dataset into one file"
                )
            if dataset.chunks:
                grid = zip(dataset.shape, dataset.chunks, strict=True)
                chunks = math.prod(math.ceil(size / cut) for size, cut in grid)
                written = dataset.id.get_num_chunks()
                missing = chunks - written
                what = f"{missing} of its {chunks} chunks were never written"
            else:
                missing = dataset.size and not dataset.id.get_storage_size()
                what = "it was never written"
            if missing:
                raise BadInput(f"{where}: {what} and would be read as zeros; write it again")

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one dataset."""
        row_bytes = field.dtype.itemsize * math.prod(field.shape[1:])
        with decoding(self.locate(field), "HDF5", self.file.size), _opened(self.file) as file:
            dataset = file[field.name]
            for first, last in block_ranges(start, stop, row_bytes):
                if field.dtype.kind == "T":
                    yield np.array(dataset.asstr("utf-8")[first:last].tolist(), STRINGS)
                else:
                    yield np.asarray(dataset[first:last])


def open_hdf5(file: File) -> Hdf5:
    """Open an HDF5 file and list its datasets; links to other files are ignored."""
    fields: list[Field] = []

    def note(name: str, node: object) -> None:
        if isinstance(node, h5py.Dataset) and node.shape is not None:
            if h5py.check_string_dtype(node.dtype) is not None:
                fields.append(Field(name, node.shape, STRINGS))
            elif node.dtype.kind in "fiub":
                fields.append(Field(name, node.shape, node.dtype))

    with decoding(file.name, "HDF5", file.size), _opened(file) as opened:
        opened.visititems(note)  # follows hard links only
    return Hdf5(file.name, tuple(fields), file)


@contextmanager
def _opened(file: File) -> Iterator[Any]:
    if file.is_local:
        try:
            opened = h5py.File(file.path, "r")
        except BlockingIOError:  # HDF5's lock
            raise Incomplete(
                f"{file.name}: a program that writes it has it open; run this again once it has "
                "closed the file"
            ) from None
        with opened:
            yield opened
        return
    with file.open() as remote, h5py.File(_Remote(remote), "r") as opened:
        yield opened


class _Remote:
    """A file in a store, for h5py; it disables garbage collection while bytes are fetched.

    h5py holds its global lock while it waits for the bytes, which other threads fetch. If one of
    those threads collected an h5py object as garbage, it would wait for the same lock: a deadlock.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.flush = file.seek, file.tell, file.flush

    def read(self, size: int = -1) -> bytes:
        with _no_collection():
            return self._file.read(size)

    def readinto(self, buffer: Any) -> int:
        with _no_collection():
            return fill(self._file, np.frombuffer(buffer, np.uint8))


@contextmanager
def _no_collection() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
