"""Ingest in parts: the same corpus from any number of processes, gone on with after a kill."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from latentscale_pipeline.config.cluster import Local, Serial
from latentscale_pipeline.corpus import open_corpus, verify
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.encoding import Work
from latentscale_pipeline.corpus.ingest.sources import open_sources
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.ingestion import ingest_runner, worker_runner
from tests import ROOT
from tests.support.waiting import wait_for
from tests.support.worker_processes import worker_processes

CLUSTER = Local(workers=2, memory_limit=2**30)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one shard of 1024 rows."""
    monkeypatch.setattr("latentscale_pipeline.corpus.ingest.encoding.PARTITION_BYTES", 1)


def saved(path: Path, n: int = 20_000, d: int = 8) -> np.ndarray:
    rows = np.random.default_rng(n).standard_normal((n, d)).astype(np.float32)
    rows[::997] = 0
    np.save(path, rows)
    return rows


def elsewhere(work: Work, parts: Sequence[int], memory_bytes: int) -> None:
    """Do the parts as another process would: from what was sent, in another order."""
    sent = pickle.dumps(work)
    for part in reversed(parts):
        pickle.loads(sent)(part)


@pytest.mark.parametrize("where", ["elsewhere", "workers"])
def test_workers_write_the_same_corpus_to_the_byte(tmp_path: Path, where: str) -> None:
    rows = saved(tmp_path / "v.npy", 6000)
    on_invalid = "error"
    if where == "elsewhere":
        rows[[3, 1500, 1501, 5999], 2] = np.nan
        np.save(tmp_path / "v.npy", rows)
        on_invalid = "drop"
    (tmp_path / "l.txt").write_text("".join(f"{i}\n" for i in range(len(rows))))
    told: list[tuple[int, int]] = []
    options = {"labels": str(tmp_path / "l.txt"), "on_invalid": on_invalid, "shard_bytes": 1}
    source = [str(tmp_path / "v.npy")]
    alone = ingest(source, str(tmp_path / "alone"), **options)
    run = worker_runner(CLUSTER, len(rows), lambda done, total: told.append((done, total)))
    run = elsewhere if where == "elsewhere" else run
    together = ingest(source, str(tmp_path / "together"), run=run, **options)
    same = replace(alone.manifest, created="", documents=())
    assert replace(together.manifest, created="", documents=()) == same
    assert together.manifest.zero_rows.count == 7
    if where == "workers":
        assert told[-1] == (6000, 6000)
    assert verify(together).problems == ()
    assert not (tmp_path / "together/ingest").exists()


def test_a_bad_row_and_a_limit_that_is_too_low_are_one_line(tmp_path: Path) -> None:
    rows = saved(tmp_path / "v.npy", 3000)
    run = worker_runner(Local(workers=2, memory_limit=2**28))
    with pytest.raises(BadInput, match=r"stage ingest needs .* in one process"):
        ingest([str(tmp_path / "v.npy")], str(tmp_path / "c"), run=run)
    rows[1500, 1] = np.inf
    np.save(tmp_path / "v.npy", rows)
    with pytest.raises(BadInput, match=r"v\.npy: row 1500 holds infinity; fix the source, or"):
        ingest([str(tmp_path / "v.npy")], str(tmp_path / "c"), shard_bytes=1, run=elsewhere)
    assert not [path for path in (tmp_path / "c").rglob("*") if path.is_file()]


def test_workers_are_started_where_they_are_worth_it(tmp_path: Path) -> None:
    from latentscale_pipeline.corpus.ingest.encoding import run_serially

    saved(tmp_path / "v.npy")
    sources = open_sources([str(tmp_path / "v.npy")])
    assert ingest_runner(CLUSTER, sources) is run_serially
    assert ingest_runner(CLUSTER, sources, worth_workers_bytes=1) is not run_serially
    for alone in (Serial(kind="serial"), Local(workers=1)):
        assert ingest_runner(alone, sources, worth_workers_bytes=1) is run_serially


ENDLESS = """
import sys
from dataclasses import replace
from latentscale_pipeline.corpus.ingest import encoding
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.jobs.ingestion import worker_runner
from latentscale_pipeline.config.cluster import Local
from tests.support.endless_parts import EndsNever
encoding.PARTITION_BYTES = 1
workers = worker_runner(Local(workers=2, memory_limit=2**30))
chosen = workers if "workers" in sys.argv else encoding.run_serially
def run(work, *arguments):
    chosen(replace(work, record=EndsNever(work.record, 10)), *arguments)
ingest([sys.argv[1]], sys.argv[2], shard_bytes=1, run=run)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to be ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(started: list[subprocess.Popen[bytes]], *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", ENDLESS, *map(str, arguments)]
    started.append(subprocess.Popen(command, cwd=ROOT))
    return started[-1]


def kill_a_worker(driver: int) -> None:
    for worker in worker_processes(driver)[:1]:
        worker.kill()


def records(corpus: Path) -> list[Path]:
    return sorted(corpus.glob("ingest/*/part-*.json"))


@pytest.mark.parametrize("where", ["alone", "workers"])
def test_killed_it_goes_on_with_the_parts_that_are_missing(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], where: str
) -> None:
    saved(tmp_path / "v.npy")
    corpus = tmp_path / "c"
    process = start(started, tmp_path / "v.npy", corpus, where)
    wait_for(lambda: len(records(corpus)) >= 3)
    if where == "workers":  # one that dies is replaced, and what it was at is done again
        kill_a_worker(process.pid)
    wait_for(lambda: len(records(corpus)) >= 8)
    workers = worker_processes(process.pid)
    process.kill()
    process.wait()
    psutil.wait_procs(workers, timeout=30)  # they end with the driver
    with pytest.raises(BadInput, match="its ingest was interrupted"):
        open_corpus(str(corpus))
    done = {
        shard["key"]: (corpus / shard["key"]).stat().st_mtime_ns
        for record in records(corpus)
        for shard in json.loads(record.read_text())["shards"]
    }
    assert len(done) >= 6
    [damaged] = list(done)[2:3]
    os.truncate(corpus / damaged, 100)
    finished = ingest([str(tmp_path / "v.npy")], str(corpus), shard_bytes=1)
    assert verify(finished).problems == ()
    expected = ingest([str(tmp_path / "v.npy")], str(tmp_path / "whole"))
    assert finished.fingerprint == expected.fingerprint
    kept = {key for key, time in done.items() if (corpus / key).stat().st_mtime_ns == time}
    assert kept == set(done) - {damaged}


def test_a_source_that_changed_after_the_kill_is_read_anew(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    saved(tmp_path / "v.npy")
    process = start(started, tmp_path / "v.npy", tmp_path / "c", "alone")
    wait_for(lambda: len(records(tmp_path / "c")) >= 3)
    process.kill()
    process.wait()
    changed = saved(tmp_path / "v.npy") + 1
    np.save(tmp_path / "v.npy", changed)
    corpus = ingest([str(tmp_path / "v.npy")], str(tmp_path / "c"), shard_bytes=1)
    np.testing.assert_array_equal(corpus.read_all(), changed)
    assert verify(corpus).problems == ()
