"""The graphs of a GeomCA job: its own, those of a sweep, and those under random row orders."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from latentscale_pipeline.measures.base import (
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.geomca.config import Geomca


@dataclass(frozen=True)
class Setting:
    """One graph of a job.

    Attributes
    ----------
    factor : float
        The graph's epsilon in units of the job's.
    delta : float
        What both corpora are thinned with, in units of the job's epsilon.
    order : int
        0 for the order of the rows; other numbers are random orders.
    main : bool
        Whether it is thinned with the delta of the job itself.
    """

    factor: float
    delta: float
    order: int
    main: bool

    def thinned(self, role: Role) -> str:
        """Name the stage that thins a corpus."""
        name = f"sparsify-{role}" if self.main else f"sparsify-{role}-delta-{self.delta}"
        return f"{name}-order-{self.order}" if self.order else name

    def drawn(self, role: Role) -> str:
        """Name the stage that draws rows of a corpus or their order."""
        return f"rows-{role}-order-{self.order}" if self.order else f"rows-{role}"

    @property
    def graph(self) -> str:
        """Name the stage that builds the graph."""
        if self.order:
            return f"geomca-order-{self.order}"
        if self.main and self.factor == 1.0:
            return "geomca"
        return f"geomca-epsilon-{self.factor}-delta-{self.delta}"


def own_setting(section: Geomca) -> Setting:
    """Return the setting of the measure's own keys."""
    return Setting(1.0, section.delta, 0, main=True)


def swept_settings(section: Geomca) -> list[Setting]:
    """Return the settings of a sweep, which may include that of the measure's own keys."""
    if section.sweep is None:
        return []
    return [
        Setting(factor, delta, 0, main=delta == section.delta)
        for factor, delta in product(
            section.sweep.epsilon or [1.0], section.sweep.delta or [section.delta]
        )
    ]


def least_delta(section: Geomca) -> float:
    """Return the smallest delta of all graphs, which keeps the most rows."""
    return min(setting.delta for setting in [own_setting(section), *swept_settings(section)])


def considered_rows(section: Geomca, facts: JobFacts) -> dict[Role, int]:
    """Return how many rows of each corpus are taken.

    These are all rows, the number in the configuration, or without one as many random rows a side
    as ``budget.pairs`` allows.
    """
    sizes = {role: corpus.n for role, corpus in facts.corpora.items()}
    rows, delta = section.rows, least_delta(section)
    if rows is None and expected_pairs(sizes.values(), delta) > facts.pairs:
        rows = fitting_rows(facts.pairs, delta)
    return {role: n if rows is None else min(rows, n) for role, n in sizes.items()}


def expected_share(delta: float) -> float:
    """Return the largest share of rows that sparsification is expected to keep.

    The share isn't known before. A quarter is a high guess for delta = epsilon, where each row
    removes 1 to 10 % of all. A small delta removes only near-duplicates.
    """
    return 1.0 - 0.75 * min(delta, 1.0)


def usual_share(delta: float, rows: int) -> float:
    """Return the share of some rows that sparsification usually keeps.

    For delta = epsilon, rows that are kept are far apart, so their number grows more slowly than
    the square root of the rows: 62 of 1000 sentence embeddings, 130 of 10 000.
    """
    return 1.0 - (1.0 - min(0.25, 2.0 / math.sqrt(rows))) * min(delta, 1.0)


def expected_pairs(rows: Iterable[int], delta: float) -> float:
    """Return the expected number of pairs of the costliest step."""
    listed, share = list(rows), expected_share(delta)
    # Thinning compares every row with those kept before it, the graph all kept rows.
    return max(*(share * n**2 / 2 for n in listed), (share * sum(listed)) ** 2 / 2)


def fitting_rows(pairs: float, delta: float) -> int:
    """Return a round number of rows a side that is expected to fit a budget of pairs."""
    share = expected_share(delta)
    rows = min(math.sqrt(2 * pairs / share), math.sqrt(pairs / 2) / share)
    unit = 10.0 ** max(0, math.floor(math.log10(max(rows, 1.0))) - 1)
    return max(1, int(rows // unit * unit))


def replicate_settings(section: Geomca, facts: JobFacts) -> list[Setting]:
    """Return the settings of the same graph under random orders of the rows."""
    orders = range(1, facts.replicates + 1) if facts.replicates > 1 else ()
    return [Setting(1.0, section.delta, order, main=True) for order in orders]
