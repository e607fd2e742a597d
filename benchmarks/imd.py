"""IMD of two sets of rows: latentscale against its authors' code and the dense method.

    python benchmarks/imd.py --rows 5000 --dimension 64 --repeats 3 \
        --msid-python VENV/bin/python --output imd.json

All take 5 neighbours, 256 times, the normalised Laplacian and traces per vertex. The authors' code
and latentscale draw 100 probes of 10 Lanczos steps; the dense method computes all eigenvalues, so
its value is exact. Every contestant runs alone in a fresh process, in turn. Times exclude imports,
compilation and a warm-up on 200 rows.

The authors' code isn't in the package index (the package msid there is something else):

    python3 -m venv VENV
    VENV/bin/pip install numpy scipy git+https://github.com/xgfs/imd
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from contest import (
    Inputs,
    Values,
    clustered_rows,
    header,
    in_turns,
    print_table,
    summary,
    take_part,
    versions,
    write,
)

K, PROBES, STEPS = 5, 100, 10
TIMES = np.logspace(-1, 1, 256)
FINE_TIMES = np.logspace(-0.7, 0.7, 2001)
"""Where the dense traces are compared: their supremum is known to 1e-7 of it."""

WARM_UP_ROWS = 200
MILLIONTHS = 1e6
"""The unit of the authors' code."""

LIBRARIES = ("latentscale", "msid", "numpy", "scipy", "numba")

# --- contestants: two sets of rows in, a distance out ----------------------------------------


def run_latentscale(inputs: Inputs) -> Values:
    from latentscale.graphs.knn import symmetrise
    from latentscale.graphs.laplacian import normalised_laplacian
    from latentscale.heat.imd import imd_of_traces
    from latentscale.heat.trace import HeatTrace, estimate_heat_trace
    from latentscale.neighbours.exact import exact_neighbours
    from latentscale.tiles.distances import as_points

    generator = np.random.default_rng(0)

    def trace(rows: np.ndarray) -> HeatTrace:
        found = exact_neighbours(as_points(rows, "euclidean"), K)
        laplacian = normalised_laplacian(symmetrise(found.indices))
        return estimate_heat_trace(
            laplacian, TIMES, generator=generator, steps=STEPS, probes=PROBES
        )

    found = imd_of_traces(
        trace(inputs["rows"]), trace(inputs["others"]), generator=generator
    ).estimate
    return {
        "imd": found.value,
        "lower": found.lower,
        "upper": found.upper,
        "versions": versions(LIBRARIES),
    }


def run_msid(inputs: Inputs) -> Values:
    from msid import msid_score  # type: ignore[import-not-found]

    np.random.seed(0)  # noqa: NPY002 -- it draws from the global generator
    found = msid_score(inputs["rows"], inputs["others"], ts=TIMES, k=K, m=STEPS, niters=PROBES)
    return {"imd": float(found) / MILLIONTHS, "versions": versions(LIBRARIES)}


def run_dense(inputs: Inputs) -> Values:
    from scipy.linalg import eigvalsh
    from scipy.spatial import cKDTree

    def trace(rows: np.ndarray) -> np.ndarray:
        rows = rows.astype(np.float64)
        _, lists = cKDTree(rows).query(rows, K + 1)
        adjacency = np.zeros((len(rows), len(rows)))
        # Among equal rows a row need not be its own nearest neighbour, so its own entry is removed
        # below.
        adjacency[np.arange(len(rows))[:, None], lists] = 1.0
        adjacency = np.maximum(adjacency, adjacency.T)
        np.fill_diagonal(adjacency, 0.0)
        scale = 1.0 / np.sqrt(adjacency.sum(axis=1))
        laplacian = np.eye(len(rows)) - scale[:, None] * adjacency * scale
        values = eigvalsh(laplacian, overwrite_a=True, check_finite=False)
        return np.exp(-np.multiply.outer(FINE_TIMES, values)).sum(axis=1) / len(rows)

    weight = np.exp(-2 * (FINE_TIMES + 1 / FINE_TIMES))
    apart = np.abs(trace(inputs["rows"]) - trace(inputs["others"]))
    return {"imd": float((weight * apart).max()), "versions": versions(LIBRARIES)}


CONTESTANTS = {"latentscale": run_latentscale, "msid": run_msid, "dense": run_dense}


def few_rows(inputs: Inputs) -> Inputs:
    return {name: values[:WARM_UP_ROWS] for name, values in inputs.items()}


# --- comparison ------------------------------------------------------------------------------


def two_sets(n: int, dimension: int, seed: int) -> Inputs:
    """Draw two sets of different clusters."""
    return {
        "rows": clustered_rows(n, dimension, seed),
        "others": clustered_rows(n, dimension, seed + 1),
    }


def compare(arguments: argparse.Namespace) -> Values:
    """Run the contestants in turn."""
    begun = header(arguments)
    inputs = two_sets(arguments.rows, arguments.dimension, arguments.seed)
    pythons = {"latentscale": sys.executable, "dense": sys.executable}
    if arguments.msid_python:
        pythons["msid"] = arguments.msid_python
    runs = in_turns(__file__, pythons, inputs, arguments.repeats, arguments.threads)
    results = {name: summary(found) for name, found in runs.items()}
    ours, truth = results["latentscale"], results["dense"]["imd"]
    return {
        **begun,
        "rows": arguments.rows,
        "dimension": arguments.dimension,
        "contestants": results,
        "inside": bool(ours["lower"] <= truth <= ours["upper"]),
    }


def main() -> None:
    if take_part(CONTESTANTS, few_rows):
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5000, help="rows a side")
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--msid-python", help="interpreter that can import the authors' msid")
    parser.add_argument("--output", type=Path, default=Path("imd.json"))
    parser.set_defaults(data=None)
    arguments = parser.parse_args()
    found = compare(arguments)
    write(arguments.output, found)
    print_table(found["contestants"])


if __name__ == "__main__":
    main()
