import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_digits

from latentscale.tiles.distances import as_points
from latentscale.vendi.kernels import METRIC_OF_KERNEL
from latentscale.vendi.scores import (
    Spectrum,
    hill_number,
    kernel_spectrum,
    moment_spectrum,
    nystrom_spectrum,
    order_name,
    sufficient_precision,
    vendi_bracket,
    vendi_score,
)
from latentscale.vendi.second_moments import SecondMoment, merge_moments, second_moment
from tests import DATA, oracles

REFERENCE = json.loads((DATA / "vendi_reference.json").read_text())

ORDERS = [0.0, 0.1, 0.5, 0.999, 1.0, 1.001, 2.0, 5.0, math.inf]
KERNELS = [("cosine", None), ("rbf", 0.8), ("laplacian", 1.5)]

# Unit directions in general position, or repeated; never zero.
ROWS = st.tuples(st.integers(1, 12), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-3, 3))
)


def spectrum_of(vectors, kernel, bandwidth=None, weights=None):
    points = as_points(vectors, METRIC_OF_KERNEL[kernel])
    return kernel_spectrum(points, kernel, bandwidth, weights)


def scores(spectrum, orders=ORDERS):
    return [vendi_score(spectrum, order).value for order in orders]


# --- published values -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


@pytest.fixture(scope="module")
def digits_spectra(digits):
    return {
        "moments": moment_spectrum(second_moment(digits), len(digits)),
        "cosine": spectrum_of(digits, "cosine"),
        "rbf": spectrum_of(digits, "rbf", REFERENCE["rbf"]["bandwidth"]),
    }


@pytest.mark.parametrize(
    ("route", "values"), [("moments", "cosine"), ("cosine", "cosine"), ("rbf", "rbf")]
)
def test_digits(digits_spectra, route, values):
    spectrum, expected = digits_spectra[route], REFERENCE[values]
    np.testing.assert_allclose(
        spectrum.eigenvalues[:8], expected["largest_eigenvalues"], rtol=1e-11
    )
    for name, value in expected["exact"].items():
        order = float(name)
        assert order_name(order) == name
        assert vendi_score(spectrum, order).value == pytest.approx(value, rel=1e-11)
    assert vendi_score(spectrum, 0).value == expected["rank"]


@pytest.mark.parametrize("route", ["moments", "cosine"])
def test_small_orders_do_not_count_rounding_noise(digits_spectra, route):
    noise = REFERENCE["cosine"]["counting_noise"]
    value = vendi_score(digits_spectra[route], float(noise["order"])).value
    assert value == pytest.approx(45.338, abs=1e-3)
    assert noise["float64"] > value + 25
    assert noise["float32"] > value + 200


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8])
def test_digits_do_not_depend_on_their_type(digits, digits_spectra, dtype):
    spectrum = moment_spectrum(second_moment(digits.astype(dtype)), len(digits))
    assert scores(spectrum) == scores(digits_spectra["moments"])


def test_two_points_and_a_duplicate():
    # exp of the entropy of (1 +- exp(-1)) / 2, and with one of the points twice.
    assert vendi_score(spectrum_of([[1.0], [0.0]], "laplacian", 1.0), 1).value == pytest.approx(
        1.8661, abs=5e-5
    )
    assert vendi_score(
        spectrum_of([[1.0], [0.0], [0.0]], "laplacian", 1.0), 1
    ).value == pytest.approx(1.7727, abs=5e-5)


# --- dense kernels --------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "bandwidth"), KERNELS)
@pytest.mark.parametrize("order", ORDERS)
def test_scores_equal_those_of_the_plain_matrix(kernel, bandwidth, order):
    generator = np.random.default_rng(0)
    vectors, weights = generator.normal(size=(30, 12)), generator.uniform(0.1, 3, size=30)
    matrix = oracles.kernel_matrix(vectors, kernel, bandwidth)
    uniform = vendi_score(spectrum_of(vectors, kernel, bandwidth), order)
    weighted = vendi_score(spectrum_of(vectors, kernel, bandwidth, weights), order)
    plain = oracles.vendi_score(matrix, np.full(30, 1 / 30), order)
    assert (uniform.bounds, uniform.method) == ("exact", "exact")
    assert uniform.lower <= plain * (1 + 1e-12)
    assert plain * (1 - 1e-12) <= uniform.upper
    assert uniform.value == pytest.approx(plain, rel=1e-9)
    plain_weighted = oracles.vendi_score(matrix, weights / weights.sum(), order)
    assert weighted.value == pytest.approx(plain_weighted, rel=1e-9)


