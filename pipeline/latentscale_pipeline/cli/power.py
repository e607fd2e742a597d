"""``latentscale power``: how many rows a difference takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.console import Console

from latentscale_pipeline.cli.options import JSON, FiniteRange
from latentscale_pipeline.measures.finished_job import FinishedJob, read_job
from latentscale_pipeline.report.power import MAX_SAMPLES, Power, find_power, scores_without_power
from latentscale_pipeline.report.scores import full_title
from latentscale_pipeline.results.model import SHARE_OF_ROWS
from latentscale_pipeline.views.formatting import format_number, printable
from latentscale_pipeline.views.terminal import format_table, print_lines

NO_NUMBER = "no number"
"""What stands where no number of rows shows a change."""

ROUNDED = 2
"""Digits of a number of rows that is estimated."""


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option(
    "--change",
    metavar="PERCENT",
    type=FiniteRange(0.0, 100.0, min_open=True),
    default=1.0,
    show_default=True,
    help="A change of a score, or of the share of the rows that it counts.",
)
@JSON
def power(job: str, change: float, as_json: bool) -> None:
    """Say which changes JOB shows, and how many rows show others.

    JOB is the folder of a finished job. A change is shown if it is found four times in five, at the
    level of the verdict: between corpus and reference or, in a job without one, between two jobs of
    its size. The job's own samples say how far chance moves each score.

    \b
    Example:
      latentscale power jobs/nightly-1a2b3c4d --change 0.5
    """
    read = read_job(job)
    found = find_power(read, change / 100.0)
    if as_json:
        click.echo(json.dumps([_described(one) for one in found], indent=1))
    else:
        print_lines(Console(soft_wrap=True, highlight=False), _lines(read, found, change))


def _described(one: Power) -> dict[str, Any]:
    score = one.score
    return {
        "measure": score.measure,
        "score": score.score,
        "of": score.of,
        "label": score.label,
        "kernel": score.kernel,
        "order": score.order,
        "scale": score.scale,
        "sample_rows": one.rows,
        "usual": one.usual,
        "shown_from": one.shown,
        "absolute": one.absolute,
        "rows_needed": one.needed.rows if one.needed else None,
        "samples_needed": (one.needed.samples or None) if one.needed else None,
    }


def _lines(job: FinishedJob, found: Sequence[Power], change: float) -> Iterator[str]:
    sizes = " against ".join(f"{corpus.n:,}" for corpus in job.corpora.values())
    pair = len(job.corpora) > 1
    asked = f"{format_number(change)} % takes"
    between = "" if pair else " of two such jobs"
    yield printable(job.id)
    yield f"Changes that {sizes} rows{between} show four times in five:"
    yield ""
    yield from format_table(
        ["", "shown from", "usual", "at rows", asked, "samples"],
        [_cells(one, asked) for one in found],
    )
    yield ""
    others = "the reference in proportion" if pair else "as many of the other"
    yield f"{asked}: so many rows of the corpus and {others}, measured with"
    yield "-o sampling.samples=N; known from few samples, to a factor of two or three"
    if any(_needs_larger_samples(one) for one in found):
        yield f"{NO_NUMBER}: up to {MAX_SAMPLES:,} samples don't show it; larger ones may"
        yield "(-o sampling.rows=N)"
    if unknown := scores_without_power(job, found):
        yield "Of these, no size of change is known:"
        yield from (f"  {full_title(score)}" for score in unknown)


def _needs_larger_samples(one: Power) -> bool:
    return one.needed is None and not one.absolute


def _cells(one: Power, asked: str) -> dict[str, str]:
    counts = one.score.unit == SHARE_OF_ROWS
    needed = one.needed
    shown = "no change"
    if one.shown is not None and one.absolute:
        shown = format_number(one.shown, 2)
    elif one.shown is not None:
        shown = f"{format_number(100 * one.shown, 2)} %{' of rows' if counts else ''}"
    return {
        "": full_title(one.score),
        "shown from": shown,
        "usual": f"{format_number(100 * one.usual, 2)} %" if counts else format_number(one.usual),
        "at rows": f"{one.rows:,}",
        asked: NO_NUMBER * _needs_larger_samples(one)
        if needed is None
        else f"{_rounded(needed.rows):,}",
        "samples": f"{needed.samples:,}" if needed and needed.samples else "",
    }


def _rounded(rows: int) -> int:
    """Round a number of rows up to two digits: it is an estimate."""
    step = int(10 ** max(0, len(str(rows)) - ROUNDED))
    return math.ceil(rows / step) * step
