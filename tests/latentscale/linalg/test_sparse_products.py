"""Products of a sparse matrix with a block, to the bit as a plain loop adds them."""

import numpy as np
import pytest
from scipy import sparse

from latentscale.linalg.sparse_products import SUMMED_ROWS, multiply_and_subtract


def summed_in_order(matrix: sparse.csr_array, block: np.ndarray) -> np.ndarray:
    product = np.zeros_like(block)
    for i in range(len(block)):
        for entry in range(matrix.indptr[i], matrix.indptr[i + 1]):
            product[i] += matrix.data[entry] * block[matrix.indices[entry]]
    return product


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 12, 16, 23, 31, 40])
def test_products_have_the_bits_of_a_plain_loop(width: int, index: type) -> None:
    rng = np.random.default_rng(width)
    n = 150
    entries = np.where(rng.random((n, n)) < 0.08, rng.normal(size=(n, n)), 0.0)
    entries[[0, 40, n - 1]] = 0.0
    matrix = sparse.csr_array(entries)
    current, previous = rng.normal(size=(2, n, width))
    scale, coupling = rng.normal(size=(2, width))
    product = np.full((n, width), np.nan)
    shares = multiply_and_subtract(
        matrix.indptr.astype(index),
        matrix.indices.astype(index),
        matrix.data,
        current,
        scale,
        previous,
        coupling,
        product,
    )
    expected = summed_in_order(matrix, current) * scale - previous * coupling
    np.testing.assert_array_equal(product, expected)
    np.testing.assert_allclose(shares, (current * expected).sum(axis=0), rtol=1e-12, atol=1e-12)


def test_a_matrix_without_entries_and_one_of_one_row() -> None:
    no_entry = np.zeros(0, dtype=np.int64)
    for n in (1, SUMMED_ROWS + 5):
        current, product = np.ones((n, 9)), np.empty((n, 9))
        shares = multiply_and_subtract(
            np.zeros(n + 1, dtype=np.int64),
            no_entry,
            np.zeros(0),
            current,
            np.ones(9),
            current,
            np.full(9, 2.0),
            product,
        )
        np.testing.assert_array_equal(product, -2.0)
        np.testing.assert_array_equal(shares, -2.0 * n)
    product = np.empty((1, 9))
    one = np.array([0, 1]), np.array([0]), np.array([3.0])
    row = np.arange(9.0)[None]
    shares = multiply_and_subtract(*one, row, np.ones(9), row, np.ones(9), product)
    np.testing.assert_array_equal(product, 2.0 * row)
    np.testing.assert_array_equal(shares, 2.0 * row[0] ** 2)
