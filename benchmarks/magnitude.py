"""Magnitude functions: latentscale against magnipy and a plain SciPy Cholesky loop.

Compare: every contestant runs alone, in a fresh process, on the same rows, several times.

    python benchmarks/magnitude.py compare --rows 10000 --repeats 3 \
        --magnipy-python /path/to/venv/bin/python --output magnitude-compare.json

Scale: latentscale alone, over sizes from 1000 to 100 000.

    python benchmarks/magnitude.py scale --sizes 1000,3000,10000,30000,100000 \
        --output magnitude-scale.json

Rows are clustered and of low intrinsic dimension, or the first distinct rows of --data FILE.npy.
Latentscale finds the convergence scale and evaluates 20 scales up to it; so does magnipy, from its
own convergence scale; the Cholesky loop is given latentscale's scales, free of charge, and its
values are the truth that latentscale's are compared with. Times leave out imports, compilation and
a warm-up on 200 rows; memory is the peak of the whole process.

magnipy 1.0.0 pins older NumPy and SciPy and needs torch, so it lives in an environment of its own:

    python3 -m venv VENV
    VENV/bin/pip install torch magnipy==1.0.0
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

SCALES = 20
TARGET = 0.95
WARM_UP_ROWS = 200
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
LIBRARIES = ("latentscale", "magnipy", "numpy", "scipy", "numba", "torch")

Values = dict[str, Any]
"""``scales`` and ``magnitudes`` as lists, and whatever else a contestant wants to tell."""

# --- contestants: rows in, values out --------------------------------------------------------


def run_latentscale(rows: np.ndarray, _: np.ndarray | None) -> Values:
    from latentscale.distances import as_points
    from latentscale.duplicates import find_distinct
    from latentscale.magnitude import convergence_scale, magnitude_function

    points = as_points(rows, "euclidean")
    distinct = find_distinct(points)
    root = convergence_scale(points, target=TARGET, distinct=distinct)
    scales = np.linspace(0.0, root.value, SCALES)
    function = magnitude_function(points, scales, distinct=distinct)
    return {
        "scales": scales.tolist(),
        "magnitudes": [estimate.value for estimate in function.estimates],
        "lower": [estimate.lower for estimate in function.estimates],
        "upper": [estimate.upper for estimate in function.estimates],
        "methods": sorted({estimate.method for estimate in function.estimates}),
        "products": getattr(function, "products", None),
    }


def run_cholesky(rows: np.ndarray, scales: np.ndarray | None) -> Values:
    from scipy.linalg import cho_factor, cho_solve
    from scipy.spatial.distance import pdist, squareform

    if scales is None:
        scales = np.linspace(0.0, 10.0, SCALES)
    distances = squareform(pdist(rows.astype(np.float64)))
    ones = np.ones(len(rows))
    magnitudes = [1.0]
    for scale in scales[1:]:
        factor = cho_factor(np.exp(-scale * distances), overwrite_a=True, check_finite=False)
        magnitudes.append(float(cho_solve(factor, ones, check_finite=False).sum()))
    return {"scales": scales.tolist(), "magnitudes": magnitudes}


def run_magnipy(rows: np.ndarray, _: np.ndarray | None) -> Values:
    from magnipy import Magnipy  # type: ignore[import-not-found]

    found = Magnipy(rows.astype(np.float64), n_ts=SCALES, target_prop=TARGET, metric="euclidean")
    magnitudes, scales = found.get_magnitude()
    return {"scales": np.asarray(scales).tolist(), "magnitudes": np.asarray(magnitudes).tolist()}


CONTESTANTS: dict[str, Callable[[np.ndarray, np.ndarray | None], Values]] = {
    "latentscale": run_latentscale,
    "cholesky": run_cholesky,
    "magnipy": run_magnipy,
}

# --- one process -----------------------------------------------------------------------------


def contestant(name: str, rows_file: Path, scales_file: Path | None, output: Path) -> None:
    """Run one contestant in this process and write what it found and what it took."""
    rows = np.load(rows_file)
    scales = np.load(scales_file) if scales_file else None
    run = CONTESTANTS[name]
    started = time.perf_counter()
    run(rows[:WARM_UP_ROWS], None if scales is None else scales[:2])
    warm_up = time.perf_counter() - started
    idle = peak_bytes()
    cpu, wall = time.process_time(), time.perf_counter()
    values = run(rows, scales)
    took = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "warm_up_seconds": warm_up,
        "peak_bytes": peak_bytes(),
        "peak_bytes_after_warm_up": idle,
    }
    output.write_text(json.dumps({**values, **took, "versions": versions()}))


def peak_bytes() -> int:
    """Highest resident memory of this process; ru_maxrss would count its parent's before exec."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


