"""Modes by their definition, by a planted kind of rows, and their p-values."""

import numpy as np
import pytest
from scipy import stats

from latentscale.modes.difference import (
    DENSE,
    GroupMoments,
    divide_groups,
    expect_mode,
    leading_modes,
    mode_errors,
    sum_group_moments,
)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def moments_of(x, y, groups, generator):
    matrices, sizes = [], []
    for rows in (x, y):
        own = np.zeros((groups, rows.shape[1], rows.shape[1])), np.zeros(groups, np.int64)
        group = generator.permutation(len(rows)) % groups
        sum_group_moments(unit(rows), group, *own)
        matrices.append(own[0])
        sizes.append(own[1])
    return GroupMoments(np.concatenate(matrices), np.concatenate(sizes), groups)


@pytest.mark.parametrize("seed", range(50))
def test_modes_are_eigenvectors_of_the_difference(seed):
    generator = np.random.default_rng([17, seed])
    x, y = generator.normal(size=(90, 5)), generator.normal(size=(70, 5)) * np.arange(1, 6)
    novel, missing = leading_modes(moments_of(x, y, 4, generator), 5)
    difference = unit(x).T @ unit(x) / 90 - unit(y).T @ unit(y) / 70
    values = np.linalg.eigvalsh(difference)
    np.testing.assert_allclose(novel.values, values[values > 0][::-1], atol=1e-14)
    np.testing.assert_allclose(missing.values, -values[values < 0], atol=1e-14)
    for modes, sign in ((novel, 1), (missing, -1)):
        np.testing.assert_allclose(
            difference @ modes.directions, sign * modes.values * modes.directions, atol=1e-14
        )
        for place, rows in enumerate((x, y)):
            shares = ((unit(rows) @ modes.directions) ** 2).mean(axis=0)
            np.testing.assert_allclose(modes.shares[:, place], shares, atol=1e-14)
        np.testing.assert_allclose(modes.shares @ [sign, -sign], modes.values, atol=1e-14)


def test_a_planted_kind_is_the_first_mode():
    """Orthogonal kinds of which one is twice as frequent: its direction, and its difference."""
    generator = np.random.default_rng(1)

    def draw(shares):
        kinds = generator.choice(len(shares), size=4000, p=shares)
        return np.eye(8)[kinds] + 0.02 * generator.normal(size=(4000, 8)), kinds

    x, kinds = draw([0.2, *[0.8 / 7] * 7])
    y, _ = draw([0.1, *[0.9 / 7] * 7])
    novel, missing = leading_modes(moments_of(x, y, 5, generator), 2)
    assert novel.values[0] == pytest.approx(0.1, abs=0.02)
    assert abs(novel.directions[0, 0]) > 0.99
    top = np.argsort(-((unit(x) @ novel.directions[:, 0]) ** 2))[:100]
    assert (kinds[top] == 0).mean() > 0.98
    assert missing.values[0] < 0.04


@pytest.mark.parametrize("dimension", [6, DENSE + 20])
def test_divisions_by_brute_force(dimension):
    generator = np.random.default_rng(2)
    x, y = generator.normal(size=(60, dimension)), generator.normal(size=(48, dimension))
    moments = moments_of(x, y, 3, generator)
    largest, smallest = divide_groups(moments, generator, divisions=30)
    from itertools import combinations

    everything = []
    for side in combinations(range(6), 3):
        rest = [g for g in range(6) if g not in side]
        one, two = (
            moments.matrices[list(part)].sum(axis=0) / moments.sizes[list(part)].sum()
            for part in (side, rest)
        )
        values = np.linalg.eigvalsh(one - two)
        everything.append((values[-1], -values[0]))
    for pair in zip(largest, smallest, strict=True):
        assert min(np.abs(np.subtract(pair, other)).max() for other in everything) < 1e-7


def test_p_is_uniform_if_the_source_is_the_same():
    generator = np.random.default_rng(3)
    found = []
    for _ in range(150):
        rows = generator.normal(loc=(2, 1, 0, 0, 0, 0), size=(200, 6))
        moments = moments_of(rows[:120], rows[120:], 8, generator)
        divided, _ = divide_groups(moments, generator, divisions=99)
        novel, _ = leading_modes(moments, 1)
        found.append(expect_mode(float(novel.values[0]), divided).p)
    assert stats.kstest(found, "uniform").pvalue > 0.01


