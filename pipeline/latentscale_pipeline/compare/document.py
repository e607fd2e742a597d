"""Write a comparison as one JSON document.

As in ``results.json``, a number that could not be computed is null and has a reason beside it. NaN
and infinity never appear.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from latentscale_pipeline.compare.cells import is_told_by_samples
from latentscale_pipeline.compare.comparability import Mismatch
from latentscale_pipeline.compare.difference import ComparedScore, Verdict
from latentscale_pipeline.compare.gate_checks import GateResult
from latentscale_pipeline.compare.gates import SELECTORS
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.compare.rows_changed import RowChanges
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.scores import why_null

COMPARISON_SCHEMA = "latentscale.comparison/1"

BRACKET = ("value", "lower", "upper", "bounds", "sampling_error")


def comparison_document(
    comparison: Comparison, gates: Sequence[GateResult] | None = None
) -> dict[str, Any]:
    """Return a comparison and its gates as plain JSON values.

    Parameters
    ----------
    comparison : Comparison
        The comparison; all of it is in the document.
    gates : sequence of GateResult, optional
        Results of the gates; if None, ``gates`` and ``passed`` are null.
    """
    scores = comparison.scores
    return {
        "schema": COMPARISON_SCHEMA,
        "job": _identity(comparison.job),
        "baseline": _identity(comparison.baseline),
        "unlike": [_mismatches(found) for found in comparison.mismatches],
        "notes": list(comparison.notes),
        "rows": None if comparison.rows is None else _row_changes(comparison.rows),
        "verdict": comparison.verdict.document(),
        "scores": [_compared(score) for score in comparison.shared],
        "only_in_job": [
            _naming(s.job) | _bracketed(s.job) for s in scores if s.job and not s.baseline
        ],
        "only_in_baseline": [
            _naming(s.baseline) | _bracketed(s.baseline) for s in scores if s.baseline and not s.job
        ],
        "gates": None if gates is None else [_gate(result) for result in gates],
        "passed": None if gates is None else all(result.passed for result in gates),
    }


def dump_document(document: dict[str, Any]) -> str:
    """Return the document as JSON text; NaN and infinity raise an error."""
    return json.dumps(document, indent=1, allow_nan=False)


def _identity(job: FinishedJob) -> dict[str, Any]:
    return {"id": job.id, "name": job.name, "uri": job.url}


def _mismatches(found: Mismatch) -> dict[str, Any]:
    return {"what": found.what, "job": found.job, "baseline": found.baseline}


def _naming(score: Score) -> dict[str, Any]:
    fields = ((name, getattr(score, name)) for name in SELECTORS)
    return {name: value for name, value in fields if value is not None}


def _bracketed(score: Score) -> dict[str, Any]:
    bracket = {name: getattr(score, name) for name in BRACKET}
    return bracket if score.value is not None else {**bracket, "reason": why_null(score)}


def _compared(score: ComparedScore) -> dict[str, Any]:
    rows = {"job": score.job, "baseline": score.baseline}
    return {
        **_naming(score.score),
        **{place: _bracketed(row) for place, row in rows.items() if row is not None},
        **_difference(score),
        **_sampled(score),
        "beyond_bounds": score.beyond_bounds,
        "significant": score.significant,
        **_expected(score),
        **_why_not_significant(score),
        "verdict": score.verdict.value,
        "unlike": [found.what for found in score.mismatches],
    }


def _difference(score: ComparedScore) -> dict[str, Any]:
    if score.difference is None:
        reason = score.why_not or "too large to be a number"
        return {"difference": None, "difference_reason": reason}
    found: dict[str, Any] = {
        "value": score.difference,
        "lower": score.lower,
        "upper": score.upper,
        "sampling_error": score.sampling_error,
        "relative": score.relative,
    }
    if score.relative is None:
        found["relative_reason"] = "no share of the baseline, which is 0 or next to it"
    return {"difference": found}


def _sampled(score: ComparedScore) -> dict[str, Any]:
    """Return the means of samples, or shares of as many rows, where these tell the change."""
    usual = score.expected
    if usual is None or (score.sampled is None and not is_told_by_samples(score)):
        return {}
    difference = usual.found - usual.centre
    return {
        "sampled": {
            "rows": usual.rows,
            "job": usual.found,
            "baseline": usual.centre,
            "difference": difference,
            "relative": difference / abs(usual.centre) if usual.centre else None,
        }
    }


def _row_changes(rows: RowChanges) -> dict[str, Any]:
    return {**asdict(replace(rows, new=())), "new": [each.document() for each in rows.new]}


def _expected(score: ComparedScore) -> dict[str, Any]:
    if score.expected is not None:
        return {"expected": score.expected.document()}
    return {"expected_reason": score.expected_reason} if score.expected_reason else {}


def _why_not_significant(score: ComparedScore) -> dict[str, Any]:
    if score.significant is not None:
        return {}
    if score.verdict is Verdict.NOT_COMPUTED:
        return {"significant_reason": score.why_not}
    return {"significant_reason": score.why_no_error}


def _gate(result: GateResult) -> dict[str, Any]:
    return {
        "gate": result.gate.fields,
        "passed": result.passed,
        "outcome": result.outcome,
        **({"remark": result.remark} if result.remark else {}),
        **({"refusal": result.refusal} if result.refusal else {}),
        "selected": [_naming(score.score) for score in result.selected],
        "failures": [
            {**_naming(failure.score.score), "limit": failure.limit, "message": failure.message}
            for failure in result.failures
        ],
    }
