"""The shards of a corpus: their sizes, and how they are encoded.

A corpus array is a Zarr v3 array. Its shards hold whole rows, in uncompressed chunks of about one
MiB, and any Zarr reader can open it. This package uses Zarr only to encode and decode single shards
in memory, and moves their bytes as whole objects. It doesn't let Zarr read or write stores, because
two Zarr writers in one shard lose data silently, and Zarr reads a missing shard as zeros.

A shard's bytes don't depend on its position in the array: every shard is encoded and decoded as the
only shard of an array that has just its rows. Chunks that are all zero are written, too.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # zarr takes a third of a second to import, and some commands need no shard
    import zarr
    from zarr.core.buffer import Buffer

CHUNK_BYTES = 1 << 20
"""Approximate size of a chunk inside a shard."""

NOT_STORED = np.uint64(2**64 - 1)
"""Offset and size of a chunk that a shard hasn't, in its index."""

BLOCK_ROWS = 1024
"""The number of rows of a shard is a multiple of this, except in the last shard."""

Separator = Literal["/", "."]


@dataclass(frozen=True)
class Layout:
    """The shape of one array, and its shard and chunk sizes.

    Attributes
    ----------
    rows : int
        Rows of the array.
    row_shape : tuple of int
        Shape of one row: ``(d,)`` for vectors, ``()`` for one value per row.
    dtype : str
        ``float16``, ``float32``, ``float64`` or ``string``.
    shard_rows, chunk_rows : int
        Rows of a shard, and of a chunk inside it (a divisor).
    separator : {"/", "."}
        Separator in shard keys: ``c/12/0`` or ``c.12.0``. It doesn't affect a shard's bytes.
    """

    rows: int
    row_shape: tuple[int, ...]
    dtype: str
    shard_rows: int
    chunk_rows: int
    separator: Separator = "/"


