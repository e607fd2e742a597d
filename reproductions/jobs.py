"""Run a job in this process, for settings that the notebook functions don't have."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.jobs.run import run_job


def results_of(
    measures: Mapping[str, Any],
    rows: np.ndarray,
    reference: np.ndarray | None = None,
    seed: int = 0,
) -> Mapping[str, Any]:
    """Run a job in this process and return what is in its ``results.json``."""
    with tempfile.TemporaryDirectory(prefix="latentscale-reproduction-") as folder:
        job: dict[str, Any] = {
            "name": "reproduction",
            "corpus": _stored(rows, Path(folder, "corpus.npy")),
            "output": folder,
            "seed": seed,
            "measures": measures,
            "cluster": {"kind": "serial", "memory_limit": "4GiB"},
        }
        if reference is not None:
            job["reference"] = _stored(reference, Path(folder, "reference.npy"))
        config = read_config(json.dumps(job), "job", measures=measure_sections())
        return run_job(make_plan(config), _tell_nobody).results.document()


def _tell_nobody(event: str, **fields: Any) -> None:
    """Ignore the job's messages."""


def _stored(rows: np.ndarray, path: Path) -> str:
    np.save(path, np.ascontiguousarray(rows, dtype=np.float32))
    return str(path)
