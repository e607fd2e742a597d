"""Kernel scores and magnitude of rows whose kernel is beyond memory, here and in another checkout.

    python benchmarks/beyond_memory.py --before OTHER_CHECKOUT \
        --output benchmarks/results/beyond-memory-2026-01-01.json

Each case is one job of two workers of 2 GiB, from command to report, in a fresh process. The
largest memory of a task, and the scores with their brackets, are those of its results. The
checkouts use this interpreter, so both run with the same libraries.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from contest import (
    checkout_options,
    clustered_rows,
    compared_checkouts,
    header,
    rows_options,
    show_medians,
    time_command,
    write,
)

HERE = Path(__file__).resolve().parent.parent
KERNEL = ("--measures", "vendi", "-o", "measures.vendi.kernels=[rbf]")
ORDERS = ("-o", "measures.vendi.orders=[0.5,1,2,inf]")
MAGNITUDE = ("--measures", "magnitude")
CASES = {
    "rbf, 24000 x 384": (24_000, 384, (*KERNEL, *ORDERS)),
    "rbf, 50000 x 384": (50_000, 384, (*KERNEL, *ORDERS)),
    "magnitude, 10000 x 384": (10_000, 384, MAGNITUDE),
    "magnitude, 30000 x 384": (30_000, 384, MAGNITUDE),
    "magnitude, 100000 x 384": (100_000, 384, (*MAGNITUDE, "-o", "budget.pairs=2e11")),
}
WORKERS = (
    *("-o", "cluster.kind=local", "-o", "cluster.workers=2"),
    *("-o", "cluster.memory_limit=2GiB", "-o", "sampling.method=none"),
)


def run_job(checkout: Path, source: Path, options: tuple[str, ...]) -> dict[str, Any]:
    """Run a job in a fresh process; return its seconds, peak memory and scores."""
    with tempfile.TemporaryDirectory(dir=source.parent) as output:
        seconds = time_command(
            checkout, "run", source, "--output", output, *options, *WORKERS, "--quiet"
        )
        [path] = Path(output).glob("*/results.json")
        results = json.loads(path.read_text())
    return {
        "seconds": round(seconds, 2),
        "peak_memory_bytes": max(each["peak_memory_bytes"] for each in results["timings"]),
        "scores": {
            f"{score['score']} {score.get('order', '')}".strip(): [
                score[name] for name in ("lower", "value", "upper")
            ]
            for score in results["scores"]
        },
    }


def compare(arguments: argparse.Namespace) -> None:
    """Run every case in every checkout in turns, print the medians, and write a record."""
    checkouts = compared_checkouts(arguments, HERE)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case, (n, d, options) in CASES.items():
            if arguments.only not in case:
                continue
            source = Path(folder) / "rows.npy"
            np.save(source, clustered_rows(n, d, arguments.seed))
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
            for _ in range(arguments.repeats):
                for name, checkout in checkouts.items():
                    runs[name].append(run_job(checkout, source, options))
            medians = {
                name: statistics.median(run["seconds"] for run in own) for name, own in runs.items()
            }
            found[case] = {"median_seconds": medians, "runs": runs}
            show_medians(case, medians)
    write(arguments.output, {**header(arguments), "results": found})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[rows_options(), checkout_options()],
    )
    parser.add_argument("--output", type=Path, default=Path("beyond-memory.json"))
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
