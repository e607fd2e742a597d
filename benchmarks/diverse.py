"""Diverse rows against random ones: the Vendi score of both, and how well they cover all rows.

Usage: python benchmarks/diverse.py EMBEDDINGS.npy
"""

from __future__ import annotations

import sys
import time

import numpy as np

import latentscale
from latentscale.sampling.greedy_rows import farthest_first, most_diverse

COUNTS = (100, 500, 2000)
SEEDS = 5


def diversity(rows: np.ndarray) -> float:
    """Return the cosine Vendi score of order 1."""
    return float(latentscale.vendi_score(rows).scores["1"])


def reach(rows: np.ndarray, chosen: np.ndarray) -> float:
    """Return the cosine distance within which every row has a chosen one."""
    parts = np.array_split(np.arange(len(rows)), max(1, len(rows) // 2000))
    return float(max((1 - (rows[part] @ rows[chosen].T).max(axis=1)).max() for part in parts))


def main() -> None:
    """Print a line for each number of rows and each way to choose them."""
    rows = np.load(sys.argv[1]).astype("f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    print("rows  chosen    seconds  Vendi score, order 1  every row within")
    for count in COUNTS:
        ways = {
            "diverse": lambda count=count: most_diverse(rows, count),
            "cover": lambda count=count: farthest_first(rows, count).rows,
        }
        for seed in range(SEEDS):
            generator = np.random.default_rng(seed)
            ways[f"random {seed}"] = lambda count=count, generator=generator: generator.choice(
                len(rows), count, replace=False
            )
        for name, choose in ways.items():
            begun = time.perf_counter()
            chosen = choose()
            seconds = time.perf_counter() - begun
            score, within = diversity(rows[chosen]), reach(rows, chosen)
            print(f"{count:4}  {name:8}  {seconds:7.2f}  {score:20.1f}  {within:16.3f}")


if __name__ == "__main__":
    main()
