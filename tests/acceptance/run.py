"""The promises at their full counts, on a dated record: ``make test-full``.

Every job is a process of its own, started as a user starts it. Data are real embeddings when
``--data`` or the environment variable LATENTSCALE_DOCSTRINGS names a ``.npy`` file of at least
20 000 rows; without one a seeded stand-in of the same size takes their place, and the record says
which it was. Times depend on what else the machine does: the record has its load, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.pop(0)  # this folder, whose latentscale/ holds tests and would hide the package
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests import ROOT
from tests.acceptance.abundance import a_kind_that_is_gone_is_found
from tests.acceptance.adversarial.promise import ten_thousand_brackets
from tests.acceptance.clusters import jobs_on_a_gateway, jobs_on_kubernetes, scheduling_and_scaling
from tests.acceptance.default_job import (
    a_million_rows_by_default,
    killed_on_the_way,
    ten_million_rows_by_default,
    two_million_wide_rows_by_default,
)
from tests.acceptance.forecasts import forecasts_of_five_jobs
from tests.acceptance.geomca import half_of_epsilon, million_rows, size_of_the_paper
from tests.acceptance.heat import (
    a_million_rows_by_row_blocks,
    a_million_rows_in_cells,
    a_set_against_itself,
    cells_in_two_levels,
    coverage_of_traces,
    error_at_one,
    sentences_in_cells,
    ten_million_rows,
    tori_told_apart,
)
from tests.acceptance.ingest import four_gibibytes_at_the_speed_of_the_disk
from tests.acceptance.magnitude import a_hundred_thousand_rows, killed_between_products
from tests.acceptance.mmd import (
    a_million_beside_a_million,
    power_beside_permutations_of_rows,
    uniform_under_the_null,
)
from tests.acceptance.modes import a_planted_kind_is_found
from tests.acceptance.networks import a_link_is_cut
from tests.acceptance.packages import packages_in_clean_environments
from tests.acceptance.recipes import recipes_on_their_schedulers
from tests.acceptance.rows import (
    a_million_rows_against_a_million,
    injected_rows_are_found,
    rows_of_ten_million,
)
from tests.acceptance.sampling_errors import (
    errors_cover_fresh_samples,
    errors_of_many_rows_cover_fresh_samples,
)
from tests.acceptance.slurm import a_real_slurm
from tests.acceptance.stores import real_object_store
from tests.acceptance.vendi import (
    a_million_rows,
    coverage_of_intervals,
    fifty_thousand_rows,
    narrow_on_sentences,
)
from tests.acceptance.verdicts import (
    alarms_of_comparisons,
    false_alarms,
    power,
    power_of_comparisons,
)
from tests.support.chaos import disturb
from tests.support.jobs import (
    CONTROL,
    DAMAGES,
    HEAVY,
    command_line,
    damage,
    imported_libraries,
    results_of,
    run_command,
    run_on_terminal,
    timeless,
)

GIB = 2**30
ROWS, DIMENSION = 20_000, 384
MEASURES: dict[str, Any] = {"heat": {}, "geomca": {}, "magnitude": {}, "vendi": {}}
"""Heat trace and IMD, GeomCA, magnitude, and the two Vendi papers' scores, all by default."""

WORKER_LIMIT, DRIVER_LIMIT = 4 * GIB, 2 * GIB
TWO_WORKERS = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": WORKER_LIMIT}
SERIAL = {"kind": "serial"}
LIBRARIES = (
    "click", "dask", "distributed", "fsspec", "latentscale", "numba", "numpy", "psutil",
    "pydantic", "pynndescent", "rich", "scikit-learn", "scipy", "threadpoolctl", "xxhash", "zarr",
)  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """What every promise is tried with: rows, and a folder to work in."""

    rows: np.ndarray
    folder: Path
    labels: Sequence[str] = ()
    """Labels of the rows, from ``…_labels.txt`` beside their file, if there is one."""

    def job(self, name: str, corpus: np.ndarray | Path, reference: Any = None, **keys: Any) -> Path:
        """Write a job's configuration, and its data when they're rows."""
        places = {}
        for role, data in (("corpus", corpus), ("reference", reference)):
            place = data
            if isinstance(data, np.ndarray):
                place = self.folder / f"{name}-{role}.npy"
                np.save(place, data)
            places[role] = None if place is None else str(place)
        output = str(self.folder / f"{name}-jobs")
        config = self.folder / f"{name}.yaml"
        config.write_text(json.dumps({"name": name, **places, "output": output, **keys}))
        return config

    def output(self, name: str) -> Path:
        """Folder of a job's output."""
        return self.folder / f"{name}-jobs"


