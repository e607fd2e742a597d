r"""Nearest neighbours by tiles: exact, with ties broken fairly.

The ``k`` nearest candidates of a block of queries are kept while its tiles go by. A float32 matrix
product of the rows, moved to the candidates' mean and scaled, gives every squared distance up to an
error of at most

.. math:: \gamma\,(\|x\|^2 + \|y\|^2), \qquad \gamma = (d + 16)\,2^{-24}

(rounding of the rows, of the product and of the comparison together; Higham, *Accuracy and
Stability of Numerical Algorithms*, section 3.1), so a candidate farther than the present ``k``-th
neighbour by more than that is passed over. The few that remain, about ``k (1 + log(n / k))`` of
``n`` for each query, are measured in float64, coordinate by coordinate, and only those distances
decide. The result therefore doesn't depend on how the rows were cut into blocks, nor on how the
matrix product rounds.

Ties
----
Embedding corpora hold heaps of equal rows. Were ties decided by position, all members of a heap
would point at its first ``k`` members and make hubs of them. Neighbours are therefore ordered by
(distance, hash of the seed and both row ids, candidate id): every row draws its own neighbours
from a heap, and the same ones in every run with the same seed.

Recall
------
An approximate graph is judged by sampled rows whose true neighbours are known. A found neighbour
counts when its distance is at most the true ``k``-th distance, so that a tie is never a miss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from latentscale.distances import Float64Array, Points, _direct_squared, row_blocks

Int64Array = NDArray[np.int64]

QUERY_BLOCK = 2048
CANDIDATE_BLOCK = 2048
"""Rows of a tile: 16 MiB of float32 products."""

_NO_HASH = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Neighbours:
    """The nearest candidates of each query, nearest first.

    Attributes
    ----------
    indices : ndarray of int64, shape (n, k)
        Candidate ids, never the row itself; -1 where a partial result has too few candidates.
    distances : ndarray of float64, shape (n, k)
        Their distances, ascending; infinite where the index is -1.
    """

    indices: Int64Array
    distances: Float64Array

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class Recall:
    """Share of true neighbours that were found, with its 95 % interval.

    Attributes
    ----------
    value : float
        Recall over the sampled rows, in [0, 1].
    lower, upper : float
        Ends of a conservative 95 % confidence interval for the recall over all rows.
    sampled : int
        Number of rows sampled, the sample size of the interval.
    """

    value: float
    lower: float
    upper: float
    sampled: int


def nearest(
    queries: Points,
    candidates: Points,
    k: int,
    *,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
    seed: int,
) -> Neighbours:
    """Find the ``k`` nearest candidates of every query.

    Parameters
    ----------
    queries, candidates : Points
        Blocks of ``m`` and ``n`` rows under the same metric.
    k : int
        Neighbours to keep, at least 1.
    query_ids, candidate_ids : ndarray of int64, shapes (m,) and (n,)
        Row numbers in the corpus. A candidate with the query's own id is passed over;
        candidate ids are not negative and differ from one another.
    seed : int
        Seed of the hash that breaks ties.

    Returns
    -------
    Neighbours
        Shape (m, k), padded with id -1 at infinite distance when candidates are too few.

    Raises
    ------
    ValueError
        If ``k < 1``, the blocks differ in metric or dimension, or ids don't fit the rows.

    Notes
    -----
    Costs ``2 m n d`` float32 operations, and 16 MiB and two float32 blocks beyond the result.
    """
    _check_blocks(queries, candidates, k, query_ids, candidate_ids)
    indices, distances, hashes = _empty(len(queries), k)
    key = _hash_key(seed)
    rounding = None if queries.metric == "manhattan" else _Rounding.around(candidates, queries)
    for rows in row_blocks(len(queries), QUERY_BLOCK):
        block = queries.take(rows)
        kept = (distances[rows], hashes[rows], indices[rows])
        near = rounding.apply(block) if rounding else None
        for columns in row_blocks(len(candidates), CANDIDATE_BLOCK):
            others = candidates.take(columns)
            ids = (query_ids[rows], candidate_ids[columns])
            if rounding is None or near is None:
                _fold_manhattan(*kept, block.rows, others.rows, *ids, key)
                continue
            far = rounding.apply(others)
            _fold_products(
                *kept,
                near.rows @ far.rows.T,
                near.half_norms,
                far.half_norms,
                0.5 / rounding.scale**2,
                block.rows,
                others.rows,
                queries.metric == "cosine",
                *ids,
                key,
            )
    return Neighbours(indices, distances)


def merge(
    first: Neighbours, second: Neighbours, k: int, *, query_ids: Int64Array, seed: int
) -> Neighbours:
    """Join the neighbours of the same queries among two sets of candidates.

    Parameters
    ----------
    first, second : Neighbours
        Results for the same ``m`` queries, of any widths, possibly padded; a candidate in both
        is kept once.
    k : int
        Neighbours to keep, at least 1.
    query_ids : ndarray of int64, shape (m,)
        Row numbers of the queries.
    seed : int
        Seed of the hash that breaks ties, the one the two results were made with.

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
    if not len(first) == len(second) == len(query_ids):
        raise ValueError(
            f"results to merge have {len(first)} and {len(second)} rows for "
            f"{len(query_ids)} queries; they must agree"
        )
    indices, distances, hashes = _empty(len(first), k)
    for part in (first, second):
        _offer_lists(
            distances, hashes, indices, part.distances, part.indices, query_ids, _hash_key(seed)
        )
    return Neighbours(indices, distances)


