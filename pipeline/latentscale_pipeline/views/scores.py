"""Format a score: its name, its value, its bracket and its notes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from latentscale_pipeline.results.model import SHARE_OF_ROWS, ExpectedRange, Score
from latentscale_pipeline.views.formatting import (
    Written,
    format_alike,
    format_estimate,
    format_number,
    format_share,
    printable,
)
from latentscale_pipeline.views.terms import BOUNDS

ROUNDING = 1e-6
"""Part of a row that is rounding."""

NARROW_BRACKET = 0.1
"""Share of the sampling error up to which a bracket isn't written beside it."""


def score_name(score: Score) -> str:
    """Return the name of a score with its qualifiers.

    A score with the name of its measure is named by its qualifiers alone: "cosine, order 1".
    """
    words = [
        score.kernel or "",
        f"order {score.order}" if score.order is not None else "",
        f"scale {format_number(score.scale)}" if score.scale is not None else "",
        "" if score.label is None else f"label {score.label}" if score.label else "no label",
    ]
    qualifiers = ", ".join(word for word in words if word)
    if not qualifiers:
        return printable(score.score)
    if score.score == score.measure:
        return printable(qualifiers)
    return printable(f"{score.score} ({qualifiers})")


def why_null(score: Score) -> str:
    """Return why a score has no value."""
    return printable(score.reason or "no reason was recorded")


def written_score(score: Score, *, typeset: bool = True) -> Written:
    """Format a score's value and bracket; a score that is null has its reason instead."""
    if score.value is None:
        return Written("none", why_null(score))
    return format_estimate(score.value, score.lower, score.upper, typeset=typeset)


def format_summarised(score: Score, *, typeset: bool = False) -> str:
    """Format a score for a summary: with its sampling error, and its bracket where that is wide."""
    written, error, numbers = (
        written_score(score, typeset=typeset),
        score.sampling_error,
        score.numbers,
    )
    if numbers is None:
        return f"{written.value}: {written.bracket}"
    value, lower, upper = numbers
    if score.unit == SHARE_OF_ROWS:
        return _percentage(value, error)
    if not error:
        return written.value if written.bracket.startswith("±") else str(written)
    near = format_estimate(value, value - error / 2, value + error / 2, typeset=typeset)
    shown = f"{near.value if value else '0'} ± {format_number(error, 2, typeset=typeset)}"
    wide = max(upper - value, value - lower) > NARROW_BRACKET * error
    # A bracket within the printed digits isn't written beside the error, which has the same sign.
    return f"{shown} {written.bracket}" if wide and not written.bracket.startswith("±") else shown


def _percentage(share: float, error: float | None) -> str:
    """Write a share of rows, which was counted, so that it has no bracket."""
    if not error:
        return format_share(share)
    value = format_alike([100 * share], 100 * error)[0][0] if share else "0"
    return f"{value} ± {format_number(100 * error, 2)} %"


def explain_summary(cells: Iterable[str]) -> Iterator[str]:
    """Yield what the signs in the cells of :func:`format_summarised` mean, in one line."""
    text = " ".join(cells)
    signs = {
        "±": "±: sampling error, over new samples of the source",
        "[": "[ , ]: bracket of the computation",
    }
    if said := [meaning for sign, meaning in signs.items() if sign in text]:
        yield "; ".join(said)


def format_range(
    expected: ExpectedRange, unit: str = "", *, typeset: bool = False
) -> tuple[str, str]:
    """Return what was found and the expected range as text, with equally many decimals.

    One digit more is shown where a value outside would look as if it lay inside. Shares of rows are
    numbers of rows.
    """
    if unit == SHARE_OF_ROWS:
        return _format_rows(expected)
    numbers = (expected.found, expected.lower, expected.upper)
    width = expected.upper - expected.lower
    inside = expected.lower <= expected.found <= expected.upper
    for share in (1.0, 0.1, 0.01):
        (found, lower, upper), power = format_alike(numbers, share * width, typeset=typeset)
        if inside or found not in {lower, upper}:
            break
    found, lower, upper = (
        text + power if text.strip("-−0.") else text for text in (found, lower, upper)
    )
    return found, lower if lower == upper else f"{lower} to {upper}"


def _format_rows(expected: ExpectedRange) -> tuple[str, str]:
    found, lower, upper = (
        expected.rows * share for share in (expected.found, expected.lower, expected.upper)
    )
    first, last = math.ceil(lower - ROUNDING), math.floor(upper + ROUNDING)
    usual = f"{first:,}" if first >= last else f"{first:,} to {last:,}"
    return f"{round(found):,}", usual


def format_p(p: float) -> str:
    """Return a p-value with two decimals, three if it is small, never below ``<0.001``.

    One above 0.05 is rounded up, since the verdict takes 0.05 for a difference.
    """
    if p < 0.001:
        return "<0.001"
    if 0.05 < p < 0.055:
        return f"{max(p, 0.051):.3f}"
    return f"{p:.3f}" if p < 0.01 else f"{p:.2f}"


def bracket_kind(score: Score) -> str:
    """Return how a score's bracket was obtained."""
    return BOUNDS[score.bounds].name if score.bounds in BOUNDS else ""


def whole_scores(scores: Iterable[Score], measure: str, **wanted: object) -> list[Score]:
    """Return the scores of a measure for whole corpora whose fields have the given values."""
    return [
        score
        for score in scores
        if (score.measure, score.label) == (measure, None)
        and all(getattr(score, name) == value for name, value in wanted.items())
    ]
