"""Magnitude against dense algebra, closed forms and published values."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from latentscale.duplicates.distinct import find_distinct
from latentscale.estimate import Estimate
from latentscale.magnitude import conjugate_gradients
from latentscale.magnitude.function import (
    MagnitudeFunction,
    MagnitudeMethod,
    convergence_scale,
    magnitude_area,
    magnitude_difference,
    magnitude_dimension,
    magnitude_function,
    trapezium_error,
)
from latentscale.tiles import exponential_products as exponentials
from latentscale.tiles.distances import METRICS, Metric, Points, as_points
from tests import DATA
from tests.oracles import (
    dense_magnitude,
    line_magnitude,
    pairwise_distances,
    precise_cosine_magnitudes,
    two_point_magnitude,
)

REFERENCE = json.loads((DATA / "magnitude_reference.json").read_text())
BOTH: tuple[MagnitudeMethod, ...] = ("cholesky", "cg")


def values(function: MagnitudeFunction) -> np.ndarray:
    return np.array([estimate.value for estimate in function.estimates])


@pytest.fixture(scope="module")
def digits() -> Points:
    return as_points(load_digits().data, "euclidean")


# --- published and dense values --------------------------------------------------------------


def test_digits_exactly(digits: Points) -> None:
    reference = REFERENCE["digits"]
    function = magnitude_function(digits, reference["scales"], method="cholesky")
    np.testing.assert_allclose(values(function), reference["magnitude"], rtol=1e-12)
    np.testing.assert_allclose(values(function), reference["peer_magnitude"], rtol=1e-12)
    np.testing.assert_allclose(function.weights[:5], reference["weights"], rtol=1e-10)
    assert [estimate.bounds for estimate in function.estimates] == ["exact"] * 20
    assert function.points == 1797
    assert function.products == 0
    area = magnitude_area(function.scales, function.estimates)
    assert area.value == pytest.approx(reference["area"], rel=1e-12)
    assert area.bounds == "exact"
    assert area.method == "cholesky"


def test_digits_by_conjugate_gradients(digits: Points) -> None:
    reference = REFERENCE["digits"]
    function = magnitude_function(digits, reference["scales"], method="cg")
    exact = np.array(reference["magnitude"])
    np.testing.assert_allclose(values(function), exact, rtol=3e-4)
    for estimate, truth in zip(function.estimates, exact, strict=True):
        assert estimate.lower <= truth * (1 + 1e-12)
        assert estimate.upper >= truth * (1 - 1e-12)
        assert estimate.upper - estimate.lower <= 1e-3 * truth
    np.testing.assert_allclose(function.weights[:5], reference["weights"], atol=1e-2)
    assert function.weights.sum() == pytest.approx(function.estimates[-1].value, rel=1e-12)
    assert {estimate.method for estimate in function.estimates[1:]} == {"cg"}


@pytest.mark.parametrize("method", BOTH)
def test_digits_convergence_scale(digits: Points, method: MagnitudeMethod) -> None:
    # The published value's own root finding stopped about 1e-9 short.
    found = convergence_scale(digits, method=method)
    truth = REFERENCE["digits"]["convergence_scale"]
    assert found.value == pytest.approx(truth, rel=2e-9 if method == "cholesky" else 1e-4)
    assert found.lower <= truth * (1 + 2e-9)
    assert found.upper >= truth * (1 - 2e-9)
    assert found.upper - found.lower < 2e-3 * truth
    assert found.method == method


def test_digits_difference() -> None:
    data = load_digits()
    reference = REFERENCE["digits 0-4 against 5-9"]
    small, large = (
        as_points(data.data[rows], "euclidean") for rows in (data.target < 5, data.target >= 5)
    )
    cut = np.median([convergence_scale(small).value, convergence_scale(large).value])
    assert cut == pytest.approx(reference["cut"], rel=1e-8)
    scales = np.linspace(0.0, reference["cut"], 20)
    first, second = (magnitude_function(points, scales) for points in (small, large))
    cut = reference["cut"]
    areas = [magnitude_area(scales, function.estimates).value / cut for function in (first, second)]
    np.testing.assert_allclose(areas, reference["areas"], rtol=1e-12)
    absolute = np.trapezoid(np.abs(values(first) - values(second)), scales) / cut
    assert absolute == pytest.approx(reference["absolute_difference"], rel=1e-12)
    difference = magnitude_difference(first, second)
    assert difference.value == pytest.approx((areas[0] - areas[1]) * cut, rel=1e-12)
    assert magnitude_difference(second, first).value == -difference.value


def check_small_angles(seed: int, others: int = 0) -> None:
    """One direction with noise: in every bracket lies the magnitude of the rows as stored."""
    rng = np.random.default_rng(seed)
    n, d = rng.integers(2, 14), rng.integers(2, 12)
    noise = 10.0 ** rng.uniform(-6.5, 0.0)
    rows = rng.normal(size=d) + noise * rng.normal(size=(n, d))
    if others:
        # Scales of these, for which the matrix is nearly singular.
        rows = np.concatenate([rows, rng.normal(size=(others, d))])
        noise = 1.0
    if rng.integers(2):
        rows = rows.astype(np.float32)
    points = as_points(rows, "cosine")
    stored = rows[find_distinct(points).rows]
    scales = np.sort(10.0 ** rng.uniform(-3.0, 3.0, size=4) / noise**2).tolist()
    truths = precise_cosine_magnitudes(stored, scales)
    for method in BOTH:
        function = magnitude_function(points, scales, method=method)
        for estimate, truth in zip(function.estimates, truths, strict=True):
            assert estimate.lower <= truth
            # Where nothing is certain of the upper end, conjugate gradients estimate it.
            slack = 1e-2 if estimate.bounds == "estimate" else 0.0
            assert estimate.upper * (1.0 + slack) >= truth


@pytest.mark.parametrize("seed", range(6))
def test_small_angles(seed: int) -> None:
    check_small_angles(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 200))
def test_more_small_angles(seed: int) -> None:
    check_small_angles(seed)


@pytest.mark.parametrize(
    "seed", [142, 185, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(100))]
)
def test_small_angles_beside_others(seed: int) -> None:
    """First-order bounds of the rounding missed some of these by a factor of 14."""
    check_small_angles(seed, others=4)


def test_what_rounding_hides_may_be_there() -> None:
    """Eight rows on an arc: in float64 the magnitude seems to be 1.89, and it is 2.20."""
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=2) + 1e-3 * rng.normal(size=(8, 2))).astype(np.float32)
    (truth,) = precise_cosine_magnitudes(rows, [1e5])
    for method in BOTH:
        (estimate,) = magnitude_function(as_points(rows, "cosine"), [1e5], method=method).estimates
        assert estimate.bounds == "estimate"
        assert estimate.lower <= truth <= estimate.upper == 8.0
        (small,) = magnitude_function(as_points(rows, "cosine"), [1e-4], method=method).estimates
        assert small.bounds == "certified"
        assert small.upper <= 1.0002


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 30),
    d=st.integers(1, 8),
    copies=st.integers(0, 10),
    spread=st.floats(-3.0, 1.0),
    scales=st.lists(st.floats(0.05, 100.0), min_size=1, max_size=4, unique=True),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_both_methods_against_a_dense_inverse(
    n: int, d: int, copies: int, spread: float, scales: list[float], metric: Metric, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    unique = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(spread, 1.0, size=(n, 1))
    rows = np.concatenate((unique, unique[rng.integers(n, size=copies)]))
    if metric == "cosine":
        rows = rows * rng.uniform(0.5, 2.0, size=(len(rows), 1))
    order = rng.permutation(len(rows))
    points = as_points(rows[order], metric)
    distinct = find_distinct(points)
    distances = pairwise_distances(rows[order][distinct.rows], metric)
    for method in BOTH:
        function = magnitude_function(points, sorted(scales), method=method)
        assert function.points == len(distances)
        for scale, estimate in zip(sorted(scales), function.estimates, strict=True):
            truth, _, rounding = dense_magnitude(distances, scale)
            if rounding > 1e-6 * truth:
                continue  # the oracle itself is lost there
            assert estimate.lower <= truth + rounding
            if estimate.bounds != "estimate":
                assert estimate.upper >= truth - rounding
            if estimate.method == "cholesky":
                assert estimate.value == pytest.approx(truth, abs=rounding + 1e-9 * truth)
                assert estimate.upper >= truth - rounding


@pytest.mark.parametrize("metric", METRICS)
def test_conjugate_gradients_against_cholesky(metric: Metric) -> None:
    rng = np.random.default_rng(8)
    centres = 3.0 * rng.normal(size=(12, 32))
    n = 1500 if metric == "euclidean" else 700
    rows = centres[rng.integers(12, size=n)] + 0.5 * rng.normal(size=(n, 32))
    points = as_points(rows, metric)
    end = convergence_scale(points).value
    scales = np.linspace(0.0, end, 8)
    exact = magnitude_function(points, scales, method="cholesky")
    found = magnitude_function(points, scales, method="cg")
    for estimate, truth in zip(found.estimates, exact.estimates, strict=True):
        assert truth.bounds == "exact"
        assert estimate.value == pytest.approx(truth.value, rel=7e-4)
        assert estimate.lower <= truth.upper
        assert estimate.upper >= truth.lower
    np.testing.assert_allclose(found.weights, exact.weights, atol=2e-2)
    root = convergence_scale(points, method="cg")
    assert root.value == pytest.approx(end, rel=5e-4)
    assert root.lower <= end <= root.upper


def test_estimated_error_covers_the_true_one() -> None:
    """Over metrics, clusterings and scales, the bracket misses in at most one case in fifty."""
    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        clusters = rng.normal(size=(8, 4))[rng.integers(8, size=300)]
        for rows in (
            rng.uniform(size=(300, 2)),
            3.0 * clusters + 0.1 * rng.normal(size=(300, 4)),
            rng.normal(size=(300, 40)),
            rng.normal(size=(300, 5)) * 10.0 ** rng.uniform(-3, 1, size=(300, 1)),
        ):
            for metric in ("euclidean", "manhattan"):
                points = as_points(rows, metric)
                scales = np.geomspace(0.05, 100.0, 9) / np.median(np.abs(rows).sum(axis=1))
                exact = magnitude_function(points, scales, method="cholesky")
                found = magnitude_function(points, scales, method="cg")
                for estimate, truth in zip(found.estimates, exact.estimates, strict=True):
                    assert truth.method == "cholesky"
                    assert estimate.lower <= truth.upper
                    assert estimate.value == pytest.approx(truth.value, rel=1e-3)
                    covered.append(estimate.upper >= truth.lower)
    assert len(covered) == 4 * 4 * 2 * 9
    assert np.mean(covered) >= 0.98


# --- closed forms and the axioms -------------------------------------------------------------


@pytest.mark.parametrize("method", BOTH)
def test_two_points(method: MagnitudeMethod) -> None:
    scales = [0.0, 1e-3, 0.1, 1.0, 7.0, 200.0]
    function = magnitude_function(as_points([[0.0, 0], [3, 4]], "euclidean"), scales, method=method)
    expected = [two_point_magnitude(scale, 5.0) for scale in scales]
    np.testing.assert_allclose(values(function), expected, rtol=1e-9)
    assert function.estimates[0] == Estimate.exact(1.0, "definition")
    np.testing.assert_allclose(function.weights, 1.0, rtol=1e-9)


@pytest.mark.parametrize("method", BOTH)
def test_points_on_a_line(method: MagnitudeMethod) -> None:
    positions = np.random.default_rng(2).uniform(0, 10, size=120)
    points = as_points(positions[:, None], "manhattan")
    scales = [0.3, 2.0, 30.0]
    function = magnitude_function(points, scales, method=method)
    for scale, estimate in zip(scales, function.estimates, strict=True):
        truth = line_magnitude(positions, scale)
        assert estimate.lower <= truth * (1 + 1e-12)
        assert estimate.value == pytest.approx(truth, rel=3e-4)


@pytest.mark.parametrize("method", BOTH)
def test_one_point(method: MagnitudeMethod) -> None:
    points = as_points([[1.0, 2.0]] * 3, "euclidean")
    function = magnitude_function(points, [0.0, 1.0, 5.0], method=method)
    np.testing.assert_array_equal(values(function), 1.0)
    np.testing.assert_allclose(function.weights, 1.0 / 3.0)
    with pytest.raises(ValueError, match="one distinct point"):
        convergence_scale(points)


def table_area(rows: list[list[float]], scales: np.ndarray) -> float:
    function = magnitude_function(as_points(rows, "manhattan"), scales)
    return magnitude_area(scales, function.estimates).value


def test_counterexample_table() -> None:
    """Table S.1 of Limbeck et al. 2024: absence, twin property, monotonicity."""
    pair = [[1.0], [0.0]]
    cut = convergence_scale(as_points(pair, "manhattan")).value
    assert cut == pytest.approx(math.log(19.0), rel=1e-10)  # 2 / (1 + 1/19) = 1.9
    # The integral of 2 / (1 + exp(-t)) is 2 log((1 + exp(t)) / 2), at log 19 twice log 10.
    fine = table_area(pair, np.linspace(0.0, cut, 400))
    assert fine == pytest.approx(2.0 * math.log(10.0), abs=2e-5)
    scales = np.linspace(0.0, cut, 10)
    area = table_area(pair, scales)
    assert area == pytest.approx(4.6016, abs=5e-5)
    assert table_area([[1.0, 0.0], [0.0, 0.0]], scales) == area
    assert table_area([[1.0], [0.0], [0.0]], scales) == area
    assert table_area([[1.0], [0.0], [0.01]], scales) == pytest.approx(4.6133, abs=5e-5)


def hawkes_pattern(rng: np.random.Generator, size: int) -> np.ndarray:
    """Parents and offspring near them, generation by generation, in the unit square."""
    pattern = list(rng.uniform(size=(size // 4, 2)))
    position = 0
    while len(pattern) < size:
        for _ in range(rng.poisson(2.0)):
            child = pattern[position % len(pattern)] + rng.normal(scale=0.02, size=2)
            if ((child >= 0) & (child <= 1)).all():
                pattern.append(child)
        position += 1
    return np.array(pattern[:size])


@pytest.mark.parametrize("seed", range(3))
def test_point_patterns_are_ordered_by_diversity(seed: int) -> None:
    """Table S.2 of Limbeck et al. 2024: uniform, clustered, two Gaussians, one Gaussian."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.25, 0.25], [0.75, 0.75]])
    patterns = (
        rng.uniform(size=(200, 2)),
        hawkes_pattern(rng, 200),
        centres[np.arange(200) % 2] + rng.normal(scale=0.05, size=(200, 2)),
        0.5 + rng.normal(scale=0.05, size=(200, 2)),
    )
    sets = [as_points(pattern, "euclidean") for pattern in patterns]
    cut = float(np.median([convergence_scale(points).value for points in sets]))
    scales = np.linspace(0.0, cut, 10)
    areas = [magnitude_area(scales, magnitude_function(p, scales).estimates).value for p in sets]
    assert areas == sorted(areas, reverse=True)
    assert areas[0] > 1.1 * areas[1] > 1.2 * areas[3]


