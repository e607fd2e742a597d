"""Baselines: what other work compares with, from moments and from random rows of both corpora.

Mean similarity, IntDiv, GMStds and FID come from the moments of all rows, one pass. KID, precision,
recall, density and coverage visit pairs: of all rows, or of so many random ones a side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from latentscale import Estimate
from latentscale.distances import as_points
from latentscale.frechet import frechet_distance
from latentscale.kernel_distance import kernel_distance
from latentscale.manifold_overlap import approximate_overlap, exact_overlap
from latentscale.moments import (
    Moments,
    geometric_mean_deviation,
    internal_diversity,
    mean_similarity,
    merge_row_moments,
    row_moments,
)
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Baselines
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.measure import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    TILE_BYTES,
    UNIT_FOLDS,
    CorpusFacts,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    load_estimate,
    require_equal_dimensions,
    store_estimate,
)

SHARDS_PER_TASK = 8
"""Shards whose moments one task sums."""

CONFIDENT = 1.96
"""Standard errors on either side of a 95 % interval."""

OF_ONE: dict[str, tuple[str, str]] = {
    "mean similarity": ("cosine similarity", "low"),
    "IntDiv": ("1 - cosine similarity", "high"),
    "GMStds": ("coordinate", "high"),
}
"""Unit and better direction of the scores of one corpus."""

OF_PAIR: dict[str, tuple[str, str]] = {
    "FID": ("squared distance", "low"),
    "KID": ("kernel", "low"),
    "precision": ("share", "high"),
    "recall": ("share", "high"),
    "density": ("balls over k", "high"),
    "coverage": ("share", "high"),
}
"""The same of the pair."""

OVERLAPS = ("precision", "recall", "density", "coverage")


def plan_baselines(section: Baselines, facts: JobFacts) -> list[Stage]:
    """Plan the moments of every corpus and, with a reference, the comparison."""
    require_equal_dimensions("baselines", facts)
    stages = [_moments_stage(corpus, role) for role, corpus in facts.corpora.items()]
    if len(facts.corpora) > 1:
        stages.append(_pair_stage(section, facts))
    return stages


def _moments_stage(corpus: CorpusFacts, role: Role) -> Stage:
    matrix = 8 * corpus.d**2
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    return Stage(
        name=f"moments-{role}",
        work=sum_moments,
        finalise=join_moments,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role},
        memory_bytes=2 * corpus.shard_stored_bytes
        + 6 * matrix
        + 5 * 8 * 4096 * corpus.d
        + (parts + 2) * matrix,
        effort=Effort(
            bytes_read=corpus.stored_bytes + parts * matrix,
            bytes_written=(parts + 1) * (matrix + RESULT_BYTES),
            products=corpus.n * float(corpus.d) ** 2 / 2,
            folds=UNIT_FOLDS * float(corpus.n) * corpus.d,
            method="moments",
            why="sums over the rows",
        ),
        part_inputs=corpus.runs_of_shards(SHARDS_PER_TASK),
    )


def _pair_stage(section: Baselines, facts: JobFacts) -> Stage:
    rows = [min(section.rows, corpus.n) for corpus in facts.corpora.values()]
    for role, count in zip(facts.corpora, rows, strict=True):
        if count <= section.k:
            raise BadInput(
                f"{role}: measures.baselines.k is {section.k} and {count} rows are compared; use "
                "a smaller k or more rows"
            )
    d = facts.corpora["corpus"].d
    pairs = float(sum(rows)) ** 2
    shard = max(2 * corpus.shard_stored_bytes for corpus in facts.corpora.values())
    return Stage(
        name="baselines",
        work=compare_pair,
        corpora=tuple(facts.corpora),
        needs=tuple(f"moments-{role}" for role in facts.corpora),
        parameters={"k": section.k, "rows": section.rows},
        seed=facts.seed,
        memory_bytes=4 * 8 * sum(rows) * (d + 1)
        + 400 * section.k * sum(rows)
        + shard
        + 6 * 8 * d**2
        + TILE_BYTES
        + FEW_TILES_BYTES,
        effort=Effort(
            bytes_read=sum(corpus.stored_bytes for corpus in facts.corpora.values()),
            bytes_written=RESULT_BYTES,
            products=2.0 * pairs * d + 30.0 * float(d) ** 3,
            single_products=pairs * d,
            folds=10.0 * pairs,
            method="exact",
            why=f"all pairs of up to {section.rows:,} rows a side",
        ),
    )


def sum_moments(inputs: Inputs) -> Output:
    """Sum the moments of a run of shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    first = inputs.index * SHARDS_PER_TASK
    shards = range(first, min(first + SHARDS_PER_TASK, corpus.shard_count))
    return _store(merge_row_moments([row_moments(corpus.read_shard(shard)) for shard in shards]))


def join_moments(inputs: Inputs) -> Output:
    """Join the moments in order and score the corpus."""
    moments = merge_row_moments([_load(part) for part in inputs.parts])
    output = _store(moments)
    values: dict[str, Any] = {"GMStds": geometric_mean_deviation(moments)}
    if moments.zero_rows:
        values["reason"] = f"{moments.zero_rows} rows are zero: they have no direction"
    else:
        values["mean similarity"] = mean_similarity(moments)
        values["IntDiv"] = internal_diversity(moments)
    return Output(values={**output.values, "scores": values}, arrays=output.arrays)


