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
(definition 3.1, :mod:`latentscale.sparsification`): a row is kept if no earlier kept row is within
:math:`\delta`. The outcome depends on the order of the rows. With :math:`\delta = \varepsilon` no
edge can join two rows of one set, so quality is 1 wherever there are edges.

:math:`\varepsilon` is a percentile of the distances between two disjoint random samples of R
(section 3.1).

Every decision is that of a float64 distance, summed coordinate by coordinate, at the price of
single precision (:class:`latentscale.distances.Balls`), so the results are exact and independent
of the tiling. The graph is never stored (:mod:`latentscale.epsilon_graph`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from latentscale.announced import array_measure
from latentscale.distances import Float64Array, Points, distance_tile, row_blocks
from latentscale.epsilon_graph import Components, balance, share_between
from latentscale.estimate import Estimate

Int64Array = NDArray[np.int64]

SAMPLE_ROWS = 2000
"""Rows a side behind the estimate of epsilon: four million distances."""

BLOCK_ROWS = 1024
"""Rows of a block of distances; a tile takes 8 MiB."""

JACKKNIFE_GROUPS = 20
"""Groups that are left out of the samples in turn."""

EPSILON_METHOD = "percentile of sampled distances"


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


def draw_samples(
    n: int, generator: np.random.Generator, sample_rows: int = SAMPLE_ROWS
) -> tuple[Int64Array, Int64Array]:
    """Draw two disjoint random samples of a reference.

    Parameters
    ----------
    n : int
        Rows of the reference, at least two.
    generator : numpy.random.Generator
        Draws the samples.
    sample_rows : int
        Rows of each sample; half of the reference where it has fewer than twice as many.

    Returns
    -------
    tuple of two ndarrays of int64, shape (k,)
        Row numbers, in no order.

    Raises
    ------
    ValueError
        With fewer than two rows or no sample rows.
    """
    if n < 2:
        raise ValueError("epsilon needs a reference of at least 2 rows; give it as a number")
    if sample_rows < 1:
        raise ValueError(f"sample_rows must be at least 1, got {sample_rows}")
    k = min(n // 2, sample_rows)
    drawn = generator.choice(n, 2 * k, replace=False)
    return drawn[:k], drawn[k:]


def estimate_epsilon(left: Points, right: Points, percentile: float) -> Estimate:
    """Percentile of the distances between two disjoint random samples of the reference.

    Parameters
    ----------
    left, right : Points
        Two samples of equal size (:func:`draw_samples`).
    percentile : float
        p of section 3.1, in [0, 100]; the paper takes 1 to 10.

    Returns
    -------
    Estimate
        Positive, in the units of the metric. The interval is that of a delete-one-group jackknife
        with Student's t: samples like these, drawn anew, give another percentile. From a single
        pair of rows there is no interval, and the bounds are an ``estimate``.

    Raises
    ------
    ValueError
        On samples of different sizes, a percentile outside [0, 100], or when the percentile is 0.

    Notes
    -----
    Takes ``24 k**2`` bytes for ``k`` rows a sample, and one tile.
    """
    k = len(left)
    if len(right) != k:
        raise ValueError(f"the samples differ in size: {k} and {len(right)} rows")
    if not 0 <= percentile <= 100:
        raise ValueError(f"the percentile must be in [0, 100], got {percentile}")
    distances = np.empty((k, k))
    for rows in row_blocks(k, BLOCK_ROWS):
        for columns in row_blocks(k, BLOCK_ROWS):
            distances[rows, columns] = distance_tile(left.take(rows), right.take(columns))
    epsilon = float(np.percentile(distances, percentile))
    if epsilon == 0:
        raise ValueError(
            f"percentile {percentile} of the reference's distances is 0 (duplicate rows); "
            "raise the percentile or give epsilon as a number"
        )
    if k < 2:
        return Estimate(epsilon, epsilon, epsilon, "estimate", EPSILON_METHOD)
    error, groups = _jackknife(distances, percentile)
    half = float(student_t.ppf(0.975, groups - 1)) * error
    lower = max(epsilon - half, 0.0)
    return Estimate(epsilon, lower, epsilon + half, "interval95", EPSILON_METHOD, error)


def _jackknife(distances: Float64Array, percentile: float) -> tuple[float, int]:
    """Find a percentile's standard error: pairs of rows are left out group by group."""
    # The i-th rows of both samples go together: pairs of rows are independent of one another.
    groups = np.array_split(np.arange(len(distances)), min(len(distances), JACKKNIFE_GROUPS))
    without = np.empty(len(groups))
    for place, group in enumerate(groups):
        kept = np.delete(np.delete(distances, group, axis=0), group, axis=1)
        without[place] = np.percentile(kept, percentile, overwrite_input=True)
    spread = float(((without - without.mean()) ** 2).sum())
    return math.sqrt(spread * (len(groups) - 1) / len(groups)), len(groups)


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
        Rows that each sparse point stands for (``Sparsification.rows``).

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
        consistency=float(balance(components.n_reference.sum(), components.n_corpus.sum())),
        quality=float(share_between(components.edges_between.sum(), components.edges.sum())),
        precision_rows=_share(corpus_rows[in_good_corpus].sum(), corpus_rows.sum()),
        recall_rows=_share(reference_rows[in_good_reference].sum(), reference_rows.sum()),
    )


def _check_rows(name: str, rows: Int64Array, points: NDArray[np.bool_]) -> None:
    if rows.shape != points.shape or (rows < 1).any():
        raise ValueError(
            f"{name} must hold a count of at least 1 for each of the {len(points)} sparse points"
        )


def _share(part: np.integer[Any], whole: np.integer[Any] | int) -> float:
    return int(part) / int(whole)


class _CallableModule(ModuleType):
    """The measure of arrays has the name of this module: ``latentscale.geomca(R, E)``."""

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        return array_measure("geomca")(*arrays, **options)


sys.modules[__name__].__class__ = _CallableModule
