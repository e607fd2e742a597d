"""The promises on magnitude at their full counts; run by ``make test-full`` as ``magnitude-…``."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.jobs import results_of, tasks_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

GIB = 2**30
MANY, DIMENSION = 100_000, 384
CHECKED_ROWS = 200


def clustered_rows(n: int, *, intrinsic: int = 8, seed: int = 0) -> np.ndarray:
    """Draw rows from clusters of low intrinsic dimension, turned into many dimensions."""
    generator = np.random.default_rng(seed)
    turn = np.linalg.qr(generator.normal(size=(DIMENSION, intrinsic)))[0].T
    centres = generator.normal(size=(50, intrinsic))
    rows = np.empty((n, DIMENSION), dtype=np.float32)
    for start in range(0, n, 10_000):
        stop = min(start + 10_000, n)
        drawn = centres[generator.integers(50, size=stop - start)]
        drawn = drawn + 0.3 * generator.normal(size=drawn.shape)
        rows[start:stop] = drawn @ turn
    return rows


def a_hundred_thousand_rows(bench: Bench) -> list[dict[str, Any]]:
    """Convergence scale and 20 scales of 100 000 clustered rows, and the weights checked."""
    from tests.acceptance.run import record, watch

    rows = clustered_rows(MANY)
    cluster = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": 2 * GIB}
    keys = {"measures": {"magnitude": {}}, "budget": {"pairs": 2e11}}
    config = bench.job("many", rows, cluster=cluster, **keys)
    ran = watch("run", config)
    if ran.code != 0:
        return [record("magnitude of 100 000 rows", {"said": ran.last_line}, "exit 0", held=False)]
    output = bench.output("many")
    results = results_of(output)
    found = results["measures"]["magnitude"]["corpus"]
    width = max(
        (upper - lower) / value
        for value, lower, upper in zip(found["value"], found["lower"], found["upper"], strict=True)
    )
    folder = next(output.glob("many-*"))
    weights = np.load(folder / results["arrays"]["magnitude/corpus/weights"])
    residual = largest_residual(rows, weights, found["scales"][-1])
    largest = max([ran.driver, *ran.workers.values()])
    seconds = {timing["stage"]: timing["seconds"] for timing in results["timings"]}
    return [
        record(
            "magnitude of 100 000 × 384 clustered rows: t_conv and 20 scales",
            {
                **ran.figures(),
                "seconds_of_work": seconds,
                "widest_bracket": width,
                "bounds": dict(Counter(found["bounds"])),
                "convergence_scale": found["convergence"],
            },
            "seconds < 1200, every process < 2 GiB, widest_bracket <= 1e-3",
            ran.seconds < 1200 and largest < 2 * GIB and width <= 1e-3,
        ),
        record(
            f"its weights solve K w = 1 on {CHECKED_ROWS} random rows, checked directly",
            {"largest_residual": residual},
            "largest_residual <= 1e-2",
            residual <= 1e-2,
        ),
    ]


def largest_residual(rows: np.ndarray, weights: np.ndarray, scale: float) -> float:
    """Multiply random rows of the similarity matrix, row by row from their definition."""
    drawn = np.random.default_rng(1).choice(len(rows), size=CHECKED_ROWS, replace=False)
    # Equal rows share one weight, and each of them has the similarity 1 to the others.
    worst = 0.0
    for row in drawn:
        squared = np.zeros(len(rows))
        for start in range(0, len(rows), 10_000):
            difference = rows[start : start + 10_000].astype(float) - rows[row].astype(float)
            squared[start : start + 10_000] = np.einsum("ij,ij->i", difference, difference)
        worst = max(worst, abs(float(np.exp(-scale * np.sqrt(squared)) @ weights) - 1.0))
    return worst


def killed_between_products(bench: Bench) -> list[dict[str, Any]]:
    """Kill the driver in the middle of iterations on 20 000 rows; count what is repeated."""
    from tests.acceptance.run import end, kill_after, record, watch

    keys: dict[str, Any] = {
        "measures": {"magnitude": {}},
        "cluster": {"kind": "local", "workers": 2, "threads": 1, "memory_limit": 2 * GIB},
    }
    whole = watch("run", bench.job("whole", bench.rows, **keys))
    every = tasks_of(bench.output("whole"))
    config = bench.job("cut", bench.rows, **keys)
    kills = []
    for share in (0.35, 0.6):
        begun = time.perf_counter()
        left = kill_after(share * whole.seconds, "run", config)
        if left is not None:
            kills.append(round(time.perf_counter() - begun, 1))
            end(left)
    again = watch("run", config)
    tasks = tasks_of(bench.output("cut"))
    repeated = Counter({name: count - every[name] for name, count in tasks.items()})
    products = {(stage, number) for (stage, number, _), extra in repeated.items() if extra > 0}
    same = (
        results_of(bench.output("cut"))["measures"] == results_of(bench.output("whole"))["measures"]
    )
    return [
        record(
            "killed in the middle of conjugate gradients on 20 000 rows and run again",
            {
                "killed_after_seconds": kills,
                "tasks": sum(every.values()),
                "tasks_repeated": sum(extra for extra in repeated.values() if extra > 0),
                "products_repeated_in_part": len(products),
                "same_results": same,
            },
            "the same results, at most one product repeated a kill",
            whole.code == again.code == 0 and same and len(products) <= len(kills),
        )
    ]
