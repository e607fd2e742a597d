"""Rules of tridiagonal matrices."""

import numpy as np
import pytest

from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import (
    find_null_space,
    normalised_laplacian,
    unnormalised_laplacian,
)
from latentscale.linalg.lanczos import Recurrence, run_lanczos
from latentscale.linalg.quadrature import _rule, rules_of
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import as_points
from tests import DATA


def test_a_matrix_on_which_divide_and_conquer_fails():
    diagonal, beside = np.load(DATA / "stubborn_tridiagonal.npy")
    matrix = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    rule = _rule(np.stack([matrix, np.eye(38)]))
    # Moments of the first unit vector: 1, its diagonal entry, and the squared length of its image.
    assert rule.weights[0].sum() == pytest.approx(1.0, rel=1e-12)
    assert rule.weights[0] @ rule.nodes[0] == pytest.approx(diagonal[0], rel=1e-12)
    squared = diagonal[0] ** 2 + beside[0] ** 2
    assert rule.weights[0] @ rule.nodes[0] ** 2 == pytest.approx(squared, rel=1e-12)
    assert rule.nodes[1] == pytest.approx(np.ones(38))


@pytest.mark.parametrize("laplacian", [normalised_laplacian, unnormalised_laplacian])
@pytest.mark.parametrize("deflated", [False, True])
def test_gauss_radau_holds_after_the_smallest_eigenvalue_has_converged(laplacian, deflated):
    """After enough steps the tridiagonal matrix has the node at 0 itself."""
    points = np.random.default_rng(0).normal(size=(300, 8))
    graph = symmetrise(exact_neighbours(as_points(points, "euclidean"), 10).indices)
    matrix = laplacian(graph)
    eigenvalues, vectors = np.linalg.eigh(matrix.toarray())
    start = np.random.default_rng(1).choice([-1.0, 1.0], size=(300, 4))
    if deflated:
        find_null_space(matrix).project_out(start)
    start /= np.linalg.norm(start, axis=0)
    shares = np.square(vectors.T @ start)
    whole = run_lanczos(matrix, start, np.ones(4), 120, 1e-8 * eigenvalues[-1])
    for steps in range(1, 121):
        recurrence = Recurrence(whole.diagonal[:steps], whole.off_diagonal[:steps], whole.scale)
        gauss, radau = rules_of(recurrence)
        for time in (0.1, 1.0, 10.0):
            exact = np.exp(-time * np.maximum(eigenvalues, 0.0)) @ shares
            below, above = (rule.sums(lambda x, t=time: np.exp(-t * x)) for rule in (gauss, radau))
            assert (below - exact).max() < 1e-14
            assert (exact - above).max() < 1e-14
            if steps > 60:
                assert np.abs(above - exact).max() < 1e-14
