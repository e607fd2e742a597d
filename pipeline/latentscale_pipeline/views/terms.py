"""The terms for kinds of brackets, and for which direction is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoundKind:
    """A kind of bracket, and what its two ends guarantee."""

    name: str
    sentence: str


BOUNDS: dict[str, BoundKind] = {
    "exact": BoundKind("exact", "computed directly; the bracket is rounding"),
    "certified": BoundKind("certified", "a mathematical inequality holds at both ends"),
    "interval95": BoundKind(
        "95 % interval", "a confidence interval over the computation's own randomness"
    ),
    "estimate": BoundKind("estimate", "a heuristic at one end or both"),
}
"""The kinds of brackets."""

BETTER: dict[str, str] = {"high": "higher", "low": "lower", "none": "neither"}
"""The word for the direction in which a score is better."""
