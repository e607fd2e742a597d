r"""Nearest neighbours by tiles: exact, with ties broken fairly.

The ``k`` nearest candidates of a block of queries are updated tile by tile. A tile in single
precision, with the candidates' mean as origin, gives every distance up to a proven error
(:mod:`latentscale.tiles.host.separations`). A candidate that is farther than the present ``k``-th
neighbour by more than this error is skipped. For the few that remain, about ``k (1 + log(n / k))``
of ``n`` for each query, the distance is computed in float64, coordinate by coordinate, and only
these distances decide. The result therefore depends neither on the division of the rows into blocks
nor on the rounding of the tiles.

Ties
----
Embedding corpora contain large groups of equal rows. If ties were decided by position, all members
of such a group would have its first ``k`` members as neighbours and make hubs of them. Neighbours
are therefore ordered by (distance, hash of the keys of both rows). A key is a hash of the row's
coordinates, and of its number among equal rows (:mod:`latentscale.tiles.top_lists`). So the
neighbours from a group differ from row to row, and another order of the rows gives the same graph.
Where distances are rounded, rows are tied if their rounded distances are equal.

Recall
------
An approximate graph is judged by sampled rows whose true neighbours are known. A found neighbour
counts when its distance is at most the true ``k``-th distance, so that a tie is never a miss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from latentscale.array_types import BoolArray, Float64Array, Int64Array, UInt64Array
from latentscale.tiles.device import offer_near
from latentscale.tiles.distances import Points, common_unit, row_blocks
from latentscale.tiles.top_lists import content_keys, offer

QUERY_BLOCK = 2048
CANDIDATE_BLOCK = 2048
"""Rows of a tile: 16 MiB of float32 products."""

_NO_TIE = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Neighbours:
    """The nearest candidates of each query, nearest first.

    Attributes
    ----------
    indices : ndarray of int64, shape (n, k)
        Candidate ids, never the row itself; -1 where a partial result has too few candidates.
    distances : ndarray of float64, shape (n, k)
        Their distances, ascending; infinite where the id is -1.
    ties : ndarray of uint64, shape (n, k)
        Hashes of the keys of both rows, which order candidates at the same distance.
    """

    indices: Int64Array
    distances: Float64Array
    ties: UInt64Array

    def __len__(self) -> int:
        return len(self.indices)

    @classmethod
    def none(cls, rows: int, k: int) -> Neighbours:
        """Return empty lists of ``k`` neighbours."""
        return cls(
            np.full((rows, k), -1, dtype=np.int64),
            np.full((rows, k), np.inf),
            np.full((rows, k), _NO_TIE, dtype=np.uint64),
        )

    def take(self, index: slice | Int64Array) -> Neighbours:
        """Return the lists of some queries."""
        return Neighbours(self.indices[index], self.distances[index], self.ties[index])

    def put(self, index: slice | Int64Array, lists: Neighbours) -> None:
        """Replace the lists of some queries."""
        self.indices[index] = lists.indices
        self.distances[index] = lists.distances
        self.ties[index] = lists.ties

    def cut(self, k: int) -> Neighbours:
        """Return the first ``k`` of each list."""
        return Neighbours(
            np.ascontiguousarray(self.indices[:, :k]),
            np.ascontiguousarray(self.distances[:, :k]),
            np.ascontiguousarray(self.ties[:, :k]),
        )

    def tied(self, k: int) -> BoolArray:
        """Tell which lists leave out a candidate at the distance of their ``k``-th.

        These have to be lists of more than ``k`` candidates, where there are so many.
        """
        if self.distances.shape[1] <= k:
            return np.zeros(len(self), dtype=np.bool_)
        last = self.distances[:, k - 1]
        return np.asarray((last == self.distances[:, k]) & np.isfinite(last))


def nearest(
    queries: Points,
    candidates: Points,
    k: int,
    *,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
    known: Neighbours | None = None,
    within: Float64Array | None = None,
    query_block: int = QUERY_BLOCK,
    candidate_block: int = CANDIDATE_BLOCK,
) -> Neighbours:
    """Find the ``k`` nearest candidates of every query.

    Parameters
    ----------
    queries, candidates : Points
        Blocks of ``m`` and ``n`` rows under the same metric. Without keys, the hashes of their
        coordinates break ties, and among equal rows the ids.
    k : int
        Neighbours to keep, at least 1.
    query_ids, candidate_ids : ndarray of int64, shapes (m,) and (n,)
        Row numbers in the corpus. A candidate with the query's own id is skipped. Candidate ids are
        distinct and not negative.
    known : Neighbours, optional
        Lists of the same queries among other candidates, disjoint from these. The nearest of both
        are returned, as by :func:`merge` but faster than starting from empty lists.
    within : ndarray of float64, shape (m,), optional
        Largest distance of a query's neighbours; known ones are within it. Lists of rows that are
        nearer than a candidate needn't be filled first, which saves most of the work where many
        neighbours are looked for in many small blocks.
    query_block, candidate_block : int
        Rows of a tile. The result doesn't depend on them.

    Returns
    -------
    Neighbours
        Shape (m, k), padded with id -1 at infinite distance when candidates are too few.

    Raises
    ------
    ValueError
        If ``k < 1``, the blocks differ in metric or dimension, or ids or known lists don't fit the
        rows.

    Notes
    -----
    Costs ``2 m n d`` float32 operations. Memory beyond the result is one tile, by default of 16
    MiB, and two float32 blocks.
    """
    _check_blocks(queries, candidates, k, query_ids, candidate_ids)
    if known is not None and len(known) != len(queries):
        raise ValueError(f"{len(known)} known lists for {len(queries)} queries; they must agree")
    found = Neighbours.none(len(queries), k)
    if known is not None and known.distances.shape[1] == k:
        found.put(slice(None), known)
    elif known is not None:
        _add_lists(found, known)
    if within is not None:
        np.minimum(found.distances, within[:, None], out=found.distances)
    query_keys, candidate_keys = keys_of(queries), keys_of(candidates)
    origin = candidates.rows.mean(axis=0)
    queries, candidates = queries.about(origin), candidates.about(origin)
    unit = common_unit(queries, candidates)
    for rows in row_blocks(len(queries), query_block):
        near = queries.take(rows).tile_rows("single", unit)
        for columns in row_blocks(len(candidates), candidate_block):
            offer_near(
                found.distances[rows],
                found.ties[rows],
                found.indices[rows],
                near,
                candidates.take(columns).tile_rows("single", unit),
                query_ids[rows],
                candidate_ids[columns],
                query_keys[rows],
                candidate_keys[columns],
                cosine=queries.metric == "cosine",
            )
    found.distances[found.indices < 0] = np.inf
    return found


def merge(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """Merge the neighbours of the same queries among two sets of candidates.

    Parameters
    ----------
    first, second : Neighbours
        Results for the same ``m`` queries, of any widths, possibly padded; a candidate in both
        is kept once.
    k : int
        Neighbours to keep, at least 1.

    Returns
    -------
    Neighbours
        Shape (m, k), padded where both together have fewer.

    Raises
    ------
    ValueError
        If ``k < 1`` or the number of rows differs.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if len(first) != len(second):
        raise ValueError(
            f"results to merge have {len(first)} and {len(second)} rows; they must agree"
        )
    joined = Neighbours.none(len(first), k)
    for part in (first, second):
        _add_lists(joined, part)
    return joined


