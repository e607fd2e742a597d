"""What is known of every row: its nearest rows, what it repeats, whether it leaks or lies apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale_pipeline.measures.base import Role, RowColumn, RowFilter
from latentscale_pipeline.measures.duplicates.results import OTHER, DuplicatesResults

FILTERS: Mapping[str, RowFilter] = {
    "exact-duplicates": RowFilter(
        of="corpus",
        score="exact duplicates",
        part_of="near-duplicates",
        where="duplicate_of is not null",
        columns=("duplicate_of",),
        title="Equal to an earlier row",
        other="duplicate_of",
        stays="duplicate_of",
        said="equal to {other}",
    ),
    "near-duplicates": RowFilter(
        of="corpus",
        score="near-duplicates",
        where="near_duplicate_of is not null",
        sort="nearest_distance",
        columns=("near_duplicate_of", "nearest", "nearest_distance"),
        title="Nearly the same as a row that stays",
        other="nearest",
        stays="near_duplicate_of",
        distance="nearest_distance",
        said="nearly the same as {other}",
        said_if_equal="equal to {other}",
    ),
    "exact-leaks": RowFilter(
        of="corpus",
        score="exact leaks",
        part_of="leaks",
        where="equal_in_reference is not null",
        columns=("equal_in_reference",),
        title="Equal to a row of the reference",
        other="equal_in_reference",
        said="equal to {other} of the reference",
    ),
    "leaks": RowFilter(
        of="corpus",
        score="leaks",
        where="leaks is not null",
        sort="reference_distance",
        columns=("leaks", "reference_distance"),
        title="Also in the reference",
        other="leaks",
        distance="reference_distance",
        said="nearly the same as {other} of the reference",
        said_if_equal="equal to {other} of the reference",
    ),
    "outliers": RowFilter(
        of="corpus",
        score="outliers",
        where="outlier",
        sort="reference_distance:desc",
        columns=("reference_nearest", "reference_distance", "nearest_distance"),
        title="Outliers",
        other="reference_nearest",
        distance="reference_distance",
        said="far from the reference, whose nearest is {other}",
        apart=True,
    ),
    "not-covered": RowFilter(
        of="reference",
        score="not covered",
        where="not_covered",
        sort="corpus_distance:desc",
        columns=("corpus_nearest", "corpus_distance", "nearest_distance"),
        title="Rows of the reference that are not covered",
        other="corpus_nearest",
        distance="corpus_distance",
        said="far from the corpus, whose nearest is {other}",
    ),
}
"""Rows to look at, by their reason."""


def row_columns(found: DuplicatesResults, role: Role) -> Iterator[RowColumn]:
    """Yield the columns of a corpus."""
    part = getattr(found, role)
    if part is None:
        return
    place = f"duplicates/{role}"
    whole = part.repeated is not None or part.checked is not None
    rows = "" if whole else f"{place}/rows"
    for name, array in (("duplicate_of", "repeated"), ("near_duplicate_of", "covered")):
        if getattr(part, array) is not None:
            gone = f"{place}/{array}_rows"
            named = (f"{place}/{array}_by",)
            yield RowColumn(name, named, row_of=role, rows=gone, elsewhere_none=True)
    yield RowColumn("nearest", (f"{place}/own_nearest_row",), row_of=role, rows=rows)
    yield RowColumn("nearest_distance", (f"{place}/own_nearest_distance",), rows=rows)
    if found.pair is None:
        return
    other, within = OTHER[role], found.within
    near, distance = f"{place}/other_nearest_row", f"{place}/other_nearest_distance"
    yield RowColumn(f"{other}_nearest", (near,), row_of=other, rows=rows)
    yield RowColumn(f"{other}_distance", (distance,), rows=rows)
    yield RowColumn(
        f"equal_in_{other}", (near, distance), partial(_equal, found.metric), other, rows
    )
    yield RowColumn("leaks", (near, distance), partial(_within, within), other, rows)
    name = "outlier" if role == "corpus" else "not_covered"
    beyond = partial(_beyond, found.pair.outlier_distance)
    yield RowColumn(name, (distance,), beyond, "", rows)


def _within(reach: float, rows: NDArray[Any], distances: NDArray[Any]) -> NDArray[Any]:
    return np.where(distances <= reach, rows, -1)


def _equal(metric: Any, rows: NDArray[Any], distances: NDArray[Any]) -> NDArray[Any]:
    from latentscale.duplicates.distinct import EQUAL_DIRECTION

    return _within(EQUAL_DIRECTION if metric == "cosine" else 0.0, rows, distances)


def _beyond(reach: float, distances: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(distances > reach)
