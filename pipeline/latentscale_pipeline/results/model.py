"""The model of ``results.json``, which all readers and writers of results use.

Each measure has a model of its own part of ``measures``. Parts of unknown measures, or of another
version's form, are kept as plain JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, NonNegativeFloat, WithJsonSchema, model_validator
from pydantic.config import JsonDict

from latentscale_pipeline.results.part import (
    Absent,
    BoundsOrNull,
    Count,
    Expected,
    Part,
    Positive,
    Reason,
    Role,
    Share,
    Text,
)

ErrorMethod = Literal["jackknife", "counts", "samples"]
"""Where a sampling error comes from: leaving out rows or groups of them, the number of rows that
were counted, or random samples of fewer rows.
"""

SHARE_OF_ROWS = "share of rows"
"""The unit of scores that count rows."""

RESULTS_SCHEMA = "latentscale.results/1"
"""The value of ``schema`` that this version writes."""

ROLES: Mapping[str, tuple[Role, ...]] = {
    "corpus": ("corpus",),
    "reference": ("reference",),
    "pair": ("corpus", "reference"),
}
"""The corpora that a score depends on, by its ``of``."""

_BRACKETED: JsonDict = {
    "if": {"properties": {"value": {"type": "null"}}, "required": ["value"]},
    "then": {"required": ["reason"]},
    "else": {
        "properties": {
            "lower": {"type": "number"},
            "upper": {"type": "number"},
            "bounds": {"$ref": "#/$defs/bounds"},
        }
    },
}

_Method = Annotated[str, WithJsonSchema({"enum": [*get_args(ErrorMethod)]})]


class ExpectedRange(Part):
    """Where a score is expected if the rows of the corpus come from the source of the reference.

    All samples have the same number of rows, so scores that grow with the rows compare.
    """

    rows: Positive
    """Rows of a sample; `found` and the range are scores of samples of this size."""
    found: float
    """Mean score over random samples of the corpus."""
    centre: float
    """Mean score over samples of the reference in their place."""
    lower: float
    """Lower end of the range that holds `found` with a probability of 95 %, around `centre`; ends
    beyond the score's limits are cut.
    """
    upper: float
    """Upper end of this range."""
    z: float
    """Difference between `found` and `centre`, in standard errors."""
    p: Share
    """Probability of a difference at least as large, on both sides."""
    p_adjusted: Absent[Share] = None
    """The same, adjusted for the number of headline scores by Holm's method."""
    smallest_found: NonNegativeFloat
    """Difference that would be found four times in five, at the level of the adjusted p-values."""


class CurveRange(Part):
    """Where a curve is expected if the rows of the corpus come from the source of the reference.

    The ranges hold at each place alone.
    """

    rows: Positive
    """Rows of a sample."""
    x: list[float]
    """Places of the curve."""
    found: list[float]
    """Mean values over random samples of the corpus."""
    centre: list[float]
    """Mean values over samples of the reference in their place."""
    lower: list[float]
    """Lower ends of the ranges that hold `found` with a probability of 95 %, at each place."""
    upper: list[float]
    """Upper ends of these ranges."""


class SampledScore(Part):
    """A score on random samples of the corpus, by which jobs are compared."""

    rows: Positive
    """Rows of a sample."""
    mean: float
    """Mean score over the samples."""
    variance: NonNegativeFloat
    """Variance of the score on one sample, over fresh samples from the same source."""
    share: Annotated[float, Field(gt=0.0, le=1.0)]
    """Variance of the mean over fresh corpora, in units of `variance`."""
    freedom: Positive
    """Degrees of freedom of the variance."""


