"""The fingerprint of a corpus: its vectors' values, dtype and shape, and nothing else.

Rows are hashed in blocks of 1024 (XXH3-128 over their little-endian bytes in row order; the last
block may be shorter). The fingerprint is XXH3-128 over the blocks' digests in order, followed by
one line that states dtype, rows and dimensions. So it doesn't depend on how the rows were cut into
shards, on the source's format, or on ids and labels; and shards whose rows are a multiple of 1024
can be hashed apart and combined (:func:`block_digests`, :func:`combine`).

Some rows of a corpus are named by its fingerprint and their ranges (:func:`of_rows`), without
reading them: it isn't the fingerprint that a corpus of just these rows would have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

BLOCK_ROWS = 1024
"""Rows that are hashed together."""

DIGEST_BYTES = 16
"""Of the digest of a block."""


class Fingerprint:
    """The fingerprint of rows that arrive piece by piece, in order.

    Parameters
    ----------
    dtype : numpy dtype
        Of the stored vectors.
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
        """Go on from the digests of whole blocks, and the rows after them (fewer than 1024)."""
        fingerprint = Fingerprint(dtype, dimensions)
        fingerprint._digests = [digests]
        fingerprint._rows = len(digests) // DIGEST_BYTES * BLOCK_ROWS
        fingerprint.update(rows)
        return fingerprint

    def whole_blocks(self) -> bytes:
        """Return the digests of the whole blocks so far."""
        return b"".join(self._digests)

    def update(self, rows: npt.NDArray[Any]) -> None:
        """Take the next rows, shape (any number, dimensions)."""
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
    """Return the digests, 16 bytes each, of rows that start at a multiple of 1024.

    Parameters
    ----------
    rows : ndarray, shape (rows, d)
        In the dtype in which they are stored.
    """
    rows = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<"))
    return b"".join(
        xxhash.xxh3_128_digest(rows[start : start + BLOCK_ROWS].data.cast("B"))
        for start in range(0, len(rows), BLOCK_ROWS)
    )


def combine(digests: Iterable[bytes], dtype: npt.DTypeLike, rows: int, dimensions: int) -> str:
    """Return the fingerprint from the digests of all blocks in order.

    Parameters
    ----------
    digests : iterable of bytes
        Digests of one block or of several, concatenated in any way.
    dtype, rows, dimensions
        Of the whole corpus.
    """
    whole = xxhash.xxh3_128()
    for digest in digests:
        whole.update(digest)
    whole.update(f"\n{np.dtype(dtype).name} {rows} {dimensions}\n".encode())
    return whole.hexdigest()


def of_rows(fingerprint: str, ranges: Iterable[tuple[int, int]]) -> str:
    """Return a name for some rows of a corpus: 32 hexadecimal characters.

    Parameters
    ----------
    fingerprint : str
        Of all rows.
    ranges : iterable of (start, stop)
        The rows, in order; no range begins where another ends, so that it doesn't matter how the
        corpus is cut into shards.
    """
    rows = " ".join(f"{start}:{stop}" for start, stop in ranges)
    return xxhash.xxh3_128_hexdigest(f"{fingerprint}\nrows {rows}\n".encode())