# --- many processes --------------------------------------------------------------------------


def launch(
    name: str, python: str, rows: np.ndarray, scales: np.ndarray | None, threads: int
) -> dict[str, Any]:
    """Run a contestant in a fresh process of an interpreter."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    if name == "magnipy":
        environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="magnitude-benchmark-") as folder:
        rows_file, output = Path(folder, "rows.npy"), Path(folder, "found.json")
        np.save(rows_file, rows)
        command = [python, __file__, "contestant", name, str(rows_file), str(output)]
        if scales is not None:
            scales_file = Path(folder, "scales.npy")
            np.save(scales_file, scales)
            command += ["--scales", str(scales_file)]
        finished = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if finished.returncode != 0:
            reason = (finished.stderr.strip() or "no message").splitlines()[-1]
            raise SystemExit(f"{name} failed with exit code {finished.returncode}: {reason}")
        found: dict[str, Any] = json.loads(output.read_text())
        return found


def example_rows(n: int, dimension: int, seed: int) -> np.ndarray:
    """Clusters of intrinsic dimension 8 and uneven size in many dimensions, float32."""
    rng = np.random.default_rng(seed)
    clusters, inside = 40, 8
    shares = rng.dirichlet(np.full(clusters, 2.0))
    centres = rng.normal(size=(clusters, dimension)) / math.sqrt(dimension)
    maps = rng.normal(size=(clusters, inside, dimension)) / math.sqrt(inside * dimension)
    cluster = rng.choice(clusters, size=n, p=shares)
    rows = np.empty((n, dimension), dtype=np.float32)
    for k in range(clusters):
        members = np.flatnonzero(cluster == k)
        rows[members] = centres[k] + 0.5 * rng.normal(size=(len(members), inside)) @ maps[k]
    return rows


def read_rows(arguments: argparse.Namespace, n: int) -> np.ndarray:
    if arguments.data is None:
        return example_rows(n, arguments.dimension, arguments.seed)
    # Every contestant gets distinct rows: not all of them merge repeated ones.
    rows = np.load(arguments.data, allow_pickle=False)
    _, first = np.unique(rows, axis=0, return_index=True)
    if len(first) < n:
        raise SystemExit(f"{arguments.data} has {len(first)} distinct rows, {n} were asked for")
    return np.ascontiguousarray(rows[np.sort(first)[:n]], dtype=np.float32)


def header(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "threads": arguments.threads,
        "data": str(Path(arguments.data).name) if arguments.data else "clusters",
        "scales": SCALES,
        "target": TARGET,
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Reduce repeated runs of one contestant to medians, and the values of the first."""
    keys = ("scales", "magnitudes", "lower", "upper", "methods", "products", "versions")
    return {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "peak_bytes_after_warm_up": max(run["peak_bytes_after_warm_up"] for run in runs),
        "all_seconds": [run["seconds"] for run in runs],
        **{key: runs[0][key] for key in keys if key in runs[0]},
    }


