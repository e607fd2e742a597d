"""Sizes of cells, groups and blocks in the approximate neighbour search."""

from __future__ import annotations

import math
from dataclasses import dataclass

from latentscale.neighbours.cell_layout import GROUP_FILL
from latentscale.neighbours.ivf import cell_cap
from latentscale.neighbours.leaves import LEAF_ROWS
from latentscale.neighbours.two_level_cells import (
    COARSE_ROWS,
    COARSE_SHARE,
    MAX_COMPARED,
    SEARCHED_COARSE_CELLS,
    count_coarse_cells,
)

OVERLAPS = (2, 3, 4, 6)
"""Cells that a row may join, from which ``overlap: auto`` chooses."""

MISSED, MISSED_BY_GROUPS = 0.4, 0.3
"""Shares of the misses that ``recall`` allows that are planned, and of those between rows without a
common group; searches inside groups may miss the others. The rest is for the width of the
certificate's interval, which counts every row as one draw.
"""

BESIDE_GROUPS = 0.25
"""Misses that searches inside groups may add, where groups miss more than planned, as a share of
those: further searches would cost a lot and change little.
"""

MIN_LEAVES = 3
"""Fewest leaves that a row joins inside a group, where it joins fewer cells."""

REFINEMENTS = 1
"""Rounds of refinement by neighbours' neighbours, and one more for rows in many leaves."""

AGAIN = 2
"""Factor on the overlap, and rounds of refinement, after a certificate has missed."""

HOME_ROWS = 1024
"""Rows whose nearest cell is the same, on average."""

MAX_CELLS = 1 << 16
"""Largest number of cells. In larger corpora cells have more rows, at 10⁹ as many as a group."""

SAMPLED_ROWS = 128
"""Sampled rows for each centre."""

SAMPLE_BYTES = 128 * 2**20
"""Memory of the whole sample as points."""

GROUP_BYTES = 256 * 2**20
MAX_GROUP_ROWS = 1 << 18
"""Size of a group of cells that is searched together, as points and in rows."""

COPIES, MAX_COPIES = 1.25, 4.0
"""Groups that a row joins on average, as a plan expects: in some ten groups a quarter of all rows
join cells of two. It grows with the root of their number: in fifty groups rows of tight clusters
in twelve dimensions joined 3.2.
"""

GROUPED_ROWS = 1 << 18
"""Sampled rows by which cells are grouped, at most."""

TASK_COPIES = 2.5
"""Groups that a row joins, by which the number of tasks is chosen. If rows join more, a task
searches several groups.
"""

MAX_SECTIONS = 1 << 20
"""Largest number of sections that one pass writes; beyond, rows are shuffled in two passes."""

PIECE_BYTES = 1350 * 2**20
"""Memory of a piece of a coarse group, at least two blocks of shards."""

MAX_SEARCHES = 50_000
"""Largest number of tasks that search groups; beyond, each searches several."""

VERTEX_BLOCK = 1 << 18
MAX_VERTEX_BLOCKS = 1024
"""Positions of a block whose lists are merged by one task, and the largest number of blocks."""

JOINED_ENTRIES = 1 << 24
"""Largest number of list entries that are also stored in the order of the corpus."""

PILOT_ROWS = 500
"""Rows whose neighbours determine the overlap."""

CERTIFIED_ROWS = 1000
"""Fewest rows of a recall certificate."""

DESCENT_BYTES = 280 * 2**20
"""Memory that a process keeps after it has compiled nearest neighbour descent."""

DESCENT_ROW_OPERATIONS, DESCENT_COORDINATE_OPERATIONS, DESCENT_START_OPERATIONS = (
    50_000,
    150,
    2.5e10,
)
"""Elementwise operations of a descent: on a row, on each coordinate, and to compile it once."""

PAIR_OPERATIONS, REFINED_OPERATIONS = 6.0, 9000
"""Elementwise operations on a pair of a leaf, and on a row and round of refinement.

A row and round also takes distances of about 20 rows.
"""

DIVISIONS = 2.0
"""Divisions of a group into :data:`MIN_LEAVES`, as a plan expects."""

COMPARED_OPERATIONS, VISITED_OPERATIONS, SHUFFLED_OPERATIONS = 2.5, 20.0, 7000.0
"""Elementwise operations on a row and a centre that it is compared with, where these are all or
those of some coarse cells, and on a row that is written.
"""

MERGED_OPERATIONS = 250.0
"""Elementwise operations on an entry of merged lists."""


