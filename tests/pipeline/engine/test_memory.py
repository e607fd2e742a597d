"""Measured memory stands beside projected memory, and limits are kept."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import pytest

from latentscale.graphs.knn import summarise, symmetrise
from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.engine.keys import stage_keys
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.memory import IDLE_WORKER_BYTES
from latentscale_pipeline.engine.resource_usage import measured
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.engine.task import FINALISE, Task, run_task
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.jobs.plan import corpus_facts
from latentscale_pipeline.measures.base import JobFacts
from latentscale_pipeline.measures.geomca.config import Geomca
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.measures.vendi.config import Vendi
from latentscale_pipeline.storage.artifacts import Cost, Output, read_marker
from latentscale_pipeline.storage.objects import ObjectStore
from tests.acceptance.run import watch
from tests.support import toy_stages as toy
from tests.support.artifacts import write_artifact
from tests.support.jobs import results_of

MIB, GIB = 2**20, 2**30
MARGIN = 1.2
"""By how much a task may exceed what was projected for it, and the other way round."""

MIN_IDLE_BYTES = 80 * MIB
"""What a forked worker holds beyond pages that it shares and has not touched."""

LARGE = 256 * MIB
"""Arrays of tasks that are held to it: below, an idle worker's own memory decides."""


# --- measuring --------------------------------------------------------------------------------


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def test_a_peak_is_the_process_and_what_the_block_held() -> None:
    before = resident()
    with measured() as measurement:
        held = np.ones(300 * MIB, dtype=np.uint8)
        time.sleep(0.1)
        del held
    cost = measurement.cost()
    assert cost.peak_memory_bytes == pytest.approx(before + 300 * MIB, rel=0.05)
    assert 0.1 < cost.seconds < 5.0
    assert cost.tasks_at_once == 1


BRIEF_PEAK = """
import psutil
from latentscale_pipeline.engine.resource_usage import measured
before = psutil.Process().memory_info().rss
with measured() as measurement:
    # Python's lock is held while this is copied, so no sampler can run.
    pattern = bytes(1) * (400 * 2**20)
    del pattern
print((measurement.cost().peak_memory_bytes - before) / 2**20)
"""


def test_a_peak_between_two_samples_is_found_where_it_is_the_highest_yet() -> None:
    # In a process of its own: here, another test's peak may be the highest yet.
    command = [sys.executable, "-c", BRIEF_PEAK]
    grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown == pytest.approx(400, rel=0.1)


def test_tasks_that_share_a_process_say_so() -> None:
    together = threading.Barrier(3)
    costs: dict[int, Cost] = {}

    def work(number: int) -> None:
        with measured() as measurement:
            together.wait(timeout=30)
            time.sleep(0.05)
        costs[number] = measurement.cost()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with measured() as alone:
        pass
    assert [costs[number].tasks_at_once for number in range(3)] == [3, 3, 3]
    assert alone.cost().tasks_at_once == 1


def test_threads_of_one_worker_are_told_in_the_marker(tmp_path: Path) -> None:
    stage = Stage("wait", toy.wait_for_each_other, 1, partitions=2, finalise=toy.count_parts,
                  parameters={"folder": str(tmp_path / "met")})  # fmt: skip
    work = Work(ObjectStore(str(tmp_path / "job")), [stage], stage_keys([stage], {}), {}, keep=True)
    (tmp_path / "met").mkdir()
    executor = Local(workers=1, threads=2, memory_limit=GIB)
    run_stages(
        work, inspect_stages(work), lambda: local_cluster(executor), "a", lambda event, **_: None
    )
    result = work.result(stage)
    assert [result.partition(index).cost.tasks_at_once for index in range(2)] == [2, 2]
    assert result.cost.tasks_at_once == 1


def test_a_peak_counts_what_is_written(tmp_path: Path) -> None:
    stage = Stage("large", toy.make_large, 1, parameters={"megabytes": 200})
    store = ObjectStore(str(tmp_path))
    before = resident()
    cost = run_task(Task(store, stage, 0, {"large": "stages/large/key"}, {}, "a"))
    marker = read_marker(store, "stages/large/key/result")
    assert marker is not None
    assert marker.cost == cost
    assert cost.peak_memory_bytes - before > 380 * MIB, "the array, and its bytes on their way"


# --- a job within its limit -------------------------------------------------------------------