@dataclass
class Watched:
    """A process tree, sampled until it ended."""

    code: int = 0
    seconds: float = 0.0
    out: str = ""
    err: str = ""
    peak_rss: int = 0
    peak_pss: int = 0
    driver: int = 0
    own_cpu: dict[int, float] = field(default_factory=dict)
    other_cpu: float = 0.0
    workers: dict[int, int] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Time, processor time of the tree and of the rest of the machine, peaks of memory."""
        return {
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(sum(self.own_cpu.values()), 1),
            "cpu_seconds_of_others": round(max(0.0, self.other_cpu), 1),
            "exit_code": self.code,
            "tree_rss_gib": round(self.peak_rss / GIB, 2),
            "tree_pss_gib": round(self.peak_pss / GIB, 2),
            "driver_rss_gib": round(self.driver / GIB, 2),
            "largest_worker_rss_gib": round(max(self.workers.values(), default=0) / GIB, 2),
        }

    @property
    def within_limits(self) -> bool:
        """Whether no process ever held more than its limit."""
        return self.driver < DRIVER_LIMIT and all(
            peak < WORKER_LIMIT for peak in self.workers.values()
        )

    @property
    def last_line(self) -> str:
        """What the command said last, without the machine's folders."""
        lines = self.err.strip().splitlines()
        return lines[-1].replace(tempfile.gettempdir(), "") if lines else ""


def watch(
    *arguments: object,
    interval: float = 0.2,
    timeout: float = 3600.0,
    environment: Mapping[str, str] | None = None,
) -> Watched:
    """Run a command and sample the resident memory of it and all it started."""
    watched = Watched()
    begun, busy = time.perf_counter(), _busy_seconds()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = psutil.Popen(command_line(*arguments), stdout=out, stderr=err, env=environment)
        samples = 0
        while process.poll() is None and time.perf_counter() - begun < timeout:
            _sample(process, watched, proportional=samples % 5 == 0)
            samples += 1
            time.sleep(interval)
        if process.poll() is None:
            end_tree(process)
        watched.code = process.wait()
        watched.seconds = time.perf_counter() - begun
        watched.other_cpu = _busy_seconds() - busy - sum(watched.own_cpu.values())
        for stream, name in ((out, "out"), (err, "err")):
            stream.seek(0)
            setattr(watched, name, stream.read())
    return watched


def _sample(process: psutil.Process, watched: Watched, *, proportional: bool) -> None:
    resident = shared_out = 0
    for member in tree(process):
        try:
            held = member.memory_info().rss
            times = member.cpu_times()
            watched.own_cpu[member.pid] = times.user + times.system
            if proportional:
                shared_out += getattr(member.memory_full_info(), "pss", 0)
        except psutil.Error:
            continue
        resident += held
        if member.pid == process.pid:
            watched.driver = max(watched.driver, held)
        else:
            watched.workers[member.pid] = max(watched.workers.get(member.pid, 0), held)
    watched.peak_rss = max(watched.peak_rss, resident)
    watched.peak_pss = max(watched.peak_pss, shared_out)


