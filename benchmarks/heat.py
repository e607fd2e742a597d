"""Neighbour graphs and heat traces: latentscale against what one would use instead.

Graph: a job of latentscale (its whole process tree, start and compilation included) against one
NNDescent over all rows, by the recall of 5 neighbours of sampled rows.

    python benchmarks/heat.py graph --rows 1000000 --dimension 128 --output heat-graph.json

Trace: 256 times from 100 probes of 10 Lanczos steps on a graph of 12 neighbours a vertex, against
imate and scikit-primate, which compute one time a run, and the plain route as the paper writes it
(Lanczos with full reorthogonalisation in a loop over probes, float64; on fewer vertices).

    python benchmarks/heat.py trace --vertices 1000000 --output heat-trace.json

Every contestant runs alone, in a fresh process, and works twice: *cold* is the first time, with
what it imports and compiles, *warm* the second. imate and scikit-primate may live in an environment
of their own (``--other-python``); one that isn't installed is left out and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

K, SAMPLED = 5, 1000
PROBES, STEPS = 100, 10
NEIGHBOURS = 12
"""Nonzero entries of a row of the graph that traces are computed of."""

TIMES = np.logspace(-1, 1, 256)
LIBRARIES = ("latentscale", "pynndescent", "imate", "scikit-primate", "numpy", "scipy", "numba")

Figures = dict[str, Any]


# --- data -------------------------------------------------------------------------------------


def clustered_rows(n: int, d: int) -> np.ndarray:
    """Draw rows from 200 clusters of intrinsic dimension 16, with noise in every direction."""
    generator = np.random.default_rng(0)
    turn = np.linalg.qr(generator.normal(size=(d, 16)))[0].T.astype("f4")
    centres = 3.0 * generator.normal(size=(200, 16)).astype("f4")
    rows = np.empty((n, d), dtype="f4")
    for start in range(0, n, 50_000):
        stop = min(start + 50_000, n)
        drawn = generator.standard_normal((stop - start, 16), dtype="f4")
        drawn += centres[generator.integers(200, size=stop - start)]
        noise = generator.standard_normal((stop - start, d), dtype="f4")
        rows[start:stop] = drawn @ turn + np.float32(0.05) * noise
    return rows


def near_graph(n: int) -> Any:
    """Join every vertex with about twelve others, near in the order as vertices in cells are."""
    from scipy.sparse import coo_array, csr_array, diags_array

    generator = np.random.default_rng(1)
    rows = np.repeat(np.arange(n), NEIGHBOURS // 2)
    columns = (rows + generator.integers(1, 2000, size=len(rows))) % n
    pairs = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    adjacency = csr_array(coo_array((np.ones(len(pairs[0])), pairs), shape=(n, n)))
    adjacency.data[:] = 1.0
    scale = diags_array(1.0 / np.sqrt(adjacency.sum(axis=1)))
    laplacian = csr_array(diags_array(np.ones(n)) - scale @ adjacency @ scale)
    laplacian.sort_indices()
    return laplacian


def true_distances(rows: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Distance of the fifth nearest other row, by brute force in float64."""
    found = np.empty(len(sample))
    for i, row in enumerate(sample):
        nearest = np.full(K + 1, np.inf)
        for start in range(0, len(rows), 100_000):
            difference = rows[start : start + 100_000].astype(float) - rows[row].astype(float)
            squared = np.einsum("ij,ij->i", difference, difference)
            nearest = np.sort(np.concatenate([nearest, np.partition(squared, K)[: K + 1]]))[: K + 1]
        found[i] = np.sqrt(nearest[K])
    return found


def recall(rows: np.ndarray, sample: np.ndarray, lists: np.ndarray, true: np.ndarray) -> float:
    """Share of listed neighbours that are within the true fifth distance."""
    hits = 0
    for row, limit, listed in zip(sample, true, lists, strict=True):
        difference = rows[listed].astype(float) - rows[row].astype(float)
        hits += int((np.sqrt(np.square(difference).sum(axis=1)) <= limit * (1 + 1e-9)).sum())
    return hits / (K * len(sample))


# --- contestants: each returns what it found, to be timed twice -------------------------------


