"""What a job keeps when its corpus grows: the sums over the shards that were there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ingest
from tests.support.jobs import run_command, run_here, timeless

SHARD = 40 * 1024
"""Bytes of a shard: 1024 rows of 10 float32."""


def rows(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 10)).astype("f4") + 0.3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Nineteen shards: two runs of eight and one of three.
    for name, seed, n in (("a", 0, 19 * 1024), ("b", 1, 9 * 1024)):
        np.save(tmp_path / f"{name}.npy", rows(seed, n))
    ingest([str(tmp_path / "a.npy")], str(tmp_path / "c.zarr"), shard_bytes=SHARD)
    return tmp_path


def job(folder: Path, corpus: str, output: str) -> Path:
    path = folder / f"{output}.yaml"
    measures = {"vendi": {"kernels": ["cosine"]}, "baselines": {}, "spectrum": {}}
    path.write_text(
        json.dumps(
            {
                "name": "grown",
                "corpus": str(folder / corpus),
                "output": str(folder / output),
                "cluster": {"kind": "serial"},
                "measures": measures,
                "sampling": {"method": "none"},
            }
        )
    )
    return path


def results(finished: Any) -> dict[str, Any]:
    kept = timeless(finished.results.document())
    del kept["job"]["id"]
    return kept


def origins(finished: Any) -> dict[str, str]:
    return {timing["stage"]: timing["reason"] for timing in finished.results.document()["timings"]}


def test_sums_over_old_shards_are_used_again(folder: Path) -> None:
    config = job(folder, "c.zarr", "jobs")
    run_here(config)
    append([str(folder / "b.npy")], str(folder / "c.zarr"), shard_bytes=SHARD)
    planned = json.loads(run_command("plan", config, "--json").stdout)
    reused = {stage["stage"]: stage["reuse"] for stage in planned["stages"]}
    said = "resumed: 2 of 4 parts reused from other jobs"
    summed = ("vendi-cosine-corpus", "moments-corpus", "spectrum-corpus")
    assert {reused[stage] for stage in summed} == {said}
    grown = run_here(config)
    assert {origins(grown)[stage] for stage in summed} == {said}
    # What is computed from scratch elsewhere is the same to the last bit.
    fresh = run_here(job(folder, "c.zarr", "elsewhere"))
    assert {origins(fresh)[stage] for stage in summed} == {"computed"}
    assert results(grown) == results(fresh)


def test_damaged_parts_are_not_used_again(folder: Path) -> None:
    config = job(folder, "c.zarr", "jobs")
    run_here(config)
    [array] = (folder / "jobs").glob("*/stages/vendi-cosine-corpus/*/part-00000.*/matrix.npy")
    content = bytearray(array.read_bytes())
    content[-9] ^= 1
    array.write_bytes(content)
    append([str(folder / "b.npy")], str(folder / "c.zarr"), shard_bytes=SHARD)
    grown = run_here(config)
    said = "resumed: 1 of 4 parts reused from other jobs"
    assert origins(grown)["vendi-cosine-corpus"] == said
    assert results(grown) == results(run_here(job(folder, "c.zarr", "elsewhere")))


def test_other_rows_other_parts(folder: Path) -> None:
    run_here(job(folder, "c.zarr", "jobs"))
    changed = rows(0, 19 * 1024)
    changed[5] *= 2  # in the first of the three runs of shards
    np.save(folder / "a.npy", changed)
    ingest([str(folder / "a.npy")], str(folder / "d.zarr"), shard_bytes=SHARD)
    other = run_here(job(folder, "d.zarr", "jobs"))
    said = "resumed: 2 of 3 parts reused from other jobs"
    assert origins(other)["vendi-cosine-corpus"] == said
    assert results(other) == results(run_here(job(folder, "d.zarr", "elsewhere")))


def test_a_plan_from_elsewhere_leads_nowhere(folder: Path) -> None:
    config = job(folder, "c.zarr", "jobs")
    run_here(config)
    [plan] = (folder / "jobs").glob("*/plan.json")
    document = json.loads(plan.read_text())
    outside = folder / "outside"
    for stage in document["stages"]:
        if stage["stage"] == "vendi-cosine-corpus":
            [made] = plan.parent.glob("stages/vendi-cosine-corpus/*")
            made.rename(outside)
            stage["key"] = "../../../../outside"
    plan.write_text(json.dumps(document))
    append([str(folder / "b.npy")], str(folder / "c.zarr"), shard_bytes=SHARD)
    assert origins(run_here(config))["vendi-cosine-corpus"].startswith("computed: input")