def exact_neighbours(points: Points, k: int, *, seed: int = 0) -> Neighbours:
    """Find the ``k`` nearest other rows of every row.

    Parameters
    ----------
    points : Points
        All ``n`` rows.
    k : int
        Neighbours of a row, ``1 <= k < n``.
    seed : int
        Seed of the hash that breaks ties.

    Returns
    -------
    Neighbours
        Shape (n, k), complete.

    Raises
    ------
    ValueError
        Unless ``1 <= k < n``.
    """
    n = len(points)
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours of {n} rows: k must be at least 1 and below {n}")
    ids = np.arange(n, dtype=np.int64)
    return nearest(points, points, k, query_ids=ids, candidate_ids=ids, seed=seed)


def recall_certificate(found: Float64Array, true: Float64Array) -> Recall:
    """Estimate the recall of an approximate graph from sampled rows.

    Parameters
    ----------
    found : ndarray of float64, shape (q, k)
        Distances of the neighbours found for ``q`` rows drawn at random.
    true : ndarray of float64, shape (q, k)
        Distances of their exact neighbours, ascending.

    Returns
    -------
    Recall
        Mean share of a row's found neighbours within its true ``k``-th distance, and the
        Clopper-Pearson interval with rows as the sample. A row's ``k`` hits depend on each
        other, so they count as one draw; the mean of draws between 0 and 1 varies at most as
        much as a share of successes with the same mean (Hoeffding 1963), and the count of
        successes is rounded outwards, so the interval is conservative.

    Raises
    ------
    ValueError
        If the shapes differ or are empty.
    """
    if found.shape != true.shape or found.ndim != 2 or 0 in found.shape:
        raise ValueError(
            f"found and true distances must be alike and not empty, got shapes "
            f"{found.shape} and {true.shape}"
        )
    rows, k = found.shape
    hits = int((found <= true[:, -1:]).sum())
    low, high = hits // k, -(-hits // k)
    lower = 0.0 if low == 0 else float(betaincinv(low, rows - low + 1, 0.025))
    upper = 1.0 if high == rows else float(betaincinv(high + 1, rows - high, 0.975))
    return Recall(hits / (rows * k), lower, upper, rows)


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


def _empty(rows: int, k: int) -> tuple[Int64Array, Float64Array, NDArray[np.uint64]]:
    return (
        np.full((rows, k), -1, dtype=np.int64),
        np.full((rows, k), np.inf),
        np.full((rows, k), _NO_HASH, dtype=np.uint64),
    )


