"""What the report says of rows that repeat, leak or lie apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.duplicates.results import (
    DuplicatesResults,
    FarRows,
    NearestDistances,
    RowsOfCorpus,
    RowsOfPair,
    SearchCheck,
)
from latentscale_pipeline.measures.duplicates.scores import NEAR_ROWS_LEFT_OUT, SCORES
from latentscale_pipeline.results.model import Results, Score
from latentscale_pipeline.views.content import Table, table_of
from latentscale_pipeline.views.figure import (
    ROLE_STYLES,
    Curve,
    Figure,
    Panel,
    Rule,
    Style,
)
from latentscale_pipeline.views.formatting import counted, format_number, printable

DENSE = 0.5
"""Share of rows with one nearby from which on a corpus may be dense."""

COPIES = 0.25
"""Distance up to which most copies lie, in units of the distance within which rows are near."""


class DuplicatesReport(MeasureReport):
    """Which rows repeat, leak or lie apart."""

    group = "Rows"
    title = "Rows: duplicates, leaks, outliers"
    question = "How many rows repeat another row, lie in both corpora, or lie far from all others."
    source = "Nearest rows of all rows; groups as in Poklukar et al. 2021, definition 3.1"
    dependent = ("exact leaks", "leaks")
    main = "near-duplicates"
    scores = SCORES

    def is_judged(self, score: Score) -> bool:
        """Return whether a verdict is about a score; leaving rows out has settled some."""
        return score.expected_reason != NEAR_ROWS_LEFT_OUT

    def are_exceptions(self, found: DuplicatesResults, score: str) -> bool:
        """Return whether rows are exceptions: near ones of a dense corpus aren't."""
        return score != "near-duplicates" or not _are_dense(found)

    def figures(self, found: DuplicatesResults, results: Results) -> list[Figure]:
        """Draw how far the nearest rows are, in the same corpus and in the reference."""
        return [figure for figure in (_draw_own(found), _draw_across(found)) if figure is not None]

    def tables(self, found: DuplicatesResults) -> list[Table]:
        """Return the numbers of rows."""
        return [
            table_of(
                "Numbers of rows",
                [
                    {"rows": title}
                    | {role: _count(part, name) for role, part in _parts(found).items()}
                    for title, name in _COUNTED.items()
                ],
                numeric=("corpus", "reference"),
            )
        ]

    def caveats(self, found: DuplicatesResults, results: Results) -> list[str]:
        """Say how many of the near-duplicates may go: not those that stay for others."""
        part = found.corpus
        said = []
        within = f"{format_number(found.within)} ({found.metric})"
        if _are_dense(found):
            said.append(
                f"most rows lie within {within} of another one, and few of them are copies: a "
                "smaller measures.duplicates.within tells these apart"
            )
        elif part.covered:
            said.append(
                f"{part.covered:,} of {part.near_duplicates:,} near-duplicates can go: an earlier "
                f"row, which stays, lies within {within}"
            )
        equal = results.corpora.by_role()["corpus"].duplicates
        if equal is not None and (differ := (part.repeated or 0) - equal) > 0:
            said.append(
                f"{counted(differ, 'row differs', 'rows differ')} from an earlier one in length "
                "alone, or by rounding: the cosine distance calls them equal to it, and the "
                "euclidean one tells them apart (measures.duplicates.metric)"
            )
        for name, far in _far_rows(found.pair):
            if far.checked < far.beyond:
                said.append(
                    f"{name}: of {far.beyond:,} rows that cells call far {far.checked:,} were "
                    f"compared with all others, and {far.confirmed:,} of these are far; `rows` "
                    "lists the others, too"
                )
        said += [] if part.checked is None else [_said_of_cells(part.checked, part.checked_across)]
        return said

    def methods(self, found: DuplicatesResults) -> list[tuple[str, str]]:
        """Return the distances that were used."""
        said = [
            ("nearly the same", f"{found.metric} distance up to {format_number(found.within)}"),
        ]
        if found.metric == "cosine":
            said.append(("equal", "in direction: the cosine distance ignores lengths"))
        if found.pair is not None:
            far = format_number(found.pair.outlier_distance)
            said.append(("outliers", f"farther than {far} from every row of the reference"))
        said += [
            (f"left out of the {role} before", ", ".join(map(printable, part.left_out)))
            for role, part in _parts(found).items()
            if part.left_out
        ]
        return said