class Score(Part):
    """One row of ``scores``: a number of a measure, with its bracket.

    A score is treated as dependent on the number of rows, unless its measure declares that it can
    be compared between corpora of different sizes (``size_dependent=False``).
    """

    model_config = ConfigDict(json_schema_extra=_BRACKETED)

    measure: Text
    """Name of the measure."""
    of: Literal["corpus", "reference", "pair"]
    """Whether the score describes the corpus, the reference, or both together."""
    score: Text
    """Name of the score."""
    value: float | None
    """The number; null if it could not be computed."""
    lower: float | None = None
    """Lower end of the bracket."""
    upper: float | None = None
    """Upper end of the bracket."""
    bounds: BoundsOrNull = None
    """What the bracket promises."""
    unit: str = ""
    """Unit of the number."""
    better: Annotated[str, WithJsonSchema({"enum": ["high", "low", "none"]})] = "none"
    """Whether high or low values are better, or neither."""
    kernel: Absent[str] = None
    """Kernel, if the score has one."""
    order: Absent[str] = None
    """Order, if the score has one; `inf` for infinity."""
    label: Absent[str] = None
    """Label whose rows were measured."""
    rows: Absent[Positive] = None
    """Number of rows with this label, if only these were measured."""
    scale: Absent[float] = None
    """Scale, if the score has one."""
    reason: Absent[Reason] = None
    sampling_error: NonNegativeFloat | None = None
    """Standard error over new samples from the same source; null if unknown."""
    sampling_method: Absent[_Method] = None
    """Where it comes from: leaving out rows or groups of them, the number of rows that were
    counted, or random samples of fewer rows.
    """
    sampling_freedom: Absent[Positive] = None
    """Its degrees of freedom, or the fewest that it may have; absent if they aren't known."""
    sampling_error_reason: Absent[Text] = None
    """Why it isn't known."""
    size_dependent: Absent[bool] = True
    """Whether the score depends on the number of rows; true if absent."""
    share_of: Absent[Positive] = None
    """Rows that a share is of, if these aren't all of the corpus or reference that is described."""
    expected: Absent[ExpectedRange] = None
    """Where the score is expected by chance alone, in a job with a reference."""
    expected_reason: Absent[Text] = None
    """Why that isn't known."""
    samples: Absent[list[SampledScore]] = None
    """The score on random samples of the corpus and, for the pair, of the reference; samples of two
    sizes, if there are rows enough.
    """

    def flat(self) -> dict[str, Any]:
        """Return one mapping of all fields.

        Those of ``expected`` have its name before them; ``samples`` are JSON.
        """
        own = {name: getattr(self, name) for name in Score.model_fields if name != "expected"}
        if self.samples is not None:
            own["samples"] = json.dumps([each.document() for each in self.samples])
        usual = dict.fromkeys(ExpectedRange.model_fields)
        usual |= self.expected.document() if self.expected else {}
        return own | {f"expected_{name}": value for name, value in usual.items()}

    @classmethod
    def unflatten(cls, columns: Mapping[str, Any]) -> Score:
        """Return the score of which :meth:`flat` made these columns; some may be missing."""
        own = {name: columns[name] for name in Score.model_fields if name in columns}
        if own.get("samples"):
            own["samples"] = json.loads(own["samples"])
        usual = {name: columns.get(f"expected_{name}") for name in ExpectedRange.model_fields}
        own["expected"] = {name: value for name, value in usual.items() if value is not None}
        return cls(**{name: value for name, value in own.items() if name != "expected" or value})

    @model_validator(mode="after")
    def _bracketed(self) -> Score:
        if self.value is not None:
            if self.lower is None or self.upper is None:
                raise ValueError("a value needs its bracket, lower and upper")
            if self.lower > self.upper:
                raise ValueError("lower is above upper")
        return self


