"""The findings of the baselines: their part of the results and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale.baselines.clipping import ROUNDING
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

CONFIDENT = 1.96
"""Standard errors on either side of a 95 % interval."""

OF_ONE: dict[str, tuple[str, str]] = {
    "mean similarity": ("cosine similarity", "low"),
    "IntDiv": ("1 - cosine similarity", "high"),
    "GMStds": ("coordinate", "high"),
}
"""Unit of each score of one corpus, and which direction is better."""

OF_PAIR: dict[str, tuple[str, str]] = {
    "FID": ("squared distance", "low"),
    "KID": ("kernel", "low"),
    "precision": ("share", "high"),
    "recall": ("share", "high"),
    "density": ("balls over k", "high"),
    "coverage": ("share", "high"),
    "clipped density": ("share", "high"),
    "clipped coverage": ("share", "high"),
}
"""The same for scores of the pair."""

OVERLAPS = ("precision", "recall", "density", "coverage", "clipped density", "clipped coverage")


def collect_baselines(section: Baselines, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores of every corpus and of the pair."""
    del section
    found: dict[str, Any] = {}
    scores: list[Score] = []
    for role in facts.corpora:
        values = results(f"moments-{role}").values["scores"]
        for name, (unit, better) in OF_ONE.items():
            reason = values[name].get("reason")
            exact = None if reason else load_estimate(values[name])
            fields = _fields(name, role, unit, better)
            scores.append(Score.from_estimate(exact, reason=reason, **fields))
        found[role] = MomentScores(
            **{name.replace(" ", "_"): values[name].get("value") for name in OF_ONE},
            reason=next((found["reason"] for found in values.values() if "reason" in found), None),
        )
    if len(facts.corpora) > 1:
        compared = results("baselines").values
        whole = all(
            count == corpus.n
            for count, corpus in zip(compared["rows"], facts.corpora.values(), strict=True)
        )
        found["pair"] = _pair(compared)
        scores += _pair_scores(compared, whole=whole)
    return Findings(BaselinesResults(**found), tuple(scores))


def _pair(compared: Mapping[str, Any]) -> BaselinesOfPair:
    exact, graph = compared["exact"], compared["graph"]
    return BaselinesOfPair(
        rows=compared["rows"],
        FID=compared["fid"]["value"] if "fid" in compared else None,
        KID=compared["kid"],
        **{
            field: Overlap(
                value=exact[field],
                from_graph=graph[field],
                agreement=1.0 - abs(exact[field] - graph[field]),
            )
            for field in map(_field, OVERLAPS)
        },
    )


def _pair_scores(compared: Mapping[str, Any], *, whole: bool) -> list[Score]:
    """Return rows of ``scores``: exact if all rows were compared, else estimates from a sample."""
    return [
        _pair_score(compared, name, _fields(name, "pair", *fields), whole=whole)
        for name, fields in OF_PAIR.items()
    ]


def _pair_score(
    compared: Mapping[str, Any], name: str, fields: Mapping[str, Any], *, whole: bool
) -> Score:
    if name == "FID":
        if "fid" not in compared:
            return Score(value=None, reason="a covariance needs at least two rows", **fields)
        return Score.from_estimate(load_estimate(compared["fid"]), **fields)
    if name == "KID":
        value, error = compared["kid"]["value"], compared["kid"]["sampling_error"]
        if not whole and error is None:
            return Score(value=None, reason="too few rows for an interval", **fields)
        reach = compared["kid"]["rounding"] + (0.0 if whole else CONFIDENT * error)
        ends, bounds = (value - reach, value + reach), "interval95"
        fields = {**fields, "sampling_error": error}
    else:
        value, other = (compared[way][_field(name)] for way in ("exact", "graph"))
        reach = ROUNDING * value if name.startswith("clipped") else 0.0
        ends = (value - reach, min(1.0, value + reach) if reach else value)
        if not whole:
            ends = (min(value, other), max(value, other))
        bounds = "estimate"
    return Score(
        value=value,
        lower=ends[0],
        upper=ends[1],
        bounds="exact" if whole else bounds,
        **fields,
    )


def _field(name: str) -> str:
    """Return the field of a score of the overlap."""
    return name.replace(" ", "_")


def _fields(name: str, of: str, unit: str, better: str) -> dict[str, Any]:
    return {"measure": "baselines", "of": of, "score": name, "unit": unit, "better": better}