def _store(moments: Moments) -> Output:
    arrays = {name: getattr(moments, name) for name in ("mean", "scatter", "directions")}
    return Output(values={"count": moments.count, "zero_rows": moments.zero_rows}, arrays=arrays)


def _load(published: Published) -> Moments:
    return Moments(
        count=published.values["count"],
        zero_rows=published.values["zero_rows"],
        mean=published.array("mean"),
        scatter=published.array("scatter"),
        directions=published.array("directions"),
    )


def compare_pair(inputs: Inputs) -> Output:
    """Compare the corpus with the reference."""
    p, generator = inputs.parameters, inputs.generator()
    evaluated = _draw(inputs.corpora["corpus"], p["rows"], generator)
    reference = _draw(inputs.corpora["reference"], p["rows"], generator)
    moments = [_load(inputs.results[f"moments-{role}"]) for role in ("corpus", "reference")]
    kid = kernel_distance(evaluated, reference)
    a, b = as_points(evaluated, "euclidean"), as_points(reference, "euclidean")
    scores: dict[str, Any] = {"rows": [len(evaluated), len(reference)], "kid": asdict(kid)}
    if min(moment.count for moment in moments) >= 2:
        scores["fid"] = store_estimate(frechet_distance(*moments))
    scores["exact"] = asdict(exact_overlap(a, b, p["k"]))
    scores["graph"] = asdict(approximate_overlap(a, b, p["k"], generator))
    return Output(values=scores)


def _draw(corpus: Corpus, rows: int, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Read all rows, or so many random ones."""
    if corpus.n <= rows:
        return corpus.read_all()
    return corpus.read_index(np.sort(generator.choice(corpus.n, rows, replace=False)))


def collect_baselines(section: Baselines, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores of every corpus and of the pair."""
    del section
    found: dict[str, Any] = {}
    scores: list[Score] = []
    for role in facts.corpora:
        values = results(f"moments-{role}").values["scores"]
        found[role] = {name.replace(" ", "_"): values.get(name) for name in OF_ONE}
        for name, (unit, better) in OF_ONE.items():
            fields = _fields(name, role, unit, better)
            if name in values:
                scores.append(Score.known(Estimate.exact(values[name], "moments"), **fields))
            else:
                scores.append(Score.unknown(values["reason"], **fields))
        if "reason" in values:
            found[role]["reason"] = values["reason"]
    if len(facts.corpora) > 1:
        compared = results("baselines").values
        whole = all(
            count == corpus.n
            for count, corpus in zip(compared["rows"], facts.corpora.values(), strict=True)
        )
        found["pair"] = _pair_section(compared)
        scores += _pair_scores(compared, whole=whole)
    return Findings(found, scores)


def _pair_section(compared: Mapping[str, Any]) -> dict[str, Any]:
    kid = compared["kid"]
    return {
        "rows": compared["rows"],
        "FID": compared["fid"]["value"] if "fid" in compared else None,
        "KID": {
            "value": kid["value"],
            "sampling_error": kid["sampling_error"],
            "block_value": kid["block_value"],
            "groups": kid["groups"],
        },
        **{
            name: {
                "value": compared["exact"][name],
                "from_graph": compared["graph"][name],
                "agreement": 1.0 - abs(compared["exact"][name] - compared["graph"][name]),
            }
            for name in OVERLAPS
        },
    }


def _pair_scores(compared: Mapping[str, Any], *, whole: bool) -> list[Score]:
    """Rows of ``scores``: exact where all rows were compared, else of a random sample."""
    scores = []
    for name, (unit, better) in OF_PAIR.items():
        fields = _fields(name, "pair", unit, better)
        if name == "FID" and "fid" not in compared:
            scores.append(Score.unknown("a covariance needs at least two rows", **fields))
        elif name == "FID":
            scores.append(Score.known(load_estimate(compared["fid"]), **fields))
        elif name == "KID":
            kid = compared["kid"]
            error = kid["sampling_error"]
            reach = 0.0 if whole else CONFIDENT * (error if error is not None else math.inf)
            if math.isinf(reach):
                scores.append(Score.unknown("too few rows for an interval", **fields))
                continue
            value = kid["value"]
            bounds = "exact" if whole else "interval95"
            scores.append(
                Score(
                    value=value,
                    lower=value - reach,
                    upper=value + reach,
                    bounds=bounds,
                    sampling_error=error,
                    **fields,
                )
            )
        else:
            value, other = compared["exact"][name], compared["graph"][name]
            ends = (value, value) if whole else (min(value, other), max(value, other))
            scores.append(
                Score(
                    value=value,
                    lower=ends[0],
                    upper=ends[1],
                    bounds="exact" if whole else "estimate",
                    **fields,
                )
            )
    return scores


def _fields(name: str, of: str, unit: str, better: str) -> dict[str, Any]:
    return {"measure": "baselines", "of": of, "score": name, "unit": unit, "better": better}


BASELINES = Measure(section=Baselines, plan=plan_baselines, collect=collect_baselines)
