"""Contestants of a benchmark: each alone in a fresh process, in turn, with time and peak memory.

A script hands its table of contestants to :func:`take_part` when it is called as ``SCRIPT
contestant NAME FOLDER``, and starts such processes with :func:`launch`. Times exclude imports,
compilation and a warm-up on few rows. Memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

COMMAND = "from latentscale_pipeline.cli import main; main()"

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

Inputs = Mapping[str, np.ndarray]
"""Arrays by name; ``rows`` is always there."""

Values = dict[str, Any]
"""What a contestant found, as JSON."""

Contestant = Callable[[Inputs], Values]

# --- one process -----------------------------------------------------------------------------


def take_part(contestants: Mapping[str, Contestant], warm_up: Callable[[Inputs], Inputs]) -> bool:
    """Run one contestant if this process was started for that, and return whether it was."""
    if sys.argv[1:2] != ["contestant"]:
        return False
    name, folder = sys.argv[2], Path(sys.argv[3])
    inputs = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    run = contestants[name]
    started = time.perf_counter()
    run(warm_up(inputs))
    warmed = time.perf_counter() - started
    idle = peak_bytes()
    cpu, wall = time.process_time(), time.perf_counter()
    values = run(inputs)
    took = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "warm_up_seconds": warmed,
        "peak_bytes": peak_bytes(),
        "peak_bytes_after_warm_up": idle,
    }
    (folder / "found.json").write_text(json.dumps({**values, **took}))
    return True


def peak_bytes() -> int:
    """Return the peak resident memory of this process; ru_maxrss would include its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of this interpreter and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for library in libraries:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


# --- many processes --------------------------------------------------------------------------


def launch(script: str, name: str, python: str, inputs: Inputs, threads: int) -> Values:
    """Run a contestant in a fresh process of an interpreter."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="latentscale-benchmark-") as folder:
        for array, values in inputs.items():
            np.save(Path(folder, f"{array}.npy"), values)
        command = [python, script, "contestant", name, folder]
        finished = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if finished.returncode != 0:
            reason = (finished.stderr.strip() or "no message").splitlines()[-1]
            raise SystemExit(f"{name} failed with exit code {finished.returncode}: {reason}")
        found: Values = json.loads(Path(folder, "found.json").read_text())
    print(f"{name}: {found['seconds']:.2f} s", file=sys.stderr, flush=True)
    return found


def in_turns(
    script: str,
    pythons: Mapping[str, str],
    inputs: Inputs,
    repeats: int,
    threads: int,
    handed_on: Sequence[str] = (),
) -> dict[str, list[Values]]:
    """Run contestants, with their interpreters, in turn, so that a disturbance affects all.

    The arrays ``handed_on`` that the first contestant finds are inputs of the others.
    """
    runs: dict[str, list[Values]] = {name: [] for name in pythons}
    given = dict(inputs)
    for _ in range(repeats):
        for name, python in pythons.items():
            found = launch(script, name, python, given, threads)
            if name == next(iter(pythons)):
                given.update({array: np.array(found[array]) for array in handed_on})
            runs[name].append(found)
    return runs


TIMES = (
    "seconds",
    "cpu_seconds",
    "warm_up_seconds",
    "peak_bytes",
    "peak_bytes_after_warm_up",
)


def summary(runs: Sequence[Values]) -> Values:
    """Reduce repeated runs of one contestant to medians, with the values of the first run."""
    return {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
        "warm_up_seconds": statistics.median(run["warm_up_seconds"] for run in runs),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "peak_bytes_after_warm_up": max(run["peak_bytes_after_warm_up"] for run in runs),
        "all_seconds": [run["seconds"] for run in runs],
        **{key: value for key, value in runs[0].items() if key not in TIMES},
    }


def print_table(results: Mapping[str, Values]) -> None:
    """Print time and peak memory of every contestant."""
    for name, result in results.items():
        print(
            f"{name:20} {result['seconds']:9.2f} s {result['cpu_seconds']:9.2f} s of CPU "
            f"{result['peak_bytes'] / 2**20:8.0f} MiB"
        )


# --- rows and records ------------------------------------------------------------------------


def rows_options() -> argparse.ArgumentParser:
    """Return the options for the rows and the number of threads."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--data", type=Path, help=".npy file of rows, instead of clusters")
    options.add_argument("--dimension", type=int, default=384)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--repeats", type=int, default=3)
    return options


def checkout_options() -> argparse.ArgumentParser:
    """Return the options for another checkout and for the cases that are run."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--before", type=Path, help="another checkout to compare with")
    options.add_argument("--only", default="", help="only cases whose names contain this")
    return options


def compared_checkouts(arguments: argparse.Namespace, here: Path) -> dict[str, Path]:
    """Return this checkout, after the other one if there is one."""
    before = {} if arguments.before is None else {"before": arguments.before.resolve()}
    return {**before, "now": here}


def show_medians(case: str, medians: Mapping[str, float]) -> None:
    """Print the median seconds of a case in every checkout, and their ratio."""
    shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in medians.items())
    share = medians["now"] / next(iter(medians.values()))
    print(f"{case}: {shown} ({share:.2f})", flush=True)


def read_rows(arguments: argparse.Namespace, n: int) -> np.ndarray:
    """Return the first distinct rows of a file, or clustered ones."""
    if arguments.data is None:
        return clustered_rows(n, arguments.dimension, arguments.seed)
    # Every contestant gets distinct rows: not all of them merge repeated ones.
    rows = np.load(arguments.data, allow_pickle=False)
    _, first = np.unique(rows, axis=0, return_index=True)
    if len(first) < n:
        raise SystemExit(f"{arguments.data} has {len(first)} distinct rows, {n} were asked for")
    return np.ascontiguousarray(rows[np.sort(first)[:n]], dtype=np.float32)


def clustered_rows(n: int, dimension: int, seed: int) -> np.ndarray:
    """Draw clusters of intrinsic dimension 8 and uneven size in many dimensions, float32."""
    rng = np.random.default_rng(seed)
    clusters, inside = 40, 8
    shares = rng.dirichlet(np.full(clusters, 2.0))
    centres = rng.normal(size=(clusters, dimension)) / np.sqrt(dimension)
    maps = rng.normal(size=(clusters, inside, dimension)) / np.sqrt(inside * dimension)
    cluster = rng.choice(clusters, size=n, p=shares)
    rows = np.empty((n, dimension), dtype=np.float32)
    for k in range(clusters):
        members = np.flatnonzero(cluster == k)
        rows[members] = centres[k] + 0.5 * rng.normal(size=(len(members), inside)) @ maps[k]
    return rows


def time_command(checkout: Path, *arguments: object) -> float:
    """Return the seconds of one command of a checkout, in a fresh process of this interpreter."""
    paths = os.pathsep.join(str(checkout / folder) for folder in ("src", "pipeline"))
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - begun


def header(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return when, where and with which data a benchmark ran."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "threads": arguments.threads,
        "data": arguments.data.name if arguments.data else "clusters",
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def write(output: Path, found: Mapping[str, Any]) -> None:
    """Write a record as JSON."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1) + "\n")
