"""The fingerprint of a corpus: a hash of its vectors' values, dtype and shape, and nothing else.

Rows are hashed in blocks of 1024 (XXH3-128 over their little-endian bytes in row order; the last
block may be shorter). The fingerprint is XXH3-128 over the blocks' digests in order, followed by
one line with dtype, rows and dimensions. It doesn't depend on the sizes of shards, the source's
format, ids or labels. Shards whose row counts are multiples of 1024 can be hashed separately and
combined (:func:`block_digests`, :func:`combine`).

A subset of rows is identified by the corpus' fingerprint and the row ranges (:func:`of_rows`), so
no row has to be read. That hash differs from the fingerprint of a corpus of just these rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

BLOCK_ROWS = 1024
"""Rows in a block."""

DIGEST_BYTES = 16
"""Bytes of a block's digest."""


class Fingerprint:
    """Computes the fingerprint of rows that arrive in order, any number at a time.

    Parameters
    ----------
    dtype : numpy dtype
        Dtype of the stored vectors.
    dimensions : int
        Length of a row.
    """

    def __init__(self, dtype: npt.DTypeLike, dimensions: int) -> None:
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._dimensions = dimensions
        self._rows = 0
        self._block = xxhash.xxh3_128()
        self._digests: list[bytes] = []

    @staticmethod
    def after(
        digests: bytes, rows: npt.NDArray[Any], dtype: npt.DTypeLike, dimensions: int
    ) -> Fingerprint:
        """Continue from the digests of full blocks and the rows after them (fewer than 1024)."""
        fingerprint = Fingerprint(dtype, dimensions)
        fingerprint._digests = [digests]
        fingerprint._rows = len(digests) // DIGEST_BYTES * BLOCK_ROWS
        fingerprint.update(rows)
        return fingerprint

    def whole_blocks(self) -> bytes:
        """Return the digests of the full blocks so far."""
        return b"".join(self._digests)

    def update(self, rows: npt.NDArray[Any]) -> None:
        """Add the next rows, shape (any number, dimensions)."""
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + BLOCK_ROWS - self._rows % BLOCK_ROWS)
            self._block.update(rows[start:stop].data.cast("B"))
            self._rows += stop - start
            if self._rows % BLOCK_ROWS == 0:
                self._digests.append(self._block.digest())
                self._block.reset()
            start = stop

    def finish(self) -> str:
        """Return the fingerprint of the rows so far: 32 hexadecimal characters."""
        open_block = [self._block.digest()] if self._rows % BLOCK_ROWS else []
        return combine([*self._digests, *open_block], self._dtype, self._rows, self._dimensions)


def block_digests(rows: npt.NDArray[Any]) -> bytes:
    """Return the block digests, 16 bytes each, of rows that start at a multiple of 1024.

    Parameters
    ----------
    rows : ndarray, shape (rows, d)
        Rows in the stored dtype.
    """
    rows = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<"))
    return b"".join(
        xxhash.xxh3_128_digest(rows[start : start + BLOCK_ROWS].data.cast("B"))
        for start in range(0, len(rows), BLOCK_ROWS)
    )


def combine(digests: Iterable[bytes], dtype: npt.DTypeLike, rows: int, dimensions: int) -> str:
    """Return the fingerprint, given the digests of all blocks in order.

    Parameters
    ----------
    digests : iterable of bytes
        Each item holds the digests of one or more blocks.
    dtype, rows, dimensions
        Those of the complete corpus.
    """
    whole = xxhash.xxh3_128()
    for digest in digests:
        whole.update(digest)
    whole.update(f"\n{np.dtype(dtype).name} {rows} {dimensions}\n".encode())
    return whole.hexdigest()


def of_rows(fingerprint: str, ranges: Iterable[tuple[int, int]]) -> str:
    """Return a hash that identifies a subset of a corpus' rows: 32 hexadecimal characters.

    Parameters
    ----------
    fingerprint : str
        Fingerprint of the complete corpus.
    ranges : iterable of (start, stop)
        The rows, in order. Adjacent ranges must be merged, so that the hash doesn't depend on the
        sizes of shards.
    """
    rows = " ".join(f"{start}:{stop}" for start, stop in ranges)
    return xxhash.xxh3_128_hexdigest(f"{fingerprint}\nrows {rows}\n".encode())
