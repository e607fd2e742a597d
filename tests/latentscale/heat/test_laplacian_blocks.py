"""Blocks of rows of a Laplacian against the whole, and random signs that depend on nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack
from scipy.stats import kstest

from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import (
    exact_moments,
    normalised_laplacian,
    unnormalised_laplacian,
)
from latentscale.heat.laplacian_blocks import (
    block_moments,
    joined_rows,
    laplacian_block,
)
from latentscale.linalg.random_vectors import hashed_normals, hashed_signs


@pytest.mark.parametrize("normalised", [True, False])
@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 40), size=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_blocks_stack_to_the_laplacian(normalised, n, size, seed):
    # Rows that list themselves stay alone.
    generator = np.random.default_rng(seed)
    lists = np.where(generator.random((n, 1)) < 0.2, np.arange(n)[:, None],
                     generator.integers(0, n, size=(n, 2)))  # fmt: skip
    adjacency = symmetrise(lists)
    degrees = np.diff(adjacency.indptr).astype(float)
    whole = (normalised_laplacian if normalised else unnormalised_laplacian)(adjacency)
    starts = range(0, n, size)
    blocks = []
    for start in starts:
        rows = adjacency[start : start + size]
        named = np.unique(rows.indices)
        blocks.append(laplacian_block(rows, start, named, degrees[named], normalised=normalised))
    np.testing.assert_allclose(vstack(blocks).toarray(), whole.toarray(), rtol=1e-14)
    shares = []
    for start, block in zip(starts, blocks, strict=True):
        assert block.has_sorted_indices
        named = np.unique(block.indices)
        shares.append(block_moments(block, start, named, whole[named]))
        # What another block needs of this one is what this one names of it, seen from there.
        for other, theirs in zip(starts, blocks, strict=True):
            if other != start:
                needed = named[(named >= other) & (named < other + size)] - other
                sent = joined_rows(theirs, start, min(start + size, n))
                np.testing.assert_array_equal(sent, needed)
    np.testing.assert_allclose(np.sum(shares, axis=0), exact_moments(whole), rtol=1e-12, atol=1e-12)


def test_pieces_of_a_product_are_bounded(monkeypatch):
    """A star: every leaf's row of L L names all leaves, so a piece is one row or few."""
    from latentscale.heat import laplacian_blocks

    star = np.zeros((60, 60))
    star[0, 1:] = star[1:, 0] = 1.0
    laplacian = unnormalised_laplacian(csr_array(star))
    lengths = np.diff(laplacian.indptr)
    monkeypatch.setattr(laplacian_blocks, "PRODUCT_ENTRIES", 200)
    pieces = list(laplacian_blocks._pieces(laplacian, lengths))
    assert [row for piece in pieces for row in range(60)[piece]] == list(range(60))
    # The hub has 60 + 59 * 2 products, a leaf 60 + 2.
    assert [piece.stop - piece.start for piece in pieces] == [1, *[3] * 19, 2]
    everything = np.arange(60)
    share = block_moments(laplacian, 0, everything, laplacian)
    np.testing.assert_allclose(share, exact_moments(laplacian), rtol=1e-13)
    few = laplacian_blocks.first_moments(laplacian, 0)
    np.testing.assert_allclose(few, [*share[:3], 0.0, 0.0], rtol=1e-13)


def test_signs_are_fair_independent_and_the_same_in_any_cut():
    signs = hashed_signs(7, 0, 100_000, range(8))
    assert set(np.unique(signs)) == {-1.0, 1.0}
    np.testing.assert_array_equal(hashed_signs(7, 777, 1900, range(3, 5)), signs[777:1900, 3:5])
    products = signs.T @ signs / 100_000 - np.eye(8)
    assert np.abs(products).max() < 0.015
    assert np.abs(signs.mean(axis=0)).max() < 0.015
    shifted = signs[:-1].T @ signs[1:] / 99_999
    assert np.abs(shifted).max() < 0.015
    assert (hashed_signs(8, 0, 1000, range(8)) != signs[:1000]).mean() > 0.45


def test_normals_are_standard_independent_and_the_same_in_any_cut():
    normals = hashed_normals(7, 0, 100_000, range(4))
    np.testing.assert_array_equal(hashed_normals(7, 777, 1900, range(1, 3)), normals[777:1900, 1:3])
    assert np.abs(normals.T @ normals / 100_000 - np.eye(4)).max() < 0.02
    shifted = normals[:-1].T @ normals[1:] / 99_999
    assert np.abs(shifted).max() < 0.015
    assert kstest(normals.ravel(), "norm").pvalue > 1e-3