def _busy_seconds() -> float:
    """Processor time that the whole machine has spent on anything."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def tree(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and everything below it."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def end_tree(process: psutil.Process) -> None:
    """End a process and everything below it."""
    end(tree(process))


def end(processes: Sequence[psutil.Process]) -> None:
    """End processes that may be gone already."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def record(promise: str, figures: dict[str, Any], limit: str, held: bool) -> dict[str, Any]:
    """Return how one promise fared."""
    return {"promise": promise, "figures": figures, "limit": limit, "held": bool(held)}


def numbers_of(output: Path) -> dict[str, Any]:
    """Return what must be equal in jobs that differ only in name, place, cluster and history."""
    results = timeless(results_of(output))
    for key in ("name", "id"):
        del results["job"][key]
    return results


def main_job(bench: Bench) -> list[dict[str, Any]]:
    """All rows, split by parity, all measures: time, memory, and a second run of the same."""
    config = bench.job(
        "main", bench.rows[::2], bench.rows[1::2], measures=MEASURES, cluster=TWO_WORKERS
    )
    first = watch("run", config)
    before = contents(bench.output("main"))
    second = watch("run", config)
    changed = sorted(
        path
        for path, held in contents(bench.output("main")).items()
        if before.get(path) != held and "/events/" not in path and "/lock/" not in path
    )
    idle = not changed and "nothing had to be computed" in second.out
    return [
        record(
            "the main job is done in time and within its memory",
            {**first.figures(), "said": "" if first.code == 0 else first.last_line},
            "seconds < 300, tree_rss_gib < 8, driver < 2 GiB, every worker < 4 GiB",
            first.code == 0
            and first.seconds < 300
            and first.peak_rss < 8 * GIB
            and first.within_limits,
        ),
        record(
            "a second run computes nothing",
            {"seconds": round(second.seconds, 1), "changed": changed[:5], "said_so": idle},
            "seconds < 10, no result touched",
            second.code == 0 and second.seconds < 10 and idle,
        ),
    ]


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Map every file below a folder to its time of change and its size."""
    found = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    return {
        "/" + path.relative_to(folder).as_posix(): (state.st_mtime_ns, state.st_size)
        for path, state in found
    }


CAP = 2 * GIB
CAPPED_WORKERS = (1, 2, 3, 4)


def capped_memory(bench: Bench) -> list[dict[str, Any]]:
    """A limit of 2 GiB is kept by every process, at any number of workers."""
    figures, numbers, kept = {}, [], []
    for workers in CAPPED_WORKERS:
        name = f"capped-{workers}"
        cluster = {"kind": "local", "workers": workers, "memory_limit": CAP}
        config = bench.job(
            name, bench.rows[::2], bench.rows[1::2], measures=MEASURES, cluster=cluster
        )
        planned = run_command("plan", config, "--json")
        watched = watch("run", config, interval=0.1)
        label = f"{workers} workers"
        figures[label] = watched.figures() | {"processes": 1 + len(watched.workers)}
        if planned.returncode != 0 or watched.code != 0:
            figures[label]["said"] = planned.stderr[-300:] or watched.last_line
            kept.append(False)
            continue
        figures[label]["planned_seconds"] = json.loads(planned.stdout)["total"]["seconds"]
        over = [
            timing["stage"]
            for timing in results_of(bench.output(name))["timings"]
            if timing["peak_memory_bytes"] > 1.2 * timing["projected_memory_bytes"]
        ]
        figures[label]["stages_over_their_projection"] = over
        numbers.append(numbers_of(bench.output(name)))
        processes = [watched.driver, *watched.workers.values()]
        kept.append(max(processes) < CAP and not over)
    same = all(found == numbers[0] for found in numbers)
    return [
        record(
            "a limit of 2 GiB is kept by every process at any number of workers",
            {**figures, "same_numbers": same},
            "every process < 2 GiB, no task 20 % over its projection, equal results",
            all(kept) and same,
        )
    ]


def twice_the_rows(bench: Bench) -> list[dict[str, Any]]:
    """Twice the rows on each side: within memory, or refused in one line."""
    noise = np.random.default_rng(1).normal(scale=2e-3, size=bench.rows.shape)
    shaken = (bench.rows.astype("f4") + noise).astype("f2")
    config = bench.job("double", bench.rows, shaken, measures=MEASURES, cluster=TWO_WORKERS)
    ran = watch("run", config)
    refused = ran.code == 2 and len(ran.err.strip().splitlines()) - _progress_lines(ran.err) == 1
    return [
        record(
            "twice the rows keep within memory or are refused",
            {**ran.figures(), "target_seconds": 600, "in_time": ran.seconds < 600}
            | ({} if ran.code == 0 else {"said": ran.last_line}),
            "every worker < 4 GiB and driver < 2 GiB, or exit 2 with one line",
            ran.within_limits and (ran.code == 0 or refused),
        )
    ]


def _progress_lines(err: str) -> int:
    return len(re.findall(r"^(?:ingest: |[\d:]{8} )", err, re.MULTILINE))


KILLS = 20


def killed_at_random(bench: Bench) -> list[dict[str, Any]]:
    """Kill -9 at random times, what it started left to itself, and run again at once."""
    keys = {"measures": MEASURES, "cluster": TWO_WORKERS}
    corpus, reference = bench.rows[:4000:2], bench.rows[1:4000:2]
    begun = time.perf_counter()
    whole = run_command("run", bench.job("undisturbed", corpus, reference, **keys))
    seconds = time.perf_counter() - begun
    if whole.returncode != 0:
        return [record("killed and run again", {"said": whole.stderr[-300:]}, "exit 0", False)]
    expected = numbers_of(bench.output("undisturbed"))
    generator = np.random.default_rng(20)
    moments: list[float] = []
    different: list[str] = []
    resumed = orphans = 0
    while len(moments) < KILLS:
        name = f"killed-{len(moments)}"
        config = bench.job(name, corpus, reference, **keys)
        after = float(generator.uniform(0.02, 0.98)) * seconds
        left = kill_after(after, "run", config)
        if left is None:  # it was faster than the first time and had ended
            seconds *= 0.95
            for path in sorted(bench.output(name).rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            continue
        moments.append(round(after, 2))
        again = run_command("run", config)
        if again.returncode != 0:
            different.append(f"{after:.2f} s: exit {again.returncode}: {again.stderr[-200:]}")
        else:
            found = results_of(bench.output(name))
            resumed += any(timing["resumed"] for timing in found["timings"])
            if numbers_of(bench.output(name)) != expected:
                different.append(f"{after:.2f} s: other results")
        _, alive = psutil.wait_procs(left, timeout=60)
        orphans += len(alive)
        end(alive)
    return [
        record(
            f"killed at {KILLS} random times and run again at once: the same results",
            {
                "rows_a_side": len(corpus),
                "undisturbed_seconds": round(seconds, 1),
                "killed_after_seconds": sorted(moments),
                "same": KILLS - len(different),
                "found_work_to_keep": resumed,
                "orphans_after_a_minute": orphans,
                "different": different,
            },
            f"same = {KILLS}",
            not different,
        )
    ]


def kill_after(seconds: float, *arguments: object) -> list[psutil.Process] | None:
    """Start a command, kill it after a while, return what it left; None if it had ended."""
    process = psutil.Popen(
        command_line(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    left = tree(process)[1:]
    if process.poll() is not None:
        return None
    process.kill()
    process.wait()
    return left


CHAOS_RUNS = 20
CHAOS_SECONDS = 120.0


def chaos(bench: Bench) -> list[dict[str, Any]]:
    """Kill any of a two-minute job's processes, up to three, at random times."""
    keys = {"measures": MEASURES, "cluster": TWO_WORKERS}
    rows = bench.rows
    while True:  # on a slow machine fewer rows make a job of two minutes
        corpus, reference = rows[::2], rows[1::2]
        name = f"undisturbed-{len(rows)}"
        begun = time.perf_counter()
        whole = run_command("run", bench.job(name, corpus, reference, **keys))
        seconds = time.perf_counter() - begun
        if whole.returncode != 0:
            return [record("chaos", {"said": whole.stderr[-300:]}, "exit 0", False)]
        say(f"{'':10}{len(rows)} rows undisturbed: {seconds:.0f} s")
        if seconds < 1.25 * CHAOS_SECONDS:
            break
        # Most of the time goes to pairs of rows.
        rows = rows[: int(len(rows) * (CHAOS_SECONDS / seconds) ** 0.5)]
    expected = numbers_of(bench.output(name))
    tasks = sum(t["tasks"] for t in results_of(bench.output(name))["timings"])
    runs: list[dict[str, Any]] = []
    seed = 0
    while len(runs) < CHAOS_RUNS:
        seed += 1
        generator = np.random.default_rng([40, seed])
        config = bench.job(f"chaos-{seed}", corpus, reference, **keys)
        kills = int(generator.integers(1, 4))
        times = np.sort(generator.uniform(0.02, 0.98, kills)) * seconds
        moments = [lambda passed, due=due: passed >= due for due in times]
        output = bench.output(f"chaos-{seed}")
        found = disturb(config, output, moments, generator, patience=10 * seconds + 120)
        if not found.killed:  # it was faster than the first time and had ended
            seconds *= 0.9
            shutil.rmtree(output)
            continue
        runs.append(
            {
                "killed": found.killed,
                "exit_codes": found.codes,
                "same": found.finished and numbers_of(output) == expected,
                "orphans_after_a_minute": found.orphans,
                "computed_although_there": len(found.again),
                "retried": found.retried,
                "computed": found.computed,
                **({} if found.finished else {"said": found.said}),
            }
        )
        say(f"{'':10}{runs[-1]}")
        shutil.rmtree(output)
    held = [
        run["same"]
        and not run["orphans_after_a_minute"]
        and not run["computed_although_there"]
        and run["retried"] <= len(run["killed"]) * TWO_WORKERS["workers"]
        for run in runs
    ]
    return [
        record(
            f"{CHAOS_RUNS} seeded runs with up to three killed processes: the same results",
            {
                "rows_a_side": len(corpus),
                "undisturbed_seconds": round(seconds, 1),
                "tasks": tasks,
                "held": sum(held),
                "killed": sum(len(run["killed"]) for run in runs),
                "runs": runs,
            },
            "each done after at most one more run, with the same results; nothing that was there "
            "computed again, and nothing retried but what was under way",
            all(held),
        )
    ]