def test_matrices_larger_than_a_tile():
    vectors = np.random.default_rng(1).normal(size=(1100, 2))
    squared = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)
    eigenvalues = np.linalg.eigvalsh(np.exp(-squared / (2 * 0.3**2)) / 1100)[::-1]
    spectrum = spectrum_of(vectors, "rbf", 0.3)
    np.testing.assert_allclose(spectrum.eigenvalues, np.maximum(eigenvalues, 0), atol=1e-15)
    assert spectrum.eigenvalues.sum() == pytest.approx(1, abs=1e-14)
    assert spectrum.size == 1100


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_a_far_origin_adds_no_noise(kernel):
    # Seven distinct rows far from the origin, each many times: the rank stays seven.
    distinct = np.random.default_rng(2).integers(0, 9, size=(7, 16)).astype(float)
    vectors = np.repeat(distinct, 40, axis=0) + 2.0**20
    spectrum = spectrum_of(vectors, kernel, 3.0)
    assert vendi_score(spectrum, 0).value == 7
    near = spectrum_of(np.repeat(distinct, 40, axis=0), kernel, 3.0)
    assert scores(spectrum) == pytest.approx(scores(near), rel=1e-9)


# --- second moments -------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_the_moment_and_the_dense_route_agree(order):
    generator = np.random.default_rng(3)
    vectors, weights = generator.normal(size=(50, 9)), generator.uniform(0, 2, size=50)
    for masses in (None, weights):
        moment = moment_spectrum(second_moment(vectors, masses), 50)
        dense = spectrum_of(vectors, "cosine", None, masses)
        assert vendi_score(moment, order).value == pytest.approx(
            vendi_score(dense, order).value, rel=1e-11
        )


def test_a_moment_is_the_sum_of_outer_products():
    vectors, weights = [[3.0, 4.0], [0.0, 2.0]], [1.0, 3.0]
    moment = second_moment(vectors, weights)
    assert moment.total == 4.0
    np.testing.assert_allclose(moment.matrix, [[0.36, 0.48], [0.48, 3.64]], rtol=1e-15)
    assert second_moment(vectors).total == 2.0


def test_merged_moments_equal_the_whole():
    generator = np.random.default_rng(4)
    vectors, weights = generator.normal(size=(9000, 6)), generator.uniform(0, 2, size=9000)
    bounds = [0, 1, 100, 4096, 5000, 9000]
    for masses in (None, weights):
        whole = second_moment(vectors, masses)
        parts = [
            second_moment(vectors[a:b], None if masses is None else masses[a:b])
            for a, b in itertools.pairwise(bounds)
        ]
        merged = merge_moments(parts)
        assert merged.total == pytest.approx(whole.total, rel=1e-15)
        np.testing.assert_allclose(merged.matrix, whole.matrix, rtol=1e-12, atol=1e-10)
        assert (merge_moments(parts).matrix == merged.matrix).all()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(second_moment(vectors).matrix, unit.T @ unit, rtol=1e-11, atol=1e-11)


# --- single precision -----------------------------------------------------------------------


def rows_with_a_decay(n, d, decay, dtype=np.float32, seed=6):
    generator = np.random.default_rng(seed)
    turn = np.linalg.qr(generator.normal(size=(d, d)))[0]
    scales = np.arange(1, d + 1) ** -decay
    return (generator.normal(size=(n, d)) * scales @ turn).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_error_of_single_precision_is_bounded(dtype):
    vectors = rows_with_a_decay(20_000, 48, 0.5, dtype)
    weights = np.random.default_rng(7).uniform(0, 3, size=len(vectors))
    for masses in (None, weights):
        single = second_moment(vectors, masses, precision="single")
        double = second_moment(vectors, masses)
        assert double.rounding.error == 0
        assert 0 < np.linalg.norm(single.matrix - double.matrix) < single.rounding.error
        assert single.rounding.error < 1e-6 * single.total
        truth, spectrum = moment_spectrum(double, 20_000), moment_spectrum(single, 20_000)
        for order in ORDERS:
            exact, estimate = vendi_score(truth, order), vendi_score(spectrum, order)
            assert estimate.value == pytest.approx(exact.value, rel=1e-7)
            assert estimate.lower <= exact.value <= estimate.upper
            assert estimate.upper - estimate.lower < 1e-5 * estimate.value


