"""What scores mean, how brackets are obtained, and which direction is better, in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """The name of a score and its meaning."""

    title: str
    sentence: str


@dataclass(frozen=True, slots=True)
class BoundKind:
    """A way to obtain a bracket and what its two ends promise."""

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
"""How a bracket was obtained, and what that promises."""

BETTER: dict[str, str] = {"high": "higher", "low": "lower", "none": "neither"}
"""Which direction of a score is the better one."""
