"""Settings of a neighbour search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from latentscale.neighbours.search import Method
from latentscale.tiles.distances import Metric


@dataclass(frozen=True)
class NeighbourSettings:
    """The neighbours that a measure needs.

    Attributes
    ----------
    k : int
        Neighbours of a row.
    metric : Metric
        Distance by which they are near.
    recall : float
        Share of true neighbours that a search in cells has to find.
    overlap : int or "auto"
        Cells that a row joins.
    method : {"leaves", "nndescent"}
        How groups of cells are searched.
    """

    k: int
    metric: Metric
    recall: float = 1.0
    overlap: int | Literal["auto"] = "auto"
    method: Method = "leaves"
