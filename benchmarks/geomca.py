"""GeomCA: latentscale against the route that its authors' code takes.

Both are given the same rows and the same epsilon, and run alone in fresh processes, in turn:

    python benchmarks/geomca.py --rows 5000 --dimension 4096 --repeats 3 \
        --gudhi-python /path/to/venv/bin/python --output geomca.json

That route, written here from the paper's definitions: gudhi's greedy ``sparsify_point_set``, the
edges of gudhi's Rips complex, networkx for the components and their edges by type. Rows are one
broad normal cluster of intrinsic dimension 64, so that thousands are kept. Times leave out imports,
compilation and a warm-up on 200 rows; memory is the peak of the whole process. Kept rows,
components and edges have to agree, or the comparison says so.

gudhi and networkx are no dependencies; they live in an environment of their own:

    python3 -m venv VENV
    VENV/bin/pip install numpy gudhi networkx
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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

INTRINSIC = 64
WARM_UP_ROWS = 200
SAMPLE_ROWS = 2000
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
LIBRARIES = ("latentscale", "gudhi", "networkx", "numpy", "scipy", "numba")

Found = dict[str, Any]

# --- contestants: rows in, counts out --------------------------------------------------------


def run_latentscale(
    reference: np.ndarray, corpus: np.ndarray, epsilon: float, delta: float
) -> Found:
    from latentscale.distances import as_points
    from latentscale.epsilon_graph import epsilon_components
    from latentscale.geomca import geomca_scores
    from latentscale.sparsification import sparsify

    points = [as_points(rows, "euclidean") for rows in (reference, corpus)]
    sparse = [sparsify(side, delta) for side in points]
    kept = [side.take(thinned.kept) for side, thinned in zip(points, sparse, strict=True)]
    components = epsilon_components(*kept, epsilon)
    scores = geomca_scores(components, reference_rows=sparse[0].rows, corpus_rows=sparse[1].rows)
    return {
        "kept": [len(side) for side in kept],
        "components": len(components),
        "edges": [
            int(edges.sum())
            for edges in (
                components.edges_reference, components.edges_corpus, components.edges_between,
            )
        ],
        "precision": scores.precision,
        "recall": scores.recall,
    }  # fmt: skip


def run_gudhi(reference: np.ndarray, corpus: np.ndarray, epsilon: float, delta: float) -> Found:
    import gudhi  # type: ignore[import-not-found]
    import networkx  # type: ignore[import-not-found]
    from gudhi.subsampling import sparsify_point_set  # type: ignore[import-not-found]

    kept = [
        np.array(sparsify_point_set(points=rows.astype(np.float64), min_squared_dist=delta**2))
        for rows in (reference, corpus)
    ]
    n_reference = len(kept[0])
    points = np.concatenate(kept)
    complex_ = gudhi.RipsComplex(points=points, max_edge_length=epsilon)
    tree = complex_.create_simplex_tree(max_dimension=1)
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(points)))
    # The Rips complex keeps rows at exactly epsilon, which the paper doesn't.
    graph.add_edges_from(
        edge for edge, length in tree.get_skeleton(1) if len(edge) == 2 and length < epsilon
    )
    totals, good = [0, 0, 0], [0, 0]
    components = list(networkx.connected_components(graph))
    for component in components:
        inside = graph.subgraph(component)
        types = [(a >= n_reference) + (b >= n_reference) for a, b in inside.edges]
        counts = [types.count(0), types.count(2), types.count(1)]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        of_reference = sum(vertex < n_reference for vertex in component)
        if counts[2] and 0 < of_reference < len(component):
            good[0] += len(component) - of_reference
            good[1] += of_reference
    return {
        "kept": [len(side) for side in kept],
        "components": len(components),
        "edges": totals,
        "precision": good[0] / len(kept[1]),
        "recall": good[1] / len(kept[0]),
    }


CONTESTANTS = {"latentscale": run_latentscale, "gudhi": run_gudhi}

# --- one process -----------------------------------------------------------------------------


def contestant(name: str, folder: Path, epsilon: float, delta: float, output: Path) -> None:
    """Run one contestant in this process and write what it found and what it took."""
    reference, corpus = (np.load(folder / f"{side}.npy") for side in ("reference", "corpus"))
    run = CONTESTANTS[name]
    run(reference[:WARM_UP_ROWS], corpus[:WARM_UP_ROWS], epsilon, delta)
    idle = peak_bytes()
    cpu, wall = time.process_time(), time.perf_counter()
    found = run(reference, corpus, epsilon, delta)
    took = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "peak_bytes": peak_bytes(),
        "peak_bytes_after_warm_up": idle,
    }
    output.write_text(json.dumps({**found, **took, "versions": versions()}))


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


def broad_cluster(n: int, dimension: int, seed: int) -> np.ndarray:
    """One normal cluster of intrinsic dimension 64, turned into many dimensions; float32."""
    generator = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, INTRINSIC)))[0].T
    return (generator.normal(size=(n, INTRINSIC)) @ turn).astype(np.float32)


def percentile_of(rows: np.ndarray, percentile: float) -> float:
    """Percentile of the distances between two disjoint samples."""
    size = min(SAMPLE_ROWS, len(rows) // 2)
    left, right = rows[:size].astype(np.float64), rows[size : 2 * size].astype(np.float64)
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return float(np.percentile(np.sqrt(np.maximum(squares, 0)), percentile))


def launch(name: str, python: str, folder: Path, epsilon: float, delta: float) -> Found:
    """Run a contestant in a fresh process of an interpreter, with one thread."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    output = folder / "found.json"
    command = [
        python, __file__, "--contestant", name, str(folder), repr(epsilon), repr(delta),
        "--output", str(output),
    ]  # fmt: skip
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        reason = (ran.stderr.strip() or "no message").splitlines()[-1]
        raise SystemExit(f"{name} failed with exit code {ran.returncode}: {reason}")
    found: Found = json.loads(output.read_text())
    return found


