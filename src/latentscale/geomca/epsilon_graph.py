r"""Connected components of the epsilon-graph on two sets, without storing its edges.

The graph on :math:`R \cup E` joins rows closer than :math:`\varepsilon` (Poklukar et al., ICML
2021, definition 2.1: strictly). Its vertices are the rows of R, numbered from 0, and then those of
E. A tile's edges are counted by type (two rows of R, two of E, one of each), merged into a
union–find forest, and discarded. It needs 32 bytes per vertex, independent of the number of edges.

The tiles may be divided among any number of processes. Each process returns its :class:`Forest`:
the vertices that it found to be connected, and the numbers of edges, counted at one vertex of each
connected part. Forests can be merged in any order and give the components of the whole graph. An
edge is counted once if its pair of rows was in one tile only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from latentscale.array_types import BoolArray, Float64Array, Int64Array
from latentscale.tiles.distances import Balls, Points, check_distance, row_blocks

HELD_BLOCKS = 4
"""Blocks of rows that are compared with all later rows at once."""

OF_REFERENCE, OF_CORPUS, BETWEEN = 0, 1, 2
"""Types of edges, by their rows in an array of counts."""


BLOCK_ROWS = 1024
"""Rows of a block; a tile and its comparisons take 5 MiB."""


@dataclass(frozen=True)
class Components:
    """Connected components of an epsilon-graph, largest first.

    The rank of a component is its place by descending size. Among components of equal size, the one
    with the earliest row of the reference comes first, then the one with the earliest row of the
    corpus.

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
        return balance(self.n_reference, self.n_corpus)

    @property
    def quality(self) -> Float64Array:
        """Share of the edges that join the two sets (definition 2.3), from 0 to 1."""
        return share_between(self.edges_between, self.edges)


@dataclass(frozen=True)
class Forest:
    """The connections and edge counts found in some tiles of the graph.

    Attributes
    ----------
    vertices, roots : ndarray of int64, shape (m,)
        Vertices that are connected with an earlier one, and the earliest vertex of the part of
        each.
    counted : ndarray of int64, shape (k,)
        Earliest vertices of the parts that have edges.
    edges : ndarray of int64, shape (3, k)
        Numbers of edges of those parts: between two rows of the reference, between two of the
        corpus, and between one of each.
    """

    vertices: Int64Array
    roots: Int64Array
    counted: Int64Array
    edges: Int64Array


class EpsilonGraph:
    """Components and edge counts of the graph, from the tiles processed so far.

    Parameters
    ----------
    n_reference, n_corpus : int
        Rows of each set.
    """

    def __init__(self, n_reference: int, n_corpus: int) -> None:
        self._n_reference = n_reference
        # The parent of a vertex never comes after it, so a root is the first vertex of its part.
        self._parent = np.arange(n_reference + n_corpus)
        # An edge is counted at the earlier of its ends.
        self._edges = np.zeros((3, n_reference + n_corpus), dtype=np.int64)

    def look(self, balls: Balls, first: int, rows: Points, second: int) -> None:
        """Find the edges between some vertices and later ones.

        Parameters
        ----------
        balls : Balls
            Open balls of radius epsilon about consecutive vertices of one set.
        first : int
            The first vertex of ``balls``.
        rows : Points
            Consecutive vertices of one set. The two blocks may overlap: a vertex of ``balls`` is
            compared with later vertices only.
        second : int
            The first vertex of ``rows``.
        """
        edges = self._edges[self._type(first, len(balls), second, len(rows))]
        for block in row_blocks(len(rows), BLOCK_ROWS):
            if second + block.stop - 1 <= first:
                continue
            later, centres = balls.meet(rows.take(block))
            for part in row_blocks(len(centres), BLOCK_ROWS):
                if second + block.stop - 1 > first + part.start:
                    close = balls.hold(centres.take(part), later)
                    start, other = first + part.start, second + block.start
                    _join(close, start, other, self._parent, edges)

    def _type(self, first: int, n_first: int, second: int, n_second: int) -> int:
        sides = set()
        for start, count in ((first, n_first), (second, n_second)):
            if start < self._n_reference < start + count:
                raise ValueError("a block holds vertices of one set only")
            sides.add(OF_REFERENCE if start < self._n_reference else OF_CORPUS)
        return BETWEEN if len(sides) == 2 else sides.pop()

    @property
    def forest(self) -> Forest:
        """Return what was found so far, in as few numbers as possible."""
        roots = _roots(self._parent)
        vertices = np.flatnonzero(roots != np.arange(len(roots)))
        edges = self._summed(roots)
        counted = np.flatnonzero(edges.any(axis=0))
        return Forest(vertices, roots[vertices], counted, edges[:, counted])

    def merge(self, forest: Forest) -> None:
        """Add the connections and edge counts of other tiles."""
        _unite(forest.vertices, forest.roots, self._parent)
        self._edges[:, forest.counted] += forest.edges

    @property
    def components(self) -> Components:
        """Return the components of the graph found so far."""
        labels = _ranks(_roots(self._parent))
        count = int(labels.max()) + 1
        of_reference, of_corpus = labels[: self._n_reference], labels[self._n_reference :]
        sums = np.zeros((3, count), dtype=np.int64)
        for counts, total in zip(self._edges, sums, strict=True):
            np.add.at(total, labels, counts)
        return Components(
            of_reference,
            of_corpus,
            np.bincount(of_reference, minlength=count),
            np.bincount(of_corpus, minlength=count),
            sums[OF_REFERENCE],
            sums[OF_CORPUS],
            sums[BETWEEN],
        )

    def _summed(self, roots: Int64Array) -> Int64Array:
        summed = np.zeros_like(self._edges)
        for counts, total in zip(self._edges, summed, strict=True):
            np.add.at(total, roots, counts)
        return summed


