"""What is known of every row: its nearest rows, what it repeats, whether it leaks or lies apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale_pipeline.measures.base import Role, RowColumn, RowFilter
from latentscale_pipeline.measures.duplicates.results import DuplicatesResults

FILTERS: Mapping[str, RowFilter] = {
    "exact-duplicates": RowFilter(
        "corpus", "exact duplicates", "duplicate_of is not null", "", ("duplicate_of",)
    ),
    "near-duplicates": RowFilter(
        "corpus",
        "near-duplicates",
        "near_duplicate_of is not null",
        "nearest_distance",
        ("near_duplicate_of", "nearest_distance"),
    ),
    "leaks": RowFilter(
        "corpus",
        "leaks",
        "leaks is not null",
        "reference_distance",
        ("leaks", "reference_distance"),
    ),
    "outliers": RowFilter(
        "corpus",
        "outliers",
        "outlier",
        "reference_distance:desc",
        ("reference_nearest", "reference_distance", "nearest_distance"),
    ),
    "not-covered": RowFilter(
        "reference",
        "not covered",
        "not_covered",
        "corpus_distance:desc",
        ("corpus_nearest", "corpus_distance", "nearest_distance"),
    ),
}
"""Rows to look at, by their reason."""

OTHER: Mapping[Role, Role] = {"corpus": "reference", "reference": "corpus"}


def row_columns(found: DuplicatesResults, role: Role) -> Iterator[RowColumn]:
    """Yield the columns of a corpus."""
    part = getattr(found, role)
    if part is None:
        return
    place = f"duplicates/{role}"
    whole = part.covered is not None
    rows = "" if whole else f"{place}/rows"
    if whole:
        for name, array in (("duplicate_of", "repeated"), ("near_duplicate_of", "covered")):
            gone = f"{place}/{array}_rows"
            yield RowColumn(name, (f"{place}/{array}_by",), _same, role, gone, elsewhere_none=True)
    yield RowColumn("nearest", (f"{place}/own_nearest_row",), _same, role, rows)
    yield RowColumn("nearest_distance", (f"{place}/own_nearest_distance",), _same, "", rows)
    if found.pair is None:
        return
    other, within = OTHER[role], found.within
    near, distance = f"{place}/other_nearest_row", f"{place}/other_nearest_distance"
    yield RowColumn(f"{other}_nearest", (near,), _same, other, rows)
    yield RowColumn(f"{other}_distance", (distance,), _same, "", rows)
    yield RowColumn("leaks", (near, distance), _within(within), other, rows)
    name = "outlier" if role == "corpus" else "not_covered"
    yield RowColumn(name, (distance,), _beyond(found.pair.outlier_distance), "", rows)


def _same(values: NDArray[Any]) -> NDArray[Any]:
    return values


def _within(reach: float) -> Any:
    def near(rows: NDArray[Any], distances: NDArray[Any]) -> NDArray[Any]:
        return np.where(distances <= reach, rows, -1)

    return near


def _beyond(reach: float) -> Any:
    def far(distances: NDArray[Any]) -> NDArray[Any]:
        beyond: NDArray[Any] = distances > reach
        return beyond

    return far
