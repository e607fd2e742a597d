"""The hook of a measure: what each provides, so that a new one appears everywhere by itself.

A measure is a section of the configuration, a plan (its stages, as data), a way to collect what its
stages found, the scales that make two jobs comparable, and what the report says of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from latentscale.estimate import Estimate
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.results import model
from latentscale_pipeline.results.model import Score as Score
from latentscale_pipeline.results.part import Part
from latentscale_pipeline.results.part import Role as Role
from latentscale_pipeline.storage.artifacts import Artifact
from latentscale_pipeline.views.content import Fact, Figure, Table
from latentscale_pipeline.views.drawing import Style
from latentscale_pipeline.views.glossary import Definition

Topic = Literal["diversity", "coverage", "difference"]
"""What a conclusion of a report may be about."""

TILE_BYTES = 64 * 2**20
"""Allowance for the distance tiles that a task holds at once."""

FEW_TILES_BYTES = 32 * 2**20
"""The same for tasks that hold two or three tiles of 8 MiB, and what goes with them."""

CONVERSION_OPERATIONS = 2
"""Elementwise operations to turn a stored coordinate into float64."""

UNIT_OPERATIONS = 6
"""Elementwise operations to turn a stored coordinate into one of a unit row."""

RESULT_BYTES = 1024
"""About what a part's marker takes."""


def write_pairs(pairs: float) -> str:
    """Write a number of row pairs as a configuration takes it, rounded up: ``4.1e+12``."""
    exponent = math.floor(math.log10(pairs))
    return f"{math.ceil(pairs / 10 ** (exponent - 1)) / 10:.1f}e+{exponent:02d}"


@dataclass(frozen=True)
class CorpusFacts:
    """What a plan may depend on: the size of a corpus, never its place.

    ``weights`` and ``labels`` are checksums of what the corpus has beside its vectors, None where
    it has none; ``shard_prints`` tell shards apart by their rows, empty where that isn't known.
    """

    n: int
    d: int
    dtype: str
    shards: int
    shard_rows: int
    zero_rows: int = 0
    weights: str | None = None
    labels: str | None = None
    shard_prints: tuple[str, ...] = ()

    def runs_of_shards(self, length: int, *beside: object) -> tuple[str, ...]:
        """Say what runs of so many shards hold, and what else decides what is made of them."""
        common = " ".join(map(str, (self.dtype, self.d, *beside)))
        return tuple(
            f"{common}: {' '.join(self.shard_prints[first : first + length])}"
            for first in range(0, len(self.shard_prints), length)
        )

    @property
    def points_bytes(self) -> int:
        """Memory of all rows as float64 points, made from a copy in the stored type."""
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
    """What the plan of a measure is made from.

    Attributes
    ----------
    corpora : mapping
        Facts by role, ``corpus`` first.
    seed : int
        The job's seed.
    pairs : float
        Row pairs that a measure may evaluate on one corpus.
    scale_role : str
        Which corpus bandwidth, epsilon and cut-off scale are taken from.
    fixed_scales : mapping
        Scales that come from a finished job instead, by name.
    label_rows : mapping
        Rows of every label of the corpus, when each is measured.
    replicates : int
        How often measures are repeated: on random subsamples, or under random orders; 1 for none.
    replicate_rows : int or None
        Rows of a subsample; None where there are only orders.
    """

    corpora: Mapping[Role, CorpusFacts]
    seed: int
    pairs: float
    scale_role: Role
    fixed_scales: Mapping[str, float] = field(default_factory=dict)
    label_rows: Mapping[str, int] = field(default_factory=dict)
    replicates: int = 1
    replicate_rows: int | None = None


@dataclass(frozen=True)
class Findings:
    """What a measure contributes to the results.

    Attributes
    ----------
    section : Part or None
        Its part of ``measures``, in the model that the measure names; None needs a reason.
    scores : tuple of Score
        Its rows of ``scores``.
    arrays : mapping
        Paths of its arrays in the job's folder, by name.
    reason : str, optional
        Why there is no section.
    corpora : mapping
        What it adds to the description of each corpus, by role.
    """

    section: Part | None
    scores: tuple[Score, ...] = ()
    arrays: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None
    corpora: Mapping[Role, Mapping[str, Any]] = field(default_factory=dict)


class Results(Protocol):
    """Gives the published result of a stage that is done."""

    def __call__(self, name: str, /) -> Artifact:
        """Return a stage's result by the stage's name."""


