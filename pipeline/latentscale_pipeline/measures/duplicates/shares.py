"""Shares of rows that are duplicates, lie in both corpora, are outliers, or aren't covered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from latentscale.array_types import Float32Array
from latentscale.sampling.shares import ExpectedExceedances, expect_share
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.measures.duplicates import cover, nearest
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.duplicates.cover import ROUNDING
from latentscale_pipeline.measures.duplicates.far import usual_reach
from latentscale_pipeline.measures.duplicates.nearest import RowSearch
from latentscale_pipeline.storage.artifacts import Artifact, Output

STAGE = "rows-compared"
"""Name of the stage that counts."""

BINS = 48
"""Bins in which rows are counted by their distance to the nearest one."""

ROWS_OF_EVENT = 2.0
"""Rows that are near each other come in twos, at least."""


def shares_stage(section: Duplicates, facts: JobFacts, search: RowSearch) -> Stage:
    """Plan the counts of all corpora."""
    rows = sum(search.known.values())
    lists = {role: search.stage(role) for role in facts.corpora}
    checks = {role: nearest.stage_name(role) for role in facts.corpora} if search.in_cells else {}
    return Stage(
        name=STAGE,
        work=count_rows,
        needs=(*lists.values(), *checks.values()),
        parameters={
            "metric": section.metric,
            "within": section.within,
            "lists": lists,
            "checks": checks,
            "sources": list(nearest.compared_with(facts)),
            "least": nearest.least_rows(facts),
        },
        # Some lists of single precision, and which rows of them are near.
        memory_bytes=28 * rows,
        cost_estimate=CostEstimate(
            bytes_read=16 * rows,
            bytes_written=RESULT_BYTES,
            elementwise_operations=200.0 * rows,
        ),
    )


def count_rows(inputs: Inputs) -> Output:
    """Count rows by the distances to their nearest rows."""
    p = inputs.parameters
    found = {role: inputs.results[name] for role, name in p["lists"].items()}
    counts: dict[str, Any] = {
        role: _counts_of_one(found[role], role, p["metric"], p["within"]) for role in found
    }
    for role, name in p["checks"].items():
        for source in p["sources"] or [role]:
            counts[role][f"checked_{source}"] = _check(
                inputs.results[name], found[role], source, p["within"]
            )
    counts["distances"] = {
        "own": _histogram({role: distances(found[role], role) for role in found})
    }
    if len(p["sources"]) > 1:
        counts["distances"]["across"] = _histogram(
            {role: distances(found[role], "reference") for role in found}
        )
        counts["pair"] = _counts_of_pair(found, p["metric"], p["within"])
        counts["expected"] = _expected(found, counts, p)
    return Output(values=counts)


def _histogram(found: Mapping[str, Float32Array]) -> dict[str, Any]:
    """Count rows by their distances, in the same bins for both corpora."""
    most = max(float(each.max()) for each in found.values())
    edges = np.linspace(0.0, most if most > 0.0 else 1.0, BINS + 1)
    counted = {
        role: np.histogram(each.astype(np.float64), edges)[0].tolist()
        for role, each in found.items()
    }
    return {"edges": edges.tolist(), **counted}


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


def _check(compared: Artifact, found: Artifact, source: Role, within: float) -> dict[str, int]:
    """Count what cells missed of the rows that were compared with all others.

    Rows that chose the overlap are left out.
    """
    n = len(distances(found, source))
    rows, _, true = nearest.found_rows(compared, n, source)
    judging = np.ones(len(rows), dtype=np.bool_)
    judging[nearest.pilot_places(len(rows))] = False
    rows, true = rows[judging], true[judging]
    seen = distances(found, source)[rows]
    near = true <= within
    return {
        "rows": len(rows),
        "nearest": int((seen <= true.astype(np.float64) * (1.0 + ROUNDING)).sum()),
        "near": int(near.sum()),
        "near_found": int((seen[near] <= within).sum()),
    }


def _counts_of_pair(found: Mapping[str, Artifact], metric: Any, within: float) -> dict[str, Any]:
    """Count leaks and outliers of the corpus, and rows of the reference that aren't covered.

    An outlier is farther from every row of the reference than nearly all of these are from the
    nearest other one; so is a row of the reference that isn't covered, from rows of the corpus.
    """
    beside = distances(found["corpus"], "reference")
    uncovered = distances(found["reference"], "corpus")
    far = _reach(found["reference"])
    settled = {
        name: found[role].values["settled"]
        for name, role in (("outliers", "corpus"), ("not_covered", "reference"))
        if "settled" in found[role].values
    }
    return {
        "settled": settled,
        "outlier_distance": far,
        "exact_leaks": int((beside <= cover.equal_within(metric)).sum()),
        "leaks": int((beside <= within).sum()),
        "outliers": round(_far_rows(found["corpus"], beside, far)),
        "not_covered": round(_far_rows(found["reference"], uncovered, far)),
    }


def _reach(reference: Artifact, *, fewer: bool = False) -> float:
    """Return how far the reference's rows usually reach, among all of them or among fewer.

    A search in cells has settled which rows are farther than the distance that it says.
    """
    known = reference.values.get("reach")
    if known is None:
        return usual_reach(distances(reference, "reference", fewer=fewer))
    return float(known.get(nearest.FEWER, known[nearest.ALL]) if fewer else known[nearest.ALL])


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
    far, far_of_fewer = (_reach(found["reference"], fewer=fewer) for fewer in (False, True))
    return {
        "exact duplicates": _near(corpus_of_fewer, own_of_fewer, equal, sizes),
        "near-duplicates": _near(corpus_of_fewer, own_of_fewer, within, sizes),
        "exact leaks": _near(beside, own, equal, rows),
        "leaks": _near(beside, own, within, rows),
        "outliers": _beyond(
            _far_rows(found["corpus"], beside, far) / len(beside), own, rows["corpus"], far
        ),
        "not covered": _beyond(
            _far_rows(found["reference"], uncovered, far_of_fewer, fewer=True) / len(uncovered),
            own_of_fewer,
            sizes["reference"],
            far_of_fewer,
        ),
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


def _far_rows(
    found: Artifact, distances: Float32Array, far: float, *, fewer: bool = False
) -> float:
    """Return how many rows are farther than a distance, of those that cells call far.

    Some of these, or all, were compared with all rows. Those that aren't far have got their
    distance; of the others, as many are far as of those that were compared.
    """
    still = int((distances > far).sum())
    known = found.values
    settled = (fewer and known.get(f"settled_{nearest.FEWER}")) or known.get("settled")
    # None is compared where few are far among many that may be far from fewer rows.
    if not settled or settled["checked"] in {0, settled["beyond"]}:
        return float(still)
    refuted = settled["checked"] - settled["confirmed"]
    return float(settled["confirmed"] / settled["checked"] * (still + refuted))


def _beyond(share: float, usual: Float32Array, rows: int, far: float) -> dict[str, Any]:
    """Say how many rows lie apart, and how many are expected to.

    A share of more rows, of which one may lie apart, is judged as that of whole ones.
    """
    beyond = ExpectedExceedances(
        found=math.floor(share * rows + ROUNDING) / rows,
        rows=rows,
        beyond=int((usual > far).sum()),
        among=len(usual),
        rows_of_event=ROWS_OF_EVENT,
    )
    return {"rows": rows, "exceedances": asdict(beyond)}
