"""Measure random samples of the corpora, and say where each score is expected by chance.

Measures don't know about samples. Each plans samples of m rows like corpora of that size. One task
draws disjoint samples of the reference and one of the corpus, and runs the measure's stages on them
in memory: the corpus against a part of the reference, then other parts of the reference in its
place (:mod:`latentscale.sampling.fresh_samples`). Without a reference, the samples of the corpus
still say how far chance moves its scores, for comparisons with other jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.sampling.fresh_samples import (
    Cuts,
    Expectation,
    SampleMean,
    error_of_average,
    expect,
    mean_of_samples,
    variance_of_mean,
    variance_of_pairs,
)
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.in_memory import hold_rows
from latentscale_pipeline.engine.code_closure import find_module
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.in_memory import run_in_memory
from latentscale_pipeline.engine.keys import stage_dependencies, work_modules
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.measures.base import (
    NO_VALUE,
    RESULT_BYTES,
    CorpusFacts,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    plan_measure,
)
from latentscale_pipeline.measures.shared.random_rows import row_bytes, sample_stage
from latentscale_pipeline.results.model import ROLES, CurveRange
from latentscale_pipeline.storage.artifacts import Artifact, Output
from latentscale_pipeline.storage.canonical import digest, plain

MIN_ROWS = 50
"""Fewest rows of a sample."""

DRAWN_BYTES = 128 * 2**20
"""Largest size of all rows drawn from a corpus."""

SAMPLES = 3
"""Samples of the reference beside one of the corpus."""

DISJOINT, MIN_DISJOINT = 5, 2
"""Number of disjoint samples that a corpus has rows for, or at least where it has few."""

SIZES = (5, 2, 1)
"""Rows of samples are these times a power of ten, so that corpora of about one size compare."""

FEWER = 0.5
"""Largest size of the next smaller samples, in that of others."""

CURVE = "curve"
"""Stands for the measure's curve among the names of scores."""

SHARD_BYTES = 2**40
"""A sample is one shard."""

Values = dict[str, float | None]


@dataclass(frozen=True)
class SampleSizes:
    """How samples are drawn.

    Attributes
    ----------
    rows : int
        Rows of a sample.
    groups : int
        Samples of the corpus; each has :data:`SAMPLES` of the reference beside it.
    drawn : mapping
        Rows of each corpus that they are taken from.
    compares : bool
        Whether samples of the reference are measured in place of those of the corpus.
    """

    rows: int
    groups: int
    drawn: Mapping[Role, int]
    compares: bool

    def cuts(self, role: Role) -> Cuts:
        """Return how many tasks take their disjoint rows from each random order of those drawn."""
        per_order = self.drawn[role] // self.taken(role)
        full, rest = divmod(self.groups, per_order)
        return Cuts(self.rows, self.drawn[role], [per_order] * full + [rest] * (rest > 0))

    def taken(self, role: Role) -> int:
        """Return how many rows a task takes."""
        return self.rows * (SAMPLES if role == "reference" else 1)

    def share(self, role: Role) -> float:
        """Return the variance of the mean over samples, in units of that of one sample."""
        compared = 2 if role == "reference" else 1
        counts = [compared * count for count in self.cuts(role).counts]
        return variance_of_mean(self.rows, self.drawn[role], counts)


