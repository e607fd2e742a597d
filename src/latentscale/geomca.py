r"""GeomCA: which regions of a corpus are covered by a reference.

Poklukar et al. (ICML 2021) compare an evaluation corpus E with a reference R through the graph on
R ∪ E that joins rows closer than :math:`\varepsilon` (definition 2.1: strictly). For every
connected component :math:`\mathcal{G}_i`,

* *consistency* (definition 2.2) is 1 when it holds as many rows of R as of E and 0 when it holds
  rows of one set only, :math:`1 - \bigl||\mathcal{G}_i^R| - |\mathcal{G}_i^E|\bigr| /
  |\mathcal{G}_i|`;
* *quality* (definition 2.3) is the share of its edges that join R and E, 0 without edges.

The same two numbers of the whole graph are the network consistency and quality (definition 2.4).
*Precision* is the share of the rows of E, *recall* that of the rows of R, that lie in components
with consistency above :math:`\eta_c` and quality above :math:`\eta_q` (definition 2.5).

Before that both sets are thinned, each by itself, so that no two rows are within :math:`\delta`
(definition 3.1): a row is kept if no earlier kept row is within :math:`\delta`. The outcome
depends on the order of the rows. With :math:`\delta = \varepsilon` no edge can join two rows of
one set, so quality is 1 wherever there are edges.

:math:`\varepsilon` is a percentile of the distances between two disjoint random samples of R
(section 3.1).

Every decision is that of a float64 distance, summed coordinate by coordinate, at the price of
single precision (:func:`latentscale.distances.within`), so the results are exact and independent
of the tiling.
The graph is never stored: a tile's edges are counted, joined into a union–find forest, and
forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.distances import (
    Float64Array,
    Points,
    block_pairs,
    distance_tile,
    row_blocks,
    within,
)

Int64Array = NDArray[np.int64]

SAMPLE_ROWS = 2000
"""Rows a side behind the estimate of epsilon: four million distances."""

BLOCK_ROWS = 1024
"""Rows of a block; a tile and its decisions take 5 MiB."""


@dataclass(frozen=True)
class Sparsification:
    """Which rows of a set stand for the others.

    Attributes
    ----------
    kept : ndarray of int64, ascending
        Row numbers of the kept rows.
    representative : ndarray of int64, shape (n,)
        For each row the row number of the earliest kept row within delta; a kept row stands for
        itself.
    """

    kept: Int64Array
    representative: Int64Array

    @property
    def rows(self) -> Int64Array:
        """How many rows each kept row stands for, itself included; shape of ``kept``."""
        return np.bincount(self.representative)[self.kept].astype(np.int64, copy=False)


@dataclass(frozen=True)
class Components:
    """Connected components of an epsilon-graph, largest first.

    The rank of a component is its place by size, descending; among equals the one with the
    earliest row of the reference comes first, then the one with the earliest row of the corpus.

    Attributes
    ----------
    labels_reference, labels_corpus : ndarray of int64
        Rank of the component of every row.
    n_reference, n_corpus : ndarray of int64, shape (components,)
        Rows of each set in each component.
    edges_reference, edges_corpus, edges_between : ndarray of int64, shape (components,)
        Edges that join two rows of the reference, two of the corpus, one of each.
    """

    labels_reference: Int64Array
    labels_corpus: Int64Array
    n_reference: Int64Array
    n_corpus: Int64Array
    edges_reference: Int64Array
    edges_corpus: Int64Array
    edges_between: Int64Array

    def __len__(self) -> int:
        return len(self.n_reference)

    @property
    def size(self) -> Int64Array:
        """Rows of each component."""
        return self.n_reference + self.n_corpus

    @property
    def edges(self) -> Int64Array:
        """Edges of each component."""
        return self.edges_reference + self.edges_corpus + self.edges_between

    @property
    def consistency(self) -> Float64Array:
        """Balance between the two sets (definition 2.2), from 0 to 1."""
        return _consistency(self.n_reference, self.n_corpus)

    @property
    def quality(self) -> Float64Array:
        """Share of the edges that join the two sets (definition 2.3), from 0 to 1."""
        return _quality(self.edges_between, self.edges)


@dataclass(frozen=True)
class GeomcaScores:
    """Global scores, all from 0 to 1.

    Attributes
    ----------
    precision, recall : float
        Share of the sparse points of the corpus, of the reference, in components above the
        thresholds (definition 2.5).
    consistency, quality : float
        Of the whole graph (definition 2.4).
    precision_rows, recall_rows : float
        As precision and recall, each sparse point counted with all the rows it stands for.
    """

    precision: float
    recall: float
    consistency: float
    quality: float
    precision_rows: float
    recall_rows: float


def estimate_epsilon(
    reference: Points,
    percentile: float,
    *,
    generator: np.random.Generator,
    sample_rows: int = SAMPLE_ROWS,
) -> float:
    """Percentile of the distances between two disjoint random samples of the reference.

    Parameters
    ----------
    reference : Points
        At least two rows.
    percentile : float
        p of section 3.1, in [0, 100]; the paper takes 1 to 10.
    generator : numpy.random.Generator
        Draws the samples.
    sample_rows : int
        Rows of each sample; half of the reference where it has fewer than twice as many.

    Returns
    -------
    float
        Positive, in the units of the metric.

    Raises
    ------
    ValueError
        With fewer than two rows, a percentile outside [0, 100], no sample rows, or when the
        percentile is 0.

    Notes
    -----
    Takes ``8 sample_rows**2`` bytes and one tile.
    """
    n = len(reference)
    if n < 2:
        raise ValueError("epsilon needs a reference of at least 2 rows; give it as a number")
    if not 0 <= percentile <= 100:
        raise ValueError(f"the percentile must be in [0, 100], got {percentile}")
    if sample_rows < 1:
        raise ValueError(f"sample_rows must be at least 1, got {sample_rows}")
    k = min(n // 2, sample_rows)
    drawn = generator.choice(n, 2 * k, replace=False)
    left, right = reference.take(drawn[:k]), reference.take(drawn[k:])
    distances = np.empty((k, k))
    for rows in row_blocks(k, BLOCK_ROWS):
        for columns in row_blocks(k, BLOCK_ROWS):
            distances[rows, columns] = distance_tile(left.take(rows), right.take(columns))
    epsilon = float(np.percentile(distances, percentile, overwrite_input=True))
    if epsilon == 0:
        raise ValueError(
            f"percentile {percentile} of the reference's distances is 0 (duplicate rows); "
            "raise the percentile or give epsilon as a number"
        )
    return epsilon


def sparsify(points: Points, delta: float, *, block_rows: int = BLOCK_ROWS) -> Sparsification:
    """Keep a row if no earlier kept row is within delta (definition 3.1, greedy in row order).

    Parameters
    ----------
    points : Points
        The set to thin.
    delta : float
        Non-negative; distances ``<= delta`` remove. 0 removes duplicates only.
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
    A block is first filtered against the rows kept before, a block of those at a time, then
    thinned in itself. At most ``n`` times the number of kept rows distances are computed; the
    memory beyond the input is a few tiles and 16 bytes a row.
    """
    _check_distance("delta", delta, positive=False)
    _check_block(block_rows)
    n = len(points)
    representative = np.full(n, -1, dtype=np.int64)
    kept = np.empty(n, dtype=np.int64)
    n_kept = 0
    for block in row_blocks(n, block_rows):
        undecided = np.arange(block.start, block.stop)
        for earlier in row_blocks(n_kept, block_rows):
            keepers = kept[earlier]
            close = within(points.take(undecided), points.take(keepers), delta, strict=False)
            removed = close.any(axis=1)
            representative[undecided[removed]] = keepers[close[removed].argmax(axis=1)]
            undecided = undecided[~removed]
            if len(undecided) == 0:
                break
        else:
            rest = points.take(undecided)
            keeper = _thin(within(rest, rest, delta, strict=False))
            representative[undecided] = undecided[keeper]
            fresh = undecided[keeper == np.arange(len(keeper))]
            kept[n_kept : n_kept + len(fresh)] = fresh
            n_kept += len(fresh)
    return Sparsification(kept[:n_kept].copy(), representative)


def epsilon_components(
    reference: Points, corpus: Points, epsilon: float, *, block_rows: int = BLOCK_ROWS
) -> Components:
    """Components of the graph that joins rows of both sets at distances below epsilon.

    Parameters
    ----------
    reference, corpus : Points
        R and E (usually sparsified), under the same metric.
    epsilon : float
        Positive; rows are joined when ``d < epsilon`` (definition 2.1).
    block_rows : int
        Rows per block. It affects speed and memory, never the result.

    Returns
    -------
    Components

    Raises
    ------
    ValueError
        On an epsilon that isn't positive and finite, a block without rows, or sets that differ
        in metric or dimension.

    Notes
    -----
    Every pair of rows is visited once. The memory beyond the input is a tile and 24 bytes a row,
    whatever the number of edges.
    """
    _check_distance("epsilon", epsilon, positive=True)
    _check_block(block_rows)
    n_reference, n = len(reference), len(reference) + len(corpus)
    parent = np.arange(n)
    # An edge is counted at one of its ends: the row of the tile it was found in.
    edges_alike, edges_between = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for points, offset in ((reference, 0), (corpus, n_reference)):
        for rows, columns in block_pairs(len(points), block_rows):
            close = within(points.take(rows), points.take(columns), epsilon, strict=True)
            first, second = offset + rows.start, offset + columns.start
            _join(close, first, second, parent, edges_alike)
    for rows in row_blocks(n_reference, block_rows):
        for columns in row_blocks(len(corpus), block_rows):
            close = within(reference.take(rows), corpus.take(columns), epsilon, strict=True)
            _join(close, rows.start, n_reference + columns.start, parent, edges_between)
    labels = _ranks(_roots(parent))
    count = int(labels.max()) + 1
    labels_reference, labels_corpus = labels[:n_reference], labels[n_reference:]
    return Components(
        labels_reference,
        labels_corpus,
        np.bincount(labels_reference, minlength=count),
        np.bincount(labels_corpus, minlength=count),
        _sum_by_label(labels_reference, edges_alike[:n_reference], count),
        _sum_by_label(labels_corpus, edges_alike[n_reference:], count),
        _sum_by_label(labels_reference, edges_between[:n_reference], count),
    )


def geomca_scores(
    components: Components,
    *,
    eta_c: float = 0.0,
    eta_q: float = 0.0,
    reference_rows: Int64Array,
    corpus_rows: Int64Array,
) -> GeomcaScores:
    """Global scores of an epsilon-graph (definitions 2.4 and 2.5).

    Parameters
    ----------
    components : Components
        Of the sparse reference and corpus.
    eta_c, eta_q : float
        Thresholds in [0, 1]; a component counts when its consistency and quality are both
        strictly above.
    reference_rows, corpus_rows : ndarray of int
        Rows that each sparse point stands for (:attr:`Sparsification.rows`).

    Returns
    -------
    GeomcaScores

    Raises
    ------
    ValueError
        On a threshold outside [0, 1] or row counts that don't fit the points.
    """
    for name, threshold in (("eta_c", eta_c), ("eta_q", eta_q)):
        if not 0 <= threshold <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {threshold}")
    good = (components.consistency > eta_c) & (components.quality > eta_q)
    in_good_reference = good[components.labels_reference]
    in_good_corpus = good[components.labels_corpus]
    _check_rows("reference_rows", reference_rows, in_good_reference)
    _check_rows("corpus_rows", corpus_rows, in_good_corpus)
    return GeomcaScores(
        precision=_share(in_good_corpus.sum(), len(in_good_corpus)),
        recall=_share(in_good_reference.sum(), len(in_good_reference)),
        consistency=float(_consistency(components.n_reference.sum(), components.n_corpus.sum())),
        quality=float(_quality(components.edges_between.sum(), components.edges.sum())),
        precision_rows=_share(corpus_rows[in_good_corpus].sum(), corpus_rows.sum()),
        recall_rows=_share(reference_rows[in_good_reference].sum(), reference_rows.sum()),
    )


def _check_distance(name: str, value: float, *, positive: bool) -> None:
    if not np.isfinite(value) or value < 0 or (positive and value == 0):
        kind = "positive" if positive else "non-negative"
        raise ValueError(f"{name} must be a {kind} distance, got {value}")


def _check_block(block_rows: int) -> None:
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}")


def _check_rows(name: str, rows: Int64Array, points: NDArray[np.bool_]) -> None:
    if rows.shape != points.shape or (rows < 1).any():
        raise ValueError(
            f"{name} must hold a count of at least 1 for each of the {len(points)} sparse points"
        )


def _share(part: np.integer[Any], whole: np.integer[Any] | int) -> float:
    return int(part) / int(whole)


def _consistency(n_reference: Int64Array, n_corpus: Int64Array) -> Float64Array:
    # 1 - |r - e| / (r + e), written so that it is rounded once.
    balance: Float64Array = 2 * np.minimum(n_reference, n_corpus) / (n_reference + n_corpus)
    return balance


def _quality(edges_between: Int64Array, edges: Int64Array) -> Float64Array:
    # Without edges the numerator is 0 too.
    share: Float64Array = edges_between / np.maximum(edges, 1)
    return share


def _ranks(roots: Int64Array) -> Int64Array:
    # A root is the first vertex of its component, so unique roots come in the order of those, and
    # a stable sort keeps it among components of equal size.
    _, component, sizes = np.unique(roots, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[component]


def _sum_by_label(labels: Int64Array, counts: Int64Array, components: int) -> Int64Array:
    sums = np.zeros(components, dtype=np.int64)
    np.add.at(sums, labels, counts)
    return sums


@numba.njit(cache=True, nogil=True)
def _thin(close: NDArray[np.bool_]) -> Int64Array:
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


@numba.njit(cache=True, nogil=True)
def _root(parent: Int64Array, vertex: int) -> int:
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = parent[vertex]
    return vertex


@numba.njit(cache=True, nogil=True)
def _join(
    close: NDArray[np.bool_], first: int, second: int, parent: Int64Array, edges: Int64Array
) -> None:
    for i in range(close.shape[0]):
        root = _root(parent, first + i)
        for j in range(i + 1 if first == second else 0, close.shape[1]):
            if close[i, j]:
                edges[first + i] += 1
                other = _root(parent, second + j)
                # The smaller vertex stays the root: it is the first of its component.
                if other < root:
                    parent[root] = other
                    root = other
                elif root < other:
                    parent[other] = root


@numba.njit(cache=True, nogil=True)
def _roots(parent: Int64Array) -> Int64Array:
    roots = np.empty_like(parent)
    for vertex in range(len(parent)):
        roots[vertex] = _root(parent, vertex)
    return roots