def test_equal_directions_count_once() -> None:
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(40, 6))
    scaled = np.concatenate((rows, 3.0 * rows[:10])).astype(np.float32)
    single = magnitude_function(as_points(rows.astype(np.float32), "cosine"), [1.0, 4.0])
    double = magnitude_function(as_points(scaled, "cosine"), [1.0, 4.0])
    np.testing.assert_allclose(values(double), values(single), rtol=1e-6)
    assert double.points == 40
    np.testing.assert_allclose(double.weights[:10], single.weights[:10] / 2.0, rtol=1e-5)
    np.testing.assert_array_equal(double.weights[40:], double.weights[:10])
    assert double.weights.sum() == pytest.approx(double.estimates[-1].value)


def test_a_far_row_leaves_the_bracket_narrow() -> None:
    line = np.append(np.sort(np.random.default_rng(0).random(299)), 1e9)
    [found] = magnitude_function(as_points(line[:, None], "euclidean"), [1200.0]).estimates
    assert found.lower <= 1.0 + np.tanh(600.0 * np.diff(line)).sum() <= found.upper
    assert found.upper - found.lower < 1e-3


def test_at_an_infinite_scale_every_row_counts() -> None:
    rows = np.random.default_rng(0).random((4100, 2))
    found = magnitude_function(as_points(rows, "euclidean"), [1e39])
    assert found.estimates[0].value == 4100


