"""Expected ranges: against closed forms of a mean, and by their coverage over fresh samples."""

import math

import numpy as np
import pytest

from latentscale.sampling.fresh_samples import adjust, expect

GROUPS = 12


def draw(corpus, reference, score, rows, rng):
    """Score samples of a corpus and of a reference, as a job does."""
    n, found, usual = len(reference), [], []
    orders = [rng.permutation(len(corpus)) for _ in range(GROUPS)]
    for group in range(GROUPS):
        other, first, second = np.split(rng.permutation(n)[: 3 * rows], 3)
        own = orders[group // (len(corpus) // rows)]
        start = rows * (group % (len(corpus) // rows))
        found.append(score(corpus[own[start : start + rows]], reference[other]))
        usual.append([score(reference[some], reference[other]) for some in (first, second)])
    return expect(np.array(found), np.array(usual), rows, len(corpus), n)


def mean(sample, other):
    return sample.mean()


def distance(sample, other):
    return (sample.mean() - other.mean()) ** 2


def near(sample, other):
    return (np.abs(sample[:, None] - other).min(axis=1) < 0.02).mean()


@pytest.mark.parametrize(
    ("score", "least", "most"),
    [(mean, 0.03, 0.075), (distance, 0.02, 0.075), (near, 0.0, 0.075)],
)
def test_few_ranges_miss_the_score_of_the_same_source(score, least, most) -> None:
    missed = []
    for seed in range(1000):
        rng = np.random.default_rng([1, seed])
        corpus, reference = rng.normal(size=300), rng.normal(size=300)
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


def test_the_numbers_of_known_samples() -> None:
    corpus = np.array([3.0, 5.0])
    reference = np.array([[1.0, 3.0], [2.0, 2.0]])
    found = expect(corpus, reference, 10, 40, 80)
    # Half the mean of 4 and 0 is 1; the shares are 1/2 (two samples of the corpus) and 1/4.
    assert (found.found, found.standard_error) == (4.0, pytest.approx(math.sqrt(0.75)))
    assert found.z == pytest.approx(2.0 / math.sqrt(0.75))
    assert found.upper - 2.0 == pytest.approx(4.302653 * math.sqrt(0.75), rel=1e-6)
    assert 2.0 - found.lower == pytest.approx(found.upper - 2.0)
    # Student's distribution with two degrees of freedom has a closed form.
    assert found.p == pytest.approx(1 - found.z / math.sqrt(2 + found.z**2))


def test_samples_that_are_all_equal() -> None:
    same = expect(np.full(12, 0.7), np.full((12, 2), 0.7), 10, 30, 30)
    assert (same.lower, same.upper, same.z, same.p) == (same.found, same.found, 0.0, 1.0)
    one = np.full(12, 1.0)
    one[3] = 0.9
    assert expect(one, np.ones((12, 2)), 10, 30, 30).p > 0.5
    assert expect(np.full(12, 0.9), np.ones((12, 2)), 10, 30, 30).p < 1e-3


def test_adjusted_values_against_the_definition() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(adjust(p), [0.03, 0.06, 0.06, 0.02])
    assert adjust(np.array([0.6, 0.9])).tolist() == [1.0, 1.0]
    assert len(adjust(np.array([]))) == 0
