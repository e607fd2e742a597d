"""Scores by stochastic Lanczos against dense diagonalisation; intervals by their coverage."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from sklearn.datasets import load_digits

from latentscale.estimate import Estimate
from latentscale.sampling.median_distance import median_bandwidth
from latentscale.tiles.distances import as_points
from latentscale.vendi.kernel_products import (
    SimilaritySquares,
    SimilarityTiles,
    kept_type,
    multiply_tiles,
    sum_squares,
)
from latentscale.vendi.lanczos import KernelTraces, _effect_of_error, _Term, kernel_scores
from latentscale.vendi.scores import kernel_spectrum, vendi_score
from tests import oracles

ORDERS = (0.1, 0.5, 0.999, 1.0, 1.5, 2.0, 3.0, math.inf)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.asarray(load_digits().data[:400], dtype=float)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_products_between_blocks_are_those_of_the_matrix(
    kernel: str, kind: type, rows: np.ndarray
) -> None:
    rng = np.random.default_rng(0)
    vectors, masses = rng.normal(size=(400, 3)), rng.uniform(size=400)
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    parts = [slice(0, 130), slice(130, 400)]
    products, squares, rounded, errors = np.zeros((400, 3)), 0.0, 0.0, 0.0
    for i, first in enumerate(parts):
        for second in parts[i:]:
            a = points.take(first)
            b = a if second == first else points.take(second)
            same = second == first
            tiles = SimilarityTiles(a, kernel, 15.0, None if same else b, kind, keep=True)
            found = sum_squares(tiles, masses[first], None if same else masses[second])
            assert tiles.kept
            both = multiply_tiles(tiles, vectors[first], None if same else vectors[second])
            products[first] += both[0]
            products[second] += both[1]
            squares += found.squares
            rounded += found.rounded_squares
            errors += found.rounded_errors
    matrix = oracles.kernel_matrix(rows, kernel, 15.0)
    multiplied = matrix.astype(kind).astype(float)
    np.testing.assert_allclose(products, multiplied @ vectors, rtol=1e-9, atol=1e-9)
    assert squares == pytest.approx(float(masses @ matrix**2 @ masses), rel=1e-10)
    assert rounded == pytest.approx(float(masses @ multiplied**2 @ masses), rel=1e-10)
    assert masses @ (multiplied - matrix) ** 2 @ masses <= errors < 1e-7**2 * squares


@pytest.mark.parametrize(("kernel", "bandwidth"), [("rbf", 20.0), ("laplacian", 20.0)])
def test_intervals_cover_and_brackets_hold(kernel: str, bandwidth: float, rows: np.ndarray) -> None:
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    spectrum = kernel_spectrum(points, kernel, bandwidth)
    truth = {order: vendi_score(spectrum, order).value for order in ORDERS}
    seeds, covered = 25, dict.fromkeys(ORDERS, 0)
    for seed in range(seeds):
        found = kernel_scores(points, kernel, bandwidth, ORDERS, np.random.default_rng(seed))
        for order, value in truth.items():
            estimate = found[order]
            inside = estimate.lower * (1 - 1e-11) <= value <= estimate.upper * (1 + 1e-11)
            covered[order] += inside
            if estimate.bounds in {"exact", "certified"}:
                assert inside, order
            assert estimate.upper - estimate.lower < 0.01 * value, order
        # Scores fall with the order, and bound each other (Pasarkar & Dieng, eq. 9 and 10).
        values = [found[order].value for order in ORDERS]
        assert values == sorted(values, reverse=True)
        assert math.sqrt(found[2.0].value) <= found[math.inf].value <= found[2.0].value
    # Of 25 intervals that cover with probability 0.95 fewer than 20 do once in 800.
    assert min(covered.values()) >= 20


def rows_of(kind: str, seed: int) -> np.ndarray:
    """Rows whose spectra fall slowly, by steps, or over many decades."""
    rng = np.random.default_rng(seed)
    if kind == "isotropic":
        return rng.normal(size=(400, 32))
    centres = 3 * rng.normal(size=(20, 16))
    if kind == "clustered":
        return centres[rng.integers(0, 20, 400)] + rng.normal(size=(400, 16)) * rng.uniform(0.05, 1)
    if kind == "pairs":  # rows and nearly the same rows
        rows = rng.normal(size=(200, 8))
        return np.concatenate([rows, rows + 1e-2 * rng.normal(size=(200, 8))])
    return rng.standard_t(1.5, size=(400, 8))


@pytest.mark.parametrize("kind", ["isotropic", "clustered", "pairs", "heavy"])
def test_intervals_cover_whatever_the_spectrum(kind: str) -> None:
    orders = (0.1, 0.5, 1.0, 1.5, 3.0)
    covered, widths = dict.fromkeys(orders, 0), []
    for seed in range(4):
        points = as_points(rows_of(kind, seed), "euclidean")
        points = points.about(points.rows.mean(axis=0))
        bandwidth = median_bandwidth(points, generator=np.random.default_rng(seed))
        spectrum = kernel_spectrum(points, "rbf", bandwidth)
        found = kernel_scores(points, "rbf", bandwidth, orders, np.random.default_rng(seed))
        for order in orders:
            truth, estimate = vendi_score(spectrum, order), found[order]
            covered[order] += estimate.lower <= truth.upper and truth.lower <= estimate.upper
            if order >= 0.5:
                widths.append((estimate.upper - estimate.lower) / truth.value)
    # Of 4 intervals that cover with probability 0.95 fewer than 3 do once in 71.
    assert min(covered.values()) >= 3, covered
    assert max(widths) < 0.012


def test_a_kept_kernel_gives_the_numbers_of_one_that_is_not(rows: np.ndarray) -> None:
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    in_double, in_single = 4 * 400 * 912, 2 * 400 * 912
    assert kept_type(400, in_double) is np.float64
    assert kept_type(400, in_double - 1) is np.float32
    assert kept_type(400, in_single - 1) is None

    def scores(kept_bytes: int) -> dict[float, Estimate]:
        generator = np.random.default_rng(5)
        return kernel_scores(points, "rbf", 20.0, ORDERS, generator, kept_bytes=kept_bytes)

    assert scores(0) == scores(in_double)
    single, doubles = scores(in_single), scores(0)
    for order, double in doubles.items():
        assert single[order].value == pytest.approx(double.value, rel=1e-6)
        assert single[order].lower <= double.value <= single[order].upper
    # Order 2 comes from the squares, which are summed before anything is rounded.
    assert single[2.0] == doubles[2.0]


def test_a_residual_would_miss_what_the_positive_vector_proves() -> None:
    # Two far clusters of almost equal size: the second eigenvalue is nearly the first.
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, 4)) * 0.1
    rows[:149] += 5.0
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    largest = np.linalg.eigvalsh(oracles.kernel_matrix(rows, "rbf", 2.0) / 300)[-1]
    found = kernel_scores(points, "rbf", 2.0, [math.inf], np.random.default_rng(0))[math.inf]
    assert found.bounds == "certified"
    assert found.lower <= 1 / largest <= found.upper * (1 + 1e-12)


def test_products_in_single_precision_certify_nothing() -> None:
    # On a regular polygon the vector that the power iteration starts from is the eigenvector.
    angles = 2.0 * np.pi * np.arange(500) / 500
    rows = np.column_stack([np.cos(angles), np.sin(angles)])
    points, squared = as_points(rows, "euclidean"), np.square(rows - rows[0]).sum(axis=1)
    for bandwidth in np.linspace(0.2, 2.0, 13).tolist():
        score = 1.0 / np.exp(-squared / (2 * bandwidth**2)).mean()
        generator = np.random.default_rng(0)
        found = kernel_scores(points, "rbf", bandwidth, [math.inf], generator)[math.inf]
        assert found.bounds == "certified"
        assert found.lower * (1 - 1e-13) <= score <= found.upper * (1 + 1e-13)


def test_weights_and_rows_without_weight(rows: np.ndarray) -> None:
    weights = np.random.default_rng(2).uniform(size=400)
    weights[::7] = 0
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    spectrum = kernel_spectrum(points, "rbf", 20.0, weights)
    found = kernel_scores(points, "rbf", 20.0, ORDERS, np.random.default_rng(3), weights)
    for order in ORDERS:
        value, estimate = vendi_score(spectrum, order).value, found[order]
        assert estimate.value == pytest.approx(value, rel=5e-3), order


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_count_once_with_the_sum_of_their_weights(share: float, weighted: bool) -> None:
    orders, n = (0.0, 0.1, 0.5, 1.0), 600
    rng = np.random.default_rng(5)
    rows, copies = rng.normal(size=(n, 8)), int(share * n)
    rows[:copies] = rows[n - copies :]
    weights = rng.exponential(size=n) ** 2 if weighted else np.ones(n)
    weights[copies : copies + 30 * weighted] = 0.0
    masses = weights[copies:].copy()
    masses[-copies:] += weights[:copies]
    masses /= masses.sum()
    matrix = oracles.kernel_matrix(rows[copies:], "rbf", 3.5)
    spectrum = np.linalg.eigvalsh(np.sqrt(masses)[:, None] * matrix * np.sqrt(masses))
    positive = spectrum[spectrum > 1e-15]
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    for seed in range(2):
        generator = np.random.default_rng(seed)
        found = kernel_scores(points, "rbf", 3.5, orders, generator, weights if weighted else None)
        assert found[0.0].upper == np.count_nonzero(masses)
        assert found[1.0].value == pytest.approx(np.exp(-positive @ np.log(positive)), rel=2e-3)
        for order in (0.1, 0.5):
            truth = float((positive**order).sum() ** (1.0 / (1.0 - order)))
            assert found[order].lower <= truth <= found[order].upper, (seed, order)
            assert found[order].upper / found[order].lower < 1.1


@pytest.mark.parametrize("near", [1e-6, 1e-2])
def test_the_bracket_covers_a_lump_of_eigenvalues_near_0(near: float) -> None:
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(450, 8))
    rows[:90] = rows[360:] + near * rng.normal(size=(90, 8))
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    spectrum = kernel_spectrum(points, "rbf", 3.5)
    for seed in range(3):
        found = kernel_scores(points, "rbf", 3.5, (0.1, 0.5), np.random.default_rng(seed))
        for order, estimate in found.items():
            truth = vendi_score(spectrum, order)
            assert estimate.lower <= truth.upper
            assert truth.lower <= estimate.upper


@pytest.mark.parametrize("distinct", [1, 2, 60, 300])
def test_few_distinct_rows(distinct: int) -> None:
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(distinct, 5))[rng.integers(0, distinct, size=400)]
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    spectrum = kernel_spectrum(points, "laplacian", 2.0)
    found = kernel_scores(points, "laplacian", 2.0, ORDERS, np.random.default_rng(1))
    for order, estimate in found.items():
        truth = vendi_score(spectrum, order).value
        assert estimate.value == pytest.approx(truth, rel=0.01), order
        if distinct <= 60:
            assert estimate.upper - estimate.lower < 1e-5 * truth, order


@pytest.mark.parametrize("seed", range(12))
def test_few_distinct_rows_of_any_weights_against_many_digits(seed: int) -> None:
    """Their eigenvalues fall far below the rounding of single precision, which finds the basis."""
    rng = np.random.default_rng([8, seed])
    kinds = int(rng.integers(2, 20))
    rows = rng.normal(size=(kinds, rng.integers(1, 4))).astype("f4")
    drawn = np.r_[np.arange(kinds), rng.integers(0, kinds, size=400)]
    weights = rng.exponential(size=len(drawn)) ** rng.choice([0, 2, 6])
    bandwidth, orders = rng.choice([0.3, 1.0, 4.0, 20.0]), (0.1, 0.5, 1.0, 1.5)
    points = as_points(rows[drawn], "euclidean")
    found = kernel_scores(points, "rbf", bandwidth, orders, rng, weights)
    truths = precise_scores(rows, np.bincount(drawn, weights), bandwidth, orders)
    for order, truth in truths.items():
        assert found[order].lower <= truth <= found[order].upper, order


def precise_scores(
    rows: np.ndarray, masses: np.ndarray, bandwidth: float, orders: tuple[float, ...]
) -> dict[float, float]:
    """Return the scores of distinct rows from eigenvalues of 60 digits."""
    with mpmath.workdps(60):
        values = [[mpmath.mpf(float(x)) for x in row] for row in rows]
        roots = [mpmath.sqrt(float(mass)) for mass in masses]
        total = mpmath.fsum(root**2 for root in roots)

        def entry(i: int, j: int) -> Any:
            squared = mpmath.fsum((a - b) ** 2 for a, b in zip(values[i], values[j], strict=True))
            return roots[i] * roots[j] / total * mpmath.exp(-squared / (2 * bandwidth**2))

        matrix = mpmath.matrix(len(rows), len(rows))
        for i, j in np.ndindex(matrix.rows, matrix.cols):
            matrix[i, j] = entry(i, j)
        spectrum = [x for x in mpmath.eigsy(matrix, eigvals_only=True) if x > 0]
        scores = {}
        for order in orders:
            if order == 1:
                entropy = -mpmath.fsum(x * mpmath.log(x) for x in spectrum)
                scores[order] = float(mpmath.exp(entropy))
            else:
                power = mpmath.fsum(x ** mpmath.mpf(order) for x in spectrum)
                scores[order] = float(power ** (1 / (1 - mpmath.mpf(order))))
        return scores


def test_it_goes_on_from_what_it_stored(rows: np.ndarray) -> None:
    matrix = oracles.kernel_matrix(rows[:150], "rbf", 20.0) / 150
    outcomes = []
    for stored in (False, True):
        norm = float((matrix**2).sum())
        squares = SimilaritySquares(norm, 0.0, norm, 0.0, 0.0)
        traces = KernelTraces.start(150, squares, ORDERS, np.random.default_rng(4), probes=8)
        while (request := traces.request) is not None:
            traces = traces.advance(matrix @ request.vectors)
            if stored:
                traces = KernelTraces.load(traces.arrays(), traces.values())
        outcomes.append(traces.outcome)
    assert outcomes[0] == outcomes[1]


def test_few_rows_and_unfinished_ones_are_refused() -> None:
    squares = SimilaritySquares(0.1, 0.0, 0.1, 0.0, 0.0)
    with pytest.raises(ValueError, match="50 rows are too few"):
        KernelTraces.start(50, squares, [1.0], np.random.default_rng(0))
    with pytest.raises(RuntimeError, match="isn't finished"):
        _ = KernelTraces.start(500, squares, [1.0], np.random.default_rng(0)).outcome


@pytest.mark.parametrize(("d", "bandwidth"), [(2, 3.0), (3, 8.0), (3, 1000.0), (8, 100.0)])
def test_smooth_kernels_whose_eigenvalues_fall_below_what_sums_tell(
    d: int, bandwidth: float
) -> None:
    orders = [0.5, 1.0, 1.5]
    for seed in range(4):
        points = as_points(np.random.default_rng([31, seed]).normal(size=(250, d)), "euclidean")
        generator = np.random.default_rng(seed)
        found = kernel_scores(points, "rbf", bandwidth, orders, generator)
        spectrum = kernel_spectrum(points, "rbf", bandwidth)
        for order in orders:
            known, own = vendi_score(spectrum, order), found[order]
            assert own.lower - 1e-9 <= known.upper, (seed, order)
            assert own.upper + 1e-9 >= known.lower, (seed, order)
            assert own.upper - own.lower < 6e-3 * own.value


def smooth_spectrum(rows: np.ndarray, bandwidth: float) -> np.ndarray:
    """Eigenvalues of the RBF kernel from its power series, without the rounding of a matrix."""
    columns = np.ones((len(rows), 1))
    for x in (rows.astype(float) / bandwidth).T:
        k = np.arange(60)
        series = x[:, None] ** k * np.exp(
            -(x[:, None] ** 2) / 2 - np.array([math.lgamma(i + 1) for i in k]) / 2
        )
        columns = (columns[:, :, None] * series[:, None, :]).reshape(len(rows), -1)
        columns = columns[:, np.abs(columns).max(axis=0) > 1e-16]
    return np.square(np.linalg.svd(columns / math.sqrt(len(rows)), compute_uv=False))


@pytest.mark.parametrize("d", [1, 2])
def test_rounded_similarities_are_covered_where_rounding_makes_most_eigenvalues(d: int) -> None:
    orders, n = (0.1, 0.25, 0.5, 0.9, 1.0), 600
    covered = dict.fromkeys(orders, 0)
    for seed in range(6):
        rng = np.random.default_rng([61, seed])
        rows = rng.integers(0, 3, size=(n, 1)) + 0.02 * rng.normal(size=(n, d))
        matrix = oracles.kernel_matrix(rows, "rbf", 1.0) / n
        error = np.triu(rng.normal(size=(n, n)), 1)
        error = (error + error.T) * (1e-6 / np.linalg.norm(error + error.T))
        rounded = matrix + error
        norms = float((matrix**2).sum()), float((rounded**2).sum())
        squares = SimilaritySquares(norms[0], 0.0, norms[1], 1e-12, 0.0)
        traces = KernelTraces.start(n, squares, orders, rng, probes=8)
        while (request := traces.request) is not None:
            traces = traces.advance(rounded @ request.vectors)
        exact = smooth_spectrum(rows, 1.0)
        for order in orders:
            if order == 1:
                truth = float(np.exp(-(exact * np.log(np.maximum(exact, 1e-300))).sum()))
            else:
                truth = float((exact**order).sum() ** (1 / (1 - order)))
            covered[order] += traces.outcome[order].lower <= truth <= traces.outcome[order].upper
    assert min(covered.values()) == 6, covered


@pytest.mark.parametrize("order", [0.1, 0.5, 0.999, 1.0, 1.5, 3.0])
def test_no_error_of_a_matrix_changes_a_trace_by_more_than_its_bound(order: float) -> None:
    rng = np.random.default_rng(7)
    function, shares = _Term(order), []
    for fall in (0.0, 0.05, 0.3, 2.0):
        for norm in (1e-7, 1e-5, 1e-3):
            turned, _ = np.linalg.qr(rng.normal(size=(120, 120)))
            spectrum = np.exp(-fall * np.arange(120.0))
            spectrum /= spectrum.sum()
            error = rng.normal(size=(120, 120))
            error = (error + error.T) * (norm / np.linalg.norm(error + error.T))
            seen = np.maximum(np.linalg.eigvalsh((turned * spectrum) @ turned.T + error), 0.0)
            bound = _effect_of_error(function, seen, np.ones(120), norm)
            change = abs(float(function(seen).sum() - function(spectrum).sum()))
            assert change <= bound
            shares.append(change / bound)
    assert order >= 1 or max(shares) > 0.3


def test_rows_that_nearly_repeat_others_are_covered_at_low_orders() -> None:
    """Their eigenvalues are as small as what couples them to the basis."""
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        few = rng.normal(size=(170, 6))
        copies = few[rng.integers(0, 170, 340)] + 2e-6 * rng.normal(size=(340, 6))
        points = as_points(copies.astype("f4"), "euclidean")
        scores = kernel_scores(points, "rbf", 0.5, (0.1, 0.25, 0.5), rng)
        spectrum = kernel_spectrum(points, "rbf", 0.5)
        for order, score in scores.items():
            dense = vendi_score(spectrum, order)
            held = score.lower <= dense.upper and dense.lower <= score.upper
            found.append((order, held, score.value / dense.value))
        assert scores[0.1].lower >= scores[0.25].lower >= scores[0.5].lower
    assert sum(held for _, held, _ in found) >= 23
    away = {order: [abs(ratio - 1) for o, _, ratio in found if o == order] for order in scores}
    assert max(away[0.1]) < 0.1
    assert max(away[0.25]) < 0.1
    assert max(away[0.5]) < 0.02


@pytest.mark.parametrize("order", [20.0, 200.0, 1e3, 1e5, 1e9, 1e15])
def test_orders_whose_powers_are_below_all_numbers(order: float) -> None:
    rows = np.random.default_rng(2).standard_normal((400, 5))
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    spectrum = kernel_spectrum(points, "rbf", 0.5)
    with mpmath.workdps(40):
        powers = [mpmath.mpf(p) ** order for p in spectrum.eigenvalues if p > 0]
        truth = float(mpmath.fsum(powers) ** (1 / (1 - mpmath.mpf(order))))
    for seed in range(3):
        found = kernel_scores(points, "rbf", 0.5, [order, math.inf], np.random.default_rng(seed))
        assert found[order].lower <= truth <= found[order].upper * (1 + 1e-11)
        assert found[order].upper < 1.01 * found[order].lower
        assert math.isfinite(found[order].standard_error)
    exact = vendi_score(spectrum, order)
    assert exact.lower <= truth <= exact.upper < exact.lower * (1 + 1e-11)
