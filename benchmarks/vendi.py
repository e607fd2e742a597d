"""Vendi scores: latentscale against vendi-score and plain NumPy, on rows in memory.

    python benchmarks/vendi.py cosine --rows 200000 \
        --vendi-score-python /path/to/venv/bin/python --output vendi-cosine.json
    python benchmarks/vendi.py rbf --rows 8000 \
        --vendi-score-python /path/to/venv/bin/python --output vendi-rbf.json

Every contestant runs alone, in a fresh process, on the same rows, in turn, several times, and
computes the scores of orders 0.5, 1, 2 and infinity. vendi-score computes one order a call: by its
dual method (the d by d moment) for the cosine kernel, and by its dense method, on a matrix that
NumPy makes, for the RBF kernel with the median distance. Plain NumPy takes all orders from one
decomposition in float64; its scores are the reference for ours. From some tens of thousands of rows
on, only latentscale's Lanczos method can handle the RBF kernel (``--only "latentscale lanczos"``).

    python3 -m venv VENV
    VENV/bin/pip install vendi-score
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from contest import (
    Contestant,
    Inputs,
    Values,
    header,
    in_turns,
    print_table,
    read_rows,
    rows_options,
    summary,
    take_part,
    versions,
    write,
)

ORDERS = (0.5, 1.0, 2.0, math.inf)
WARM_UP_ROWS = 400
BANDWIDTH_PAIRS = 100_000
LIBRARIES = ("latentscale", "vendi-score", "numpy", "scipy", "numba", "scikit-learn")

# --- contestants: rows in, scores out --------------------------------------------------------


def ours_cosine(inputs: Inputs) -> Values:
    from latentscale.vendi.scores import moment_spectrum, sufficient_precision, vendi_score
    from latentscale.vendi.second_moments import second_moment

    rows = inputs["rows"]
    precision = sufficient_precision(rows[:16_384], ORDERS, len(rows))
    spectrum = moment_spectrum(second_moment(rows, precision=precision), len(rows))
    found = [vendi_score(spectrum, order) for order in ORDERS]
    return _brackets(found) | {"precision": precision}


def ours_exact(inputs: Inputs) -> Values:
    from latentscale.tiles.distances import as_points
    from latentscale.vendi.scores import kernel_spectrum, vendi_score

    points = as_points(inputs["rows"], "euclidean")
    spectrum = kernel_spectrum(points, "rbf", float(inputs["bandwidth"]))
    return _brackets([vendi_score(spectrum, order) for order in ORDERS])


def ours_lanczos(inputs: Inputs) -> Values:
    from latentscale.tiles.distances import as_points
    from latentscale.vendi.lanczos import kernel_scores

    rows = inputs["rows"]
    points = as_points(rows, "euclidean").about(rows.mean(axis=0, dtype=np.float64))
    generator = np.random.default_rng(0)
    found = kernel_scores(points, "rbf", float(inputs["bandwidth"]), ORDERS, generator)
    return _brackets([found[order] for order in ORDERS])


def _brackets(found: list[object]) -> Values:
    names = {"scores": "value", "lower": "lower", "upper": "upper", "bounds": "bounds"}
    values = {key: [getattr(one, name) for one in found] for key, name in names.items()}
    return values | {"versions": versions(LIBRARIES)}


def numpy_cosine(inputs: Inputs) -> Values:
    rows = inputs["rows"].astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return _hill_numbers(np.linalg.eigvalsh(rows.T @ rows / len(rows)))


def numpy_rbf(inputs: Inputs) -> Values:
    return _hill_numbers(np.linalg.eigvalsh(_rbf_matrix(inputs) / len(inputs["rows"])))


def _rbf_matrix(inputs: Inputs) -> np.ndarray:
    rows = inputs["rows"].astype(np.float64)
    squares = np.einsum("ij,ij->i", rows, rows)
    kernel = squares[:, None] + squares - 2.0 * rows @ rows.T
    np.fill_diagonal(kernel, 0.0)
    kernel *= -0.5 / float(inputs["bandwidth"]) ** 2
    return np.exp(kernel, out=kernel)


def _hill_numbers(eigenvalues: np.ndarray) -> Values:
    positive = eigenvalues[eigenvalues > len(eigenvalues) * 1e-16]
    scores = []
    for order in ORDERS:
        if order == 1:
            scores.append(float(np.exp(-(positive * np.log(positive)).sum())))
        elif order == math.inf:
            scores.append(float(1.0 / positive.max()))
        else:
            scores.append(float((positive**order).sum() ** (1.0 / (1.0 - order))))
    return {"scores": scores, "versions": versions(LIBRARIES)}


def vendi_score_dual(inputs: Inputs) -> Values:
    from vendi_score import vendi  # type: ignore[import-not-found]

    scores = [float(vendi.score_dual(inputs["rows"], q=_their_name(order))) for order in ORDERS]
    return {"scores": scores, "versions": versions(LIBRARIES)}


def vendi_score_dense(inputs: Inputs) -> Values:
    from vendi_score import vendi

    kernel = _rbf_matrix(inputs)
    scores = [float(vendi.score_K(kernel, q=_their_name(order))) for order in ORDERS]
    return {"scores": scores, "versions": versions(LIBRARIES)}


def _their_name(order: float) -> float | str:
    return "inf" if order == math.inf else order


CONTESTANTS: dict[str, dict[str, Contestant]] = {
    "cosine": {
        "latentscale": ours_cosine,
        "numpy": numpy_cosine,
        "vendi-score": vendi_score_dual,
    },
    "rbf": {
        "latentscale exact": ours_exact,
        "latentscale lanczos": ours_lanczos,
        "numpy": numpy_rbf,
        "vendi-score": vendi_score_dense,
    },
}
BY_NAME = {
    f"{kernel} {name}": run
    for kernel, contestants in CONTESTANTS.items()
    for name, run in contestants.items()
}


def few_rows(inputs: Inputs) -> Inputs:
    return {**inputs, "rows": inputs["rows"][:WARM_UP_ROWS]}


# --- comparison ------------------------------------------------------------------------------


def median_distance(rows: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(len(rows), size=(2, BANDWIDTH_PAIRS))
    pairs = (a != b).nonzero()[0]
    squares = [
        np.square(rows[a[part]].astype(float) - rows[b[part]]).sum(axis=1)
        for part in np.array_split(pairs, 50)
    ]
    return np.array(np.median(np.sqrt(np.concatenate(squares))))


def compare(arguments: argparse.Namespace) -> None:
    rows = read_rows(arguments, arguments.rows)
    inputs = {"rows": rows}
    if arguments.kernel == "rbf":
        inputs["bandwidth"] = median_distance(rows, arguments.seed)
    names = [name for name in CONTESTANTS[arguments.kernel] if name in (arguments.only or [name])]
    if arguments.vendi_score_python is None and "vendi-score" in names:
        names.remove("vendi-score")
    begun = header(arguments)
    pythons = {f"{arguments.kernel} {name}": sys.executable for name in names}
    if "vendi-score" in names:
        pythons[f"{arguments.kernel} vendi-score"] = arguments.vendi_score_python
    runs = in_turns(__file__, pythons, inputs, arguments.repeats, arguments.threads)
    results = {name: summary(runs[f"{arguments.kernel} {name}"]) for name in names}
    found = {
        **begun,
        "kernel": arguments.kernel,
        "rows": len(rows),
        "dimension": rows.shape[1],
        "bandwidth": float(inputs["bandwidth"]) if "bandwidth" in inputs else None,
        "orders": [str(order) for order in ORDERS],
        "repeats": arguments.repeats,
        "contestants": results,
        "against_numpy": {name: against(results, name) for name in names if "numpy" in names},
    }
    write(arguments.output, found)
    print(f"{arguments.kernel} kernel, {len(rows)} rows of {rows.shape[1]}, orders {ORDERS}")
    print_table(results)


def against(results: dict[str, Values], name: str) -> Values:
    """Return speed and deviation of a contestant, and if its brackets contain NumPy's scores."""
    truth, found = np.array(results["numpy"]["scores"]), results[name]
    compared = {
        "times_faster": results["numpy"]["seconds"] / found["seconds"],
        "relative_deviation": (np.array(found["scores"]) / truth - 1.0).tolist(),
    }
    if "lower" in found:
        low, high = np.array(found["lower"]), np.array(found["upper"])
        compared["inside"] = ((low <= truth * (1 + 1e-9)) & (truth * (1 - 1e-9) <= high)).tolist()
        compared["relative_width"] = ((high - low) / truth).tolist()
    return compared


def main() -> None:
    if take_part(BY_NAME, few_rows):
        return
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[rows_options()],
    )
    parser.add_argument("kernel", choices=CONTESTANTS)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--only", action="append", metavar="NAME", help="contestants to run")
    parser.add_argument("--vendi-score-python", help="interpreter that can import vendi_score")
    parser.add_argument("--output", type=Path, default=Path("vendi.json"))
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
