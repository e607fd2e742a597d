"""Neighbour graphs and heat traces: latentscale against the alternatives.

Graph: a job of latentscale (its whole process tree, start, ingest and certificate included) against
one NNDescent over all rows, both on all cores, by the recall of 5 neighbours of sampled rows.

    python benchmarks/heat.py graph --rows 1000000 --dimension 128 --output heat-graph.json

Trace: 256 times from 100 probes of 10 Lanczos steps on a graph of 12 neighbours a vertex, against
imate and scikit-primate, which compute one time a run, and the plain route as the paper writes it
(Lanczos with full reorthogonalisation in a loop over probes, float64).

    python benchmarks/heat.py trace --vertices 1000000 --other-python VENV/bin/python

Every contestant runs alone in a fresh process and does all of the work twice: *cold* is the first
time, with what it imports and compiles, *warm* the second. imate and scikit-primate aren't
dependencies; they are left out unless their interpreter is named:

    python3 -m venv VENV
    VENV/bin/pip install numpy scipy imate scikit-primate
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from contest import Inputs, Values, header, launch, read_rows, summary, take_part, versions, write

K, SAMPLED = 5, 1000
PROBES, STEPS = 100, 10
NEIGHBOURS = 12
"""Nonzero entries of a row of the graph whose trace is computed."""

TIMES = np.logspace(-1, 1, 256)
AT_ONE = int(np.argmin(np.abs(TIMES - 1.0)))
LIBRARIES = ("latentscale", "pynndescent", "imate", "scikit-primate", "numpy", "scipy", "numba")

# --- graphs ----------------------------------------------------------------------------------


def run_job(inputs: Inputs) -> Values:
    """Run a job with the heat trace alone, in processes of its own."""
    with tempfile.TemporaryDirectory(prefix="latentscale-benchmark-") as folder:
        np.save(Path(folder, "rows.npy"), inputs["rows"])
        job = {
            "name": "graph",
            "corpus": str(Path(folder, "rows.npy")),
            "output": folder,
            "measures": {"heat": {"k": K, "neighbours": "cells"}},
            "cluster": {"kind": "local", "workers": os.cpu_count(), "memory_limit": "2GiB"},
        }
        config = Path(folder, "job.yaml")
        config.write_text(json.dumps(job))
        command = [sys.executable, "-m", "latentscale_pipeline.cli", "run", str(config), "--json"]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
        results = json.loads(ended.stdout)
        [lists] = Path(folder).glob(f"graph-*/{results['arrays']['heat/corpus/neighbours']}")
        found = np.load(lists, mmap_mode="r")[inputs["sample"]]
        graph_wall = wall_seconds(Path(folder), "cells-corpus", "graph-corpus")
    timings = results["timings"]
    graph = [t for t in timings if not t["stage"].startswith(("duplicates", "heat"))]
    return {
        "lists": found.tolist(),
        "certificate": results["measures"]["heat"]["corpus"]["graph"]["recall"],
        "seconds_of_work": {t["stage"]: round(t["seconds"], 1) for t in timings},
        "graph_wall_seconds": round(graph_wall, 1),
        "graph_seconds_of_work": round(sum(t["seconds"] for t in graph), 1),
        "largest_process_bytes": max(t["peak_memory_bytes"] or 0 for t in timings),
        "versions": versions(LIBRARIES),
    }


def wall_seconds(folder: Path, first: str, last: str) -> float:
    """Return the time from the start of one stage to the end of another, in a folder's only job."""
    [events] = folder.glob("graph-*/events/*.jsonl")
    found = [json.loads(line) for line in events.read_text().splitlines()]
    at = {(event["event"], event.get("stage")): event["time"] for event in found}
    return float(at["stage_done", last] - at["stage_started", first])


def run_descent(inputs: Inputs, neighbours: int) -> Values:
    """Run one NNDescent over all rows, on all cores."""
    from pynndescent import NNDescent

    descent = NNDescent(
        inputs["rows"],
        metric="euclidean",
        n_neighbors=neighbours,
        random_state=0,
        n_jobs=-1,
    )
    lists = descent.neighbor_graph[0][inputs["sample"], 1 : K + 1]
    return {"lists": lists.tolist(), "versions": versions(LIBRARIES)}


