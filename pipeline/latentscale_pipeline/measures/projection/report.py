"""What the report shows of the projection: a map, with the rows to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.projection.results import (
    SIDE,
    ProjectionResults,
    RowsOnMap,
)
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.figure import Curve, Figure, Panel, Style, present
from latentscale_pipeline.views.formatting import counted, format_number, shorten

MIN_KEPT = 0.2
"""Share of neighbours, of those that chance wouldn't keep, below which a map isn't shown."""

NEIGHBOURS = 10
"""Neighbours of a row of which the kept share is known."""

DOT, HALO = 5.0, 13.0
"""Widths of the dot of a row and of what marks a row to look at, in pixels."""

MARKED = Style("rows to look at", "marked")

TOLD_LENGTH = 60
"""Characters of an id, a label or a text that are told."""


class ProjectionReport(MeasureReport):
    """A map of some rows."""

    title = "Map of the rows"
    question = "Which rows are like which, and where the rows to look at lie."
    source = "van der Maaten and Hinton, Visualizing data using t-SNE, JMLR 2008"

    def figures(self, found: ProjectionResults, results: Results) -> list[Figure]:
        """Draw the map, if it keeps enough neighbours to be looked at."""
        rows = {str(role): corpus.n for role, corpus in results.corpora.by_role().items()}
        return [_draw(found, rows)] if _is_good(found) else []

    def notes(self, found: ProjectionResults) -> list[str]:
        """Say why there is no map."""
        if _is_good(found):
            return []
        kept = _percent(found.kept)
        return [f"The map isn't shown: it would keep only {kept} of each row's nearest neighbours."]

    def methods(self, found: ProjectionResults) -> list[tuple[str, str]]:
        """Return how the map was made."""
        said = f"t-SNE of the {found.metric} distance, perplexity {format_number(found.perplexity)}"
        return [("map", said)]


def _is_good(found: ProjectionResults) -> bool:
    """Return whether the map keeps more neighbours than chance would."""
    others = sum(len(part.row) for _, part in present(found)) - 1
    chance = NEIGHBOURS / max(others, NEIGHBOURS + 1)
    return (found.kept - chance) / (1.0 - chance) >= MIN_KEPT


def _draw(found: ProjectionResults, rows: Mapping[str, int]) -> Figure:
    parts = present(found)
    clouds = [
        Curve(
            style.name,
            part.x,
            part.y,
            style=replace(style, symbol="disc"),
            dot=DOT,
            texts=_texts(part),
        )
        for style, part in reversed(parts)
    ]
    shown = " and ".join(
        f"{counted(len(part.row), 'random row')} of the {style.name}"
        if len(part.row) < rows.get(style.name, 0)
        else f"all {counted(len(part.row), 'row')} of the {style.name}"
        for style, part in parts
    )
    # What marks a row lies below its dot.
    panel = Panel("", "", "", [*_marks(found), *clouds], scattered=True, bare=SIDE)
    return Figure(
        "map", "Rows that are alike lie near each other", _summary_sentence(found, shown), [panel]
    )


def _summary_sentence(found: ProjectionResults, shown: str) -> str:
    """Say what the map shows, and how far it can be trusted."""
    marked = len(found.marked or ())
    marks = f"; marked: {marked:,} rows to look at" if marked else ""
    return (
        f"{shown}{marks}. The map keeps {_percent(found.kept)} of each row's ten nearest "
        "neighbours; distances between far regions mean nothing."
    )


def _marks(found: ProjectionResults) -> Iterator[Curve]:
    marked = found.marked or []
    if marked:
        x, y = [row.x for row in marked], [row.y for row in marked]
        yield Curve(MARKED.name, x, y, style=MARKED, dot=HALO, texts=_reasons(found))


def _reasons(found: ProjectionResults) -> list[str]:
    """Say which row each mark is and why; one that isn't on the map is near its mark."""
    told = {
        (style.name, row): text
        for style, part in present(found)
        for row, text in zip(part.row, _texts(part), strict=True)
    }
    near = "near row {} of the {}"
    return [
        f"{told.get((row.of, row.row)) or near.format(row.row, row.of)}: {', '.join(row.reasons)}"
        for row in found.marked or ()
    ]


def _texts(part: RowsOnMap) -> list[str]:
    """Say of each row its id or number, its label and the start of its text."""
    ids: Sequence[str] = part.id or [""] * len(part.row)
    names = [given or f"row {row}" for given, row in zip(ids, part.row, strict=True)]
    beside: list[Sequence[str]] = [each for each in (part.label, part.text) if each is not None]
    return [
        " · ".join(shorten(told, TOLD_LENGTH) for told in texts if told)
        for texts in zip(names, *beside, strict=True)
    ]


def _percent(share: float) -> str:
    return f"{format_number(100 * share, 2, typeset=True)} %"
