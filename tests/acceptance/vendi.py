"""The promises on Vendi scores at their full counts; run by ``make test-full`` as ``vendi-…``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.jobs import results_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

GIB = 2**30
MILLION, MANY, DIMENSION = 1_000_000, 50_000, 384
LABELS = 1000
REPETITIONS, DENSE = 200, 2000

READ_AND_MULTIPLY = """
import json, sys, time
import numpy as np
from latentscale_pipeline.corpus import open_corpus
corpus, rows, worker = open_corpus(sys.argv[1]), np.load(sys.argv[2]), int(sys.argv[3])
rows = np.array_split(rows, 2)[worker]
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
begun = time.perf_counter()
for shard in range(worker, corpus.shard_count, 2):
    corpus.read_shard(shard)
read = time.perf_counter() - begun
begun = time.perf_counter()
rows.T @ rows
product = time.perf_counter() - begun
unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
moment = sum(part.T.astype(float) @ part for part in np.array_split(unit, 25))
np.save(sys.argv[4], moment)
print(json.dumps({"read": read, "product": product}))
"""
"""A worker's half of a pass that reads and checks every shard, and of the product in memory."""


def bare_pass(corpus: Path, source: Path, folder: Path) -> dict[str, float]:
    """Read and multiply as two workers would, side by side with one thread each.

    Returns the core-seconds of both, and the score of order one from float64 products in memory.
    """
    one = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    halves = [folder / f"half-{worker}.npy" for worker in range(2)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", READ_AND_MULTIPLY, str(corpus), str(source), str(i), str(half)],
            env=one, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for i, half in enumerate(halves)
    ]  # fmt: skip
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    took = [json.loads(worker.communicate()[0]) for worker in workers]
    moment = sum(np.load(half) for half in halves) / MILLION
    eigenvalues = np.linalg.eigvalsh(moment)
    return {
        "read": sum(times["read"] for times in took),
        "product": sum(times["product"] for times in took),
        "order_one": float(np.exp(-(eigenvalues * np.log(eigenvalues)).sum())),
    }


def a_million_rows(bench: Bench) -> list[dict[str, Any]]:
    """Cosine scores of a million rows against a bare pass and one product, and by label."""
    from latentscale_pipeline.corpus.ingest.create import ingest
    from tests.acceptance.run import record, watch

    generator = np.random.default_rng(0)
    source = bench.folder / "million.npy"
    rows = np.lib.format.open_memmap(source, "w+", "f4", (MILLION, DIMENSION))
    centres = generator.normal(size=(50, DIMENSION)).astype("f4")
    for start in range(0, MILLION, 50_000):
        noise = generator.standard_normal((50_000, DIMENSION), dtype=np.float32)
        rows[start : start + 50_000] = centres[generator.integers(50, size=50_000)] + 0.3 * noise
    rows.flush()
    labels = bench.folder / "labels.txt"
    drawn = generator.integers(LABELS, size=MILLION)
    labels.write_text("".join(f"{label}\n" for label in drawn))
    corpus = bench.folder / "million.zarr"
    ingest([str(source)], str(corpus), labels=str(labels))
    bare = bare_pass(corpus, source, bench.folder)
    cluster = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": 2 * GIB}
    vendi = {"kernels": ["cosine"], "labels": True}
    ran = watch("run", bench.job("million", corpus, measures={"vendi": vendi}, cluster=cluster))
    results = results_of(bench.output("million"))
    timings = {timing["stage"]: timing for timing in results["timings"]}
    stage, labelled = timings["vendi-cosine-corpus"], timings["vendi-labels-corpus"]
    [first] = [
        row["value"] for row in results["scores"] if row.get("order") == "1" and "label" not in row
    ]
    off = abs(first / bare["order_one"] - 1.0)
    ratio = stage["seconds"] / (bare["read"] + bare["product"])
    peak = max(stage["peak_memory_bytes"], labelled["peak_memory_bytes"])
    scored = sum("label" in row for row in results["scores"])
    return [
        record(
            "cosine scores of 1 000 000 × 384 rows",
            {
                **ran.figures(),
                **bare,
                "stage_seconds": stage["seconds"],
                "ratio": ratio,
                "off": off,
            },
            "core-seconds at most 1.2 × (bare pass + product in memory), off <= 1e-6",
            ran.code == 0 and ratio <= 1.2 and off <= 1e-6,
        ),
        record(
            "scores of 1000 labels beside them",
            {"labels_seconds": labelled["seconds"], "scores": scored, "peak_gib": peak / GIB},
            "every label has five scores, every process < 1 GiB",
            scored == 5 * LABELS and peak < GIB,
        ),
    ]


