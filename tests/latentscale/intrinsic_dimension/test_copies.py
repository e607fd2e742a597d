"""Lists with few copies of each neighbour, against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from latentscale.intrinsic_dimension.copies import COPIES, SeenRows, merge_few_copies
from latentscale.intrinsic_dimension.estimators import neighbour_distances, with_content_keys
from latentscale.intrinsic_dimension.scores import score_dimensions
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.distances import Metric, as_points


def test_the_first_copies_of_each_row_are_seen_however_rows_are_cut() -> None:
    generator = np.random.default_rng(0)
    keys = generator.integers(0, 60, 500).astype(np.uint64)
    expected = [int((keys[:i] == key).sum()) < COPIES for i, key in enumerate(keys)]
    for cuts in ([], [250], [1, 2, 3, 400], list(range(10, 500, 10))):
        seen, found = SeenRows.none(), []
        for part in np.split(keys, cuts):
            few, seen = seen.admit(part)
            found += few.tolist()
        assert found == expected
        assert dict(zip(seen.keys.tolist(), seen.counts.tolist(), strict=True)) == {
            int(key): int((keys == key).sum()) for key in np.unique(keys)
        }


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_merged_lists_hold_the_nearest_rows_with_few_copies_of_each(metric: Metric) -> None:
    generator = np.random.default_rng(1)
    different = generator.normal(size=(90, 5)).astype(np.float32)
    rows = np.concatenate([different, *(different[:3] for _ in range(30))])
    points = with_content_keys(as_points(rows, metric))
    ids, queries = np.arange(len(rows)), np.arange(90)

    def near(candidates: np.ndarray, k: int) -> Neighbours:
        return nearest(
            points.take(queries),
            points.take(candidates),
            k,
            query_ids=queries,
            candidate_ids=candidates,
        )

    first, second = (near(part, 60) for part in (ids[:100], ids[100:]))
    merged = merge_few_copies(first, second, 40, metric)
    everything = near(ids, len(rows) - 1)
    origin = np.where(ids < 90, ids, (ids - 90) % 3)
    for row in queries:
        expected: list[int] = []
        for other in everything.indices[row].tolist():
            if [origin[each] for each in expected].count(origin[other]) < COPIES:
                expected.append(other)
        assert [origin[each] for each in merged.indices[row]] == [
            origin[each] for each in expected[:40]
        ]


def test_lists_that_end_early_give_an_estimate() -> None:
    rows = np.random.default_rng(2).normal(size=(300, 3))
    points, ids = with_content_keys(as_points(rows, "euclidean")), np.arange(300)
    lists = neighbour_distances(
        ids, nearest(points, points, 40, query_ids=ids, candidate_ids=ids), "euclidean"
    )
    known = lists.known.copy()
    known[:60, 8:] = False
    for ends, bounds in ((False, "exact"), (True, "estimate")):
        cut = replace(lists, known=known, ends=np.full(300, ends))
        few, many = score_dimensions(cut, 300, 3, (5, 20), None).maximum_likelihood
        assert few.estimate is not None
        assert few.estimate.bounds == "exact"
        assert many.estimate is not None
        assert many.estimate.bounds == bounds
        assert many.rows == 240