def epsilon_components(
    reference: Points, corpus: Points, epsilon: float, *, block_rows: int = BLOCK_ROWS
) -> Components:
    """Find the components of the graph that joins rows of both sets closer than epsilon.

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
    Every pair of rows is visited once. The memory beyond the input is a few tiles, some blocks of
    rows and 32 bytes a row, whatever the number of edges.
    """
    check_distance("epsilon", epsilon, positive=True)
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}")
    n_reference = len(reference)
    graph = EpsilonGraph(n_reference, len(corpus))
    for points, offset in ((reference, 0), (corpus, n_reference)):
        for block in row_blocks(len(points), HELD_BLOCKS * block_rows):
            balls = Balls.about(points.take(block), epsilon, strict=True)
            first = offset + block.start
            graph.look(balls, first, points.take(slice(block.start, None)), first)
            if offset == 0:
                graph.look(balls, first, corpus, n_reference)
    return graph.components


def balance(n_reference: Int64Array, n_corpus: Int64Array) -> Float64Array:
    """Return the consistency: 1 for equally many rows of both sets, 0 for rows of only one."""
    # This is 1 - |r - e| / (r + e), rounded only once.
    balanced: Float64Array = 2 * np.minimum(n_reference, n_corpus) / (n_reference + n_corpus)
    return balanced


def share_between(edges_between: Int64Array, edges: Int64Array) -> Float64Array:
    """Return the quality: the share of the edges that join the two sets, 0 without edges."""
    # Without edges the numerator is 0 too.
    share: Float64Array = edges_between / np.maximum(edges, 1)
    return share


def _ranks(roots: Int64Array) -> Int64Array:
    # A root is the first vertex of its component, so the unique roots are in the order of first
    # vertices. A stable sort keeps this order among components of equal size.
    _, component, sizes = np.unique(roots, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[component]


@numba.njit(cache=True, nogil=True)
def _root(parent: Int64Array, vertex: int) -> int:
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = parent[vertex]
    return vertex


@numba.njit(cache=True, nogil=True)
def _link(parent: Int64Array, root: int, other: int) -> int:
    # The smaller vertex stays the root: it is the first of its component.
    if other < root:
        parent[root] = other
        return other
    parent[other] = root
    return root


@numba.njit(cache=True, nogil=True)
def _join(close: BoolArray, first: int, second: int, parent: Int64Array, edges: Int64Array) -> None:
    columns = close.shape[1]
    for i in range(close.shape[0]):
        row = close[i]
        start = max(0, first + i + 1 - second)
        count = 0
        for j in range(start, columns):
            count += row[j]
        if count == 0:
            continue
        edges[first + i] += count
        root = _root(parent, first + i)
        for j in range(start, columns):
            # In a dense graph most neighbours have the same root already.
            if row[j] and parent[second + j] != root:
                root = _link(parent, root, _root(parent, second + j))
                parent[second + j] = root


@numba.njit(cache=True, nogil=True)
def _unite(vertices: Int64Array, others: Int64Array, parent: Int64Array) -> None:
    for k in range(len(vertices)):
        _link(parent, _root(parent, vertices[k]), _root(parent, others[k]))


@numba.njit(cache=True, nogil=True)
def _roots(parent: Int64Array) -> Int64Array:
    roots = np.empty_like(parent)
    for vertex in range(len(parent)):
        roots[vertex] = _root(parent, vertex)
    return roots