def test_weights_are_in_input_order() -> None:
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(50, 3))
    order = rng.permutation(50)
    for method in BOTH:
        plain = magnitude_function(as_points(rows, "euclidean"), [0.5, 2.0], method=method)
        mixed = magnitude_function(as_points(rows[order], "euclidean"), [0.5, 2.0], method=method)
        np.testing.assert_allclose(mixed.weights, plain.weights[order], atol=1e-4)
    _, weights, _ = dense_magnitude(pairwise_distances(rows, "euclidean"), 2.0)
    exact = magnitude_function(as_points(rows, "euclidean"), [2.0])
    np.testing.assert_allclose(exact.weights, weights, rtol=1e-9)


# --- hard cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", BOTH)
def test_few_near_duplicates_leave_the_convergence_scale(method: MagnitudeMethod) -> None:
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(576, 8))
    copies = rows[:24] + 1e-5 * rng.normal(size=(24, 8))
    points = as_points(np.concatenate((rows, copies)), "euclidean")
    # With 4 % of near-duplicates 570 of 600 points is 570 of the 576 that are told apart.
    alone = convergence_scale(as_points(rows, "euclidean"), target=570 / 576)
    found = convergence_scale(points, method=method)
    assert found.value == pytest.approx(alone.value, rel=1e-2)
    assert find_distinct(points).duplicates == 0


