import math

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.stats import betabinom, binomtest

from latentscale.sampling.shares import (
    ExpectedExceedances,
    expect_share,
    p_of_excess,
    share_interval,
)


def rows_with_a_copy(codes):
    _, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return counts[places] > 1


def draw_codes(layout, rows, generator):
    """Rows as codes; equal codes are near each other."""
    alone = generator.integers(10**9, 2**62, size=rows)
    if layout == "chance":  # any two rows may be near
        return generator.integers(0, 40_000, size=rows)
    if layout == "phrases":  # some texts are common
        return np.where(generator.random(rows) < 0.3, generator.zipf(1.6, size=rows), alone)
    return np.where(generator.random(rows) < 0.02, generator.integers(0, 5, rows), alone)


@pytest.mark.parametrize("layout", ["chance", "phrases", "boilerplate"])
@pytest.mark.parametrize("rows", [(150, 150), (2000, 400), (400, 2000)])
def test_false_alarms_of_counts_of_rows_that_are_near_others(layout, rows):
    generator = np.random.default_rng(8)
    alarms = np.zeros((2, 600), dtype=bool)
    for seed in range(600):
        corpus, reference = (draw_codes(layout, n, generator) for n in rows)
        least = min(rows)
        among = [rows_with_a_copy(part[:least]).mean() for part in (corpus, reference)]
        near = expect_share(among[0], least, among[1], least, rows_of_event=2)
        leaked = np.isin(corpus, reference).mean()
        usual = rows_with_a_copy(reference).mean()
        shared = expect_share(leaked, rows[0], usual, rows[1], rows_of_event=2)
        alarms[:, seed] = near.p <= 0.05, shared.p <= 0.05
    assert (alarms.mean(axis=1) <= 0.065).all(), alarms.mean(axis=1)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.5, 0.97])
@pytest.mark.parametrize("rows", [(100, 100), (3000, 200), (200, 3000)])
def test_false_alarms_of_shares_of_single_rows(share, rows):
    generator = np.random.default_rng(3)
    found, usual = (generator.binomial(n, share, size=3000) / n for n in rows)
    p = np.array(
        [expect_share(a, rows[0], b, rows[1]).p for a, b in zip(found, usual, strict=True)]
    )
    assert (p <= 0.05).mean() <= 0.065


@pytest.mark.parametrize("rows", [(100, 2_000_000), (2_000_000, 100), (50, 1000)])
def test_equal_shares_are_usual_whatever_the_numbers_of_rows(rows):
    for share in (0.0, 0.001, 0.5, 1.0):
        found = expect_share(share, rows[0], share, rows[1])
        assert (found.z, found.p) == (0.0, 1.0)
        away = expect_share(share + 0.3 if share < 0.5 else share - 0.3, rows[0], share, rows[1])
        assert away.p < 0.001


def test_the_smallest_change_of_a_share_without_room_above_is_a_fall():
    found = expect_share(0.98, 100, 0.98, 100)
    fall = found.smallest_found(0.05)
    assert fall == pytest.approx(0.1, abs=0.02)
    generator = np.random.default_rng(5)
    p = [
        expect_share(a, 100, b, 100).p
        for a, b in zip(
            generator.binomial(100, 0.98 - fall, size=2000) / 100,
            generator.binomial(100, 0.98, size=2000) / 100,
            strict=True,
        )
    ]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.8, abs=0.07)
    assert expect_share(1.0, 600, 1.0, 600).smallest_found(0.05) == pytest.approx(0.013, abs=0.005)
    # Of four rows none is enough.
    assert expect_share(1.0, 4, 1.0, 4).smallest_found(0.001) == 1.0


def test_the_range_holds_what_p_calls_usual():
    for usual in (0.0, 0.002, 0.1, 0.6, 1.0):
        for found in np.linspace(0.0, 1.0, 401):
            expected = expect_share(float(found), 300, usual, 700, rows_of_event=2)
            assert (expected.lower <= found <= expected.upper) == (expected.p > 0.05)
            assert 0.0 <= expected.lower <= usual <= expected.upper <= 1.0


def test_many_rows_give_the_normal_test_of_two_shares():
    a, b, n, m = 0.31, 0.30, 40_000, 60_000
    expected = expect_share(a, n, b, m)
    error = math.sqrt(a * (1 - a) / n + b * (1 - b) / m)
    assert expected.z == pytest.approx((a - b) / error, rel=0.01)
    assert expected.lower == pytest.approx(b - 1.96 * error, abs=1e-4)
    assert expected.upper == pytest.approx(b + 1.96 * error, abs=1e-4)
    assert expected.smallest_found(0.05) == pytest.approx(2.8 * error, rel=0.01)


def test_a_difference_of_the_smallest_size_is_found_four_times_in_five():
    generator = np.random.default_rng(5)
    usual, rows = 0.05, (1000, 1500)
    more = expect_share(usual, rows[0], usual, rows[1]).smallest_found(0.05)
    found = generator.binomial(rows[0], usual + more, size=2000) / rows[0]
    beside = generator.binomial(rows[1], usual, size=2000) / rows[1]
    p = [expect_share(a, rows[0], b, rows[1]).p for a, b in zip(found, beside, strict=True)]
    assert (np.array(p) <= 0.05).mean() == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1.2, 10, 0.1, 10), "in \\[0, 1\\]"), ((0.2, 0, 0.1, 10), "need rows")],
)
def test_refuses_what_is_no_share(arguments, message):
    with pytest.raises(ValueError, match=message):
        expect_share(*arguments)


