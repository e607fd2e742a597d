"""Results of the projection: its part of ``measures`` in the results."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from latentscale_pipeline.config.section import Metric
from latentscale_pipeline.results.part import Absent, Count, Part, Role, Share, Text

SIDE = 1000
"""Largest coordinate of a place; the smallest is 0."""

Coordinate = Annotated[int, Field(ge=0, le=SIDE)]


class RowsOnMap(Part):
    """The rows of a corpus on the map, and their places."""

    row: list[Count]
    """Numbers of the rows, ascending."""
    x: list[Coordinate]
    """Places from left to right, from 0 to 1000."""
    y: list[Coordinate]
    """Places upwards, from 0 to 1000."""
    id: Absent[list[str]] = None
    """Ids of the rows, if the corpus has ids."""
    label: Absent[list[str]] = None
    """Labels of the rows, if the corpus has labels."""
    text: Absent[list[str]] = None
    """The first 60 characters of the texts of the rows, if the corpus has texts."""


class MarkedRow(Part):
    """A row to look at, and where it is on the map."""

    of: Role
    """The corpus that it is a row of."""
    row: Count
    """Number of the row."""
    reasons: list[Text]
    """Why to look at it, as in `latentscale rows --only`."""
    x: Coordinate
    """Place from left to right; that of the nearest row on the map if it isn't on it."""
    y: Coordinate
    """Place upwards."""


class ProjectionResults(Part):
    """Some rows of the corpora, placed in the plane so that near rows stay near."""

    model_config = ConfigDict(title="projection")

    metric: Metric
    """Distance between rows."""
    perplexity: float
    """Near rows that count for the place of a row."""
    kept: Share
    """Share of the ten nearest of each row on the map that are among its ten nearest rows of those
    on the map, or as near as the last of these."""
    corpus: RowsOnMap
    """Rows of the corpus."""
    reference: Absent[RowsOnMap] = None
    """Rows of the reference; absent without one, or if its dimension is another."""
    marked: Absent[list[MarkedRow]] = None
    """The rows to look at that the results name."""