class MeasureReport:
    """What the report says of a measure; a method that isn't overridden adds nothing.

    A measure without a title is shown with its scores alone. ``found`` is the measure's part of the
    results, in its own model.

    Attributes
    ----------
    title, question, source : str
        Heading of its section, the question that it answers, and the papers that define it.
    scores : mapping
        The glossary: what each of its scores is called and means.
    compared : tuple of str
        Its scores of the pair that say how the corpus compares with the reference.
    replicated : str
        Scores whose sampling error the job's ``replicates`` measure, in words; empty for none.
    precedence : int
        Where several measures answer one question of the opening, higher ones come first.
    """

    title: ClassVar[str] = ""
    question: ClassVar[str] = ""
    source: ClassVar[str] = ""
    scores: ClassVar[Mapping[str, Definition]] = {}
    compared: ClassVar[tuple[str, ...]] = ()
    replicated: ClassVar[str] = ""
    precedence: ClassVar[int] = 0

    def figures(self, found: Any, corpora: Mapping[Role, model.Corpus]) -> list[Figure]:
        """Draw what it found in one job."""
        return []

    def overlays(self, found: Sequence[tuple[Style, Any]]) -> list[Figure]:
        """Draw what it found of the corpora of several jobs over each other."""
        return []

    def notes(self, found: Any) -> list[str]:
        """Return notes that a reader needs to understand the numbers, in whole sentences."""
        return []

    def tables(self, found: Any) -> list[Table]:
        """Return tables beside that of the scores."""
        return []

    def methods(self, found: Any) -> list[tuple[str, str]]:
        """Return how its numbers were computed, as pairs of a term and a text."""
        return []

    def conclusions(self, scores: Sequence[Score]) -> Mapping[Topic, str]:
        """Return a sentence on each topic that it has one on, from all scores of the job."""
        return {}

    def diversity(self, results: model.Results) -> list[Fact]:
        """Answer how diverse the corpus is."""
        return []

    def certainty(self, found: Any) -> str:
        """Return what the brackets don't show about the certainty of the numbers."""
        return ""


class Measure(ABC):
    """How a measure takes part in a job, and in all that is said of finished jobs.

    Methods import the modules that compute when they are called, so that reading results, and
    asking for help, doesn't wait for numerical libraries.

    Attributes
    ----------
    section : type or None
        Its section of the configuration, which also says whether it is taken by default, needs a
        reference, and needs equal dimensions; a measure without one is part of every job.
    results : type or None
        The model of its part of the results; a measure without one has scores alone.
    report : MeasureReport
        What the report says of it.
    """

    section: ClassVar[type[Section] | None]
    results: ClassVar[type[Part] | None] = None
    report: ClassVar[MeasureReport] = MeasureReport()

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
        """Name rows that stand for what was found, by number and id."""
        return findings

    def row_columns(self, section: Any, facts: JobFacts, results: Results) -> Mapping[str, str]:
        """Return paths of the arrays that hold a value for each row, by the column's name."""
        return {}

    def sampling_errors(
        self, section: Any, facts: JobFacts, results: Results
    ) -> Mapping[str, float]:
        """Return standard errors over fresh samples of the same size, by the score's name."""
        return {}

    def scales(self, found: Any) -> Iterator[tuple[str, float]]:
        """Yield the scales that its numbers were taken at, by what people call them.

        Two jobs are comparable where these agree.
        """
        yield from ()

    def read_scales(self, section: Any, settings: Any, found: Any) -> Mapping[str, float | None]:
        """Return the scales that a job needs from a finished one.

        Parameters
        ----------
        section : Section
            The settings of the job that needs them.
        settings : mapping or None
            The settings of the finished job, as JSON; None where it has none.
        found : Part or None
            What the finished job found.

        Returns
        -------
        mapping
            By name; None for one that the finished job didn't derive under the same settings.
        """
        return {}


def plan_measure(name: str, measure: Measure, section: Any, facts: JobFacts) -> list[Stage]:
    """Return the stages of a measure, if it fits the corpora.

    Raises
    ------
    BadInput
        If it doesn't, or its settings don't.
    """
    dimensions = [corpus.d for corpus in facts.corpora.values()]
    if measure.section and measure.section.equal_dimensions and len(set(dimensions)) > 1:
        raise BadInput(
            f"measures.{name} needs equal dimensions; the corpus has {dimensions[0]} and the "
            f"reference {dimensions[1]}; leave it out of measures"
        )
    user = measure.needs_directions(name, section)
    for role, corpus in facts.corpora.items():
        if user and corpus.zero_rows:
            raise BadInput(
                f"{role}: {corpus.zero_rows} rows are zero and {user} needs their direction; "
                "remove these rows, or choose another metric or kernel"
            )
    return measure.plan(section, facts)


def store_estimate(estimate: Estimate) -> dict[str, Any]:
    """Turn an estimate into a stage's JSON values."""
    return asdict(estimate)


def load_estimate(values: Mapping[str, Any]) -> Estimate:
    """Turn a stage's JSON values back into an estimate."""
    return Estimate(**values)