# --- traces ----------------------------------------------------------------------------------


def laplacian_of(inputs: Inputs, kind: str) -> Any:
    from scipy import sparse

    n = len(inputs["indptr"]) - 1
    parts = (inputs["data"], inputs["indices"], inputs["indptr"])
    return getattr(sparse, kind)(parts, shape=(n, n))


def run_latentscale(inputs: Inputs) -> Values:
    from latentscale.heat.trace import estimate_heat_trace

    heat = estimate_heat_trace(
        laplacian_of(inputs, "csr_array"),
        TIMES,
        generator=np.random.default_rng(0),
        steps=STEPS,
        probes=PROBES,
        threads=int(os.environ["OMP_NUM_THREADS"]),
    )
    return {
        "times": len(TIMES),
        "trace": float(heat.trace[AT_ONE]),
        "standard_error": float(heat.standard_error[AT_ONE]),
        "versions": versions(LIBRARIES),
    }


def run_imate(inputs: Inputs) -> Values:
    from imate import trexp  # type: ignore[import-not-found]

    laplacian = laplacian_of(inputs, "csr_matrix")
    value, told = trexp(
        laplacian,
        coeff=-float(TIMES[AT_ONE]),
        method="slq",
        min_num_samples=PROBES,
        max_num_samples=PROBES,
        lanczos_degree=STEPS,
        return_info=True,
    )
    n = laplacian.shape[0]
    return {
        "times": 1,
        "trace": float(value) / n,
        "standard_error": float(told["error"]["absolute_error"]) / 1.96 / n,
        "versions": versions(LIBRARIES),
    }


def run_primate(inputs: Inputs) -> Values:
    from primate.operators import matrix_function  # type: ignore[import-not-found]
    from primate.trace import hutch  # type: ignore[import-not-found]

    laplacian = laplacian_of(inputs, "csr_matrix")
    late = float(TIMES[AT_ONE])
    operator = matrix_function(laplacian, fun=lambda x: np.exp(-late * x), deg=STEPS)
    value = hutch(operator, converge="count", count=PROBES, seed=0)
    trace = float(value) / laplacian.shape[0]
    return {"times": 1, "trace": trace, "versions": versions(LIBRARIES)}


def run_plain(inputs: Inputs) -> Values:
    """Estimate the trace probe by probe, with full reorthogonalisation of Lanczos vectors."""
    laplacian = laplacian_of(inputs, "csr_array")
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
    return {
        "times": len(TIMES),
        "trace": float(found[:, AT_ONE].mean()),
        "standard_error": float(found[:, AT_ONE].std(ddof=1) / np.sqrt(PROBES)),
        "versions": versions(LIBRARIES),
    }


CONTESTANTS = {
    "latentscale job": run_job,
    "NNDescent 15": lambda inputs: run_descent(inputs, 15),
    "NNDescent 30": lambda inputs: run_descent(inputs, 30),
    "latentscale": run_latentscale,
    "imate": run_imate,
    "scikit-primate": run_primate,
    "plain route": run_plain,
}

# --- data, and what is true of it ------------------------------------------------------------


def near_graph(n: int) -> Inputs:
    """Join every vertex with about twelve others that are near in the order, as in cells."""
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
    names = ("indptr", "indices", "data")
    return {name: getattr(laplacian, name) for name in names}


