"""What a finished job keeps: results and row arrays, and little beside them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.support.chaos import disturb
from tests.support.jobs import damage, timeless

Command = Callable[..., Ended]

SIZES = "latentscale_pipeline.measures.shared.neighbours.sizes"
TEMPORARY = {"cells", "checks", "regroup", "search", "regroup-again", "search-again"}
KEPT_SHARE = 0.3


@pytest.fixture
def in_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that shuffles its rows."""
    monkeypatch.setattr(f"{SIZES}.HOME_ROWS", 200)
    monkeypatch.setattr(f"{SIZES}.cell_cap", lambda n, d: 1000)
    monkeypatch.setattr(f"{SIZES}.GROUP_BYTES", 2**20)
    monkeypatch.setattr(f"{SIZES}.VERTEX_BLOCK", 4000)
    monkeypatch.setattr("latentscale_pipeline.measures.shared.shard_blocks.BLOCK_BYTES", 2**21)
    heat = {"neighbours": "cells", "k": 5, "steps": 4, "recall": 0.5, "times": {"count": 4}}
    return write_job(tmp_path, 6000, 256, {"measures": {"heat": heat}})


def write_job(folder: Path, n: int, d: int, fields: dict[str, Any]) -> Path:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(20, d))[generator.integers(20, size=n)] * 2
    np.save(folder / "rows.npy", (rows + generator.normal(size=(n, d))).astype("f4"))
    ingest([str(folder / "rows.npy")], str(folder / "rows.zarr"), shard_bytes=2**20)
    config = folder / "job.yaml"
    named = {"name": "kept", "corpus": str(folder / "rows.zarr"), "output": str(folder / "jobs")}
    config.write_text(json.dumps({**named, "cluster": {"kind": "serial"}, **fields}))
    return config


def job_folder(config: Path) -> Path:
    [folder] = config.with_name("jobs").glob("kept-*")
    return folder


def kept_bytes(folder: Path) -> int:
    """Bytes below ``stages`` that aren't row arrays which the results point to."""
    arrays = set(json.loads((folder / "results.json").read_text())["arrays"].values())
    files = [path for path in (folder / "stages").rglob("*") if path.is_file()]
    return sum(p.stat().st_size for p in files if str(p.relative_to(folder)) not in arrays)


def corpus_bytes(config: Path) -> int:
    files = config.with_name("rows.zarr").rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file())


def run(latentscale: Command, config: Path, *options: str) -> dict[str, Any]:
    ended = latentscale("run", config, "--json", "--quiet", *options)
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def reasons(results: dict[str, Any]) -> dict[str, str]:
    return {timing["stage"]: timing["reason"] for timing in results["timings"]}


@pytest.mark.parametrize(("n", "d"), [(500, 64), (1200, 32), (300, 384)])
def test_a_default_job_keeps_little(n: int, d: int, tmp_path: Path, latentscale: Command) -> None:
    """Whatever the shape of the corpus, from 130 KB on.

    Beside results and row arrays stay values, traces at 256 times and the markers of 19 stages, six
    of them of samples: up to 47 KB for a corpus, whatever its size. (Beyond 50 000 rows, where
    neighbours are searched in cells, their lists stay in the order of cells too: 48 bytes a row.)
    """
    config = write_job(tmp_path, n, d, {})
    run(latentscale, config)
    assert corpus_bytes(config) < 1e6
    assert kept_bytes(job_folder(config)) <= KEPT_SHARE * corpus_bytes(config)
    assert latentscale("run", config).out.endswith("this job was already finished\n")
    assert latentscale("verify", job_folder(config)).code == 0


def test_what_is_gone_is_computed_when_it_is_needed(tmp_path: Path, latentscale: Command) -> None:
    """Another measure needs nothing of it; another trace of the graph needs the graph."""
    config = write_job(tmp_path, 400, 8, {"measures": {"heat": {}, "vendi": {}}})
    first = run(latentscale, config)
    folder = job_folder(config)
    more = run(latentscale, config, "-o", "name=more", "-o", "measures.magnitude.scales=4")
    computed = {stage for stage, why in reasons(more).items() if why.startswith("computed")}
    # Rows of samples are drawn again for another measure of them.
    sampled = {"expected-magnitude", "sampled-rows-corpus"}
    assert computed - sampled == {
        *("distinct-euclidean-corpus", "convergence-corpus", "magnitude-corpus"),
    }
    assert set(reasons(more)) - computed == set(reasons(first)) - sampled
    assert more["measures"]["heat"] == first["measures"]["heat"]
    steps = run(latentscale, config, "-o", "name=steps", "-o", "measures.heat.steps=8")
    computed = {stage for stage, why in reasons(steps).items() if why.startswith("computed")}
    assert computed - {"sampled-rows-corpus"} == {"graph-corpus", "heat-corpus", "expected-heat"}

    for sibling in [*folder.parent.glob("more-*"), *folder.parent.glob("steps-*")]:
        shutil.rmtree(sibling)
    # Damage to what stays: all that it is made of is computed again, and goes again.
    for stage, array, redone in (
        ("heat-corpus", "trace", {"heat-corpus", "graph-corpus"}),
        ("neighbours-corpus", "indices", {"neighbours-corpus"}),
    ):
        [path] = (folder / "stages" / stage).rglob(f"{array}.npy")
        damage(path, "flipped", at=300)
        assert latentscale("verify", folder).code == 3
        again = run(latentscale, config, "--verify")
        assert timeless(again) == timeless(first)
        why = {stage: why for stage, why in reasons(again).items() if why != "already done"}
        assert set(why) == redone
        assert "differs from its checksum" in why[stage]
        assert why.get("graph-corpus") in {None, "computed: stage heat-corpus is computed again"}
        assert latentscale("verify", folder).code == 0
        assert kept_bytes(folder) < 36_000


