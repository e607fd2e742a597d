"""Promises that hold for whole processes; `make test-full` has their full counts."""

import json
import re
import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.jobs import (
    CONTROL,
    HEAVY,
    imported_libraries,
    results_of,
    run_command,
    run_on_terminal,
    timeless,
)

HELP_SECONDS = 0.5
MARGIN = 3.0
"""How much slower than promised a busy machine may be."""

STAGES = {
    "hashes-corpus", "duplicates-corpus", "neighbours-corpus", "graph-corpus", "heat-corpus",
    "vendi-cosine-corpus", "vendi-cosine-sampling-corpus", "vendi-influence-corpus",
    "sampled-rows-corpus", "expected-heat", "expected-vendi",
}  # fmt: skip


@pytest.fixture
def small_job(tmp_path: Path) -> Path:
    """A job of two quick measures, one process, without a reference."""
    generator = np.random.default_rng(17)
    np.save(tmp_path / "corpus.npy", generator.normal(size=(300, 8)).astype("f4"))
    config = tmp_path / "job.yaml"
    job = {
        "name": "small",
        "corpus": str(tmp_path / "corpus.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"heat": {"times": {"count": 8}}, "vendi": {"kernels": ["cosine"]}},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(job))  # JSON is YAML
    return config


def test_help_answers_at_once() -> None:
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        ended = run_command("--help")
        seconds.append(time.perf_counter() - begun)
        assert ended.returncode == 0
        assert "Commands:" in ended.stdout
    assert statistics.median(seconds) < MARGIN * HELP_SECONDS


def test_help_imports_nothing_heavy() -> None:
    imported = imported_libraries("--help")
    assert "click" in imported
    assert imported & HEAVY == set()


def test_small_corpora_never_import_pynndescent(small_job: Path) -> None:
    # A plan needs constants of the mathematics, and none of its solvers.
    assert not imported_libraries("plan", small_job) & {"scipy.linalg", "scipy.sparse"}
    imported = imported_libraries("run", small_job)
    assert {"numpy", "numba", "zarr"} <= imported, "it did compute"
    assert imported & {"pynndescent", "sklearn", "dask", "distributed"} == set()


def test_plain_lines_tell_progress_without_a_terminal(small_job: Path) -> None:
    ended = run_command("run", small_job, "--verbose")
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stderr
    started = re.findall(r"^[\d:]{8} (\S+): queued, tasks: \d+$", ended.stderr, re.MULTILINE)
    done = re.findall(r"^[\d:]{8} (\S+): done, [\d.]+ s of work$", ended.stderr, re.MULTILINE)
    assert len(started) == len(done) == len(STAGES)
    assert set(started) == set(done) == STAGES


def test_bars_tell_progress_on_a_terminal(small_job: Path) -> None:
    code, seen = run_on_terminal("run", small_job, "--verbose")
    assert code == 0, seen
    assert CONTROL.search(seen)
    seen = CONTROL.sub("", seen)
    assert ": queued," not in seen
    for stage in STAGES:
        assert re.search(rf"{stage} .*━ (\d+)/\1\b", seen), stage


@pytest.mark.full
def test_four_workers_give_what_one_process_gives(small_job: Path, tmp_path: Path) -> None:
    found = []
    for cluster in ("{kind: serial}", "{kind: local, workers: 4, memory_limit: 1GiB}"):
        output = tmp_path / str(len(found))
        ended = run_command("run", small_job, "-o", f"cluster={cluster}", "-o", f"output={output}")
        assert ended.returncode == 0, ended.stderr
        found.append(timeless(results_of(output)))
    assert found[0] == found[1]
