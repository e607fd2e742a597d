"""Random rows don't depend on how a corpus is cut, nor on how many tasks read it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus.ingest.create import ingest
from tests.support.jobs import run_here

MEASURES = {
    "geomca": {"rows": 300},
    "vendi": {"kernels": ["rbf"], "method": "subsample", "orders": [1, 2]},
}


def rows(seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    found = generator.normal(size=(2100, 6)).astype("f4")
    found[generator.choice(2100, 210, replace=False)] = found[7]
    return found


def measured(folder: Path, shard_bytes: int) -> tuple[dict[str, Any], int]:
    """Run a job on corpora of shards of a size; return its results and the number of shards."""
    folder.mkdir()
    urls, shards = {}, 0
    for seed, role in enumerate(("corpus", "reference")):
        np.save(folder / f"{role}.npy", rows(seed))
        source = str(folder / f"{role}.npy")
        corpus = ingest([source], str(folder / role), shard_bytes=shard_bytes)
        urls[role], shards = corpus.url, corpus.shard_count
    fields = {
        "name": "cut",
        **urls,
        "output": str(folder / "jobs"),
        "measures": MEASURES,
        "budget": {"pairs": 2e5},
        "sampling": {"method": "none"},
        "cluster": {"kind": "serial"},
    }
    (folder / "job.yaml").write_text(json.dumps(fields))
    return run_here(folder / "job.yaml").results.document()["measures"], shards


def test_samples_are_the_same_whatever_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = "latentscale_pipeline.measures.shared.shard_blocks.BLOCK_BYTES"
    monkeypatch.setattr(blocks, 1)
    one, few_shards = measured(tmp_path / "one", 1 << 20)
    many, more_shards = measured(tmp_path / "many", 24 * 256)
    assert (few_shards, more_shards) == (1, 3)
    assert json.dumps(many, sort_keys=True) == json.dumps(one, sort_keys=True)
