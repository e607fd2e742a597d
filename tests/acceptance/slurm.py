"""The promises on a real Slurm at full size; run by ``make test-full`` as ``slurm``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import ROOT
from tests.support.jobs import results_of, run_command, timeless
from tests.support.slurm import NotToBeHad, Slurm, cluster_for_tests, install

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

ROWS = 3000
MEASURES: dict[str, Any] = {
    "heat": {},
    "geomca": {},
    "magnitude": {"method": "cg"},
    "vendi": {"kernels": ["cosine", "rbf"]},
}
LIMIT = "2GiB"
PATIENCE = 1800.0
ARRAY = ROOT / "workflows" / "slurm" / "array.sh"

Part = tuple[str, Any, Any]


def a_real_slurm(bench: Bench) -> list[dict[str, Any]]:
    """Submit a job, take its worker, take its driver, and go without Dask: the same numbers."""
    expected = _run_locally(bench)
    try:
        install()
        with cluster_for_tests() as cluster, _environment(cluster):
            return [
                tried(bench, cluster, cluster.folder, expected)
                for tried in (_undisturbed, _without_a_worker, _without_its_driver, _as_arrays)
            ]
    except NotToBeHad as reason:
        return [_record("a job on Slurm", {"skipped": str(reason)}, held=None)]


def _run_locally(bench: Bench) -> dict[str, Any]:
    ended = run_command("run", _job(bench, "local", {"kind": "local", "memory_limit": LIMIT}))
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr[-300:])
    return numbers_of(bench.output("local"))


def numbers_of(output: Path) -> dict[str, Any]:
    """Return what must be equal in jobs that differ only in name, place and cluster."""
    results = timeless(results_of(output))
    for key in ("name", "id"):
        del results["job"][key]
    return results


def _job(bench: Bench, name: str, cluster: dict[str, Any]) -> Path:
    rows = bench.rows[: 2 * ROWS]
    return bench.job(
        name,
        rows[::2],
        rows[1::2],
        measures=MEASURES,
        cluster=cluster,
        driver={"memory_limit": "2GiB"},
    )


def _workers(folder: Path) -> dict[str, Any]:
    shared = str(folder / "shared")
    return {"kind": "slurm", "workers": 2, "memory_limit": LIMIT, "shared_folder": shared}


def _undisturbed(
    bench: Bench, cluster: Slurm, folder: Path, expected: dict[str, Any]
) -> dict[str, Any]:
    begun = time.monotonic()
    job, _ = _submit(bench, "submitted", folder)
    _wait(lambda: _state(job) not in {"queued", "running"})
    left = _left(cluster, folder)
    held = _state(job) == "finished" and numbers_of(job.parent) == expected and not left
    figures = {"seconds": _since(begun), "state": _state(job), "left": left}
    return _record("a submitted job gives the local numbers and leaves nothing", figures, held)


def _without_a_worker(
    bench: Bench, cluster: Slurm, folder: Path, expected: dict[str, Any]
) -> dict[str, Any]:
    begun = time.monotonic()
    job, driver = _submit(bench, "worker-lost", folder)
    _wait(lambda: len(_parts(job)) > 3)
    seen = _worker_jobs(cluster, driver)
    for worker in sorted(seen)[:1]:
        cluster.call("scancel", worker)

    def ended() -> bool:
        seen.update(_worker_jobs(cluster, driver))
        return _state(job) not in {"queued", "running"}

    _wait(ended)
    held = _state(job) == "finished" and numbers_of(job.parent) == expected
    figures = {"seconds": _since(begun), "state": _state(job), "worker_jobs": len(seen)}
    return _record(
        "a worker is cancelled, another takes its place, and the numbers are the same",
        figures,
        held and len(seen) > 2,
    )


def _without_its_driver(
    bench: Bench, cluster: Slurm, folder: Path, expected: dict[str, Any]
) -> dict[str, Any]:
    begun = time.monotonic()
    job, driver = _submit(bench, "driver-lost", folder)
    _wait(lambda: len(_parts(job)) > 5)
    cluster.call("scancel", driver)
    cancelled = time.monotonic()
    _wait(lambda: not cluster.jobs())
    orphans = _since(cancelled)
    first = _parts(job)
    ended = run_command("resume", job, "--quiet")
    resubmitted = ended.stdout.splitlines()[-1] if ended.returncode == 0 else ended.stderr[-300:]
    _wait(lambda: _state(job) == "finished")
    again = [part for part in _parts(job)[len(first) :] if part in first]
    held = numbers_of(job.parent) == expected and not again and "slurm: " in resubmitted
    figures = {
        "seconds": _since(begun),
        "seconds_until_no_worker_was_left": orphans,
        "parts_before": len(first),
        "parts_after": len(_parts(job)) - len(first),
        "done_and_computed_again": len(again),
    }
    return _record(
        "a driver is cancelled, its workers go, resume submits it again and nothing done is lost",
        figures,
        held,
    )


def _as_arrays(
    bench: Bench, cluster: Slurm, folder: Path, expected: dict[str, Any]
) -> dict[str, Any]:
    begun = time.monotonic()
    config = _job(bench, "arrays", {"kind": "serial", "memory_limit": LIMIT})
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        [str(ARRAY), str(config), "4"],
        env={**os.environ, "PATH": path, "MEMORY": "2G", "POLL": "1", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
    )
    held = ended.returncode == 0 and numbers_of(bench.output("arrays")) == expected
    said = "" if ended.returncode == 0 else ended.stderr[-300:]
    figures = {"seconds": _since(begun), "exit_code": ended.returncode, "said": said}
    return _record("arrays of plain processes give the local numbers", figures, held)


def _submit(bench: Bench, name: str, folder: Path) -> tuple[Path, str]:
    ended = run_command("submit", _job(bench, name, _workers(folder)), "--json", "--quiet")
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr[-300:])
    told = json.loads(ended.stdout)
    return Path(told["job"]), told["id"]


def _state(job: Path) -> str:
    ended = run_command("status", job, "--json")
    return str(json.loads(ended.stdout)["state"])


def _parts(job: Path) -> list[Part]:
    """Return the parts that runs of a job have told of, in order."""
    found = []
    for path in sorted(job.glob("events/*.jsonl"), key=lambda path: path.stat().st_ctime):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "part_done":
                found.append((event["key"], event["part"], event.get("round")))
    return found


def _worker_jobs(cluster: Slurm, driver: str) -> set[str]:
    return {job for job in cluster.jobs() if job != driver}


def _left(cluster: Slurm, folder: Path) -> list[str]:
    """Return what a job that ended should not have left: jobs, and certificates."""
    until = time.monotonic() + 60
    while cluster.jobs() and time.monotonic() < until:
        time.sleep(0.5)
    return [*cluster.jobs(), *(path.name for path in (folder / "shared").iterdir())]


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"nothing happened for {PATIENCE:.0f} s")
        time.sleep(0.5)


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 1)


@contextmanager
def _environment(cluster: Slurm) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(cluster.environment)
    os.environ["DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT"] = "2s"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _record(promise: str, figures: dict[str, Any], held: bool | None) -> dict[str, Any]:
    return {
        "promise": promise,
        "figures": {"rows_a_side": ROWS, **figures},
        "limit": "equal to the local job, but for times and places",
        "held": held,
    }
