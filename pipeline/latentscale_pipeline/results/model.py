"""The results of a job: what measures find, what ``results.json`` holds, what everything reads.

A measure describes its own part of ``measures`` in a model beside it. What isn't such a part, from
a measure or of a form that this version doesn't know, is kept as plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

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
    Text,
)

RESULTS_SCHEMA = "latentscale.results/1"
"""The value of ``schema`` in the results that this version writes."""

ROLES: Mapping[str, tuple[Role, ...]] = {
    "corpus": ("corpus",),
    "reference": ("reference",),
    "pair": ("corpus", "reference"),
}
"""The corpora that a score says something of."""

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


class Score(Part):
    """One row of ``scores``: a number of a measure, and how well it is known.

    A score counts as one that depends on the number of rows unless its measure says that it is
    made to compare corpora of different sizes (``size_dependent=False``).
    """

    model_config = ConfigDict(json_schema_extra=_BRACKETED)

    measure: Text
    """Which measure."""
    of: Literal["corpus", "reference", "pair"]
    """Whether it is of the corpus, the reference or the pair of them."""
    score: Text
    """Name of the score."""
    value: float | None
    """The number; null where it could not be computed."""
    lower: float | None = None
    """Lower end of the bracket."""
    upper: float | None = None
    """Upper end of the bracket."""
    bounds: BoundsOrNull = None
    """What the bracket promises."""
    unit: str = ""
    """What it is counted in."""
    better: Annotated[str, WithJsonSchema({"enum": ["high", "low", "none"]})] = "none"
    """Which direction is the better one."""
    kernel: Absent[str] = None
    """Kernel, where there is a choice."""
    order: Absent[str] = None
    """Order, where there is one; `inf` for infinity."""
    label: Absent[str] = None
    """Label whose rows were measured."""
    scale: Absent[float] = None
    """Scale, where there is one."""
    reason: Absent[Reason] = None
    sampling_error: NonNegativeFloat | None = None
    """Standard error over fresh samples from the same source; null where it is unknown."""
    size_dependent: Absent[bool] = True
    """Whether the score depends on the number of rows; true where absent."""

    @model_validator(mode="after")
    def _bracketed(self) -> Score:
        if self.value is not None:
            if self.lower is None or self.upper is None:
                raise ValueError("a value needs its bracket, lower and upper")
            if self.lower > self.upper:
                raise ValueError("lower is above upper")
        return self


class Corpus(Part):
    """What was measured of one corpus."""

    explained = ("duplicates",)

    uri: Expected[str] = None
    """Without user info and query string."""
    n: Positive
    """Rows."""
    d: Expected[Positive] = None
    """Columns."""
    dtype: Expected[Annotated[str, WithJsonSchema({"enum": ["float16", "float32"]})]] = None
    """Type that the vectors are stored in."""
    fingerprint: Text
    """Hash of the vectors, whatever files they came in."""
    duplicates: Count | None = None
    """Rows that repeat an earlier one."""
    duplicates_reason: Absent[Reason] = None
    excluded_shards: Absent[Annotated[list[str], Field(min_length=1)]] = None
    """Shards whose rows were left out; n and every number are without them."""
    excluded_rows: Absent[Positive] = None
    """Rows of those shards."""


class Corpora(Part):
    """The corpora of a job."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    reference: Corpus | None = None
    """What it was compared with; null without one."""
    corpus: Expected[Corpus] = None
    """The corpus under evaluation."""

    def by_role(self) -> dict[Role, Corpus]:
        """Return the corpora that there are."""
        both: dict[Role, Corpus | None] = {"corpus": self.corpus, "reference": self.reference}
        return {role: corpus for role, corpus in both.items() if corpus is not None}


class Job(Part):
    """What identifies a job."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    id: str
    """The job's folder."""
    name: str
    """As configured."""
    config_hash: Expected[Annotated[str, Field(pattern="^[0-9a-f]{8,}$")]] = None
    """Hash of all that determines the numbers."""
    seed: Expected[Count] = None
    """As configured."""
    version: str = ""
    """Of latentscale."""
    started: str | None = None
    """When the first run began, in UTC."""
    finished: str | None = None
    """When the results were written, in UTC."""
    cluster: Expected[dict[str, Any]] = None
    """Where it ran, as configured."""
    provenance: Absent[str] = None
    """Where versions, machine, sources and commands are, relative to the job's folder."""


class Timing(Part):
    """What one stage took."""

    stage: Expected[str] = None
    """Name of the stage."""
    seconds: Annotated[float, Field(ge=0)]
    """Time that its tasks took together."""
    tasks: Expected[Count] = None
    """How many tasks."""
    peak_memory_bytes: Count | None = None
    """Most resident memory of a process while it ran one of the tasks, the idle worker and other
    tasks in it included.
    """
    tasks_at_once: Absent[Positive] = None
    """Most tasks that ran in one process while one of these did; above 1 the peak is that of them
    all.
    """
    projected_memory_bytes: Absent[Count] = None
    """What was projected for a process that runs one of the tasks: idle worker and task arrays."""
    resumed: Expected[bool] = None
    """Whether parts of an earlier run were used."""
    reason: str | None = None
    """What was computed again and why, or where it was taken from; null where there is nothing to
    say.
    """


class Labels(Part):
    """Which labels were measured each by itself."""

    measured: dict[str, Positive]
    """Rows of every label that was measured."""
    left_out: dict[str, Count]
    """Rows of every label that has too few."""
    least_rows: Positive
    """Rows that a label needs."""


class Results(Part):
    """What a job found.

    A measure that wasn't asked for is absent; a number that could not be computed is null beside a
    reason; NaN and infinity never appear.
    """

    kind: Literal["latentscale.results/1"] = Field(default="latentscale.results/1", alias="schema")
    """Name and version of this schema."""
    job: Job
    """Which job it was."""
    corpora: Corpora
    """What was measured."""
    scores: list[Score]
    """Every number as a row of its own: what tools should read."""
    measures: dict[str, Any] = Field(default_factory=dict)
    """One entry a measure; one that could not be computed is null, with <name>_reason."""
    arrays: dict[str, str] = Field(default_factory=dict)
    """Name of an array: its path relative to the job folder."""
    timings: list[Timing] = Field(default_factory=list)
    """What each stage took."""

    def part(self, measure: str) -> Any:
        """Return what a measure found; None where there is nothing, or nothing that is known."""
        found = self.measures.get(measure)
        return found if isinstance(found, Part) else None

    def dump(self) -> bytes:
        """Write ``results.json``, refusing numbers that JSON doesn't have."""
        return (json.dumps(self.document(), indent=1, allow_nan=False) + "\n").encode()
