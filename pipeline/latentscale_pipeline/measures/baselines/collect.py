"""The findings of the baselines: sections of the results and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from latentscale.estimate import Estimate
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.baselines.config import Baselines

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