def test_many_near_duplicates_have_a_huge_convergence_scale() -> None:
    rng = np.random.default_rng(12)
    rows = rng.normal(size=(100, 8))
    points = as_points(np.concatenate((rows, rows[:50] + 1e-5)), "euclidean")
    for method in BOTH:
        found = convergence_scale(points, method=method)
        # 50 pairs at distance δ = 1e-5 √8 and 50 single points: 50 + 100 / (1 + e^{-tδ}) = 142.5.
        expected = math.log(92.5 / 7.5) / (1e-5 * math.sqrt(8.0))
        assert found.value == pytest.approx(expected, rel=1e-3)
        assert found.lower <= expected * (1 + 1e-6)
        assert found.upper >= expected * (1 - 1e-6)


def test_a_scale_too_small_to_factorise_is_left_to_cg() -> None:
    rng = np.random.default_rng(13)
    points = as_points(rng.uniform(size=(100, 2)), "cosine")
    function = magnitude_function(points, [1e-3, 1e12], method="cholesky")
    first, last = function.estimates
    assert first.method == "cg"
    assert 1.0 <= first.lower <= 1.00100025
    assert last.method == "cholesky"
    assert function.products > 0


def test_without_convergence_the_bracket_reaches_to_n(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(14)
    points = as_points(rng.uniform(size=(300, 2)), "euclidean")
    exact = magnitude_function(points, [0.5, 5.0], method="cholesky")
    monkeypatch.setattr(conjugate_gradients, "most_products", lambda n: 6)
    found = magnitude_function(points, [0.5, 5.0], method="cg")
    assert found.products == 7
    for estimate, truth in zip(found.estimates, exact.estimates, strict=True):
        assert truth.value * 1.01 < estimate.upper <= 300.0
        assert 0.8 * truth.value < estimate.lower <= truth.upper


def test_block_size_and_kept_distances_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(15)
    points = as_points(rng.normal(size=(250, 10)), "euclidean")
    whole = magnitude_function(points, [0.1, 0.2, 0.3], method="cg")
    again = magnitude_function(points, [0.1, 0.2, 0.3], method="cg", kept_bytes=0)
    assert whole.estimates == again.estimates
    monkeypatch.setattr(exponentials, "PANEL_ROWS", 36)
    monkeypatch.setattr(exponentials, "PANEL_COLUMNS", 37)
    for kept_bytes in (0, 10 * 8 * 37**2, 2**20):
        pieces = magnitude_function(points, [0.1, 0.2, 0.3], method="cg", kept_bytes=kept_bytes)
        # Another order of sums may cost a step more or less. Weights are known to 0.012.
        np.testing.assert_allclose(values(pieces), values(whole), rtol=1e-5)
        np.testing.assert_allclose(pieces.weights, whole.weights, atol=1e-3)


@pytest.mark.parametrize("method", BOTH)
def test_other_targets(method: MagnitudeMethod) -> None:
    points = as_points(np.random.default_rng(16).normal(size=(400, 6)), "manhattan")
    for target in (0.02, 0.5, 0.999):
        found = convergence_scale(points, target=target, method=method)
        reached = magnitude_function(points, [found.value], method="cholesky").estimates[0]
        assert reached.value == pytest.approx(400 * target, rel=1e-3)


def test_unresolvable_points_have_no_convergence_scale() -> None:
    rows = np.concatenate((np.zeros((30, 1)), np.arange(1.0, 31.0)[:, None] * 1e-250, [[1.0]]))
    points = as_points(rows, "euclidean")
    assert magnitude_function(points, [1.0]).points == 32
    for method in BOTH:
        with pytest.raises(ValueError, match="no finite scale separates"):
            convergence_scale(points, method=method)


def test_a_set_at_the_origin() -> None:
    function = magnitude_function(as_points([[0.0], [1.0]], "euclidean"), [0.0])
    assert values(function).tolist() == [1.0]
    np.testing.assert_array_equal(function.weights, 0.5)


# --- integrals and input ---------------------------------------------------------------------


def test_area_and_difference_carry_their_brackets() -> None:
    scales = np.array([0.0, 1.0, 3.0])
    estimates = (
        Estimate.exact(1.0, "definition"),
        Estimate(2.0, 1.9, 2.2, "estimate", "cg"),
        Estimate(4.0, 3.8, 4.1, "exact", "cholesky"),
    )
    area = magnitude_area(scales, estimates)
    assert (area.value, area.lower, area.upper) == pytest.approx((7.5, 7.15, 7.9))
    assert area.bounds == "estimate"
    assert area.method == "cg+cholesky"
    function = MagnitudeFunction(scales, estimates, np.ones(4), 4, 0)
    ones = tuple(Estimate.exact(1.0, "cholesky") for _ in scales)
    difference = magnitude_difference(function, MagnitudeFunction(scales, ones, np.ones(1), 1, 0))
    assert (difference.value, difference.lower, difference.upper) == pytest.approx((4.5, 4.15, 4.9))
    other = MagnitudeFunction(scales + 1.0, ones, np.ones(1), 1, 0)
    with pytest.raises(ValueError, match="different scales"):
        magnitude_difference(function, other)
    with pytest.raises(ValueError, match="two scales"):
        magnitude_area([1.0], ones[:1])
    with pytest.raises(ValueError, match="3 scales but 1"):
        magnitude_area(scales, ones[:1])


def test_areas_carry_the_bracket_of_their_cut_off_scale() -> None:
    scales = np.array([0.0, 1.0, 3.0])
    estimates = (
        Estimate.exact(1.0, "definition"),
        Estimate(2.0, 1.9, 2.2, "exact", "cholesky"),
        Estimate(4.0, 3.8, 4.1, "exact", "cholesky"),
    )
    cut = Estimate(3.0, 2.9, 3.2, "certified", "cg")
    area = magnitude_area(scales, estimates, cut=cut, points=5)
    assert (area.value, area.lower, area.upper) == pytest.approx((7.5, 6.65, 8.9))
    assert area.bounds == "certified"
    five = MagnitudeFunction(scales, estimates, np.ones(5), 5, 0)
    two = MagnitudeFunction(scales, (Estimate.exact(1.0, "cholesky"),) * 3, np.ones(2), 2, 0)
    difference = magnitude_difference(five, two, cut=cut)
    # The difference of the magnitudes lies between 1 - 2 and 5 - 1.
    assert (difference.lower, difference.upper) == pytest.approx((4.15 - 0.4, 4.9 + 0.8))
    assert magnitude_difference(two, five, cut=cut).lower == -difference.upper
    with pytest.raises(ValueError, match="not the cut-off scale 4"):
        magnitude_area(scales, estimates, cut=Estimate.exact(4.0, "cg"), points=5)
    with pytest.raises(ValueError, match="number of distinct points"):
        magnitude_area(scales, estimates, cut=cut)


def check_area_up_to(seed: int, method: MagnitudeMethod) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(rng.integers(5, 80), rng.integers(1, 6)))
    points = as_points(rows, "euclidean")
    truth = convergence_scale(points, method="cholesky").value
    found = convergence_scale(points, method=method)
    # A cut-off scale as imprecise as one from subsets, anywhere in its bracket.
    low, high = found.lower * rng.uniform(0.8, 1.0), found.upper * rng.uniform(1.0, 1.2)
    cut = Estimate(rng.uniform(low, high), low, high, "estimate", "subsample")
    function, exact = (
        magnitude_function(points, np.linspace(0.0, end, 20)) for end in (cut.value, truth)
    )
    area = magnitude_area(function.scales, function.estimates, cut=cut, points=len(rows))
    assert area.lower <= magnitude_area(exact.scales, exact.estimates).value <= area.upper


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("seed", range(4))
def test_the_area_up_to_the_true_scale_is_inside(seed: int, method: MagnitudeMethod) -> None:
    check_area_up_to(seed, method)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 200))
