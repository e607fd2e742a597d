"""The findings: the places of rows, which rows they are, and where the rows to look at lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from latentscale.array_types import Float32Array, Float64Array, Int64Array
from latentscale.projection.tsne import MIN_ROWS
from latentscale.tiles.distances import Metric, as_points
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.measures.base import Findings, JobFacts, Results, Role
from latentscale_pipeline.measures.projection.config import ProjectionSection
from latentscale_pipeline.measures.projection.plan import drawn_rows
from latentscale_pipeline.measures.projection.results import (
    SIDE,
    MarkedRow,
    ProjectionResults,
    RowsOnMap,
)
from latentscale_pipeline.measures.shared.random_rows import read_in_order
from latentscale_pipeline.results.model import RowsToLookAt

RowKey = tuple[Role, int]
"""A corpus and the number of one of its rows."""

TEXT_LENGTH = 60
"""Characters of a text that are kept."""

ROOM = 0.02
"""Room at the edges of the map, as a share of its side."""

READ_BYTES, DRAWN_BYTES = 2 * 2**30, 256 * 2**20
"""Largest size of all corpora, and of the rows on the map in float64, that are read again to mark
rows that aren't on it; the former also that of ids, labels or texts."""


def collect_projection(section: ProjectionSection, facts: JobFacts, results: Results) -> Findings:
    """Collect the places of the rows, and what the map keeps."""
    counts = drawn_rows(section, facts)
    if sum(counts.values()) < MIN_ROWS:
        return Findings(None, reason=f"a map needs {MIN_ROWS} rows or more")
    found = results("projection")
    rows, places = found.array("rows"), _on_square(found.array("places"))
    parts: dict[str, RowsOnMap] = {}
    first = 0
    for role, count in counts.items():
        own = slice(first, first + count)
        parts[role] = RowsOnMap(
            row=rows[own].tolist(), x=places[own, 0].tolist(), y=places[own, 1].tolist()
        )
        first += count
    part = ProjectionResults(
        metric=section.metric,
        perplexity=found.values["perplexity"],
        kept=found.values["kept"],
        corpus=parts["corpus"],
        reference=parts.get("reference"),
    )
    arrays = {f"projection/{name}": found.path(name) for name in ("rows", "places")}
    return Findings(part, arrays=arrays)


def _on_square(places: Float32Array) -> Int64Array:
    """Scale places to whole numbers from 0 to the side of the square, alike in both directions."""
    low, high = places.min(axis=0), places.max(axis=0)
    extent = float((high - low).max()) / (1.0 - 2.0 * ROOM) or 1.0
    centred = (places - (low + high) / 2.0) / extent
    whole: Int64Array = np.rint(SIDE * (0.5 + centred.astype(np.float64))).astype(np.int64)
    return whole


def name_rows(findings: Findings, corpora: Mapping[Role, Corpus]) -> Findings:
    """Return the findings with ids, labels and texts of the rows."""
    part = findings.section
    if not isinstance(part, ProjectionResults):
        return findings
    named: dict[str, RowsOnMap] = {
        role: _named(own, corpora[role]) for role, own in _parts(part).items()
    }
    return replace(findings, section=part.model_copy(update=named))


def _named(part: RowsOnMap, corpus: Corpus) -> RowsOnMap:
    numbers = np.array(part.row, np.int64)
    known = {
        field: [text[:TEXT_LENGTH] if name == "texts" else text for text in found]
        for field, name in (("id", "ids"), ("label", "labels"), ("text", "texts"))
        if name in corpus.manifest.arrays and _size(corpus, name) <= READ_BYTES
        for found in [corpus.texts_at(name, numbers).tolist()]
    }
    return part.model_copy(update=known)


def _size(corpus: Corpus, name: str) -> int:
    return sum(shard.size for shard in corpus.manifest.arrays[name].shards)


def mark_rows(
    found: ProjectionResults, corpora: Mapping[Role, Corpus], rows: Sequence[RowsToLookAt]
) -> ProjectionResults:
    """Return the map with the rows to look at.

    A row that isn't on the map is marked at the place of the nearest that is. Both are read again
    for that, so such rows of corpora beyond :data:`READ_BYTES` aren't marked.
    """
    parts = _parts(found)
    reasons: dict[RowKey, list[str]] = {}
    for each in rows:
        for row in each.rows:
            if each.of in parts:
                reasons.setdefault((each.of, row.row), []).append(each.reason)
    placed = {
        (role, row): (x, y)
        for role, part in parts.items()
        for row, x, y in zip(part.row, part.x, part.y, strict=True)
    }
    beside = _places_beside(
        found.metric, placed, corpora, [key for key in reasons if key not in placed]
    )
    known = beside | placed
    marked = [
        MarkedRow(of=key[0], row=key[1], reasons=said, x=known[key][0], y=known[key][1])
        for key, said in reasons.items()
        if key in known
    ]
    return found.model_copy(update={"marked": marked})


def _places_beside(
    metric: Metric,
    placed: Mapping[RowKey, tuple[int, int]],
    corpora: Mapping[Role, Corpus],
    missing: Sequence[RowKey],
) -> dict[RowKey, tuple[int, int]]:
    """Return the places of the nearest rows on the map, for rows that aren't on it."""
    roles = {role for role, _ in placed}
    d = corpora["corpus"].d
    size = sum(corpora[role].n * d * corpora[role].dtype.itemsize for role in roles)
    if not missing or size > READ_BYTES or 8 * d * len(placed) > DRAWN_BYTES:
        return {}
    queries, candidates = (
        as_points(_read(corpora, keys), metric) for keys in (missing, list(placed))
    )
    places = list(placed.values())
    # For a place on a map the Euclidean distance will do under any metric, with its rounding.
    squared = candidates.squared_norms - 2.0 * (queries.rows @ candidates.rows.T)
    found = squared.argmin(axis=1)
    return {key: places[place] for key, place in zip(missing, found.tolist(), strict=True)}


def _read(corpora: Mapping[Role, Corpus], keys: Sequence[RowKey]) -> Float64Array:
    """Return the vectors of some rows of any corpora, in their order."""
    vectors = np.empty((len(keys), corpora["corpus"].d))
    for role, corpus in corpora.items():
        places = [place for place, key in enumerate(keys) if key[0] == role]
        if places:
            numbers = np.array([keys[place][1] for place in places], np.int64)
            vectors[places] = read_in_order(corpus, numbers)
    return vectors


def _parts(found: ProjectionResults) -> dict[Role, RowsOnMap]:
    parts: dict[Role, RowsOnMap | None] = {"corpus": found.corpus, "reference": found.reference}
    return {role: part for role, part in parts.items() if part is not None}