CLUSTERS: dict[str, dict[str, Any]] = {"serial": SERIAL} | {
    f"{workers} x {threads}": {"kind": "local", "workers": workers, "threads": threads}
    for workers, threads in ((1, 1), (1, 2), (2, 1), (4, 1))
}


def the_same_everywhere(bench: Bench) -> list[dict[str, Any]]:
    """The same results in one process and for any number of workers and threads."""
    corpora = {}
    for role, rows in (("corpus", bench.rows[:5000:2]), ("reference", bench.rows[1:5000:2])):
        np.save(bench.folder / f"same-{role}.npy", rows)
        corpora[role] = bench.folder / f"same-{role}.zarr"  # several shards each
        source = bench.folder / f"same-{role}.npy"
        ended = run_command("ingest", source, corpora[role], "--shard-size", "1MiB")
        if ended.returncode != 0:
            return [record("the same everywhere", {"said": ended.stderr}, "exit 0", False)]
    records = []
    for neighbours in ("exact", "cells"):
        found, seconds = {}, {}
        measures = {**MEASURES, "heat": {"neighbours": neighbours}}
        for label, cluster in CLUSTERS.items():
            name = f"same-{neighbours}-{label.replace(' ', '')}"
            config = bench.job(
                name, corpora["corpus"], corpora["reference"], measures=measures, cluster=cluster
            )
            begun = time.perf_counter()
            ended = run_command("run", config)
            seconds[label] = round(time.perf_counter() - begun, 1)
            if ended.returncode == 0:
                found[label] = numbers_of(bench.output(name))
            else:
                found[label] = {"said": ended.stderr[-300:]}
        unlike = [label for label in CLUSTERS if found[label] != found["serial"]]
        failed = {label: said for label, said in found.items() if "said" in said}
        records.append(
            record(
                f"results don't depend on the executor ({neighbours} neighbours)",
                {"workers_x_threads_seconds": seconds, "unlike_serial": unlike, "failed": failed},
                "all equal to serial",
                not unlike and not failed,
            )
        )
    return records


