"""Kernels that are functions: scored like the ones that have names, and refused if they aren't."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from latentscale.tiles.distances import as_points
from latentscale.vendi.kernels import KernelFunction
from latentscale.vendi.lanczos import kernel_scores
from latentscale.vendi.scores import kernel_spectrum, nystrom_spectrum, vendi_bracket, vendi_score
from tests import oracles

ORDERS = (0.5, 1.0, 2.0, math.inf)
Rows = NDArray[np.float64]


def gaussian(a: Rows, b: Rows) -> Rows:
    return np.exp(-cdist(a, b, "sqeuclidean") / 8.0)


def cosine(a: Rows, b: Rows) -> Rows:
    return 1.0 - cdist(a, b, "cosine")


@pytest.fixture(scope="module")
def rows() -> Rows:
    generator = np.random.default_rng(0)
    return generator.normal(size=(700, 6)) + 0.5


def dense(rows: Rows, kernel: KernelFunction, weights: Rows | None = None) -> list[float]:
    masses = np.ones(len(rows)) if weights is None else weights
    roots = np.sqrt(masses / masses.sum())
    eigenvalues = np.linalg.eigvalsh(roots[:, None] * kernel(rows, rows) * roots)
    return [oracles.hill_number(eigenvalues[eigenvalues > 1e-13], order) for order in ORDERS]


@pytest.mark.parametrize("kernel", [gaussian, cosine])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_eigenvalue_of_a_function(kernel: KernelFunction, weighted: bool, rows: Rows) -> None:
    weights = np.random.default_rng(1).uniform(size=len(rows)) if weighted else None
    spectrum = kernel_spectrum(as_points(rows, "euclidean"), kernel, None, weights)
    found = [vendi_score(spectrum, order).value for order in ORDERS]
    np.testing.assert_allclose(found, dense(rows, kernel, weights), rtol=1e-9)


def test_a_function_is_given_the_rows_as_they_are(rows: Rows) -> None:
    seen: list[float] = []

    def watching(a: Rows, b: Rows) -> Rows:
        seen.append(float(min(a.min(), b.min())))
        return gaussian(a, b)

    far = rows - rows.min() + 100.0
    kernel_spectrum(as_points(far, "euclidean"), watching, None)
    kernel_scores(as_points(far, "euclidean"), watching, None, ORDERS, np.random.default_rng(0))
    assert min(seen) >= 100.0


@pytest.mark.parametrize("kernel", [gaussian, cosine])
def test_brackets_of_a_function_hold(kernel: KernelFunction, rows: Rows) -> None:
    # Cosines are negative, too: there no positive vector bounds the largest eigenvalue.
    truth = dict(zip(ORDERS, dense(rows, kernel), strict=True))
    points = as_points(rows, "euclidean")
    inside = dict.fromkeys(ORDERS, 0)
    for seed in range(10):
        found = kernel_scores(points, kernel, None, ORDERS, np.random.default_rng(seed))
        for order, value in truth.items():
            held = found[order].lower * (1 - 1e-10) <= value <= found[order].upper * (1 + 1e-10)
            inside[order] += held
            assert held or found[order].bounds == "interval95"
            assert found[order].upper - found[order].lower < 0.1 * value, order
        assert found[math.inf].bounds == "certified"
    assert min(inside.values()) >= 7
    nystrom = nystrom_spectrum(points, kernel, None, 60, np.random.default_rng(2))
    for order, value in truth.items():
        bracket = vendi_bracket(nystrom, order)
        assert bracket.lower * (1 - 1e-10) <= value <= bracket.upper * (1 + 1e-10)


def test_a_function_gives_what_its_name_gives(rows: Rows) -> None:
    points = as_points(rows, "euclidean")
    named = kernel_scores(points, "rbf", 2.0, ORDERS, np.random.default_rng(3))
    given = kernel_scores(points, gaussian, None, ORDERS, np.random.default_rng(3))
    for order in ORDERS:
        # Rounding grows in the recurrence, so only the leading digits are the same.
        assert given[order].value == pytest.approx(named[order].value, rel=1e-3)
        assert given[order].upper == pytest.approx(named[order].upper, rel=2e-2)


def alike_or_opposed(a: Rows, b: Rows) -> Rows:
    """Not positive semidefinite: of three different rows each is opposed to the others."""
    return np.where(cdist(a, b) == 0, 1.0, -0.5)


def late(a: Rows, b: Rows) -> Rows:
    """As above, but among rows that the first ones don't tell of."""
    marked = np.outer(a[:, 0] > 50, b[:, 0] > 50)
    return np.where(cdist(a, b) == 0, 1.0, np.where(marked, -0.5, 0.0))


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (lambda a, b: np.exp(-cdist(a, b) * (1 + a[:, :1] ** 2)), "isn't symmetric"),
        (lambda a, b: 0.5 * gaussian(a, b), "isn't 1 between a row and itself"),
        (lambda a, b: 3.0 * gaussian(a, b), "similarities from .* numbers from -1 to 1"),
        (lambda a, b: gaussian(a, b) * np.nan, "similarities from nan to nan"),
        (lambda a, b: gaussian(a, b)[0], r"gave shape \(64,\) for 64 and 64 rows"),
        (alike_or_opposed, "alike_or_opposed isn't positive semidefinite: 64 rows have"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel: KernelFunction, problem: str, rows: Rows) -> None:
    with pytest.raises(ValueError, match=problem):
        kernel_spectrum(as_points(rows, "euclidean"), kernel, None)


def test_what_turns_out_to_be_no_kernel_is_refused(rows: Rows) -> None:
    rows = rows.copy()
    rows[300:, 0] += 100
    points = as_points(rows, "euclidean")
    with pytest.raises(ValueError, match="late isn't positive semidefinite: divided by"):
        kernel_spectrum(points, late, None)
    with pytest.raises(ValueError, match="isn't positive semidefinite: divided by"):
        kernel_scores(points, late, None, ORDERS, np.random.default_rng(0))


def test_a_function_has_no_bandwidth_and_takes_rows_as_they_are(rows: Rows) -> None:
    with pytest.raises(ValueError, match=":gaussian takes no bandwidth, got 2"):
        kernel_spectrum(as_points(rows, "euclidean"), gaussian, 2.0)
    with pytest.raises(ValueError, match="needs rows as they are, got points of 'cosine'"):
        kernel_spectrum(as_points(rows, "cosine"), gaussian, None)
