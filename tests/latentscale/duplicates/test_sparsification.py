import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentscale.duplicates.sparsification import SparsificationFronts, first_near, sparsify
from latentscale.tiles.distances import Balls, as_points
from tests import DATA, oracles

GUDHI_KEPT = json.loads((DATA / "geomca_gudhi_kept.json").read_text())["kept"]

# Coordinates and thresholds on an integer grid: many distances equal 1, root 2, 2 or 5 exactly.
GRID = st.tuples(st.integers(1, 14), st.just(2)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 6))
)
THRESHOLDS = st.sampled_from([0.5, 1.0, math.sqrt(2.0), 2.0, 3.0, 5.0, 20.0])


def euclidean(vectors):
    return as_points(vectors, "euclidean")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(GRID, THRESHOLDS | st.just(0.0), st.integers(1, 15))
def test_sparsification_is_the_greedy_pass(vectors, delta, block_rows):
    kept, representative = oracles.greedy_sparsification(vectors, delta)
    sparse = sparsify(euclidean(vectors), delta, block_rows=block_rows)
    assert sparse.kept.tolist() == kept
    assert sparse.representative.tolist() == representative
    assert sparse.rows.tolist() == [representative.count(k) for k in kept]
    assert sparse.kept.dtype == sparse.representative.dtype == sparse.rows.dtype == np.int64


def gudhi_case(seed):
    """Rows on integers, on quarters, or anywhere, and a delta that many distances equal."""
    generator = np.random.default_rng(seed)
    n, d = int(generator.integers(1, 40)), int(generator.integers(1, 5))
    if seed % 4 < 2:
        rows = generator.integers(0, 6, size=(n, d)).astype(float)
        return rows, float(generator.choice([0.0, 1.0, 2.0, 3.0, 5.0]))
    if seed % 4 == 2:
        rows = generator.integers(0, 12, size=(n, d)) / 4
        return rows, float(generator.choice([0.25, 0.5, 1.25, 2.0]))
    rows = generator.normal(size=(n, d))
    return rows, float(generator.uniform(0.1, 2.0))


def test_kept_rows_equal_those_of_gudhi():
    assert len(GUDHI_KEPT) == 400
    for seed, kept in enumerate(GUDHI_KEPT):
        rows, delta = gudhi_case(seed)
        assert sparsify(euclidean(rows), delta, block_rows=7).kept.tolist() == kept, seed


@pytest.mark.parametrize("seed", range(5))
def test_sparsification_of_continuous_rows_in_many_dimensions(seed):
    vectors = np.random.default_rng(seed).normal(size=(150, 40)) + 100.0
    distances = np.sqrt(((vectors[:, None] - vectors[None]) ** 2).sum(axis=2))
    delta = float(np.percentile(distances, 20))
    kept, representative = oracles.greedy_sparsification(vectors, delta)
    assert 5 < len(kept) < 100
    for block_rows in (1, 7, 64, 150, 1000):
        sparse = sparsify(euclidean(vectors), delta, block_rows=block_rows)
        assert sparse.kept.tolist() == kept
        assert sparse.representative.tolist() == representative


def test_a_chain_at_exactly_delta_keeps_every_other_row():
    sparse = sparsify(euclidean(np.arange(7.0)[:, None] * 0.5), 0.5)
    assert sparse.kept.tolist() == [0, 2, 4, 6]
    assert sparse.representative.tolist() == [0, 0, 2, 2, 4, 4, 6]


def test_delta_zero_merges_duplicates_only():
    vectors = np.random.default_rng(0).normal(size=(30, 9))
    sparse = sparsify(euclidean(np.tile(vectors, (3, 1))), 0.0, block_rows=8)
    assert sparse.kept.tolist() == list(range(30))
    assert sparse.representative.tolist() == list(range(30)) * 3
    assert sparse.rows.tolist() == [3] * 30


def test_sparsification_under_other_metrics():
    vectors = np.random.default_rng(4).normal(size=(60, 3))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    kept, representative = oracles.greedy_sparsification(unit, math.sqrt(2 * 0.2))
    sparse = sparsify(as_points(vectors, "cosine"), 0.2, block_rows=16)
    assert (sparse.kept.tolist(), sparse.representative.tolist()) == (kept, representative)
    sparse = sparsify(as_points([[0.0, 0.0], [1.0, 1.0], [1.0, 2.0]], "manhattan"), 2.0)
    assert sparse.kept.tolist() == [0, 2]


# --- sparsification in fronts ---------------------------------------------------------------


def sparsify_in_fronts(points, delta, *, rows, parts, order=None):
    """The loop of a job: thin a front, then let what it keeps remove rows part by part."""
    fronts = SparsificationFronts.start(len(points), order)
    while not fronts.finished:
        front = fronts.next_front(rows)
        kept = fronts.settle(front, sparsify(points.take(front), delta))
        balls = Balls.about(points.take(kept), delta, strict=False)
        for part in np.array_split(np.arange(len(points)), parts):
            rest = part[fronts.representative[part] < 0]
            first = first_near(balls, points.take(rest), block_rows=5)
            near = first >= 0
            fronts.representative[rest[near]] = kept[first[near]]
    return fronts.outcome


@settings(max_examples=300, deadline=None, derandomize=True)
@given(GRID, THRESHOLDS | st.just(0.0), st.integers(1, 15), st.integers(1, 4))
def test_sparsification_in_fronts_is_the_greedy_pass(vectors, delta, rows, parts):
    kept, representative = oracles.greedy_sparsification(vectors, delta)
    sparse = sparsify_in_fronts(euclidean(vectors), delta, rows=rows, parts=parts)
    assert sparse.kept.tolist() == kept
    assert sparse.representative.tolist() == representative
    assert sparse.kept.dtype == sparse.representative.dtype == np.int64


@pytest.mark.parametrize("seed", range(4))
def test_sparsification_in_another_order_is_that_of_the_permuted_rows(seed):
    generator = np.random.default_rng(seed)
    vectors = generator.integers(0, 5, size=(70, 3)).astype(float)
    order = generator.permutation(70)
    kept, representative = oracles.greedy_sparsification(vectors[order], 2.0)
    sparse = sparsify_in_fronts(euclidean(vectors), 2.0, rows=9, parts=3, order=order)
    assert sorted(order[kept].tolist()) == sparse.kept.tolist()
    assert sparse.representative[order].tolist() == order[representative].tolist()
    assert sparse.kept.tolist() != oracles.greedy_sparsification(vectors, 2.0)[0]


def test_rows_far_longer_than_the_kept_ones_are_told_apart():
    kept = euclidean([[1.0, 0.0], [0.0, 1.0]])
    balls = Balls.about(kept, 0.5, strict=False)
    rows = euclidean([[1e6, 0.0], [1.0, 0.5], [0.0, 1.5000001], [0.0, 1.5], [1e30, 1e30]])
    assert first_near(balls, rows).tolist() == [-1, 0, -1, 1, -1]