FLIPS = 50


def damaged_shards(bench: Bench) -> list[dict[str, Any]]:
    """Every kind of damage to a shard is named in one line."""
    np.save(bench.folder / "damaged.npy", bench.rows[:4096])
    corpus = bench.folder / "damaged.zarr"
    ended = run_command("ingest", bench.folder / "damaged.npy", corpus, "--shard-size", "1MiB")
    if ended.returncode != 0:
        return [record("damaged shards are named", {"said": ended.stderr}, "exit 0", False)]
    shards = sorted(path for path in (corpus / "vectors" / "c").rglob("*") if path.is_file())
    generator = np.random.default_rng(50)
    cases = [(kind, 0) for kind in DAMAGES if kind != "flipped"]
    size = min(path.stat().st_size for path in shards)
    # The first and the last byte, and the rest anywhere.
    places = [0, size - 1, *generator.integers(size, size=FLIPS - 2).tolist()]
    cases += [("flipped", int(place)) for place in places]
    missed = []
    for number, (kind, place) in enumerate(cases):
        shard = shards[int(generator.integers(len(shards)))]
        content = shard.read_bytes()
        damage(shard, kind, at=place)
        config = bench.job(
            f"damaged-{number}",
            corpus,
            measures={"vendi": {"kernels": ["cosine"]}},
            cluster=SERIAL,
        )
        ended = run_command("run", config)
        shard.write_bytes(content)
        said = [line for line in ended.stderr.splitlines() if line.startswith("latentscale: ")]
        if ended.returncode != 2 or len(said) != 1 or str(shard) not in said[0]:
            missed.append(f"{kind} at {place}: exit {ended.returncode}, {said}")
        elif "Traceback" in ended.stderr:
            missed.append(f"{kind} at {place}: traceback")
    return [
        record(
            "every damage to a shard is named in one line",
            {"shards": len(shards), "cases": len(cases), "flips": FLIPS, "missed": missed},
            "exit 2 and one line with the shard's path, every time",
            len(shards) > 1 and not missed,
        )
    ]


