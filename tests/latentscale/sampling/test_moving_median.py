"""How a median distance moves between samples, and where it jumps."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist, squareform

from latentscale.sampling.moving_median import JumpingMedian, density_at_median


def density(rows):
    """The density at the median of all distances."""
    distances = pdist(rows)
    median = np.median(distances)
    nearer = ((squareform(distances) < median).sum(axis=1) - 1) / (len(rows) - 1)
    with np.errstate(divide="ignore"):
        return density_at_median(np.log(distances / median), nearer, len(rows))


def two_groups(seed, n, apart):
    generator = np.random.default_rng([1, seed])
    rows = generator.normal(size=(n, 8))
    rows[:, 0] += apart * (generator.random(n) < 0.5)
    return rows


@pytest.mark.parametrize("d", [1, 3, 30])
def test_of_normal_rows_it_is_that_of_a_chi_distribution(d: int) -> None:
    found = [density(np.random.default_rng([d, seed]).normal(size=(400, d))) for seed in range(20)]
    median = stats.chi.median(d)
    assert np.mean(found) == pytest.approx(median * stats.chi.pdf(median, d), rel=0.05)


def test_distances_may_stand_for_several() -> None:
    rows = np.random.default_rng(2).normal(size=(60, 3))
    logarithms = np.log(pdist(rows) / np.median(pdist(rows)))
    counts = np.random.default_rng(3).integers(1, 4, len(logarithms))
    nearer = np.linspace(0.2, 0.8, 60)
    weighted = density_at_median(logarithms, nearer, 60, counts.astype(float))
    assert weighted == pytest.approx(
        density_at_median(np.repeat(logarithms, counts), nearer, 60), rel=1e-12
    )


@pytest.mark.parametrize("n", [100, 1000])
def test_between_two_equal_groups_it_jumps(n: int) -> None:
    moves = []
    for seed in range(20):
        try:
            density(two_groups(seed, n, 15.0))
        except JumpingMedian as jumping:
            moves.append(jumping.move)
    assert len(moves) >= 18
    # It lies between distances within groups and those between them.
    assert min(moves) > 0.1
    assert max(moves) < math.log(20.0 / 2.0)


def test_between_groups_of_other_sizes_or_that_overlap_it_moves() -> None:
    for seed in range(8):
        unequal = two_groups(seed, 1000, 15.0)
        unequal[:500] = np.random.default_rng(seed).normal(size=(500, 8))
        assert density(unequal) > 0.0
        assert density(two_groups(seed, 1000, 4.0)) > 0.0


@pytest.mark.parametrize(("d", "values"), [(2, 5), (12, 4)])
def test_whole_numbers_are_at_few_distances(d: int, values: int) -> None:
    rows = np.random.default_rng(4).integers(0, values, size=(200, d)).astype(float)
    with pytest.raises(JumpingMedian, match="distances are in two groups, or have few"):
        density(rows)


def test_where_nearly_all_distances_are_equal_the_median_stays() -> None:
    rows = np.eye(8)[np.random.default_rng(5).integers(0, 8, 200)]
    assert density(rows) == math.inf
