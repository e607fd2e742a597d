"""The rows to look at: those that stand out most, and all that the results name, by reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, zip_longest

from latentscale_pipeline.measures.base import RowFilter
from latentscale_pipeline.measures.registry import MEASURES, ROW_FILTERS
from latentscale_pipeline.report.verdict import LEVEL, compared, is_subsampled
from latentscale_pipeline.results.model import Results, RowsToLookAt, RowToLookAt
from latentscale_pipeline.views.content import Section, ShownRow, Table, table_of
from latentscale_pipeline.views.formatting import counted, format_number, printable, shorten

FIRST_ROWS = 3
"""Rows that a report opens with."""

TOP_ROWS = 10
"""Rows of the table of all reasons."""

TEXT_LENGTH = 90
"""Characters of a text that are shown."""

SHOWN_LABELS = 3
"""Labels of a reason that a sentence names."""

OF_A_REASON = 4
"""Rows of one reason among these."""


def first_rows(results: Results) -> list[ShownRow]:
    """Return the rows that stand out most: one of each reason in turn, the unusual ones first."""
    of_reason: dict[str, list[ShownRow]] = {}
    for reason, row in _in_turn(results):
        of_reason.setdefault(reason, []).append(row)
    unusual = _unusual(results)
    told = [rows for reason, rows in of_reason.items() if reason in unusual or not unusual]
    rounds = chain.from_iterable(zip_longest(*(told or of_reason.values())))
    return [row for row in rounds if row is not None][:FIRST_ROWS]


def rows_section(results: Results) -> list[Section]:
    """Return the section of the rows to look at; none if the job knows no rows."""
    known = [each for each in _known(results) if each.rows]
    if not known:
        return []
    top = [_cells(row) for _, row in islice(_in_turn(results), TOP_ROWS)]
    folds = [
        table_of(
            _caption(each),
            [_cells(_shown(ROW_FILTERS[each.reason], row)) for row in each.rows],
            numeric=("distance",),
        )
        for each in known
    ]
    return [
        Section(
            key="rows",
            title="Rows to look at",
            question="The rows that stand out most, by each reason to look at rows.",
            tables=[_without_empty(table_of("Most extreme", top, numeric=("distance",)))],
            folds=[_without_empty(table) for table in folds],
        )
    ]


def _in_turn(results: Results) -> Iterator[tuple[str, ShownRow]]:
    """Yield rows once each, those of reasons that are unusually frequent first.

    A reason most of whose rows another one names as well comes after the others.
    """
    unusual, known = _unusual(results), _known(results)
    count = {each.reason: each.count for each in known}
    wholes = {
        whole
        for each in known
        if (whole := ROW_FILTERS[each.reason].part_of) in count
        and 0 < count[whole] < 2 * each.count
    }
    seen: set[tuple[str, int]] = set()
    for each in sorted(known, key=lambda each: (each.reason not in unusual, each.reason in wholes)):
        fresh = [row for row in each.rows if (each.of, row.row) not in seen][:OF_A_REASON]
        seen |= {(each.of, row.row) for row in fresh}
        for row in fresh:
            yield each.reason, _shown(ROW_FILTERS[each.reason], row)


def format_labels(results: Results) -> Iterator[str]:
    """Yield a line for every reason whose rows have some labels more often than chance explains.

    Of a job with a verdict, only for the reasons that are unusually frequent.
    """
    unusual = _unusual(results)
    for each in _known(results):
        if each.labels and (each.reason in unusual or not compared(results.scores)):
            yield f"{ROW_FILTERS[each.reason].title}: {_often_in(each)}"


def say_usual(results: Results) -> str:
    """Say that the rows of all reasons to look at some are as many as chance makes; else nothing.

    Nothing is said if one of the reasons has no expected range.
    """
    judged = {one.score.score: one for one in compared(results.scores)}
    reasons = [ROW_FILTERS[each.reason].score for each in _known(results) if each.count]
    if not reasons or _unusual(results) or not judged.keys() >= set(reasons):
        return ""
    at_equal_sizes = any(is_subsampled(judged[score]) for score in reasons)
    return f"; their number is usual{' at equal sizes' if at_equal_sizes else ''}"


def _unusual(results: Results) -> set[str]:
    """Return the reasons that are unusually frequent."""
    outside = {
        (one.score.measure, one.score.score)
        for one in compared(results.scores)
        if one.p <= LEVEL and one.expected.found > one.expected.centre
    }
    return {
        name
        for measure, score in outside
        if measure in MEASURES
        for name, found in MEASURES[measure].row_filters.items()
        if found.score == score
    }


def _known(results: Results) -> list[RowsToLookAt]:
    """Return the rows of the reasons that a measure knows."""
    return [each for each in results.rows or () if each.reason in ROW_FILTERS]


def _caption(found: RowsToLookAt) -> str:
    """Say what the rows of a reason are, and how many of them are named."""
    reason, named = ROW_FILTERS[found.reason], len(found.rows)
    order = ", the most extreme first" if reason.sort and named > 1 else ""
    count = f"{found.count:,}" if named == found.count else f"{named} of {found.count:,}"
    where = f"; {_often_in(found)}" if found.labels else ""
    return f"{reason.title}: {count}{order}{where}"


def _often_in(found: RowsToLookAt) -> str:
    """Say which labels more rows have than chance explains."""
    labels = [
        f"{shorten(each.label)} ({each.count:,} of {counted(each.rows, 'row')})"
        for each in found.labels or ()
    ]
    more = len(labels) - SHOWN_LABELS
    also = [counted(more, "more label", "more labels")] if more > 0 else []
    return f"more than by chance in {', '.join([*labels[:SHOWN_LABELS], *also])}"


def _shown(reason: RowFilter, row: RowToLookAt) -> ShownRow:
    other = _name(row.other, row.other_id)
    said = reason.said_if_equal if row.distance == 0 and reason.said_if_equal else reason.said
    if row.stays is not None or row.stays_id is not None:
        said += f"; {_name(row.stays, row.stays_id)} stays".replace("{", "{{").replace("}", "}}")
    name = _name(row.row, row.id)
    return ShownRow(
        name=f"reference {name}" if reason.of == "reference" else name,
        label=printable(row.label or ""),
        why=said.format(other=other),
        distance=_distance(row),
        text=shorten(row.text or "", TEXT_LENGTH),
        other_text=shorten(row.other_text or "", TEXT_LENGTH),
    )


def _distance(row: RowToLookAt) -> str:
    if row.distance is not None:
        return format_number(row.distance, 2, typeset=True)
    return "" if row.other is None and row.other_id is None else "0"


def _name(row: int | None, name: str | None) -> str:
    if name is None:
        return f"row {row}"
    return printable(name) or "(an empty id)"


def _cells(row: ShownRow) -> dict[str, str]:
    return {
        "row": row.name,
        "label": row.label,
        "why": row.why,
        "distance": row.distance,
        "text": row.text,
        "text of the other row": row.other_text,
    }


def _without_empty(table: Table) -> Table:
    """Return a table without the columns that are empty in all rows."""
    kept = [place for place in range(len(table.header)) if any(row[place] for row in table.rows)]
    return Table(
        table.caption,
        [table.header[place] for place in kept],
        [[row[place] for place in kept] for row in table.rows],
        frozenset(kept.index(place) for place in table.numeric if place in kept),
    )
