r"""GeomCA: which regions of a reference a corpus covers.

Poklukar et al. (ICML 2021) compare an evaluation corpus E with a reference R through the graph on
R ∪ E that joins rows closer than :math:`\varepsilon` (definition 2.1: strictly). For every
connected component :math:`\mathcal{G}_i`,

* *consistency* (definition 2.2) is 1 when the component has as many rows of R as of E, and 0 when
  it has rows of one set only, :math:`1 - \bigl||\mathcal{G}_i^R| - |\mathcal{G}_i^E|\bigr| /
  |\mathcal{G}_i|`;
* *quality* (definition 2.3) is the share of its edges that join R and E, 0 without edges.

The same two numbers of the whole graph are the network consistency and quality (definition 2.4).
*Precision* is the share of the rows of E that lie in components with consistency above
:math:`\eta_c` and quality above :math:`\eta_q`. *Recall* is that share of the rows of R (definition
2.5).

Before that both sets are thinned, each by itself, so that no two rows are within :math:`\delta`
(definition 3.1, :mod:`latentscale.duplicates.sparsification`): a row is kept if no earlier kept
row is within :math:`\delta`. The outcome depends on the order of the rows. With :math:`\delta =
\varepsilon` no edge can join two rows of one set, so quality is 1 wherever there are edges.

:math:`\varepsilon` is a percentile of the distances between two disjoint random samples of R
(section 3.1).

Every comparison has the outcome of exact arithmetic with the float64 numbers :math:`\varepsilon`
and :math:`\delta`, at the cost of single precision (:class:`latentscale.tiles.distances.Balls`). So
the results are exact and independent of the tiling. The graph is never stored
(:mod:`latentscale.geomca.epsilon_graph`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentscale.array_types import BoolArray, Int64Array
from latentscale.geomca.epsilon_graph import Components, balance, share_between

BLOCK_ROWS = 1024
"""Rows of a block of distances; a tile takes 8 MiB."""


@dataclass(frozen=True)
class GeomcaScores:
    """Global scores, all from 0 to 1.

    Attributes
    ----------
    precision, recall : float
        Shares of the sparse points of the corpus, and of the reference, that lie in components
        above the thresholds (definition 2.5).
    consistency, quality : float
        Of the whole graph (definition 2.4).
    precision_rows, recall_rows : float
        Like precision and recall, but each sparse point counts as all the rows that it represents.
    """

    precision: float
    recall: float
    consistency: float
    quality: float
    precision_rows: float
    recall_rows: float


def geomca_scores(
    components: Components,
    *,
    eta_c: float = 0.0,
    eta_q: float = 0.0,
    reference_rows: Int64Array,
    corpus_rows: Int64Array,
) -> GeomcaScores:
    """Compute the global scores of an epsilon-graph (definitions 2.4 and 2.5).

    Parameters
    ----------
    components : Components
        The components of the sparse reference and corpus.
    eta_c, eta_q : float
        Thresholds in [0, 1]. A component counts when its consistency and its quality are both
        strictly above theirs.
    reference_rows, corpus_rows : ndarray of int
        Rows that each sparse point represents (``Sparsification.rows``).

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


def _check_rows(name: str, rows: Int64Array, points: BoolArray) -> None:
    if rows.shape != points.shape or (rows < 1).any():
        raise ValueError(
            f"{name} must hold a count of at least 1 for each of the {len(points)} sparse points"
        )


def _share(part: np.integer[Any], whole: np.integer[Any] | int) -> float:
    return int(part) / int(whole)
