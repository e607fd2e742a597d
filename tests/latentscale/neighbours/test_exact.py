"""Exact neighbours, their merging and the recall certificate, against pairwise loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.neighbours import exact as module
from latentscale.neighbours.certificate import recall_certificate
from latentscale.neighbours.exact import Neighbours, exact_neighbours, merge, nearest
from latentscale.tiles.distances import as_points
from tests import oracles

METRICS = ["euclidean", "cosine", "manhattan"]


def duplicated_rows(generator, n, d, copies):
    """Rows of which many are equal, as in corpora with boilerplate."""
    rows = generator.standard_normal((n, d))
    rows[generator.integers(n, size=copies)] = rows[0]
    rows[generator.integers(n, size=copies // 2)] = rows[1]
    return rows


def assert_valid(found, table, tolerance):
    """Distances are the k smallest, each is its index's, and no row is its own or repeated."""
    k = found.distances.shape[1]
    for i, pairs in enumerate(table):
        of_row = {j: distance for distance, j in pairs}
        indices = found.indices[i].tolist()
        assert i not in indices
        assert len(set(indices)) == k
        np.testing.assert_allclose(
            found.distances[i], [distance for distance, _ in pairs[:k]], rtol=1e-12, atol=tolerance
        )
        np.testing.assert_allclose(
            found.distances[i], [of_row[j] for j in indices], rtol=1e-12, atol=tolerance
        )


@pytest.mark.parametrize("metric", METRICS)
def test_exact_neighbours_equal_the_pairwise_loop(metric):
    rows = duplicated_rows(np.random.default_rng(1), 120, 7, 30)
    found = exact_neighbours(as_points(rows, metric), 6)
    assert_valid(found, oracles.sorted_distances(rows, metric), 1e-15)
    assert found.indices.dtype == np.int64
    assert (np.diff(found.distances, axis=1) >= 0).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["lattice", "copies", "far away"])
def test_long_lists_equal_the_pairwise_loop(metric, kind):
    """Their bound, found before any distance, leaves out no tie and no rounded neighbour."""
    generator = np.random.default_rng(3)
    rows = duplicated_rows(generator, 150, 4, 60 if kind == "copies" else 2)
    if kind == "lattice":
        rows = np.round(rows)
        rows[:, 0] += 10.0  # no zero row
    rows += 1e4 if kind == "far away" else 0.0
    found = exact_neighbours(as_points(rows, metric), 45)
    tolerance = 1e-12
    assert_valid(found, oracles.sorted_distances(rows, metric), tolerance)


def test_distinct_rows_give_the_very_indices():
    rows = np.random.default_rng(2).standard_normal((150, 5))
    found = exact_neighbours(as_points(rows, "euclidean"), 9)
    expected = [[j for _, j in pairs[:9]] for pairs in oracles.sorted_distances(rows, "euclidean")]
    np.testing.assert_array_equal(found.indices, expected)


def test_far_from_the_origin_cancellation_changes_nothing():
    rows = np.random.default_rng(3).standard_normal((80, 4)) * 1e-4 + 1e3
    found = exact_neighbours(as_points(rows, "euclidean"), 5)
    assert_valid(found, oracles.sorted_distances(rows, "euclidean"), 0.0)