def plan_rows(most_rows: int, row_bytes: int, shard_bytes: int) -> tuple[int, int]:
    """Choose the numbers of rows of a shard and of a chunk inside it.

    Parameters
    ----------
    most_rows : int
        Upper bound for the rows of the array. Small arrays get small shards.
    row_bytes : int
        Size of a row.
    shard_bytes : int
        Approximate size of a shard.

    Returns
    -------
    shard_rows, chunk_rows : int
        A multiple of 1024, and a divisor of it.
    """
    whole = BLOCK_ROWS * math.ceil(most_rows / BLOCK_ROWS)
    chunk = max(1, CHUNK_BYTES // row_bytes)
    if chunk >= BLOCK_ROWS:
        most = min(chunk, max(shard_bytes // row_bytes, BLOCK_ROWS), whole)
        chunk = most // BLOCK_ROWS * BLOCK_ROWS
    else:
        chunk = 1 << (chunk.bit_length() - 1)
    unit = max(chunk, BLOCK_ROWS)
    shard = unit * max(1, shard_bytes // (unit * row_bytes))
    return min(shard, unit * math.ceil(whole / unit)), chunk


def group_document(attributes: dict[str, Any]) -> bytes:
    """Return the metadata document (``zarr.json``) of a Zarr group."""
    import zarr
    from zarr.storage import MemoryStore

    objects: dict[str, Buffer] = {}
    zarr.create_group(MemoryStore(objects), zarr_format=3, attributes=attributes)
    return objects["zarr.json"].to_bytes()


def group_attributes(document: bytes) -> dict[str, Any]:
    """Return the attributes in a group's metadata document; empty if it can't be parsed."""
    try:
        attributes = json.loads(document)["attributes"]
    except (ValueError, KeyError, TypeError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def array_document(layout: Layout) -> bytes:
    """Return the metadata document (``zarr.json``) of an array."""
    objects: dict[str, Buffer] = {}
    _create(objects, layout)
    return objects["zarr.json"].to_bytes()


def shard_key(layout: Layout, index: int) -> str:
    """Return the key of a shard below its array's folder, such as ``c/12/0``."""
    return layout.separator.join(["c", str(index), *("0" for _ in layout.row_shape)])


def encode_shard(rows: npt.NDArray[Any], layout: Layout) -> bytes:
    """Return the encoded shard of the given rows.

    Parameters
    ----------
    rows : ndarray, shape (at most shard_rows, row_shape)
        The rows, in the layout's dtype (any array of str for ``string``).
    layout : Layout
        The array's layout. Its number of rows is ignored.
    """
    objects: dict[str, Buffer] = {}
    _create(objects, replace(layout, rows=len(rows)))[...] = rows
    return objects.pop(shard_key(layout, 0)).to_bytes()


class ShardBuffer:
    """A buffer for the rows of one shard, which encodes full shards without a copy.

    An encoded full shard of numbers is its rows followed by an index that depends on the layout
    alone, so the buffer holds the rows with room for the index behind them.

    Attributes
    ----------
    rows : ndarray, shape (shard_rows, row_shape)
        Rows to be filled, in the layout's dtype. The buffer can be filled again for every shard.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = replace(layout, rows=layout.shard_rows)
        shape = (layout.shard_rows, *layout.row_shape)
        size = math.prod(shape) * np.dtype(layout.dtype).itemsize
        self._bytes = np.empty(size + _index_bytes(layout), np.uint8)
        self.rows = self._bytes[:size].view(np.dtype(layout.dtype).newbyteorder("<")).reshape(shape)

    def encoded(self, count: int) -> bytes | memoryview:
        """Return the encoded shard of the first ``count`` rows."""
        index = shard_index(self._layout) if count == self._layout.shard_rows else None
        if index is None:
            return encode_shard(self.rows[:count], self._layout)
        self._bytes[-len(index) :] = np.frombuffer(index, np.uint8)
        return self._bytes.data


@lru_cache(maxsize=4)
def shard_index(layout: Layout) -> bytes | None:
    """Return the index after the rows of a full shard, or None if chunks aren't in row order."""
    rows = np.zeros((layout.shard_rows, *layout.row_shape), layout.dtype)
    data = encode_shard(rows, layout)
    # All rows are zero, so only the index shows the order of the chunks.
    in_place = _rows_in_place(data, layout.shard_rows, layout)
    return None if in_place is None else data[rows.nbytes :]


def decode_shard(data: bytes | bytearray, rows: int, layout: Layout) -> npt.NDArray[Any]:
    """Decode the rows of one shard, the inverse of :func:`encode_shard`.

    The data aren't checked; compare them with the manifest first. Rows whose chunks are in their
    order aren't copied: the result is a view of ``data``, writable if ``data`` is.
    """
    stored = _rows_in_place(data, rows, layout)
    if stored is not None:
        return stored
    from zarr.core.buffer.cpu import Buffer as HostBuffer

    objects: dict[str, Buffer] = {}
    array = _create(objects, replace(layout, rows=rows))
    objects[shard_key(layout, 0)] = HostBuffer.from_bytes(data)
    return np.asarray(array[...])


def _rows_in_place(data: bytes | bytearray, rows: int, layout: Layout) -> npt.NDArray[Any] | None:
    """Return a view of the rows of a shard, or None if its chunks aren't in row order."""
    if layout.dtype == "string":
        return None
    shape = (rows, *layout.row_shape)
    dtype = np.dtype(layout.dtype).newbyteorder("<")
    # The last chunk that has rows is whole; those behind it aren't stored.
    chunk = layout.chunk_rows * math.prod(layout.row_shape) * dtype.itemsize
    chunks, stored = layout.shard_rows // layout.chunk_rows, -(-rows // layout.chunk_rows)
    if len(data) != stored * chunk + _index_bytes(layout):
        return None
    index = np.frombuffer(data, "<u8", 2 * chunks, stored * chunk).reshape(chunks, 2)
    starts = np.arange(stored, dtype=np.uint64) * np.uint64(chunk)
    if not (np.array_equal(index[:stored, 0], starts) and (index[:stored, 1] == chunk).all()):
        return None
    if not (index[stored:] == NOT_STORED).all():
        return None
    return np.frombuffer(data, dtype, math.prod(shape)).reshape(shape)


def _index_bytes(layout: Layout) -> int:
    """Return the size of a shard's index: offset and size of every chunk, and a checksum."""
    return 16 * (layout.shard_rows // layout.chunk_rows) + 4


def _create(objects: dict[str, Buffer], layout: Layout) -> zarr.Array[Any]:
    import zarr
    from zarr.storage import MemoryStore

    return zarr.create_array(
        MemoryStore(objects),
        shape=(layout.rows, *layout.row_shape),
        dtype=layout.dtype,
        shards=(layout.shard_rows, *layout.row_shape),
        chunks=(layout.chunk_rows, *layout.row_shape),
        compressors=None,
        filters=None,
        chunk_key_encoding={"name": "default", "separator": layout.separator},
        fill_value="" if layout.dtype == "string" else 0,
        config={"write_empty_chunks": True},
        zarr_format=3,
    )
