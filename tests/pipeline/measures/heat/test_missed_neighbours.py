"""Heat traces of graphs that lack neighbours, against those of the exact graphs."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import csr_array

from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import normalised_laplacian, unnormalised_laplacian
from latentscale.neighbours.certificate import recall_certificate
from latentscale.neighbours.exact import Neighbours, exact_neighbours
from latentscale.neighbours.search import search_rows
from latentscale.tiles.distances import as_points
from latentscale_pipeline.measures.heat.tasks import trace_error
from tests import oracles

TIMES = np.geomspace(0.1, 10, 7)
N = 900


def rows_of(kind: str, generator: np.random.Generator) -> np.ndarray:
    return {
        "line": np.c_[generator.uniform(size=N), 1e-3 * generator.normal(size=N)],
        "cube": generator.uniform(size=(N, 3)),
        "cloud": generator.normal(size=(N, 10)),
    }[kind]


@pytest.mark.parametrize("laplacian", ["normalized", "unnormalized"])
@pytest.mark.parametrize("kind", ["line", "cube", "cloud"])
def test_the_allowance_covers_what_leaves_miss(kind: str, laplacian: str) -> None:
    form: Callable[[csr_array], csr_array] = {
        "normalized": normalised_laplacian,
        "unnormalized": unnormalised_laplacian,
    }[laplacian]

    def trace(lists: Neighbours) -> np.ndarray:
        return oracles.dense_trace(form(symmetrise(lists.indices)).toarray(), TIMES)

    for seed in range(2):
        generator = np.random.default_rng(seed)
        points = as_points(rows_of(kind, generator), "euclidean").keyed()
        exact = exact_neighbours(points, 5)
        truth = trace(exact)
        for overlap in (1, 2):
            found = search_rows(
                points, 5, overlap=overlap, generator=generator, rounds=0, leaf_rows=100
            )
            recall = recall_certificate(found.distances, exact.distances)
            allowed = (1.0 - recall.lower) * trace_error(TIMES, laplacian)  # type: ignore[arg-type]
            assert (np.abs(trace(found) - truth) <= allowed).all()


def test_the_allowance_grows_with_time() -> None:
    allowed = trace_error(np.array([0.1, 1.0, 10.0, 1e4]), "normalized")
    np.testing.assert_allclose(allowed, [7e-4, 0.011, 0.3, 1.0])
