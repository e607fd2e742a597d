"""Lengths of rows equal NumPy's, however the rows are cut."""

import numpy as np
import pytest

from latentscale.spectrum.lengths import bin_ends, merge_lengths, row_lengths


@pytest.mark.parametrize("seed", range(5))
def test_they_equal_numpys_however_the_rows_are_cut(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(9000, 5)) * np.exp(2.0 * generator.normal(size=(9000, 1)))
    expected = np.linalg.norm(rows, axis=1)
    cuts = np.sort(generator.integers(1, 9000, size=4))
    for found in (row_lengths(rows), merge_lengths(map(row_lengths, np.split(rows, cuts)))):
        assert found.count == 9000
        assert found.mean == pytest.approx(expected.mean(), rel=1e-12)
        assert found.deviation == pytest.approx(expected.std(), rel=1e-10)
        assert (found.least, found.largest) == pytest.approx((expected.min(), expected.max()))
        counts, _ = np.histogram(expected, bin_ends())
        np.testing.assert_array_equal(found.bins, counts)


def test_extreme_lengths_are_counted() -> None:
    rows = np.array([[0.0, 0.0], [1e-45, 0.0], [3e38, 3e38], [3.0, 4.0]], "f4")
    found = row_lengths(rows)
    assert found.bins.sum() == 3
    assert found.least == 0.0
    assert found.largest == pytest.approx(np.sqrt(2.0) * 3e38)


def test_equal_lengths_do_not_vary() -> None:
    assert row_lengths(np.full((5000, 3), 0.1, "f4")).scatter < 1e-28
