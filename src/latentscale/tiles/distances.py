r"""Distances between blocks of rows.

All pairwise computations (nearest neighbours, magnitude, Vendi scores with kernels, GeomCA) use the
same object: a *tile*, the distances of all pairs of two blocks of rows. This module defines the
metrics. The arithmetic, its precision and its rounding are in :mod:`latentscale.tiles.device`.

Metrics
-------
``euclidean``
    :math:`\|x - y\|`.
``cosine``
    The cosine distance :math:`1 - \cos(x, y)`, half the squared Euclidean distance of the unit
    vectors. Rows of zeros have no direction and are refused.
``manhattan``
    :math:`\sum_i |x_i - y_i|`.

Origin
------
The error of a matrix product is proportional to the squared lengths of the rows. So rows far from
the origin of their coordinates should be moved to an origin among them: :meth:`Points.about`. This
changes only the rounding of distances. Blocks that are compared, in one process or in several, need
the same origin.

Precision
---------
``double``
    Distances in float64; a tile costs ``2 m n d`` operations and ``8 m n`` bytes.
``single``
    Half of both. Distances below an eighth of the rows' own distances from the origin are
    recomputed in float64. The relative error of the others is at most ``32 (d + 16) 2⁻²⁴``
    (Manhattan: twice as much), and typically a hundredth of that. Comparisons (:func:`within`)
    always have the outcome of exact arithmetic, at the cost of single precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.array_types import BoolArray, Float64Array, UInt64Array
from latentscale.tiles.device import Precision, TileRows, decide, separations, tile_rows
from latentscale.tiles.expansions import exact_square
from latentscale.tiles.top_lists import content_keys, number_copies

Metric = Literal["euclidean", "cosine", "manhattan"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True)
class Points:
    """Rows prepared for pairwise computations under a metric.

    Attributes
    ----------
    rows : ndarray of float64, shape (n, d)
        The vectors; scaled to unit length under the cosine metric.
    squared_norms : ndarray of float64, shape (n,)
        Squared lengths of ``rows``.
    metric : str
        The metric these rows are compared with.
    origin : ndarray of float64, shape (d,), or None
        The origin that tiles use; None for the origin of the coordinates.
    keys : ndarray of uint64, shape (n,), or None
        Keys that break ties between equal distances (:mod:`latentscale.tiles.top_lists`).
    """

    rows: Float64Array
    squared_norms: Float64Array
    metric: Metric
    origin: Float64Array | None = None
    keys: UInt64Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dimension(self) -> int:
        """Number of coordinates of a row."""
        return int(self.rows.shape[1])

    def take(self, index: slice | NDArray[np.integer[Any]]) -> Points:
        """Return the points selected by a slice (no copy) or an index array."""
        return replace(
            self,
            rows=self.rows[index],
            squared_norms=self.squared_norms[index],
            keys=None if self.keys is None else self.keys[index],
        )

    def keyed(self, keys: UInt64Array | None = None) -> Points:
        """Return the same points with keys; by default those of all rows of a corpus."""
        return replace(self, keys=number_copies(content_keys(self.rows)) if keys is None else keys)

    def about(self, origin: Float64Array) -> Points:
        """Return the same points with another origin, such as the mean of the rows.

        The origin has the coordinates of ``rows``: among unit vectors under the cosine metric.
        """
        return replace(self, origin=origin)

    @property
    def reach(self) -> float:
        """Bound on the distance of these rows from the origin (Euclidean, under any metric)."""
        longest = math.sqrt(float(self.squared_norms.max()))
        if self.origin is None:
            return longest
        return longest + math.sqrt(float(self.origin @ self.origin))

    def tile_rows(self, precision: Precision, unit: float) -> TileRows:
        """Prepare the rows for tiles with blocks of the same origin, unit and metric."""
        return tile_rows(
            self.rows,
            origin=self.origin,
            unit=unit,
            manhattan=self.metric == "manhattan",
            precision=precision,
        )


def as_points(vectors: ArrayLike, metric: Metric) -> Points:
    """Check vectors and prepare them for distance tiles.

    Parameters
    ----------
    vectors : array_like, shape (n, d)
        Finite real numbers of any float or integer type; at least one row and one column.
    metric : {"euclidean", "cosine", "manhattan"}
        How rows are compared.

    Returns
    -------
    Points
        A float64 copy (no copy when it already is one and the metric doesn't rescale).

    Raises
    ------
    ValueError
        On an unknown metric, a wrong rank, an empty array, a row with NaN or infinity, or, for
        the cosine metric, a row of zeros.
    """
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; choose one of {', '.join(METRICS)}")
    rows = np.ascontiguousarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"vectors must be a non-empty array of rank 2, got shape {rows.shape}")
    squared_norms = np.einsum("ij,ij->i", rows, rows)
    if not np.isfinite(squared_norms).all():
        row = int(np.flatnonzero(~np.isfinite(squared_norms))[0])
        raise ValueError(f"row {row} has a NaN, an infinity or an overflowing length")
    if metric == "cosine":
        return _unit_points(rows)
    return Points(rows, squared_norms, metric)


def _unit_points(rows: Float64Array) -> Points:
    # Scaling by the largest coordinate first prevents overflow and underflow when very long or very
    # short rows are squared.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if (largest == 0).any():
        row = int(np.flatnonzero(largest[:, 0] == 0)[0])
        raise ValueError(f"row {row} is zero: it has no direction, so no cosine distance")
    unit = rows / largest
    unit /= np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
    return Points(unit, np.einsum("ij,ij->i", unit, unit), "cosine")


def common_unit(a: Points, b: Points) -> float:
    """Return a power of two. Divided by it, no row of two blocks is longer than 1."""
    reach = max(a.reach, b.reach)
    return 2.0 ** math.ceil(math.log2(reach)) if reach > 0 else 1.0


def largest_size(points: Points) -> float:
    """Return the largest squared length (Manhattan: 1-norm) of any row about the origin."""
    return max(
        float(points.take(block).tile_rows("double", 1.0).sizes.max())
        for block in row_blocks(len(points), 4096)
    )


def distance_tile(a: Points, b: Points) -> Float64Array:
    """Compute the distances between all rows of two blocks.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the same metric, with the same origin.

    Returns
    -------
    ndarray of float64, shape (m, n)
        Non-negative distances; equal rows are at distance exactly 0.
    """
    tile = squared_tile(a, b) if a.metric != "manhattan" else _separations(a, b)
    if a.metric == "cosine":
        tile *= 0.5
    elif a.metric == "euclidean":
        np.sqrt(tile, out=tile)
    return tile


def squared_tile(a: Points, b: Points) -> Float64Array:
    """Compute squared Euclidean distances between all rows of two blocks (cosine: unit rows)."""
    return _separations(a, b)


def _separations(a: Points, b: Points) -> Float64Array:
    check_alike(a, b)
    tile = np.empty((len(a), len(b)))
    separations(a.tile_rows("double", 1.0), b.tile_rows("double", 1.0), tile)
    return tile


def within(a: Points, b: Points, threshold: float, *, strict: bool) -> BoolArray:
    """Decide which pairs of two blocks are at most (or less than) a distance apart.

    The squared distance is compared with the squared threshold (cosine: with twice the threshold;
    Manhattan: the distance with the threshold), as in exact arithmetic on the points' rows. A tile
    in single precision decides all pairs that aren't within its proven error of the threshold.
    Float64 sums decide most of the rest, and sums without rounding what then remains
    (:mod:`latentscale.tiles.expansions`).

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the same metric.
    threshold : float
        The threshold, in units of the metric.
    strict : bool
        True for ``d < threshold``, False for ``d <= threshold``.

    Returns
    -------
    ndarray of bool, shape (m, n)

    Notes
    -----
    Costs ``2 m n d`` operations in single precision and ``5 m n`` bytes.
    """
    check_alike(a, b)
    balls = Balls.about(b, threshold, strict=strict)
    rows, centres = balls.meet(a)
    return balls.hold(rows, centres)


@dataclass(frozen=True)
class Balls:
    """Balls of one radius about rows, for comparisons with many blocks of other rows.

    The outcome is that of :func:`within`. The centres are prepared only once.

    Attributes
    ----------
    centres : Points
        The centres, with an origin among them.
    limit : ndarray of float64, shape (p,)
        The radius in units of a separation, as an expansion.
    strict : bool
        Whether rows at exactly the radius are outside.
    ready : TileRows
        The centres as one side of a tile: ``12 d`` bytes a row, of which ``8 d`` are shared with
        ``centres``.
    """

    centres: Points
    limit: Float64Array
    strict: bool
    ready: TileRows

    @classmethod
    def about(cls, centres: Points, radius: float, *, strict: bool) -> Balls:
        """Return balls that contain rows at ``d < radius`` (strict) or at ``d <= radius``."""
        limits: dict[Metric, Float64Array] = {
            "euclidean": exact_square(radius),
            "cosine": np.array([2.0 * radius]),
            "manhattan": np.array([radius]),
        }
        # The outcome doesn't depend on the origin. With an origin among the rows fewest pairs have
        # to be computed again.
        centres = centres.about(centres.rows.mean(axis=0))
        # Later rows may be longer. Up to a factor of 4 they need no other unit.
        ready = centres.tile_rows("single", 4 * common_unit(centres, centres))
        return cls(centres, limits[centres.metric], strict, ready)

    def __len__(self) -> int:
        return len(self.centres)

    def meet(self, rows: Points) -> tuple[TileRows, TileRows]:
        """Prepare other rows; return them and the centres as the two sides of tiles."""
        rows = replace(rows, origin=self.centres.origin)
        check_alike(rows, self.centres)
        unit = max(self.ready.unit, common_unit(rows, self.centres))
        same = unit == self.ready.unit
        centres = self.ready if same else self.centres.tile_rows("single", unit)
        return rows.tile_rows("single", unit), centres

    def hold(self, rows: TileRows, centres: TileRows) -> BoolArray:
        """Decide which rows are in which balls, shape (rows, centres).

        The two sides come from :meth:`meet`, or are parts of those. They may be exchanged.
        """
        return decide(rows, centres, self.limit, strict=self.strict)


def row_blocks(n: int, size: int) -> Iterator[slice]:
    """Cut ``n`` rows into consecutive blocks of at most ``size``."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def block_pairs(n: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Return all pairs of row blocks with the first not after the second."""
    blocks = list(row_blocks(n, size))
    for i, first in enumerate(blocks):
        for second in blocks[i:]:
            yield first, second


def check_alike(a: Points, b: Points) -> None:
    """Refuse blocks that can't form a tile.

    Raises
    ------
    ValueError
        If metric, dimension or origin differ.
    """
    if a.metric != b.metric or a.dimension != b.dimension:
        raise ValueError(
            f"blocks differ: {a.metric} in {a.dimension} dimensions against "
            f"{b.metric} in {b.dimension}"
        )
    if a.origin is not b.origin and not (
        a.origin is not None and b.origin is not None and np.array_equal(a.origin, b.origin)
    ):
        raise ValueError("blocks differ in their origin; give all of them the same")


def check_distance(name: str, value: float, *, positive: bool) -> None:
    """Refuse a value that isn't a distance.

    Raises
    ------
    ValueError
        On a negative or non-finite value, or 0 where it has to be positive.
    """
    if not np.isfinite(value) or value < 0 or (positive and value == 0):
        kind = "positive" if positive else "non-negative"
        raise ValueError(f"{name} must be a {kind} distance, got {value}")
