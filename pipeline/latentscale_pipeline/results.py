"""results.json: one document with every number of a job, its bracket, and how it came about."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from latentscale import __version__
from latentscale_pipeline.engine.run import Standing, Work
from latentscale_pipeline.engine.task import part_key
from latentscale_pipeline.examples import with_examples
from latentscale_pipeline.job.config import Geomca
from latentscale_pipeline.job.publishing import SPENT, Published, read_marker
from latentscale_pipeline.objects import strip_credentials
from latentscale_pipeline.plan import Plan
from latentscale_pipeline.provenance import PROVENANCE_KEY
from latentscale_pipeline.schema import RESULTS_SCHEMA
from latentscale_pipeline.stages import MEASURES
from latentscale_pipeline.stages.by_label import collect_by_label
from latentscale_pipeline.stages.duplicates import stage_name as duplicates_stage
from latentscale_pipeline.stages.geomca import own_setting
from latentscale_pipeline.stages.measure import Findings, Measure, Results, Role


def assemble_results(
    plan: Plan,
    work: Work,
    standings: Sequence[Standing],
    *,
    started: str,
    finished: str,
    measures: Mapping[str, Measure] = MEASURES,
) -> dict[str, Any]:
    """Collect what the stages published into the one results document.

    Parameters
    ----------
    plan : Plan
        The job.
    work : Work
        Where its stages' results are.
    standings : sequence of Standing
        How each stage came about in this run.
    started, finished : str
        UTC times in ISO 8601.

    Returns
    -------
    dict
        Valid under ``latentscale.results/1``; every number finite.
    """
    stages = {stage.name: stage for stage in plan.stages}

    def result(name: str) -> Published:
        return work.result(stages[name])

    findings = {
        name: measures[name].collect(section, plan.facts, result)
        for name, section in plan.config.measures.items()
    }
    if isinstance(plan.config.measures.get("geomca"), Geomca) and findings["geomca"].section:
        findings["geomca"] = _with_examples(plan, findings["geomca"], result)
    if plan.config.group_by is not None:
        findings["labels"] = collect_by_label(measures, plan.config.measures, plan.facts, result)
    scores = [score.row() for finding in findings.values() for score in finding.scores]
    arrays = {key: path for finding in findings.values() for key, path in finding.arrays.items()}
    return {
        "schema": RESULTS_SCHEMA,
        "job": {
            "id": plan.id,
            "name": plan.config.name,
            "config_hash": plan.config_hash,
            "seed": plan.config.seed,
            "version": __version__,
            "started": started,
            "finished": finished,
            "cluster": plan.config.cluster.model_dump(),
            "provenance": PROVENANCE_KEY,
        },
        "corpora": {
            "reference": None,
            **{
                role: {
                    "uri": strip_credentials(corpus.url),
                    "n": corpus.n,
                    "d": corpus.d,
                    "dtype": str(corpus.dtype),
                    "fingerprint": corpus.fingerprint,
                    "duplicates": result(duplicates_stage(role)).values["duplicates"],
                    **(
                        {
                            "excluded_shards": list(corpus.excluded),
                            "excluded_rows": corpus.excluded_rows,
                        }
                        if corpus.excluded
                        else {}
                    ),
                }
                for role, corpus in plan.corpora.items()
            },
        },
        "scores": scores,
        "measures": {
            key: value
            for name, finding in findings.items()
            for key, value in _section(name, finding).items()
        },
        "arrays": arrays,
        "timings": [_timing(plan, work, standing) for standing in standings],
    }


def _with_examples(plan: Plan, finding: Findings, result: Results) -> Findings:
    """Name rows of GeomCA's components and outliers."""
    setting = own_setting(plan.config.measures["geomca"])
    thinned: dict[Role, Published] = {role: result(setting.thinned(role)) for role in plan.corpora}
    section = with_examples(finding.section or {}, result(setting.graph), thinned, plan.corpora)
    return replace(finding, section=section)


def _section(name: str, finding: Findings) -> dict[str, Any]:
    if finding.section is None:
        return {name: None, f"{name}_reason": finding.reason}
    return {name: finding.section}


def dump_results(results: Mapping[str, Any]) -> bytes:
    """Write results as JSON, refusing numbers that JSON doesn't have."""
    return (json.dumps(results, indent=1, allow_nan=False) + "\n").encode()


def _timing(plan: Plan, work: Work, standing: Standing) -> dict[str, Any]:
    stage = standing.stage
    keys = dict.fromkeys(
        [
            *(part_key(standing.folder, stage, i) for i in range(stage.partitions)),
            f"{standing.folder}/result",
        ]
    )
    markers = [marker for key in keys if (marker := read_marker(work.store, key))]
    costs = [marker.cost for marker in markers]
    spent = {
        "seconds": math.fsum(cost.seconds for cost in costs),
        "tasks": len(costs),
        "peak_memory_bytes": max(cost.peak_memory_bytes for cost in costs),
        "tasks_at_once": max(cost.tasks_at_once for cost in costs),
    }
    if stage.advance is not None:
        spent = markers[-1].values[SPENT]
    return {
        "stage": stage.name,
        **spent,
        "seconds": round(spent["seconds"], 3),
        "projected_memory_bytes": plan.projected_bytes(stage),
        "resumed": standing.found > 0 or standing.reason.startswith("reused"),
        "reason": standing.reason,
    }