def test_merged_moments_know_their_rounding():
    vectors = rows_with_a_decay(9000, 8, 0)
    parts = [second_moment(part, precision="single") for part in (vectors[:5000], vectors[5000:])]
    whole = merge_moments(parts)
    assert whole.rounding == parts[0].rounding + parts[1].rounding
    assert whole.rounding.checked == 2
    exact = second_moment(vectors).matrix
    assert 0 < np.linalg.norm(whole.matrix - exact) < whole.rounding.error


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
    st.integers(-12, -2),
    st.sampled_from(ORDERS),
)
def test_brackets_hold_whatever_an_error_did(masses, seed, size, order):
    assume(sum(masses) > 0)
    truth = np.sort(np.array(masses, dtype=float))[::-1] ** 3
    truth /= truth.sum()
    error = 10.0**size
    moved = np.random.default_rng(seed).normal(size=len(truth))
    moved *= error / np.linalg.norm(moved)
    seen = np.maximum(np.sort(truth + moved)[::-1], 0.0)
    seen /= seen.sum()
    spectrum = Spectrum(seen, 2 * error, 10**6, 2 * error * math.sqrt(len(truth)))
    estimate = vendi_score(spectrum, order)
    exact = hill_number(truth[truth > 0], order)
    assert estimate.lower <= exact * (1 + 1e-12)
    assert exact * (1 - 1e-12) <= estimate.upper


def test_single_precision_is_taken_where_it_suffices(digits):
    full = rows_with_a_decay(60_000, 64, 0.3)
    assert sufficient_precision(full, ORDERS, 10**6) == "single"
    steep = rows_with_a_decay(6000, 64, 4.0)
    assert sufficient_precision(steep, [0.1], 10**6) == "double"
    # 61 of the 64 pixels are ever used: the rank is nobody's in single precision.
    assert sufficient_precision(digits, [0.0], 10**6) == "double"
    assert sufficient_precision(digits, [2.0, math.inf], 10**6) == "single"


def test_rows_of_extreme_lengths_have_directions():
    vectors = np.array([[3e-200, 4e-200], [3e150, 4e150], [6e-324, 0.0]])
    expected = [[0.72 + 1, 0.96], [0.96, 1.28]]
    np.testing.assert_allclose(second_moment(vectors).matrix, expected, rtol=1e-14)
    halves = np.array([[6e-8, 6e-8], [65504, 0]], dtype=np.float16)
    np.testing.assert_allclose(second_moment(halves).matrix, [[1.5, 0.5], [0.5, 0.5]], rtol=1e-14)


def test_a_bad_row_in_a_later_block_is_named():
    vectors = np.ones((5000, 2), dtype=np.float32)
    vectors[4500] = 0
    with pytest.raises(ValueError, match="row 4500 is zero"):
        second_moment(vectors)
    vectors[4500, 0] = np.nan
    with pytest.raises(ValueError, match="row 4500 has a NaN"):
        second_moment(vectors, precision="single")


def test_merging_leaves_its_parts_alone():
    parts = [second_moment(np.eye(3)) for _ in range(3)]
    merged = merge_moments(parts)
    merged.matrix[:] = 7
    assert all((part.matrix == np.eye(3)).all() for part in parts)


def test_a_long_sum_of_low_rank_keeps_its_rank():
    generator = np.random.default_rng(5)
    plane = generator.normal(size=(8, 40))
    parts = [second_moment(generator.normal(size=(5000, 8)) @ plane) for _ in range(20)]
    spectrum = moment_spectrum(merge_moments(parts), 100_000)
    assert vendi_score(spectrum, 0).value == 8