def help_at_once(bench: Bench) -> list[dict[str, Any]]:
    """``--help`` is quick and imports nothing heavy."""
    seconds = []
    for _ in range(10):
        begun = time.perf_counter()
        run_command("--help")
        seconds.append(time.perf_counter() - begun)
    heavy = sorted(imported_libraries("--help") & HEAVY)
    return [
        record(
            "--help answers at once",
            {
                "median_seconds": round(statistics.median(seconds), 3),
                "slowest_seconds": round(max(seconds), 3),
                "heavy_imports": heavy,
            },
            "median_seconds < 0.5, no heavy_imports",
            statistics.median(seconds) < 0.5 and not heavy,
        )
    ]


def progress_is_visible(bench: Bench) -> list[dict[str, Any]]:
    """Plain lines in a file, bars on a terminal, for every stage; and what a small job imports."""
    corpus, reference = bench.rows[:600:2], bench.rows[1:600:2]
    keys = {"measures": MEASURES, "cluster": SERIAL}
    plain = run_command("run", bench.job("plain", corpus, reference, **keys))
    started = set(re.findall(r"^[\d:]{8} (\S+): queued, ", plain.stderr, re.MULTILINE))
    done = set(re.findall(r"^[\d:]{8} (\S+): done, ", plain.stderr, re.MULTILINE))
    code, seen = run_on_terminal("run", bench.job("bars", corpus, reference, **keys))
    shown = CONTROL.sub("", seen)
    stages = {timing["stage"] for timing in results_of(bench.output("plain"))["timings"]}
    bars = {stage for stage in stages if re.search(rf"{stage} .*━", shown)}
    imported = imported_libraries("run", bench.job("imports", corpus, reference, **keys))
    return [
        record(
            "progress is visible, with and without a terminal",
            {
                "stages": len(stages),
                "lines_queued": len(started),
                "lines_done": len(done),
                "bars": len(bars),
                "control_codes_in_lines": bool(CONTROL.search(plain.stderr)),
            },
            "a line or a bar for every stage, no control codes in lines",
            plain.returncode == code == 0
            and started == done == bars == stages
            and not CONTROL.search(plain.stderr),
        ),
        record(
            "small corpora never import pynndescent",
            {"imported": "pynndescent" in imported},
            "not imported",
            "pynndescent" not in imported,
        ),
    ]