def test_more_areas_up_to_the_true_scale(seed: int) -> None:
    check_area_up_to(seed, "cg" if seed % 2 else "cholesky")


@pytest.mark.parametrize("shape", ["embeddings", "plane", "near-duplicates"])
def test_the_error_of_the_trapezium_rule(shape: str) -> None:
    rng = np.random.default_rng(17)
    rows = rng.uniform(size=(200, 20 if shape == "embeddings" else 2))
    if shape == "near-duplicates":
        rows[100:] = rows[0] + 1e-3 * rng.normal(size=(100, 2))
    points = as_points(rows, "euclidean")
    end = convergence_scale(points).value
    fine = np.linspace(0.0, end, 19 * 16 + 1)
    function = values(magnitude_function(points, fine))
    error = trapezium_error(fine[::16], function[::16])
    integral = np.trapezoid(function, fine)
    assert error is not None
    assert abs(np.trapezoid(function[::16], fine[::16]) - integral) <= error < 0.03 * integral
    assert trapezium_error([0.0, 1.0], [1.0, 2.0]) is None
    assert trapezium_error([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]) == 0.0


def test_dimension_profile_of_two_points() -> None:
    """Mag = 2 / (1 + e^{-t}) grows like t to the power t / (1 + e^t)."""
    scales = np.geomspace(0.05, 20.0, 200)
    function = magnitude_function(as_points([[0.0], [1.0]], "euclidean"), scales)
    profile = magnitude_dimension(scales, function.estimates)
    expected = scales / (1.0 + np.exp(scales))
    np.testing.assert_allclose([p.value for p in profile][1:-1], expected[1:-1], atol=1e-4)
    rising = slice(1, int(expected.argmax()) - 1)
    for estimate, truth in zip(profile[rising], expected[rising], strict=True):
        assert estimate.lower <= truth <= estimate.upper
        assert estimate.bounds == "estimate"


