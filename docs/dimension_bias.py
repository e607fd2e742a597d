"""Print the table of docs/measures/intrinsic_dimension.md: what normal rows give.

Of independent normal coordinates the dimension is known, and estimates from neighbours are below
it. Each number is that of 1000 random rows among n, averaged over three corpora. Takes ten
seconds.
"""

from __future__ import annotations

import sys

import numpy as np

from latentscale.intrinsic_dimension.estimators import neighbour_distances
from latentscale.intrinsic_dimension.scores import score_dimensions
from latentscale.neighbours.exact import nearest
from latentscale.tiles.distances import as_points

DIMENSIONS = (5, 10, 20, 50, 100)
SIZES = (1000, 10_000, 100_000)
ASKED, CORPORA, NEIGHBOURS = 1000, 3, 20


def measure(dimension: int, n: int, seed: int) -> float:
    """Return the dimension by maximum likelihood of normal rows."""
    rows = np.random.default_rng([dimension, n, seed]).normal(size=(n, dimension))
    points, ids = as_points(rows, "euclidean"), np.arange(n)
    asked = ids[:ASKED]
    found = nearest(points.take(asked), points, 2 * NEIGHBOURS, query_ids=asked, candidate_ids=ids)
    lists = neighbour_distances(asked, found.distances, found.indices, "euclidean")
    own = score_dimensions(lists, n, dimension, [NEIGHBOURS], 0).maximum_likelihood[0]
    if own.estimate is None:
        raise ValueError(f"no dimension of {n} rows of {dimension} coordinates")
    return own.estimate.value


def main() -> None:
    """Print the rows of the table."""
    for dimension in DIMENSIONS:
        means = (np.mean([measure(dimension, n, seed) for seed in range(CORPORA)]) for n in SIZES)
        cells = " | ".join(f"{mean:.1f}" for mean in means)
        sys.stdout.write(f"| {dimension} | {cells} |\n")


if __name__ == "__main__":
    main()