def marked_tests(bench: Bench) -> list[dict[str, Any]]:
    """Tests that pytest runs only when asked."""
    begun = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "full"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    summary = ended.stdout.strip().splitlines()[-1:] or [ended.stderr[-300:]]
    none_marked = ended.returncode == 5
    return [
        record(
            "tests marked full pass",
            {"seconds": round(time.perf_counter() - begun, 1), "summary": summary[0]},
            "all pass",
            ended.returncode == 0 or none_marked,
        )
    ]


PROMISES: dict[str, Callable[[Bench], list[dict[str, Any]]]] = {
    "help": help_at_once,
    "progress": progress_is_visible,
    "main": main_job,
    "cap": capped_memory,
    "same": the_same_everywhere,
    "kills": killed_at_random,
    "chaos": chaos,
    "damage": damaged_shards,
    "double": twice_the_rows,
    "forecasts": forecasts_of_five_jobs,
    "adversarial": ten_thousand_brackets,
    "heat-coverage": coverage_of_traces,
    "heat-error": error_at_one,
    "heat-itself": a_set_against_itself,
    "heat-million": a_million_rows_in_cells,
    "heat-ten-million": ten_million_rows,
    "default-million": a_million_rows_by_default,
    "default-killed": killed_on_the_way,
    "default-wide": two_million_wide_rows_by_default,
    "default-ten-million": ten_million_rows_by_default,
    "heat-two-levels": cells_in_two_levels,
    "heat-rows": a_million_rows_by_row_blocks,
    "heat-sentences": sentences_in_cells,
    "heat-tori": tori_told_apart,
    "magnitude-many": a_hundred_thousand_rows,
    "magnitude-kill": killed_between_products,
    "geomca-paper": size_of_the_paper,
    "geomca-half": half_of_epsilon,
    "geomca-million": million_rows,
    "stores": real_object_store,
    "slurm": a_real_slurm,
    "recipes": recipes_on_their_schedulers,
    "packages": packages_in_clean_environments,
    "namespaces": a_link_is_cut,
    "scaling": scheduling_and_scaling,
    "kubernetes": jobs_on_kubernetes,
    "gateway": jobs_on_a_gateway,
    "ingest": four_gibibytes_at_the_speed_of_the_disk,
    "vendi-million": a_million_rows,
    "vendi-many": fifty_thousand_rows,
    "vendi-narrow": narrow_on_sentences,
    "vendi-coverage": coverage_of_intervals,
    "mmd-null": uniform_under_the_null,
    "mmd-power": power_beside_permutations_of_rows,
    "mmd-million": a_million_beside_a_million,
    "modes-planted": a_planted_kind_is_found,
    "abundance-kinds": a_kind_that_is_gone_is_found,
    "rows-injected": injected_rows_are_found,
    "rows-million": a_million_rows_against_a_million,
    "rows-ten-million": rows_of_ten_million,
    "sampling-errors": errors_cover_fresh_samples,
    "sampling-errors-many": errors_of_many_rows_cover_fresh_samples,
    "verdict-alarms": false_alarms,
    "verdict-power": power,
    "comparison-alarms": alarms_of_comparisons,
    "comparison-power": power_of_comparisons,
    "marked": marked_tests,
}