@pytest.mark.parametrize("kernel", ["cosine", "moments"])
def test_the_rank_of_a_rank_eight_kernel_is_eight(kernel):
    generator = np.random.default_rng(6)
    vectors = generator.normal(size=(300, 8)) @ generator.normal(size=(8, 50))
    spectrum = (
        moment_spectrum(second_moment(vectors), 300)
        if kernel == "moments"
        else spectrum_of(vectors, "cosine")
    )
    assert vendi_score(spectrum, 0).value == 8


# --- theory ---------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.sampled_from(ORDERS))
def test_completely_dissimilar_groups_give_hill_numbers(sizes, order):
    # Theorem 4.1: the eigenvalues are the prevalences.
    labels = np.repeat(np.arange(len(sizes)), sizes)
    prevalence = np.array(sizes) / sum(sizes)
    expected = oracles.hill_number(prevalence, order)
    directions = np.eye(len(sizes))[labels]
    apart = labels[:, None] * 1e4
    for spectrum in (
        moment_spectrum(second_moment(directions), len(labels)),
        spectrum_of(directions, "cosine"),
        spectrum_of(apart, "rbf", 1.0),
        spectrum_of(apart, "laplacian", 1.0),
    ):
        assert vendi_score(spectrum, order).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 57])
def test_identical_rows_count_as_one(n):
    vectors = np.tile(np.random.default_rng(7).normal(size=5), (n, 1))
    for spectrum in (
        moment_spectrum(second_moment(vectors), n),
        *(spectrum_of(vectors, kernel, bandwidth) for kernel, bandwidth in KERNELS),
    ):
        assert scores(spectrum) == pytest.approx([1.0] * len(ORDERS), abs=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ROWS, st.sampled_from(KERNELS))
def test_scores_fall_with_the_order_and_bound_each_other(vectors, kernel_and_bandwidth):
    kernel, bandwidth = kernel_and_bandwidth
    assume(vectors.any(axis=1).all())
    spectrum = spectrum_of(vectors, kernel, bandwidth)
    values = scores(spectrum)
    assert all(a >= b * (1 - 1e-12) for a, b in itertools.pairwise(values))
    assert values[-1] >= 1 - 1e-12
    assert values[0] <= len(vectors)
    two, largest = values[ORDERS.index(2.0)], values[-1]
    assert math.sqrt(two) <= largest * (1 + 1e-12)
    assert largest <= two * (1 + 1e-12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(ROWS, st.data())
def test_weights_equal_repeated_rows(vectors, data):
    assume(vectors.any(axis=1).all())
    counts = data.draw(arrays(np.int64, len(vectors), elements=st.integers(1, 4)))
    repeated = np.repeat(vectors, counts, axis=0)
    for kernel, bandwidth in KERNELS:
        weighted = spectrum_of(vectors, kernel, bandwidth, counts)
        assert scores(weighted) == pytest.approx(
            scores(spectrum_of(repeated, kernel, bandwidth)), rel=1e-8
        )
    weighted = moment_spectrum(second_moment(vectors, counts), len(vectors))
    whole = moment_spectrum(second_moment(repeated), len(repeated))
    assert scores(weighted) == pytest.approx(scores(whole), rel=1e-8)


def test_rows_without_weight_do_not_count():
    vectors = np.random.default_rng(8).normal(size=(10, 4))
    weights = [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for kernel, bandwidth in KERNELS:
        padded = spectrum_of(vectors, kernel, bandwidth, weights)
        assert scores(padded) == pytest.approx(
            scores(spectrum_of(vectors[:4], kernel, bandwidth, weights[:4])), rel=1e-9
        )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=20),
    st.floats(0, 300) | st.floats(0.8, 1.2) | st.sampled_from(ORDERS),
)
def test_hill_numbers_lie_between_one_and_the_count(masses, order):
    proportions = np.array(masses) / math.fsum(masses)
    value = hill_number(proportions, order)
    assert 1 - 1e-9 <= value <= len(masses) * (1 + 1e-9)
    if abs(order - 1) > 1e-3 and order < 20:
        assert value == pytest.approx(oracles.hill_number(proportions, order), rel=1e-9)