@dataclass(frozen=True)
class Layout:
    """Sizes that follow from the shape of a corpus alone.

    Attributes
    ----------
    n, d : int
        Rows and dimensions.
    home_rows : int, optional
        Rows whose nearest cell is the same, on average; by default :data:`HOME_ROWS`.
    """

    n: int
    d: int
    home_rows: int | None = None

    @property
    def cap(self) -> int:
        """Most rows of a cell."""
        return cell_cap(self.n, self.d)

    @property
    def cells(self) -> int:
        """Number of centres; one if all rows fit a cell."""
        if self.n <= self.cap:
            return 1
        home_rows = self.home_rows or HOME_ROWS
        return min(-(-self.n // min(home_rows, self.cap // 4)), MAX_CELLS)

    @property
    def coarse_cells(self) -> int:
        """Number of coarse cells that the cells are placed in."""
        return count_coarse_cells(self.cells)

    @property
    def compares_all(self) -> bool:
        """Whether a row is compared with the centres of all cells."""
        return self.coarse_cells == 1 or self.cells <= MAX_COMPARED

    @property
    def centre_operations(self) -> float:
        """Elementwise operations to find a row's nearest centres."""
        each = COMPARED_OPERATIONS if self.compares_all else VISITED_OPERATIONS
        return each * self.compared_centres

    @property
    def placed_against(self) -> float:
        """Centres that a row of the sample is compared with in a round of placing them."""
        return (
            self.cells
            if self.coarse_cells == 1
            else self.coarse_cells + self.cells / self.coarse_cells
        )

    @property
    def compared_centres(self) -> int:
        """Centres of both levels that a row is compared with where it is assigned."""
        if self.compares_all:
            return self.cells
        return self.coarse_cells + SEARCHED_COARSE_CELLS * self.cells // self.coarse_cells

    @property
    def sample(self) -> int:
        """Sampled rows that determine the centres."""
        fitting = SAMPLE_BYTES // (8 * self.d)
        return min(self.n, SAMPLED_ROWS * self.cells, max(fitting, 3 * self.cells // 2))

    @property
    def placing_rows(self) -> int:
        """Most rows of the sample that are points at the same time."""
        if self.coarse_cells == 1:
            return self.sample
        return max(COARSE_ROWS * self.coarse_cells, COARSE_SHARE * self.sample // self.coarse_cells)

    def grouping_bytes(self, overlap: int) -> int:
        """Bytes to group the cells by the sample, of which a view is kept whole."""
        return (
            40 * overlap * min(self.sample, GROUPED_ROWS) + 4 * AGAIN * OVERLAPS[-1] * self.sample
        )

    def centre_bytes(self, stored: int) -> int:
        """Bytes of the centres of rows with so many bytes a coordinate."""
        return (8 if self.compares_all or stored > 4 else 4) * self.cells * self.d

    @property
    def group_rows(self) -> int:
        """Most rows that are searched together."""
        return min(max(GROUP_BYTES // (8 * (self.d + 1)), 2 * self.cap), MAX_GROUP_ROWS)

    @property
    def exact_groups(self) -> bool:
        """Whether rows that are searched together are so few that all pairs are compared."""
        return min(self.n, self.group_rows) <= self.cap

    @property
    def copies(self) -> float:
        """Groups that a row is expected to join, on average."""
        if self.n <= self.group_rows:
            return 1.0
        return min(max(COPIES, 0.5 * math.sqrt(self.n / self.group_rows)), MAX_COPIES)

    @property
    def block(self) -> int:
        """Positions of a vertex block."""
        return max(VERTEX_BLOCK, -(-self.n // MAX_VERTEX_BLOCKS))

    @property
    def blocks(self) -> int:
        """Number of vertex blocks."""
        return -(-self.n // self.block)

    def searches(self, overlap: int) -> int:
        """Tasks that search the groups, about as many as there are groups."""
        if self.n <= self.group_rows:
            return 1
        groups = round(min(overlap, TASK_COPIES) * self.n / (GROUP_FILL * self.group_rows))
        return min(max(1, groups), MAX_SEARCHES)

    def coarse_groups(self, blocks: int, overlap: int) -> int:
        """Return the number of coarse groups of a first pass; 1 if one pass is enough."""
        groups = self.searches(overlap)
        if blocks * groups <= MAX_SECTIONS:
            return 1
        # Both passes then write about as many sections.
        return max(2, round(math.sqrt(groups / 2)))

    def compared_rows(self, overlap: int) -> float:
        """Rows that a row is compared with in its leaves, and leaders of leaves."""
        rows = min(self.n, self.group_rows)
        if self.exact_groups:
            return rows / 2
        # Leaves differ in size, so a row's leaf is larger than the average; pairs serve two rows.
        return overlap * (0.65 * LEAF_ROWS + rows / LEAF_ROWS)


def missed_inside(allowed: float, apart: float) -> float:
    """Return what searches inside groups may miss.

    Parameters
    ----------
    allowed : float
        Share of the neighbours that all searches together may miss.
    apart : float
        Share of the neighbours that have no group in common with their row.
    """
    rest = max(MISSED * allowed - apart, (MISSED - MISSED_BY_GROUPS) * allowed)
    return max(rest, BESIDE_GROUPS * apart)


def checked_rows(target: float) -> int:
    """Rows of a certificate.

    Even without a miss the certificate of m rows can't exceed 0.025^(1/m), so m follows from the
    target.
    """
    needed = CERTIFIED_ROWS if target == 0 else 4 * math.log(0.025) / math.log(min(target, 0.9999))
    return max(CERTIFIED_ROWS, math.ceil(needed))
