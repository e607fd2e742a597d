"""The magnitude distance of corpus and reference: its stages, its task and its findings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from latentscale.magnitude.distance import is_saturated, magnitude_distance
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    JobFacts,
    Results,
    Role,
    Score,
    load_estimate,
    store_scored,
)
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.magnitude.results import DistanceOfMagnitudes
from latentscale_pipeline.measures.magnitude.scores import SCORES
from latentscale_pipeline.measures.shared.bandwidth import bandwidth_stage
from latentscale_pipeline.measures.shared.random_rows import row_bytes, sample_stage
from latentscale_pipeline.storage.artifacts import Output

STAGE = "magnitude-distance"

MAX_ROWS, MIN_ROWS = 2000, 100
"""Most rows of each corpus, and fewest whatever the budget: a matrix of both is inverted."""

OTHER_DIMENSIONS = "corpus and reference have different dimensions"

SINGULAR = (
    "the similarity matrix isn't safely positive definite, as rows are nearly equal at this scale, "
    "or so far from the others that rounding hides small distances; set a larger "
    "measures.magnitude.distance_scale, or leave the far rows out"
)


SATURATED = 0.98
"""Share of its largest value from which a distance says little if nearly every row stands alone."""

UNRESOLVED = "nearly every row stands alone at this scale; set a smaller distance_scale"


def has_distance(section: Magnitude, facts: JobFacts) -> bool:
    """Return whether the distance is computed."""
    return section.distance and len(facts.corpora) > 1


def distance_stages(section: Magnitude, facts: JobFacts) -> list[Stage]:
    """Plan random rows of both corpora, and their distance.

    Raises
    ------
    BadInput
        If it is asked for without a reference.
    """
    if section.distance and len(facts.corpora) == 1:
        raise BadInput(
            "measures.magnitude.distance compares with a reference; add reference: or leave it out"
        )
    if not has_distance(section, facts) or not _one_space(facts):
        return []
    scale = _given_scale(section, facts)
    rows = _rows(facts)
    samples = [
        sample_stage(f"{STAGE}-rows-{role}", role, corpus, rows[role], facts.seed)
        for role, corpus in facts.corpora.items()
    ]
    union, d = float(sum(rows.values())), facts.corpora["corpus"].d
    read = sum(row_bytes(corpus) * rows[role] for role, corpus in facts.corpora.items())
    distance = Stage(
        name=STAGE,
        work=compare_rows,
        needs=(*(() if scale else ("bandwidth",)), *(sample.name for sample in samples)),
        corpora=tuple(facts.corpora),
        parameters={
            "metric": section.metric,
            "scale": scale,
            "tolerance": section.tolerance,
            "errors": facts.errors or any(rows[r] < facts.corpora[r].n for r in rows),
        },
        seed=facts.seed,
        memory_bytes=int(48 * union**2 + 32 * union * d) + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=read,
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=union**2 * d + 2.0 * union**3,
            elementwise_operations=20.0 * union**2,
            method="cholesky",
            why=f"of {' and '.join(f'{count:,}' for count in rows.values())} rows",
        ),
    )
    first = [] if scale else [bandwidth_stage(facts)]
    return [*first, *samples, distance]


def compare_rows(inputs: Inputs) -> Output:
    """Compute the distance of the rows drawn."""
    p = inputs.parameters
    scale = p["scale"]
    if scale is None:
        found = inputs.results["bandwidth"].values
        if "reason" in found:
            return Output(values={"reason": found["reason"], "scale": None})
        scale = 1.0 / found["bandwidth"]
    roles: tuple[Role, Role] = ("corpus", "reference")
    first, second = (inputs.results[f"{STAGE}-rows-{role}"].array("vectors") for role in roles)
    distance = magnitude_distance(
        first,
        second,
        p["metric"],
        scale,
        inputs.generator() if p["errors"] else None,
        rows=(inputs.corpora["corpus"].n, inputs.corpora["reference"].n),
        tolerance=p["tolerance"],
    )
    if distance is None:
        return Output(values={"reason": SINGULAR, "scale": scale})
    if is_saturated(first, second, p["metric"], scale, distance.estimate.value, SATURATED):
        return Output(values={"reason": UNRESOLVED, "scale": scale})
    return Output(values={"scale": scale, **store_scored(distance)})


def collect_distance(
    section: Magnitude, facts: JobFacts, results: Results
) -> tuple[DistanceOfMagnitudes, Score]:
    """Collect the distance, or the reason why there is none."""
    values: Mapping[str, Any] = {"reason": OTHER_DIMENSIONS, "scale": None}
    if _one_space(facts):
        values = results(STAGE).values
    reason = values.get("reason")
    estimate = None if reason else load_estimate(values["estimate"])
    part = DistanceOfMagnitudes.from_estimate(
        estimate,
        scale=values["scale"],
        rows=list(_rows(facts).values()),
        **({"value_reason": reason} if reason else {}),
    )
    score = SCORES["distance"].score(
        estimate, "pair", reason=reason, sampling_error=values.get("sampling_error")
    )
    return part, score


def _rows(facts: JobFacts) -> dict[Role, int]:
    """Return how many rows of each corpus are drawn."""
    affordable = max(MIN_ROWS, math.isqrt(int(facts.pairs)) // 2)
    return {role: min(corpus.n, MAX_ROWS, affordable) for role, corpus in facts.corpora.items()}


def _one_space(facts: JobFacts) -> bool:
    return len({corpus.d for corpus in facts.corpora.values()}) == 1


def _given_scale(section: Magnitude, facts: JobFacts) -> float | None:
    """Return the scale, from another job where that gives it; None for the median distance."""
    if section.distance_scale != "median":
        return section.distance_scale
    bandwidth = facts.fixed_scales.get("bandwidth")
    return None if bandwidth is None else 1.0 / bandwidth
