"""Neighbour graphs in memory: latentscale's search in leaves against NNDescent.

    python benchmarks/neighbours.py --rows 100000 --dimension 128 --output neighbours.json
    python benchmarks/neighbours.py --data embeddings.npy --rows 40000 --output real.json

Every contestant runs alone in a fresh process and finds 5 neighbours of every row twice: *cold* is
the first time, with what it imports and compiles, *warm* the second. By default all run on one
thread. Compare times at equal recall, which is measured on sampled rows: NNDescent's rises with its
number of neighbours. Leaves are divided again until some of their own rows show the recall that is
asked for, as in a job. Rows that fit one leaf, 32 768 at most, are searched exactly. *leaves 6,
NNDescent 1* lets one iteration of NNDescent refine the lists of 6 leaves a row, instead of ours.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from contest import Inputs, Values, header, launch, read_rows, summary, take_part, versions, write
from heat import LIBRARIES, SAMPLED, K, recall, run_descent, true_distances

ASKED = (0.95, 0.98, 0.99)
OVERLAP = 3

LISTS = 15
"""Neighbours in the lists of leaves that NNDescent goes on from."""


def run_leaves(
    inputs: Inputs, asked: float | None, overlap: int = OVERLAP, *, exact: bool = False
) -> Values:
    """Search all rows in leaves."""
    from latentscale.neighbours.leaves import LEAF_ROWS
    from latentscale.neighbours.search import search_rows
    from latentscale.tiles.distances import as_points

    found = search_rows(
        as_points(inputs["rows"], "euclidean").keyed(),
        K,
        overlap=overlap,
        generator=np.random.default_rng(0),
        recall=asked,
        leaf_rows=len(inputs["rows"]) if exact else LEAF_ROWS,
    )
    return {"lists": found.indices[inputs["sample"]].tolist(), "versions": versions(LIBRARIES)}


def run_both(inputs: Inputs, overlap: int, iterations: int) -> Values:
    """Search all rows in leaves, and let NNDescent go on from these lists."""
    from pynndescent import NNDescent

    from latentscale.neighbours.leaf_search import search_leaves
    from latentscale.neighbours.leaves import divide_into_leaves
    from latentscale.neighbours.search import order_of_leaves
    from latentscale.tiles.distances import as_points

    points = as_points(inputs["rows"], "euclidean").keyed()
    leaves = divide_into_leaves(points, overlap=overlap, generator=np.random.default_rng(0))
    order = order_of_leaves(leaves)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    found = search_leaves(points.take(order), [np.sort(place[leaf]) for leaf in leaves], LISTS)
    descent = NNDescent(
        inputs["rows"][order],
        metric="euclidean",
        n_neighbors=LISTS + 1,
        init_graph=np.column_stack([np.arange(len(order)), found.indices]).astype(np.int32),
        tree_init=False,
        n_iters=iterations,
        random_state=0,
        n_jobs=-1,
    )
    lists = order[descent.neighbor_graph[0][place[inputs["sample"]], 1 : K + 1]]
    return {"lists": lists.tolist(), "versions": versions(LIBRARIES)}


CONTESTANTS = {
    **{f"leaves, {asked} asked": partial(run_leaves, asked=asked) for asked in ASKED},
    f"leaves, overlap {OVERLAP}": partial(run_leaves, asked=None),
    "one leaf": partial(run_leaves, asked=None, overlap=1, exact=True),
    **{
        f"leaves 6, NNDescent {iterations}": partial(run_both, overlap=6, iterations=iterations)
        for iterations in (1, 2)
    },
    **{f"NNDescent {k}": partial(run_descent, neighbours=k) for k in (15, 20, 24, 30)},
}


def main() -> None:
    if take_part(CONTESTANTS, lambda inputs: inputs):
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help=".npy file of rows, instead of clusters")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, help="by default all")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows = read_rows(arguments, arguments.rows)
    sample = np.sort(
        np.random.default_rng(2).choice(len(rows), min(SAMPLED, len(rows)), replace=False)
    )
    true = true_distances(rows, sample)
    names = arguments.only or [name for name in CONTESTANTS if name != "one leaf"]
    contestants = {}
    for name in names:
        run = launch(
            __file__, name, sys.executable, {"rows": rows, "sample": sample}, arguments.threads
        )
        found = {"cold_seconds": run["warm_up_seconds"], **summary([run])}
        found["recall"] = recall(rows, sample, np.array(found.pop("lists")), true)
        contestants[name] = found
        print(
            f"{name:18} cold {found['cold_seconds']:7.2f} s, warm {found['seconds']:7.2f} s "
            f"({found['cpu_seconds']:.2f} s of CPU), "
            f"recall {found['recall']:.4f}, {found['peak_bytes'] / 2**20:5.0f} MiB"
        )
    write(
        arguments.output,
        {
            "benchmark": "neighbours",
            **header(arguments),
            "rows": len(rows),
            "dimension": rows.shape[1],
            "k": K,
            "contestants": contestants,
        },
    )


if __name__ == "__main__":
    main()