@pytest.mark.parametrize("scale", [1e-140, 1e-30, 1e30, 1e140])
def test_any_magnitude_is_measured(scale):
    rows = np.random.default_rng(12).standard_normal((60, 3)) * scale
    rows[30:] *= 1e-9  # half of them far too small for float32 beside the others
    found = exact_neighbours(as_points(rows, "euclidean"), 5)
    unit = exact_neighbours(as_points(rows / scale, "euclidean"), 5)
    np.testing.assert_array_equal(found.indices, unit.indices)
    table = oracles.sorted_distances(rows / scale, "euclidean")
    np.testing.assert_allclose(
        found.distances / scale,
        [[distance for distance, _ in pairs[:5]] for pairs in table],
        rtol=1e-12,
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("blocks", [(7, 11), (64, 3), (1, 500)])
def test_blocking_changes_no_bit(metric, blocks):
    rows = duplicated_rows(np.random.default_rng(4), 200, 33, 60)
    points = as_points(rows, metric).keyed()
    whole = exact_neighbours(points, 5)
    ids = np.arange(200)
    cut = nearest(
        points,
        points,
        5,
        query_ids=ids,
        candidate_ids=ids,
        query_block=blocks[0],
        candidate_block=blocks[1],
    )
    np.testing.assert_array_equal(cut.indices, whole.indices)
    np.testing.assert_array_equal(cut.distances, whole.distances)


def test_tiles_stay_below_32_mib():
    assert 4 * module.QUERY_BLOCK * module.CANDIDATE_BLOCK <= 32 << 20


def test_a_heap_of_equal_rows_is_no_hub():
    rows = np.random.default_rng(5).standard_normal((700, 6))
    rows[:400] = rows[0]
    found = exact_neighbours(as_points(rows, "euclidean"), 5)
    assert (found.distances[:400] == 0).all()
    assert (found.indices[:400] < 400).all()
    pointed_at = np.bincount(found.indices[:400].ravel(), minlength=400)
    # Drawn at random, the number is Poisson of mean 5: at least 20 has odds of 1e-7.
    assert pointed_at.max() < 20
    assert (pointed_at == 0).sum() < 15


def graph_by_identity(rows, k, metric):
    """Edges between rows, each known by its content and which of its copies it is."""
    points = as_points(rows, metric)
    found = exact_neighbours(points, k)
    copies, names = {}, []
    for row in map(tuple, points.rows.tolist()):
        copies[row] = copies.get(row, -1) + 1
        names.append((row, copies[row]))
    edges = {(names[i], names[j]) for i in range(len(rows)) for j in found.indices[i]}
    return edges, found


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["lattice", "bits", "copies", "one row"])
def test_another_order_of_the_rows_gives_the_same_graph(metric, kind):
    generator = np.random.default_rng(11)
    rows = {
        "lattice": generator.integers(0, 4, (150, 3)) + np.array([1, 0, 0]),
        "bits": np.c_[np.ones(150), generator.integers(0, 2, (150, 7))],
        "copies": duplicated_rows(generator, 150, 4, 60),
        "one row": np.ones((40, 2)),
    }[kind]
    edges, found = graph_by_identity(rows, 5, metric)
    for _ in range(3):
        order = generator.permutation(len(rows))
        others, permuted = graph_by_identity(rows[order], 5, metric)
        assert others == edges
        np.testing.assert_array_equal(permuted.distances, found.distances[order])


def test_zeros_of_either_sign_are_equal_rows():
    rows = np.random.default_rng(13).integers(-1, 2, (60, 3)) * 1.0
    signed = np.where((rows == 0) & (np.arange(60) % 2 == 1)[:, None], -0.0, rows)
    first, second = (exact_neighbours(as_points(r, "euclidean"), 4) for r in (rows, signed))
    np.testing.assert_array_equal(first.indices, second.indices)


def test_ties_at_the_last_place_are_told():
    rows = np.array([[0.0], [1.0], [-1.0], [2.5], [2.5], [9.0]])
    found = exact_neighbours(as_points(rows, "euclidean"), 3)
    np.testing.assert_array_equal(found.tied(1), [True, False, False, False, False, True])
    np.testing.assert_array_equal(found.tied(2), [False, True, False, False, False, False])
    assert not found.tied(3).any()
    np.testing.assert_array_equal(found.cut(2).indices, found.indices[:, :2])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 30),
    st.integers(1, 9),
    st.sampled_from(METRICS),
    st.data(),
)
def test_merged_parts_equal_the_whole(seed, n, k, metric, data):
    generator = np.random.default_rng(seed)
    # Small integers: many ties, and rows of zeros made non-zero for the cosine metric.
    rows = generator.integers(0, 3, size=(n, 3)) + np.array([1, 0, 0])
    points = as_points(rows, metric).keyed()
    ids = np.arange(n, dtype=np.int64)
    cut = data.draw(st.integers(1, n - 1))
    common = {"query_ids": ids}
    whole = nearest(points, points, k, candidate_ids=ids, **common)
    first = nearest(points, points.take(slice(0, cut)), k, candidate_ids=ids[:cut], **common)
    # The second part overlaps the first: candidates in both count once.
    start = cut // 2
    second = nearest(points, points.take(slice(start, n)), k, candidate_ids=ids[start:], **common)
    for parts in ((first, second), (second, first)):
        joined = merge(*parts, k)
        np.testing.assert_array_equal(joined.indices, whole.indices)
        np.testing.assert_array_equal(joined.distances, whole.distances)
    rest = points.take(slice(cut, n))
    added = nearest(points, rest, k, candidate_ids=ids[cut:], known=first, **common)
    np.testing.assert_array_equal(added.indices, whole.indices)
    np.testing.assert_array_equal(added.distances, whole.distances)


def test_known_lists_must_be_of_the_queries():
    points, ids = as_points([[0.0], [1.0]], "euclidean"), np.arange(2)
    known = Neighbours.none(3, 1)
    with pytest.raises(ValueError, match="3 known lists for 2 queries"):
        nearest(points, points, 1, query_ids=ids, candidate_ids=ids, known=known)