def test_hill_numbers_are_continuous_at_one():
    proportions = np.array([0.5, 0.3, 0.15, 0.05])
    limit = oracles.hill_number(proportions, 1)
    for step in (1e-4, 1e-8, 1e-12, 1e-15):
        assert hill_number(proportions, 1 + step) == pytest.approx(limit, abs=2 * step + 1e-13)
        assert hill_number(proportions, 1 - step) == pytest.approx(limit, abs=2 * step + 1e-13)


def test_large_orders_reach_the_limit():
    proportions = np.array([0.02] * 50)
    assert hill_number(proportions, 1e6) == pytest.approx(50, rel=1e-9)
    proportions = np.array([0.4, 0.3, 0.3])
    assert hill_number(proportions, 1e9) == pytest.approx(2.5, rel=1e-6)


# --- Nyström brackets -----------------------------------------------------------------------


def nystrom_of(vectors, kernel, bandwidth, landmarks, seed=0):
    points = as_points(vectors, METRIC_OF_KERNEL[kernel])
    return nystrom_spectrum(points, kernel, bandwidth, landmarks, np.random.default_rng(seed))


def assert_bracketed(nystrom, spectrum, orders=ORDERS):
    for order in orders:
        dense, bracket = vendi_score(spectrum, order), vendi_bracket(nystrom, order)
        assert bracket.lower <= dense.upper, order
        assert dense.lower <= bracket.upper, order
        if order >= 0.5:
            # Smaller orders count eigenvalues that the dense value leaves out.
            assert bracket.lower * (1 - 1e-9) <= dense.value <= bracket.upper * (1 + 1e-9), order
        word = ("exact", "exact") if order == 2 else ("certified", "nystrom")
        assert (bracket.bounds, bracket.method) == word
        if order == 2:
            assert bracket.value == pytest.approx(dense.value, rel=1e-10)


BRACKET_ORDERS = [0.0, 0.1, 0.5, 0.9, 1.0, 1.0001, 1.5, 2.0, 2.5, 7.0, math.inf]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    ROWS,
    st.sampled_from([*KERNELS, ("rbf", 5.0), ("rbf", 0.1), ("rbf", 100.0), ("laplacian", 50.0)]),
    st.data(),
)
def test_brackets_contain_the_dense_score(vectors, kernel_and_bandwidth, data):
    kernel, bandwidth = kernel_and_bandwidth
    assume(vectors.any(axis=1).all())
    landmarks = data.draw(st.integers(1, len(vectors)))
    nystrom = nystrom_of(vectors, kernel, bandwidth, landmarks, data.draw(st.integers(0, 99)))
    assert_bracketed(nystrom, spectrum_of(vectors, kernel, bandwidth), BRACKET_ORDERS)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6),
    st.integers(20, 90),
    st.integers(1, 12),
    st.sampled_from(["rbf", "laplacian", "cosine"]),
    st.floats(-2, 2),
    st.floats(0, 1),
    st.floats(0, 1e3),
)
def test_brackets_contain_the_dense_score_of_clusters(seed, n, d, kernel, width, share, offset):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(4, d)) * 3 + offset
    vectors = centres[generator.integers(0, 4, size=n)] + generator.normal(size=(n, d))
    bandwidth = None if kernel == "cosine" else 10.0**width
    landmarks = 1 + round(share * (n - 1))
    nystrom = nystrom_of(vectors, kernel, bandwidth, landmarks, seed + 1)
    assert_bracketed(nystrom, spectrum_of(vectors, kernel, bandwidth), BRACKET_ORDERS)


@pytest.mark.parametrize("landmarks", [50, 400, 1000])
def test_brackets_on_digits(digits, digits_spectra, landmarks):
    nystrom = nystrom_of(digits, "rbf", 20.0, landmarks)
    assert len(nystrom.landmarks) == len(set(nystrom.landmarks.tolist())) == landmarks
    assert_bracketed(nystrom, digits_spectra["rbf"])
    true = digits_spectra["rbf"].eigenvalues
    assert (nystrom.eigenvalues <= true[: len(nystrom.eigenvalues)] + 1e-14).all()
    assert nystrom.norm.squares == pytest.approx((true**2).sum(), rel=1e-12)
    assert nystrom.lost_trace == pytest.approx(1 - nystrom.eigenvalues.sum(), abs=1e-15)


