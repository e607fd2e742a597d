"""The count of duplicates: the hashes of rows, and its memory against the plan's."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xxhash

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
    monkeypatch.setattr(duplicate_count, "BLOCK_ENTRIES", 64 * 1024)
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


@pytest.mark.parametrize("directions", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_hashes_are_those_of_the_bits_of_rows_without_negative_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, directions: bool
) -> None:
    monkeypatch.setattr(duplicate_count, "BLOCK_ENTRIES", 20)
    rows = np.random.default_rng(1).choice([-1.0, -0.0, 0.0, 6e-8, 0.5, 2.0], (40, 3))
    rows[rows.any(axis=1) == 0] = 0.5
    np.save(tmp_path / "rows.npy", rows.astype(dtype))
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "corpus.zarr"))
    parameters = {"role": "corpus", "groups": 1, "directions": directions}
    inputs: Any = SimpleNamespace(corpora={"corpus": corpus}, parameters=parameters, index=0)
    found = duplicate_count.hash_rows(inputs)
    [(_, hashes)] = list(found.sections[duplicate_count.HASHES])
    stored = rows.astype(dtype).astype("f8")
    plain = stored + 0.0 if directions else rows.astype(dtype) + np.zeros((), dtype)
    if directions:
        plain /= 2.0 ** (np.floor(np.log2(np.abs(plain).max(axis=1))) + 1)[:, None]
    expected = sorted({xxhash.xxh3_128_digest(row) for row in plain})
    assert [row.tobytes() for row in hashes] == expected
    assert found.values["repeated"] == len(rows) - len(expected)
    assert found.values["lengths"] == pytest.approx(np.linalg.norm(stored, axis=1).sum())
