"""The spread: against brute force and a softmax, its limits, its intervals and sampling errors."""

import math
from functools import reduce
from operator import add

import numpy as np
import pytest
import scipy.special
from scipy.spatial.distance import cdist, pdist

from latentscale.spread.row_sums import sum_similarities
from latentscale.spread.scores import sampling_errors, spread
from latentscale.tiles.distances import as_points

SCALES = [0.2, 1.0, 4.0]


def sums_of(rows, drawn=None, metric="euclidean", scales=SCALES, precision="double", block=70):
    """Sum in blocks, as the tasks of a job do."""
    numbers = np.arange(len(rows)) if drawn is None else np.asarray(drawn)
    queries = as_points(rows[numbers], metric)
    origin = queries.rows.mean(axis=0)
    parts = [
        sum_similarities(
            queries.about(origin),
            as_points(rows[first : first + block], metric).about(origin),
            scales,
            len(rows),
            numbers - first,
            precision=precision,
        )
        for first in range(0, len(rows), block)
    ]
    return reduce(add, parts)


def brute_force(rows, scale, metric="euclidean"):
    return float((1.0 / np.exp(-scale * cdist(rows, rows, metric)).sum(axis=1)).sum())


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("precision", ["single", "double"])
def test_brackets_contain_the_dense_value(seed: int, precision: str) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 200)), int(rng.integers(2, 40))
    rows = rng.normal(size=(n, d)) * rng.uniform(0.1, 1.0, d) + 3.0
    rows[: n // 4] = rows[-(n // 4) :][: n // 4]  # copies
    found = spread(sums_of(rows, precision=precision))
    for estimate, scale in zip(found, SCALES, strict=True):
        expected = brute_force(rows, scale)
        assert estimate.lower * (1 - 1e-12) <= expected <= estimate.upper * (1 + 1e-12)
        assert estimate.value == pytest.approx(
            expected, rel=1e-9 if precision == "double" else 3e-3
        )
        assert estimate.bounds == "exact"
        assert estimate.upper - estimate.lower < (1e-7 if precision == "double" else 0.1) * expected


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_under_the_cosine_distance_it_is_the_trace_of_a_softmax(temperature: float) -> None:
    rows = np.random.default_rng(1).normal(size=(150, 12)) + 0.5
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = np.trace(scipy.special.softmax(unit @ unit.T / temperature, axis=1))
    [found] = spread(sums_of(rows, metric="cosine", scales=[1.0 / temperature]))
    assert found.value == pytest.approx(expected, rel=1e-10)


def test_limits_and_copies() -> None:
    rows = np.random.default_rng(2).normal(size=(30, 4))
    near, far = spread(sums_of(rows, scales=[1e-9, 1e3]))
    assert near.value == pytest.approx(1.0)
    assert far.value == pytest.approx(30.0)
    copied = spread(sums_of(np.repeat(rows, 3, axis=0)))
    for estimate, scale in zip(copied, SCALES, strict=True):
        assert estimate.value == pytest.approx(brute_force(rows, scale), rel=1e-9)


def test_random_rows_have_intervals_that_cover() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4, 8))[rng.integers(0, 4, 900)] * 3 + rng.normal(size=(900, 8))
    truth = [brute_force(rows, scale) for scale in SCALES]
    held = np.zeros(len(SCALES))
    for _ in range(200):
        drawn = np.sort(rng.choice(900, 60, replace=False))
        found = spread(sums_of(rows, drawn, block=900))
        assert {one.bounds for one in found} == {"interval95"}
        held += [one.lower <= value <= one.upper for one, value in zip(found, truth, strict=True)]
    # The mean share of rows is skewed where few rows are far from all others.
    assert held.min() >= 0.90 * 200


def test_the_sampling_error_of_all_rows_is_the_jackknife() -> None:
    rows = np.random.default_rng(4).normal(size=(60, 3))
    found = sampling_errors(as_points(rows, "euclidean"), sums_of(rows), SCALES)
    for error, scale in zip(found, SCALES, strict=True):
        left = [brute_force(np.delete(rows, j, axis=0), scale) for j in range(60)]
        assert error == pytest.approx(math.sqrt(60 * np.var(left, ddof=1)), rel=1e-9)


