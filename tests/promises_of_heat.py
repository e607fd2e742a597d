"""The promises on heat trace and IMD at their full counts; ``make test-full`` as ``heat-…``."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from latentscale.distances import as_points
from latentscale.graph import normalised_laplacian, symmetrise, unnormalised_laplacian
from latentscale.heat import heat_trace, imd
from latentscale.neighbours import exact_neighbours
from tests import oracles

if TYPE_CHECKING:
    from tests.full import Bench

TIMES = np.logspace(-1, 1, 33)
SEEDS = 200
VERTICES = 3000


def neighbour_graph(rows: np.ndarray) -> csr_array:
    """Join every row with its five nearest."""
    return symmetrise(exact_neighbours(as_points(rows, "euclidean"), 5).indices)


def graph_families(n: int) -> dict[str, csr_array]:
    """A ring lattice, a star, a neighbour graph, and one of many parts, some of them isolated."""
    offsets = np.array([-3, -2, -1, 1, 2, 3])
    ring = symmetrise((np.arange(n)[:, None] + offsets) % n)
    star = symmetrise(np.zeros((n, 1), dtype=np.int64))
    generator = np.random.default_rng(4)
    near = neighbour_graph(generator.normal(size=(n, 4)))
    parts = np.concatenate([generator.normal(size=(n // 4, 3)) + 50 * i for i in range(3)])
    lists = exact_neighbours(as_points(parts, "euclidean"), 5).indices
    alone = np.arange(len(parts), n)
    path = np.where(alone < n - n // 10, np.minimum(alone + 1, n - n // 10), alone)
    joined = np.concatenate([lists, np.repeat(path[:, None], 5, axis=1)])
    return {"ring": ring, "star": star, "neighbours": near, "disconnected": symmetrise(joined)}


def coverage_of_traces(bench: Bench) -> list[dict[str, Any]]:
    """How often the intervals hold the trace by dense eigenvalues, at the worst time."""
    from tests.full import record

    figures: dict[str, float] = {}
    for name, graph in graph_families(VERTICES).items():
        for form, steps in ((normalised_laplacian, 10), (unnormalised_laplacian, None)):
            laplacian = form(graph)
            truth = oracles.dense_trace(laplacian.toarray(), TIMES)
            for probes in (8, None):
                covered = np.zeros(len(TIMES))
                for seed in range(SEEDS):
                    heat = heat_trace(
                        laplacian,
                        TIMES,
                        generator=np.random.default_rng(seed),
                        steps=steps,
                        probes=probes,
                        tolerance=1e-2,
                    )
                    covered += (heat.lower <= truth) & (truth <= heat.upper)
                label = f"{name}, {form.__name__}, probes {probes or 'auto'}"
                figures[label] = float(covered.min()) / SEEDS
    return [
        record(
            f"intervals of the heat trace of {VERTICES} vertices hold over {SEEDS} seeds",
            figures,
            "at every time, of every graph: at least 0.9",
            min(figures.values()) >= 0.9,
        )
    ]


def error_at_one(bench: Bench) -> list[dict[str, Any]]:
    """Standard errors against the paper's estimator, and of IMD, by repetition over seeds."""
    from tests.full import record

    graphs = [neighbour_graph(bench.rows[start::4].astype(float)) for start in (0, 1)]
    laplacians = [normalised_laplacian(graph) for graph in graphs]
    values, vectors = np.linalg.eigh(laplacians[0].toarray())
    n = len(values)
    # The paper's control variate (eq. 15): the exact variance of its estimate by random signs.
    matrix = (vectors * (np.exp(-values) - (1 - np.exp(-1) * values))) @ vectors.T
    variance = 2 * (np.square(matrix).sum() - np.square(np.diag(matrix)).sum())
    paper = math.sqrt(variance / 100) / n
    truths = [
        np.exp(-np.multiply.outer(TIMES, values)).mean(axis=1),
        oracles.dense_trace(laplacians[1].toarray(), TIMES),
    ]
    distance, _ = oracles.imd_of_traces(TIMES, *truths)
    at_one = int(np.argmin(np.abs(TIMES - 1.0)))
    errors, distances, promised, distances_promised = [], [], [], []
    begun = time.perf_counter()
    for seed in range(40):
        *streams, bootstrap = np.random.default_rng(seed).spawn(3)
        heats = [
            heat_trace(laplacian, TIMES, generator=stream, probes=100)
            for laplacian, stream in zip(laplacians, streams, strict=True)
        ]
        found = imd(*heats, generator=bootstrap).estimate
        errors.append(heats[0].trace[at_one] - truths[0][at_one])
        promised.append(heats[0].standard_error[at_one])
        distances.append(found.value - distance)
        distances_promised.append(found.standard_error)
    figures = {
        "vertices": n,
        "papers_standard_error": paper,
        "spread_over_seeds": float(np.sqrt(np.mean(np.square(errors)))),
        "standard_error_stated": float(np.mean(promised)),
        "imd": distance,
        "imd_spread_over_seeds": float(np.sqrt(np.mean(np.square(distances)))),
        "imd_standard_error_stated": float(np.mean(distances_promised)),
        "seconds": round(time.perf_counter() - begun, 1),
    }
    held = (
        figures["spread_over_seeds"] <= paper / 200
        and figures["imd_spread_over_seeds"] <= 5e-8
        and figures["imd_standard_error_stated"] <= 5e-8
    )
    return [
        record(
            "the standard error at t = 1 is 200 times below the paper's with 100 probes",
            figures,
            "spread_over_seeds <= papers_standard_error / 200; both of imd <= 5e-8",
            held,
        )
    ]


def a_set_against_itself(bench: Bench) -> list[dict[str, Any]]:
    """The interval of IMD holds 0 when both sides are one set, probed independently."""
    from tests.full import record

    laplacian = normalised_laplacian(neighbour_graph(bench.rows[::7].astype(float)))
    holds, halves = 0, []
    for seed in range(SEEDS):
        *streams, bootstrap = np.random.default_rng(seed).spawn(3)
        heats = [heat_trace(laplacian, TIMES, generator=stream) for stream in streams]
        found = imd(*heats, generator=bootstrap).estimate
        holds += found.lower == 0.0
        halves.append(found.upper - found.value)
    figures = {
        "vertices": laplacian.shape[0],
        "share": holds / SEEDS,
        "median_half_width": float(np.median(halves)),
    }
    return [
        record(
            f"a set against itself is at a distance that may be 0, over {SEEDS} seeds",
            figures,
            "share >= 0.95",
            figures["share"] >= 0.95,
        )
    ]
