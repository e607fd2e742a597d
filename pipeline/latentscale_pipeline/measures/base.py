"""The interface that every measure implements.

A measure has a section of the configuration, a plan (its stages, as data), a function that
collects what its stages found, the scales that make two jobs comparable, and its part of the
report. Planning, results, comparison, report and history go through the registry, so a new measure
needs no other code.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from numpy.typing import NDArray

from latentscale.estimate import Estimate, Scored
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.labelled_rows import MOST_LABELS
from latentscale_pipeline.corpus.manifest import COMPANION_ROWS
from latentscale_pipeline.engine.stage import MARKER_BYTES, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.results import model
from latentscale_pipeline.results.definitions import ScoreDefinition
from latentscale_pipeline.results.model import Score as Score
from latentscale_pipeline.results.part import Part
from latentscale_pipeline.results.part import Role as Role
from latentscale_pipeline.storage.artifacts import Artifact
from latentscale_pipeline.views.content import Table
from latentscale_pipeline.views.figure import Figure, Style

GROUPS = ("Diversity", "Shape", "Coverage", "Rows")
"""What scores are about, in the order of summaries."""

TILE_BYTES = 64 * 2**20
"""Allowance for the distance tiles that a task holds at once."""

FEW_TILES_BYTES = 32 * 2**20
"""The same for tasks that hold two or three tiles of 8 MiB and their buffers."""

CONVERSION_OPERATIONS = 2
"""Elementwise operations to turn a stored coordinate into float64."""

UNIT_OPERATIONS = 6
"""Elementwise operations to turn a stored coordinate into one of a unit row."""

RESULT_BYTES = MARKER_BYTES
"""Approximate size of the marker of a part."""


def format_pairs(pairs: float) -> str:
    """Format a number of row pairs for a configuration, rounded up: ``4.1e+12``."""
    exponent = math.floor(math.log10(pairs))
    return f"{math.ceil(pairs / 10 ** (exponent - 1)) / 10:.1f}e+{exponent:02d}"


TEXT_BYTES = 200
"""Memory of an id or a label while it is read, and on disk."""


@dataclass(frozen=True)
class CorpusFacts:
    """What a plan may depend on: the size of a corpus, never its location.

    ``weights``, ``labels`` and ``ids`` are checksums, or None if the corpus has none; a source that
    wasn't ingested yet has a placeholder for one.
    ``shard_prints`` identify the shards by their rows; empty if the rows aren't known yet.
    ``left_out`` says why rows of a larger corpus were left out of this one.
    """

    n: int
    d: int
    dtype: str
    shards: int
    shard_rows: int
    zero_rows: int = 0
    weights: str | None = None
    labels: str | None = None
    ids: str | None = None
    shard_prints: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def runs_of_shards(self, length: int, *beside: object) -> tuple[str, ...]:
        """Return keys of runs of ``length`` shards: dtype, dimension, ``beside``, shards."""
        common = " ".join(map(str, (self.dtype, self.d, *beside)))
        return tuple(
            f"{common}: {' '.join(self.shard_prints[first : first + length])}"
            for first in range(0, len(self.shard_prints), length)
        )

    @property
    def points_bytes(self) -> int:
        """Memory of all rows in the stored type and as float64 points."""
        return self.float_bytes + self.stored_bytes

    @property
    def float_bytes(self) -> int:
        """Memory of all rows as float64 points."""
        return self.n * (self.d + 1) * 8

    @property
    def stored_bytes(self) -> int:
        """Memory of all rows in the stored type."""
        return self.n * self._stored_row_bytes

    @property
    def numbering_bytes(self) -> int:
        """Memory while the label of every row is numbered, and rows are sorted by it."""
        return 24 * self.n + self.labels_bytes + 250 * min(MOST_LABELS, self.n)

    @property
    def labels_bytes(self) -> int:
        """Memory of the labels in the largest of their shards, read and decoded."""
        return 2 * TEXT_BYTES * min(COMPANION_ROWS, self.n)

    @property
    def shard_bytes(self) -> int:
        """Memory of one shard read, checked, decoded and turned into float64 points."""
        return self.rows_of_shard * (self.d + 1) * 8 + self.shard_stored_bytes

    @property
    def shard_stored_bytes(self) -> int:
        """Memory of one shard in the stored type."""
        return self.rows_of_shard * self._stored_row_bytes

    @property
    def rows_of_shard(self) -> int:
        """Rows of the largest shard."""
        return min(self.shard_rows, self.n)

    @property
    def _stored_row_bytes(self) -> int:
        return self.d * (2 if self.dtype == "float16" else 4)


@dataclass(frozen=True)
class JobFacts:
    """The facts from which a measure is planned.

    Attributes
    ----------
    corpora : mapping
        Facts by role, ``corpus`` first.
    seed : int
        The job's seed.
    pairs : float
        Number of row pairs that a measure may evaluate on one corpus.
    scale_role : str
        The corpus from which bandwidth, epsilon and cut-off scale are taken.
    fixed_scales : mapping
        Scales taken from a finished job instead, by name.
    label_rows : mapping
        Number of rows of each label, if labels are measured.
    replicates : int
        Number of repetitions, on random subsamples or in random orders; 1 for none.
    replicate_rows : int or None
        Rows of a subsample; None if only orders are random.
    errors : bool
        Whether sampling errors are asked for.
    samples : int
        Random samples of the corpus that tell where its scores are expected; 0 for none.
    sample_rows : int
        Largest number of rows of a sample that tells where a score is expected.
    pair : {"rows", "ids"} or None
        How rows of both corpora are paired, if they are.
    spare_bytes : int
        Bytes that the stages of a measure may store together where this only saves computing. The
        numbers don't depend on it.
    """

    corpora: Mapping[Role, CorpusFacts]
    seed: int
    pairs: float
    scale_role: Role
    fixed_scales: Mapping[str, float] = field(default_factory=dict)
    label_rows: Mapping[str, int] = field(default_factory=dict)
    replicates: int = 1
    replicate_rows: int | None = None
    errors: bool = False
    samples: int = 0
    sample_rows: int = 0
    pair: Literal["rows", "ids"] | None = None
    spare_bytes: int = 0


class Expectation(Protocol):
    """Where a score is expected if both corpora have one source."""

    @property
    def found(self) -> float:
        """The score."""

    @property
    def centre(self) -> float:
        """The score that is usual."""

    @property
    def lower(self) -> float:
        """Lower end of the range that holds the score with a probability of 95 %."""

    @property
    def upper(self) -> float:
        """Upper end of this range."""

    @property
    def z(self) -> float:
        """The difference, in standard errors."""

    @property
    def p(self) -> float:
        """The probability of a difference at least as large."""

    def smallest_found(self, level: float, /) -> float:
        """Return the difference that is found four times in five at a level of p."""


NO_VALUE = "it has no value on some samples"
"""Beginning of the reason where a score has a value, but samples of fewer rows have none."""


@dataclass(frozen=True)
class ExpectedScore:
    """Where a score is expected, and at which size.

    Attributes
    ----------
    rows : int
        Number of rows at which it is compared.
    expectation : Expectation
        The score and its range.
    """

    rows: int
    expectation: Expectation


@dataclass(frozen=True)
class CountedBetween:
    """A share of rows in a job, and where it is expected from the rows of another job.

    Attributes
    ----------
    of, score, label
        Which score it is.
    expected : ExpectedScore
        What was found, and where it is expected.
    reason : str
        Why it isn't judged; empty if it is.
    """

    of: Literal["corpus", "pair"]
    score: str
    expected: ExpectedScore
    label: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Findings:
    """What a measure contributes to the results.

    Attributes
    ----------
    section : Part or None
        Its part of ``measures``, in the measure's model; None requires a reason.
    scores : tuple of Score
        Its rows of ``scores``.
    arrays : mapping
        Paths of its arrays in the job's folder, by name.
    reason : str, optional
        Why the section is None.
    remark : str, optional
        A sentence for a verdict on the corpus and its reference, as on what wasn't compared.
    explained : mapping
        A sentence on each of its scores that is for a verdict by which this score differs, by their
        place among these.
    corpora : mapping
        What it adds to the description of each corpus, by role.
    expected : mapping
        Where the measure itself expects its scores, by their place among these.
    curve : pair of sequences of float, optional
        Places and values of a curve of the corpus, of which the report shows what chance makes. The
        section then has a field ``chance``.
    """

    section: Part | None
    scores: tuple[Score, ...] = ()
    arrays: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None
    remark: str | None = None
    explained: Mapping[int, str] = field(default_factory=dict)
    corpora: Mapping[Role, Mapping[str, Any]] = field(default_factory=dict)
    expected: Mapping[int, ExpectedScore | str] = field(default_factory=dict)
    curve: tuple[Sequence[float], Sequence[float]] | None = None


def _as_they_are(values: NDArray[Any]) -> NDArray[Any]:
    return values


@dataclass(frozen=True)
class RowColumn:
    """What a measure knows of every row of a corpus, from arrays of a finished job.

    Attributes
    ----------
    name : str
        The column.
    arrays : tuple of str
        Names of the arrays that it is made of, with one value for every row.
    make : callable
        Returns the values of some rows from those of the arrays: numbers, or true and false. By
        default they are those of the only array. A function of a module, so that it can be pickled.
    row_of : str
        The corpus that the values are rows of, -1 for none; empty if they aren't rows.
    rows : str
        Name of the array with the rows, ascending, if the arrays haven't all of them.
    elsewhere_none : bool
        Whether the value of all other rows is known to be none.
    """

    name: str
    arrays: tuple[str, ...]
    make: Callable[..., NDArray[Any]] = _as_they_are
    row_of: Role | Literal[""] = ""
    rows: str = ""
    elsewhere_none: bool = False


@dataclass(frozen=True)
class RowFilter:
    """Rows that people look for.

    Attributes
    ----------
    of : str
        The corpus that they are rows of.
    score : str
        The score of the measure that counts them.
    where : str
        The condition that they meet, on columns.
    part_of : str
        The filter that also has all of these rows, and others.
    sort : str
        The column that they are sorted by, with ``:desc`` for descending; empty for row order.
    columns : tuple of str
        The columns to show.
    title : str
        What the rows are, as a heading.
    other, distance : str
        The columns with the other row that says why, and with the distance to it.
    stays : str
        The column with the row of the same corpus that stays in place of each, if one does.
    said : str
        What is said of a row, with ``{other}`` for the other one.
    said_if_equal : str
        The same of a row at distance 0, if it is something else.
    apart : bool
        Whether the rows are unlike all others, and so raise scores of diversity.
    """

    of: Role
    score: str
    where: str
    sort: str = ""
    columns: tuple[str, ...] = ()
    title: str = ""
    other: str = ""
    distance: str = ""
    part_of: str = ""
    stays: str = ""
    said: str = "near {other}"
    said_if_equal: str = ""
    apart: bool = False


class Results(Protocol):
    """Returns the stored result of a finished stage."""

    def __call__(self, name: str, /) -> Artifact:
        """Return the result of the stage with this name."""


class MeasureReport:
    """The part of the report about one measure. A method that isn't overridden adds nothing.

    A measure without a title is shown with its scores alone. ``found`` is the measure's part of the
    results, in its own model.

    Attributes
    ----------
    title, question, source : str
        Heading of its section, the question that it answers, and the papers that define it.
    scores : mapping
        Its scores, as the measure declares them.
    dependent : tuple of str
        Its scores that show that corpus and reference aren't independent samples.
    of_labels : bool
        Whether its scores are of single labels, and headlines nevertheless.
    main : str
        The score that says most of it; empty for its first headline score.
    replicated : str
        Names the scores whose sampling error ``replicates`` measures; empty for none.
    group : str
        What its scores are about, one of :data:`GROUPS`.
    sorted_by : str
        The column that shows the rows to look at first, with ``:desc`` for descending; empty if it
        has none, or filters show them.
    judged : bool
        Whether a verdict is about its headline scores. Those that only describe aren't.
    """

    title: ClassVar[str] = ""
    question: ClassVar[str] = ""
    source: ClassVar[str] = ""
    scores: ClassVar[Mapping[str, ScoreDefinition]] = {}
    dependent: ClassVar[tuple[str, ...]] = ()
    of_labels: ClassVar[bool] = False
    main: ClassVar[str] = ""
    replicated: ClassVar[str] = ""
    group: ClassVar[str] = ""
    sorted_by: ClassVar[str] = ""
    judged: ClassVar[bool] = True

    def is_headline(self, score: Score) -> bool:
        """Return whether a score of a whole corpus stands in summaries."""
        return score.score in self.scores and self.scores[score.score].headline

    def said_of_own_scale(self, score: Score, settings: Mapping[str, Any]) -> str:
        """Return what a verdict on two jobs says of a score up to a scale of each corpus.

        It is empty for other scores. Such a score doesn't tell which corpus is more diverse.
        """
        return ""

    def is_judged(self, score: Score) -> bool:
        """Return whether a verdict is about a headline score, if its expected range is known."""
        return self.judged

    def are_exceptions(self, found: Any, score: str) -> bool:
        """Return whether the rows that a score counts are exceptions, and may be left out."""
        return True

    def figures(self, found: Any, results: model.Results) -> list[Figure]:
        """Draw the findings of one job, whose results have its scores."""
        return []

    def overlays(self, found: Sequence[tuple[Style, Any]]) -> list[Figure]:
        """Draw the findings of several jobs in the same figures."""
        return []

    def notes(self, found: Any) -> list[str]:
        """Return notes that help to read the numbers, in whole sentences."""
        return []

    def caveats(self, found: Any, results: model.Results) -> list[str]:
        """Return what no reader of its headline scores should overlook, in a line each."""
        return []

    def tables(self, found: Any) -> list[Table]:
        """Return further tables."""
        return []

    def methods(self, found: Any) -> list[tuple[str, str]]:
        """Return how the numbers were computed, as pairs of a term and a text."""
        return []


class Measure(ABC):
    """A measure, as planning, results, comparison, report and history see it.

    Methods import numerical modules only when they are called, so reading results and printing help
    don't wait for them.

    Attributes
    ----------
    section : type
        Its section of the configuration, which also says whether it runs by default, needs a
        reference, and needs equal dimensions.
    always : bool
        Whether it is part of every job, without settings where a job doesn't name it.
    results : type or None
        The model of its part of the results. A measure without one has only scores.
    report : MeasureReport
        Its part of the report.
    row_filters : mapping
        Rows that people look for, by name.
    finds_neighbours : bool
        Whether it stores the neighbours of every row, as arrays ``NAME/ROLE/neighbours`` with
        positions and ``NAME/ROLE/distances``; or, in blocks, ``NAME/ROLE/neighbours/BLOCK`` and so
        on, in the order of the rows ``NAME/ROLE/rows/BLOCK``.
    error_rows : int
        Fewest rows of a corpus whose scores have sampling errors, if that is more than one.
    without_error : collection of str
        Scores that have none with any number of rows.
    """

    section: ClassVar[type[Section]]
    always: ClassVar[bool] = False
    results: ClassVar[type[Part] | None] = None
    report: ClassVar[MeasureReport] = MeasureReport()
    row_filters: ClassVar[Mapping[str, RowFilter]] = {}
    finds_neighbours: ClassVar[bool] = False
    error_rows: ClassVar[int] = 1
    without_error: ClassVar[Collection[str]] = ()

    def needs_directions(self, name: str, section: Any) -> str:
        """Return the setting that needs the direction of every row; empty if none does."""
        return f"{name}.metric cosine" if getattr(section, "metric", "") == "cosine" else ""

    @abstractmethod
    def plan(self, section: Any, facts: JobFacts) -> list[Stage]:
        """Return its stages, each after those it needs.

        Raises
        ------
        BadInput
            If the settings don't fit the corpora or the budget.
        """

    @abstractmethod
    def collect(self, section: Any, facts: JobFacts, results: Results) -> Findings:
        """Return what its finished stages found."""

    def name_representatives(
        self,
        section: Any,
        findings: Findings,
        results: Results,
        corpora: Mapping[Role, Corpus],
    ) -> Findings:
        """Add the rows that represent the findings, by number and id."""
        return findings

    def mark_rows(
        self,
        found: Any,
        corpora: Mapping[Role, Corpus],
        rows: Sequence[model.RowsToLookAt],
    ) -> Any:
        """Return its part of the results with the rows to look at, which all measures know."""
        return found

    def reads(self, section: Any, facts: JobFacts) -> set[str]:
        """Return which of ``weights`` and ``labels`` its scores depend on."""
        return {name for name in ("weights", "labels") if getattr(section, name, False)}

    def why_not_computed(self, section: Any, facts: JobFacts) -> str:
        """Return why it computes nothing of these corpora; empty if it computes something."""
        return ""

    def section_of_sample(self, section: Any) -> Any:
        """Return the settings for samples, without what gives no score or needs many rows.

        None if the measure itself says where its scores are expected.
        """
        return section

    def expects(self, section: Any, facts: JobFacts) -> bool:
        """Return whether it may itself say where scores are expected, without samples."""
        return False

    def section_of_label(self, section: Any) -> Any:
        """Return the settings for the rows of a label, of which scores alone are collected.

        None if it isn't measured by label.
        """
        return section

    def counts_between(
        self,
        found: Any,
        usual: Any,
        rows: int,
        usual_rows: int,
        labels: Collection[str] | None = (),
    ) -> Iterator[CountedBetween]:
        """Yield its shares of rows, and where those of another job's corpus put them.

        Parameters
        ----------
        found, usual : Part
            Its parts of the results of both jobs. The second may be None where labels are asked
            for: the reference of the same job is then the other corpus.
        rows, usual_rows : int
            Rows of both corpora.
        labels : collection of str or None
            Labels whose shares are asked for, and nothing else; each is then judged alone. With
            None, those of all labels of enough rows, each judged among all. Without any, the shares
            that a comparison shows.
        """
        yield from ()

    def row_columns(self, found: Any, role: Role) -> Sequence[RowColumn]:
        """Return what it knows of every row of a corpus, from its part of the results."""
        return ()

    def scales(self, found: Any) -> Iterator[tuple[str, float]]:
        """Yield the scales at which its numbers were computed, with their display names.

        Two jobs are comparable if these agree.
        """
        yield from ()

    def selectable(self, section: Any) -> Mapping[str, Sequence[str]]:
        """Return the kernels and orders of its scores, as far as settings alone decide them."""
        return {}

    def depends_on(self, score: Score, scale: str) -> bool:
        """Return whether a score depends on a scale, by its display name."""
        return True

    def has_scale(self, score: Score) -> bool:
        """Return whether a score may be in units of a scale, which comes from the reference."""
        return (score.kernel or "").endswith("median")

    def spans_models(self, score: Score) -> bool:
        """Return whether a score can be compared between rows of different models.

        Distances of two models can't be, so most scores can't.
        """
        return False

    def deciding_settings(self, settings: Mapping[str, Any], score: Score) -> Mapping[str, Any]:
        """Return what of the settings of its section, or of some of them, decides a score."""
        return settings

    def counts_weights(
        self, settings: Mapping[str, Any], weighted: bool | None, score: Score
    ) -> bool | None:
        """Return whether a score counts the rows of a corpus by their weights.

        Parameters
        ----------
        settings : mapping
            The settings of its section.
        weighted : bool or None
            Whether rows of the corpus have weights; None, which is returned, if that isn't known.
        score : Score
            The score.
        """
        decides = settings.get("weights") and self.deciding_settings({"weights": True}, score)
        return weighted if decides else False

    def rows_of(self, found: Any, score: Score) -> int | None:
        """Return of how many rows, or pairs of them, a score is; None for all rows."""
        return None

    def read_scales(self, section: Any, settings: Any, found: Any) -> Mapping[str, float | None]:
        """Return the scales that a job needs from a finished one.

        Parameters
        ----------
        section : Section
            The settings of the job that needs them.
        settings : mapping or None
            The settings of the finished job, as JSON; None if there are none.
        found : Part or None
            What the finished job found.

        Returns
        -------
        mapping
            By name; None for a scale that the finished job derived under other settings.
        """
        return {}


def plan_measure(name: str, measure: Measure, section: Any, facts: JobFacts) -> list[Stage]:
    """Plan a measure.

    Raises
    ------
    BadInput
        If the measure or its settings don't fit the corpora.
    """
    dimensions = [corpus.d for corpus in facts.corpora.values()]
    if measure.section.equal_dimensions and len(set(dimensions)) > 1:
        raise BadInput(
            f"measures.{name} needs equal dimensions; the corpus has {dimensions[0]} and the "
            f"reference {dimensions[1]}; leave it out of measures"
        )
    user = measure.needs_directions(name, section)
    for role, corpus in facts.corpora.items():
        if user and corpus.zero_rows:
            raise BadInput(
                f"{role}: {corpus.zero_rows:,} of {corpus.n:,} rows are zero, and {user} needs "
                "their direction; leave such rows out (of an array rows[rows.any(axis=1)], of "
                "files --on-invalid drop-zero of ingest or run), or choose another metric or kernel"
            )
    return measure.plan(section, facts)


def store_estimate(estimate: Estimate) -> dict[str, Any]:
    """Convert an estimate to JSON values."""
    return asdict(estimate)


def store_scored(found: Scored) -> dict[str, Any]:
    """Convert a score to JSON values: ``estimate`` and ``sampling_error``."""
    return asdict(found)


def load_scored(values: Mapping[str, Any] | None) -> Scored | None:
    """Convert JSON values to a score; None if there are none, or these have no estimate."""
    if not values or not values.get("estimate"):
        return None
    return Scored(load_estimate(values["estimate"]), values["sampling_error"])


def load_estimate(values: Mapping[str, Any]) -> Estimate:
    """Convert JSON values to an estimate."""
    return Estimate(**values)