class Corpus(Part):
    """One measured corpus."""

    explained = ("duplicates",)

    uri: Expected[str] = None
    """Path or URL, without user info and query string."""
    source: Absent[str] = None
    """Path or URL that it was ingested from; of several the first, and how many more."""
    n: Positive
    """Number of rows."""
    d: Expected[Positive] = None
    """Number of dimensions."""
    dtype: Expected[Annotated[str, WithJsonSchema({"enum": ["float16", "float32"]})]] = None
    """Type that the vectors are stored in."""
    fingerprint: Text
    """Hash of the vectors, independent of the source's format."""
    weighted: Absent[bool] = None
    """Whether its rows have weights."""
    weights_fingerprint: Absent[Text] = None
    """Hash of the weights' values; absent without weights."""
    labels_fingerprint: Absent[Text] = None
    """Hash of the rows' labels; absent without labels."""
    duplicates: Count | None = None
    """Number of rows that repeat an earlier one."""
    duplicates_reason: Absent[Reason] = None
    excluded_shards: Absent[Annotated[list[str], Field(min_length=1)]] = None
    """Shards whose rows were left out of n and of all results."""
    excluded_rows: Absent[Positive] = None
    """Number of rows in those shards."""
    dropped_rows: Absent[Positive] = None
    """Number of rows of its sources that were left out: with NaN, infinity or too large values."""

    @property
    def known_as(self) -> str:
        """Its location, or its source if a job ingested it and named it by a hash."""
        named_by_hash = re.search(r"/corpora/[0-9a-f]{32}\.zarr$", self.uri or "")
        return (self.source if named_by_hash else None) or self.uri or ""

    @property
    def left_out(self) -> int:
        """Number of rows of its sources that nothing was computed from."""
        return (self.excluded_rows or 0) + (self.dropped_rows or 0)


class Corpora(Part):
    """The corpora of a job."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    reference: Corpus | None = None
    """The corpus that it was compared with; null without one."""
    corpus: Expected[Corpus] = None
    """The corpus under evaluation."""

    def by_role(self) -> dict[Role, Corpus]:
        """Return the corpora of the job by role."""
        both: dict[Role, Corpus | None] = {"corpus": self.corpus, "reference": self.reference}
        return {role: corpus for role, corpus in both.items() if corpus is not None}


class Job(Part):
    """What identifies a job."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    id: str
    """Name of the job's folder."""
    name: str
    """Name of the job, as configured."""
    config_hash: Expected[Annotated[str, Field(pattern="^[0-9a-f]{8,}$")]] = None
    """Hash of everything that determines the results."""
    seed: Expected[Count] = None
    """Random seed, as configured."""
    version: str = ""
    """Version of latentscale."""
    started: str | None = None
    """Start of the first run, in UTC."""
    finished: str | None = None
    """Time at which the results were written, in UTC."""
    cluster: Expected[dict[str, Any]] = None
    """Section `cluster` of the configuration; `auto` is replaced by what was chosen."""
    provenance: Absent[str] = None
    """Path of the file with versions, machine, sources and commands, relative to the job's folder.
    """


class Timing(Part):
    """Time and memory of one stage."""

    stage: Expected[str] = None
    """Name of the stage."""
    seconds: Annotated[float, Field(ge=0)]
    """Total time of its tasks."""
    tasks: Expected[Count] = None
    """Number of tasks."""
    peak_memory_bytes: Count | None = None
    """Peak resident memory of a process while it ran one of the tasks, including the idle worker
    and other tasks in the process.
    """
    tasks_at_once: Absent[Positive] = None
    """Largest number of tasks that ran in a process at the same time as one of these; above 1, the
    peak memory includes all of them.
    """
    projected_memory_bytes: Absent[Count] = None
    """Projected memory of a process that runs one of the tasks: idle worker and task arrays."""
    resumed: Expected[bool] = None
    """Whether parts of an earlier run were used."""
    reason: str | None = None
    """What was computed again and why, or which job it was reused from; null otherwise."""


class Labels(Part):
    """The labels that were measured separately."""

    measured: dict[str, Positive]
    """Number of rows of every measured label."""
    left_out: dict[str, Count]
    """Number of rows of every label with too few rows."""
    least_rows: Positive
    """Number of rows that a label needs to be measured."""
    scales: Absent[dict[str, dict[str, dict[str, float]]]] = None
    """Scales at which the rows of a label were measured, by its text, measure and name."""


