"""What every measure provides, so that a new one appears everywhere by itself.

A measure is a section of the configuration, a plan (its stages, as data), and a way to collect
what its stages published into the results: its own part of ``measures``, its rows of ``scores``,
and its arrays. Comparison, gates, history and the terminal summary read only ``scores``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from latentscale import Estimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Section
from latentscale_pipeline.job.publishing import Published

Role = Literal["corpus", "reference"]

TILE_BYTES = 64 * 2**20
"""Allowance for the distance tiles that a task holds at once."""

FEW_TILES_BYTES = 32 * 2**20
"""The same for tasks that hold two or three tiles of 8 MiB, and what goes with them."""

CONVERSION_FOLDS = 2
"""Folds to turn a stored coordinate into float64."""

UNIT_FOLDS = 6
"""Folds to turn a stored coordinate into one of a unit row."""

RESULT_BYTES = 1024
"""About what a part's marker takes."""


def write_pairs(pairs: float) -> str:
    """Write a number of row pairs as a configuration takes it, rounded up: ``4.1e+12``."""
    exponent = math.floor(math.log10(pairs))
    return f"{math.ceil(pairs / 10 ** (exponent - 1)) / 10:.1f}e+{exponent:02d}"


LEFT_OUT = {
    **dict.fromkeys(("kernel", "order", "label", "scale", "reason")),
    "size_dependent": True,
}
"""Fields that a row of ``scores`` has only where they differ from this."""


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

    def refuse_zero_rows(self, user: str) -> None:
        """Refuse corpora with rows that have no direction.

        Raises
        ------
        BadInput
            Naming what needs the direction and how many rows have none.
        """
        for role, corpus in self.corpora.items():
            if corpus.zero_rows:
                raise BadInput(
                    f"{role}: {corpus.zero_rows} rows are zero and {user} needs their direction; "
                    "remove these rows, or choose another metric or kernel"
                )


@dataclass(frozen=True)
class Score:
    """One row of ``scores``: a number of a measure, and how well it is known.

    A score counts as one that depends on the number of rows unless its measure says that it is
    made to compare corpora of different sizes (``size_dependent=False``).
    """

    measure: str
    of: Literal["corpus", "reference", "pair"]
    score: str
    value: float | None
    lower: float | None
    upper: float | None
    bounds: str | None
    unit: str
    better: Literal["high", "low", "none"]
    kernel: str | None = None
    order: str | None = None
    label: str | None = None
    scale: float | None = None
    reason: str | None = None
    sampling_error: float | None = None
    size_dependent: bool = True

    @classmethod
    def known(cls, estimate: Estimate, **fields: Any) -> Score:
        """Make a score from an estimate."""
        return cls(
            value=estimate.value,
            lower=estimate.lower,
            upper=estimate.upper,
            bounds=estimate.bounds,
            **fields,
        )

    @classmethod
    def unknown(cls, reason: str, **fields: Any) -> Score:
        """Make a score that could not be computed, and say why."""
        return cls(value=None, lower=None, upper=None, bounds=None, reason=reason, **fields)

    def row(self) -> dict[str, Any]:
        """Return the JSON form; qualifiers that don't apply are absent."""
        return {k: v for k, v in asdict(self).items() if k not in LEFT_OUT or v != LEFT_OUT[k]}


@dataclass(frozen=True)
class Findings:
    """What a measure contributes to the results; no section needs a reason."""

    section: Mapping[str, Any] | None
    scores: list[Score]
    arrays: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


class Results(Protocol):
    """Gives the published result of a stage that is done."""

    def __call__(self, name: str, /) -> Published:
        """Return a stage's result by the stage's name."""


@dataclass(frozen=True)
class Measure:
    """How a measure takes part in a job.

    Attributes
    ----------
    section : type
        Its section of the configuration.
    plan : callable
        ``plan(section, facts)`` gives its stages.
    collect : callable
        ``collect(section, facts, results)`` gives its findings.
    compares : bool
        Whether it needs a reference.
    """

    section: type[Section]
    plan: Callable[[Any, JobFacts], list[Stage]]
    collect: Callable[[Any, JobFacts, Results], Findings]
    compares: bool = False


def require_equal_dimensions(measure: str, facts: JobFacts) -> None:
    """Refuse a measure that compares coordinates where corpus and reference have other ones."""
    dimensions = [corpus.d for corpus in facts.corpora.values()]
    if len(set(dimensions)) > 1:
        raise BadInput(
            f"measures.{measure} needs equal dimensions; the corpus has {dimensions[0]} and the "
            f"reference {dimensions[1]}; leave it out of measures"
        )


def store_estimate(estimate: Estimate) -> dict[str, Any]:
    """Turn an estimate into a stage's JSON values."""
    return asdict(estimate)


def load_estimate(values: Mapping[str, Any]) -> Estimate:
    """Turn a stage's JSON values back into an estimate."""
    return Estimate(**values)
