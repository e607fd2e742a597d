r"""Greedy geometric sparsification: a subset of rows that represents all rows.

A row is kept if no earlier kept row is within :math:`\delta` (Poklukar et al., ICML 2021,
definition 3.1). Rows are processed greedily in their order, as by GUDHI's ``sparsify_point_set``.
The kept rows are the lexicographically first maximal independent set of the graph that joins rows
at :math:`d \le \delta`, and every other row is represented by the earliest kept row within
:math:`\delta`.

Fronts
------
The pass is sequential only as far as it has to be. Suppose that all rows before some position are
decided, and that no undecided row is within :math:`\delta` of a kept row. The next undecided rows,
a *front*, can then be decided among themselves. After that, every later row is compared with the
kept rows of the front, independently of all other rows, and is removed if one of them is within
:math:`\delta`. Then the next front follows. Kept rows are compared in the order in which they were
kept, so the first that is near is the earliest. :class:`SparsificationFronts` is this loop without
its arithmetic.

The number of distances computed is at most ``n`` times the number of kept rows. Every comparison
has the outcome of exact arithmetic (:class:`latentscale.tiles.distances.Balls`), so the result
depends neither on the fronts nor on the tiling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numba
import numpy as np

from latentscale.array_types import BoolArray, Int64Array
from latentscale.tiles.device import TileRows
from latentscale.tiles.distances import Balls, Points, check_distance, row_blocks

BLOCK_ROWS = 1024
"""Rows of a block; a tile and its comparisons take 5 MiB."""

COMPACTION_SHARE = 0.1
"""Share of a block's rows that have to be decided before the undecided ones are compacted."""

UNDECIDED = -1


@dataclass(frozen=True)
class Sparsification:
    """The kept rows of a set, and the kept row that represents each row.

    Attributes
    ----------
    kept : ndarray of int64, ascending
        Row numbers of the kept rows.
    representative : ndarray of int64, shape (n,)
        For each row, the number of the earliest kept row within delta; a kept row stands for
        itself.
    """

    kept: Int64Array
    representative: Int64Array

    @property
    def rows(self) -> Int64Array:
        """Number of rows that each kept row represents, including itself; shape of ``kept``."""
        return np.bincount(self.representative)[self.kept].astype(np.int64, copy=False)


def sparsify(points: Points, delta: float, *, block_rows: int = BLOCK_ROWS) -> Sparsification:
    """Keep a row if no earlier kept row is within delta (definition 3.1, greedy in row order).

    Parameters
    ----------
    points : Points
        The set to thin.
    delta : float
        Non-negative. A row at distance ``<= delta`` from a kept row is removed; 0 removes
        duplicates only.
    block_rows : int
        Rows per block. It affects speed and memory, never the result.

    Returns
    -------
    Sparsification

    Raises
    ------
    ValueError
        On a negative or non-finite delta or a block without rows.

    Notes
    -----
    A block is first compared with the rows kept before, one block of them at a time, and then
    thinned by itself. The number of distances computed is at most ``n`` times the number of kept
    rows. The memory beyond the input is 4 bytes a coordinate, 12 bytes a coordinate of the kept
    rows, 8 bytes a row, and a few tiles.
    """
    check_distance("delta", delta, positive=False)
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}")
    balls = Balls.about(points, delta, strict=False)
    representative = np.full(len(points), UNDECIDED, dtype=np.int64)
    kept = np.empty(len(points), dtype=np.int64)
    keepers: list[TileRows] = []
    n_kept = 0
    for block in row_blocks(len(points), block_rows):
        rows = balls.ready.take(block)
        first = _first_near(balls, rows, keepers)
        representative[block] = np.where(first == UNDECIDED, UNDECIDED, kept[first])
        rest = np.flatnonzero(first == UNDECIDED)
        left = rows.take(first == UNDECIDED)
        keeper = _thin(balls.hold(left, left))
        representative[block.start + rest] = block.start + rest[keeper]
        fresh = keeper == np.arange(len(rest))
        stop = n_kept + int(fresh.sum())
        kept[n_kept:stop] = block.start + rest[fresh]
        _append(keepers, left.take(fresh), block_rows)
        n_kept = stop
    return Sparsification(kept[:n_kept].copy(), representative)