def test_dimension_profile_of_a_line() -> None:
    """Many points on a line look one-dimensional at scales between their gaps and their extent."""
    points = as_points(np.arange(1000.0)[:, None], "euclidean")
    scales = np.geomspace(0.05, 0.2, 5)
    profile = magnitude_dimension(scales, magnitude_function(points, scales).estimates)
    for estimate in profile[1:-1]:
        assert estimate.value == pytest.approx(1.0, abs=0.05)


def test_dimension_profile_carries_its_brackets() -> None:
    estimates = (
        Estimate(2.0, 1.9, 2.1, "certified", "cg"),
        Estimate(4.0, 3.9, 4.2, "certified", "cg"),
        Estimate(8.0, 7.0, 8.0, "certified", "cg"),
    )
    profile = magnitude_dimension([1.0, 2.0, 4.0], estimates)
    assert [estimate.value for estimate in profile] == pytest.approx([1.0, 1.0, 1.0])
    log2 = math.log(2.0)
    assert profile[0].lower == pytest.approx(math.log(3.9 / 2.1) / log2)
    assert profile[1].lower == pytest.approx(math.log(7.0 / 4.2) / log2)
    assert profile[1].upper == pytest.approx(math.log(4.2 / 1.9) / log2)
    with pytest.raises(ValueError, match="all above 0"):
        magnitude_dimension([0.0, 1.0, 2.0], estimates)
    with pytest.raises(ValueError, match="2 scales but 3"):
        magnitude_dimension([1.0, 2.0], estimates)


