"""Rows that stand for a kind: their ids, labels and texts, and how a sentence tells the kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.results.part import Absent, Count, Part
from latentscale_pipeline.views.formatting import label_name, printable, shorten

NAMED_ROWS, TEXT_CHARACTERS = 3, 60
"""Rows that a sentence names, and characters of a text."""

LABELS, TEXTS = 2, 2
"""Labels and texts in a table."""


class NamedRow(Part):
    """A row that stands for a kind."""

    row: Count
    """Number of the row in its corpus."""
    id: Absent[str] = None
    """Its id, if the corpus has ids."""
    label: Absent[str] = None
    """Its label, if the corpus has labels."""
    text: Absent[str] = None
    """Its text, if the corpus has texts."""


Row = TypeVar("Row", bound=NamedRow)


def name_rows(kinds: Sequence[Sequence[Row]], corpus: Corpus) -> list[list[Row]]:
    """Return the rows of several kinds with their ids, labels and texts."""
    numbers = np.array([row.row for rows in kinds for row in rows], np.int64)
    known = {
        field: corpus.texts_at(name, numbers).tolist()
        for field, name in (("id", "ids"), ("label", "labels"), ("text", "texts"))
        if name in corpus.manifest.arrays
    }
    named = (
        row.model_copy(update={name: found[place] for name, found in known.items()})
        for place, row in enumerate(row for rows in kinds for row in rows)
    )
    return [list(islice(named, len(rows))) for rows in kinds]


def describe_kind(rows: Sequence[NamedRow]) -> str:
    """Name the first rows of a kind, with the most frequent label or the text of the first."""
    names = [str(row.row) if row.id is None else shorten(row.id) for row in rows[:NAMED_ROWS]]
    labels = Counter(row.label for row in rows if row.label)
    more = ""
    if labels:
        [(label, count)] = labels.most_common(1)
        more = f" ({count} of {len(rows)} labelled {label_name(label)})"
    elif rows[0].text:
        more = f' ("{shorten(rows[0].text, TEXT_CHARACTERS)}")'
    return ", ".join(names) + more


def table_cells(rows: Sequence[NamedRow], heading: str, shown: int) -> dict[str, str]:
    """Return the cells of a table that tell a kind: labels, names under a heading, and texts."""
    labels = Counter(row.label for row in rows if row.label is not None)
    texts = [row.text for row in rows[:TEXTS] if row.text]
    return {
        "labels": ", ".join(
            f"{printable(shorten(label, 40))} ({count} of {len(rows)})"
            for label, count in labels.most_common(LABELS)
        ),
        heading: ", ".join(
            shorten(row.id, 40) if row.id is not None else f"row {row.row}" for row in rows[:shown]
        ),
        **({"their texts": " · ".join(shorten(each, 60) for each in texts)} if texts else {}),
    }
