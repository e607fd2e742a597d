"""The shards of a corpus: how arrays are cut into them, and the bytes that each is stored as.

A corpus array is a Zarr v3 array whose shards hold whole rows, cut into chunks of about one MiB and
not compressed. Anyone can open it with Zarr. We ourselves use Zarr only to turn rows into the bytes
of one shard and back (through Zarr's memory store), and move those bytes as whole objects: two Zarr
writers in one shard lose data silently, and Zarr reads a missing shard as zeros, so neither its
writing nor its reading of stores is trusted with a corpus.

A shard's bytes don't depend on its place in the array: shard *i* is encoded and decoded as the only
shard of an array that has just its rows. Chunks that are all zero are written like any other.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr
from zarr.core.buffer import Buffer
from zarr.core.buffer.cpu import Buffer as HostBuffer
from zarr.storage import MemoryStore

CHUNK_BYTES = 1 << 20
"""About how many bytes a chunk inside a shard has."""

BLOCK_ROWS = 1024
"""Shards hold a multiple of so many rows (the last one excepted)."""

Separator = Literal["/", "."]


@dataclass(frozen=True)
class Layout:
    """The shape of one array and how its rows are cut.

    Attributes
    ----------
    rows : int
        Rows of the array.
    row_shape : tuple of int
        Shape of one row: ``(d,)`` for vectors, ``()`` for one value a row.
    dtype : str
        ``float16``, ``float32``, ``float64`` or ``string``.
    shard_rows, chunk_rows : int
        Rows of a shard, and of a chunk inside it (a divisor).
    separator : {"/", "."}
        Of the parts of a shard's key: ``c/12/0`` or ``c.12.0``. It decides no byte of a shard.
    """

    rows: int
    row_shape: tuple[int, ...]
    dtype: str
    shard_rows: int
    chunk_rows: int
    separator: Separator = "/"


def plan_rows(most_rows: int, row_bytes: int, shard_bytes: int) -> tuple[int, int]:
    """Choose how many rows a shard and a chunk inside it have.

    Parameters
    ----------
    most_rows : int
        Rows that the array has at most: small arrays get small shards.
    row_bytes, shard_bytes : int
        Bytes of a row, and of a shard about.

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
    """Return the metadata document of a Zarr group (its ``zarr.json``)."""
    objects: dict[str, Buffer] = {}
    zarr.create_group(MemoryStore(objects), zarr_format=3, attributes=attributes)
    return objects["zarr.json"].to_bytes()


def group_attributes(document: bytes) -> dict[str, Any]:
    """Return the attributes in a group's metadata document; empty if it isn't one."""
    try:
        attributes = json.loads(document)["attributes"]
    except (ValueError, KeyError, TypeError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def array_document(layout: Layout) -> bytes:
    """Return the metadata document of an array (its ``zarr.json``)."""
    objects: dict[str, Buffer] = {}
    _create(objects, layout)
    return objects["zarr.json"].to_bytes()


def shard_key(layout: Layout, index: int) -> str:
    """Return the key of a shard below its array's folder, such as ``c/12/0``."""
    return layout.separator.join(["c", str(index), *("0" for _ in layout.row_shape)])


def encode_shard(rows: npt.NDArray[Any], layout: Layout) -> bytes:
    """Return the bytes of the shard that holds these rows.

    Parameters
    ----------
    rows : ndarray, shape (at most shard_rows, row_shape)
        The rows, of the layout's dtype (any array of str for ``string``).
    layout : Layout
        The array's layout; its own number of rows plays no part.
    """
    objects: dict[str, Buffer] = {}
    _create(objects, replace(layout, rows=len(rows)))[...] = rows
    return objects.pop(shard_key(layout, 0)).to_bytes()


class ShardBuffer:
    """Memory for one shard: its rows, to be filled, and the bytes that they are stored as.

    A whole shard of numbers is its rows followed by an index that depends on the layout alone. So
    whole shards are stored from where their rows are, without another copy.

    Attributes
    ----------
    rows : ndarray, shape (shard_rows, row_shape)
        Of the layout's dtype; may be filled again and again.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = replace(layout, rows=layout.shard_rows)
        shape = (layout.shard_rows, *layout.row_shape)
        size = math.prod(shape) * np.dtype(layout.dtype).itemsize
        self._bytes = np.empty(size + _index_bytes(layout), np.uint8)
        self.rows = self._bytes[:size].view(np.dtype(layout.dtype).newbyteorder("<")).reshape(shape)

    def encoded(self, count: int) -> bytes | memoryview:
        """Return the bytes of the shard that holds the first so many rows."""
        index = shard_index(self._layout) if count == self._layout.shard_rows else None
        if index is None:
            return encode_shard(self.rows[:count], self._layout)
        self._bytes[-len(index) :] = np.frombuffer(index, np.uint8)
        return self._bytes.data


@lru_cache(maxsize=4)
def shard_index(layout: Layout) -> bytes | None:
    """Return what follows the rows in the bytes of a whole shard; None if it isn't that simple."""
    rows = np.zeros((layout.shard_rows, *layout.row_shape), layout.dtype)
    data = encode_shard(rows, layout)
    # Chunks of zeros, in any order, are zeros: their order shows in the index only.
    return None if _rows_in_place(data, layout) is None else data[rows.nbytes :]


def decode_shard(data: bytes | bytearray, rows: int, layout: Layout) -> npt.NDArray[Any]:
    """Return the rows in the bytes of one shard, as :func:`encode_shard` took them.

    The bytes are taken at their word: check them against the manifest first. Rows of a whole shard
    are not copied: they lie in ``data``, and can be written to if it can.
    """
    whole = _rows_in_place(data, layout) if rows == layout.shard_rows else None
    if whole is not None:
        return whole
    objects: dict[str, Buffer] = {}
    array = _create(objects, replace(layout, rows=rows))
    objects[shard_key(layout, 0)] = HostBuffer.from_bytes(data)
    return np.asarray(array[...])


def _rows_in_place(data: bytes | bytearray, layout: Layout) -> npt.NDArray[Any] | None:
    """Return the rows of a whole shard where they are, if its chunks follow each other in order."""
    if layout.dtype == "string":
        return None
    shape = (layout.shard_rows, *layout.row_shape)
    dtype = np.dtype(layout.dtype).newbyteorder("<")
    size = math.prod(shape) * dtype.itemsize
    chunks = layout.shard_rows // layout.chunk_rows
    if len(data) != size + _index_bytes(layout):
        return None
    index = np.frombuffer(data, "<u8", 2 * chunks, size)
    starts = np.arange(chunks, dtype=np.uint64) * np.uint64(size // chunks)
    if not (np.array_equal(index[::2], starts) and (index[1::2] == size // chunks).all()):
        return None
    return np.frombuffer(data, dtype, math.prod(shape)).reshape(shape)


def _index_bytes(layout: Layout) -> int:
    """Return the size of an index: where every chunk is, its size, and a checksum of all that."""
    return 16 * (layout.shard_rows // layout.chunk_rows) + 4


def _create(objects: dict[str, Buffer], layout: Layout) -> zarr.Array[Any]:
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