@pytest.mark.parametrize("scales", [[], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [np.inf], [[1.0]]])
def test_bad_scales_are_refused(scales: list[float]) -> None:
    with pytest.raises(ValueError, match="scales must be"):
        magnitude_function(as_points(np.eye(3), "euclidean"), scales)


def test_bad_arguments_are_refused() -> None:
    points = as_points(np.eye(3), "euclidean")
    with pytest.raises(ValueError, match="unknown magnitude method 'lu'"):
        magnitude_function(points, [1.0], method="lu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance"):
        magnitude_function(points, [1.0], tolerance=0.0)
    for target in (1.0, 1.5, 1.0 / 3.0, 0.0, math.nan):
        with pytest.raises(ValueError, match="target share must lie between"):
            convergence_scale(points, target=target)


def test_an_area_is_at_least_that_of_a_magnitude_of_one() -> None:
    """Where the cut-off scale is only known within a wide bracket, as of rows that lie far away."""
    scales = np.linspace(0.0, 10.0, 5)
    estimates = [Estimate.exact(value, "cholesky") for value in (1.0, 40.0, 70.0, 90.0, 100.0)]
    cut = Estimate(10.0, 4.0, 30.0, "estimate", "cholesky")
    area = magnitude_area(scales, estimates, cut=cut, points=300)
    assert area.value == pytest.approx(np.trapezoid([1.0, 40.0, 70.0, 90.0, 100.0], scales))
    assert area.lower == 4.0
    near = Estimate(10.0, 9.9, 10.1, "estimate", "cholesky")
    assert magnitude_area(scales, estimates, cut=near, points=300).lower > 0.9 * area.value
