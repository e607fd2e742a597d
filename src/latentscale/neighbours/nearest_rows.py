r"""The nearest row of each row, in its own set and in another one, without comparing all pairs.

Duplicates lie in one corpus, leaks in two. So rows of several sets are divided into the same leaves
(:mod:`latentscale.neighbours.leaves`), and relations say which rows look for which. Each is
searched in every leaf (:mod:`latentscale.neighbours.leaf_search`).

Equal rows of one set are collapsed to one before: they are at distance 0 of each other, and would
make leaves that nothing can divide. The rows of such a group then take each other as their nearest,
or have the nearest of the group.

A distance that is found is that of a row, so it is never too small. It is too large where the
nearest row shares no leaf. The closer two rows are, the more likely they share one: near-duplicates
are seldom missed, and rows that are far from all others are always seen to be far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Float64Array, Int64Array
from latentscale.neighbours.exact import Neighbours
from latentscale.neighbours.leaf_search import Relation, distinct_sets, search_relations
from latentscale.neighbours.leaves import LEAF_ROWS, divide_into_leaves
from latentscale.neighbours.search import collapse_equal, order_of_leaves
from latentscale.tiles.distances import Points


@dataclass(frozen=True)
class NearestRows:
    """The nearest candidate of every row.

    Attributes
    ----------
    rows : ndarray of int64, shape (n,)
        Its number; -1 where none was found.
    distances : ndarray of float64, shape (n,)
        Its distance; infinite where none was found.
    """

    rows: Int64Array
    distances: Float64Array

    @classmethod
    def none(cls, n: int) -> NearestRows:
        """Return the nearest of ``n`` rows before any was found."""
        return cls(np.full(n, -1, dtype=np.int64), np.full(n, np.inf))

    def offer(self, places: Int64Array, rows: Int64Array, distances: NDArray[np.floating]) -> None:
        """Keep what is nearer, in place; of rows at one distance, that with the lower number.

        Parameters
        ----------
        places : ndarray of int64, shape (m,)
            The rows that something was found for, each once.
        rows, distances : ndarray, shape (m,)
            What was found, or -1 at an infinite distance.
        """
        known, kept = self.distances[places], self.rows[places]
        nearer = (rows >= 0) & (
            (distances < known) | ((distances == known) & ((rows < kept) | (kept < 0)))
        )
        self.rows[places[nearer]] = rows[nearer]
        self.distances[places[nearer]] = distances[nearer]


def nearest_rows(
    points: Points,
    relations: Sequence[Relation],
    *,
    overlap: int,
    generator: np.random.Generator,
    leaf_rows: int = LEAF_ROWS,
) -> Iterator[NearestRows]:
    """Find the nearest row of each row that shares a leaf with it, for several relations.

    Parameters
    ----------
    points : Points
        ``n`` rows of all sets, without keys; at most 2³¹.
    relations : sequence of Relation
        Who looks for whom.
    overlap : int
        Leaves that each row joins, at least 1.
    generator : numpy.random.Generator
        Source of the leaves.
    leaf_rows : int
        Average rows of a leaf. Up to twice as many rows form one leaf, and the search is exact.

    Yields
    ------
    NearestRows
        Of each relation, for all rows; those that aren't queries have none. Of equal candidates it
        is that with the lowest number.

    Notes
    -----
    For each relation within one set a row costs about ``0.6 overlap leaf_rows d`` operations in
    single precision, between two sets twice as many. Memory is ``8 (d + 1)`` bytes a row for an
    ordered copy, ``16 overlap`` for leaves and ``100`` for the lists of each relation.
    """
    first, group_of = _collapse_alike(points, relations)
    leaves = divide_into_leaves(
        points.take(first), overlap=overlap, generator=generator, leaf_rows=leaf_rows
    )
    order = order_of_leaves(leaves)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    leaves, group_of = [np.sort(place[leaf]) for leaf in leaves], place[group_of]
    distinct = points.take(first[order]).keyed()
    among = [
        Relation(
            _any_of_group(group_of, relation.queries, len(first)),
            _any_of_group(group_of, relation.candidates, len(first)),
        )
        for relation in relations
    ]
    found = search_relations(distinct, leaves, 1, among)
    for relation, near in zip(relations, found, strict=True):
        yield _expand_equal(near, relation, group_of)


def _collapse_alike(points: Points, relations: Sequence[Relation]) -> tuple[Int64Array, Int64Array]:
    """Return the first of equal rows that are in the same sets, and the group of every row."""
    _, group_of = collapse_equal(points)
    sets = distinct_sets(relations)
    kinds = group_of << len(sets)
    for place, rows in enumerate(sets):
        kinds |= rows.astype(np.int64) << place
    _, first, alike = np.unique(kinds, return_index=True, return_inverse=True)
    return first.astype(np.int64), alike.astype(np.int64)


def _any_of_group(group_of: Int64Array, rows: BoolArray, groups: int) -> BoolArray:
    found = np.zeros(groups, dtype=np.bool_)
    found[group_of[rows]] = True
    return found


def _expand_equal(near: Neighbours, relation: Relation, group_of: Int64Array) -> NearestRows:
    """Turn the nearest groups of equal rows into the nearest rows."""
    first, second = _first_two(group_of, relation.candidates, len(near))
    found = NearestRows.none(len(group_of))
    rows = np.flatnonzero(relation.queries)
    group = group_of[rows]
    equal = np.where(first[group] != rows, first[group], second[group])
    found.rows[rows] = equal
    found.distances[rows[equal >= 0]] = 0.0
    alone, group = rows[equal < 0], group[equal < 0]
    nearest = near.indices[group, 0]
    found.rows[alone] = np.where(nearest < 0, -1, first[nearest])
    found.distances[alone] = near.distances[group, 0]
    return found


def _first_two(
    group_of: Int64Array, candidates: BoolArray, groups: int
) -> tuple[Int64Array, Int64Array]:
    """Return the first two candidates of each group; -1 where it has fewer."""
    rows = np.flatnonzero(candidates)
    rows = rows[np.argsort(group_of[rows], kind="stable")]
    starts = np.searchsorted(group_of[rows], np.arange(groups + 1))
    counts, padded = np.diff(starts), np.concatenate([rows, [-1, -1]])
    first, second = (
        np.where(counts > place, padded[starts[:-1] + place], -1) for place in range(2)
    )
    return first, second