@pytest.mark.parametrize("dimension", [3, DENSE + 10])
def test_rows_without_any_difference(dimension):
    """A zero matrix has no start for an iteration, and rounding is no evidence."""
    rows = np.zeros((40, dimension))
    rows[:, 0] = 1.0
    generator = np.random.default_rng(4)
    moments = moments_of(rows, rows[:30], 3, generator)
    novel, missing = leading_modes(moments, 3)
    assert len(novel.values) == len(missing.values) == 0
    divided, _ = divide_groups(moments, generator, divisions=5)
    assert (divided < 1e-12).all()
    assert expect_mode(4e-16, divided).p == 1.0


def test_shares_stay_between_0_and_1():
    generator = np.random.default_rng(5)
    for _ in range(20):
        x, y = np.zeros((50, 16)), np.zeros((50, 16))
        x[:, :4], y[:, 8:12] = generator.normal(size=(2, 50, 4))
        for modes in leading_modes(moments_of(x, y, 2, generator), 8):
            assert (modes.shares >= 0).all()
            assert (modes.shares <= 1).all()
            assert (modes.values > 1e-12).all()


def test_where_it_is_expected():
    divided = np.array([1.0, 2.0, 3.0, 4.0])
    expected = expect_mode(3.0, divided)
    assert (expected.centre, expected.lower, expected.p) == (2.5, 1.0, 3 / 5)
    assert expect_mode(9.0, divided).p == 1 / 5
    assert expected.smallest_found(0.05) > expected.smallest_found(0.5) > 0


def test_one_group_is_refused():
    with pytest.raises(ValueError, match="1 and 2 groups; both need at least two"):
        divide_groups(
            GroupMoments(np.zeros((3, 2, 2)), np.ones(3, int), 1), np.random.default_rng(0)
        )


@pytest.mark.parametrize(
    ("rows", "shares", "least", "most"),
    [
        ((400, 400), (0.2, 0.05), 0.93, 0.99),
        ((400, 1200), (0.15, 0.02), 0.93, 0.99),
        ((400, 400), (0.0, 0.0), 0.99, 1.0),
    ],
)
def test_sampling_errors_cover_the_mean_over_samples(rows, shares, least, most):
    """Of the first mode, planted or of chance, over 400 pairs of samples."""
    found = []
    for seed in range(400):
        generator = np.random.default_rng([21, seed])
        pair = []
        for count, share in zip(rows, shares, strict=True):
            drawn = generator.normal(size=(count, 12))
            drawn[generator.random(count) < share, 0] += 10
            pair.append(drawn)
        moments = moments_of(*pair, 20, generator)
        [novel, _] = leading_modes(moments, 1)
        [error] = mode_errors(moments, novel.directions, rows)
        found.append((novel.values[0], error))
    values, errors = np.array(found).T
    assert least <= (np.abs(values - values.mean()) <= 1.96 * errors).mean() <= most


def test_sampling_errors_by_brute_force():
    """Every group left out in turn, and groups that hold a third of the second corpus."""
    generator = np.random.default_rng(22)
    x, y = generator.normal(size=(60, 4)), generator.normal(size=(72, 4)) * np.arange(1, 5)
    moments = moments_of(x, y, 6, generator)
    novel, _ = leading_modes(moments, 2)
    variance = np.zeros(2)
    for side, scale in ((range(6), 1.0), (range(6, 12), 3.0)):
        left_out = []
        for group in side:
            kept = [each for each in side if each != group]
            moment = moments.matrices[kept].sum(axis=0) / moments.sizes[kept].sum()
            left_out.append([u @ moment @ u for u in novel.directions.T])
        few = (stats.t.ppf(0.975, 5) / stats.norm.ppf(0.975)) ** 2
        variance += few * 5 * np.var(left_out, axis=0) / scale
    errors = mode_errors(moments, novel.directions, (60, 216))
    np.testing.assert_allclose(errors, np.sqrt(variance), rtol=1e-12)