def test_too_few_candidates_are_padded():
    points = as_points([[0.0], [1.0], [3.0]], "euclidean")
    ids = np.arange(3, dtype=np.int64)
    found = nearest(points, points, 4, query_ids=ids, candidate_ids=ids)
    np.testing.assert_array_equal(found.indices, [[1, 2, -1, -1], [0, 2, -1, -1], [1, 0, -1, -1]])
    np.testing.assert_array_equal(found.distances[0], [1.0, 3.0, np.inf, np.inf])


@pytest.mark.parametrize("k", [0, 3, 7])
def test_k_outside_the_rows_is_refused(k):
    with pytest.raises(ValueError, match="below 3"):
        exact_neighbours(as_points(np.eye(3), "euclidean"), k)


def test_blocks_that_do_not_fit_are_refused():
    a, b = as_points(np.eye(3), "euclidean"), as_points(np.eye(3), "cosine")
    ids = np.arange(3, dtype=np.int64)
    with pytest.raises(ValueError, match="must agree"):
        nearest(a, b, 1, query_ids=ids, candidate_ids=ids)
    with pytest.raises(ValueError, match="every row needs one"):
        nearest(a, a, 1, query_ids=ids[:2], candidate_ids=ids)
    with pytest.raises(ValueError, match="at least 1"):
        nearest(a, a, 0, query_ids=ids, candidate_ids=ids)
    with pytest.raises(ValueError, match="must agree"):
        merge(Neighbours.none(2, 1), Neighbours.none(3, 1), 1)


def test_recall_counts_ties_as_found():
    true = np.array([[1.0, 2.0], [1.0, 1.0], [0.5, 3.0]])
    found = np.array([[1.0, 2.5], [1.0, 1.0], [3.0, 3.0]])
    recall = recall_certificate(found, true)
    assert recall.value == pytest.approx(5 / 6)
    assert recall.sampled == 3
    assert recall.lower < 5 / 6 < recall.upper
    assert recall_certificate(true, true).upper == 1.0


def test_recall_of_all_hits_has_the_closed_form():
    # No miss in q rows: the lower end solves lower^q = 0.025.
    true = np.ones((200, 5))
    assert recall_certificate(true, true).lower == pytest.approx(0.025 ** (1 / 200))


@pytest.mark.parametrize("recall", [0.8, 0.98, 0.999])
@pytest.mark.parametrize("kind", ["together", "apart", "skewed"])
def test_recall_interval_covers_in_95_percent(recall, kind):
    generator = np.random.default_rng(6)
    covered = 0
    for _ in range(400):
        if kind == "together":  # a row's neighbours are found or missed as one
            hit = np.repeat(generator.random((300, 1)) < recall, 5, axis=1)
        elif kind == "apart":
            hit = generator.random((300, 5)) < recall
        else:  # a few rows miss most of their neighbours
            poor = generator.random((300, 1)) < 2 * (1 - recall)
            hit = generator.random((300, 5)) < np.where(poor, 0.5, 1.0)
        found = np.where(hit, 1.0, 2.0)
        found.sort(axis=1)
        certificate = recall_certificate(found, np.ones((300, 5)))
        covered += certificate.lower <= recall <= certificate.upper
    assert covered >= 0.95 * 400


def test_recall_of_unlike_lists_is_refused():
    with pytest.raises(ValueError, match="alike"):
        recall_certificate(np.ones((3, 2)), np.ones((3, 3)))


@pytest.mark.parametrize("metric", METRICS)
def test_neighbours_within_a_distance_are_those_of_the_whole_list(metric):
    generator = np.random.default_rng(12)
    rows, ids = generator.integers(-3, 4, size=(300, 3)) + 0.5, np.arange(300)
    points = as_points(rows, metric)
    queries, common = points.take(slice(0, 40)), {"query_ids": ids[:40]}
    whole = nearest(queries, points, 30, candidate_ids=ids, **common)
    within = whole.distances[np.arange(40), generator.integers(0, 30, size=40)]
    expected = np.where(whole.distances <= within[:, None], whole.distances, np.inf)
    first = nearest(
        queries, points.take(slice(0, 100)), 30, candidate_ids=ids[:100], within=within, **common
    )
    rest = points.take(slice(100, 300))
    found = nearest(
        queries, rest, 30, candidate_ids=ids[100:], known=first, within=within, **common
    )
    np.testing.assert_array_equal(found.distances, expected)
    np.testing.assert_array_equal(found.indices[np.isinf(expected)], -1)
    inside = np.isfinite(expected)
    np.testing.assert_array_equal(found.indices[inside], whole.indices[inside])
