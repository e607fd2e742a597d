"""A measure's rows of ``scores`` as a table, and the words for each of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentscale_pipeline.notation import (
    Written,
    printable,
    score_name,
    write_estimate,
    write_number,
)
from latentscale_pipeline.report.content import Table
from latentscale_pipeline.report.meanings import BETTER, BOUNDS, MEASURES, Meaning

Json = dict[str, Any]


def scores_table(rows: list[Json]) -> Table:
    """Return rows of ``scores`` of one measure as a table."""
    return Table(
        caption="Scores",
        header=("score", "of", "value", "bracket", "how", "sampling error", "unit", "better"),
        rows=[_score_cells(row) for row in rows],
        numeric=frozenset({2, 5}),
    )


def score_title(row: Json) -> str:
    """Return the name of a score in the papers, with its qualifiers."""
    name = score_name(row)
    measure = MEASURES.get(row["measure"])
    meaning = measure.scores.get(row["score"]) if measure else None
    if meaning is None or row["score"] == row["measure"]:
        return name
    return name.replace(row["score"], meaning.title, 1)


def title_apart(row: Json) -> str:
    """Name a score where nothing around it says of what measure and corpus it is."""
    measure = MEASURES.get(row["measure"])
    title = score_title(row)
    if measure is None and row["score"] != row["measure"]:
        title = f"{printable(row['measure'])}: {title}"
    elif measure is not None and row["score"] == row["measure"]:
        title = f"{measure.scores[row['score']].title}, {title}"
    return title if row["of"] == "pair" else f"{title} ({row['of']})"


def _score_cells(row: Json) -> Sequence[str]:
    name = score_title(row)
    ends = (printable(row["unit"]), BETTER.get(row["better"], ""))
    if row["value"] is None:
        reason = printable(row.get("reason") or "no reason was recorded")
        return (name, row["of"], "none", reason, "", "", *ends)
    written = written_score(row)
    error = row["sampling_error"]
    return (
        name,
        row["of"],
        written.value,
        written.bracket,
        bracket_kind(row),
        "unknown" if error is None else f"± {write_number(error, 2, typeset=True)}",
        *ends,
    )


def written_score(row: Json) -> Written:
    """Write a score's value and bracket."""
    return write_estimate(row["value"], row["lower"], row["upper"], typeset=True)


def bracket_kind(row: Json) -> str:
    """Say how a score's bracket was obtained."""
    return BOUNDS[row["bounds"]].name if row["bounds"] in BOUNDS else ""


def meanings_of(rows: list[Json]) -> list[Meaning]:
    """Return the sentence of every score among some rows of one measure."""
    measure = MEASURES.get(rows[0]["measure"]) if rows else None
    if measure is None:
        return []
    names = dict.fromkeys(row["score"] for row in rows)
    return [measure.scores[name] for name in names if name in measure.scores]
