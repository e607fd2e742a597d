"""Rules of tridiagonal matrices."""

import numpy as np
import pytest

from latentscale.linalg.quadrature import _rule
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
