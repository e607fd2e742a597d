"""Random subsets, their certified bounds and their curve."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.magnitude.subsamples import rarefy, subsample_magnitudes
from latentscale.sampling.rarefaction import SubsetScores, draw_replicates, rarefaction_curve
from latentscale.tiles.distances import METRICS, Metric, as_points
from tests.oracles import dense_magnitude, pairwise_distances

# --- draws -----------------------------------------------------------------------------------


def test_replicates_are_disjoint_where_they_can_be() -> None:
    drawn = draw_replicates(100, 30, 3, np.random.default_rng(0))
    assert drawn.shape == (3, 30)
    assert len(np.unique(drawn)) == 90
    overlapping = draw_replicates(100, 60, 3, np.random.default_rng(0))
    assert [len(np.unique(rows)) for rows in overlapping] == [60, 60, 60]
    assert len(np.unique(overlapping)) > 80
    assert sorted(draw_replicates(7, 7, 1, np.random.default_rng(1))[0]) == list(range(7))


def test_every_row_is_drawn_equally_often() -> None:
    generator = np.random.default_rng(2)
    counts = np.zeros(20)
    for _ in range(2000):
        counts[draw_replicates(20, 5, 2, generator).ravel()] += 1
    # Each row is in half of the draws; 1000 with a deviation of 22.
    assert np.abs(counts - 1000).max() < 4 * 22.4


@pytest.mark.parametrize(("n", "rows", "replicates"), [(5, 6, 1), (5, 0, 1), (5, 2, 0)])
def test_impossible_draws_are_refused(n: int, rows: int, replicates: int) -> None:
    with pytest.raises(ValueError, match="cannot draw"):
        draw_replicates(n, rows, replicates, np.random.default_rng(0))


# --- subsets ---------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(2, 24),
    d=st.integers(1, 6),
    metric=st.sampled_from(METRICS),
    scale=st.floats(0.01, 50.0),
    spread=st.floats(-3.0, 1.0),
    pieces=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_subsets_certify_a_lower_bound(
    n: int, d: int, metric: Metric, scale: float, spread: float, pieces: int, seed: int
) -> None:
    """Corollary 2.4.4 of Leinster 2013, for subsets of every size and all metrics."""
    rng = np.random.default_rng(seed)
    if metric == "cosine":
        # Smooth similarities of many rows in few dimensions are singular to the oracle.
        d, scale = d + 6, max(scale, 0.5)
    rows = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(spread, 1.0, size=(n, 1))
    truth, _, rounding = dense_magnitude(pairwise_distances(rows, metric), scale)
    if rounding > 1e-6 * truth:
        return  # the oracle itself is lost there
    points = as_points(rows, metric)
    pieces = min(pieces, n)
    found = subsample_magnitudes(points, [scale], pieces)
    assert found.lower[0] <= truth + rounding
    assert found.size == n // pieces
    for piece, value in enumerate(found.values[:, 0]):
        part = rows[piece * found.size : (piece + 1) * found.size]
        expected = dense_magnitude(pairwise_distances(part, metric), scale)[0]
        # Where a similarity matrix is nearly singular, it is solved to the tolerance only.
        assert value == pytest.approx(expected, rel=1e-3)


def test_pieces_are_consecutive_and_equal() -> None:
    rows = np.random.default_rng(3).normal(size=(23, 3))
    points = as_points(rows, "euclidean")
    found = subsample_magnitudes(points, [0.0, 1.0], 5)
    assert found.size == 4
    assert found.values.shape == (5, 2)
    np.testing.assert_array_equal(found.values[:, 0], 1.0)
    distances = pairwise_distances(rows[16:20], "euclidean")
    assert found.values[4, 1] == pytest.approx(dense_magnitude(distances, 1.0)[0])
    for pieces in (0, 24):
        with pytest.raises(ValueError, match="cannot divide 23 rows"):
            subsample_magnitudes(points, [1.0], pieces)


# --- curves ----------------------------------------------------------------------------------


def part(size: int, values: list[list[float]], lower: list[float]) -> SubsetScores:
    return SubsetScores(size, np.array(values), np.array(lower))


def test_a_curve_gathers_sizes_from_replicates_in_any_order() -> None:
    curve = rarefaction_curve(
        [0.5, 1.0],
        [
            part(8, [[4.0, 6.0]], [3.9, 5.9]),
            part(4, [[2.0, 3.0], [3.0, 3.5]], [2.9, 3.4]),
            part(8, [[5.0, 7.0]], [5.0, 5.8]),
            part(4, [[2.5, 3.0], [2.5, 3.0]], [2.4, 2.9]),
        ],
    )
    assert curve.sizes.tolist() == [4, 8]
    np.testing.assert_allclose(curve.means, [[2.5, 3.125], [4.5, 6.5]])
    np.testing.assert_allclose(curve.lower, [5.0, 5.9])
    small, large = curve.intervals()
    assert small is not None
    assert large is not None
    # Student's quantiles at 0.975: 12.706 for one degree of freedom, 3.182 for three.
    expected = [[4.5 - 6.353, 6.5 - 6.353], [4.5 + 6.353, 6.5 + 6.353]]
    np.testing.assert_allclose(large, expected, atol=1e-3)
    deviation = np.std([2.0, 3.0, 2.5, 2.5], ddof=1)
    np.testing.assert_allclose(small[1, 0], 2.5 + 3.1824 * deviation / 2, rtol=1e-4)


def test_one_subset_has_no_interval() -> None:
    curve = rarefaction_curve([1.0], [part(8, [[4.0]], [3.9])])
    assert curve.intervals() == (None,)


def test_a_curve_needs_subsets_on_its_scales() -> None:
    with pytest.raises(ValueError, match="at least one subsample"):
        rarefaction_curve([1.0], [])
    with pytest.raises(ValueError, match="8 rows has 1 scales, the curve has 2"):
        rarefaction_curve([1.0, 2.0], [part(8, [[4.0]], [3.9])])


def test_replicates_are_halved() -> None:
    rows = np.random.default_rng(4).normal(size=(120, 3))
    points = as_points(rows, "manhattan")
    drawn = draw_replicates(120, 50, 2, np.random.default_rng(5))
    curve = rarefy(points, [0.3, 3.0], drawn, halvings=3)
    assert curve.sizes.tolist() == [6, 12, 25, 50]
    assert [len(values) for values in curve.values] == [16, 8, 4, 2]
    assert (np.diff(curve.means, axis=0) > 0).all()
    distances = pairwise_distances(rows[drawn[1]], "manhattan")
    assert curve.values[-1][1, 1] == pytest.approx(dense_magnitude(distances, 3.0)[0])
    np.testing.assert_allclose(curve.lower, curve.values[-1].max(axis=0), rtol=1e-9)


def test_the_interval_covers_the_mean_over_subsets() -> None:
    """95 % intervals from 8 subsets hold the mean magnitude of subsets of that size."""
    rng = np.random.default_rng(6)
    rows = rng.uniform(size=(4000, 2))
    points = as_points(rows, "euclidean")
    many = rarefy(points, [5.0], draw_replicates(4000, 40, 100, rng), halvings=0)
    mean = many.means[0, 0]
    covered = []
    for _ in range(100):
        curve = rarefy(points, [5.0], draw_replicates(4000, 40, 8, rng), halvings=0)
        (interval,) = curve.intervals()
        assert interval is not None
        covered.append(interval[0, 0] <= mean <= interval[1, 0])
    assert np.mean(covered) >= 0.88
