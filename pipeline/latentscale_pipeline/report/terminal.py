"""Print every score of a finished job on a terminal.

It reads only ``job``, ``corpora`` and ``scores``, so new measures need no code here. On a terminal
it is a table; elsewhere it is one line per score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latentscale_pipeline.report.scores import (
    explain_missing,
    explain_sign,
    replicated_scores,
    sign_of_size,
)
from latentscale_pipeline.results.model import Results, Score
from latentscale_pipeline.views.formatting import counted, format_number, printable
from latentscale_pipeline.views.repeats import format_repeats
from latentscale_pipeline.views.scores import format_p, format_range, score_name, written_score
from latentscale_pipeline.views.terminal import (
    Row,
    column_width,
    format_table,
    print_lines,
    rich_table,
)

COLUMNS = (
    *("measure", "score", "of", "value", "bracket", "sampling error"),
    *("found", "expected", "p alone", "how", "unit"),
)
OPTIONAL = ("sampling error", "found", "expected", "p alone")
"""Columns that are left out if they are empty."""

NARROW_COLUMNS = ("score", "of", "value", "bracket", "how")
"""Columns on a narrow terminal, under a heading that names the measure and its units."""

RIGHT_ALIGNED = frozenset({"value", "sampling error"})
FOLDED = frozenset({"unit", "bracket"})
UNIT_WIDTH = 12
"""Minimum width of a unit in characters; longer units are wrapped."""

FINGERPRINT_DIGITS = 12

LABELLED_ROWS = 20
"""Number of scores by label above which they are only counted."""

Cells = dict[str, str]


def print_scores(results: Results, console: Console) -> None:
    """Print the results of a job: its corpora, then every score with its bracket.

    Parameters
    ----------
    results : Results
        ``job``, ``corpora`` and ``scores`` are read.
    console : rich.console.Console
        Where to print: a table on a terminal, plain unwrapped lines elsewhere.
    """
    labelled = sum(score.label is not None for score in results.scores)
    hidden = labelled if labelled > LABELLED_ROWS else 0
    scores = [score for score in results.scores if not hidden or score.label is None]
    order = list(dict.fromkeys(score.measure for score in scores))
    arranged = sorted(scores, key=lambda one: order.index(one.measure))
    rows = [_cells(score, sign_of_size(score, results)) for score in arranged]
    empty = [name for name in OPTIONAL if not any(row[name] for row in rows)]
    columns = [name for name in COLUMNS if name not in empty]
    widths = _widths(columns, rows)
    print_lines(console, _header(results))
    if not console.is_terminal:
        print_lines(console, format_table(columns, rows, widths))
    elif sum((widths | {"unit": UNIT_WIDTH}).values()) + 2 * (len(columns) - 1) <= console.width:
        console.print(_table(columns, rows))
    else:
        for name, group in groupby(rows, key=lambda row: row["measure"]):
            own = list(group)
            console.print(Text(f"{name} ({'; '.join(_units(own))})", style="bold"))
            console.print(_table(NARROW_COLUMNS, own, gap=1))
    print_lines(console, _notes(results, scores, hidden))


def _header(results: Results) -> Iterator[str]:
    yield f"{printable(results.job.name)} ({printable(results.job.id)})"
    for role, corpus in results.corpora.by_role().items():
        parts = (
            f"{corpus.n:,} × {corpus.d:,} {corpus.dtype}",
            format_repeats(corpus)[1],
            *([f"{counted(corpus.left_out, 'row')} left out"] if corpus.left_out else []),
            f"fingerprint {printable(corpus.fingerprint)[:FINGERPRINT_DIGITS]}",
            printable(corpus.known_as),
        )
        yield f"{role:<9}  {' · '.join(parts)}"


def _cells(score: Score, sign: str) -> Cells:
    written, error = written_score(score, typeset=False), score.sampling_error
    known = score.value is not None
    found, usual = format_range(score.expected, score.unit) if score.expected else ("", "")
    return {
        "measure": printable(score.measure),
        "score": score_name(score) + sign,
        "of": score.of,
        "value": written.value,
        "bracket": written.bracket,
        "sampling error": format_number(error, 2) if known and error is not None else "",
        "found": found,
        "expected": usual,
        "p alone": format_p(score.expected.p) if score.expected else "",
        "how": printable(score.bounds or "") if known else "",
        "unit": printable(score.unit),
    }


def _widths(columns: Sequence[str], rows: Sequence[Cells]) -> dict[str, int]:
    """Return the widths of the columns; long reasons don't widen the column of brackets."""
    known = [row for row in rows if row["how"]]
    return {name: column_width(name, known if name == "bracket" else rows) for name in columns}


def _units(rows: Sequence[Cells]) -> list[str]:
    """Return the units of a measure; if there are several, each with its scores."""
    units = list(dict.fromkeys(row["unit"] for row in rows))
    if len(units) == 1:
        return units
    return [
        f"{', '.join(dict.fromkeys(row['score'] for row in rows if row['unit'] == unit))}: {unit}"
        for unit in units
    ]


def _table(columns: Sequence[str], rows: Sequence[Cells], *, gap: int = 2) -> Table:
    """Return a table that names each measure once and separates the measures."""
    shown: list[Row] = []
    for before, cells in zip([None, *rows], rows, strict=False):
        first = before is None or before["measure"] != cells["measure"]
        shown += [{}] if first and before else []
        measure = Text(cells["measure"] if first else "", style="bold")
        shown.append({**cells, "measure": measure, "value": Text(cells["value"], style="bold")})
    widths = _widths(columns, rows)
    least = {name: width for name, width in widths.items() if name != "unit"}
    return rich_table(columns, shown, right=RIGHT_ALIGNED, folded=FOLDED, least=least, gap=gap)


def _notes(results: Results, scores: Sequence[Score], hidden: int) -> Iterator[str]:
    yield from explain_missing(results)
    yield from explain_sign(scores, results)
    if hidden:
        yield f"{hidden:,} scores of single labels are in results.json."
    sampled = sorted({score.expected.rows for score in scores if score.expected is not None})
    if sampled:
        rows = " or ".join(f"{count:,}" for count in sampled)
        yield (
            f"found, expected: the score at {rows} rows (the mean over samples, if there are "
            "more), and the range that holds it in 95 % of cases if the reference has the same "
            "source; p alone: not corrected for the number of scores, as that of the verdict is."
        )
    unknown = sum(
        score.sampling_error is None and score.expected is None and not score.samples
        for score in scores
    )
    if unknown:
        known = replicated_scores({score.measure for score in scores})
        hint = f" (replicates: {{count, rows}} measures that of {known})" if known else ""
        yield (
            f"Of {unknown} of {len(scores)} scores neither the sampling error nor an expected "
            f"range is known: a difference in them can't be called significant{hint}."
        )
