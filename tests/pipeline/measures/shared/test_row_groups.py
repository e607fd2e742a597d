"""Every pair of rows is in exactly one pair of groups, whatever the size."""

import pytest

from latentscale_pipeline.measures.shared.row_groups import GROUP_BYTES, RowGroups, cut_rows


@pytest.mark.parametrize(("n", "size"), [(1, 1024), (1024, 1024), (1025, 1024), (7000, 1000)])
def test_every_pair_of_rows_once(n: int, size: int) -> None:
    groups = RowGroups(n, size)
    covered = [row for g in range(groups.count) for row in range(*groups.rows(g).indices(n))]
    assert covered == list(range(n))
    pairs = [groups.pair(index) for index in range(groups.pairs)]
    assert sorted(pairs) == [(a, b) for a in range(groups.count) for b in range(a, groups.count)]


@pytest.mark.parametrize(
    ("n", "d", "size", "pairs"),
    [
        (100, 8, 2048, 1),
        (10_000, 384, 3072, 10),
        (20_000, 384, 5120, 10),
        (100_000, 384, 16384, 28),
        (1_000_000, 384, 16384, 62 * 63 // 2),
        (50_000, 4096, 2048, 25 * 26 // 2),
    ],
)
def test_cuts(n: int, d: int, size: int, pairs: int) -> None:
    groups = cut_rows(n, d)
    assert (groups.size, groups.pairs) == (size, pairs)
    assert groups.size * 12 * (d + 1) <= GROUP_BYTES + 1024 * 12 * (d + 1)
