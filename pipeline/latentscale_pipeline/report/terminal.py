"""The terminal summary of a finished job.

It reads nothing but ``job``, ``corpora`` and ``scores``, so that a new measure appears in it by
itself. On a terminal it is a table, elsewhere one line a score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latentscale_pipeline.report.scores import corpus_properties, replicated_scores
from latentscale_pipeline.views.formatting import (
    printable,
    score_name,
    write_estimate,
    write_number,
)
from latentscale_pipeline.views.terminal import Row, format_table, print_lines, rich_table

COLUMNS = ("measure", "score", "of", "value", "bracket", "sampling error", "how", "unit")
NARROW_COLUMNS = ("score", "of", "value", "bracket", "how")
"""What still fits on a narrow terminal, under a heading that names the measure and its units."""

RIGHT_ALIGNED = frozenset({"value", "sampling error"})
FOLDED = frozenset({"unit", "bracket"})
UNIT_WIDTH = 12
"""Characters a unit needs at least; longer ones are folded."""

FINGERPRINT_DIGITS = 12

LABELLED_ROWS = 20
"""Scores of single labels beyond which they are counted and not shown."""

Cells = dict[str, str]


def print_summary(results: Mapping[str, Any], console: Console) -> None:
    """Print what a job found: its corpora, then every score with its bracket.

    Parameters
    ----------
    results : mapping
        A document of the schema ``latentscale.results/1``; ``job``, ``corpora`` and ``scores``
        are read.
    console : rich.console.Console
        Where to print: a table on a terminal, plain unwrapped lines anywhere else.
    """
    every: list[dict[str, Any]] = results["scores"]
    labelled = sum(row.get("label") is not None for row in every)
    hidden = labelled if labelled > LABELLED_ROWS else 0
    scores = [row for row in every if not hidden or row.get("label") is None]
    groups = _groups(scores)
    columns = [
        name
        for name in COLUMNS
        if name != "sampling error" or any(row.get("sampling_error") is not None for row in scores)
    ]
    print_lines(console, _header(results))
    if not console.is_terminal:
        widths = {"bracket": _width("bracket", groups)}
        print_lines(
            console, format_table(columns, [row for _, rows in groups for row in rows], widths)
        )
    elif _natural_width(columns, groups) <= console.width:
        console.print(_table(columns, groups))
    else:
        for name, rows in groups:
            console.print(Text(f"{name} ({'; '.join(_units(rows))})", style="bold"))
            console.print(_table(NARROW_COLUMNS, [(name, rows)], gap=1))
    print_lines(console, _notes(scores, hidden))


def _header(results: Mapping[str, Any]) -> Iterator[str]:
    job = results["job"]
    yield f"{printable(job['name'])} ({printable(job['id'])})"
    for role in ("corpus", "reference"):
        corpus = results["corpora"].get(role)
        if corpus is None:
            continue
        parts = (
            f"{corpus['n']:,} × {corpus['d']:,} {corpus['dtype']}",
            *(found.brief for found in corpus_properties(corpus)),
            *([f"{corpus['excluded_rows']:,} rows left out"] if "excluded_rows" in corpus else []),
            f"fingerprint {printable(corpus['fingerprint'])[:FINGERPRINT_DIGITS]}",
            printable(corpus["uri"]),
        )
        yield f"{role:<9}  {' · '.join(parts)}"


def _groups(scores: list[dict[str, Any]]) -> list[tuple[str, list[Cells]]]:
    """Return the rows of each measure, in the order in which the measures appear."""
    order = list(dict.fromkeys(row["measure"] for row in scores))
    arranged = sorted(scores, key=lambda row: order.index(row["measure"]))
    groups = groupby(arranged, key=lambda row: row["measure"])
    return [(printable(name), [_cells(row) for row in rows]) for name, rows in groups]


def _cells(row: Mapping[str, Any]) -> Cells:
    cells = {
        "measure": printable(row["measure"]),
        "score": score_name(row),
        "of": printable(row["of"]),
        "unit": printable(row["unit"]),
    }
    if row["value"] is None:
        reason = printable(row.get("reason") or "no reason was recorded")
        return cells | {"value": "none", "bracket": reason, "how": "", "sampling error": ""}
    written = write_estimate(row["value"], row["lower"], row["upper"])
    error = row.get("sampling_error")
    return cells | {
        "value": written.value,
        "bracket": written.bracket,
        "how": printable(row["bounds"] or ""),
        "sampling error": "" if error is None else write_number(error, 2),
    }


def _width(column: str, groups: list[tuple[str, list[Cells]]]) -> int:
    """Return the width of a column; a reason, which may be long, doesn't widen the brackets'."""
    cells = (row[column] for _, rows in groups for row in rows if column != "bracket" or row["how"])
    return max([len(column), *map(len, cells)])


def _natural_width(columns: Sequence[str], groups: list[tuple[str, list[Cells]]]) -> int:
    widths = (UNIT_WIDTH if name == "unit" else _width(name, groups) for name in columns)
    return sum(widths) + 2 * (len(columns) - 1)


def _units(rows: list[Cells]) -> list[str]:
    """Return each unit of a measure, with its scores where there are several units."""
    units = list(dict.fromkeys(row["unit"] for row in rows))
    if len(units) == 1:
        return units
    return [
        f"{', '.join(dict.fromkeys(row['score'] for row in rows if row['unit'] == unit))}: {unit}"
        for unit in units
    ]


def _table(columns: Sequence[str], groups: list[tuple[str, list[Cells]]], *, gap: int = 2) -> Table:
    rows: list[Row] = []
    for position, (_, group) in enumerate(groups):
        rows += [{}] if position else []
        for place, cells in enumerate(group):
            bold = {name: Text(cells[name], style="bold") for name in ("measure", "value")}
            rows.append({**cells, **bold} if place == 0 else {**cells, **bold, "measure": ""})
    return rich_table(
        columns,
        rows,
        right=RIGHT_ALIGNED,
        folded=FOLDED,
        least={name: _width(name, groups) for name in columns if name != "unit"},
        gap=gap,
    )


def _notes(scores: list[dict[str, Any]], hidden: int) -> Iterator[str]:
    if hidden:
        yield f"{hidden:,} scores of single labels are in results.json."
    unknown = sum(row.get("sampling_error") is None for row in scores)
    if unknown:
        known = replicated_scores()
        hint = f" (replicates: {{count, rows}} measures that of {known})" if known else ""
        yield (
            f"The sampling error of {unknown} of {len(scores)} scores is unknown: "
            f"a difference in them can't be called significant{hint}."
        )
