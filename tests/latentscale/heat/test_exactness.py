"""Exact traces and IMD: rounding is all that their brackets need to hold, whatever the rows."""

import numpy as np
import pytest

from latentscale.graphs.knn import summarise, symmetrise
from latentscale.graphs.laplacian import normalised_laplacian, unnormalised_laplacian
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.trace import dense_heat_trace, normalise
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import as_points
from tests import oracles

FULL = pytest.mark.full
SEEDS = [*range(4), *(pytest.param(seed, marks=FULL) for seed in range(4, 100))]
METRICS = ["euclidean", "cosine", "manhattan"]


def tied_rows(generator):
    n = int(generator.integers(30, 300))
    kind = generator.choice(["lattice", "bits", "copies", "line", "constant column", "few rows"])
    rows = {
        "lattice": generator.integers(0, 4, (n, 3)) + 1,
        "bits": np.c_[np.ones(n), generator.integers(0, 2, (n, 9))],
        "copies": generator.normal(size=(n, 4))[generator.integers(0, 1 + n // 3, n)],
        "line": np.c_[np.arange(n), np.ones(n)],
        "constant column": np.c_[np.full(n, 1e6), generator.integers(1, 5, (n, 2))],
        "few rows": generator.normal(size=(3, 5))[generator.integers(0, 3, n)],
    }[kind]
    return np.asarray(rows, dtype=np.float32)


def graph_of(rows, metric, k=5):
    return symmetrise(exact_neighbours(as_points(rows, metric), k).indices)


def imd(first, second, form=normalised_laplacian, kind="empty"):
    heats = [dense_heat_trace(form(graph), [0.1, 1.0, 10.0]) for graph in (first, second)]
    degrees = [graph.nnz / graph.shape[0] for graph in (first, second)]
    scaled = [normalise(h, kind, degree) for h, degree in zip(heats, degrees, strict=True)]
    return imd_of_traces(*scaled, generator=np.random.default_rng(0)).estimate, heats


@pytest.mark.parametrize("seed", SEEDS)
def test_tied_rows_in_another_order_are_at_distance_zero(seed):
    generator = np.random.default_rng(seed)
    rows, metric = tied_rows(generator), METRICS[seed % 3]
    graph, permuted = (
        graph_of(rows[order], metric)
        for order in (np.arange(len(rows)), generator.permutation(len(rows)))
    )
    assert summarise(graph) == summarise(permuted)
    for form in (normalised_laplacian, unnormalised_laplacian):
        for kind in ("empty", "none", "complete"):
            estimate, heats = imd(graph, permuted, form, kind)
            assert estimate.bounds == "exact"
            assert estimate.lower == 0.0
            assert estimate.upper < 1e-10
        assert (heats[0].lower <= heats[1].upper).all()
        assert (heats[1].lower <= heats[0].upper).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bracket_of_imd_holds_its_supremum(seed):
    generator = np.random.default_rng(seed)
    graphs = [
        graph_of(generator.normal(size=(generator.integers(8, 120), d)), METRICS[seed % 3])
        for d in generator.integers(1, 9, 2)
    ]
    spectra = [
        np.maximum(np.linalg.eigvalsh(oracles.laplacian_by_loops(graph.toarray())), 0)
        for graph in graphs
    ]
    value, _ = oracles.imd_of_spectra(*spectra, digits=20)
    estimate, _ = imd(*graphs)
    assert estimate.bounds == "exact"
    assert estimate.lower <= value <= estimate.upper
    assert estimate.upper - estimate.lower < 1e-14
