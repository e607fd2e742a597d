"""The count of duplicates: its memory against the plan's."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from latentscale.tiles.distances import Metric
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.jobs.plan import corpus_facts
from latentscale_pipeline.measures.base import JobFacts
from latentscale_pipeline.measures.shared import duplicate_count


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_hashes_take_the_memory_that_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: Metric, dtype: str
) -> None:
    monkeypatch.setattr(duplicate_count, "ROWS_AT_A_TIME", 64)
    rows = np.random.default_rng(0).normal(size=(2048, 1024)).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "corpus.zarr"))
    facts = JobFacts(
        corpora={"corpus": corpus_facts(corpus)}, seed=0, pairs=10**9, scale_role="corpus"
    )
    stage = duplicate_count.duplicates_stages("corpus", facts, metric)[0]
    inputs: Any = SimpleNamespace(corpora={"corpus": corpus}, parameters=stage.parameters, index=0)
    duplicate_count.hash_rows(inputs)
    tracemalloc.start()
    duplicate_count.hash_rows(inputs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * stage.memory_bytes < peak < 1.1 * stage.memory_bytes
