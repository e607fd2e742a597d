"""Expected ranges: against closed forms of a mean, and by their coverage over fresh samples."""

import math

import numpy as np
import pytest
import scipy.stats

from latentscale.sampling.fresh_samples import (
    Cuts,
    SampleMean,
    adjust,
    expect,
    expect_like,
    found_reach,
    mean_of_samples,
    variance_of_mean,
)

GROUPS = 12


def cut(rows, taken, rng):
    """Cut GROUPS parts of some rows, disjoint ones from each random order as long as it lasts."""
    per_order = len(rows) // taken
    orders = [rng.permutation(rows) for _ in range(-(-GROUPS // per_order))]
    parts = [order[taken * k : taken * (k + 1)] for order in orders for k in range(per_order)]
    full, rest = divmod(GROUPS, per_order)
    return parts[:GROUPS], [per_order] * full + [rest] * (rest > 0)


def draw(corpus, reference, score, rows, rng):
    """Score samples of a corpus and of a reference, as a job does."""
    own, corpus_cuts = cut(corpus, rows, rng)
    triples, reference_cuts = cut(reference, 3 * rows, rng)
    found, usual = [], []
    for sample, triple in zip(own, triples, strict=True):
        other, first, second = np.split(triple, 3)
        found.append(score(sample, other))
        usual.append([score(part, other) for part in (first, second)])
    return expect(
        np.array(found),
        np.array(usual),
        variance_of_mean(rows, len(corpus), corpus_cuts),
        variance_of_mean(rows, len(reference), [2 * count for count in reference_cuts]),
    )


def mean(sample, other):
    return sample.mean()


def distance(sample, other):
    return (sample.mean() - other.mean()) ** 2


def near(sample, other):
    return (np.abs(sample[:, None] - other).min(axis=1) < 0.02).mean()


def rare(sample, other):
    return float((np.abs(sample) > 2.8).sum() == 0)


@pytest.mark.parametrize(
    ("score", "sizes", "least", "most"),
    [
        (mean, (300, 300), 0.03, 0.07),
        (mean, (1000, 3000), 0.03, 0.07),
        (mean, (195, 1500), 0.03, 0.07),
        (distance, (300, 300), 0.015, 0.07),
        (near, (300, 300), 0.0, 0.07),
        # The same on most samples of the reference, by chance on all.
        (rare, (300, 300), 0.0, 0.07),
        (rare, (100, 300), 0.0, 0.07),
    ],
)
def test_few_ranges_miss_the_score_of_the_same_source(score, sizes, least, most) -> None:
    missed = []
    for seed in range(500):
        rng = np.random.default_rng([1, seed])
        corpus, reference = (rng.normal(size=size) for size in sizes)
        expectation = draw(corpus, reference, score, 100, rng)
        missed.append(not expectation.lower <= expectation.found <= expectation.upper)
        assert (expectation.p < 0.05) == missed[-1]
    assert least <= np.mean(missed) <= most, np.mean(missed)


def test_a_shift_of_the_mean_is_found_as_often_as_promised() -> None:
    rng = np.random.default_rng(2)
    expectations = [
        draw(rng.normal(size=400), rng.normal(size=400), mean, 100, rng) for _ in range(200)
    ]
    smallest = np.mean([expectation.smallest_found(0.05) for expectation in expectations])
    # The standard error of a difference of two means of 400 is 0.0707; (2.18 + 0.84) of these.
    assert smallest == pytest.approx(0.2136, rel=0.05)
    found = [
        draw(rng.normal(size=400) + smallest, rng.normal(size=400), mean, 100, rng).p < 0.05
        for _ in range(200)
    ]
    assert 0.72 <= np.mean(found) <= 0.88


@pytest.mark.parametrize("freedom", [3, 5, 10, 38, 1000])
@pytest.mark.parametrize("scores", [1, 7, 32])
def test_the_smallest_difference_is_found_four_times_in_five(freedom: int, scores: int) -> None:
    level = 0.05 / scores
    reach = scipy.stats.t.ppf(1 - level / 2, freedom)
    found = scipy.stats.nct.sf(reach, freedom, found_reach(level, freedom))
    assert 0.7995 < found < 0.811


def test_the_numbers_of_known_samples() -> None:
    corpus = np.array([3.0, 5.0])
    reference = np.array([[1.0, 3.0], [2.0, 2.0]])
    found = expect(corpus, reference, 0.5, 0.25)
    # Half the mean of 4 and 0 is 1.
    assert found.centre == 2.0
    assert (found.found, found.standard_error) == (4.0, pytest.approx(math.sqrt(0.75)))
    assert found.z == pytest.approx(2.0 / math.sqrt(0.75))
    assert found.upper - 2.0 == pytest.approx(4.302653 * math.sqrt(0.75), rel=1e-6)
    assert 2.0 - found.lower == pytest.approx(found.upper - 2.0)
    # Student's distribution with two degrees of freedom has a closed form.
    assert found.p == pytest.approx(1 - found.z / math.sqrt(2 + found.z**2))


def test_samples_that_are_all_equal() -> None:
    same = expect(np.full(12, 0.7), np.full((12, 2), 0.7), 0.3, 0.3)
    assert (same.lower, same.upper, same.z, same.p) == (same.found, same.found, 0.0, 1.0)
    # Had one of three independent samples differed as much, the error would be 0.1 * sqrt(0.18).
    far = expect(np.full(12, 0.6), np.full((12, 2), 0.7), 0.3, 0.3)
    assert far.standard_error == pytest.approx(0.1 * math.sqrt(0.3 * 0.6))


def test_the_variance_of_a_mean_over_samples() -> None:
    # All disjoint, all from orders of their own, and the same rows every time.
    assert variance_of_mean(100, 1000, [10]) == pytest.approx(0.1)
    assert variance_of_mean(100, 1000, [1] * 10) == pytest.approx(0.1 + 0.9 * 0.1)
    assert variance_of_mean(100, 100, [1] * 10) == pytest.approx(1.0)
    means = []
    for seed in range(4000):
        rng = np.random.default_rng([3, seed])
        parts, cuts = cut(rng.normal(size=50), 20, rng)
        means.append(np.mean([part.mean() for part in parts]))
    assert cuts == [2] * 6
    assert np.var(means) * 20 == pytest.approx(variance_of_mean(20, 50, cuts), rel=0.08)


def test_adjusted_values_against_the_definition() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(adjust(p), [0.03, 0.06, 0.06, 0.02])
    assert adjust(np.array([0.6, 0.9])).tolist() == [1.0, 1.0]
    assert len(adjust(np.array([]))) == 0


# --- two corpora with samples of their own ----------------------------------------------------


def sampled(corpus, score, rows, rng, beside=None):
    """Measure samples of one corpus, beside samples of a reference if there is one."""
    own, counts = cut(corpus, rows, rng)
    cuts = [Cuts(rows, len(corpus), counts)]
    others = own
    if beside is not None:
        triples, of_beside = cut(beside, 3 * rows, rng)
        others = [triple[:rows] for triple in triples]
        cuts.append(Cuts(rows, len(beside), of_beside))
    scores = [score(part, other) for part, other in zip(own, others, strict=True)]
    return mean_of_samples(np.array(scores), cuts)


def crowding(sample, other):
    gaps = np.diff(np.sort(sample))
    return float(np.median(gaps))


def largest(sample, other):
    return sample.max()


@pytest.mark.parametrize(
    ("score", "sizes", "reference", "least", "most"),
    [
        (mean, (300, 300), None, 0.02, 0.07),
        (mean, (120, 1000), None, 0.02, 0.08),
        (mean, (1000, 120), None, 0.02, 0.08),
        (crowding, (300, 300), None, 0.0, 0.07),
        (largest, (300, 300), None, 0.0, 0.08),
        (distance, (300, 300), 300, 0.0, 0.07),
        (near, (300, 300), 300, 0.0, 0.07),
    ],
)
def test_two_corpora_of_one_source_are_rarely_told_apart(score, sizes, reference, least, most):
    rng = np.random.default_rng([11, *sizes])
    outside = 0
    for _ in range(500):
        beside = None if reference is None else rng.normal(size=reference)
        ours, theirs = (sampled(rng.normal(size=n), score, 50, rng, beside) for n in sizes)
        outside += expect_like(ours, theirs).p <= 0.05
    assert least <= outside / 500 <= most


def test_a_mean_that_is_off_is_found_at_its_size():
    """The z of two means is the difference over its standard error, from the rows alone."""
    rng = np.random.default_rng(3)
    usual = sampled(rng.normal(size=2000), mean, 50, rng)
    found = sampled(rng.normal(0.4, size=2000), mean, 50, rng)
    assert usual.share == pytest.approx(1 / GROUPS)
    expected = expect_like(found, usual)
    # Twelve disjoint samples of 50 rows of each.
    assert expected.z == pytest.approx(0.4 / math.sqrt(2 / 600), rel=0.5)
    assert expected.p < 1e-4
    assert expected.lower < expected.centre < expected.upper < expected.found


def test_all_rows_in_every_sample_say_nothing_of_others():
    scores = np.array([1.0, 1.0, 1.0])
    assert mean_of_samples(scores, [Cuts(50, 50, [1, 1, 1])]) is None
    half = mean_of_samples(np.array([1.0, 2.0, 3.0, 2.0]), [Cuts(50, 100, [2, 2])])
    # Of twelve pairs of samples, eight share half of their rows.
    assert half is not None
    assert half.variance == pytest.approx((2 / 3) / (1 - 1 / 3))
    assert half.share == pytest.approx((1 + 3 / 3) / 4)


def test_halves_of_few_rows_are_not_told_apart_too_often():
    """At the smallest size, and at the level of many scores."""
    rng = np.random.default_rng(12)
    p = np.array(
        [
            expect_like(
                sampled(rng.normal(size=100), mean, 50, rng),
                sampled(rng.normal(size=100), mean, 50, rng),
            ).p
            for _ in range(3000)
        ]
    )
    assert (p <= 0.05).mean() <= 0.07
    assert (p <= 0.007).mean() <= 0.014


@pytest.mark.parametrize(
    ("cuts", "freedom"),
    [
        (Cuts(50, 100, [2] * 5), 5),
        (Cuts(50, 149, [2] * 5), 9),
        (Cuts(100, 5000, [10]), 9),
        (Cuts(20, 100, [5, 5]), 8),
    ],
)
def test_complete_orders_have_fewer_degrees_of_freedom(cuts, freedom):
    assert cuts.freedom == freedom


@pytest.mark.parametrize(("found", "p"), [(1.0, 1.0), (1.0 + 1e-15, 1.0), (0.5, 0.0)])
def test_samples_that_never_differ_are_compared_by_what_could_have_been_missed(found, p):
    usual, other = (SampleMean(mean, 0.0, 0.1, 9) for mean in (1.0, found))
    assert expect_like(other, usual).p == pytest.approx(p, abs=1e-4)
    # One of ten samples that differs may do so by chance.
    once = SampleMean(0.95, 0.025, 0.1, 9)
    assert expect_like(once, usual).p > 0.3