def test_a_job_killed_while_it_removes_repeats_only_what_was_under_way(tmp_path: Path) -> None:
    """A process ended by SIGKILL as soon as anything is collected."""
    fields = {"measures": {"heat": {}, "magnitude": {"scales": 4}}, "name": "killed"}
    config = write_job(tmp_path, 700, 64, fields)
    jobs, generator = config.with_name("jobs"), np.random.default_rng(0)

    def collecting(seconds: float) -> bool:
        return any(jobs.glob("*/stages/*/*/collected.json"))

    found = disturb(config, jobs, [collecting], generator, roles=("driver",))
    assert found.killed
    assert found.codes == [-9, 0]
    assert found.again == []


def test_a_job_that_shuffles_keeps_little_and_counts_as_finished(
    in_cells: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From ``--keep`` on: what is removed, by whom, and what becomes of it afterwards."""
    whole = run(latentscale, in_cells, "--keep")
    folder = job_folder(in_cells)
    before = kept_bytes(folder)
    assert before > corpus_bytes(in_cells)
    superseded = folder / "stages/heat-corpus" / ("0" * 16) / "result.json"
    superseded.parent.mkdir()
    superseded.write_text("{}")
    dropped = folder / "stages/dropped" / ("0" * 16) / "result.json"
    dropped.parent.mkdir(parents=True)
    dropped.write_text("{}")

    # A kill in the middle of a collection loses nothing.
    remove = ObjectStore.remove_all

    def interrupt(store: ObjectStore, prefix: str = "") -> None:
        if "/search-corpus/" in prefix:
            raise KeyboardInterrupt
        remove(store, prefix)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "remove_all", interrupt)
        assert latentscale("run", in_cells).code == 3
    assert any((folder / "stages/search-corpus").rglob("*.npy"))
    assert not any((folder / "stages/regroup-corpus").rglob("*.npy"))

    # Run again without --keep: the results stay, the rest goes.
    assert timeless(run(latentscale, in_cells)) == timeless(whole)
    assert kept_bytes(folder) <= KEPT_SHARE * corpus_bytes(in_cells)
    assert not superseded.parent.exists()
    assert not dropped.parent.exists()
    for stage in TEMPORARY:
        [record] = (folder / "stages" / f"{stage}-corpus").rglob("*.*")
        assert record.name == "collected.json"
    for path in whole["arrays"].values():
        assert (folder / path).exists()

    # It counts as finished for everyone who asks.
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert latentscale("run", in_cells).out.endswith("this job was already finished\n")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == stamps
    assert latentscale("verify", folder).code == 0
    status = json.loads(latentscale("status", folder, "--json").out)
    assert status["state"] == "finished"
    assert {stage["state"] for stage in status["stages"]} == {"done"}
    seconds = {timing["stage"]: timing["seconds"] for timing in whole["timings"]}
    assert {stage["stage"]: stage["seconds"] for stage in status["stages"]} == seconds
    plan = json.loads(latentscale("plan", in_cells, "--json").out)
    assert {stage["reuse"] for stage in plan["stages"]} == {"already done"}
    for stage in ("regroup-corpus", "search-corpus", "heat-corpus"):
        assert latentscale("stage", "init", folder, stage).out.strip() == "0"

    # Another job has its results, and doesn't miss what is gone.
    other = run(latentscale, in_cells, "-o", "name=other")
    assert set(reasons(other).values()) == {f"reused from {folder.name}"}
    assert [t["seconds"] for t in other["timings"]] == [t["seconds"] for t in whole["timings"]]
    changed = reasons(run(latentscale, in_cells, "-o", "name=third", "-o", "measures.heat.steps=3"))
    assert changed["neighbours-corpus"] == f"reused from {folder.name}"
    assert changed["search-corpus"] == f"reused from {folder.name}"
    assert changed["heat-corpus"].startswith("computed")

    # Damage in what read it: all that is needed is computed again, and collected again.
    [path] = list((folder / "stages/neighbours-corpus").rglob("part-00001.*/indices.npy"))
    array = path.read_bytes()
    damage(path, "flipped", at=300)
    assert latentscale("verify", folder).code == 3
    again = run(latentscale, in_cells, "--verify")
    assert timeless(again) == timeless(whole)
    [path] = list((folder / "stages/neighbours-corpus").rglob("part-00001.*/indices.npy"))
    assert path.read_bytes() == array
    for stage, reason in reasons(again).items():
        redone = stage.startswith(("cells", "checks", "regroup-corpus", "search-corpus"))
        assert reason.startswith("computed") == redone, (stage, reason)
    assert kept_bytes(folder) <= KEPT_SHARE * corpus_bytes(in_cells)
    assert latentscale("verify", folder).code == 0
