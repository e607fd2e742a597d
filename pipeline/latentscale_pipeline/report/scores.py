"""Tables, names and definitions of the scores of one measure."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from latentscale_pipeline.measures.base import CountedBetween, MeasureReport
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.results.definitions import Definition
from latentscale_pipeline.results.model import SHARE_OF_ROWS, Results, Score
from latentscale_pipeline.views.content import Section, Table, table_of
from latentscale_pipeline.views.formatting import format_number, printable
from latentscale_pipeline.views.scores import (
    NARROW_BRACKET,
    bracket_kind,
    format_p,
    format_range,
    score_name,
    written_score,
)
from latentscale_pipeline.views.terms import BETTER

SAMPLED = ("found at", "expected", "p alone", "p adjusted")
"""Columns about samples of both corpora."""

ALIKE = 0.05
"""Difference of sizes, relative to the smaller one, that makes no visible one to the scores."""

ROWS_OF_LABEL = 0.1
"""Share by which the rows of a label may differ in number. They always do, and have no samples."""

SIZED = "†: depends on the number of rows"
"""What the sign after a score means."""


def is_of_label_rows(score: Score) -> bool:
    """Return whether a score was measured on the rows of a label, and isn't of the labels."""
    return score.label is not None and not report_of(score.measure).of_labels


def are_rows_of_label_alike(rows: int, usual: int) -> bool:
    """Return whether scores of so many rows of a label can be compared."""
    return abs(rows - usual) <= ROWS_OF_LABEL * usual


def report_of(name: str) -> MeasureReport:
    """Return the report texts of a measure; empty ones for an unknown measure."""
    return MEASURES[name].report if name in MEASURES else MeasureReport()


def freedom_of_error(score: Score) -> int:
    """Return the degrees of freedom of a sampling error of all rows; 0 if it isn't known so well.

    A bracket of the computation that isn't narrow beside the error would have to be counted, too.
    """
    definition = report_of(score.measure).scores.get(score.score)
    if definition is None or score.numbers is None or not score.sampling_error:
        return 0
    value, lower, upper = score.numbers
    narrow = max(upper - value, value - lower) <= NARROW_BRACKET * score.sampling_error
    return min(definition.error_freedom, score.sampling_freedom or sys.maxsize) if narrow else 0


def score_of_share(measure: str, each: CountedBetween, value: float, rows: int) -> Score:
    """Return the score of a share of rows that jobs compare; a job alone has none."""
    # Reading results needs no numerical library.
    from latentscale.sampling.shares import share_error

    return Score(
        measure=measure,
        of=each.of,
        score=each.score,
        label=each.label,
        value=value,
        lower=value,
        upper=value,
        bounds="exact",
        unit=SHARE_OF_ROWS,
        sampling_error=share_error(round(value * rows), rows),
        sampling_method="counts",
        size_dependent=False,
    )


def section_of(name: str, place: int) -> Section:
    """Return the heading of a measure's section, made from its name if it has no title."""
    report = report_of(name)
    return Section(
        key=name if report.title else f"further-{place}",
        title=report.title or printable(name),
        question=report.question,
        source=report.source,
    )


def replicated_scores(measures: Collection[str]) -> str:
    """Return the names of the scores of measures whose sampling error replicates can estimate."""
    reports = (measure.report for name, measure in MEASURES.items() if name in measures)
    return ", ".join(report.replicated for report in reports if report.replicated)


def sign_of_size(score: Score, results: Results) -> str:
    """Return a sign if a score says nothing beside another, because corpora differ in size."""
    sizes = [corpus.n for corpus in results.corpora.by_role().values()]
    return " †" if score.size_dependent and max(sizes) > (1 + ALIKE) * min(sizes) else ""


def explain_missing(results: Results) -> list[str]:
    """Return a line for every measure that found nothing, with the reason."""
    return [
        f"{name}: not computed: {printable(reason)}"
        for name in MEASURES
        if (reason := results.measures.get(f"{name}_reason"))
    ]


def explain_sign(scores: Sequence[Score], results: Results) -> list[str]:
    """Return what the sign after some scores means, in a line; none if no score has it."""
    marked = [score for score in scores if sign_of_size(score, results)]
    judged = results.verdict is not None and results.verdict.value is not None
    sampled = judged and any(
        score.samples or (score.expected and score.expected.found != score.value)
        for score in marked
    )
    also = "; the verdict compares samples of equally many rows" if sampled else ""
    return [f"{SIZED}{also}"] if marked else []


def scores_table(scores: Sequence[Score], results: Results) -> Table:
    """Return scores of one measure as a table."""
    rows = [
        {**cells, "score": cells["score"] + sign_of_size(score, results)}
        for score in scores
        for cells in [_score_cells(score)]
    ]
    if not any(score.expected for score in scores):
        rows = [{name: cell for name, cell in row.items() if name not in SAMPLED} for row in rows]
    return table_of("Scores", rows, numeric=("value", "sampling error"))


def score_title(score: Score) -> str:
    """Return the name of a score as in the papers, with its qualifiers."""
    name = score_name(score)
    definition = report_of(score.measure).scores.get(score.score)
    if definition is None or score.score == score.measure:
        return name
    return name.replace(score.score, definition.title, 1)


def title_apart(score: Score) -> str:
    """Return a name of a score that includes its measure and corpus."""
    title = full_title(score)
    return title if score.of == "pair" else f"{title} ({score.of})"


def full_title(score: Score) -> str:
    """Return a name of a score that includes its measure."""
    report = report_of(score.measure)
    title = score_title(score)
    if not report.title and score.score != score.measure:
        title = f"{printable(score.measure)}: {title}"
    elif report.title and score.score == score.measure:
        title = f"{report.scores[score.score].title}, {title}"
    return title


def _score_cells(score: Score) -> dict[str, str]:
    written, error, expected = written_score(score), score.sampling_error, score.expected
    known = f"± {format_number(error, 2, typeset=True)}" if error is not None else "unknown"
    found, usual = format_range(expected, score.unit, typeset=True) if expected else ("", "")
    return {
        "score": score_title(score),
        "of": score.of,
        "value": written.value,
        "bracket": written.bracket,
        "how": bracket_kind(score),
        "sampling error": "" if score.value is None else known,
        "found at": f"{expected.rows:,} rows: {found}" if expected else "",
        "expected": usual,
        "p alone": format_p(expected.p) if expected else "",
        "p adjusted": format_p(expected.p_adjusted)
        if expected and expected.p_adjusted is not None
        else "",
        "unit": printable(score.unit),
        "better": BETTER.get(score.better, ""),
    }


def definitions_of(scores: Sequence[Score]) -> list[Definition]:
    """Return the definitions of the given scores of one measure."""
    glossary = report_of(scores[0].measure).scores if scores else {}
    names = dict.fromkeys(score.score for score in scores)
    return [glossary[name] for name in names if name in glossary]
