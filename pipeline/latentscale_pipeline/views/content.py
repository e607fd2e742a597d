"""The content of a report, independent of its output format.

The report of a job, of two, and of a series opens with a verdict and what speaks for it; that of
several jobs with conclusions. Then it has a section for each measure, and ends with the methods.
All texts are plain; the output formats escape them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from latentscale_pipeline.results.definitions import Definition
from latentscale_pipeline.views.figure import Figure


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
    """A table of texts; the columns in ``numeric`` are aligned to the right.

    ``anchors`` are the ids of the rows' elements, if marks point to them.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    anchors: Sequence[str] = ()


def table_of(
    caption: str, rows: Sequence[Mapping[str, str]], *, numeric: Collection[str] = ()
) -> Table:
    """Return a table from rows whose cells are keyed by column."""
    header = tuple(rows[0]) if rows else ()
    places = frozenset(place for place, name in enumerate(header) if name in numeric)
    return Table(caption, header, [tuple(row.values()) for row in rows], places)


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one measure: its question, figures, scores and notes.

    Attributes
    ----------
    key, title, question, source : str
        Its texts; the key is the id of its element.
    figures, notes, scores, glossary, tables
        What it shows, in this order.
    folds : sequence of Table
        Tables that are shown on request, each under its caption.
    folded : bool
        Whether the whole section is shown on request.
    small : bool
        Whether its figures are small and stand side by side.
    """

    key: str
    title: str
    question: str = ""
    source: str = ""
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    scores: Table | None = None
    glossary: Sequence[Definition] = ()
    tables: Sequence[Table] = ()
    folds: Sequence[Table] = ()
    folded: bool = False
    small: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A job of a series: its verdict or ``failed``, what is said of it, and the id of its row."""

    kind: str
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A score beside its expected range.

    Attributes
    ----------
    title, found, expected, p : str
        The score, what was found, the range, and the p-value; empty where nothing is known.
    away : float
        The distance of the score from what is expected, in widths of the range on that side.
    differs : bool
        Whether the score differs by more than chance.
    group : str
        What the score is about.
    """

    title: str
    found: str
    expected: str = ""
    p: str = ""
    away: float = 0.0
    differs: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row to look at: its id or number, its label, why, and the distance that says so.

    Its text, and that of the other row, are empty if there are none.
    """

    name: str
    label: str
    why: str
    distance: str
    text: str = ""
    other_text: str = ""

    @property
    def texts(self) -> list[str]:
        """Those of the two texts that there are."""
        return [text for text in (self.text, self.other_text) if text]


@dataclass(frozen=True, slots=True)
class Opening:
    """What a report opens with: the verdict, and what speaks for it.

    A job and a comparison of two answer three questions; a series has a mark for each job.

    Attributes
    ----------
    kind, heading : str
        The verdict, as a name and as a heading.
    sentences : sequence of str
        The reason, and what else is known.
    rows : sequence of Strip
        Is the corpus fine? Numbers of rows that are unlike others, or too like them.
    rows_said : str
        The answer in a sentence.
    question : str
        What the scores answer: how it compares or, without a reference, how diverse it is.
    strips : sequence of Strip
        The scores; without a range if nothing was compared.
    strips_said : str
        What they show.
    reach : float
        Half width of the range that holds all scores together, in widths of the range of one.
    look : sequence of ShownRow
        What should I look at? The rows that stand out most.
    look_said : str
        The answer in a sentence.
    commands : sequence of str
        Commands that list them all.
    marks : sequence of Mark
        The jobs of a series, the oldest first.
    """

    kind: str
    heading: str
    sentences: Sequence[str]
    rows: Sequence[Strip] = ()
    rows_said: str = ""
    question: str = ""
    strips: Sequence[Strip] = ()
    strips_said: str = ""
    reach: float = 1.0
    look: Sequence[ShownRow] = ()
    look_said: str = ""
    commands: Sequence[str] = ()
    marks: Sequence[Mark] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report.

    Attributes
    ----------
    kind : str
        Whether it describes one job, a comparison of several, or a series over time.
    title, subtitle : str
        Its name, and further identification.
    corpora : sequence of (str, str)
        The role and the description of each corpus of a job.
    opening : Opening, optional
        The verdict of a job, with its evidence.
    conclusions : sequence of str
        The main findings of several jobs, as sentences.
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
    corpora: Sequence[tuple[str, str]] = ()
    opening: Opening | None = None
    conclusions: Sequence[str] = ()
    answers: Sequence[Answer] = ()
    warnings: Sequence[str] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