@pytest.mark.parametrize("drawn", [None, 200])
def test_sampling_errors_cover_the_mean_over_samples(drawn: int | None) -> None:
    centres = np.random.default_rng(5).normal(size=(10, 12)) * 2.0
    scales = [0.15, 0.5, 1.5]
    values, errors = [], []
    for seed in range(150):
        rng = np.random.default_rng([5, seed])
        rows = centres[rng.integers(0, 10, 500)] + rng.normal(size=(500, 12))
        chosen = None if drawn is None else np.sort(rng.choice(500, drawn, replace=False))
        whole = sums_of(rows, scales=scales, block=500)
        values.append([one.value for one in spread(whole)])
        known = whole if chosen is None else sums_of(rows, chosen, scales=scales, block=500)
        few = rows if chosen is None else rows[chosen]
        errors.append(sampling_errors(as_points(few, "euclidean"), known, scales))
    covered = (np.abs(values - np.mean(values, axis=0)) <= 1.96 * np.array(errors)).mean(axis=0)
    assert covered.min() >= 0.90
    assert np.sqrt((np.array(errors) ** 2).mean(axis=0)) == pytest.approx(
        np.std(values, axis=0), rel=0.15
    )


@pytest.mark.parametrize(("apart", "n"), [(3.0, 200), (0.0, 300)])
def test_errors_cover_where_scales_are_in_units_of_the_own_median(apart: float, n: int) -> None:
    """Without the moves of the median they were half as large, or four times."""
    values, errors = [], []
    for seed in range(80):
        generator = np.random.default_rng([8, seed])
        rows = generator.normal(size=(n, 8)) + apart * (generator.random(n) < 0.5)[:, None]
        median = float(np.median(pdist(rows)))
        scales = [scale / median for scale in (1.0, 3.0, 10.0)]
        found = sums_of(rows, scales=scales, block=n)
        values.append([one.value for one in spread(found)])
        errors.append(sampling_errors(as_points(rows, "euclidean"), found, scales, median=median))
    known = np.array(errors, np.float64)
    assert np.isfinite(known).mean() > 0.95
    covered = np.abs(values - np.mean(values, axis=0)) <= 1.96 * known
    assert covered[np.isfinite(known[:, 0])].mean(axis=0).min() >= 0.88
    assert np.nanmedian(known, axis=0) == pytest.approx(np.std(values, axis=0), rel=0.35)


def test_of_drawn_rows_the_moves_of_the_median_are_those_of_all() -> None:
    generator = np.random.default_rng(9)
    rows = generator.normal(size=(600, 5))
    median = float(np.median(pdist(rows)))
    scales = [scale / median for scale in (1.0, 3.0)]
    whole, few = (
        sampling_errors(
            as_points(rows[drawn], "euclidean"), sums_of(rows, drawn, scales=scales), scales,
            median=median, median_pairs=pairs,
        )
        for drawn, pairs in ((np.arange(600), None), (generator.permutation(600)[:300], 100_000))
    )  # fmt: skip
    assert few == pytest.approx(whole, rel=0.25)


def test_between_two_groups_of_rows_the_median_jumps_and_there_is_no_error() -> None:
    rows = np.random.default_rng(10).normal(size=(100, 4)) + 20.0 * (np.arange(100) % 2)[:, None]
    median = float(np.median(pdist(rows)))
    scales = [1.0 / median, 3.0 / median]
    points, found = as_points(rows, "euclidean"), sums_of(rows, scales=scales)
    assert sampling_errors(points, found, scales, median=median) == [None, None]
    assert None not in sampling_errors(points, found, scales)


