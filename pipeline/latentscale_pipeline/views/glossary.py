"""The words for scores, for kinds of brackets, and for which direction is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Definition:
    """The name of a score, its meaning and its limits; headlines stand in summaries.

    ``relation`` says what a score of two corpora is, if it tells how near they are: a distance, or
    a similarity of at most 1. It doesn't depend on which of them comes first, unless ``exchanged``
    names the score of the same measure that it is with corpus and reference exchanged.
    """

    title: str
    sentence: str
    headline: bool = False
    least: float | None = None
    most: float | None = None
    relation: Literal["", "distance", "similarity"] = ""
    exchanged: str = ""


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
