"""The findings of the intrinsic dimension: its part of the results and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale.intrinsic_dimension.estimators import MIN_ROWS
from latentscale_pipeline.measures.base import (
    CorpusFacts,
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_scored,
)
from latentscale_pipeline.measures.intrinsic_dimension.config import IntrinsicDimension
from latentscale_pipeline.measures.intrinsic_dimension.plan import (
    numbers_of_neighbours,
    stage_name,
    too_few_rows,
)
from latentscale_pipeline.measures.intrinsic_dimension.results import (
    DimensionByNeighbours,
    DimensionOfCorpus,
    IntrinsicDimensionResults,
)
from latentscale_pipeline.measures.intrinsic_dimension.scores import SCORES

NO_NEIGHBOURS = "no row has so many neighbours, or all of these are equally far"
TOO_FEW = f"fewer than {MIN_ROWS} rows have two neighbours, or these are equally far"


def collect_dimensions(section: IntrinsicDimension, facts: JobFacts, results: Results) -> Findings:
    """Collect the dimensions of every corpus."""
    parts: dict[Role, DimensionOfCorpus] = {}
    scores: list[Score] = []
    for role, corpus in facts.corpora.items():
        planned, reason = corpus.n >= MIN_ROWS, too_few_rows(section, corpus)
        values = results(stage_name(role)).values if planned else {}
        numbers = numbers_of_neighbours(section, corpus) if planned else []
        found = dict(zip(numbers, values.get("maximum_likelihood", []), strict=True))
        scores += [
            _score("MLE", role, found.get(section.k), reason),
            _score("TwoNN", role, values.get("two_nearest"), TOO_FEW),
        ]
        parts[role] = _part(section, corpus, values, found, reason)
    own = parts["corpus"]
    curve = own.maximum_likelihood
    return Findings(
        IntrinsicDimensionResults(corpus=own, reference=parts.get("reference")),
        tuple(scores),
        curve=(list(map(float, curve.neighbours)), curve.value) if curve.value else None,
    )


def _score(name: str, role: Role, found: Mapping[str, Any] | None, reason: str) -> Score:
    scored = load_scored(found)
    return SCORES[name].score(scored, role, reason=None if scored else reason or NO_NEIGHBOURS)


def _part(
    section: IntrinsicDimension,
    corpus: CorpusFacts,
    values: Mapping[str, Any],
    found: Mapping[int, Mapping[str, Any]],
    reason: str,
) -> DimensionOfCorpus:
    known = {k: each for k, each in found.items() if each["estimate"]}
    return DimensionOfCorpus(
        n=corpus.n,
        rows=values.get("rows", 0),
        metric=section.metric,
        maximum_likelihood=DimensionByNeighbours(
            neighbours=list(known),
            **{
                end: [each["estimate"][end] for each in known.values()]
                for end in ("value", "lower", "upper")
            },
            sampling_error=[each["sampling_error"] for each in known.values()],
            rows=[each["rows"] for each in known.values()],
        ),
        reason=reason or None,
    )
