"""The nearest rows of some rows, or of all: in their own corpus, and in the other one.

Each task holds a block of rows and streams the shards of both corpora. Where the two differ in
size, nearest rows are also found among as many random rows as the smaller corpus has, so that
shares can be compared at one size. Distances are computed in float64 and, because a job keeps them,
stored and compared in float32.

Where all rows have too many pairs, random ones are searched like this. They tell how many a search
in cells misses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float32Array, Int64Array
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.distances import Metric, Points, as_points
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    UNIT_OPERATIONS,
    JobFacts,
    Role,
    format_pairs,
)
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.shared.random_rows import drawing_bytes
from latentscale_pipeline.storage.artifacts import Artifact, Output

PAIRS = 2e9
"""Pairs of rows of a corpus that are compared by default."""

CHECKED_PAIRS, MAX_CHECKED = 1e10, 10_000
"""The same for the random rows by which a search in cells is checked, and the most such rows."""

PILOT_SHARE, MAX_PILOTS = 4, 1000
"""One in at least so many of these, and at most so many, choose the overlap; the rest judge it."""

MIN_ROWS = 400
"""Fewest random rows of a corpus by default; with fewer, shares say little."""

MAX_IN_CELLS = 20_000_000
"""Largest corpora that are searched in cells: one task joins what was found for all their rows."""

QUERY_ROWS = 8192
"""Rows whose nearest rows one task finds."""

LIST_BYTES = 8
"""Bytes of a nearest row and its distance, which are in single precision."""

ALL, FEWER = "all", "fewer"
"""Names of the lists among all rows, and among as many as the smaller corpus has."""


def stage_name(role: Role) -> str:
    """Name the stage that compares rows of a corpus with all others."""
    return f"nearest-{role}"


def stage_in_cells(role: Role) -> str:
    """Name the stage that has the nearest rows of all rows of a corpus, as cells find them."""
    return f"nearest-rows-{role}"


def compared_with(facts: JobFacts) -> tuple[Role, ...]:
    """Return the corpora whose rows are compared with each other."""
    dimensions = {corpus.d for corpus in facts.corpora.values()}
    return tuple(facts.corpora) if len(dimensions) == 1 else ()


def least_rows(facts: JobFacts) -> int:
    """Return the size at which the two corpora are compared."""
    return min(corpus.n for corpus in facts.corpora.values())


@dataclass(frozen=True)
class RowSearch:
    """How the nearest rows are found.

    Attributes
    ----------
    compared : mapping of str to int
        Rows of each corpus that are compared with all others.
    known : mapping of str to int
        Rows of each corpus whose nearest rows are known: the same, or all of them by cells.
    in_cells : bool
        Whether those of all rows are found in cells.
    """

    compared: Mapping[Role, int]
    known: Mapping[Role, int]
    in_cells: bool

    def stage(self, role: Role) -> str:
        """Name the stage that has the nearest rows of a corpus."""
        return stage_in_cells(role) if self.in_cells else stage_name(role)

    def finds_all(self, role: Role, facts: JobFacts) -> bool:
        """Return whether the nearest rows of all rows of a corpus are known."""
        return self.known[role] == facts.corpora[role].n


def choose_search(section: Duplicates, facts: JobFacts) -> RowSearch | None:
    """Choose how the nearest rows are found; None if too few could be.

    Raises
    ------
    BadInput
        If cells are asked for, and the corpora are too large for them.
    """
    sizes = {role: corpus.n for role, corpus in facts.corpora.items()}
    if least_rows(facts) < 2:
        return None
    if section.neighbours == "cells" and max(sizes.values()) > MAX_IN_CELLS:
        raise BadInput(
            f"measures.duplicates.neighbours: cells take up to {MAX_IN_CELLS:,} rows of a corpus, "
            f"and there are {max(sizes.values()):,}; use exact, which compares random rows"
        )
    if section.rows is not None:
        compared = {role: min(n, section.rows) for role, n in sizes.items()}
        return RowSearch(compared, compared, in_cells=False)
    beside = {role: _rows_beside(facts, role) for role in sizes}
    many = any(n * beside[role] > min(PAIRS, facts.pairs) for role, n in sizes.items())
    cells = section.neighbours == "cells" or (
        section.neighbours == "auto" and many and max(sizes.values()) <= MAX_IN_CELLS
    )
    if cells:
        compared = {
            role: min(n, _checked_rows(beside[role]), int(facts.pairs // beside[role]))
            for role, n in sizes.items()
        }
    else:
        pairs = min(PAIRS, facts.pairs)
        compared = {role: min(n, int(pairs // beside[role])) for role, n in sizes.items()}
    if any(compared[role] < min(n, MIN_ROWS) for role, n in sizes.items()):
        return None
    return RowSearch(compared, sizes if cells else compared, in_cells=cells)


def why_not_compared(section: Duplicates | None, facts: JobFacts) -> str:
    """Say why the nearest rows aren't found, and what to do; empty if they are."""
    if section is None or choose_search(section, facts) is not None:
        return ""
    for role, corpus in facts.corpora.items():
        if corpus.n < 2:
            return f"the {role} has one row, which has no other rows"
    rows = sum(corpus.n for corpus in facts.corpora.values())
    beside = max(_rows_beside(facts, role) for role in facts.corpora)
    advice, most = "set measures.duplicates.rows to compare that many", int(facts.pairs // beside)
    if most < MIN_ROWS:
        fewer = f", or measures.duplicates.rows to at most {most}" if most else ""
        needed = format_pairs(MIN_ROWS * beside)
        advice = f"set measures.duplicates.rows to {MIN_ROWS} and budget.pairs to {needed}{fewer}"
    return (
        f"{rows:,} rows have so many pairs that fewer than {MIN_ROWS} random rows could be "
        f"compared with all; {advice}"
    )


def _checked_rows(beside: int) -> int:
    """Return how many rows check a search in cells, each by comparison with some others."""
    return min(max(int(CHECKED_PAIRS // beside), MIN_ROWS), MAX_CHECKED)


def pilot_places(count: int) -> slice:
    """Return the places of the checked rows that choose the overlap, which don't judge it."""
    return slice(None, None, max(PILOT_SHARE, -(-count // MAX_PILOTS)))


def _rows_beside(facts: JobFacts, role: Role) -> int:
    """Return how many rows a row of a corpus is compared with."""
    sources = compared_with(facts) or (role,)
    sizes = [facts.corpora[source].n for source in sources]
    least = min(sizes)
    return sum(sizes) + sum(least for size in sizes if size > least)


def nearest_stage(section: Duplicates, facts: JobFacts, role: Role, queries: int) -> Stage:
    """Plan the search for the nearest rows of a corpus.

    Raises
    ------
    BadInput
        If the settings ask for more rows than the budget allows.
    """
    corpus = facts.corpora[role]
    sources = compared_with(facts) or (role,)
    n = sum(facts.corpora[source].n for source in sources)
    least = min(facts.corpora[source].n for source in sources)
    pairs = float(queries) * _rows_beside(facts, role)
    if pairs > facts.pairs:
        raise BadInput(
            f"measures.duplicates.rows asks for {format_pairs(pairs)} pairs of rows of the {role}, "
            f"and budget.pairs is {format_pairs(facts.pairs)}; ask for fewer rows, or raise "
            "budget.pairs"
        )
    tasks, block = -(-queries // QUERY_ROWS), min(QUERY_ROWS, queries)
    lists = 2 * len(sources) * LIST_BYTES * queries
    shard = max(facts.corpora[source].shard_bytes for source in sources)
    drawing = drawing_bytes(corpus.n, queries) if queries < corpus.n else 0
    choosing = max(drawing_bytes(facts.corpora[source].n, least) for source in sources)
    conversion = UNIT_OPERATIONS if section.metric == "cosine" else CONVERSION_OPERATIONS
    stored = sum(facts.corpora[source].stored_bytes for source in sources)
    return Stage(
        name=stage_name(role),
        work=find_nearest,
        finalise=join_nearest,
        partitions=tasks,
        corpora=sources,
        parameters={
            "role": role,
            "metric": section.metric,
            "queries": queries,
            "sources": list(sources),
            "least": least,
        },
        seed=facts.seed,
        memory_bytes=max(
            # Two copies of a shard where some of its rows are chosen.
            2 * shard + 3 * block * (corpus.d + 1) * 8 + drawing + choosing + FEW_TILES_BYTES,
            3 * lists + drawing,
        ),
        cost_estimate=CostEstimate(
            bytes_read=tasks * stored + lists,
            bytes_written=2 * lists + (tasks + 1) * RESULT_BYTES,
            exchanged_bytes=lists,
            result_bytes=lists + RESULT_BYTES,
            float32_multiply_adds=pairs * corpus.d,
            elementwise_operations=pairs
            + conversion * float(tasks) * n * corpus.d
            + 200.0 * queries * len(sources),
            method="exact",
            why="all rows" if queries == corpus.n else f"{queries:,} random rows",
        ),
    )


@dataclass(frozen=True)
class Source:
    """A corpus that rows are compared with, and the rows of it that are as many as the least."""

    role: Role
    corpus: Corpus
    fewer: Int64Array | None

    def read(self) -> Iterator[tuple[Int64Array, NDArray[Any], Int64Array | None]]:
        """Yield the row numbers and the rows of every shard, and places of the fewer ones."""
        for shard in range(self.corpus.shard_count):
            rows = self.corpus.shard_range(shard)
            places = None
            if self.fewer is not None:
                first, last = np.searchsorted(self.fewer, [rows.start, rows.stop])
                places = self.fewer[first:last] - rows.start
            yield np.arange(rows.start, rows.stop), self.corpus.read_shard(shard), places


def find_nearest(inputs: Inputs) -> Output:
    """Find the nearest rows of a block of rows, in both corpora."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    drawn = _queries(inputs)
    block = slice(inputs.index * QUERY_ROWS, (inputs.index + 1) * QUERY_ROWS)
    if drawn is None:
        rows = np.arange(corpus.n)[block]
        vectors = corpus.read_rows(int(rows[0]), int(rows[-1]) + 1)
    else:
        rows = drawn[block]
        vectors = corpus.read_index(rows)
    queries = as_points(vectors, p["metric"])
    arrays: dict[str, NDArray[Any]] = {} if drawn is None else {"rows": rows}
    for source in _sources(inputs):
        # No row of another corpus is the row itself.
        ids = rows if source.role == p["role"] else np.full(len(rows), -1)
        for name, found in search_corpus(queries, ids, source, p["metric"]).items():
            arrays[f"{source.role}_{name}_row"] = short_numbers(found.indices[:, 0], source.corpus)
            arrays[f"{source.role}_{name}_distance"] = stored_distances(found.distances[:, 0])
    return Output(arrays=arrays)


def stored_distances(distances: NDArray[np.floating]) -> Float32Array:
    """Return distances as they are stored: the largest number for any beyond it.

    Only rows near that number are so far apart. Infinity is for rows without a nearest one.
    """
    limited = np.minimum(distances, np.finfo(np.float32).max)
    return np.where(np.isinf(distances), distances, limited).astype(np.float32)


def short_numbers(rows: Int64Array, corpus: Corpus) -> NDArray[Any]:
    """Return row numbers of a corpus in as few bytes as they need; a job keeps them."""
    return rows.astype(np.int32) if corpus.n <= np.iinfo(np.int32).max else rows


def search_corpus(
    queries: Points, ids: Int64Array, source: Source, metric: Metric
) -> dict[str, Neighbours]:
    """Compare some rows with all rows of a corpus, and with the fewer ones.

    Parameters
    ----------
    queries : Points
        The rows.
    ids : ndarray of int64
        Their numbers in that corpus, or -1.
    source, metric
        The corpus, and how rows are compared.

    Returns
    -------
    mapping of str to Neighbours
        The nearest row of each, under :data:`ALL` and, if there are fewer ones, :data:`FEWER`.
    """
    names = [ALL] if source.fewer is None else [ALL, FEWER]
    found = {name: Neighbours.none(len(queries), 1) for name in names}
    for numbers, stored, places in source.read():
        points = as_points(stored, metric)
        offered = {ALL: (points, numbers)}
        if places is not None and len(places):
            offered[FEWER] = (points.take(places), numbers[places])
        for name, (candidates, candidate_ids) in offered.items():
            found[name] = nearest(
                queries,
                candidates,
                1,
                query_ids=ids,
                candidate_ids=candidate_ids,
                known=found[name],
            )
    return found


def _queries(inputs: Inputs) -> Int64Array | None:
    """Return the rows whose nearest rows are found, ascending; None for all."""
    corpus, count = inputs.corpora[inputs.parameters["role"]], inputs.parameters["queries"]
    if count >= corpus.n:
        return None
    [stream] = inputs.common_generator().spawn(1)
    drawn: Int64Array = np.sort(stream.choice(corpus.n, count, replace=False))
    return drawn


def _sources(inputs: Inputs) -> Iterator[Source]:
    p = inputs.parameters
    streams = inputs.common_generator().spawn(1 + len(p["sources"]))[1:]
    for role, stream in zip(p["sources"], streams, strict=True):
        corpus, fewer = inputs.corpora[role], None
        if corpus.n > p["least"]:
            fewer = np.sort(stream.choice(corpus.n, p["least"], replace=False))
        yield Source(role, corpus, fewer)


def join_nearest(inputs: Inputs) -> Output:
    """Join the lists of all blocks."""
    return Output(
        arrays={
            name: np.concatenate([part.array(name) for part in inputs.parts])
            for name in inputs.parts[0].objects
        }
    )


def found_rows(
    found: Artifact, n: int, source: Role
) -> tuple[Int64Array, Int64Array, Float32Array]:
    """Return the rows that were compared with all others, and their nearest rows and distances.

    Parameters
    ----------
    found : Artifact
        Result of the search.
    n : int
        Rows of the corpus.
    source : str
        The corpus in which the nearest rows are.
    """
    rows = found.array("rows") if "rows" in found.objects else np.arange(n)
    near, distances = (found.array(f"{source}_{ALL}_{value}") for value in ("row", "distance"))
    return rows, near.astype(np.int64), distances
