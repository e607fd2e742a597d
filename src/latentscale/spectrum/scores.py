"""All scores of a spectrum, with sampling errors, from what is known of groups of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate, Scored
from latentscale.linalg.moments import Moments, longest_sum, merge_row_moments
from latentscale.sampling.jackknife import jackknife_error, leave_each_out
from latentscale.spectrum.lengths import Lengths, merge_lengths
from latentscale.spectrum.ranks import (
    EPSILON,
    Shares,
    corrected_participation_ratio,
    corrected_rank,
    effective_rank,
    first_share,
    iso_score,
    participation_ratio,
    singular_shares,
    variance_shares,
)

Given = TypeVar("Given")
Found = TypeVar("Found")

CORRECTED = {
    "effective rank": ("effective rank corrected", effective_rank, corrected_rank),
    "participation ratio": (
        "participation ratio corrected",
        participation_ratio,
        corrected_participation_ratio,
    ),
}
"""The scores that few rows bias: the name of what is corrected for that, and how both are found."""

MIN_ROWS = 40
"""Fewest rows that are divided into groups."""

NO_GROUPS = (
    f"corrections need {MIN_ROWS} rows or more, of at most 4096 dimensions, and sampling.method "
    "auto; a label of group_by has none"
)


@dataclass(frozen=True)
class GroupSums:
    """What one pass knows of a group of rows."""

    moments: Moments
    lengths: Lengths


@dataclass(frozen=True)
class SpectrumScores:
    """The scores of a corpus.

    Attributes
    ----------
    scores : dict
        By name, always the same names; a text says why there is no score.
    whole : GroupSums
        The sums of all rows.
    shares : ndarray of float64, shape (k,)
        Shares of the variance that the principal components hold, descending; empty if nothing
        varies.
    """

    scores: dict[str, Scored | str]
    whole: GroupSums
    shares: Float64Array


def merge_sums(parts: Sequence[GroupSums]) -> GroupSums:
    """Join what is known of disjoint sets of rows."""
    return GroupSums(
        merge_row_moments(part.moments for part in parts),
        merge_lengths(part.lengths for part in parts),
    )


def score_groups(groups: Sequence[GroupSums]) -> SpectrumScores:
    """Compute all scores of a corpus.

    Parameters
    ----------
    groups : sequence of GroupSums
        Random groups of its rows, of nearly equal size. With one group there are neither sampling
        errors nor corrections.

    Returns
    -------
    SpectrumScores

    Notes
    -----
    Costs three symmetric eigenvalue problems of d by d for each group, and two for all rows.
    """
    whole = merge_sums(groups)
    variances = _attempt(variance_shares, whole.moments)
    found = _score(whole, variances)
    others = [
        _score(each, _attempt(variance_shares, each.moments))
        for each in (leave_each_out(groups, merge_sums) if groups[1:] else ())
    ]
    twice = [
        variances
        if isinstance(variances, str)
        else _attempt(variance_shares, merge_row_moments([whole.moments, each.moments]))
        for each in (groups if groups[1:] else ())
    ]
    scored: dict[str, Scored | str] = {}
    for name, own in found.items():
        corrected, score, correct = CORRECTED.get(name, ("", None, None))
        if isinstance(own, str):
            scored |= {each: own for each in (name, corrected) if each}
            continue
        left_out = [each.value for other in others if isinstance(each := other[name], Estimate)]
        values = np.array(left_out)
        known = len(values) == len(others) > 1
        scored[name] = Scored(own, float(jackknife_error(values)) if known else None)
        if score is None or correct is None:
            continue
        scored[corrected] = NO_GROUPS
        doubled = [_attempt(score, each) for each in twice]
        again = np.array([each.value for each in doubled if isinstance(each, Estimate)])
        if known and len(again) == len(values):
            better = correct(own.value, values, again, float(whole.moments.dimension))
            scored[corrected] = Scored(better.estimate, better.sampling_error)
    shares = np.empty(0) if isinstance(variances, str) else variances.values
    return SpectrumScores(scored, whole, shares)


def _score(sums: GroupSums, variances: Shares | str) -> dict[str, Estimate | str]:
    """Compute the scores without errors and corrections."""
    moments, lengths = sums.moments, sums.lengths
    rounding = 4.0 * (moments.dimension + longest_sum(moments.count)) * EPSILON
    ratio = _attempt(participation_ratio, variances)
    variation = lengths.deviation / lengths.mean if lengths.mean else 0.0
    return {
        "effective rank": _attempt(effective_rank, variances),
        "participation ratio": ratio,
        "IsoScore": _attempt(lambda known: iso_score(known, moments.dimension), ratio),
        "first component": _attempt(first_share, variances),
        "RankMe": _attempt(effective_rank, _attempt(singular_shares, moments)),
        "mean length": _rounded(lengths.mean, rounding * lengths.mean),
        # Of lengths that are nearly equal the deviation is rounding.
        "length variation": (
            _rounded(variation, rounding * (1.0 + variation))
            if lengths.mean
            else "all rows are zero"
        ),
    }


def _attempt(function: Callable[[Given], Found], given: Given | str) -> Found | str:
    """Return what a function finds, or why there is nothing to find."""
    if isinstance(given, str):
        return given
    try:
        return function(given)
    except ValueError as problem:
        return str(problem)


def _rounded(value: float, reach: float) -> Estimate:
    return Estimate(value, max(0.0, value - reach), value + reach, "exact", "moments")
