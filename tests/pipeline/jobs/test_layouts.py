"""Equal rows in other shards: the job is the same one, and parts of both layouts never mix."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from tests.conftest import Ended

Command = Callable[..., Ended]

ROWS, DIMENSION = 30 * 1024, 4
LAYOUTS = {"ten": 3072, "fifteen": 2048}
"""Rows of a shard; both make two parts of a stage that reads eight shards a task."""


@pytest.fixture
def rows(tmp_path: Path) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype("f4")
    rows[:, 0] += np.linspace(0, 5, ROWS)
    np.save(tmp_path / "rows.npy", rows)
    return rows


def lay_out(folder: Path, layout: str) -> None:
    shutil.rmtree(folder / "rows.zarr", ignore_errors=True)
    shard_bytes = LAYOUTS[layout] * DIMENSION * 4
    ingest([str(folder / "rows.npy")], str(folder / "rows.zarr"), shard_bytes=shard_bytes)


def run(latentscale: Command, folder: Path) -> dict[str, Any]:
    fields = {"name": "a", "corpus": str(folder / "rows.zarr"), "output": str(folder / "jobs")}
    fields |= {"measures": {"baselines": {}}, "cluster": {"kind": "serial"}}
    (folder / "job.yaml").write_text(json.dumps({**fields, "sampling": {"method": "none"}}))
    ended = latentscale("run", folder / "job.yaml", "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_parts_of_another_layout_are_not_used(
    latentscale: Command, tmp_path: Path, rows: np.ndarray
) -> None:
    lay_out(tmp_path, "ten")
    before = run(latentscale, tmp_path)
    [job] = (tmp_path / "jobs").glob("a-*")
    # As if the run had been killed after the first part of every stage.
    for kept in ("results.json", "inventory.json", "provenance.json", "report.html"):
        (job / kept).unlink()
    for stage in (job / "stages").glob("*/*"):
        if (stage / "part-00001.json").exists():
            (stage / "part-00001.json").unlink()
            (stage / "result.json").unlink()
    fingerprint = open_corpus(str(tmp_path / "rows.zarr")).fingerprint
    lay_out(tmp_path, "fifteen")
    corpus = open_corpus(str(tmp_path / "rows.zarr"))
    assert (corpus.fingerprint, corpus.shard_count) == (fingerprint, 15)
    after = run(latentscale, tmp_path)
    dense = np.exp(np.log(rows.astype("f8").std(axis=0)).mean())
    for results in (before, after):
        assert results["measures"]["baselines"]["corpus"]["GMStds"] == pytest.approx(dense, 1e-9)