def graph_by_job(folder: Path) -> Figures:
    """Run a job with the heat trace alone in processes of its own."""
    output = Path(tempfile.mkdtemp(dir=folder))
    config = output / "job.yaml"
    job = {
        "name": "graph",
        "corpus": str(folder / "rows.npy"),
        "output": str(output),
        "measures": {"heat": {"k": K}},
        "cluster": {"kind": "local", "workers": 2, "threads": 1, "memory_limit": "2GiB"},
    }
    config.write_text(json.dumps(job))
    command = [sys.executable, "-m", "latentscale_pipeline.cli", "run", str(config), "--json"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    results = json.loads(ended.stdout)
    stages = {timing["stage"]: round(timing["seconds"], 1) for timing in results["timings"]}
    lists = np.load(
        next(output.glob("graph-*")) / results["arrays"]["heat/corpus/neighbours"], mmap_mode="r"
    )
    return {
        "lists": lists[np.load(folder / "sample.npy")],
        "certificate": results["measures"]["heat"]["corpus"]["graph"]["recall"],
        "seconds_of_work": stages,
        "largest_process_bytes": max(t["peak_memory_bytes"] or 0 for t in results["timings"]),
    }


def graph_by_descent(folder: Path, neighbours: int) -> Figures:
    """One NNDescent over all rows, both cores."""
    from pynndescent import NNDescent

    rows = np.load(folder / "rows.npy")
    descent = NNDescent(
        rows, metric="euclidean", n_neighbors=neighbours, random_state=0, n_jobs=os.cpu_count()
    )
    lists = descent.neighbor_graph[0][np.load(folder / "sample.npy")]
    return {"lists": lists[:, 1 : K + 1]}


def trace_by_latentscale(folder: Path) -> Figures:
    from latentscale.heat import heat_trace

    heat = heat_trace(
        load_graph(folder),
        TIMES,
        generator=np.random.default_rng(0),
        steps=STEPS,
        probes=PROBES,
    )
    at_one = int(np.argmin(np.abs(TIMES - 1.0)))
    return {
        "times": len(TIMES),
        "time": float(TIMES[at_one]),
        "trace": float(heat.trace[at_one]),
        "standard_error": float(heat.standard_error[at_one]),
    }


def trace_by_imate(folder: Path) -> Figures:
    from imate import trexp  # type: ignore[import-not-found]
    from scipy.sparse import csr_matrix

    laplacian = csr_matrix(load_graph(folder))
    time_one = float(TIMES[int(np.argmin(np.abs(TIMES - 1.0)))])
    value, told = trexp(
        laplacian,
        coeff=-time_one,
        method="slq",
        min_num_samples=PROBES,
        max_num_samples=PROBES,
        lanczos_degree=STEPS,
        return_info=True,
    )
    n = laplacian.shape[0]
    error = told["error"]["absolute_error"] / 1.96 / n
    return {"times": 1, "time": time_one, "trace": value / n, "standard_error": float(error)}


def trace_by_primate(folder: Path) -> Figures:
    from primate.operators import matrix_function  # type: ignore[import-not-found]
    from primate.trace import hutch  # type: ignore[import-not-found]
    from scipy.sparse import csr_matrix

    laplacian = csr_matrix(load_graph(folder))
    time_one = float(TIMES[int(np.argmin(np.abs(TIMES - 1.0)))])
    operator = matrix_function(laplacian, fun=lambda x: np.exp(-time_one * x), deg=STEPS)
    value = hutch(operator, converge="count", count=PROBES, seed=0)
    return {"times": 1, "time": time_one, "trace": float(value) / laplacian.shape[0]}


def trace_by_loops(folder: Path) -> Figures:
    """The plain route: probe by probe, every Lanczos vector orthogonalised against all before."""
    laplacian = load_graph(folder)
    n, generator = laplacian.shape[0], np.random.default_rng(0)
    found = np.empty((PROBES, len(TIMES)))
    for probe in range(PROBES):
        basis = np.zeros((STEPS, n))
        basis[0] = generator.choice([-1.0, 1.0], size=n) / np.sqrt(n)
        diagonal, beside = np.zeros(STEPS), np.zeros(STEPS - 1)
        for step in range(STEPS):
            product = laplacian @ basis[step]
            diagonal[step] = product @ basis[step]
            product -= basis[: step + 1].T @ (basis[: step + 1] @ product)
            if step + 1 < STEPS:
                beside[step] = np.linalg.norm(product)
                basis[step + 1] = product / beside[step]
        nodes, vectors = np.linalg.eigh(
            np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        )
        found[probe] = np.exp(-np.multiply.outer(TIMES, nodes)) @ np.square(vectors[0])
    at_one = int(np.argmin(np.abs(TIMES - 1.0)))
    return {
        "times": len(TIMES),
        "time": float(TIMES[at_one]),
        "trace": float(found[:, at_one].mean()),
        "standard_error": float(found[:, at_one].std(ddof=1) / np.sqrt(PROBES)),
    }


def load_graph(folder: Path) -> Any:
    from scipy.sparse import load_npz

    return load_npz(folder / "graph.npz")


CONTESTANTS: dict[str, Callable[[Path], Figures]] = {
    "latentscale job": graph_by_job,
    "NNDescent, 15 neighbours": lambda folder: graph_by_descent(folder, 15),
    "NNDescent, 30 neighbours": lambda folder: graph_by_descent(folder, 30),
    "latentscale": trace_by_latentscale,
    "imate": trace_by_imate,
    "scikit-primate": trace_by_primate,
    "plain route": trace_by_loops,
}

# --- one process, and all of them -------------------------------------------------------------


def work_twice(name: str, folder: Path, output: Path) -> None:
    """Time a contestant cold and warm, and write what it found."""
    figures: Figures = {}
    for when in ("cold", "warm"):
        begun = time.perf_counter()
        try:
            found = CONTESTANTS[name](folder)
        except ImportError as missing:
            output.write_text(json.dumps({"left_out": str(missing)}))
            return
        figures[f"{when}_seconds"] = round(time.perf_counter() - begun, 2)
    if "lists" in found:
        np.save(output.with_suffix(".npy"), found.pop("lists"))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["versions"] = {name: version(name) for name in LIBRARIES if version(name)}
    output.write_text(json.dumps({**figures, "peak_bytes": peak, **found}))


def alone(name: str, folder: Path, python: str) -> Figures:
    """Let a contestant work in a process of its own."""
    output = folder / "found.json"
    begun = time.perf_counter()
    command = [python, __file__, "one", "--name", name, "--folder", str(folder)]
    ended = subprocess.run([*command, "--output", str(output)], check=False)
    if ended.returncode:
        return {"failed": f"exit {ended.returncode}"}
    found: Figures = json.loads(output.read_text())
    output.unlink()
    # The process's own start and imports are part of a cold run.
    return {**found, "process_seconds": round(time.perf_counter() - begun, 2)}


def compare_graphs(arguments: argparse.Namespace, folder: Path) -> Figures:
    """All routes to the neighbour graph, and their recall."""
    rows = clustered_rows(arguments.rows, arguments.dimension)
    sample = np.sort(np.random.default_rng(2).choice(len(rows), SAMPLED, replace=False))
    np.save(folder / "rows.npy", rows)
    np.save(folder / "sample.npy", sample)
    true = true_distances(rows, sample[: arguments.checked])
    found = {}
    for name in [name for name in CONTESTANTS if "job" in name or "NNDescent" in name]:
        found[name] = alone(name, folder, sys.executable)
        lists = folder / "found.npy"
        if lists.exists():
            checked = sample[: arguments.checked]
            listed = np.load(lists)[: arguments.checked]
            found[name]["recall"] = recall(rows, checked, listed, true)
            lists.unlink()
    return {"rows": arguments.rows, "dimension": arguments.dimension, "k": K, "found": found}


def compare_traces(arguments: argparse.Namespace, folder: Path) -> Figures:
    """All routes to the heat trace of one graph."""
    from scipy.sparse import csr_matrix, save_npz

    laplacian = near_graph(arguments.vertices)
    save_npz(folder / "graph.npz", csr_matrix(laplacian), compressed=False)
    pythons = {"imate": arguments.other_python, "scikit-primate": arguments.other_python}
    names = ["latentscale", "imate", "scikit-primate"]
    if arguments.vertices <= arguments.plain_vertices:
        names.append("plain route")
    found = {name: alone(name, folder, pythons.get(name) or sys.executable) for name in names}
    return {
        "vertices": arguments.vertices,
        "entries": int(laplacian.nnz),
        "probes": PROBES,
        "steps": STEPS,
        "found": found,
    }


def version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    graph = commands.add_parser("graph", help="neighbour graphs of clustered rows")
    graph.add_argument("--rows", type=int, default=100_000)
    graph.add_argument("--dimension", type=int, default=128)
    graph.add_argument("--checked", type=int, default=200, help="rows whose recall is measured")
    trace = commands.add_parser("trace", help="heat traces of one graph")
    trace.add_argument("--vertices", type=int, default=100_000)
    trace.add_argument("--other-python", help="python that has imate and scikit-primate")
    trace.add_argument("--plain-vertices", type=int, default=200_000)
    one = commands.add_parser("one", help="one contestant, in this process")
    one.add_argument("--name", choices=CONTESTANTS, required=True)
    one.add_argument("--folder", type=Path, required=True)
    for command in (graph, trace, one):
        command.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "one":
        work_twice(arguments.name, arguments.folder, arguments.output)
        return
    with tempfile.TemporaryDirectory(prefix="latentscale-heat-") as folder:
        compare = compare_graphs if arguments.command == "graph" else compare_traces
        document = {
            "benchmark": f"heat {arguments.command}",
            "machine": {
                "cores": os.cpu_count(),
                "system": f"{platform.system()} {platform.machine()}",
                "load_before": os.getloadavg()[0],
            },
            **compare(arguments, Path(folder)),
        }
    arguments.output.write_text(json.dumps(document, indent=1))
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
