"""Fisher's exact test of counts, against SciPy's distribution and by its false alarms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from latentscale.sampling.counts import ExpectedCount


def test_p_is_that_of_the_hypergeometric_distribution():
    generator = np.random.default_rng(0)
    for _ in range(500):
        rows, others = (int(10 ** generator.uniform(0.5, 6.5)) for _ in range(2))
        share = 10 ** generator.uniform(-4, 0)
        count = int(generator.binomial(rows, share))
        usual = int(generator.binomial(others, min(1.0, share * generator.choice([0.7, 1, 1.4]))))
        drawn = scipy.stats.hypergeom(rows + others, count + usual, rows)
        p = min(1.0, 2.0 * min(drawn.cdf(count), drawn.sf(count - 1)))
        found = ExpectedCount(count, rows, usual, others)
        assert found.p == pytest.approx(p, rel=1e-6, abs=1e-290)
        several = ExpectedCount(count, rows, usual, others, 30)
        assert several.p == min(1.0, 30 * found.p)
        assert several.z == found.z
        assert np.sign(found.z) in (0.0, np.sign(found.found - found.centre))


def test_sides_change_places_if_the_corpora_do():
    one, other = ExpectedCount(30, 1000, 10, 900), ExpectedCount(10, 900, 30, 1000)
    assert one.p == pytest.approx(other.p, rel=1e-12)
    assert one.z == pytest.approx(-other.z, rel=1e-9)
    assert one.z > 0.0


def test_the_range_holds_what_p_calls_usual():
    for rows, others in ((300, 700), (700, 300)):
        for usual in (0, others // 100, others // 3, others):
            for count in range(rows + 1):
                for many in (1, 40):
                    found = ExpectedCount(count, rows, usual, others, many)
                    inside = found.lower <= found.found <= found.upper
                    assert inside == (found.p > 0.05), (rows, usual, count, many)


@pytest.mark.parametrize(
    ("share", "n", "m"), [(0.01, 2000, 2000), (0.1, 9000, 900), (0.9, 500, 500), (0.99, 300, 300)]
)
def test_a_difference_of_the_smallest_size_is_found_four_times_in_five(share, n, m):
    generator = np.random.default_rng(1)
    usual = round(share * m)
    change = ExpectedCount(round(share * n), n, usual, m, 50).smallest_found(0.05)
    other = share + change if share + change < 1.0 else share - change
    found = [
        ExpectedCount(int(a), n, int(b), m, 50).p <= 0.05
        for a, b in zip(
            generator.binomial(n, other, size=400),
            generator.binomial(m, share, size=400),
            strict=True,
        )
    ]
    assert 0.7 <= np.mean(found) <= 0.9


@pytest.mark.parametrize(
    ("count", "rows", "usual", "others", "chosen_from"),
    [(20, 1000, 0, 10**6, 10), (20, 20, 2 * 10**6, 2 * 10**6, 10), (20, 1000, 5, 10**6, 10)],
)
def test_few_rows_beside_many_need_a_change_of_some_rows(count, rows, usual, others, chosen_from):
    expected = ExpectedCount(count, rows, usual, others, chosen_from)
    change, share = expected.smallest_found(0.05), usual / others
    assert change * rows >= 1.0
    other = share + change if share + change < 1.0 else share - change
    drawn = np.random.default_rng(2).binomial(rows, other, size=400)
    found = [ExpectedCount(int(x), rows, usual, others, chosen_from).p <= 0.05 for x in drawn]
    assert 0.7 <= np.mean(found) <= 0.95


def least_usual(ours, theirs):
    """The least usual of several shares, of those with 20 rows or more."""
    n, m = int(ours.sum()), int(theirs.sum())
    kept = ours + theirs >= 20
    counts = zip(ours[kept].tolist(), theirs[kept].tolist(), strict=True)
    shares = [ExpectedCount(a, n, b, m, int(kept.sum())) for a, b in counts]
    return min(shares, key=lambda share: share.p_alone)


def alarms_among_many(labels, frequency, rows, tries):
    """The share of pairs of samples of one source of which a label is called different at 5 %."""
    generator = np.random.default_rng(1)
    shares = np.ones(labels) if frequency == "equal" else 1 / np.arange(1.0, labels + 1)
    shares /= shares.sum()
    drawn = [generator.multinomial(n, shares, size=tries) for n in rows]
    compared = (drawn[0] + drawn[1] >= 20).any(axis=1)
    pairs = zip(drawn[0][compared], drawn[1][compared], strict=True)
    return sum(least_usual(*both).p <= 0.05 for both in pairs) / tries


MANY_LABELS = [
    pytest.mark.parametrize("labels", [5, 50, 300]),
    pytest.mark.parametrize("frequency", ["equal", "unequal"]),
    pytest.mark.parametrize("rows", [(600, 600), (500, 5000), (5000, 500), (10_000, 10_000)]),
]


def each_of_many(test):
    for mark in MANY_LABELS:
        test = mark(test)
    return test


@each_of_many
def test_false_alarms_among_many_shares(labels, frequency, rows):
    # Two standard errors of 100 tries above 5 %.
    assert alarms_among_many(labels, frequency, rows, 100) <= 0.094


@pytest.mark.full
@each_of_many
def test_false_alarms_among_many_shares_in_many_tries(labels, frequency, rows):
    assert alarms_among_many(labels, frequency, rows, 2000) <= 0.06


def test_a_label_that_is_cut_is_found_among_many():
    generator = np.random.default_rng(2)
    shares = np.full(98, 0.852 / 97)
    shares[0] = 0.148
    cut = shares.copy()
    cut[0] *= 0.8
    cut /= cut.sum()
    found = []
    for _ in range(50):
        both = generator.multinomial(9710, cut), generator.multinomial(10_000, shares)
        found.append(least_usual(*both))
    assert np.mean([one.p <= 0.05 for one in found]) >= 0.9
    assert np.mean([abs(one.found - 0.124) < 0.02 for one in found]) >= 0.9


@pytest.mark.parametrize(("labels", "rows"), [(1000, (9000, 2_000_000)), (400, (1_000_000, 4400))])
def test_few_rows_of_many_labels_beside_many_are_no_alarm(labels, rows):
    # A normal approximation calls 12 % of them different: its tails are too small here.
    assert alarms_among_many(labels, "equal", rows, 40) <= 0.06
