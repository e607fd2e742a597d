"""GeomCA: latentscale against the method of its authors' code.

Both get the same rows and the same epsilon, and run alone in fresh processes, in turn:

    python benchmarks/geomca.py --rows 5000 --dimension 4096 --repeats 3 \
        --gudhi-python /path/to/venv/bin/python --output geomca.json

The authors' method is written here from the paper's definitions: gudhi's greedy
``sparsify_point_set``, the edges of gudhi's Rips complex, networkx for the components and their
edges by type. Rows are one broad normal cluster of intrinsic dimension 64, so that thousands are
kept. Times exclude imports, compilation and a warm-up on 200 rows. Memory is the peak of the whole
process. If kept rows, components and edges don't agree, the comparison says so.

gudhi and networkx aren't dependencies; install them into a separate environment:

    python3 -m venv VENV
    VENV/bin/pip install numpy gudhi networkx
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from contest import (
    Inputs,
    Values,
    header,
    in_turns,
    print_table,
    summary,
    take_part,
    versions,
    write,
)

INTRINSIC = 64
WARM_UP_ROWS = 200
SAMPLE_ROWS = 2000
LIBRARIES = ("latentscale", "gudhi", "networkx", "numpy", "scipy", "numba")

# --- contestants: rows in, counts out --------------------------------------------------------


def run_latentscale(inputs: Inputs) -> Values:
    from latentscale.duplicates.sparsification import sparsify
    from latentscale.geomca.epsilon_graph import epsilon_components
    from latentscale.geomca.scores import geomca_scores
    from latentscale.tiles.distances import as_points

    epsilon, delta = float(inputs["epsilon"]), float(inputs["delta"])
    points = [as_points(inputs[side], "euclidean") for side in ("reference", "corpus")]
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
        "versions": versions(LIBRARIES),
    }  # fmt: skip


def run_gudhi(inputs: Inputs) -> Values:
    import gudhi  # type: ignore[import-not-found]
    import networkx  # type: ignore[import-not-found]
    from gudhi.subsampling import sparsify_point_set  # type: ignore[import-not-found]

    epsilon, delta = float(inputs["epsilon"]), float(inputs["delta"])
    sides = [inputs[side].astype(np.float64) for side in ("reference", "corpus")]
    kept = [np.array(sparsify_point_set(points=rows, min_squared_dist=delta**2)) for rows in sides]
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
        "versions": versions(LIBRARIES),
    }


CONTESTANTS = {"latentscale": run_latentscale, "gudhi": run_gudhi}


def few_rows(inputs: Inputs) -> Inputs:
    return {
        name: values[:WARM_UP_ROWS] if values.ndim else values for name, values in inputs.items()
    }


# --- comparison ------------------------------------------------------------------------------


def broad_cluster(n: int, dimension: int, seed: int) -> np.ndarray:
    """Draw a normal cluster of intrinsic dimension 64, rotated into many dimensions; float32."""
    generator = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, INTRINSIC)))[0].T
    return (generator.normal(size=(n, INTRINSIC)) @ turn).astype(np.float32)


def percentile_of(rows: np.ndarray, percentile: float) -> float:
    """Return a percentile of the distances between two disjoint samples."""
    size = min(SAMPLE_ROWS, len(rows) // 2)
    left, right = rows[:size].astype(np.float64), rows[size : 2 * size].astype(np.float64)
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return float(np.percentile(np.sqrt(np.maximum(squares, 0)), percentile))


def compare(arguments: argparse.Namespace) -> Values:
    """Run the contestants in turn."""
    begun = header(arguments)
    pythons = {"latentscale": sys.executable}
    if arguments.gudhi_python:
        pythons["gudhi"] = arguments.gudhi_python
    reference = broad_cluster(arguments.rows, arguments.dimension, 1)
    epsilon = percentile_of(reference, arguments.percentile)
    delta = arguments.delta * epsilon
    inputs = {
        "reference": reference,
        "corpus": broad_cluster(arguments.rows, arguments.dimension, 2),
        "epsilon": np.array(epsilon),
        "delta": np.array(delta),
    }
    runs = in_turns(__file__, pythons, inputs, arguments.repeats, arguments.threads)
    described: Values = {
        **begun,
        "data": "one broad cluster",
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


def main() -> None:
    if take_part(CONTESTANTS, few_rows):
        return
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
    parser.set_defaults(data=None, threads=1)
    arguments = parser.parse_args()
    found = compare(arguments)
    write(arguments.output, found)
    print_table(found["contestants"])
    if "times_faster" in found:
        print(
            f"{found['times_faster']:.1f} times faster, "
            f"{found['times_less_processor_time']:.1f} times less processor time; "
            f"same answers: {found['agree']}"
        )


if __name__ == "__main__":
    main()