def compare(arguments: argparse.Namespace) -> Found:
    """Let the contestants take turns, so that a disturbance doesn't hit one of them alone."""
    runs: dict[str, list[Found]] = {"latentscale": []}
    if arguments.gudhi_python:
        runs["gudhi"] = []
    with tempfile.TemporaryDirectory(prefix="geomca-benchmark-") as place:
        folder = Path(place)
        reference = broad_cluster(arguments.rows, arguments.dimension, 1)
        np.save(folder / "reference.npy", reference)
        np.save(folder / "corpus.npy", broad_cluster(arguments.rows, arguments.dimension, 2))
        epsilon = percentile_of(reference, arguments.percentile)
        delta = arguments.delta * epsilon
        for _ in range(arguments.repeats):
            for name, found in runs.items():
                python = arguments.gudhi_python if name == "gudhi" else sys.executable
                found.append(launch(name, python, folder, epsilon, delta))
                print(f"{name}: {found[-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    described = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "load": os.getloadavg()[0],
        "rows_a_side": arguments.rows,
        "dimension": arguments.dimension,
        "epsilon": epsilon,
        "delta": delta,
        "contestants": {name: summary(found) for name, found in runs.items()},
    }
    if "gudhi" in runs:
        ours, theirs = (described["contestants"][name] for name in ("latentscale", "gudhi"))
        agreed = ("kept", "components", "edges", "precision", "recall")
        described["agree"] = all(ours[key] == theirs[key] for key in agreed)
        described["times_faster"] = theirs["seconds"] / ours["seconds"]
        described["times_less_processor_time"] = theirs["cpu_seconds"] / ours["cpu_seconds"]
    return described


def summary(runs: list[Found]) -> Found:
    """Reduce repeated runs of one contestant to medians, and what the first found."""
    return {
        **runs[0],
        "seconds": statistics.median(run["seconds"] for run in runs),
        "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "all_seconds": [run["seconds"] for run in runs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5000, help="rows a side")
    parser.add_argument("--dimension", type=int, default=4096)
    parser.add_argument("--percentile", type=float, default=10.0)
    parser.add_argument("--delta", type=float, default=1.0, help="in units of epsilon")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gudhi-python", help="interpreter that can import gudhi and networkx")
    parser.add_argument("--output", type=Path, default=Path("geomca.json"))
    parser.add_argument("--contestant", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant:
        name, folder, epsilon, delta = arguments.contestant
        contestant(name, Path(folder), float(epsilon), float(delta), arguments.output)
        return
    found = compare(arguments)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    for name, result in found["contestants"].items():
        print(
            f"{name:12} {result['seconds']:9.2f} s {result['peak_bytes'] / 2**20:8.0f} MiB "
            f"kept {result['kept']}, {result['components']} components, edges {result['edges']}"
        )
    if "times_faster" in found:
        print(
            f"{found['times_faster']:.1f} times faster, "
            f"{found['times_less_processor_time']:.1f} times less processor time; "
            f"same answers: {found['agree']}"
        )


if __name__ == "__main__":
    main()