def sample_sizes(facts: JobFacts) -> SampleSizes | str:
    """Return how samples are drawn, or why there are none."""
    if not facts.samples:
        return "sampling.method is none"
    corpus, reference = facts.corpora["corpus"], facts.corpora.get("reference")
    if reference is not None and corpus.d != reference.d:
        return f"the corpus has {corpus.d} dimensions and the reference {reference.d}"
    parts: dict[Role, int] = dict.fromkeys(facts.corpora, SAMPLES) | {"corpus": MIN_DISJOINT}
    if any(facts.corpora[role].n < count * MIN_ROWS for role, count in parts.items()):
        need = [f"{count * MIN_ROWS} rows of the {role}" for role, count in parts.items()]
        return f"samples of {MIN_ROWS} rows need {' and '.join(need)}"
    widest = max(map(row_bytes, facts.corpora.values()))
    fitting = DRAWN_BYTES // widest
    limits = [max(MIN_ROWS, corpus.n // DISJOINT), max(MIN_ROWS, fitting // SAMPLES)]
    if reference is not None:
        limits.append(reference.n // SAMPLES)
    rows = _sample_rows(facts.sample_rows, min(limits))
    largest = max(fitting, SAMPLES * rows)
    drawn: dict[Role, int] = {
        role: min(
            facts.corpora[role].n,
            facts.samples * rows * (SAMPLES if role == "reference" else 1),
            largest,
        )
        for role in parts
    }
    return SampleSizes(rows, facts.samples, drawn, reference is not None)


def smaller_sizes(sizes: SampleSizes) -> list[SampleSizes]:
    """Return smaller samples of the same rows: of the next smaller size, and of the smallest.

    By the first, jobs on about as many rows compare; by the second, any two.
    """
    most = int(sizes.rows * FEWER)
    if most < MIN_ROWS:
        return []
    rows = dict.fromkeys((_sample_rows(sizes.rows, most), MIN_ROWS))
    return [replace(sizes, rows=each, compares=False) for each in rows]


def _sample_rows(wanted: int, most: int) -> int:
    """Return the rows of a sample: those wanted, or else a round number of at most ``most``."""
    if wanted <= most:
        return wanted
    power = int(10 ** (len(str(most)) - 1))
    return next(size * power for size in SIZES if size * power <= most)


def stage_name(measure: str, fewer: int | None = None) -> str:
    """Return the name of the stage that measures the samples, or smaller ones by their rows."""
    return f"expected-{measure}" if fewer is None else f"sampled-{fewer}-{measure}"


def rows_name(role: Role) -> str:
    """Return the name of the stage that draws the rows of all samples of a corpus."""
    return f"sampled-rows-{role}"


# --- planning -----------------------------------------------------------------------------------


def plan_samples(
    measures: Mapping[str, Measure], sections: Mapping[str, Section], facts: JobFacts
) -> list[Stage]:
    """Plan the samples of every measure whose scores can be expected."""
    sizes = sample_sizes(facts)
    if isinstance(sizes, str):
        return []
    stages = [
        _plan_measure(name, work, facts, own)
        for name, section in sections.items()
        for own in (sizes, *smaller_sizes(sizes))
        if isinstance(work := _sample_work(name, measures[name], section, facts, own), _Samples)
    ]
    if not stages:
        return []
    drawing = [
        sample_stage(rows_name(role), role, facts.corpora[role], drawn, facts.seed)
        for role, drawn in sizes.drawn.items()
    ]
    return [*drawing, *stages]


def _sample_work(
    name: str, measure: Measure, section: Any, facts: JobFacts, sizes: SampleSizes
) -> _Samples | str:
    """Return the work of a measure's samples, or why there are none."""
    if getattr(section, "weights", False) and any(c.weights for c in facts.corpora.values()):
        return "samples of weighted rows aren't measured"
    section = measure.section_of_sample(section)
    if section is None:
        return "it isn't measured on samples"
    own = replace(
        facts,
        corpora={role: _sample_facts(corpus, sizes.rows) for role, corpus in facts.corpora.items()},
        errors=False,
        samples=0,
        # Each sample derives its scales, so that samples of two jobs are measured in one way.
        fixed_scales={},
        scale_role="reference" if "reference" in facts.corpora else "corpus",
        label_rows={},
        replicates=1,
        replicate_rows=None,
        pair=None,
    )
    try:
        stages = plan_measure(name, measure, section, own)
    except BadInput as error:
        return f"samples of {sizes.rows} rows: {error}"
    if not stages:
        return f"samples of {sizes.rows} rows are too few for it"
    return _Samples(measure, section, own, tuple(stages), sizes)


def _sample_facts(corpus: CorpusFacts, rows: int) -> CorpusFacts:
    return replace(
        corpus,
        n=rows,
        shards=1,
        shard_rows=rows,
        weights=None,
        labels=None,
        ids=None,
        shard_prints=(),
    )


def _plan_measure(name: str, work: _Samples, facts: JobFacts, sizes: SampleSizes) -> Stage:
    costs = [stage.cost_estimate for stage in work.stages]
    times = sizes.groups * (SAMPLES if sizes.compares else 1)
    beside = f", {times} of the reference" if sizes.compares else ""
    fewer = None if sizes == sample_sizes(facts) else sizes.rows
    drawn = [row_bytes(facts.corpora[role]) * rows for role, rows in sizes.drawn.items()]
    samples = 4 * sizes.rows * max(map(row_bytes, facts.corpora.values()))
    written = sum(cost.bytes_written for cost in costs)
    return Stage(
        name=stage_name(name, fewer),
        work=work,
        finalise=gather_scores,
        partitions=sizes.groups,
        needs=tuple(rows_name(role) for role in sizes.drawn),
        parameters={
            "rows": sizes.rows,
            "drawn": dict(sizes.drawn),
            "shares": {role: sizes.share(role) for role in sizes.drawn},
            "compares": sizes.compares,
            "cuts": {role: asdict(sizes.cuts(role)) for role in sizes.drawn},
            "section": plain(work.section.model_dump()),
            "stages": _described(work.stages),
        },
        seed=facts.seed,
        # Results of the stages stay in memory: of the samples measured, and of those beside them.
        memory_bytes=samples
        + max(2 * max(drawn), 2 * written + max(stage.memory_bytes for stage in work.stages)),
        lasting_bytes=max(stage.lasting_bytes for stage in work.stages),
        cost_estimate=CostEstimate(
            bytes_read=sizes.groups * sum(drawn),
            bytes_written=(sizes.groups + 1) * RESULT_BYTES,
            float64_multiply_adds=times * sum(cost.float64_multiply_adds for cost in costs),
            float32_multiply_adds=times * sum(cost.float32_multiply_adds for cost in costs),
            elementwise_operations=times * sum(cost.elementwise_operations for cost in costs),
            method="samples",
            why=f"{sizes.groups} of {sizes.rows} rows of the corpus{beside}",
        ),
    )


def _described(stages: Sequence[Stage]) -> dict[str, str]:
    """Return digests of stages by name, without their code, which is part of the key anyway."""
    found = stage_dependencies(stages, {"corpus": "", "reference": ""})
    left_out = ("code", "versions", "needs")
    return {
        name: digest({key: value for key, value in own.items() if key not in left_out})[:16]
        for name, own in found.items()
    }


# --- tasks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Samples:
    """The work of a stage: a measure of one sample of the corpus, and of three of the reference."""

    measure: Measure
    section: Any
    facts: JobFacts
    stages: tuple[Stage, ...]
    sizes: SampleSizes

    def __post_init__(self) -> None:
        # A stage's key names its work.
        object.__setattr__(self, "__qualname__", type(self).__qualname__)

    @property
    def modules(self) -> Sequence[str]:
        """Return the modules that define what is measured, for the stage's key."""
        # The package itself also imports the texts of its report, which change no number.
        home = type(self.measure).__module__
        collection = f"{home}.collect"
        found = collection if find_module(collection) else home
        return sorted({*work_modules(self.stages), found})

    def __call__(self, inputs: Inputs) -> Output:
        """Measure the corpus, then two samples of a reference in its place.

        A sample that can't be measured leaves the job without expected ranges, not without results.
        """
        seed = int(inputs.generator().integers(2**31))
        own = self._rows(inputs, "corpus")
        beside, *others = (
            np.split(self._rows(inputs, "reference"), SAMPLES)
            if "reference" in self.sizes.drawn
            else [None]
        )
        if not self.sizes.compares:
            others = []
        try:
            found = self._measure([own, *others], beside, seed)
        except (LatentscaleError, RuntimeError) as error:
            why = str(error).strip().splitlines()[-1]
            return Output(values={"reason": f"a sample of {self.sizes.rows} rows: {why}"})
        return Output(values={"scores": found})

    def _rows(self, inputs: Inputs, role: Role) -> NDArray[Any]:
        """Return the rows of a task: the next ones in a random order of all rows drawn."""
        vectors = inputs.results[rows_name(role)].array("vectors")
        taken = self.sizes.taken(role)
        number, place = divmod(inputs.index, len(vectors) // taken)
        streams = inputs.common_generator().spawn(len(self.sizes.drawn))
        stream = streams[list(self.sizes.drawn).index(role)].spawn(number + 1)[-1]
        order = stream.permutation(len(vectors))
        return vectors[order[place * taken : (place + 1) * taken]]

    def _measure(
        self, samples: Sequence[NDArray[Any]], beside: NDArray[Any] | None, seed: int
    ) -> list[Values]:
        """Return the scores of samples, by identity; each is compared with the rows ``beside``."""
        stages = [
            stage if stage.seed is None else replace(stage, seed=seed) for stage in self.stages
        ]
        own = {"corpus"}
        for stage in stages:
            if own.intersection((*stage.corpora, *stage.needs)):
                own.add(stage.name)
        others = [stage for stage in stages if stage.name not in own]
        held = {} if beside is None else {"reference": _hold(beside, "reference")}
        known = run_in_memory(others, held, keep=True).held
        found = []
        for rows in samples:
            corpora = {"corpus": _hold(rows, "corpus"), **held}
            results = run_in_memory(
                [stage for stage in stages if stage.name in own], corpora, known=known
            )
            found.append(self._scores(self.measure.collect(self.section, self.facts, results)))
        return found

    def _scores(self, found: Findings) -> Values:
        """Return the scores that change with the corpus, by identity, and the curve's values."""
        values = {identity(score): score.value for score in found.scores if score.of != "reference"}
        curve = found.curve[1] if found.curve and self.sizes.compares else ()
        return values | {_point(place): value for place, value in enumerate(curve)}


def _hold(rows: NDArray[Any], role: Role) -> Corpus:
    return hold_rows(rows, role, shard_bytes=SHARD_BYTES)


def gather_scores(inputs: Inputs) -> Output:
    """Compare the scores of all samples."""
    reasons = [part.values["reason"] for part in inputs.parts if "reason" in part.values]
    if reasons:
        nothing: dict[str, Any] = {"expected": {}, "means": {}, "variances": {}, "unknown": []}
        return Output(values={**nothing, "reason": reasons[0]})
    shares, cuts = inputs.parameters["shares"], inputs.parameters["cuts"]
    groups = [part.values["scores"] for part in inputs.parts]
    expected: dict[str, dict[str, float]] = {}
    means: dict[str, dict[str, float]] = {}
    # Of samples of the reference.
    variances: dict[str, float] = {}
    unknown = []
    for name in dict.fromkeys(name for group in groups for values in group for name in values):
        values = [[one.get(name) for one in group] for group in groups]
        if any(value is None for row in values for value in row):
            unknown.append(name)
            continue
        scores = np.array(values, dtype=np.float64)
        if inputs.parameters["compares"]:
            found = expect(scores[:, 0], scores[:, 1:], shares["corpus"], shares["reference"])
            expected[name] = asdict(found)
            variances[name] = variance_of_pairs(scores[:, 1:])
        of, score, *_ = json.loads(name)
        if score == CURVE:
            continue
        roles = ROLES[of]
        mean = mean_of_samples(scores[:, 0], [Cuts(**cuts[role]) for role in roles])
        if mean is not None:
            means[name] = asdict(mean)
    return Output(
        values={
            "expected": expected,
            "means": means,
            "variances": variances,
            "groups": len(groups),
            "unknown": unknown,
        }
    )


# --- collection ---------------------------------------------------------------------------------


def identity(score: Score) -> str:
    """Return what tells a score from the others of its measure, as text."""
    return json.dumps([score.of, score.score, score.kernel, score.order, score.scale])


def _point(place: int) -> str:
    """Return the identity of a point of the measure's curve."""
    return json.dumps(["corpus", CURVE, place])


def collect_samples(
    measures: Mapping[str, Measure],
    sections: Mapping[str, Section],
    facts: JobFacts,
    results: Results,
) -> Iterator[tuple[str, Expected]]:
    """Yield what the samples of every measure say, by the measure's name."""
    sizes = sample_sizes(facts)
    for name, section in sections.items():
        if isinstance(sizes, str):
            yield name, Expected(0, sizes)
            continue
        work = _sample_work(name, measures[name], section, facts, sizes)
        if isinstance(work, str):
            yield name, Expected(sizes.rows, work)
        else:
            others = {
                fewer.rows: results(stage_name(name, fewer.rows))
                for fewer in smaller_sizes(sizes)
                if not isinstance(_sample_work(name, measures[name], section, facts, fewer), str)
            }
            yield name, Expected(sizes.rows, "", results(stage_name(name)), others)


@dataclass(frozen=True)
class Expected:
    """What the samples say of a measure's scores.

    Attributes
    ----------
    rows : int
        Rows of a sample.
    reason : str
        Why there are none; empty if there are.
    artifact : Artifact or None
        The result of the stage.
    fewer : mapping
        Those of smaller samples, by their rows.
    """

    rows: int
    reason: str
    artifact: Artifact | None = None
    fewer: Mapping[int, Artifact] = field(default_factory=dict)

    def of(self, score: Score) -> Expectation | str:
        """Return where a score is expected, or why that isn't known."""
        if self.artifact is None:
            return self.reason
        if "reason" in self.artifact.values:
            return str(self.artifact.values["reason"])
        name = identity(score)
        if name in self.artifact.values["unknown"]:
            return f"{NO_VALUE} of {self.rows} rows"
        found = self.artifact.values["expected"].get(name)
        return "it isn't measured on samples" if found is None else Expectation(**found)

    def error(self, score: Score, n: int) -> tuple[float, int] | None:
        """Return the sampling error of an average over all n rows, and its degrees of freedom.

        None if it isn't known.
        """
        if score.of == "corpus":
            of_corpus = next(self.means(score), None)
            if of_corpus is None or not of_corpus[1].variance:
                return None
            rows, mean = of_corpus
            return error_of_average(mean.variance, mean.freedom, rows, n), mean.freedom
        known = {} if self.artifact is None else self.artifact.values
        # Samples of the reference are measured in place of those of the corpus.
        variance = known.get("variances", {}).get(
            identity(score.model_copy(update={"of": "corpus"}))
        )
        if not variance:
            return None
        return error_of_average(variance, known["groups"], self.rows, n), known["groups"]

    def curve(self, x: Sequence[float]) -> CurveRange | None:
        """Return where the measure's curve is expected at its places, or those known of them."""
        known: dict[str, Any] = {} if self.artifact is None else self.artifact.values["expected"]
        points = {at: known[_point(place)] for place, at in enumerate(x) if _point(place) in known}
        if not points:
            return None
        ends = ("found", "centre", "lower", "upper")
        return CurveRange(
            rows=self.rows,
            x=list(points),
            **{end: [point[end] for point in points.values()] for end in ends},
        )

    def means(self, score: Score) -> Iterator[tuple[int, SampleMean]]:
        """Yield the mean scores over samples of the corpus, by their rows; the largest first."""
        known = {} if self.artifact is None else {self.rows: self.artifact}
        for rows, artifact in {**known, **self.fewer}.items():
            found = artifact.values["means"].get(identity(score))
            if found is not None:
                yield rows, SampleMean(**found)
