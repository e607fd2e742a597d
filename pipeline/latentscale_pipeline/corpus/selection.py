"""Select rows of a corpus by ids, labels, a condition or at random.

Selecting reads ids, labels or columns (8 to 100 bytes a row), never the vectors. The selected rows
keep their order. They become a source, so that the usual ingest can make a new corpus of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale.array_types import BoolArray, Int64Array
from latentscale_pipeline.corpus.corpus import Corpus
from latentscale_pipeline.corpus.expressions import matching_rows, names_in, suggest_quotes
from latentscale_pipeline.corpus.formats.zarr import corpus_rows
from latentscale_pipeline.corpus.ingest.sources import Source, Sources
from latentscale_pipeline.corpus.tables import Table
from latentscale_pipeline.corpus.text_arrays import is_among
from latentscale_pipeline.errors import BadInput

SUGGESTED_AMONG = 100_000
"""Number of rows among whose ids or labels one is suggested."""

SEVERAL = {"id": "ids", "label": "labels", "text": "texts", "weight": "weights"}
"""The names of a corpus for what `latentscale rows` and most files call by the first."""


@dataclass(frozen=True)
class Selection:
    """Criteria for rows; a row is selected if it meets all that are given.

    Attributes
    ----------
    ids, labels : collection of str or None
        Select rows with one of these ids or labels.
    where : str or None
        A condition on ``ids``, ``labels``, ``weights`` and the columns of ``table``.
    table : Table or None
        Files with more columns for the rows of the corpus.
    sample : int or None
        Number of rows to draw at random, without replacement, from those selected.
    seed : int
        Seed of the draw.
    """

    ids: Collection[str] | None = None
    labels: Collection[str] | None = None
    where: str | None = None
    table: Table | None = None
    sample: int | None = None
    seed: int = 0


def choose_rows(
    corpus: Corpus, selection: Selection, among: Int64Array | None = None
) -> Int64Array:
    """Return the numbers of the selected rows, ascending; only those ``among`` some, if given.

    Raises
    ------
    BadInput
        If the corpus lacks a column that is needed, or no row is selected.
    """
    chosen = np.ones(corpus.n, bool)
    if among is not None:
        chosen = np.zeros(corpus.n, bool)
        chosen[among] = True
    for name, wanted in (("ids", selection.ids), ("labels", selection.labels)):
        if wanted is not None:
            known = _companion(corpus, name)
            having = is_among(known, wanted)
            there = set(known[having].tolist())
            missing = [one for one in wanted if one not in there]
            if missing and (name == "labels" or not having.any()):
                raise BadInput(f"{corpus.url}: {no_row_has(name[:-1], missing, known)}")
            chosen &= having
    if selection.where is not None:
        columns, nulls = {}, {}
        for name in names_in(selection.where):
            advice = suggest_quotes(selection.where, name)
            columns[name], nulls[name] = _column(corpus, name, selection.table, advice)
        chosen &= matching_rows(selection.where, columns, corpus.n, nulls)
    rows = np.flatnonzero(chosen)
    if selection.sample is not None:
        if selection.sample > len(rows):
            raise BadInput(
                f"{corpus.url}: can't draw {selection.sample} rows from {len(rows)}; ask for fewer"
            )
        generator = np.random.default_rng(selection.seed)
        rows = np.sort(generator.choice(rows, selection.sample, replace=False))
    if not len(rows):
        raise BadInput(f"{corpus.url}: no row matches; relax the conditions")
    return rows.astype(np.int64)


def unknown_ids(corpus: Corpus, wanted: Collection[str]) -> list[str]:
    """Return those of some ids that no row has, sorted."""
    left = set(wanted)
    for block in corpus.companion_blocks("ids") if left else ():
        left.difference_update(block.tolist())
    return sorted(left)


def chosen_source(corpus: Corpus, rows: Int64Array) -> Sources:
    """Return rows of a corpus, with ids, labels and weights, as the source of a new corpus."""
    if "weights" in corpus.manifest.arrays and not _companion(corpus, "weights")[rows].any():
        raise BadInput(f"{corpus.url}: all chosen rows have weight 0; choose others as well")
    container = corpus_rows(corpus, rows)
    vectors, *companions = container.fields
    key = xxhash.xxh3_128(corpus.fingerprint.encode())
    key.update(rows.data)
    source = Source(container, vectors, {field.name: field for field in companions})
    return Sources((source,), (), key.hexdigest())


def no_row_has(what: str, missing: Sequence[str], known: npt.NDArray[Any]) -> str:
    """Say that no row has some ids or labels, and suggest one that is like the first."""
    close = difflib.get_close_matches(missing[0], set(known[:SUGGESTED_AMONG].tolist()), n=1)
    hint = f"did you mean {close[0]}?" if close else f"check its {what}s"
    more = f" or one of {len(missing) - 1:,} more" if len(missing) > 1 else ""
    return f"no row has the {what} {missing[0]!r}{more}; {hint}"


def _column(
    corpus: Corpus, name: str, table: Table | None, advice: str = ""
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return a column that a condition names, and which of its values are missing."""
    several = SEVERAL.get(name, name)
    if several in corpus.manifest.arrays and (table is None or several == name):
        found = _companion(corpus, several)
    elif table is None:
        found = _companion(corpus, name, advice)
    else:
        return table.column(name)
    return found, np.zeros(corpus.n, bool)


def _companion(corpus: Corpus, name: str, advice: str = "") -> npt.NDArray[Any]:
    if name not in corpus.manifest.arrays:
        has = ", ".join(sorted(corpus.manifest.arrays)) or "no ids, labels or weights"
        again = f", or ingest it again with {name}" if name in SEVERAL.values() else ""
        also = ", or" if not again else ","
        advice = advice or f"; use --rows JOB for what a job knows{also} --table FILE{again}"
        raise BadInput(f"{corpus.url}: it has no {name} (it has {has}){advice}")
    return np.concatenate(list(corpus.companion_blocks(name)))
