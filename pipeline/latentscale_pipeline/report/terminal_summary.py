"""Print the summary of a finished job, on one screen.

It has the verdict with the scores that speak most for it, and the headline scores of every measure,
corpus and reference side by side. Like all scores (:mod:`latentscale_pipeline.report.terminal`), it
is the same text on a terminal and in a pipe.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.labels import label_summary
from latentscale_pipeline.report.look import format_labels
from latentscale_pipeline.report.scores import (
    explain_missing,
    explain_sign,
    full_title,
    report_of,
    sign_of_size,
)
from latentscale_pipeline.report.terminal import LABELLED_ROWS
from latentscale_pipeline.report.verdict import (
    LEVEL,
    compared,
    distance,
    format_verdict,
    found_and_usual,
    is_subsampled,
)
from latentscale_pipeline.results.model import (
    ExpectedRange,
    Results,
    Score,
    Verdict,
)
from latentscale_pipeline.views.formatting import (
    counted,
    printable,
)
from latentscale_pipeline.views.repeats import format_repeats
from latentscale_pipeline.views.scores import explain_summary, format_p, format_summarised
from latentscale_pipeline.views.terminal import format_table, print_lines

MIN_SHOWN = 5
"""Least number of scores that are shown beside the verdict; all that differ are shown."""

WIDTH = 79
"""Width of sentences in characters."""

NAMED = 3
"""Number of scores that a note names; the rest are counted."""

COUNTED, SAMPLED = (
    "of: rows that were counted",
    "at: rows of a sample; of several, the score is their mean",
)
"""What stands after a number that was found."""

EQUAL_SIZES = ", some as if both corpora had as many"
"""What stands after that where a share depends on the number of rows."""

STRIP = 3
"""Characters from the middle of a strip to an end of the expected range; it is twice as long."""


def print_summary(results: Results, console: Console) -> None:
    """Print what was measured, the verdict, and the headline scores.

    A score has its sampling error, if that is known, and its bracket, if that is wider than the
    printed digits.

    Parameters
    ----------
    results : Results
        ``job``, ``corpora``, ``verdict`` and ``scores`` are read.
    console : rich.console.Console
        Where to print; lines aren't wrapped.
    """
    shown = headlines(results.scores)
    sizes = results.corpora.by_role()
    headings = {"pair": "corpus against reference"}
    headings |= {str(role): f"{role}, {counted(each.n, 'row')}" for role, each in sizes.items()}
    print_lines(console, _header(results))
    if results.verdict is not None and results.verdict.value is not None:
        print_lines(console, format_evidence(results.verdict, results.scores))
    for roles in (("corpus", "reference"), ("pair",)):
        own = [score for score in shown if score.of in roles]
        if own:
            print_lines(console, ["", *_table(own, headings, results)])
    print_lines(console, _by_label(results))
    print_lines(console, ["", *_notes(results, shown)])


def headlines(scores: Sequence[Score]) -> list[Score]:
    """Return the scores of summaries: of a measure that names none, those of whole corpora."""
    whole = [score for score in scores if score.label is None]
    named = [score for score in whole if report_of(score.measure).is_headline(score)]
    covered = {score.measure for score in named}
    shown = [score for score in whole if score in named or score.measure not in covered]
    order = [*MEASURES, *(score.measure for score in shown)]
    return sorted(shown, key=lambda score: order.index(score.measure))


def _header(results: Results) -> Iterator[str]:
    yield printable(results.job.id)
    for role, corpus in results.corpora.by_role().items():
        shape = f"{corpus.n:,}" if corpus.d is None else f"{corpus.n:,} × {corpus.d:,}"
        left_out = f", {counted(corpus.left_out, 'row')} left out" if corpus.left_out else ""
        yield f"{role:<9}  {shape}, {format_repeats(corpus)[1]}{left_out}"


def format_evidence(
    verdict: Verdict, scores: Sequence[Score], usual: str = "the reference"
) -> Iterator[str]:
    """Yield the verdict in words, and the scores that are least usual."""
    heading, sentences = format_verdict(verdict, usual)
    yield from ("", heading.upper())
    yield from textwrap.wrap(" ".join(sentences), WIDTH)
    known = compared(scores)
    if not known:
        return
    unusual = sum(one.p <= LEVEL for one in known)
    shown = known[: max(MIN_SHOWN, unusual)]
    rows = []
    for one in shown:
        found, usual = found_and_usual(one, 0)
        cells = {"": one.title, "found": found, "expected": usual, " ": _strip(one.expected)}
        rows.append({**cells, "p": format_p(one.p)})
    yield ""
    yield from format_table(["", "found", "expected", " ", "p"], rows)
    if more := len(known) - len(shown):
        yield f"{counted(more, 'further score')}, at least as usual"
    equal_sizes = any(map(is_subsampled, shown))
    signs = {" of ": COUNTED + EQUAL_SIZES * equal_sizes, " at ": SAMPLED}
    said = [text for sign, text in signs.items() if any(sign in row["found"] for row in rows)]
    if SAMPLED in said or equal_sizes:
        yield "; ".join(said)


def _strip(expected: ExpectedRange) -> str:
    """Draw where the score lies; the square brackets are the ends of the expected range."""
    away = distance(expected)
    marks = [" "] * (4 * STRIP + 1)
    marks[STRIP], marks[2 * STRIP], marks[3 * STRIP] = "[|]"
    if abs(away) > 2:
        marks[0 if away < 0 else -1] = "<" if away < 0 else ">"
    else:
        marks[_place(away)] = "o"
    return "".join(marks)


def _place(away: float) -> int:
    """Return where a score is marked: beside the end of the range that it is near, never on it."""
    place = round(STRIP * (2 + away))
    if abs(away) <= 1:
        return min(max(place, STRIP + 1), 3 * STRIP - 1)
    return min(place, STRIP - 1) if away < 0 else max(place, 3 * STRIP + 1)


def _table(scores: Sequence[Score], headings: Mapping[str, str], results: Results) -> list[str]:
    rows: dict[str, dict[str, str]] = {}
    for score in scores:
        title = full_title(score) + sign_of_size(score, results)
        rows.setdefault(title, {"": title})[headings[score.of]] = format_summarised(score)
    columns = dict.fromkeys(headings[score.of] for score in scores)
    return format_table(["", *columns], list(rows.values()))


def _by_label(results: Results) -> Iterator[str]:
    """Yield the largest of the labels that were measured by themselves, with a score a measure."""
    labels = results.part("labels")
    if labels is None:
        return
    rows = label_summary(results.scores, labels.measured)
    yield ""
    if rows:
        yield from format_table(list(rows[0]), rows)
        more = len(labels.measured) - len(rows)
        rest = f"{counted(more, 'more label')}, and more scores" if more else "More scores"
        yield f"{rest} by label: the report"
    if labels.left_out:
        few = f"fewer than {counted(labels.least_rows, 'row')}"
        yield f"{counted(len(labels.left_out), 'label')} with {few}: not measured"


def _notes(results: Results, shown: Sequence[Score]) -> Iterator[str]:
    scores = results.scores
    yield from explain_missing(results)
    yield from explain_summary(map(format_summarised, shown))
    yield from explain_sign(shown, results)
    unknown = [
        full_title(score)
        for score in shown
        if score.value is not None and score.of != "reference"
        if score.sampling_error is None and score.expected is None
    ]
    if unknown:
        named = [*unknown[:NAMED], *([f"{len(unknown) - NAMED} more"] if unknown[NAMED:] else [])]
        yield f"sampling error unknown: {'; '.join(named)}"
    parts = [(measure.report, results.part(name)) for name, measure in MEASURES.items()]
    # Measures that compare the same pairs of rows have the same caveat.
    yield from dict.fromkeys(
        caveat
        for report, part in parts
        if part is not None
        for caveat in report.caveats(part, results)
    )
    yield from format_labels(results)
    labelled = sum(score.label is not None for score in scores)
    counted_only = labelled if labelled > LABELLED_ROWS else 0
    if hidden := len(scores) - len(shown) - counted_only:
        yield f"{counted(hidden, 'more score')} and all brackets: --all"
