"""The magnitude paper's own numbers: tables S.1 and S.2, and the twin property of figure S.5.

Limbeck, Andreeva, Sarkar and Rieck, Metric Space Magnitude for Evaluating the Diversity of Latent
Representations (NeurIPS 2024), appendix C.
"""

import math

import numpy as np
import pytest

from latentscale.duplicates.distinct import find_distinct
from latentscale.magnitude.function import convergence_scale, magnitude_area, magnitude_function
from latentscale.tiles.distances import as_points, distance_tile
from tests.oracles import vendi_score

# --- table S.1 -------------------------------------------------------------------------------

COUNTEREXAMPLES = {
    "two points": ([[1.0], [0.0]], 4.602, 1.867),
    "a constant feature": ([[1.0, 0.0], [0.0, 0.0]], 4.602, 1.867),
    "a duplicate": ([[1.0], [0.0], [0.0]], 4.602, 1.77),
    "a third point": ([[1.0], [0.0], [0.01]], 4.613, 1.809),
}
"""Rows, MagArea and Vendi score as printed; Manhattan distances, kernel exp(-d)."""


def table_area(rows: list[list[float]]) -> float:
    """MagArea over ten scales up to the convergence scale of the two points, as in the table."""
    cut = convergence_scale(as_points([[1.0], [0.0]], "manhattan")).value
    scales = np.linspace(0.0, cut, 10)
    function = magnitude_function(as_points(rows, "manhattan"), scales)
    return magnitude_area(scales, function.estimates).value


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_counterexamples(name: str) -> None:
    rows, area, vendi = COUNTEREXAMPLES[name]
    assert table_area(rows) == pytest.approx(area, abs=5e-4)
    points = as_points(rows, "manhattan")
    similarities = np.exp(-distance_tile(points, points))
    found = vendi_score(similarities, np.full(len(rows), 1 / len(rows)), 1)
    assert found == pytest.approx(vendi, abs=3e-3)


def test_counterexamples_by_closed_form() -> None:
    """Ten values of 2 / (1 + exp(-t)) by the trapezoidal rule, up to log 19."""
    step = math.log(19.0) / 9
    values = [2.0 / (1.0 + math.exp(-k * step)) for k in range(10)]
    expected = step * (math.fsum(values) - (values[0] + values[-1]) / 2)
    assert table_area([[1.0], [0.0]]) == pytest.approx(expected, rel=1e-10)
    assert table_area([[1.0], [0.0], [0.0]]) == table_area([[1.0], [0.0]])
    assert table_area([[1.0], [0.0], [0.01]]) > table_area([[1.0], [0.0]])


# --- table S.2 -------------------------------------------------------------------------------

POINTS = 200
CUT = 60.0
"""The paper states neither its patterns' parameters nor the cut.

A square of side 2 and Gaussians of deviation 0.14 reproduce its columns for other measures (mean
similarity 0.39, 0.39, 0.51, 0.79; Vendi score below), and with 60 as cut, where the first row's
mean magnitude is the paper's, so are those of the other rows.
"""


def clustered_pattern(rng: np.random.Generator) -> np.ndarray:
    """A Hawkes process: parents, and offspring near them, generation by generation."""
    pattern = list(rng.uniform(0, 2, size=(80, 2)))
    position = 0
    while len(pattern) < POINTS:
        for _ in range(rng.poisson(0.8)):
            child = pattern[position % len(pattern)] + rng.normal(scale=0.03, size=2)
            if ((child >= 0) & (child <= 2)).all():
                pattern.append(child)
        position += 1
    return np.array(pattern[:POINTS])


def four_patterns(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.5, 0.5], [1.5, 1.5]])
    return (
        rng.uniform(0, 2, size=(POINTS, 2)),
        clustered_pattern(rng),
        centres[np.arange(POINTS) % 2] + rng.normal(scale=0.14, size=(POINTS, 2)),
        centres[0] + rng.normal(scale=0.14, size=(POINTS, 2)),
    )


def test_four_point_patterns() -> None:
    areas, vendi, similarity = [], [], []
    scales = np.linspace(0.0, CUT, 10)
    for seed in range(8):
        sets = [as_points(pattern, "euclidean") for pattern in four_patterns(seed)]
        functions = [magnitude_function(points, scales) for points in sets]
        row = [magnitude_area(scales, f.estimates).value / CUT for f in functions]
        # Poisson, Hawkes, two Gaussians, one Gaussian, in every draw.
        assert row == sorted(row, reverse=True)
        areas.append(row)
        kernels = [np.exp(-distance_tile(points, points)) for points in sets]
        vendi.append([vendi_score(k, np.full(POINTS, 1 / POINTS), 1) for k in kernels])
        similarity.append([float(k.mean()) for k in kernels])
    np.testing.assert_allclose(np.mean(areas, axis=0), [133, 99, 69, 48], rtol=0.06)
    np.testing.assert_allclose(np.mean(vendi, axis=0), [14.6, 13.1, 5.7, 3.1], rtol=0.1)
    np.testing.assert_allclose(np.mean(similarity, axis=0), [0.39, 0.39, 0.51, 0.79], atol=0.03)


# --- figure S.5 ------------------------------------------------------------------------------


def test_twin_property() -> None:
    """Duplicates of a cluster's centre, or of outliers, change nothing at any multiplicity."""
    rng = np.random.default_rng(5)
    gaussian = rng.normal(size=(100, 2))
    centre = int(np.argmin((gaussian**2).sum(axis=1)))
    outliers = rng.normal(size=(10, 2)) + 8.0
    cases = (
        (gaussian, gaussian[[centre]]),
        (np.concatenate((gaussian, outliers)), outliers),
    )
    for rows, repeated in cases:
        points = as_points(rows, "euclidean")
        scales = np.linspace(0.0, convergence_scale(points).value, 10)
        alone = magnitude_function(points, scales)
        for multiplicity in (1, 5, 40):
            more = np.concatenate((rows, *[repeated] * multiplicity))
            twins = as_points(more[rng.permutation(len(more))], "euclidean")
            assert find_distinct(twins).duplicates == multiplicity * len(repeated)
            found = magnitude_function(twins, scales)
            np.testing.assert_allclose(
                [e.value for e in found.estimates],
                [e.value for e in alone.estimates],
                rtol=1e-9,
            )
            assert found.points == len(rows)