class Verdict(Part):
    """Whether the corpus differs from the reference by more than chance."""

    value: Annotated[
        str | None,
        WithJsonSchema({"enum": ["no_difference_found", "differs", "cannot_tell", None]}),
    ]
    """`differs` if any adjusted p is at most 0.05; else `cannot_tell` if the expected range of a
    headline score isn't known; null if nothing was compared, or rows are paired.
    """
    reason: Text
    """The strongest evidence, or why nothing was compared, in a sentence."""
    also: Absent[Text] = None
    """What else is outside of what is expected, or which differences would have been found."""
    compared: Count = 0
    """Number of headline scores with an expected range."""


class RowToLookAt(Part):
    """A row, and the other one that says why."""

    row: Count
    """Number of the row in its corpus."""
    id: Absent[str] = None
    """Its id, if the corpus has ids."""
    label: Absent[str] = None
    """Its label, if the corpus has labels."""
    other: Absent[Count] = None
    """Number of the other row, if its corpus has no ids."""
    other_id: Absent[str] = None
    """Id of the other row, if its corpus has ids."""
    distance: Absent[NonNegativeFloat] = None
    """Distance of the two; absent if they are equal."""
    stays: Absent[Count] = None
    """Number of the row that stays in its place if it isn't the other one; absent with ids."""
    stays_id: Absent[str] = None
    """Id of this row, if the corpus has ids."""
    text: Absent[str] = None
    """The beginning of its text, if the corpus has texts."""
    other_text: Absent[str] = None
    """The beginning of the text of the other row, if its corpus has texts."""


class LabelToLookAt(Part):
    """A label that more rows to look at have than chance explains."""

    label: Text
    """The label."""
    count: Positive
    """Number of its rows that are to be looked at."""
    rows: Positive
    """Number of its rows that were looked at."""


class RowsToLookAt(Part):
    """The most extreme of the rows that meet a condition."""

    reason: Text
    """Name of the condition, as in `latentscale rows --only`."""
    of: Role
    """The corpus that they are rows of."""
    count: Count
    """Number of rows that meet it."""
    labels: Absent[list[LabelToLookAt]] = None
    """The labels, at most 10, that more of them have than if they were random rows (p < 0.05,
    corrected for all labels), the largest excess first; absent if there is none.
    """
    rows: list[RowToLookAt]
    """At most 50 of them, the most extreme first."""


class Results(Part):
    """The results of a job.

    A measure that the job doesn't include is absent. A number that could not be computed is null,
    with a reason beside it. NaN and infinity never appear.
    """

    kind: Literal["latentscale.results/1"] = Field(default="latentscale.results/1", alias="schema")
    """Name and version of this schema."""
    job: Job
    """The job."""
    corpora: Corpora
    """The measured corpora."""
    verdict: Absent[Verdict] = None
    """Whether the corpus differs from the reference; absent in results of earlier versions."""
    scores: list[Score]
    """All scores, one in each row. Tools should read this list."""
    measures: dict[str, Any] = Field(default_factory=dict)
    """One entry for each measure; null if it could not be computed, with <name>_reason."""
    arrays: dict[str, str] = Field(default_factory=dict)
    """Paths of stored arrays by name, relative to the job folder."""
    rows: Absent[list[RowsToLookAt]] = None
    """Rows to look at, by reason; absent if the job knows no rows."""
    timings: list[Timing] = Field(default_factory=list)
    """Time and memory of each stage."""

    def part(self, measure: str) -> Any:
        """Return the part of a measure, or None if it is absent, null or of an unknown form."""
        found = self.measures.get(measure)
        return found if isinstance(found, Part) else None

    def dump(self) -> bytes:
        """Return the content of ``results.json``; NaN and infinity raise an error."""
        return (json.dumps(self.document(), indent=1, allow_nan=False) + "\n").encode()