def tried(name: str, bench: Bench) -> list[dict[str, Any]]:
    """Try one promise; one that can't be tried isn't held, and the others go on."""
    try:
        return PROMISES[name](bench)
    except Exception as error:  # noqa: BLE001 -- hours of other figures mustn't be lost
        problem = f"{type(error).__name__}: {error}".replace(str(bench.folder), "")
        return [record(f"{name} can be tried", {"problem": problem}, "no problem", held=False)]


def stand_in() -> np.ndarray:
    """Make clustered unit vectors, some of them twice, as many as the real ones are."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(200, DIMENSION))
    # Within a cluster rows vary mostly in a few directions, as embeddings do.
    directions = generator.normal(size=(24, DIMENSION))
    rows = centres[generator.integers(200, size=ROWS)]
    rows = rows + generator.normal(size=(ROWS, 24)) @ directions * 0.2
    rows += generator.normal(scale=0.2, size=rows.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    twins = generator.choice(ROWS, size=(2, ROWS // 2000), replace=False)
    rows[twins[0]] = rows[twins[1]]
    return rows.astype("f2")


def read_rows(path: str | None) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the rows to work with, and what they are."""
    if path is None:
        rows = stand_in()
        return rows, {"kind": "synthetic stand-in", "seed": 0, "shape": list(rows.shape)}
    rows = np.load(path, allow_pickle=False)
    if rows.ndim != 2 or len(rows) < ROWS:
        raise SystemExit(f"{path}: shape {rows.shape}; give a .npy file of at least {ROWS} rows")
    described = {"kind": "given", "file": Path(path).name, "dtype": str(rows.dtype)}
    return rows[:ROWS], described | {"shape": list(rows[:ROWS].shape)}


def machine() -> dict[str, Any]:
    """Describe the machine as far as it matters to the figures."""
    try:
        cpu = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[0]
    except (OSError, IndexError):
        cpu = platform.processor() or platform.machine()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def show(entry: dict[str, Any]) -> None:
    """Print one promise and its figures."""
    verdict = {True: "held", False: "NOT HELD", None: "skipped"}[entry["held"]]
    say(f"{verdict:8}  {entry['promise']}  ({entry['limit']})")
    for name, value in entry["figures"].items():
        say(f"{'':10}{name}: {value}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Try the promises, print a table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", metavar="FILE.npy", default=os.getenv("LATENTSCALE_DOCSTRINGS"))
    parser.add_argument("--out", metavar="FOLDER", default=ROOT / "benchmarks/results", type=Path)
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=PROMISES, default=PROMISES)
    asked = parser.parse_args()
    rows, data = read_rows(asked.data or None)
    beside = [] if asked.data is None else [*Path(asked.data).parent.glob("*_labels.txt")]
    labels = beside[0].read_text().splitlines() if beside else []
    begun = datetime.now(UTC)
    entries: list[dict[str, Any]] = []
    for name in asked.only:
        with tempfile.TemporaryDirectory(prefix="latentscale-full-") as folder:
            load = os.getloadavg()[0]
            for entry in tried(name, Bench(rows, Path(folder), labels)):
                entries.append({**entry, "load_before": round(load, 1)})
                show(entry)
    # What can't be tried on this machine says why, and is neither held nor broken.
    held = all(entry["held"] is not False for entry in entries)
    document = {
        "schema": "latentscale.promises/1",
        "started": begun.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: metadata.version(name) for name in LIBRARIES},
        "data": data,
        "promises": entries,
        "held": held,
    }
    part = "" if list(asked.only) == list(PROMISES) else "-" + "-".join(asked.only)
    path = asked.out / f"full-{begun.date().isoformat()}{part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    kept = sum(entry["held"] is True for entry in entries)
    say(f"{kept} of {len(entries)} held; record: {path}")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