def test_more_landmarks_give_narrower_brackets(digits, digits_spectra):
    for order, promised in ((0.5, 0.5), (1.0, 0.4), (3.0, 0.08), (math.inf, 0.02)):
        exact = vendi_score(digits_spectra["rbf"], order).value
        brackets = [
            vendi_bracket(nystrom_of(digits, "rbf", 20.0, landmarks), order)
            for landmarks in (100, 400, 1000)
        ]
        widths = [bracket.upper - bracket.lower for bracket in brackets]
        assert widths == sorted(widths, reverse=True)
        assert widths[-1] < promised * exact
        assert brackets[-1].value == pytest.approx(exact, rel=0.12)


def test_all_rows_as_landmarks_leave_nothing_open():
    vectors = np.random.default_rng(9).normal(size=(60, 5))
    spectrum = spectrum_of(vectors, "rbf", 1.0)
    nystrom = nystrom_of(vectors, "rbf", 1.0, 60)
    assert nystrom.lost_trace < 1e-11
    for order in (0.5, 1.0, 1.5, 5.0, math.inf):
        bracket = vendi_bracket(nystrom, order)
        assert bracket.upper - bracket.lower < 1e-8 * bracket.value
        assert bracket.value == pytest.approx(vendi_score(spectrum, order).value, rel=1e-8)


def test_the_projection_sees_a_low_rank_whole():
    generator = np.random.default_rng(10)
    vectors = generator.normal(size=(300, 8)) @ generator.normal(size=(8, 50))
    nystrom = nystrom_of(vectors, "cosine", None, 20)
    rank = vendi_bracket(nystrom, 0)
    # The rounding of the similarities may be more directions.
    assert rank.lower == pytest.approx(8, rel=1e-9)
    assert rank.upper == pytest.approx(300, rel=1e-9)
    assert vendi_bracket(nystrom, 1).value == pytest.approx(
        vendi_score(spectrum_of(vectors, "cosine"), 1).value, rel=1e-9
    )


def test_squares_of_more_rows_than_a_tile():
    vectors = np.random.default_rng(11).normal(size=(1300, 2))
    squared = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)
    nystrom = nystrom_of(vectors, "laplacian", 0.7, 3)
    expected = np.exp(-2 * np.sqrt(squared) / 0.7).mean()
    assert nystrom.norm.squares == pytest.approx(expected, rel=1e-12)
    assert vendi_bracket(nystrom, 2).value == pytest.approx(1 / expected, rel=1e-12)


@pytest.mark.parametrize("landmarks", [0, -1, 4])
def test_landmarks_are_rows(landmarks):
    with pytest.raises(ValueError, match=f"from 1 to the 3 rows, got {landmarks}"):
        nystrom_of(np.eye(3), "rbf", 1.0, landmarks)


# --- names and bad input --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "name"),
    [
        (0, "0"),
        (0.1, "0.1"),
        (0.5, "0.5"),
        (1, "1"),
        (1.0, "1"),
        (2, "2"),
        (10.0, "10"),
        (1.25, "1.25"),
        (math.inf, "inf"),
        (np.float64(0.1), "0.1"),
    ],
)
def test_order_names(order, name):
    assert order_name(order) == name


@pytest.mark.parametrize("order", [-1, -0.1, math.nan, -math.inf])
def test_orders_below_zero_are_refused(order):
    spectrum = spectrum_of([[1.0]], "cosine")
    with pytest.raises(ValueError, match="number from 0 to inf, got"):
        vendi_score(spectrum, order)
    with pytest.raises(ValueError, match="number from 0 to inf, got"):
        order_name(order)


