"""The findings of the baselines: their part of the results and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentscale.baselines.clipping import ROUNDING
from latentscale.estimate import Bounds, Estimate, divide_chance
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.baselines.config import Baselines
from latentscale_pipeline.measures.baselines.results import (
    BaselinesOfPair,
    BaselinesResults,
    MomentScores,
    Overlap,
)
from latentscale_pipeline.measures.baselines.scores import SCORES

OF_ONE = ("mean similarity", "IntDiv", "GMStds")
OF_PAIR = tuple(name for name in SCORES if name not in OF_ONE)
"""Scores of one corpus, and of the pair."""

OVERLAPS = ("precision", "recall", "density", "coverage", "clipped density", "clipped coverage")


def collect_baselines(section: Baselines, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores of every corpus and of the pair."""
    del section
    found: dict[str, Any] = {}
    scores: list[Score] = []
    for role in facts.corpora:
        values = results(f"moments-{role}").values["scores"]
        for name in OF_ONE:
            reason = values[name].get("reason")
            exact = None if reason else load_estimate(values[name])
            scores.append(SCORES[name].score(exact, role, reason=reason))
        found[role] = MomentScores(
            **{name.replace(" ", "_"): values[name].get("value") for name in OF_ONE},
            reason=next((found["reason"] for found in values.values() if "reason" in found), None),
        )
    if len(facts.corpora) > 1:
        compared = results("baselines").values
        taken = [
            rows / corpus.n
            for rows, corpus in zip(compared["rows"], facts.corpora.values(), strict=True)
        ]
        found["pair"] = _pair(compared, taken)
        scores += [_pair_score(compared, name, taken) for name in OF_PAIR]
    return Findings(BaselinesResults(**found), tuple(scores))


def _pair(compared: Mapping[str, Any], taken: Sequence[float]) -> BaselinesOfPair:
    exact, graph = compared["exact"], compared["graph"]
    kid: Any = {**compared["kid"], "sampling_error": _kernel_distance(compared["kid"], taken)[1]}
    return BaselinesOfPair(
        rows=compared["rows"],
        FID=compared["fid"]["value"] if "fid" in compared else None,
        KID=kid,
        **{
            field: Overlap(
                value=exact[field],
                from_graph=graph[field],
                agreement=1.0 - abs(exact[field] - graph[field]),
            )
            for field in map(_field, OVERLAPS)
        },
    )


def _pair_score(compared: Mapping[str, Any], name: str, taken: Sequence[float]) -> Score:
    """Return a row of ``scores``: exact if all rows were compared, else estimated from a sample."""
    definition, whole = SCORES[name], min(taken) == 1.0
    if name == "FID":
        if "fid" not in compared:
            return definition.score(None, "pair", reason="a covariance needs at least two rows")
        return definition.score(load_estimate(compared["fid"]), "pair")
    if name == "KID":
        found, error = _kernel_distance(compared["kid"], taken)
        if not whole and error is None:
            return definition.score(None, "pair", reason="too few rows for an interval")
        return definition.score(found, "pair", sampling_error=error)
    exact, graph = (compared[way][_field(name)] for way in ("exact", "graph"))
    return definition.score(_overlap(name, exact, graph, whole=whole), "pair")


def _kernel_distance(
    found: Mapping[str, Any], taken: Sequence[float]
) -> tuple[Estimate, float | None]:
    """Return the estimate and its sampling error; ``taken`` are the shares of rows compared."""
    value, deviation = found["value"], found["sampling_error"]
    chance, error = (0.0, None) if deviation is None else divide_chance(deviation, taken)
    reach = found["rounding"] + chance
    # A few rows far from all others decide the score, and random ones may be without them.
    bounds: Bounds = "exact" if min(taken) == 1.0 else "estimate"
    return Estimate(value, value - reach, value + reach, bounds, ""), error


def _overlap(name: str, exact: float, graph: float, *, whole: bool) -> Estimate:
    """Return a score with its rounding; of a sample, with what its neighbours' graph gives."""
    if not whole:
        return Estimate(exact, min(exact, graph), max(exact, graph), "estimate", "")
    if not name.startswith("clipped"):
        return Estimate.exact(exact, "")
    reach = ROUNDING * exact
    return Estimate(exact, exact - reach, min(1.0, exact + reach), "exact", "")


def _field(name: str) -> str:
    """Return the field of a score of the overlap."""
    return name.replace(" ", "_")
