"""Eigenvalues in place: NumPy's, and other threads go on meanwhile."""

import threading
import time

import numpy as np
import pytest

from latentscale.vendi.eigenvalues import symmetric_eigenvalues


def symmetric(n: int) -> np.ndarray:
    matrix = np.random.default_rng(n).normal(size=(n, n))
    return np.asfortranarray(matrix + matrix.T)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 257])
def test_the_eigenvalues_are_numpys(n: int) -> None:
    matrix = symmetric(n)
    expected = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(symmetric_eigenvalues(matrix.copy("F")), expected, atol=1e-11 * n)
    lower = np.asfortranarray(np.tril(matrix))
    np.testing.assert_allclose(symmetric_eigenvalues(lower), expected, atol=1e-11 * n)


def test_other_threads_go_on() -> None:
    matrix = symmetric(1200)
    thread = threading.Thread(target=symmetric_eigenvalues, args=(matrix,))
    steps = 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)
        steps += 1
    assert steps > 3


@pytest.mark.parametrize(
    "matrix",
    [
        np.ones((2, 3), order="F"),
        np.ones(4),
        np.ones((3, 3), dtype="f4", order="F"),
        np.ones((3, 3)),
        np.broadcast_to(np.ones(1), (3, 3)),
    ],
)
def test_anything_else_is_refused(matrix: np.ndarray) -> None:
    with pytest.raises(ValueError, match="square, column-major"):
        symmetric_eigenvalues(matrix)