_COUNTED = {
    "looked at": "rows",
    "equal to another row": "exact_duplicates",
    "equal to an earlier row": "repeated",
    "nearly the same as another row": "near_duplicates",
    "covered by a row that stays": "covered",
}


def _are_dense(found: DuplicatesResults) -> bool:
    """Return whether most rows have one nearby, and these aren't as near as copies are."""
    part, counted = found.corpus, found.own_distances
    if counted is None or part.near_duplicates < DENSE * part.rows:
        return False
    below = np.cumsum(counted.corpus)
    median = int(np.searchsorted(below, part.near_duplicates / part.rows * below[-1] / 2))
    return (counted.edges[median] + counted.edges[median + 1]) / 2 > COPIES * found.within


def _draw_own(found: DuplicatesResults) -> Figure | None:
    if found.own_distances is None:
        return None
    part = found.corpus
    near = [f"{part.near_duplicates:,} of {part.rows:,} rows of the corpus"]
    if found.reference is not None:
        other = found.reference
        near.append(f"{other.near_duplicates:,} of {other.rows:,} of the reference")
    return _draw(
        "duplicates-own",
        "Distance to the nearest other row of the same corpus",
        f"Within {format_number(found.within)} of another row (dotted): {' and '.join(near)}.",
        found.own_distances,
        found,
        [Rule(found.within, Style("nearly the same", "line-2"))],
    )


def _draw_across(found: DuplicatesResults) -> Figure | None:
    if found.reference_distances is None or found.pair is None:
        return None
    far, rows = found.pair.outlier_distance, found.reference.rows if found.reference else 0
    return _draw(
        "duplicates-reference",
        "Distance to the nearest row of the reference",
        f"Of the corpus {found.pair.leaks:,} rows are within {format_number(found.within)} of a "
        f"row of the reference, and {found.pair.outliers:,} farther than {format_number(far)} "
        f"(dotted). Of the {rows:,} rows of the reference that were looked up at most 1 in 5000 "
        "are that far from its others, which the second curve shows.",
        found.reference_distances,
        found,
        [
            Rule(found.within, Style("nearly the same", "line-2")),
            Rule(far, Style("outliers", "line-3")),
        ],
    )


def _draw(
    key: str,
    title: str,
    caption: str,
    counted: NearestDistances,
    found: DuplicatesResults,
    rules: Sequence[Rule],
) -> Figure:
    edges = counted.edges
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    curves = [
        Curve(
            style.name,
            middles,
            counts,
            line=True,
            points=True,
            style=style,
            texts=[
                f"from {format_number(low)} to {format_number(high)}"
                for low, high in pairwise(edges)
            ],
        )
        for role, style in ROLE_STYLES.items()
        if (counts := getattr(counted, role)) is not None
    ]
    panel = Panel(
        title,
        f"{printable(found.metric)} distance (same rows ← → far rows)",
        "rows, logarithmic",
        curves,
        log_y=True,
        zeros=True,
        rules=[rule for rule in rules if rule.at <= edges[-1]],
    )
    return Figure(key, title, caption, [panel])


def _far_rows(pair: RowsOfPair | None) -> Iterator[tuple[str, FarRows]]:
    if pair is not None and pair.outliers_settled is not None:
        yield "outliers", pair.outliers_settled
    if pair is not None and pair.not_covered_settled is not None:
        yield "not covered", pair.not_covered_settled


def _said_of_cells(own: SearchCheck, across: SearchCheck | None) -> str:
    checks = [own] if across is None else [own, across]
    near, seen = (sum(getattr(check, name) for check in checks) for name in ("near", "near_found"))
    where = "" if across is None else ", in either corpus"
    return (
        f"near rows were looked for in cells: of {own.rows:,} random rows that were compared with "
        f"all others{where}, {near:,} times another one is near, and {seen:,} times one was found"
    )


def _parts(found: DuplicatesResults) -> dict[str, RowsOfCorpus]:
    parts = {"corpus": found.corpus, "reference": found.reference}
    return {role: part for role, part in parts.items() if part is not None}


def _count(part: RowsOfCorpus, name: str) -> str:
    count = getattr(part, name)
    return "not known" if count is None else f"{count:,}"
