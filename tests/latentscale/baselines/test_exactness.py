"""Brackets of the baselines hold the rational value of the stored rows."""

from dataclasses import astuple
from fractions import Fraction

import numpy as np
import pytest

from latentscale.baselines.kernel_distance import kernel_distance
from latentscale.baselines.manifold_overlap import exact_overlap
from latentscale.baselines.moments import (
    geometric_mean_deviation,
    internal_diversity,
    mean_similarity,
)
from latentscale.linalg.moments import row_moments
from latentscale.tiles.distances import as_points
from tests import oracles

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 100))]


def rational(rows):
    return [[Fraction(float(value)) for value in row] for row in rows]


def rational_kernel_distance(x, y):
    x, y = rational(x), rational(y)

    def mean(a, b, same):
        total = sum(
            (sum(p * q for p, q in zip(r, s, strict=True)) / len(r) + 1) ** 3
            for i, r in enumerate(a)
            for j, s in enumerate(b)
            if not (same and i == j)
        )
        return total / (len(a) * (len(b) - same))

    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


def rational_overlap(e, r, k):
    e, r = rational(e), rational(r)

    def squared(a, b):
        return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))

    def radii(rows):
        return [
            sorted(squared(a, b) for j, b in enumerate(rows) if j != i)[k - 1]
            for i, a in enumerate(rows)
        ]

    def memberships(rows, limits):
        return [[squared(a, b) <= own for b, own in zip(r, limits, strict=True)] for a in rows]

    balls = radii(r)
    median = sorted(balls)[(len(r) - 1) // 2]
    near = [min(ball, median) for ball in balls]
    inside_r = memberships(e, balls)
    inside_e = [[squared(a, b) <= radius for a, radius in zip(e, radii(e), strict=True)] for b in r]
    return (
        np.mean([any(row) for row in inside_r]),
        np.mean([any(row) for row in inside_e]),
        np.sum(inside_r) / (k * len(e)),
        np.mean(np.any(inside_r, axis=0)),
        *oracles.clipped_overlap(inside_r, memberships(e, near), memberships(r, near), k),
    )


def nasty_rows(generator, n, d):
    rows = generator.normal(
        generator.choice([0.0, 1.0, 1e3, 1e6]), generator.choice([0.1, 1.0, 1e3]), size=(n, d)
    )
    if generator.integers(2):
        rows = np.round(rows)
    if generator.integers(2):
        rows[generator.integers(n)] *= 10.0 ** generator.uniform(1, 12)
    return rows


@pytest.mark.parametrize("seed", SEEDS)
def test_the_kernel_distance(seed):
    generator = np.random.default_rng(seed)
    d = int(generator.integers(1, 9))
    x, y = nasty_rows(generator, 20, d), nasty_rows(generator, 15, d)
    if generator.integers(2):
        y = x[:15] + generator.normal(scale=1e-3, size=(15, d))
    found, truth = kernel_distance(x, y), rational_kernel_distance(x, y)
    assert abs(Fraction(found.value) - truth) <= Fraction(found.rounding)


def test_the_kernel_distance_far_from_the_origin_is_sharp():
    generator = np.random.default_rng(0)
    x, y = (generator.normal(1000, 0.1, size=(40, 8)) for _ in range(2))
    found, truth = kernel_distance(x, y), rational_kernel_distance(x, y)
    assert found.value == pytest.approx(float(truth), rel=1e-11)
    assert found.rounding < 1e-9 * abs(found.value)


def test_the_kernel_distance_beside_a_far_row_is_sharp():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 20, 4))
    y[7] = 1e25
    found, truth = kernel_distance(x, y), rational_kernel_distance(x, y)
    assert abs(Fraction(found.value) - truth) <= Fraction(found.rounding)
    assert found.rounding < 1e-9 * abs(found.value)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_overlap_of_lattices_and_far_rows(seed):
    generator = np.random.default_rng(seed)
    d, k = int(generator.integers(1, 5)), int(generator.integers(1, 5))
    # Ties are real, and float64 sums are rounded unless the step is 1.
    step = float(generator.choice([1.0, 0.1, 1 / 3]))
    e, r = (step * generator.integers(0, 4, size=(16, d)).astype(float) for _ in range(2))
    if generator.integers(2):
        far = 10.0 ** generator.uniform(5, 35)
        e[3], r[5] = far, -far
    e, r = e.astype(np.float32), r.astype(np.float32)
    found = exact_overlap(as_points(e, "euclidean"), as_points(r, "euclidean"), k)
    assert astuple(found) == pytest.approx(rational_overlap(e, r, k), rel=1e-14)


def test_a_far_row_widens_no_ball():
    generator = np.random.default_rng(1)
    e, r = generator.normal(size=(2, 25, 3))
    plain = exact_overlap(as_points(e, "euclidean"), as_points(r, "euclidean"), 3)
    for distance in (1e12, 1e16, 1e30):  # to float64 it is equally far from all rows
        e[7] = distance
        far = exact_overlap(as_points(e, "euclidean"), as_points(r, "euclidean"), 3)
        assert far.precision <= plain.precision
        assert astuple(far) == pytest.approx(rational_overlap(e, r, 3), rel=1e-14)


@pytest.mark.parametrize("seed", SEEDS)
def test_scores_of_moments(seed):
    generator = np.random.default_rng(seed)
    d = int(generator.integers(1, 6))
    rows = nasty_rows(generator, 30, d) + 1e-3
    n, exact = len(rows), rational(rows)
    moments = row_moments(rows)
    columns = list(zip(*exact, strict=True))
    variances = [sum((value - sum(column) / n) ** 2 for value in column) / n for column in columns]
    truth = 0.0
    if all(variances):
        logarithms = [np.log(np.longdouble(v.numerator) / v.denominator) for v in variances]
        truth = float(np.exp(np.mean(logarithms) / 2))
    found = geometric_mean_deviation(moments)
    assert found.lower * (1 - 1e-14) <= truth <= found.upper * (1 + 1e-14)
    extended = rows.astype(np.longdouble)
    unit = extended / np.sqrt((extended**2).sum(axis=1, keepdims=True))
    total = (unit.sum(axis=0) ** 2).sum()
    similarity, diversity = mean_similarity(moments), internal_diversity(moments)
    assert similarity.lower <= float((total - n) / (n * (n - 1))) <= similarity.upper
    assert diversity.lower <= max(0.0, float(1 - total / n**2)) <= diversity.upper
    assert similarity.upper - similarity.lower < 1e-12


def test_two_orthogonal_rows():
    moments = row_moments(np.eye(2))
    assert mean_similarity(moments).value == pytest.approx(0.0, abs=1e-15)
    opposite = mean_similarity(row_moments(np.vstack([np.eye(3), -np.eye(3)])))
    assert Fraction(opposite.lower) <= Fraction(-1, 5) <= Fraction(opposite.upper)
    assert internal_diversity(moments).value == pytest.approx(0.5)
    with pytest.raises(ValueError, match="only one row"):
        mean_similarity(row_moments(np.ones((1, 2))))


def test_a_constant_column_has_no_deviation():
    rows = np.random.default_rng(3).normal(size=(500, 3))
    rows[:, 1] = 0.1
    assert geometric_mean_deviation(row_moments(rows)).upper == 0.0
