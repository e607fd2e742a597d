"""A graph in blocks is the graph in one piece."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.graphs.knn import summarise, symmetrise
from latentscale.graphs.laplacian import exact_moments, normalised_laplacian
from latentscale.graphs.row_blocks import (
    block_components,
    count_components,
    join_block,
    leaving_edges,
)
from tests import oracles


def in_blocks(lists, size):
    """Form every block from its own lists and the turned edges of the others."""
    n = len(lists)
    starts = range(0, n, size)
    blocks = []
    for start in starts:
        inside = range(start, min(start + size, n))
        turned = [
            np.array(
                [(j, i) for i in range(a, min(a + size, n)) for j in lists[i] if j in inside],
                dtype=np.int64,
            ).reshape(-1, 2)
            for a in starts
            if a != start
        ]
        blocks.append(join_block(lists[start : start + size], start, turned, n))
    return blocks


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 30), st.integers(1, 3), st.integers(1, 30), st.integers(0, 2**31))
def test_blocks_stack_to_the_graph(n, k, size, seed):
    lists = np.random.default_rng(seed).integers(0, n, size=(n, k))
    blocks = in_blocks(lists, size)
    whole = symmetrise(lists)
    np.testing.assert_array_equal(np.vstack([b.toarray() for b in blocks]), whole.toarray())
    counts, labels = zip(
        *(block_components(block, i * size) for i, block in enumerate(blocks)), strict=True
    )
    first = np.cumsum([0, *counts])
    joined = []
    for i, block in enumerate(blocks):
        assert block.has_canonical_format
        for vertex, component in leaving_edges(block, i * size, labels[i]):
            other = vertex // size
            assert other > i
            joined.append((component + first[i], labels[other][vertex % size] + first[other]))
    found = count_components(counts, np.array(joined, dtype=np.int64).reshape(-1, 2))
    assert found == oracles.components_by_search(whole.toarray())
    assert found == summarise(whole).components


def test_unfinished_lists_are_refused():
    with pytest.raises(ValueError, match="complete the lists"):
        join_block(np.array([[-1]]), 0, [], 3)


def test_moments_of_rows_add_up():
    lists = np.random.default_rng(0).integers(0, 90, size=(90, 4))
    laplacian = normalised_laplacian(symmetrise(lists))
    shares = [exact_moments(laplacian, slice(a, b)) for a, b in ((0, 31), (31, 32), (32, 90))]
    np.testing.assert_allclose(np.sum(shares, axis=0), exact_moments(laplacian), rtol=1e-14)
