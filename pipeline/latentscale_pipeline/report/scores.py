"""A measure's rows of ``scores`` as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.views.content import CorpusProperty, Table
from latentscale_pipeline.views.formatting import printable, score_name, write_number
from latentscale_pipeline.views.glossary import BETTER, Definition
from latentscale_pipeline.views.scores import bracket_kind, written_score

Json = dict[str, Any]


def titled_report(name: str) -> MeasureReport | None:
    """Return what the report says of a measure; None for one without a title, or unknown."""
    report = MEASURES[name].report() if name in MEASURES else None
    return report if report is not None and report.title else None


def corpus_properties(corpus: Json) -> list[CorpusProperty]:
    """Return what the measures say of a corpus beside its size, from its entry."""
    found = [measure.report().corpus_property(corpus) for measure in MEASURES.values()]
    return [one for one in found if one is not None]


def replicated_scores() -> str:
    """Name the scores whose sampling error replicates measure."""
    return ", ".join(listed for m in MEASURES.values() if (listed := m.report().replicated))


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
    measure = titled_report(row["measure"])
    definition = measure.scores.get(row["score"]) if measure else None
    if definition is None or row["score"] == row["measure"]:
        return name
    return name.replace(row["score"], definition.title, 1)


def title_apart(row: Json) -> str:
    """Name a score where nothing around it says of what measure and corpus it is."""
    measure = titled_report(row["measure"])
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


def definitions_of(rows: list[Json]) -> list[Definition]:
    """Return the sentence of every score among some rows of one measure."""
    measure = titled_report(rows[0]["measure"]) if rows else None
    if measure is None:
        return []
    names = dict.fromkeys(row["score"] for row in rows)
    return [measure.scores[name] for name in names if name in measure.scores]
