"""Random samples of distinct rows, against sets of all rows."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from latentscale.duplicates.bottom_k import (
    hash_rows,
    largest_hash,
    scale_by_power,
    smallest_hashes,
)


def few_distinct(n: int, distinct: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(distinct, 3))
    # Some rows are much more common than others.
    return rows[np.minimum(generator.geometric(0.02, size=n) - 1, distinct - 1)]


def sample(rows: np.ndarray, size: int, seed: int, parts: int = 1) -> np.ndarray:
    """Sample the rows of parts, and the samples of the parts once more."""
    distinct = len(np.unique(rows, axis=0))
    kept, hashes = [], []
    for part in np.array_split(rows, parts):
        found = hash_rows(part, "euclidean", seed)
        small = np.flatnonzero(found <= largest_hash(distinct, size))
        first = small[smallest_hashes(found[small], len(small))]
        kept.append(part[first])
        hashes.append(found[first])
    return np.concatenate(kept)[smallest_hashes(np.concatenate(hashes), size)]


def test_hashes_are_uniform_and_equal_for_equal_rows_alone() -> None:
    rows = np.random.default_rng(0).integers(-3, 4, size=(20_000, 4)).astype(float)
    hashes = hash_rows(rows, "euclidean", 5)
    _, row_of = np.unique(rows, axis=0, return_inverse=True)
    pairs = {(int(row), int(found)) for row, found in zip(row_of.ravel(), hashes, strict=True)}
    assert len(pairs) == len({row for row, _ in pairs}) == len({found for _, found in pairs})
    assert kstest([found / 2.0**64 for _, found in pairs], "uniform").pvalue > 1e-3


def test_negative_zero_is_zero() -> None:
    rows = np.array([[0.0, 1.0], [-0.0, 1.0]])
    assert len(set(hash_rows(rows, "euclidean", 1).tolist())) == 1


def test_directions_are_equal_up_to_a_power_of_two() -> None:
    rows = np.random.default_rng(1).normal(size=(50, 5))
    for factor in (2.0**-1060, 0.125, 4.0, 2.0**900):
        scaled = rows * factor
        same = scaled / factor == rows
        found = hash_rows(scaled[same.all(axis=1)], "cosine", 2)
        np.testing.assert_array_equal(found, hash_rows(rows, "cosine", 2)[same.all(axis=1)])
    assert set(hash_rows(3 * rows, "cosine", 2)).isdisjoint(hash_rows(rows, "cosine", 2))
    largest = np.abs(scale_by_power(rows)).max(axis=1)
    assert ((largest >= 0.5) & (largest < 1)).all()


@pytest.mark.parametrize("size", [5, 40, 1000])
def test_the_sample_depends_neither_on_parts_nor_on_order(size: int) -> None:
    rows = few_distinct(3000, 200, 2)
    whole = sample(rows, size, 7)
    assert len(whole) == min(size, len(np.unique(rows, axis=0)))
    assert len(np.unique(whole, axis=0)) == len(whole)
    np.testing.assert_array_equal(sample(rows, size, 7, parts=11), whole)
    shuffled = np.random.default_rng(3).permutation(rows)
    np.testing.assert_array_equal(sample(shuffled, size, 7, parts=4), whole)


def test_every_distinct_row_is_as_likely_whatever_its_copies() -> None:
    rows = few_distinct(2000, 60, 4)
    distinct = np.unique(rows, axis=0)
    size, draws = 12, 800
    drawn = np.zeros(len(distinct))
    for seed in range(draws):
        found = sample(rows, size, seed)
        drawn[np.searchsorted(distinct[:, 0], found[:, 0])] += 1
    expected = draws * size / len(distinct)
    # Draws without repetition vary less than those with it.
    spread = np.square(drawn - expected).sum() / (expected * (1 - size / len(distinct)))
    assert chi2.sf(spread, len(distinct) - 1) > 1e-3


def test_parts_keep_enough_rows() -> None:
    generator = np.random.default_rng(5)
    for distinct, size in ((1000, 100), (10_000, 50), (100_000, 3)):
        hashes = generator.integers(2**64, size=(200, distinct), dtype=np.uint64)
        kept = (hashes <= largest_hash(distinct, size)).sum(axis=1)
        assert kept.min() >= size
        assert kept.mean() <= size + 6 * np.sqrt(size) + 40
    assert largest_hash(10, 10) == np.uint64(2**64 - 1)
