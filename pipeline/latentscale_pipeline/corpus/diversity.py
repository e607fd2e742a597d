"""Choose rows of a corpus that are unlike each other or cover the others, and say how well."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from latentscale.array_types import Float32Array, Int64Array
from latentscale.sampling.greedy_rows import BLOCK_BYTES, farthest_first, most_diverse
from latentscale_pipeline.corpus.corpus import Corpus
from latentscale_pipeline.errors import BadInput

Metric = Literal["cosine", "euclidean"]


@dataclass(frozen=True)
class Retained:
    """What some rows retain of all.

    Attributes
    ----------
    radius : float
        Distance within which every row has one of them.
    effective_number : float
        Their effective number of order 2 under the cosine, of those that aren't zero; NaN if all
        are.
    """

    radius: float
    effective_number: float


@dataclass(frozen=True)
class ChosenRows:
    """Rows that were chosen for their diversity, and as many random ones for comparison.

    Attributes
    ----------
    rows : ndarray of int64, shape (k,)
        Their numbers, ascending.
    retained, by_random_rows : Retained
        What they and as many random rows retain of those that they were chosen from.
    """

    rows: Int64Array
    retained: Retained
    by_random_rows: Retained


def choose_unlike(
    corpus: Corpus,
    among: Int64Array,
    count: int,
    *,
    cover: bool = False,
    metric: Metric = "cosine",
    seed: int = 0,
    memory_bytes: int,
    progress: Callable[[int, int], None],
) -> ChosenRows:
    """Choose rows of a corpus one by one (:mod:`latentscale.sampling.greedy_rows`).

    Parameters
    ----------
    corpus : Corpus
        The corpus.
    among : ndarray of int64
        Rows to choose from; their vectors must fit memory twice in single precision.
    count : int
        Number of rows to choose.
    cover : bool
        Whether to choose the row farthest from those chosen, so that they cover all, rather than
        the one least similar to them.
    metric : str
        How distances are measured. Similarity is the cosine in any case.
    seed : int
        Seed of the random rows.
    memory_bytes : int
        Memory that may be used.
    progress : callable
        Called with the rows chosen and their number.

    Raises
    ------
    BadInput
        If there are too few rows, too many for memory, or zero rows where the cosine is needed.
    """
    if count > len(among):
        raise BadInput(f"{corpus.url}: can't choose {count} rows of {len(among)}; ask for fewer")
    needed = 8 * len(among) * corpus.d + 24 * count * corpus.d + 5 * BLOCK_BYTES
    if needed > memory_bytes:
        raise BadInput(
            f"{corpus.url}: choosing among {len(among):,} rows needs {needed / 2**30:.1f}GiB and "
            f"{memory_bytes / 2**30:.1f}GiB may be used; draw fewer to choose from with --sample"
        )
    points = corpus.read_index(among).astype(np.float32)
    if metric == "cosine" or not cover:
        points = _of_unit_length(points, corpus.url)
    # By a power of two, so that no square overflows or vanishes.
    largest = max(float(points.max()), -float(points.min()))
    unit = 2.0 ** (math.frexp(largest)[1] - 1)
    points /= np.float32(unit)

    def report(chosen: int) -> None:
        progress(chosen, count)

    places = (
        farthest_first(points, count, progress=report).rows
        if cover
        else most_diverse(points, count, progress=report)
    )
    drawn = np.random.default_rng(seed).choice(len(among), count, replace=False)
    measured = metric if cover else "cosine"
    retained, by_random_rows = (
        _retained(points, chosen, measured, unit) for chosen in (places, drawn)
    )
    return ChosenRows(np.sort(among[places]), retained, by_random_rows)


def _of_unit_length(points: Float32Array, where: str) -> Float32Array:
    lengths = np.sqrt(np.einsum("ij,ij->i", points, points, dtype=np.float64))[:, None]
    zero = int((lengths == 0.0).sum())
    if zero:
        have = "row is zero and has" if zero == 1 else "rows are zero and have"
        raise BadInput(f"{where}: {zero} {have} no direction; choose --cover --metric euclidean")
    scaled = np.empty_like(points)
    np.divide(points, lengths, out=scaled, casting="same_kind")
    return scaled


def _retained(points: Float32Array, chosen: npt.NDArray[Any], metric: str, unit: float) -> Retained:
    radius = unit * _radius(points, np.sort(chosen))
    own = points[chosen].astype(np.float64)
    own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), np.finfo(float).tiny)
    moments = own.T @ own
    directed = np.trace(moments)  # rows that have a direction
    return Retained(
        radius=radius**2 / 2 if metric == "cosine" else radius,
        effective_number=float(directed**2 / np.square(moments).sum()) if directed else math.nan,
    )


def _radius(points: Float32Array, chosen: npt.NDArray[Any]) -> float:
    """Return the distance within which every row has one of some rows."""
    centre = points.mean(axis=0, dtype=np.float64)
    centres = (points[chosen] - centre).astype(np.float32)
    squares = np.einsum("ij,ij->i", centres, centres)
    farthest = 0.0
    step = max(1, BLOCK_BYTES // (8 * (len(chosen) + 2 * points.shape[1])))
    for start in range(0, len(points), step):
        block = points[start : start + step].astype(np.float64)
        products = (block - centre).astype(np.float32) @ centres.T
        # Single precision finds a row that is about the nearest; how far it is, double does.
        near = points[chosen[(squares - 2.0 * products).argmin(axis=1)]]
        farthest = max(farthest, float(np.square(block - near).sum(axis=1).max()))
    return float(np.sqrt(farthest))
