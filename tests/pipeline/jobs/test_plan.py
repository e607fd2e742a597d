"""A plan says what a job will do and take, before it does anything."""

import json
import math
import os
import pickle
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentscale_pipeline.config.job import JobConfig, read_config
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.engine import calibration
from latentscale_pipeline.engine.calibration import TYPICAL, Rates, calibrate
from latentscale_pipeline.engine.code_closure import code_closure
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.keys import stage_keys
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import Task
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs import forecast, resources
from latentscale_pipeline.jobs.plan import measure_sections, plan_stages
from latentscale_pipeline.jobs.schedule import simulate_schedule
from latentscale_pipeline.jobs.stage_forecast import StageForecast
from latentscale_pipeline.jobs.worker_pool import STARTUP_SECONDS, WorkerPool, memory_shortfall
from latentscale_pipeline.measures.base import CorpusFacts, JobFacts
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.support import toy_stages as toy
from tests.support.jobs import results_of

Command = Callable[..., Ended]

MIB, GIB = 2**20, 2**30


def configured(text: str) -> JobConfig:
    return read_config(text, "job.yaml", measures=measure_sections())


# --- from facts alone -------------------------------------------------------------------------


def billion(**rest: Any) -> JobFacts:
    """Facts of 10⁹ rows of 384 float16 dimensions in shards of 64 MiB."""
    rows = 87_040
    shards = -(-(10**9) // rows)
    corpus = CorpusFacts(n=10**9, d=384, dtype="float16", shards=shards, shard_rows=rows)
    return JobFacts({"corpus": corpus}, seed=0, pairs=2e11, scale_role="corpus", **rest)


def test_a_billion_rows_are_planned_at_once() -> None:
    config = configured(
        "name: a\ncorpus: c\ncluster: {memory_limit: 100TiB}\n"
        "measures: {heat: {}, magnitude: {}, vendi: {kernels: [cosine]}}\n"
    )
    plan_stages(config, billion())  # imports what the stages compute with
    begun = time.process_time()
    stages = {stage.name: stage for stage in plan_stages(config, billion())}
    assert time.process_time() - begun < 0.5
    assert max(stage.tasks for stage in stages.values()) < 10**5
    moments = stages["vendi-cosine-corpus"]
    assert moments.partitions == math.ceil(11_490 / 8)
    stored, matrix = 384 * 2 * 10**9, 8 * 384**2
    assert moments.cost_estimate.bytes_read == stored + 1437 * matrix
    assert moments.cost_estimate.bytes_written == pytest.approx(1438 * matrix, rel=1e-3)
    assert moments.cost_estimate.total_multiply_adds == pytest.approx(10**9 * 384**2 / 2, rel=1e-3)
    # A shard in its own type, as float64 twice, and a few moments.
    assert moments.memory_bytes < 87_040 * 384 * (2 + 16) + 14 * matrix
    neighbours = stages["neighbours-corpus"]
    assert neighbours.cost_estimate.method == "cells, overlap 2 or more"
    assert neighbours.cost_estimate.why == "more than 50,000 rows"
    cells = ("cells", "checks", "regroup-coarse", "regroup", "search", "neighbours")
    for name in (*cells, "graph", "laplacian", "heat"):
        assert stages[f"{name}-corpus"].memory_bytes < 1.7 * GIB, name
        assert stages[f"{name}-corpus"].partitions < 30_000, name
    # A task stores a marker, at most five arrays, and one object of sections.
    assert all(7 * stage.tasks < 10**6 for stage in stages.values())
    coarse = stages["regroup-coarse-corpus"].parameters["coarse"]
    groups = stages["search-corpus"].partitions
    # Sections that either pass writes, and readers ask for, instead of 3e8 by one pass.
    assert 11_489 * coarse < 3e6
    assert stages["regroup-corpus"].partitions * groups / coarse < 4e6
    heat = stages["heat-corpus"].cost_estimate
    assert heat.method == "4 probes of 10 Lanczos steps by row blocks"
    # A tenth of the rows of twelve vectors, as float64.
    assert heat.why.endswith("each step exchanges about 9.6e+09 bytes")
    assert heat.iterations == 20
    magnitude = stages["magnitude-corpus"].cost_estimate
    assert magnitude.method == "subsample"
    assert magnitude.why == "all pairs of rows would take more than budget.pairs 2.0e+11"


def test_a_client_holds_the_tasks_of_a_billion_rows() -> None:
    config = configured(
        "name: a\ncorpus: c\ncluster: {memory_limit: 100TiB}\nmeasures: {heat: {}, magnitude: {}}\n"
    )
    before = psutil.Process().memory_info().rss
    stages = plan_stages(config, billion())
    keys = stage_keys(stages, {"corpus": "0" * 32})
    store = ObjectStore("/nowhere")
    tasks = [
        Task(store, stage, index, {stage.name: keys[stage.name]}, {}, "attempt")
        for stage in stages
        for index in range(stage.partitions)
    ]
    assert len(tasks) > 140_000
    assert psutil.Process().memory_info().rss - before < GIB // 4
    largest = max(len(pickle.dumps(task)) for task in tasks[::997])
    # Everything that a stage hands over at once.
    assert largest * max(stage.partitions for stage in stages) < GIB // 2


def test_only_what_fits_a_billion_rows_is_accepted() -> None:
    config = configured("name: a\ncorpus: c\nmeasures: {vendi: {kernels: [cosine]}}\n")
    assert [stage.name for stage in plan_stages(replace_limit(config, "1GiB"), billion())] == [
        "hashes-corpus",
        "duplicates-corpus",
        "vendi-cosine-corpus",
    ]
    config = configured("name: a\ncorpus: c\nmeasures: {heat: {}}\n")
    with pytest.raises(BadInput) as refused:
        plan_stages(replace_limit(config, "1GiB"), billion())
    needed = re.search(r"set cluster.memory_limit to ([\d.]+)GiB or more", str(refused.value))
    assert needed is not None
    assert 1.0 < float(needed[1]) <= 2.0
    plan_stages(replace_limit(config, f"{needed[1]}GiB"), billion())
    with pytest.raises(BadInput):
        plan_stages(replace_limit(config, f"{float(needed[1]) - 0.1:.1f}GiB"), billion())


def replace_limit(config: JobConfig, limit: str) -> JobConfig:
    cluster = type(config.cluster).model_validate({"memory_limit": limit})
    return config.model_copy(update={"cluster": cluster})


@pytest.mark.parametrize(
    ("measures", "n", "chosen"),
    [
        ("heat: {}", 50_000, ("exact", "at most 50,000 rows")),
        (
            "heat: {}",
            50_001,
            ("cells, overlap 2 or more", "more than 50,000 rows"),
        ),
        ("heat: {neighbours: exact}", 60_000, ("exact", "heat.neighbours is exact")),
        ("heat: {overlap: 3, neighbours: cells}", 9000, None),
        ("vendi: {kernels: [rbf]}", 3000, ("exact", "at most 3,000 rows")),
        (
            "vendi: {kernels: [rbf]}",
            3001,
            ("lanczos", "more than 3,000 rows"),
        ),
        (
            "vendi: {kernels: [rbf]}",
            10**8,
            ("subsample", "all pairs would take more than budget.pairs 1.0e+15"),
        ),
        ("vendi: {kernels: [rbf], method: nystrom}", 99, ("nystrom", "vendi.method is nystrom")),
        ("magnitude: {}", 1200, ("cholesky", "at most 1,200 rows")),
        ("magnitude: {}", 1201, ("cg", "more than 1,200 rows")),
    ],
)
def test_what_auto_chose_and_why(measures: str, n: int, chosen: tuple[str, str] | None) -> None:
    config = configured(
        f"name: a\ncorpus: c\ncluster: {{memory_limit: 1TiB}}\nmeasures: {{{measures}}}\n"
    )
    corpus = CorpusFacts(n=n, d=16, dtype="float32", shards=1, shard_rows=n)
    facts = JobFacts({"corpus": corpus}, seed=0, pairs=1e15, scale_role="corpus")
    name = {"h": "neighbours-corpus", "v": "vendi-rbf-median-corpus", "m": "magnitude-corpus"}
    stages = {stage.name: stage for stage in plan_stages(config, facts)}
    cost_estimate = stages[name[measures[0]]].cost_estimate
    if chosen is None:
        chosen = ("cells, overlap 3", "heat.neighbours is cells")
    assert (cost_estimate.method, cost_estimate.why) == chosen


@pytest.mark.parametrize("n", [300, 200_000])
def test_every_stage_states_what_it_takes(n: int) -> None:
    config = configured("name: a\ncorpus: c\nreference: r\ncluster: {memory_limit: 1TiB}\n")
    corpus = CorpusFacts(n=n, d=16, dtype="float32", shards=3, shard_rows=n // 3 + 1)
    facts = JobFacts({"corpus": corpus, "reference": corpus}, 0, 2e11, "reference")
    for stage in plan_stages(config, facts):
        assert stage.cost_estimate.bytes_written > 0, stage.name
        assert stage.cost_estimate.bytes_read > 0, stage.name
        assert 0 < stage.memory_bytes < 2**40, stage.name


# --- arithmetic -------------------------------------------------------------------------------

WORKER_POOL = WorkerPool(workers=2, threads=4, memory_limit=2 * GIB, idle_bytes=GIB // 2, cores=8)


def stage_of(memory: int, partitions: int = 1, **rest: Any) -> Stage:
    finalise = toy.add_up if partitions > 1 else None
    return Stage("a", toy.draw, memory, partitions=partitions, finalise=finalise, **rest)


@pytest.mark.parametrize(
    ("memory", "partitions", "at_once"),
    [(GIB, 100, 2), (GIB // 2, 100, 6), (1, 100, 8), (1, 5, 5), (4 * GIB, 9, 2), (0, 100, 8)],
)
def test_memory_threads_and_partitions_limit_what_runs_at_once(
    memory: int, partitions: int, at_once: int
) -> None:
    assert WORKER_POOL.at_once(stage_of(memory, partitions)) == at_once


@pytest.mark.parametrize(
    ("partitions", "left", "cores", "seconds"),
    [
        (8, 1.0, 8, 10.0),  # all at once
        (9, 1.0, 8, 80 / 9 * 2),  # one more takes as long again
        (8, 0.5, 8, 10.0),  # half of the work, on half of the slots
        (8, 1.0, 2, 40.0),  # four tasks share a core
        (1, 1.0, 8, 80.0),
        (8, 0.0, 8, 0.0),
    ],
)
def test_time_of_a_stage(partitions: int, left: float, cores: int, seconds: float) -> None:
    worker_pool = replace(WORKER_POOL, cores=cores)
    previewed = StageForecast(
        stage_of(1, partitions), worker_pool, "computed", left, 0, 0, 80.0 * left
    )
    assert previewed.seconds == pytest.approx(seconds)


def test_time_of_a_cost_estimate() -> None:
    rates = Rates(
        float64_multiply_adds=10.0,
        float32_multiply_adds=20.0,
        elementwise_operations=5.0,
        read_bytes=100.0,
    )
    cost_estimate = CostEstimate(
        200,
        100,
        float64_multiply_adds=30.0,
        float32_multiply_adds=40.0,
        elementwise_operations=20.0,
    )
    assert rates.seconds(cost_estimate) == 3.0 + 2.0 + 4.0 + 3.0
    assert cost_estimate.total_multiply_adds == 70.0


def test_a_job_takes_as_long_as_its_order_says() -> None:
    pool = replace(WORKER_POOL, workers=2, threads=1)

    def previewed(name: str, seconds: float, needs: tuple[str, ...] = ()) -> StageForecast:
        stage = Stage(name, toy.draw, 1, needs=needs)
        return StageForecast(stage, pool, "computed", 1.0, 0, 0, seconds)

    def total(parts: list[StageForecast], ingest_seconds: float) -> dict[str, Any]:
        schedule = simulate_schedule([part.pending for part in parts], pool)
        return forecast._total(parts, schedule, ingest_seconds)

    chain = [previewed("a", 5.0), previewed("b", 7.0, ("a",)), previewed("c", 1.0)]
    assert total(chain, 2.0)["seconds"] == 2.0 + STARTUP_SECONDS + 12.0
    assert total(chain, 2.0)["work_seconds"] == 13.0
    wide = [previewed("a", 5.0), previewed("b", 7.0), previewed("c", 10.0)]
    # The last begins when the first is done.
    assert total(wide, 0.0)["seconds"] == STARTUP_SECONDS + 5.0 + 10.0


def test_calibration_takes_a_second_and_reads_little() -> None:
    asked: list[int] = []

    def pieces() -> Iterator[int]:
        while True:
            asked.append(1)
            time.sleep(0.15)
            yield 3 * 10**6

    begun = time.perf_counter()
    rates = calibrate(pieces())
    assert time.perf_counter() - begun < 10.0, "a second or two where nothing else runs"
    assert len(asked) <= 3
    assert 1e6 < rates.read_bytes < 2.1e7
    assert min(rates.float64_multiply_adds, rates.float32_multiply_adds) > 1e8
    assert 1e6 < rates.elementwise_operations < rates.float64_multiply_adds
    # Rows in memory aren't read.
    assert calibrate(iter(())).read_bytes == TYPICAL.read_bytes


def test_calibration_times_as_many_threads_at_once_as_will_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = threading.Barrier(3)

    def time_of(work: Callable[[], object]) -> float:
        together.wait(30.0)
        return 0.5

    monkeypatch.setattr(calibration, "_usual_time", time_of)
    rates = calibrate(iter(()), 3)
    assert rates.elementwise_operations == calibration.TILE_ROWS**2 / 0.5


def test_workers_must_fit_into_the_machine() -> None:
    stage = stage_of(GIB, 100)
    worker_pool = WorkerPool(
        workers=8, threads=1, memory_limit=2 * GIB, idle_bytes=GIB // 2, cores=8
    )
    assert memory_shortfall(worker_pool, [stage], 12 * GIB) is None
    assert memory_shortfall(worker_pool, [stage], 10 * GIB) == (
        "stage a needs 12.0GiB for 8 tasks at once on 8 workers and this machine has 10.0GiB; "
        "set cluster.workers to 6"
    )
    assert memory_shortfall(replace(worker_pool, workers=6), [stage], 10 * GIB) is None
    assert "needs 1.5GiB in one process and this machine has 1.0GiB" in str(
        memory_shortfall(worker_pool, [stage], GIB)
    )
    elsewhere = replace(worker_pool, here=False)
    assert memory_shortfall(elsewhere, [stage], GIB) is None


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare every plan the second that it takes to measure this machine."""
    monkeypatch.setattr(forecast, "calibrate", lambda pieces, threads: Rates(2e10, 4e10, 1e9, 1e9))


@pytest.fixture
def job(tmp_path: Path, _known_rates: None) -> Path:
    """A job on 300 and 250 rows that aren't a corpus yet."""
    generator = np.random.default_rng(9)
    for role, n in (("corpus", 300), ("reference", 250)):
        np.save(tmp_path / f"{role}.npy", generator.normal(size=(n, 8)).astype("f4"))
    config = tmp_path / "job.yaml"
    described = {
        "name": "planned",
        "corpus": str(tmp_path / "corpus.npy"),
        "reference": str(tmp_path / "reference.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"heat": {"times": {"count": 8}}, "geomca": {}, "vendi": {}},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(described))
    return config


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    found = [(path, path.stat()) for path in folder.rglob("*")]
    return {str(path): (state.st_size, state.st_mtime_ns) for path, state in found}


def planned(latentscale: Command, job: Path, *arguments: str) -> dict[str, Any]:
    ended = latentscale("plan", job, "--json", *arguments)
    assert ended.code == 0, ended.err
    document: dict[str, Any] = json.loads(ended.out)
    assert document["schema"] == "latentscale.plan/1"
    return document


def by_stage(document: dict[str, Any], field: str) -> dict[str, Any]:
    return {stage["stage"]: stage[field] for stage in document["stages"]}


def test_sources_are_read_to_their_headers_and_nothing_is_written(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    before = tree(tmp_path)
    document = planned(latentscale, job)
    assert tree(tmp_path) == before
    assert document["job"] == {
        "id": None, "name": "planned", "config_hash": None, "folder": None,
    }  # fmt: skip
    corpus = document["corpora"]["corpus"]
    assert (corpus["n"], corpus["d"], corpus["dtype"], corpus["shards"]) == (300, 8, "float32", 1)
    assert corpus["ingested_first"]
    assert corpus["fingerprint"] is None
    assert set(by_stage(document, "reuse").values()) == {"computed"}
    assert document["config"]["measures"]["heat"]["k"] == 5
    assert document["disk"]["missing_bytes"] == document["disk"]["needed_bytes"]
    free = shutil.disk_usage(tmp_path).free  # other processes write meanwhile
    assert document["disk"]["free_bytes"] == pytest.approx(free, rel=0.1, abs=4 * GIB)


def test_a_source_that_is_slow_to_read_delays_its_ingest_alone(
    job: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "WORTH_AN_ESTIMATE_SECONDS", 0.0)
    quick = planned(latentscale, job)
    slow_rates = Rates(2e10, 4e10, 1e9, 300.0)
    monkeypatch.setattr(forecast, "calibrate", lambda pieces, threads: slow_rates)
    slow = planned(latentscale, job)
    assert by_stage(slow, "seconds") == by_stage(quick, "seconds")
    # The sources are read, the rows written, and read back.
    size = (300 + 250) * 8 * 4
    assert slow["total"]["ingest_seconds"] == pytest.approx(3 * size / 300, rel=0.01)


def test_a_prospect_is_what_ingest_makes(job: Path, latentscale: Command) -> None:
    previewed = planned(latentscale, job)["corpora"]
    assert latentscale("run", job).code == 0
    found = planned(latentscale, job)["corpora"]
    for role, corpus in previewed.items():
        assert found[role]["uri"] == corpus["target"]
        for field in ("n", "d", "dtype", "shards", "bytes"):
            assert found[role][field] == corpus[field]
        assert found[role]["fingerprint"] == open_corpus(corpus["target"]).fingerprint


def test_what_will_not_be_computed_is_said(tmp_path: Path, latentscale: Command) -> None:
    generator = np.random.default_rng(1)
    for name, rows in (("few", 15), ("many", 40)):
        np.save(tmp_path / f"{name}.npy", generator.normal(size=(rows, 4)))
    arguments = (tmp_path / "few.npy", "--reference", tmp_path / "many.npy")
    measures = ("--measures", "mmd,vendi", "-o", f"output={tmp_path / 'jobs'}")
    planned = latentscale("plan", *arguments, *measures)
    assert planned.code == 0
    assert "\nmmd: not computed: the corpus has fewer than 20 rows\n" in planned.out
    document = json.loads(latentscale("plan", *arguments, *measures, "--json").out)
    assert document["not_computed"] == {"mmd": "the corpus has fewer than 20 rows"}
    assert "mmd: not computed: the corpus" in latentscale("run", *arguments, *measures).out


def test_columns_of_sources_are_planned_before_they_are_read(
    tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels and weights decide stages and memory; forecasts know them from the headers."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for name, rows in (("a", 300), ("b", 200)):
        table = {
            "id": [f"{name}{row}" for row in range(rows)],
            "label": generator.choice(["x", "y"], rows).tolist(),
            "weight": generator.random(rows),
            "vector": list(generator.normal(size=(rows, 4)).astype("f4")),
        }
        pq.write_table(pa.table(table), f"{name}.parquet")
    asked = ("a.parquet", "--reference", "b.parquet", "--measures", "vendi,label_shares")
    settings = ("-o", "measures.vendi.labels=true", "-o", "measures.vendi.kernels=[cosine]")
    before = json.loads(latentscale("plan", *asked, *settings, "--json").out)
    assert latentscale("run", *asked, *settings).code == 0
    after = json.loads(latentscale("plan", *asked, *settings, "--json").out)
    for field in ("tasks", "projected_memory_bytes"):
        assert by_stage(before, field) == by_stage(after, field)
    assert {"label-counts-corpus", "label-counts-reference"} <= {*by_stage(before, "tasks")}
    refused = latentscale("plan", "a.parquet", "--output", "new", "-o", "group_by=labels")
    assert "the rows of each label are known once the source is ingested" in refused.err


def test_a_job_takes_what_was_planned(job: Path, latentscale: Command, tmp_path: Path) -> None:
    rows = np.random.default_rng(2).normal(size=(4000, 8)).astype("f4")
    np.save(tmp_path / "corpus.npy", rows)
    document = planned(latentscale, job, "-o", "measures.vendi.kernels=[cosine]")
    assert latentscale("run", job, "-o", "measures.vendi.kernels=[cosine]", "--keep").code == 0
    results = results_of(tmp_path / "jobs")
    assert by_stage(document, "tasks") == {t["stage"]: t["tasks"] for t in results["timings"]}
    assert by_stage(document, "projected_memory_bytes") == {
        t["stage"]: t["projected_memory_bytes"] for t in results["timings"]
    }
    [folder] = (tmp_path / "jobs").glob("planned-*")
    previewed = by_stage(document, "bytes_written")
    for stage, size in previewed.items():
        written = sum(f.stat().st_size for f in (folder / "stages" / stage).rglob("*.*"))
        assert 0.6 * written - 6000 < size < 2.0 * written + 1000, stage
    whole = sum(path.stat().st_size for path in (tmp_path / "jobs").rglob("*"))
    disk = document["disk"]
    # Nothing was removed.
    expected = disk["needed_bytes"] - disk["peak_bytes"] + disk["written_bytes"]
    assert 0.8 * whole < expected < 1.25 * whole
    assert disk["kept_bytes"] <= disk["peak_bytes"] <= disk["written_bytes"]
    for name in ("config.json", "plan.json"):
        json.loads((folder / name).read_text(), parse_constant=pytest.fail)
    recorded = json.loads((folder / "plan.json").read_text())
    for stage in recorded["stages"]:
        assert stage["tasks"] == by_stage(document, "tasks")[stage["stage"]]
        assert stage["depends_on"]["stage"] == stage["stage"]


def test_what_is_there_will_be_reused(job: Path, latentscale: Command, tmp_path: Path) -> None:
    assert latentscale("run", job).code == 0
    before = tree(tmp_path)
    document = planned(latentscale, job)
    assert tree(tmp_path) == before
    [folder] = (tmp_path / "jobs").glob("planned-*")
    assert document["job"]["folder"] == str(folder)
    assert set(by_stage(document, "reuse").values()) == {"already done"}
    assert document["total"]["tasks_left"] == 0
    assert document["total"]["seconds"] == 0.0
    assert document["disk"]["missing_bytes"] == 0
    ended = latentscale("plan", job)
    assert "none; this job is finished" in ended.out


def test_damage_is_foreseen_and_left_for_the_run(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    assert latentscale("run", job).code == 0
    [array] = (tmp_path / "jobs").glob("planned-*/stages/heat-corpus/*/*/trace.npy")
    array.write_bytes(array.read_bytes()[:-8])
    before = tree(tmp_path)
    document = planned(latentscale, job)
    assert tree(tmp_path) == before
    left = by_stage(document, "left")
    assert left.pop("heat-corpus") == 1.0
    assert left.pop("graph-corpus") == 1.0, "it went when the job was finished"
    assert set(left.values()) == {0.0}
    why = by_stage(document, "reuse")["heat-corpus"]
    assert why.startswith("recomputed: ")
    assert why.endswith(" bytes, not 192")
    graph = by_stage(document, "reuse")["graph-corpus"]
    assert graph == "computed: stage heat-corpus is computed again"
    assert document["total"]["tasks_left"] == 2


def test_why_a_sibling_can_or_can_not_lend(job: Path, latentscale: Command, tmp_path: Path) -> None:
    assert latentscale("run", job).code == 0
    [first] = (tmp_path / "jobs").glob("planned-*")
    reuse = by_stage(planned(latentscale, job, "-o", "measures.geomca.delta=0.5"), "reuse")
    assert {reuse.pop(f"sparsify-{role}") for role in ("corpus", "reference")} == {
        f"computed: configuration (delta 1.0 → 0.5) changed since {first.name}"
    }
    assert reuse.pop("geomca") == (
        "computed: stage sparsify-reference, stage sparsify-corpus changed since " + first.name
    )
    assert reuse.pop("expected-geomca").startswith("computed: configuration (")
    assert [reuse.pop(f"sampled-rows-{role}") for role in ("corpus", "reference")] == [
        "computed"
    ] * 2
    assert set(reuse.values()) == {f"reused from {first.name}"}

    reuse = by_stage(planned(latentscale, job, "-o", "seed=1"), "reuse")
    assert reuse["duplicates-corpus"] == f"reused from {first.name}"
    neighbours = reuse["neighbours-corpus"]
    assert neighbours == f"reused from {first.name}", "exact neighbours need no seed"
    assert reuse["heat-corpus"] == (
        f"computed: configuration (seed 0 → 1) changed since {first.name}"
    )
    np.save(tmp_path / "corpus.npy", np.random.default_rng(1).normal(size=(200, 8)).astype("f4"))
    assert latentscale("ingest", tmp_path / "corpus.npy", tmp_path / "other.zarr").code == 0
    other = planned(latentscale, job, "-o", f"corpus={tmp_path / 'other.zarr'}")
    assert by_stage(other, "reuse")["neighbours-corpus"] == (
        f"computed: input (corpus) changed since {first.name}"
    )
    assert by_stage(other, "reuse")["neighbours-reference"] == f"reused from {first.name}"


def test_changed_code_is_named(
    job: Path, latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert latentscale("run", job).code == 0
    monkeypatch.setattr(
        "latentscale_pipeline.engine.keys.code_closure",
        lambda modules: {**code_closure(modules), "latentscale.estimate": "other"},
    )
    reuse = by_stage(planned(latentscale, job), "reuse")
    assert set(reuse.values()) == {
        "computed: code (latentscale.estimate) changed since the last run"
    }


def test_the_tables_show_every_stage(job: Path, latentscale: Command) -> None:
    vendi = ("plan", job, "-o", "measures={vendi: {kernels: [cosine, rbf]}}")
    short, ended = latentscale(*vendi), latentscale(*vendi, "--stages")
    assert (short.code, ended.code) == (0, 0), ended.err
    assert len(short.out.splitlines()) <= 24
    assert [line.split()[0] for line in short.out.splitlines()[:6]] == [
        *("corpus", "reference", "time", "memory", "disk", "folder")
    ]
    assert "ingested first to " in short.out
    lines = [line.split("  ") for line in ended.out.splitlines() if line]
    shown = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    [cosine] = (line for line in shown if line[0] == "vendi-cosine-corpus")
    assert cosine[1:3] == ["2", "1"]
    assert cosine[-1] == "none"
    [rbf] = (line for line in shown if line[0] == "vendi-rbf-median")
    assert rbf[1:-1] == ["corpus, reference", "exact", "at most 3,000 rows"]
    assert ["bandwidth", "median distance of random pairs"] in [line[:2] for line in shown]


def refusal(ended: Ended) -> str:
    assert ended.code == 2
    assert ended.out == ""
    [line] = ended.err.strip().splitlines()
    return line


def test_a_refused_memory_limit_names_one_that_fits(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    np.save(tmp_path / "corpus.npy", np.zeros((11_000, 2), "f2") + 1)
    arguments = (
        "plan", job, "-o", "reference=null", "-o", "measures={vendi: {kernels: [rbf]}}",
        "-o", "cluster.memory_limit=1GiB",
    )  # fmt: skip
    line = refusal(latentscale(*arguments))
    assert line.startswith("latentscale: stage vendi-rbf-median-corpus needs 1.3GiB in one process")
    assert "cluster.memory_limit is 1.0GiB; set cluster.memory_limit to 1.3GiB or more" in line
    assert latentscale(*arguments, "-o", "cluster.memory_limit=1.3GiB").code == 0


@pytest.mark.parametrize("measure", ["magnitude: {}", "vendi: {kernels: [rbf]}"])
def test_a_refused_budget_names_one_that_fits(
    job: Path, latentscale: Command, measure: str
) -> None:
    arguments = ("plan", job, "-o", f"measures={{{measure}}}", "-o", "budget.pairs=1.0e+3")
    line = refusal(latentscale(*arguments))
    enough = line.partition("set budget.pairs to ")[2].partition(",")[0]
    assert enough.startswith({"m": "1.4e+06", "v": "9.0e+04"}[measure[0]])
    assert latentscale(*arguments, "-o", f"budget.pairs={enough}").code == 0


def test_a_full_disk_is_foreseen(
    job: Path, latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def usage(place: Path) -> Any:
        asked.append(place)
        return shutil._ntuple_diskusage(10**9, 10**9 - MIB // 8, MIB // 8)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    ended = latentscale("plan", job)
    assert ended.code == 0
    assert ended.out.startswith("corpus "), "another machine may have the disk"
    line = ended.err.removeprefix("warning: ").strip()
    assert re.fullmatch(
        rf"output {tmp_path / 'jobs'}: the job writes \d+ KiB and 128 KiB are free there; "
        r"set output to a larger disk, or free \d+ KiB",
        line,
    )
    assert set(asked) == {tmp_path}, "the folder that the output will be made in"
    # The sources are ingested now, and take their place already.
    digits = re.compile(r"\d+ KiB")
    refused = refusal(latentscale("run", job, "--quiet"))
    assert digits.sub("…", refused) == digits.sub("…", f"latentscale: {line}")
    assert not list((tmp_path / "jobs").rglob("results")), "nothing has run"


def test_too_little_memory_is_a_warning_of_plan_and_a_refusal_of_run(
    job: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "memory_bytes", lambda: 2**28)
    ended = latentscale("plan", job)
    assert ended.code == 0
    assert "in one process and this machine has 0.2GiB; run it on a larger one" in ended.err
    assert ended.err.removeprefix("warning: ") == latentscale(
        "run", job, "--quiet"
    ).err.removeprefix("latentscale: ")


def test_an_output_below_a_file_is_refused(job: Path, latentscale: Command, tmp_path: Path) -> None:
    line = refusal(latentscale("plan", job, "--output", tmp_path / "corpus.npy" / "jobs"))
    assert line.endswith(f"{tmp_path / 'corpus.npy'} is a file; name a folder")


def test_other_refusals_are_those_of_run(job: Path, latentscale: Command, tmp_path: Path) -> None:
    assert "nowhere.npy" in refusal(latentscale("plan", job, "-o", "corpus=nowhere.npy"))
    assert "did you mean heat?" in refusal(latentscale("plan", job, "-o", "measures.heet.k=1"))
    np.save(tmp_path / "reference.npy", np.ones((20, 3), "f4"))
    assert "geomca needs equal dimensions" in refusal(latentscale("plan", job))
    assert not os.path.exists(tmp_path / "jobs")


def test_measures_that_nobody_named_are_left_out_where_they_do_not_apply(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    described = json.loads(job.read_text())
    del described["measures"]
    job.write_text(json.dumps(described))

    def stages() -> set[str]:
        ended = latentscale("plan", job, "--json")
        assert ended.code == 0, ended.err
        return {stage["stage"] for stage in json.loads(ended.out)["stages"]}

    assert {"imd", "epsilon"} <= stages()
    np.save(tmp_path / "reference.npy", np.random.default_rng(0).normal(size=(90, 3)))
    assert "imd" in stages()
    assert not {name for name in stages() if name.startswith(("geomca", "abundance", "epsilon"))}
    assert "abundance needs equal dimensions" in refusal(
        latentscale("plan", job, "-o", "measures.geomca.percentile=5")
    )


def test_a_plan_for_an_object_store(
    job: Path, latentscale: Command, tmp_path: Path, s3_url: str
) -> None:
    target = f"{s3_url}/corpus.zarr"
    assert latentscale("ingest", tmp_path / "corpus.npy", target).code == 0
    arguments = ("-o", f"corpus={target}", "-o", f"output={s3_url}/jobs")
    document = planned(latentscale, job, *arguments)
    assert document["disk"]["free_bytes"] is None
    assert document["corpora"]["corpus"]["uri"] == target
    assert document["corpora"]["reference"]["target"].startswith(f"{s3_url}/jobs/corpora/")


@pytest.mark.full
def test_estimated_work_is_near_what_it_takes(
    job: Path, latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "calibrate", calibrate)
    generator = np.random.default_rng(3)
    for role in ("corpus", "reference"):
        np.save(tmp_path / f"{role}.npy", generator.normal(size=(5000, 64)).astype("f4"))
    measures = "measures={heat: {}, geomca: {}, vendi: {kernels: [cosine, rbf]}}"
    estimated = planned(latentscale, job, "-o", measures)["total"]["work_seconds"]
    begun = time.process_time()
    assert latentscale("run", job, "-o", measures).code == 0
    taken = time.process_time() - begun
    assert taken / 3 < estimated < 3 * taken