def first_near(balls: Balls, rows: Points, *, block_rows: int = BLOCK_ROWS) -> Int64Array:
    """Find the first ball that contains each row.

    Parameters
    ----------
    balls : Balls
        Balls about the kept rows, in the order in which they were kept.
    rows : Points
        Any number of rows, which may be near some of the centres.
    block_rows : int
        Rows per block. It affects speed and memory, never the result.

    Returns
    -------
    ndarray of int64, shape (rows,)
        Position of the ball among all balls; -1 for a row that is in none.
    """
    first = np.full(len(rows), UNDECIDED, dtype=np.int64)
    for block in row_blocks(len(rows), block_rows):
        side, centres = balls.meet(rows.take(block))
        cut = (centres.take(part) for part in row_blocks(len(centres), block_rows))
        first[block] = _first_near(balls, side, cut)
    return first


class SparsificationFronts:
    """A greedy sparsification that proceeds front by front, without its arithmetic.

    Parameters
    ----------
    representative : ndarray of int64, shape (n,)
        The number of the earliest kept row within delta; -1 for undecided rows. Changed in place.
    order : ndarray of int64, shape (n,), optional
        Row numbers in the order of the pass; ascending when None.
    """

    def __init__(self, representative: Int64Array, order: Int64Array | None = None) -> None:
        self.representative = representative
        self.order = order

    @classmethod
    def start(cls, n: int, order: Int64Array | None = None) -> SparsificationFronts:
        """Return the start, with ``n`` undecided rows."""
        return cls(np.full(n, UNDECIDED, dtype=np.int64), order)

    @property
    def finished(self) -> bool:
        """Whether every row is decided."""
        return bool((self.representative != UNDECIDED).all())

    def next_front(self, rows: int) -> Int64Array:
        """Return the numbers of the first undecided rows, in the order of the pass."""
        open_rows = self.representative == UNDECIDED
        if self.order is None:
            return np.flatnonzero(open_rows)[:rows].astype(np.int64, copy=False)
        in_order: Int64Array = self.order[open_rows[self.order]]
        return in_order[:rows]

    def settle(self, front: Int64Array, thinned: Sparsification) -> Int64Array:
        """Record a front that was thinned by itself; return the rows that it keeps, in order."""
        self.representative[front] = front[thinned.representative]
        return front[thinned.kept]

    @property
    def outcome(self) -> Sparsification:
        """The sparsification, once it is finished."""
        kept = np.flatnonzero(self.representative == np.arange(len(self.representative)))
        return Sparsification(kept.astype(np.int64, copy=False), self.representative)


def _first_near(balls: Balls, rows: TileRows, keepers: Iterable[TileRows]) -> Int64Array:
    first = np.full(len(rows), UNDECIDED, dtype=np.int64)
    rest, start = np.arange(len(rows)), 0
    for block in keepers:
        found = _first_in_rows(balls.hold(rows, block))
        hit = (found != UNDECIDED) & (first[rest] == UNDECIDED)
        first[rest[hit]] = start + found[hit]
        start += len(block)
        decided = first[rest] != UNDECIDED
        if decided.all():
            break
        if decided.mean() > COMPACTION_SHARE:
            rest, rows = rest[~decided], rows.take(~decided)
    return first


def _append(keepers: list[TileRows], fresh: TileRows, block_rows: int) -> None:
    """Append kept rows to blocks of kept rows, filling up the last block first."""
    if keepers and len(keepers[-1]) + len(fresh) <= block_rows:
        fresh = keepers.pop().joined(fresh)
    if len(fresh):
        keepers.append(fresh)


@numba.njit(cache=True, nogil=True)
def _first_in_rows(close: BoolArray) -> Int64Array:
    first = np.full(close.shape[0], -1, dtype=np.int64)
    for i in range(close.shape[0]):
        for j in range(close.shape[1]):
            if close[i, j]:
                first[i] = j
                break
    return first


@numba.njit(cache=True, nogil=True)
def _thin(close: BoolArray) -> Int64Array:
    n = close.shape[0]
    keeper = np.full(n, -1, dtype=np.int64)
    for i in range(n):
        if keeper[i] >= 0:
            continue
        keeper[i] = i
        for j in range(i + 1, n):
            if close[i, j] and keeper[j] < 0:
                keeper[j] = i
    return keeper
