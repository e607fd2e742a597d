"""Neighbourhoods against brute force, the hypergeometric distribution, and random divisions."""

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats

from latentscale.abundance import neighbourhoods
from latentscale.abundance.neighbourhoods import (
    compare_neighbourhoods,
    group_kinds,
    unusual_counts,
)


def nearest_lists(rows: np.ndarray, k: int) -> np.ndarray:
    distances = scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(rows))
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :k].astype(np.int32)


@pytest.mark.parametrize(
    ("k", "n", "first"), [(100, 8000, 4000), (50, 400, 90), (100, 1000, 970), (10, 41, 20)]
)
def test_unusual_counts_are_those_of_the_hypergeometric_distribution(
    k: int, n: int, first: int
) -> None:
    counts = np.arange(k + 1)
    law = scipy.stats.hypergeom(n, first, k)
    low, high = counts[law.cdf(counts) <= 1e-3], counts[law.sf(counts - 1) <= 1e-3]
    assert unusual_counts(k, n, first) == (low.max(initial=-1), high.min(initial=k + 1))


def test_a_kind_that_the_first_corpus_lacks_is_found_and_is_one() -> None:
    rng = np.random.default_rng(3)
    kinds = np.repeat([0, 1, 2], [300, 300, 100])
    first = rng.random(700) < 0.5
    first[kinds == 2] = False
    rows = 5.0 * np.eye(3)[kinds] + rng.normal(size=(700, 3))
    lists = nearest_lists(rows, 60)
    found = compare_neighbourhoods(lists, first, np.random.default_rng(0))
    counts = np.array([first[own].sum() for own in lists])
    np.testing.assert_array_equal(found.counts, counts)
    low, high = unusual_counts(60, 700, int(first.sum()))
    np.testing.assert_array_equal(found.depleted, ~first & (counts <= low))
    np.testing.assert_array_equal(found.enriched, first & (counts >= high))
    depleted = found.shares["depleted"]
    assert depleted.found == found.depleted.sum() / (~first).sum()
    assert (depleted.p, depleted.found > 3 * depleted.upper) == (0.001, True)
    assert found.depleted[kinds == 2].mean() > 0.9
    [largest, *others] = group_kinds(lists, found.depleted)
    assert set(kinds[largest]) == {2}
    assert len(largest) > 0.9 * found.depleted.sum()
    assert sum(map(len, others)) + len(largest) == found.depleted.sum()


def test_kinds_are_joined_by_near_rows() -> None:
    rng = np.random.default_rng(4)
    lists = nearest_lists(rng.normal(size=(200, 3)), 15)
    unusual = rng.random(200) < 0.15
    joined = {row: {row} for row in np.flatnonzero(unusual)}
    for row in np.flatnonzero(unusual):
        for other in lists[row, : neighbourhoods.LINKS]:
            if unusual[other] and joined[row] is not joined[other]:
                whole = joined[row] | joined[other]
                joined.update(dict.fromkeys(whole, whole))
    expected = sorted({tuple(sorted(kind)) for kind in joined.values()}, key=lambda k: (-len(k), k))
    assert [tuple(kind) for kind in group_kinds(lists, unusual)] == expected
    assert len(expected) > 3
    assert group_kinds(lists, np.zeros(200, bool)) == []


@pytest.mark.parametrize("sizes", [(150, 150), (60, 240)])
def test_p_values_hold_for_samples_of_one_source(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of clusters, in which unusual neighbourhoods come in clumps."""
    monkeypatch.setattr(neighbourhoods, "DIVISIONS", 99)
    monkeypatch.setattr(neighbourhoods, "RARE", 0.02)
    p = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        rows = 3.0 * np.eye(6)[rng.integers(6, size=sum(sizes))] + rng.normal(size=(sum(sizes), 6))
        found = compare_neighbourhoods(
            nearest_lists(rows, 30), np.arange(sum(sizes)) < sizes[0], rng
        )
        p.append([found.shares[name].p for name in ("depleted", "enriched")])
    for level in (0.05, 0.2):
        # Ties make p-values larger than uniform ones; three standard errors of 120 tries.
        least = level + 3 * np.sqrt(level * (1 - level) / 120)
        assert (np.mean(np.array(p) <= level, axis=0) < least).all()
    assert (np.array(p) <= 0.2).any(axis=0).all()


def test_neighbourhoods_that_can_not_be_unusual_are_not() -> None:
    """Of a corpus that has nearly all rows, none can have too many."""
    rng = np.random.default_rng(5)
    lists = nearest_lists(rng.normal(size=(300, 4)), 20)
    found = compare_neighbourhoods(lists, np.arange(300) < 280, rng)
    assert found.high == 21
    enriched = found.shares["enriched"]
    assert (enriched.found, enriched.upper, enriched.p) == (0.0, 0.0, 1.0)