def test_large_tasks_take_what_was_projected_and_no_process_more_than_its_limit(
    tmp_path: Path,
) -> None:
    rows = np.random.default_rng(0).normal(size=(3500, 4096)).astype("f2")
    np.save(tmp_path / "rows.npy", rows)
    described = {
        "name": "large",
        "corpus": str(tmp_path / "rows.npy"),
        "reference": str(tmp_path / "rows.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"geomca": {"epsilon": 1.0}},
        "sampling": {"method": "none"},
        "cluster": {"kind": "local", "workers": 2, "memory_limit": "1GiB"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(described))
    watched = watch("run", tmp_path / "job.yaml", "--quiet", interval=0.05)
    assert watched.code == 0, watched.err
    assert watched.driver < 2 * GIB
    assert max(watched.workers.values()) < GIB
    large = set()
    for timing in results_of(tmp_path / "jobs")["timings"]:
        peak, projected = timing["peak_memory_bytes"], timing["projected_memory_bytes"]
        assert timing["tasks_at_once"] == 1
        assert peak < MARGIN * projected, timing
        if projected - IDLE_WORKER_BYTES >= LARGE:
            assert projected - IDLE_WORKER_BYTES < MARGIN * (peak - MIN_IDLE_BYTES), timing
            large.add(timing["stage"])
    assert large == {"sparsify-corpus", "sparsify-reference", "geomca"}


# --- every stage, at several sizes ------------------------------------------------------------

SCALES = [number / 10 for number in range(20)]

Case = tuple[str, Section | None, int, int, str]

CASES: list[Case] = [
    ("hashes-corpus", None, 8_000_000, 4, "f2"),
    ("hashes-corpus", None, 20_000_000, 2, "f2"),
    ("neighbours-corpus", Heat(), 50_000, 1500, "f2"),
    ("neighbours-corpus", Heat(neighbours="exact"), 90_000, 384, "f2"),
    ("graph-corpus", Heat(neighbours="exact"), 1_000_000, 2, "f2"),
    ("graph-corpus", Heat(neighbours="exact", k=12), 1_000_000, 2, "f2"),
    ("heat-corpus", Heat(probes=4), 1_000_000, 2, "f2"),
    ("heat-corpus", Heat(probes=4), 3_000_000, 2, "f2"),
    ("heat-corpus", Heat(probes=40, k=10), 400_000, 2, "f2"),
    ("epsilon", Geomca(), 10_000, 4096, "f4"),
    ("epsilon", Geomca(), 8000, 6000, "f2"),
    ("sparsify-corpus", Geomca(epsilon=1e-3), 6000, 4096, "f4"),
    ("sparsify-corpus", Geomca(epsilon=1e-3), 20_000, 1024, "f2"),
    ("sparsify-corpus", Geomca(epsilon=1e-3, rows=9000), 18_000, 2048, "f4"),
    ("geomca", Geomca(epsilon=1e-3), 6000, 4096, "f4"),
    ("geomca", Geomca(epsilon=1e-3), 20_000, 1024, "f2"),
    ("distinct-euclidean-corpus", Magnitude(), 4_000_000, 8, "f2"),
    ("distinct-euclidean-corpus", Magnitude(), 100_000, 384, "f2"),
    ("convergence-corpus", Magnitude(), 60_000, 384, "f2"),
    ("magnitude-corpus", Magnitude(scales=SCALES), 60_000, 384, "f2"),
    ("magnitude-corpus", Magnitude(scales=SCALES), 120_000, 64, "f4"),
    ("magnitude-corpus", Magnitude(scales=SCALES[-3:], method="cholesky"), 5000, 384, "f2"),
    ("convergence-corpus", Magnitude(method="cholesky"), 4200, 64, "f4"),
    ("bandwidth", Vendi(), 600_000, 384, "f2"),
    ("bandwidth", Vendi(), 300_000, 256, "f4"),
    ("vendi-cosine-corpus", Vendi(), 90_000, 3072, "f2"),
    ("vendi-rbf-median-corpus", Vendi(), 6500, 384, "f2"),
    ("vendi-rbf-median-corpus", Vendi(), 9000, 64, "f4"),
    ("vendi-rbf-median-corpus", Vendi(), 40_000, 384, "f2"),
    ("vendi-rbf-median-corpus", Vendi(method="nystrom"), 20_000, 384, "f2"),
    ("vendi-rbf-median-corpus", Vendi(method="nystrom"), 40_000, 512, "f4"),
]


@pytest.mark.full
@pytest.mark.parametrize(
    "case", CASES, ids=[f"{name}-{n}x{d}{kind}" for name, _, n, d, kind in CASES]
)
def test_projections_are_near_what_a_worker_holds(tmp_path: Path, case: Case) -> None:
    name, section, n, d, kind = case
    corpus = ingest([str(rows_of(tmp_path, n, d, kind))], str(tmp_path / "c.zarr"))
    stages = planned(corpus, section)
    stage = next(stage for stage in stages if stage.name == name)
    assert stage.memory_bytes >= LARGE
    costs = costs_of(tmp_path, stage, section, stages, corpus)
    peak = max(cost.peak_memory_bytes for cost in costs)
    said = f"projected {stage.memory_bytes / MIB:.0f} MiB and a worker, measured {peak / MIB:.0f}"
    assert peak < MARGIN * (IDLE_WORKER_BYTES + stage.memory_bytes), said
    # How many scales need a preconditioner is known only when they are being solved.
    if stage.advance is None or stage.cost_estimate.iterations == 0:
        assert stage.memory_bytes < MARGIN * (peak - MIN_IDLE_BYTES), said


def rows_of(folder: Path, n: int, d: int, kind: str) -> Path:
    """Write clustered rows, a part at a time."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(50, d)).astype("f4")
    rows = np.lib.format.open_memmap(folder / "rows.npy", "w+", kind, (n, d))
    for start in range(0, n, 65536):
        stop = min(n, start + 65536)
        noise = generator.standard_normal((stop - start, d), dtype=np.float32)
        rows[start:stop] = centres[generator.integers(50, size=stop - start)] + 0.3 * noise
    rows.flush()
    return folder / "rows.npy"


def planned(corpus: Corpus, section: Section | None) -> list[Stage]:
    facts = corpus_facts(corpus)
    job = JobFacts({"corpus": facts, "reference": facts}, 0, 1e18, "corpus")
    if section is None:
        return MEASURES["duplicates"].plan(None, job)
    return MEASURES[type(section).__name__.lower()].plan(section, job)


def costs_of(
    folder: Path, stage: Stage, section: Section | None, stages: list[Stage], corpus: Corpus
) -> Iterator[Cost]:
    """Run a stage's tasks in a fresh worker, but not all of many; its needs are made up."""
    store = ObjectStore(str(folder / "job"))
    folders = {other.name: f"{other.folder}/key" for other in stages}
    k = section.k if isinstance(section, Heat) else 0
    for need in stage.needs:
        write_artifact(
            store, f"{folders[need]}/result", "a", made_up(need, corpus, k), Cost(0.0, 0)
        )
    parts = range(stage.partitions)
    if stage.advance is not None:
        steps = [(FINALISE, 0), *((index, 1) for index in parts), (FINALISE, 1)]
        steps = steps if stage.cost_estimate.iterations else steps[:1]
    else:
        steps = [(index, 0) for index in [*parts, *([FINALISE] if stage.finalise else [])]]
        steps = steps if len(steps) <= 4 else steps[:3]
    corpora = dict.fromkeys(stage.corpora, corpus)
    tasks = [Task(store, stage, index, folders, corpora, "a", number) for index, number in steps]
    with local_cluster(Local(workers=1, memory_limit=16 * GIB)) as executor:
        for task in tasks:
            executor.submit(task)
            ended = executor.next_ended(300.0)
            assert ended is not None
            ending = ended[1]
            assert isinstance(ending, Cost), ending
            yield ending


def made_up(stage: str, corpus: Corpus, k: int) -> Output:
    """What an earlier stage might have published: a random graph, or all rows kept."""
    n = corpus.n
    if stage == "epsilon":
        return Output({"epsilon": 1.0})
    if stage == "bandwidth":
        return Output({"bandwidth": 3.0})
    if stage.startswith("distinct"):
        arrays = {"rows": np.arange(n), "group": np.arange(n), "origin": np.zeros(corpus.d)}
        return Output({"distinct": n, "duplicates": 0}, arrays)
    if stage.startswith("rows"):
        return Output(arrays={"rows": np.arange(0, n, 2)})
    if stage.startswith("sparsify"):
        rows = np.arange(n)
        arrays = dict.fromkeys(("rows", "kept", "kept_rows", "representative"), rows)
        return Output({"considered": n, "kept": n}, arrays)
    steps = np.random.default_rng(1).integers(1, 2000, size=(n, k))
    lists = (np.arange(n)[:, None] + steps) % n
    recall = {"value": 1.0, "lower": 1.0, "upper": 1.0, "sampled": n}
    if stage.startswith("neighbours"):
        return Output({"method": "exact", "recall": recall, "tied": 0.0}, {"indices": lists})
    graph = symmetrise(lists)
    values = {"summary": asdict(summarise(graph)), "recall": recall, "method": "exact"}
    arrays = {"indices": graph.indices, "indptr": graph.indptr.astype(np.int64)}
    return Output(values, arrays)