@pytest.mark.parametrize("alone", [1, 10, 100])
def test_rows_unlike_all_others_count_if_none_or_few_of_them_are_drawn(alone: int) -> None:
    n, drawn, seeds = 2000, 100, 60
    rng = np.random.default_rng(3)
    rows = np.zeros((n, 4))
    rows[rng.choice(n, alone, replace=False)] = 100.0 * rng.normal(size=(alone, 4))
    truth = brute_force(rows, 1.0)
    assert truth == pytest.approx(alone + 1.0)
    covered, errors, values = 0, [], []
    for seed in range(seeds):
        chosen = np.sort(np.random.default_rng([3, seed]).choice(n, drawn, replace=False))
        sums = sums_of(rows, chosen, scales=[1.0], block=700)
        [estimate] = spread(sums)
        covered += estimate.lower <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= estimate.upper
        assert alone > 10 or estimate.upper - estimate.lower < max(2.0 * alone, 6.0)
        values.append(estimate.value)
        seen = bool((rows[chosen] != 0.0).any())
        [error] = sampling_errors(as_points(rows[chosen], "euclidean"), sums, [1.0])
        assert seen or error is None, "nothing says how rows vary of which none was drawn"
        errors.append(error)
    # Of 60 intervals that cover with probability 0.95 fewer than 52 do once in 100.
    assert covered >= 52
    assert np.mean(values) == pytest.approx(truth, rel=0.5)
    if alone == 100:  # fresh samples have more or fewer of these rows, by the root of their number
        assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(10.0, rel=0.2)


def test_rows_that_are_alone_count_among_rows_whose_copies_are_not_drawn() -> None:
    """Of no drawn row another is near, though all but a few of them have 39 copies."""
    kinds, copies, alone, drawn = 90, 40, 60, 90
    rng = np.random.default_rng(4)
    far = 1000.0 * rng.normal(size=(kinds + alone, 4))
    rows = np.concatenate([np.repeat(far[:kinds], copies, axis=0), far[kinds:]])
    for seed in range(20):
        chosen = np.sort(np.random.default_rng([4, seed]).choice(len(rows), drawn, replace=False))
        [estimate] = spread(sums_of(rows, chosen, scales=[1.0], block=1000))
        assert estimate.lower <= kinds + alone <= estimate.upper


@pytest.mark.parametrize("blocks", [1, 4])
def test_far_rows_that_equal_each_other_count_as_one(blocks: int) -> None:
    n, drawn, seeds = 2000, 100, 40
    rows = np.zeros((n, 4))
    for block in range(blocks):
        rows[10 * block : 10 * (block + 1), block] = 100.0
    truth, covered, values = brute_force(rows, 1.0), 0, []
    assert truth == pytest.approx(blocks + 1.0)
    for seed in range(seeds):
        chosen = np.sort(np.random.default_rng([4, seed]).choice(n, drawn, replace=False))
        [estimate] = spread(sums_of(rows, chosen, scales=[1.0], block=700))
        covered += estimate.lower <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= estimate.upper
        values.append(estimate.value)
    assert covered >= 36
    assert np.mean(values) == pytest.approx(truth, rel=0.3)


@pytest.mark.parametrize("drawn", [2, 5, 7, 8, 9])
def test_few_drawn_rows_have_an_interval(drawn: int) -> None:
    rows = np.random.default_rng(5).normal(size=(50, 3))
    for estimate in spread(sums_of(rows, np.arange(drawn))):
        assert 1.0 <= estimate.lower < estimate.value < estimate.upper <= 50.0


def test_an_error_that_few_rows_cannot_tell_is_not_zero() -> None:
    """Rows on a sphere have nearly equal sums, so the error is far below the noise of halves."""
    found, spreads = [], []
    for seed in range(20):
        rng = np.random.default_rng([9, seed])
        rows = rng.normal(size=(1000, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        whole = sums_of(rows, scales=[10.0], block=1000)
        spreads.append(spread(whole)[0].value)
        chosen = rng.choice(1000, 100, replace=False)
        known = sums_of(rows, chosen, scales=[10.0], block=1000)
        found += sampling_errors(as_points(rows[chosen], "euclidean"), known, [10.0])
    assert min(found) > 0.0
    assert np.sqrt(np.mean(np.square(found))) > np.std(spreads)


def test_single_precision_gives_way_where_it_loses_too_much() -> None:
    rows = np.random.default_rng(10).normal(size=(300, 64))
    near = sums_of(rows, np.arange(300), precision="single", scales=[0.5], block=300)
    rows[0] *= 300.0
    far = sums_of(rows, np.arange(300), precision="single", scales=[0.5], block=300)
    assert 1e-8 < near.errors[0] <= 2e-3
    assert far.errors[0] < 1e-8


def test_few_rows_have_no_sampling_error() -> None:
    rows = np.eye(19)
    assert sampling_errors(as_points(rows, "euclidean"), sums_of(rows), SCALES) == [None] * 3
