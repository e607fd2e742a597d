"""The content of a report, independent of its output format.

A report begins with its conclusions and the answers to a few questions, then has a section for each
measure, and ends with the methods. All texts are plain; the output formats escape them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from latentscale_pipeline.views.figure import Figure
from latentscale_pipeline.views.glossary import Definition


@dataclass(frozen=True, slots=True)
class Fact:
    """One number of the summary, with its bracket and its meaning."""

    label: str
    value: str
    bracket: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The summary's answer to one question."""

    question: str
    facts: list[Fact]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; the columns in ``numeric`` are aligned to the right."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()


def table_of(
    caption: str, rows: Sequence[Mapping[str, str]], *, numeric: Collection[str] = ()
) -> Table:
    """Return a table from rows whose cells are keyed by column."""
    header = tuple(rows[0]) if rows else ()
    places = frozenset(place for place, name in enumerate(header) if name in numeric)
    return Table(caption, header, [tuple(row.values()) for row in rows], places)


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one measure: its question, figures, scores and notes."""

    key: str
    title: str
    question: str = ""
    source: str = ""
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    scores: Table | None = None
    glossary: Sequence[Definition] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Strip:
    """A score beside its expected range.

    Attributes
    ----------
    title, found, expected, p : str
        The score, what was found, the range, and the p-value.
    away : float
        The distance of the score from what is expected, in widths of the range on that side.
    differs : bool
        Whether the score differs by more than chance.
    """

    title: str
    found: str
    expected: str
    p: str
    away: float
    differs: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the corpus differs from the reference, with the evidence.

    Attributes
    ----------
    kind, heading : str
        The verdict, as a name and as a heading.
    sentences : sequence of str
        The reason, and what else is known.
    strips : sequence of Strip
        The scores that were compared.
    remark : str
        What the strips show.
    commands : sequence of str
        Commands that list the rows to look at.
    """

    kind: str
    heading: str
    sentences: Sequence[str]
    strips: Sequence[Strip] = ()
    remark: str = ""
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report.

    Attributes
    ----------
    kind : str
        Whether it describes one job, a comparison of several, or a series over time.
    title, subtitle : str
        Its name, and further identification.
    judgement : Judgement, optional
        The verdict of a job.
    conclusions : sequence of str
        The main findings, as sentences.
    answers : sequence of Answer
        The numbers behind them.
    warnings : sequence of str
        Caveats that a reader must not overlook.
    sections : sequence of Section
        The measures, then the methods.
    """

    kind: Literal["job", "comparison", "series"]
    title: str
    subtitle: str
    judgement: Judgement | None = None
    conclusions: Sequence[str] = ()
    answers: Sequence[Answer] = ()
    warnings: Sequence[str] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