def _hash_key(seed: int) -> np.uint64:
    return np.uint64(seed & 0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class _RoundedRows:
    """Float32 rows, and half of their squared norms less their share of the error."""

    rows: NDArray[np.float32]
    half_norms: Float64Array


@dataclass(frozen=True)
class _Rounding:
    """How rows become float32: moved to a centre, where norms are small, and scaled below 1."""

    centre: Float64Array
    scale: float

    @classmethod
    def around(cls, candidates: Points, queries: Points) -> _Rounding:
        centre = candidates.rows.mean(axis=0)
        largest = max(candidates.squared_norms.max(), queries.squared_norms.max())
        reach = math.sqrt(float(largest)) + float(np.sqrt(centre @ centre))
        # A power of two, so that scaling rounds nothing.
        return cls(centre, 2.0 ** math.ceil(math.log2(reach)) if reach > 0 else 1.0)

    def apply(self, points: Points) -> _RoundedRows:
        rows = ((points.rows - self.centre) / self.scale).astype(np.float32)
        exact = rows.astype(np.float64)
        squared = np.einsum("ij,ij->i", exact, exact)
        share = (points.dimension + 16) * 2.0**-24
        # What underflows in float32 is at most its least normal number for each coordinate.
        lost = (points.dimension + 16) * float(np.finfo(np.float32).tiny)
        return _RoundedRows(rows, 0.5 * ((1.0 - share) * squared - lost))


@numba.njit(cache=True, nogil=True)
def _mixed(word: np.uint64) -> np.uint64:
    # The output function of SplitMix64 (Steele, Lea & Flood 2014).
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def _query_hash(key: np.uint64, query: int) -> np.uint64:
    return _mixed(_mixed(key + np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(query))


@numba.njit(cache=True, nogil=True)
def _pair_hash(query_hash: np.uint64, candidate: int) -> np.uint64:
    return _mixed(query_hash + np.uint64(candidate) * np.uint64(0x9E3779B97F4A7C15))


@numba.njit(cache=True, nogil=True)
def _offer(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    distance: float,
    pair_hash: np.uint64,
    index: int,
) -> None:
    """Insert a candidate into one sorted list, if it comes before the last."""
    place = len(distances)
    while place > 0:
        before = place - 1
        if distance > distances[before]:
            break
        if distance == distances[before]:
            if pair_hash > hashes[before]:
                break
            if pair_hash == hashes[before] and index >= indices[before] >= 0:
                break
        if place < len(distances):
            distances[place] = distances[before]
            hashes[place] = hashes[before]
            indices[place] = indices[before]
        place = before
    if place < len(distances):
        distances[place] = distance
        hashes[place] = pair_hash
        indices[place] = index


@numba.njit(cache=True, nogil=True)
def _fold_products(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    products: NDArray[np.float32],
    query_halves: Float64Array,
    candidate_halves: Float64Array,
    limit_scale: float,
    queries: Float64Array,
    candidates: Float64Array,
    cosine: bool,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
    key: np.uint64,
) -> None:
    last = distances.shape[1] - 1
    for i in range(products.shape[0]):
        query_hash = _query_hash(key, query_ids[i])
        limit = _squared_limit(distances[i, last], cosine)
        # Half the least possible squared distance is the two halves less the product.
        start = query_halves[i] - limit * limit_scale
        for j in range(products.shape[1]):
            if start + candidate_halves[j] > products[i, j]:
                continue
            if candidate_ids[j] == query_ids[i]:
                continue
            pair_hash = _pair_hash(query_hash, candidate_ids[j])
            if limit == 0.0 and pair_hash > hashes[i, last]:
                continue  # no distance is below 0, so the hash decides alone
            distance = _direct_squared(queries[i], candidates[j])
            distance = 0.5 * distance if cosine else np.sqrt(distance)
            _offer(distances[i], hashes[i], indices[i], distance, pair_hash, candidate_ids[j])
            limit = _squared_limit(distances[i, last], cosine)
            start = query_halves[i] - limit * limit_scale


@numba.njit(cache=True, nogil=True)
def _squared_limit(distance: float, cosine: bool) -> float:
    # Rounded up, so that no candidate at exactly this distance is passed over.
    squared = 2.0 * distance if cosine else distance * distance
    return squared * (1.0 + 1e-15)


@numba.njit(cache=True, nogil=True)
def _fold_manhattan(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    queries: Float64Array,
    candidates: Float64Array,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
    key: np.uint64,
) -> None:
    last = distances.shape[1] - 1
    for i in range(queries.shape[0]):
        query_hash = _query_hash(key, query_ids[i])
        for j in range(candidates.shape[0]):
            if candidate_ids[j] == query_ids[i]:
                continue
            distance = 0.0
            for c in range(queries.shape[1]):
                distance += abs(queries[i, c] - candidates[j, c])
                if distance > distances[i, last]:
                    break
            if distance <= distances[i, last]:
                pair_hash = _pair_hash(query_hash, candidate_ids[j])
                _offer(distances[i], hashes[i], indices[i], distance, pair_hash, candidate_ids[j])


@numba.njit(cache=True, nogil=True)
def _offer_lists(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    offered_distances: Float64Array,
    offered: Int64Array,
    query_ids: Int64Array,
    key: np.uint64,
) -> None:
    last = distances.shape[1] - 1
    for i in range(offered.shape[0]):
        query_hash = _query_hash(key, query_ids[i])
        for j in range(offered.shape[1]):
            if offered[i, j] < 0 or offered_distances[i, j] > distances[i, last]:
                continue
            known = False
            for kept in indices[i]:
                known = known or kept == offered[i, j]
            if known:
                continue
            pair_hash = _pair_hash(query_hash, offered[i, j])
            _offer(
                distances[i],
                hashes[i],
                indices[i],
                offered_distances[i, j],
                pair_hash,
                offered[i, j],
            )