# --- how many values exceed an order statistic -------------------------------------------------


@pytest.mark.parametrize(("n", "k", "m"), [(600, 0, 600), (2000, 4, 20_000), (50, 0, 4000)])
def test_exceedances_have_the_beta_binomial_distribution(n, k, m):
    law = betabinom(n, k + 1, m - k)
    for count in (0, 1, 3, 10):
        found = ExpectedExceedances(count / n, n, k, m)
        expected = min(1.0, 2 * min(law.sf(count - 1), law.cdf(count)))
        assert found.p == pytest.approx(expected, rel=1e-6, abs=1e-10)
        assert found.lower <= found.centre <= found.upper
        assert (found.lower <= count / n <= found.upper) == (found.p > 0.05)
    assert found.centre == pytest.approx(min(law.mean() / n, found.upper), rel=1e-3)


@pytest.mark.parametrize(("n", "k", "m"), [(600, 0, 600), (2000, 4, 20_000), (10_000, 20, 10_000)])
def test_the_smallest_excess_is_found_four_times_in_five(n, k, m):
    generator = np.random.default_rng(21)
    excess = ExpectedExceedances(0.0, n, k, m).smallest_found(0.01)
    usual = generator.beta(k + 1, m - k, size=2000)
    counts = generator.binomial(n, excess + (1.0 - excess) * usual)
    unusual = {
        count: ExpectedExceedances(count / n, n, k, m).p <= 0.01 for count in np.unique(counts)
    }
    assert np.mean([unusual[count] for count in counts]) == pytest.approx(0.8, abs=0.03)


def test_few_values_show_no_excess():
    assert ExpectedExceedances(0.0, 4, 0, 10).smallest_found(1e-6) == 1.0


def draw_points(layout, rows, generator):
    if layout == "plane":
        return generator.random((rows, 2))
    centres = 3.0 * np.random.default_rng(5).normal(size=(50, 3))
    return centres[generator.integers(50, size=rows)] + 0.05 * generator.normal(size=(rows, 3))


@pytest.mark.parametrize("layout", ["plane", "clusters"])
@pytest.mark.parametrize("sizes", [(600, 600), (2000, 500), (300, 1500)])
def test_false_alarms_of_rows_far_from_a_reference(layout, sizes):
    """Nearest distances come in pairs, and the farthest row of the reference sets the limit."""
    generator = np.random.default_rng(7)
    p = []
    for _ in range(150):
        corpus, reference = (draw_points(layout, n, generator) for n in sizes)
        tree = cKDTree(reference)
        own, found = tree.query(reference, k=2)[0][:, 1], tree.query(corpus)[0]
        share = float((found > own.max()).mean())
        p.append(ExpectedExceedances(share, sizes[0], 0, sizes[1], rows_of_event=2).p)
    assert (np.array(p) <= 0.05).mean() <= 0.05
    assert (np.array(p) <= 0.01).mean() <= 0.02


def test_more_rows_far_away_than_chance_makes_are_found():
    assert ExpectedExceedances(40 / 2000, 2000, 0, 2000, rows_of_event=2).p < 1e-4
    assert ExpectedExceedances(0.0, 2000, 0, 2000, rows_of_event=2).p == pytest.approx(1.0)
    assert ExpectedExceedances(1.0, 2000, 2, 9000, rows_of_event=2).z > 10


def test_the_interval_of_a_share_covers_it():
    generator = np.random.default_rng(6)
    for share in (0.003, 0.05, 0.5):
        counts = generator.binomial(400, share, size=2000)
        ends = np.array([share_interval(int(count), 400) for count in counts])
        assert ((ends[:, 0] <= share) & (share <= ends[:, 1])).mean() > 0.93
    assert share_interval(0, 400)[0] == 0.0
    assert 0.005 < share_interval(0, 400)[1] < 0.011


def test_groups_that_have_more_of_some_rows_than_chance_explains():
    rows = np.array([100, 1, 40, 859])
    found = np.array([9, 0, 14, 17])
    expected = [
        binomtest(count, 40, size / 1000, alternative="greater").pvalue
        for count, size in zip(found.tolist(), rows.tolist(), strict=True)
    ]
    assert p_of_excess(found, rows) == pytest.approx(expected, rel=1e-10)
    assert (p_of_excess(np.zeros(4, dtype=np.int64), rows) == 1.0).all()
    assert (p_of_excess(rows, rows) > 0.3).all(), "all rows are no excess"


def test_random_rows_are_in_excess_in_some_group_at_most_as_often_as_the_level_says():
    generator = np.random.default_rng(8)
    rows = generator.integers(1, 60, size=30)
    of_row = np.repeat(np.arange(30), rows)
    alarms = 0
    for _ in range(1000):
        chosen = generator.choice(of_row, size=50, replace=False)
        found = np.bincount(chosen, minlength=30)
        alarms += bool((30 * p_of_excess(found, rows) < 0.05).any())
    assert alarms <= 50 + 3 * math.sqrt(50)
