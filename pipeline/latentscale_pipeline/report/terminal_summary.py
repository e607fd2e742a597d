"""Print the summary of a finished job, on one screen.

It has the headline scores of every measure, corpus and reference side by side. Like all scores
(:mod:`latentscale_pipeline.report.terminal`), it is the same text on a terminal and in a pipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import full_title, report_of
from latentscale_pipeline.results.model import Results, Score
from latentscale_pipeline.views.formatting import (
    counted,
    printable,
    write_estimate,
    write_number,
)
from latentscale_pipeline.views.repeats import write_repeats
from latentscale_pipeline.views.scores import written_score
from latentscale_pipeline.views.terminal import format_table, print_lines

HEADINGS = {
    "corpus": "corpus",
    "reference": "reference",
    "pair": "corpus against reference",
}

NARROW_BRACKET = 0.1
"""Share of the sampling error up to which a bracket isn't written beside it."""


def print_summary(results: Results, console: Console) -> None:
    """Print what was measured, and the headline scores.

    A score has its sampling error, if that is known, and its bracket, if that is wider than the
    printed digits.

    Parameters
    ----------
    results : Results
        ``job``, ``corpora`` and ``scores`` are read.
    console : rich.console.Console
        Where to print; lines aren't wrapped.
    """
    shown = headlines(results.scores)
    print_lines(console, _header(results))
    for roles in (("corpus", "reference"), ("pair",)):
        own = [score for score in shown if score.of in roles]
        if own:
            print_lines(console, ["", *_table(own)])
    print_lines(console, ["", *_notes(results.scores, shown)])


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
        left_out = f", {corpus.excluded_rows:,} rows left out" if corpus.excluded_rows else ""
        yield f"{role:<9}  {shape}, {write_repeats(corpus)[1]}{left_out}"


def _table(scores: Sequence[Score]) -> list[str]:
    rows: dict[str, dict[str, str]] = {}
    for score in scores:
        title = full_title(score)
        rows.setdefault(title, {"": title})[HEADINGS[score.of]] = _written(score)
    columns = dict.fromkeys(HEADINGS[score.of] for score in scores)
    return format_table(["", *columns], list(rows.values()))


def _written(score: Score) -> str:
    written, error, numbers = (
        written_score(score, typeset=False),
        score.sampling_error,
        score.numbers,
    )
    if numbers is None:
        return f"{written.value}: {written.bracket}"
    value, lower, upper = numbers
    if not error:
        return written.value if written.bracket.startswith("±") else str(written)
    rounded = write_estimate(value, value - error / 2, value + error / 2).value
    shown = f"{rounded} ± {write_number(error, 2)}"
    wide = max(upper - value, value - lower) > NARROW_BRACKET * error
    return f"{shown} {written.bracket}" if wide else shown


def _notes(scores: Sequence[Score], shown: Sequence[Score]) -> Iterator[str]:
    if any(score.sampling_error for score in shown):
        yield "±: sampling error, over new samples of the source; [ , ]: bracket of the computation"
    unknown = sum(score.sampling_error is None for score in shown if score.value is not None)
    if unknown:
        which = "these scores" if unknown == len(shown) else f"{unknown} of these scores"
        yield f"the sampling error of {which} is unknown: a difference in them may be chance"
    if hidden := len(scores) - len(shown):
        yield f"{counted(hidden, 'more score')} and all brackets: --all"
