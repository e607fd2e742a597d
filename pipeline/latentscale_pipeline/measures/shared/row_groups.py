"""Cut a corpus into row groups, and its pairs into pairs of groups.

A task takes one pair of groups, so it holds the rows of two groups and nothing else of the corpus.
Each unordered pair of rows is in exactly one task. The cut is a function of the number of rows and
dimensions alone.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP_BYTES = 96 * 2**20
"""Memory of one group's rows, in both precisions."""

MIN_ROWS = 2048
"""Fewest rows of a group: with fewer, handing out a task takes longer than the task."""

MAX_ROWS = 16384

GROUPS = 4
"""Usual number of groups, which gives ten tasks, within the limits on their size."""

ROUNDED_ROWS = 1024
"""Groups consist of whole tiles."""


@dataclass(frozen=True)
class RowGroups:
    """Consecutive groups of rows and the pairs of them.

    Attributes
    ----------
    n : int
        Rows in all.
    size : int
        Rows of every group but the last.
    """

    n: int
    size: int

    @property
    def count(self) -> int:
        """Number of groups."""
        return -(-self.n // self.size)

    @property
    def pairs(self) -> int:
        """Number of unordered pairs of groups, each with itself included."""
        return self.count * (self.count + 1) // 2

    def rows(self, group: int) -> slice:
        """Return the rows of a group."""
        return slice(group * self.size, min((group + 1) * self.size, self.n))

    def pair(self, index: int) -> tuple[int, int]:
        """Return the two groups of a pair, the first not after the second.

        Pairs of different groups come first: they take twice as long as a group with itself.
        """
        mixed = self.pairs - self.count
        if index >= mixed:
            return index - mixed, index - mixed
        first = 0
        while index >= self.count - 1 - first:
            index -= self.count - 1 - first
            first += 1
        return first, first + 1 + index


def cut_rows(n: int, d: int, most: int | None = None) -> RowGroups:
    """Cut ``n`` rows of ``d`` dimensions into groups of at most ``most`` rows."""
    fitting = GROUP_BYTES // (12 * (d + 1))
    size = min(max(MIN_ROWS, -(-n // GROUPS)), most or MAX_ROWS, fitting)
    return RowGroups(n, max(ROUNDED_ROWS, -(-size // ROUNDED_ROWS) * ROUNDED_ROWS))