def true_distances(rows: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Return the distance of the fifth nearest other row: candidates by a product, then exact."""
    queries = rows[sample].astype(float)
    nearest = np.full((len(sample), K + 1), np.inf)
    for start in range(0, len(rows), 50_000):
        block = rows[start : start + 50_000].astype(float)
        squared = np.square(block).sum(axis=1) - 2.0 * queries @ block.T
        near = np.argpartition(squared, 4 * K, axis=1)[:, : 4 * K]
        exact = np.square(block[near] - queries[:, None]).sum(axis=2)
        nearest = np.sort(np.concatenate([nearest, exact], axis=1), axis=1)[:, : K + 1]
    return np.sqrt(nearest[:, K])


def recall(rows: np.ndarray, sample: np.ndarray, lists: np.ndarray, true: np.ndarray) -> float:
    """Return the share of listed neighbours that are within the true fifth distance."""
    hits = 0
    for row, limit, listed in zip(sample, true, lists, strict=True):
        difference = rows[listed].astype(float) - rows[row].astype(float)
        hits += int((np.sqrt(np.square(difference).sum(axis=1)) <= limit * (1 + 1e-9)).sum())
    return hits / (K * len(sample))


# --- all contestants -------------------------------------------------------------------------


def twice(name: str, python: str, inputs: Inputs, threads: int) -> Values:
    """Run a contestant's whole work twice: cold, then warm."""
    run = launch(__file__, name, python, inputs, threads)
    cold = run["warm_up_seconds"]
    return {"cold_seconds": cold, "warm_seconds": run["seconds"], **summary([run])}


def compare_graphs(arguments: argparse.Namespace) -> Values:
    """Compare all methods for the neighbour graph, with their recall."""
    rows = read_rows(arguments, arguments.rows)
    sample = np.sort(np.random.default_rng(2).choice(len(rows), SAMPLED, replace=False))
    inputs = {"rows": rows, "sample": sample}
    checked = sample[: arguments.checked]
    true = true_distances(rows, checked)
    found = {}
    for name in ("latentscale job", "NNDescent 15", "NNDescent 30"):
        found[name] = twice(name, sys.executable, inputs, arguments.threads)
        lists = np.array(found[name].pop("lists"))[: arguments.checked]
        found[name]["recall"] = recall(rows, checked, lists, true)
    return {"rows": len(rows), "dimension": rows.shape[1], "k": K, "contestants": found}


def compare_traces(arguments: argparse.Namespace) -> Values:
    """Compare all methods for the heat trace of one graph."""
    inputs = near_graph(arguments.vertices)
    pythons = {"latentscale": sys.executable, "plain route": sys.executable}
    if arguments.vertices > arguments.plain_vertices:
        del pythons["plain route"]
    if arguments.other_python:
        pythons |= dict.fromkeys(("imate", "scikit-primate"), arguments.other_python)
    found = {
        name: twice(name, python, inputs, arguments.threads) for name, python in pythons.items()
    }
    ours = found["latentscale"]
    return {
        "data": "a graph of near vertices",
        "vertices": arguments.vertices,
        "entries": len(inputs["indices"]),
        "probes": PROBES,
        "steps": STEPS,
        "time": float(TIMES[AT_ONE]),
        "contestants": found,
        "standard_errors_apart": {
            name: abs(ours["trace"] - theirs["trace"])
            / np.hypot(ours["standard_error"], theirs["standard_error"])
            for name, theirs in found.items()
            if name != "latentscale" and "standard_error" in theirs
        },
    }


def main() -> None:
    if take_part(CONTESTANTS, lambda inputs: inputs):
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    graph = commands.add_parser("graph", help="neighbour graphs of clustered rows")
    graph.add_argument("--data", type=Path, help=".npy file of rows, instead of clusters")
    graph.add_argument("--rows", type=int, default=100_000)
    graph.add_argument("--dimension", type=int, default=128)
    graph.add_argument("--seed", type=int, default=0)
    graph.add_argument("--checked", type=int, default=200, help="rows whose recall is measured")
    trace = commands.add_parser("trace", help="heat traces of one graph")
    trace.add_argument("--vertices", type=int, default=100_000)
    trace.add_argument("--other-python", help="interpreter that has imate and scikit-primate")
    trace.add_argument("--plain-vertices", type=int, default=200_000)
    trace.set_defaults(data=None)
    for command in (graph, trace):
        command.add_argument("--threads", type=int, default=os.cpu_count() or 1)
        command.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    compare = compare_graphs if arguments.command == "graph" else compare_traces
    described = {"benchmark": f"heat {arguments.command}", **header(arguments)}
    found = {**described, **compare(arguments)}
    write(arguments.output, found)
    for name, contestant in found["contestants"].items():
        print(
            f"{name:16} cold {contestant['cold_seconds']:9.2f} s, "
            f"warm {contestant['warm_seconds']:9.2f} s"
        )


if __name__ == "__main__":
    main()