def compare(arguments: argparse.Namespace) -> None:
    rows = read_rows(arguments, arguments.rows)
    runs: dict[str, list[dict[str, Any]]] = {"latentscale": [], "cholesky": []}
    if arguments.magnipy_python:
        runs["magnipy"] = []
    scales: np.ndarray | None = None
    # Contestants take turns, so that a disturbance doesn't hit one of them alone.
    for _ in range(arguments.repeats):
        for name in runs:
            python = arguments.magnipy_python if name == "magnipy" else sys.executable
            given = scales if name == "cholesky" else None
            runs[name].append(launch(name, python, rows, given, arguments.threads))
            if scales is None:
                scales = np.array(runs["latentscale"][0]["scales"])
            print(f"{name}: {runs[name][-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    results = {name: summary(found) for name, found in runs.items()}
    ours, truth = results["latentscale"], np.array(results["cholesky"]["magnitudes"])
    found = {
        **header(arguments),
        "rows": len(rows),
        "dimension": rows.shape[1],
        "repeats": arguments.repeats,
        "contestants": results,
        "largest_relative_error": float(np.abs(np.array(ours["magnitudes"]) / truth - 1).max()),
        "lower_bounds_hold": bool((np.array(ours["lower"]) <= truth * (1 + 1e-9)).all()),
        "upper_bounds_hold": bool((np.array(ours["upper"]) >= truth * (1 - 1e-9)).all()),
        "times_faster_than_cholesky": results["cholesky"]["seconds"] / ours["seconds"],
    }
    if "magnipy" in results:
        theirs = results["magnipy"]
        found["times_faster_than_magnipy"] = theirs["seconds"] / ours["seconds"]
        found["convergence_scale_relative_difference"] = (
            ours["scales"][-1] / theirs["scales"][-1] - 1
        )
    write(arguments.output, found)
    print(f"{len(rows)} rows of {rows.shape[1]}, {SCALES} scales, {arguments.threads} threads")
    for name, result in results.items():
        print(
            f"{name:12} {result['seconds']:9.2f} s {result['cpu_seconds']:9.2f} s of CPU "
            f"{result['peak_bytes'] / 2**20:8.0f} MiB"
        )
    print(f"largest relative error {found['largest_relative_error']:.1e}")


def scale(arguments: argparse.Namespace) -> None:
    sizes = [int(size) for size in arguments.sizes.split(",")]
    points = []
    for n in sizes:
        rows = read_rows(arguments, n)
        runs = [
            launch("latentscale", sys.executable, rows, None, arguments.threads)
            for _ in range(arguments.repeats)
        ]
        result = summary(runs)
        points.append({"rows": n, **result})
        print(
            f"{n:8} rows {result['seconds']:9.2f} s {result['peak_bytes'] / 2**20:8.0f} MiB "
            f"{'+'.join(result['methods'])}, {result['products']} products",
            flush=True,
        )
        # Written after each size: the largest takes longest.
        write(arguments.output, {**header(arguments), "points": points})
    draw(points, arguments.output)


def write(output: Path, found: dict[str, Any]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1) + "\n")


def draw(points: list[dict[str, Any]], output: Path) -> None:
    """Plot time and memory against rows: an HTML page, and an SVG where plotly can export one."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(specs=[[{"secondary_y": True}]])
    n = [point["rows"] for point in points]
    seconds = [point["seconds"] for point in points]
    mebibytes = [point["peak_bytes"] / 2**20 for point in points]
    figure.add_trace(go.Scatter(x=n, y=seconds, name="seconds", mode="lines+markers"))
    figure.add_trace(
        go.Scatter(x=n, y=mebibytes, name="peak memory (MiB)", mode="lines+markers"),
        secondary_y=True,
    )
    figure.update_layout(title=f"Magnitude function and convergence scale, {SCALES} scales")
    figure.update_xaxes(type="log", title="rows")
    figure.update_yaxes(type="log")
    figure.update_yaxes(title="seconds", secondary_y=False)
    figure.update_yaxes(title="MiB", secondary_y=True)
    figure.write_html(output.with_suffix(".html"), include_plotlyjs=True)
    try:
        figure.write_image(output.with_suffix(".svg"))
    except (ImportError, ValueError, RuntimeError) as reason:
        print(f"no SVG beside the page: {str(reason).strip().splitlines()[0]}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", type=Path, help=".npy file of rows, instead of clusters")
    shared.add_argument("--dimension", type=int, default=384)
    shared.add_argument("--seed", type=int, default=0)
    shared.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    compared = commands.add_parser("compare", parents=[shared])
    compared.add_argument("--rows", type=int, default=10_000)
    compared.add_argument("--repeats", type=int, default=3)
    compared.add_argument("--magnipy-python", help="interpreter that can import magnipy")
    compared.add_argument("--output", type=Path, default=Path("magnitude-compare.json"))
    scaled = commands.add_parser("scale", parents=[shared])
    scaled.add_argument("--sizes", default="1000,3000,10000,30000,100000")
    scaled.add_argument("--repeats", type=int, default=1)
    scaled.add_argument("--output", type=Path, default=Path("magnitude-scale.json"))
    alone = commands.add_parser("contestant")
    alone.add_argument("name", choices=CONTESTANTS)
    alone.add_argument("rows", type=Path)
    alone.add_argument("output", type=Path)
    alone.add_argument("--scales", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "contestant":
        contestant(arguments.name, arguments.rows, arguments.scales, arguments.output)
    elif arguments.command == "compare":
        compare(arguments)
    else:
        scale(arguments)


if __name__ == "__main__":
    main()
