"""Magnitude functions: latentscale against magnipy and a plain SciPy Cholesky loop.

Compare: every contestant runs alone, in a fresh process, on the same rows, several times.

    python benchmarks/magnitude.py compare --rows 10000 --repeats 3 \
        --magnipy-python /path/to/venv/bin/python --output magnitude-compare.json

Scale: latentscale alone, over sizes from 1000 to 100 000.

    python benchmarks/magnitude.py scale --sizes 1000,3000,10000,30000,100000 \
        --output magnitude-scale.json

Rows are clustered and of low intrinsic dimension, or the first distinct rows of --data FILE.npy.
Latentscale finds the convergence scale and evaluates 20 scales up to it. So does magnipy, with its
own convergence scale. The Cholesky loop gets latentscale's scales, without counting the time; its
values are the reference for latentscale's. Times exclude imports, compilation and a warm-up on 200
rows. Memory is the peak of the whole process.

magnipy 1.0.0 pins older NumPy and SciPy and needs torch, so it needs a separate environment:

    python3 -m venv VENV
    VENV/bin/pip install torch magnipy==1.0.0
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
    launch,
    print_table,
    read_rows,
    rows_options,
    summary,
    take_part,
    versions,
    write,
)

from latentscale_pipeline.views.figure import Curve, Panel
from latentscale_pipeline.views.svg import draw_panels

SCALES = 20
TARGET = 0.95
WARM_UP_ROWS = 200
LIBRARIES = ("latentscale", "magnipy", "numpy", "scipy", "numba", "torch")

# --- contestants: rows in, values out --------------------------------------------------------


def run_latentscale(inputs: Inputs) -> Values:
    from latentscale.duplicates.distinct import find_distinct
    from latentscale.magnitude.function import convergence_scale, magnitude_function
    from latentscale.tiles.distances import as_points

    points = as_points(inputs["rows"], "euclidean")
    distinct = find_distinct(points)
    root = convergence_scale(points, target=TARGET, distinct=distinct)
    scales = np.linspace(0.0, root.value, SCALES)
    function = magnitude_function(points, scales, distinct=distinct)
    return {
        "scales": scales.tolist(),
        "magnitudes": [estimate.value for estimate in function.estimates],
        "lower": [estimate.lower for estimate in function.estimates],
        "upper": [estimate.upper for estimate in function.estimates],
        "methods": sorted({estimate.method for estimate in function.estimates}),
        "products": getattr(function, "products", None),
        "versions": versions(LIBRARIES),
    }


def run_cholesky(inputs: Inputs) -> Values:
    from scipy.linalg import cho_factor, cho_solve
    from scipy.spatial.distance import pdist, squareform

    rows, scales = inputs["rows"].astype(np.float64), inputs["scales"]
    distances = squareform(pdist(rows))
    ones = np.ones(len(rows))
    magnitudes = [1.0]
    for scale in scales[1:]:
        factor = cho_factor(np.exp(-scale * distances), overwrite_a=True, check_finite=False)
        magnitudes.append(float(cho_solve(factor, ones, check_finite=False).sum()))
    found: Values = {"scales": scales.tolist(), "magnitudes": magnitudes}
    return found | {"versions": versions(LIBRARIES)}


def run_magnipy(inputs: Inputs) -> Values:
    from magnipy import Magnipy  # type: ignore[import-not-found]

    rows = inputs["rows"].astype(np.float64)
    magnipy = Magnipy(rows, n_ts=SCALES, target_prop=TARGET, metric="euclidean")
    magnitudes, scales = magnipy.get_magnitude()
    found: Values = {"scales": np.asarray(scales).tolist()}
    return found | {"magnitudes": np.asarray(magnitudes).tolist(), "versions": versions(LIBRARIES)}


CONTESTANTS = {"latentscale": run_latentscale, "cholesky": run_cholesky, "magnipy": run_magnipy}


def few(inputs: Inputs) -> Inputs:
    counts = {"rows": WARM_UP_ROWS, "scales": 2}
    return {name: values[: counts[name]] for name, values in inputs.items()}


# --- comparison ------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace) -> None:
    rows = read_rows(arguments, arguments.rows)
    pythons = {"latentscale": sys.executable, "cholesky": sys.executable}
    if arguments.magnipy_python:
        pythons["magnipy"] = arguments.magnipy_python
    begun = begin(arguments)
    inputs = {"rows": rows}
    runs = in_turns(__file__, pythons, inputs, arguments.repeats, arguments.threads, ("scales",))
    results = {name: summary(found) for name, found in runs.items()}
    ours, truth = results["latentscale"], np.array(results["cholesky"]["magnitudes"])
    found = {
        **begun,
        "rows": len(rows),
        "dimension": rows.shape[1],
        "repeats": arguments.repeats,
        "contestants": results,
        "largest_relative_error": float(np.abs(np.array(ours["magnitudes"]) / truth - 1).max()),
        "lower_bounds_hold": bool((np.array(ours["lower"]) <= truth * (1 + 1e-9)).all()),
        "upper_bounds_hold": bool((np.array(ours["upper"]) >= truth * (1 - 1e-9)).all()),
        "times_faster_than_cholesky": results["cholesky"]["seconds"] / ours["seconds"],
    }
    if "magnipy" in results:
        theirs = results["magnipy"]
        found["times_faster_than_magnipy"] = theirs["seconds"] / ours["seconds"]
        found["convergence_scale_relative_difference"] = (
            ours["scales"][-1] / theirs["scales"][-1] - 1
        )
    write(arguments.output, found)
    print(f"{len(rows)} rows of {rows.shape[1]}, {SCALES} scales, {arguments.threads} threads")
    print_table(results)
    print(f"largest relative error {found['largest_relative_error']:.1e}")


def scale(arguments: argparse.Namespace) -> None:
    sizes = [int(size) for size in arguments.sizes.split(",")]
    begun, points = begin(arguments), []
    for n in sizes:
        rows = read_rows(arguments, n)
        runs = [
            launch(__file__, "latentscale", sys.executable, {"rows": rows}, arguments.threads)
            for _ in range(arguments.repeats)
        ]
        result = summary(runs)
        points.append({"rows": n, **result})
        print(
            f"{n:8} rows {result['seconds']:9.2f} s {result['peak_bytes'] / 2**20:8.0f} MiB "
            f"{'+'.join(result['methods'])}, {result['products']} products",
            flush=True,
        )
        # Written after each size: the largest takes longest.
        write(arguments.output, {**begun, "points": points})
    draw(points, arguments.output)


def draw(points: list[Values], output: Path) -> None:
    """Plot time and memory against rows, as SVG."""
    n = [point["rows"] for point in points]
    measured = {
        "seconds": [point["seconds"] for point in points],
        "peak memory, MiB": [point["peak_bytes"] / 2**20 for point in points],
    }
    title = f"Magnitude function and convergence scale, {SCALES} scales"
    panels = [
        Panel(title, "rows", label, [Curve("", n, values)], log_x=True, log_y=True)
        for label, values in measured.items()
    ]
    output.with_suffix(".svg").write_text(draw_panels(panels, paper="white"), "utf-8")


def begin(arguments: argparse.Namespace) -> Values:
    return {**header(arguments), "scales": SCALES, "target": TARGET}


def main() -> None:
    if take_part(CONTESTANTS, few):
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    compared = commands.add_parser("compare", parents=[rows_options()])
    compared.add_argument("--rows", type=int, default=10_000)
    compared.add_argument("--magnipy-python", help="interpreter that can import magnipy")
    compared.add_argument("--output", type=Path, default=Path("magnitude-compare.json"))
    compared.set_defaults(work=compare)
    scaled = commands.add_parser("scale", parents=[rows_options()])
    scaled.add_argument("--sizes", default="1000,3000,10000,30000,100000")
    scaled.add_argument("--output", type=Path, default=Path("magnitude-scale.json"))
    scaled.set_defaults(work=scale)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
