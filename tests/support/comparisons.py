"""Finished jobs small enough to compare by hand."""

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latentscale_pipeline.compare.jobs import Comparison, compare
from latentscale_pipeline.measures.finished_job import FinishedJob
from tests.support.results_documents import finished_job

Row = dict[str, Any]

SETTINGS: dict[str, Any] = {
    "scales_from": "auto",
    "measures": {
        "heat": {"k": 5, "times": {"start": 0.1, "stop": 10.0}},
        "vendi": {"kernels": [{"name": "cosine", "bandwidth": None}], "orders": [1.0, 2.0]},
    },
}


def row(value: float | None, width: float = 0.0, **fields: Any) -> Row:
    """Return a row of ``scores``; a null one needs its reason among the fields."""
    bracket = None if value is None else value
    return {
        "measure": "toy",
        "of": "corpus",
        "score": "spread",
        "value": value,
        "lower": None if bracket is None else bracket - width,
        "upper": None if bracket is None else bracket + width,
        "bounds": None if bracket is None else "exact" if width == 0 else "certified",
        "sampling_error": None,
        "unit": "paws",
        "better": "high",
        **fields,
    }


def results(
    rows: Iterable[Row],
    *,
    name: str = "nightly",
    n: int = 100,
    fingerprint: str = "c0ffee",
    reference: tuple[int, str] | None = None,
    measures: dict[str, Any] | None = None,
    weighted: bool | None = None,
    weights: str | None = None,
    reference_weighted: bool | None = None,
) -> dict[str, Any]:
    """Return a results document with what a comparison reads, and nothing else."""
    return {
        "schema": "latentscale.results/1",
        "job": {"id": f"{name}-1a2b3c4d", "name": name},
        "corpora": {
            "corpus": {"n": n, "fingerprint": fingerprint}
            | ({} if weighted is None else {"weighted": weighted})
            | ({} if weights is None else {"weighted": True, "weights_fingerprint": weights}),
            "reference": None
            if reference is None
            else {"n": reference[0], "fingerprint": reference[1]}
            | ({} if reference_weighted is None else {"weighted": reference_weighted}),
        },
        "scores": list(rows),
        "arrays": {},
        "measures": measures or {},
    }


def job(*rows: Row, settings: dict[str, Any] | None = SETTINGS, **fields: Any) -> FinishedJob:
    """Return a finished job with these scores."""
    document = results(rows, **fields)
    return finished_job(document, settings, f"jobs/{document['job']['id']}")


def with_setting(path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(SETTINGS)
    here = changed
    *outer, last = path.split(".")
    for key in outer:
        here = here[key]
    here[last] = value
    return changed


def comparison(ours: Iterable[Row], theirs: Iterable[Row]) -> Comparison:
    """Compare two jobs that are alike in everything but their scores."""
    return compare(job(*ours), job(*theirs, name="release"))


def write_job(
    folder: Path, *rows: Row, settings: dict[str, Any] | None = SETTINGS, **fields: Any
) -> Path:
    """Write a job's folder as far as a comparison reads it."""
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results(rows, **fields)))
    if settings is not None:
        (folder / "config.json").write_text(json.dumps(settings))
    return folder
