"""Nanoseconds a pair of rows, by precision, dimension, number of scales and kind of data.

    python benchmarks/tiles.py --output tiles.json

Each number is the least processor time of several visits of one pair of blocks of 1024 rows, on one
core. Products are computed both ways.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from latentscale.tiles.distances import METRICS, Metric, Points, as_points, within
from latentscale.tiles.exponential_products import DistanceTiles, block_sums, similarity_error

ROWS = 1024
DIMENSIONS = (16, 384, 1024)

Case = tuple[dict[str, object], Callable[[], object]]


def nanoseconds(work: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of a call, in nanoseconds a pair; the first call compiles."""
    work()
    times = []
    for _ in range(repeats):
        start = time.thread_time_ns()
        work()
        times.append(time.thread_time_ns() - start)
    return round(min(times) / ROWS**2, 2)


def even_scales(count: int) -> np.ndarray:
    return np.linspace(0.0, 10.0, count + 1)[1:]


def two_blocks(rows: np.ndarray, metric: Metric) -> tuple[Points, Points]:
    points = as_points(rows, metric)
    points = points.about(points.rows.mean(axis=0))
    return points.take(slice(0, ROWS)), points.take(slice(ROWS, None))


def gaussian_rows(d: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(2 * ROWS, d)) / np.sqrt(d)


def clustered_rows(d: int, clusters: int, radius: float, rng: np.random.Generator) -> np.ndarray:
    centres = gaussian_rows(d, rng)[:clusters]
    return centres[rng.integers(clusters, size=2 * ROWS)] + radius * gaussian_rows(d, rng)


def products(a: Points, b: Points, scales: np.ndarray, precision: str) -> Callable[[], object]:
    vectors = np.random.default_rng(1).normal(size=(ROWS, len(scales)))
    return partial(
        block_sums, a, b, scales=scales, vectors_a=vectors, vectors_b=vectors, precision=precision
    )


def visit(a: Points, b: Points, precision: str) -> None:
    for _ in DistanceTiles(a, b, precision):
        pass


def cases(d: int, precision: str, rng: np.random.Generator) -> Iterator[Case]:
    """Return the operations on a pair of blocks of Gaussian rows, by name."""
    a, b = two_blocks(gaussian_rows(d, rng), "euclidean")
    facts = {"precision": precision, "d": d}
    dtype = np.float32 if precision == "single" else np.float64
    out = np.empty((ROWS, ROWS), dtype=dtype)
    matrices = a.rows.astype(dtype), b.rows.astype(dtype).T
    yield {"what": "matrix product", **facts}, partial(np.matmul, *matrices, out=out)
    yield {"what": "separations", **facts}, partial(visit, a, b, precision)
    for count in (1, 5, 20, 40):
        yield (
            {"what": "products, even scales", **facts, "scales": count},
            products(a, b, even_scales(count), precision),
        )
    twenty = products(a, b, even_scales(20), precision)
    uneven = products(a, b, even_scales(20) ** 1.1, precision)
    yield {"what": "products, uneven scales", **facts, "scales": 20}, uneven
    exponents = 2.0 ** np.arange(-5, 15)
    yield (
        {"what": "Gaussian sums", **facts, "exponents": 20},
        partial(block_sums, a, b, exponents=exponents, precision=precision),
    )
    yield (
        {"what": "both in one visit", **facts, "scales": 20, "exponents": 20},
        partial(twenty, exponents=exponents),
    )


def all_cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    scales = even_scales(20)
    for precision in ("single", "double"):
        for d in DIMENSIONS:
            yield from cases(d, precision, rng)
        for metric in METRICS:
            a, b = two_blocks(gaussian_rows(384, rng), metric)
            facts = {"what": "products, even scales", "precision": precision, "d": 384}
            yield {**facts, "metric": metric}, products(a, b, scales, precision)
        for clusters, radius in ((100, 0.1), (20, 0.1), (5, 0.1), (2, 0.1), (5, 1e-4), (2, 1e-4)):
            a, b = two_blocks(clustered_rows(384, clusters, radius, rng), "euclidean")
            facts = {"what": "products, even scales", "precision": precision, "d": 384}
            data = f"{clusters} clusters of relative radius {radius}"
            yield {**facts, "data": data}, products(a, b, scales, precision)
    for d in DIMENSIONS:
        a, b = two_blocks(gaussian_rows(d, rng), "euclidean")
        yield {"what": "decisions", "d": d}, partial(within, a, b, 1.4, strict=True)


def error_bounds() -> Iterator[dict[str, object]]:
    """Return the proven error bounds of single-precision similarities of unit vectors."""
    for d in DIMENSIONS:
        unit = as_points(np.random.default_rng(1).normal(size=(ROWS, d)), "cosine").rows
        points = as_points(unit, "euclidean").about(unit.mean(axis=0))
        scales = np.linspace(0.0, 20.0, 21)[1:]
        bounds = similarity_error(points, scales, "single")
        yield {"d": d, "bounds": dict(zip(scales.tolist(), bounds.tolist(), strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, help="file for the JSON; standard output without")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    measured = []
    with threadpool_limits(1):
        for facts, work in all_cases():
            measured.append({**facts, "ns": nanoseconds(work, arguments.repeats)})
            print(json.dumps(measured[-1]), file=sys.stderr, flush=True)
    document = {
        "machine": platform.processor() or platform.machine(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "rows": ROWS,
        "nanoseconds_a_pair": measured,
        "similarity_error": list(error_bounds()),
    }
    text = json.dumps(document, indent=1)
    if arguments.output:
        arguments.output.write_text(text + "\n", "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
