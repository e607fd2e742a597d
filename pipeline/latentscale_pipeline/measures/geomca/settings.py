"""The graphs of a GeomCA job: its own, those of a sweep, and those under random row orders."""

from __future__ import annotations

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
        """Name the stage that draws rows of a corpus, or their order, where that is needed."""
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
    """Return what the measure's own keys say."""
    return Setting(1.0, section.delta, 0, main=True)


def swept_settings(section: Geomca) -> list[Setting]:
    """Return the graphs of a sweep, that of the measure's own keys among them if it asks for it."""
    if section.sweep is None:
        return []
    return [
        Setting(factor, delta, 0, main=delta == section.delta)
        for factor, delta in product(
            section.sweep.epsilon or [1.0], section.sweep.delta or [section.delta]
        )
    ]


def replicate_settings(section: Geomca, facts: JobFacts) -> list[Setting]:
    """Return the same graph under random orders of the rows."""
    orders = range(1, facts.replicates + 1) if facts.replicates > 1 else ()
    return [Setting(1.0, section.delta, order, main=True) for order in orders]
