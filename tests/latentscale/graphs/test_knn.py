"""The neighbour graph against loops over a dense matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from latentscale.graphs.knn import summarise, symmetrise
from latentscale.graphs.laplacian import (
    exact_moments,
    find_null_space,
    normalised_laplacian,
    unnormalised_laplacian,
)
from tests import oracles

LISTS = st.integers(1, 12).flatmap(
    lambda n: st.integers(1, 4).flatmap(
        lambda k: st.lists(
            st.lists(st.integers(0, n - 1), min_size=k, max_size=k), min_size=n, max_size=n
        )
    )
)


@settings(max_examples=150, deadline=None)
@given(LISTS)
def test_graph_equals_the_dense_loops(lists):
    adjacency = symmetrise(np.array(lists, dtype=np.int64))
    expected = oracles.adjacency_by_loops(lists)
    np.testing.assert_array_equal(adjacency.toarray(), expected)
    assert adjacency.data.dtype == np.float64
    assert adjacency.has_canonical_format
    assert adjacency.nnz == np.count_nonzero(expected)

    dense = oracles.laplacian_by_loops(expected)
    laplacian = normalised_laplacian(adjacency)
    np.testing.assert_allclose(laplacian.toarray(), dense, rtol=1e-15, atol=1e-16)
    assert laplacian.has_sorted_indices

    unnormalised = unnormalised_laplacian(adjacency)
    np.testing.assert_array_equal(
        unnormalised.toarray(), oracles.unnormalised_laplacian_by_loops(expected)
    )
    assert unnormalised.has_sorted_indices

    summary = summarise(adjacency)
    assert summary.vertices == len(lists)
    assert summary.edges == np.triu(expected).sum()
    assert summary.components == oracles.components_by_search(expected)
    assert summary.isolated == (expected.sum(axis=1) == 0).sum()

    powers = [np.trace(np.linalg.matrix_power(dense, j)) for j in range(5)]
    np.testing.assert_allclose(exact_moments(laplacian), powers, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(LISTS)
def test_known_null_space_is_that_of_the_dense_matrix(lists):
    adjacency = symmetrise(np.array(lists, dtype=np.int64))
    for form in (normalised_laplacian, unnormalised_laplacian):
        laplacian = form(adjacency)
        null_space = find_null_space(laplacian)
        zeros = int((np.linalg.eigvalsh(laplacian.toarray()) < 1e-9).sum())
        assert null_space.dimension == null_space.components == zeros
        vectors = np.zeros((len(lists), null_space.components))
        vectors[np.arange(len(lists)), null_space.labels] = null_space.vector
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(zeros), atol=1e-14)
        np.testing.assert_allclose(laplacian.toarray() @ vectors, 0.0, atol=1e-14)


def test_nothing_is_claimed_of_the_kernel_of_other_matrices():
    laplacian = unnormalised_laplacian(symmetrise(np.array([[1], [0], [3], [2]])))
    shifted = csr_array(laplacian + np.diag([0.0, 0.0, 1e-6, 0.0]))
    null_space = find_null_space(shifted)
    assert (null_space.components, null_space.dimension) == (2, 1)
    np.testing.assert_allclose(np.abs(null_space.vector), np.sqrt([0.5, 0.5, 0.0, 0.0]), rtol=1e-15)


def test_the_null_space_of_a_star_is_known():
    laplacian = normalised_laplacian(symmetrise(np.zeros((300_000, 1), dtype=np.int64)))
    null_space = find_null_space(laplacian)
    assert (null_space.components, null_space.dimension) == (1, 1)


def test_moments_of_a_graph_with_a_hub():
    lists = np.random.default_rng(0).integers(0, 300, size=(300, 4))
    lists[:, 0] = 0
    laplacian = normalised_laplacian(symmetrise(lists))
    powers = [np.trace(np.linalg.matrix_power(laplacian.toarray(), j)) for j in range(5)]
    np.testing.assert_allclose(exact_moments(laplacian), powers, rtol=1e-13)


def test_moments_of_a_long_ring_have_closed_forms():
    # A ring: L = I - (S + S') / 2, so the traces per vertex are 1, 3/2, 5/2 and 35/8.
    n = 100_000
    ring = symmetrise((np.arange(n)[:, None] + 1) % n)
    moments = exact_moments(normalised_laplacian(ring)) / n
    np.testing.assert_allclose(moments, [1, 1, 3 / 2, 5 / 2, 35 / 8], rtol=1e-14)


def test_unfinished_lists_are_refused():
    with pytest.raises(ValueError, match="row 1 has a neighbour outside"):
        symmetrise(np.array([[1], [-1]], dtype=np.int64))
    with pytest.raises(ValueError, match="row 0 has a neighbour outside"):
        symmetrise(np.array([[2], [0]], dtype=np.int64))
    with pytest.raises(ValueError, match="shape"):
        symmetrise(np.zeros(3, dtype=np.int64))
