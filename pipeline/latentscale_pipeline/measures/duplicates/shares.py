"""Shares of rows that are duplicates, lie in both corpora, are outliers, or aren't covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.sampling.shares import ExpectedExceedances, expect_share
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.measures.duplicates import cover, nearest
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.storage.artifacts import Artifact, Output

Float32Array = NDArray[np.float32]

STAGE = "rows-compared"
"""Name of the stage that counts."""

OUTLIERS = 0.0002
"""Share of the reference's rows that lie farther from all its others than an outlier must."""

ROWS_OF_EVENT = 2.0
"""Rows that are near each other come in twos, at least."""


def shares_stage(section: Duplicates, facts: JobFacts, queries: Mapping[Role, int]) -> Stage:
    """Plan the counts of all corpora."""
    rows = sum(queries.values())
    return Stage(
        name=STAGE,
        work=count_rows,
        needs=tuple(nearest.stage_name(role) for role in queries),
        parameters={
            "metric": section.metric,
            "within": section.within,
            "roles": list(queries),
            "sources": list(nearest.compared_with(facts)),
            "least": nearest.least_rows(facts),
        },
        memory_bytes=8 * 8 * rows,
        cost_estimate=CostEstimate(
            bytes_read=16 * rows,
            bytes_written=RESULT_BYTES,
            elementwise_operations=200.0 * rows,
        ),
    )


def count_rows(inputs: Inputs) -> Output:
    """Count rows by the distances to their nearest rows."""
    p = inputs.parameters
    found = {role: inputs.results[nearest.stage_name(role)] for role in p["roles"]}
    counts: dict[str, Any] = {
        role: _counts_of_one(found[role], role, p["metric"], p["within"]) for role in found
    }
    if len(p["sources"]) > 1:
        counts["pair"] = _counts_of_pair(found, p["within"])
        counts["expected"] = _expected(found, counts, p)
    return Output(values=counts)


def distances(found: Artifact, source: str, *, fewer: bool = False) -> Float32Array:
    """Return the distances to the nearest rows of a corpus.

    ``fewer`` asks for those among as many rows as the smaller corpus has.
    """
    name = f"{source}_{nearest.FEWER}_distance"
    if not fewer or name not in found.objects:
        name = f"{source}_{nearest.ALL}_distance"
    array: Float32Array = found.array(name)
    return array


def _counts_of_one(found: Artifact, role: str, metric: Any, within: float) -> dict[str, int]:
    own = distances(found, role)
    return {
        "rows": len(own),
        "exact": int((own <= cover.equal_within(metric)).sum()),
        "near": int((own <= within).sum()),
    }


def _counts_of_pair(found: Mapping[str, Artifact], within: float) -> dict[str, Any]:
    """Count leaks and outliers of the corpus, and rows of the reference that aren't covered.

    An outlier is farther from every row of the reference than nearly all of these are from the
    nearest other one; so is a row of the reference that isn't covered, from rows of the corpus.
    """
    beside = distances(found["corpus"], "reference")
    far = usual_reach(distances(found["reference"], "reference"))
    return {
        "outlier_distance": far,
        "leaks": int((beside <= within).sum()),
        "outliers": int((beside > far).sum()),
        "not_covered": int((distances(found["reference"], "corpus") > far).sum()),
    }


def usual_reach(own: Float32Array) -> float:
    """Return the distance that all but a small share of the rows have to the nearest other one."""
    return float(np.quantile(own, 1.0 - OUTLIERS, method="higher"))


def _expected(
    found: Mapping[str, Artifact], counts: Mapping[str, Any], p: Mapping[str, Any]
) -> dict[str, Any]:
    """Say where each share is expected, from the distances between rows of the reference.

    A fresh row is as far from its nearest row of the reference as a row of the reference is from
    its nearest other one. Shares that depend on the size of a corpus are compared at that of the
    smaller one.
    """
    rows = {role: counts[role]["rows"] for role in ("corpus", "reference")}
    sizes = {role: min(count, p["least"]) for role, count in rows.items()}
    own = distances(found["reference"], "reference")
    own_of_fewer = distances(found["reference"], "reference", fewer=True)
    corpus_of_fewer = distances(found["corpus"], "corpus", fewer=True)
    uncovered = distances(found["reference"], "corpus", fewer=True)
    beside = distances(found["corpus"], "reference")
    equal, within = cover.equal_within(p["metric"]), p["within"]
    return {
        "exact duplicates": _near(corpus_of_fewer, own_of_fewer, equal, sizes),
        "near-duplicates": _near(corpus_of_fewer, own_of_fewer, within, sizes),
        "leaks": _near(beside, own, within, rows),
        "outliers": _beyond(beside, own, rows["corpus"]),
        "not covered": _beyond(uncovered, own_of_fewer, sizes["reference"]),
    }


def _near(
    found: Float32Array, usual: Float32Array, within: float, rows: Mapping[str, int]
) -> dict[str, Any]:
    """Say how many rows have another one near them, and how many are expected to."""
    near = expect_share(
        float((found <= within).mean()),
        rows["corpus"],
        float((usual <= within).mean()),
        rows["reference"],
        rows_of_event=ROWS_OF_EVENT,
    )
    return {"rows": rows["corpus"], "share": asdict(near)}


def _beyond(found: Float32Array, usual: Float32Array, rows: int) -> dict[str, Any]:
    """Say how many rows lie apart, and how many are expected to."""
    far = usual_reach(usual)
    beyond = ExpectedExceedances(
        found=float((found > far).mean()),
        rows=rows,
        beyond=int((usual > far).sum()),
        among=len(usual),
        rows_of_event=ROWS_OF_EVENT,
    )
    return {"rows": rows, "exceedances": asdict(beyond)}