def test_rows_without_direction_are_named():
    with pytest.raises(ValueError, match="row 5000 is zero"):
        second_moment(np.concatenate([np.ones((5000, 2)), np.zeros((1, 2))]))
    with pytest.raises(ValueError, match="row 1 has a NaN"):
        second_moment([[1.0, 2.0], [math.nan, 1.0]])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"weights must have shape \(2,\)"),
        ([[1.0, 1.0]], r"weights must have shape \(2,\)"),
        ([1.0, -0.5], "row 1 has -0.5"),
        ([math.nan, 1.0], "row 0 has nan"),
        ([1.0, math.inf], "row 1 has inf"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        second_moment(np.eye(2), weights)
    with pytest.raises(ValueError, match=message):
        spectrum_of(np.eye(2), "rbf", 1.0, weights)


def test_weights_that_are_all_zero_are_refused():
    nothing = second_moment(np.eye(2), [0.0, 0.0])
    assert nothing.total == 0
    with pytest.raises(ValueError, match="all weights are 0"):
        moment_spectrum(nothing, 2)
    with pytest.raises(ValueError, match="all weights are 0"):
        spectrum_of(np.eye(2), "cosine", None, [0.0, 0.0])
    whole = merge_moments([nothing, second_moment(np.eye(2))])
    assert vendi_score(moment_spectrum(whole, 4), 1).value == pytest.approx(2)


def test_moments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="no moments"):
        merge_moments([])
    with pytest.raises(ValueError, match=r"different dimensions can't be merged: \[2, 3\]"):
        merge_moments([SecondMoment(1.0, np.eye(3)), SecondMoment(1.0, np.eye(2))])
    with pytest.raises(ValueError, match="number of rows must be at least 1, got 0"):
        moment_spectrum(SecondMoment(1.0, np.eye(2)), 0)


def test_kernels_that_do_not_suit_are_refused():
    with pytest.raises(ValueError, match="needs points with metric 'euclidean'"):
        kernel_spectrum(as_points(np.eye(2), "cosine"), "rbf", 1.0)
    with pytest.raises(ValueError, match="needs a positive bandwidth"):
        kernel_spectrum(as_points(np.eye(2), "euclidean"), "rbf")


@pytest.mark.parametrize("unit", [1e-100, 1e-50, 1e-40, 1e40, 1e100])
def test_the_unit_of_weights_does_not_count_in_single_precision(unit: float) -> None:
    rng = np.random.default_rng(7)
    vectors, masses = rng.normal(size=(4000, 8)), rng.exponential(size=4000)
    masses[:50] = 0.0
    plain, scaled = (
        moment_spectrum(second_moment(vectors, masses * own, precision="single"), 4000)
        for own in (1.0, unit)
    )
    for order in (0.5, 1.0, 2.0, math.inf):
        found, wanted = vendi_score(scaled, order), vendi_score(plain, order)
        assert found.value == pytest.approx(wanted.value, rel=1e-6)
        assert found.upper - found.lower < 2.0 * (wanted.upper - wanted.lower)


@pytest.mark.parametrize("bandwidth", [1e-80, 1e-90, 1e-99])
def test_a_tiny_bandwidth_leaves_every_row_alone(bandwidth: float) -> None:
    rows = np.random.default_rng(8).normal(size=(30, 4))
    found = vendi_score(kernel_spectrum(as_points(rows, "euclidean"), "rbf", bandwidth), 1.0)
    assert found.lower <= 30.0 <= found.upper
    assert found.value == pytest.approx(30.0)


@pytest.mark.parametrize("order", [1e16, 1e100, 1e307, 1e308])
def test_very_large_orders_are_like_infinity(order):
    shares = np.full(100, 0.01)
    assert hill_number(shares, order) == pytest.approx(100.0, rel=1e-12)


@pytest.mark.parametrize("rows", [60, 150])
@pytest.mark.parametrize("kind", ["isotropic", "decaying", "a rare kind"])
def test_scores_grow_at_most_in_proportion_to_the_rows(kind: str, rows: int) -> None:
    """Comparisons of labels with more rows than before rest on it."""
    rng = np.random.default_rng(rows)

    def draw(n: int) -> np.ndarray:
        found = rng.normal(size=(n, 100))
        if kind == "decaying":
            return found * np.arange(1, 101) ** -0.7
        usual = rng.random((n, 1)) < 0.9
        return np.where(usual, 0.05 * found + 1.0, found) if kind == "a rare kind" else found

    def mean_logs(n: int) -> np.ndarray:
        spectra = (moment_spectrum(second_moment(draw(n)), n) for _ in range(40))
        return np.mean([[np.log(vendi_score(s, q).value) for q in ORDERS] for s in spectra], axis=0)

    slopes = (mean_logs(2 * rows) - mean_logs(rows)) / np.log(2.0)
    assert slopes.max() <= 1.0 + 1e-9
    assert slopes.min() >= -0.05