def exact_neighbours(points: Points, k: int) -> Neighbours:
    """Find the ``k`` nearest other rows of every row.

    Parameters
    ----------
    points : Points
        All ``n`` rows.
    k : int
        Neighbours of a row, ``1 <= k < n``.

    Returns
    -------
    Neighbours
        Shape (n, k), complete. Another order of the rows gives the same graph, with its equal rows
        exchanged.

    Raises
    ------
    ValueError
        Unless ``1 <= k < n``.
    """
    n = len(points)
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours of {n} rows: k must be at least 1 and below {n}")
    ids = np.arange(n, dtype=np.int64)
    points = points.keyed()
    return nearest(points, points, k, query_ids=ids, candidate_ids=ids)


def _check_blocks(
    queries: Points,
    candidates: Points,
    k: int,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if queries.metric != candidates.metric or queries.dimension != candidates.dimension:
        raise ValueError(
            f"queries are {queries.metric} in {queries.dimension} dimensions, candidates "
            f"{candidates.metric} in {candidates.dimension}; they must agree"
        )
    if len(query_ids) != len(queries) or len(candidate_ids) != len(candidates):
        raise ValueError(
            f"{len(query_ids)} and {len(candidate_ids)} ids for {len(queries)} queries and "
            f"{len(candidates)} candidates; every row needs one"
        )


def keys_of(points: Points) -> UInt64Array:
    """Return the keys of points; without any, the hashes of their coordinates."""
    return content_keys(points.rows) if points.keys is None else points.keys


def _add_lists(lists: Neighbours, offered: Neighbours) -> None:
    _offer_lists(
        lists.distances,
        lists.ties,
        lists.indices,
        offered.distances,
        offered.ties,
        offered.indices,
    )


@numba.njit(cache=True, nogil=True)
def _offer_lists(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    offered_distances: Float64Array,
    offered_ties: UInt64Array,
    offered: Int64Array,
) -> None:
    last = distances.shape[1] - 1
    for i in range(offered.shape[0]):
        for j in range(offered.shape[1]):
            distance, index = offered_distances[i, j], offered[i, j]
            if index < 0 or distance > distances[i, last]:
                continue
            known = False
            for kept in indices[i]:
                known = known or kept == index
            if not known:
                offer(distances[i], ties[i], indices[i], distance, offered_ties[i, j], index)