def fifty_thousand_rows(bench: Bench) -> list[dict[str, Any]]:
    """RBF scores of 50 000 rows by stochastic Lanczos."""
    from tests.acceptance.magnitude import clustered_rows
    from tests.acceptance.run import record, watch

    rows = clustered_rows(MANY)
    cluster = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": 2 * GIB}
    vendi = {"kernels": ["rbf"], "orders": [0.5, 1, 2, "inf"]}
    ran = watch("run", bench.job("rbf", rows, measures={"vendi": vendi}, cluster=cluster))
    found = results_of(bench.output("rbf"))["measures"]["vendi"]["corpus"]
    widths = {row["order"]: (row["upper"] - row["lower"]) / row["value"] for row in found}
    largest = max([ran.driver, *ran.workers.values()])
    return [
        record(
            "RBF scores of 50 000 × 384 rows, orders 0.5, 1, 2, inf",
            {**ran.figures(), "widths": widths},
            "seconds < 900, every process < 2 GiB",
            ran.code == 0 and ran.seconds < 900 and largest < 2 * GIB,
        )
    ]


def narrow_on_sentences(bench: Bench) -> list[dict[str, Any]]:
    """Widths with RBF, bandwidth 0.5, on the bench's own rows."""
    from tests.acceptance.run import record, watch

    kernel = {"name": "rbf", "bandwidth": 0.5}
    vendi = {"kernels": [kernel], "orders": [0.5, 1, 2, "inf"], "method": "lanczos"}
    ran = watch("run", bench.job("narrow", bench.rows, measures={"vendi": vendi}))
    found = results_of(bench.output("narrow"))["measures"]["vendi"]["corpus"]
    widths = {row["order"]: (row["upper"] - row["lower"]) / row["value"] for row in found}
    held = widths["0.5"] <= 0.1 and all(widths[order] <= 0.02 for order in ("1", "2", "inf"))
    return [
        record(
            "RBF, bandwidth 0.5",
            {**ran.figures(), "widths": widths},
            "width <= 2 % for q >= 1 and <= 10 % for q = 0.5",
            ran.code == 0 and held,
        )
    ]


def coverage_of_intervals(bench: Bench) -> list[dict[str, Any]]:
    """Repeat stochastic Lanczos with other seeds where the dense answer is known."""
    from latentscale.sampling.median_distance import median_bandwidth
    from latentscale.tiles.distances import as_points
    from latentscale.vendi.lanczos import kernel_scores
    from latentscale.vendi.scores import kernel_spectrum, vendi_score
    from tests.acceptance.run import record

    rows = bench.rows[:DENSE].astype(float)
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    orders = (0.1, 0.5, 1.0, 1.5, 2.0, float("inf"))
    records = []
    for bandwidth in (0.5, median_bandwidth(points, generator=np.random.default_rng(0))):
        spectrum = kernel_spectrum(points, "rbf", bandwidth)
        truth = {order: vendi_score(spectrum, order).value for order in orders}
        inside = dict.fromkeys(orders, 0)
        begun = time.perf_counter()
        for seed in range(REPETITIONS):
            found = kernel_scores(points, "rbf", bandwidth, orders, np.random.default_rng(seed))
            for order, value in truth.items():
                low, high = found[order].lower * (1 - 1e-11), found[order].upper * (1 + 1e-11)
                inside[order] += low <= value <= high
        covered = {str(order): count / REPETITIONS for order, count in inside.items()}
        certain = covered["2.0"] == covered["inf"] == 1.0
        records.append(
            record(
                f"coverage over {REPETITIONS} seeds, RBF of bandwidth {bandwidth:.2f}",
                {"covered": covered, "seconds": time.perf_counter() - begun},
                "at least 0.9, brackets of orders 2 and inf always",
                certain and min(covered.values()) >= 0.9,
            )
        )
    return records
