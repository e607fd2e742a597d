"""Near-duplicates: latentscale against semhash, on the same embeddings.

Both keep a row unless an earlier kept row is within the distance, and both search approximately.
They run alone in fresh processes, in turn:

    python benchmarks/duplicates.py --semhash-python /path/to/venv/bin/python \
        --output duplicates.json

Rows are clusters, into which near-duplicates of 5 % of them are put, at distances up to
the one that is asked for, and copies of 1 %. What each says that can go is compared with the rows
that go when all pairs are compared in float64. Ours is a whole job: ingest, groups, shares, report.
Times exclude imports, compilation and a warm-up on 3000 rows. Memory is the peak of the whole
process, rows included.

semhash isn't a dependency; install it into a separate environment:

    python3 -m venv VENV
    VENV/bin/pip install numpy semhash
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from contest import (
    Inputs,
    Values,
    header,
    in_turns,
    print_table,
    rows_options,
    summary,
    take_part,
    versions,
    write,
)

WARM_UP_ROWS = 3000
LIBRARIES = ("latentscale", "semhash", "vicinity", "usearch", "numpy", "numba")

# --- contestants: rows in, numbers of the rows that can go out -------------------------------


def run_latentscale(inputs: Inputs) -> Values:
    import latentscale

    section = {"duplicates": {"within": float(inputs["within"]), "neighbours": "cells"}}
    with tempfile.TemporaryDirectory() as folder:
        results = latentscale.run(
            inputs["rows"],
            measures=section,
            output=Path(folder),
            cluster={"kind": "serial"},
        )
        gone = results.rows("near-duplicates").numbers
    return {"gone": gone.tolist(), "versions": versions(LIBRARIES)}


def run_semhash(inputs: Inputs) -> Values:
    from semhash import SemHash

    rows = inputs["rows"]
    records = [str(row) for row in range(len(rows))]
    index = SemHash.from_embeddings(rows, records, model=_NoModel())
    found = index.self_deduplicate(threshold=1.0 - float(inputs["within"]))
    return {
        "gone": [int(each.record) for each in found.filtered],
        "versions": versions(LIBRARIES),
    }


class _NoModel:
    """semhash asks for a model of the embeddings, which it doesn't need here."""

    def encode(self, *_: object, **__: object) -> np.ndarray:
        raise NotImplementedError


def warm_up(inputs: Inputs) -> Inputs:
    return {**inputs, "rows": inputs["rows"][:WARM_UP_ROWS]}


CONTESTANTS = {"latentscale": run_latentscale, "semhash": run_semhash}

# --- rows, and what all pairs say ------------------------------------------------------------


def rows_with_duplicates(n: int, dimension: int, within: float, seed: int) -> np.ndarray:
    """Draw clusters, and put near-duplicates and copies in random places."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((n // 100, dimension), dtype="f4")
    rows = centres[generator.integers(len(centres), size=n)]
    rows += np.float32(0.5) * generator.standard_normal(rows.shape, dtype="f4")
    near, sources, copies, copied, _ = np.split(
        generator.permutation(n), np.cumsum([n // 20, n // 20, n // 100, n // 100])
    )
    # A part of length s across a row of length 1 makes a cosine distance of about s² / 2.
    across = np.sqrt(2 * within * generator.uniform(0.0, 1.0, size=(len(near), 1)))
    lengths = np.linalg.norm(rows[sources], axis=1, keepdims=True)
    noise = generator.standard_normal((len(near), dimension)) / np.sqrt(dimension)
    rows[near] = rows[sources] + across * lengths * noise
    rows[copies] = rows[copied]
    return rows


def gone_by_all_pairs(rows: np.ndarray, within: float) -> np.ndarray:
    """Return the rows that an earlier kept row is within the distance of."""
    unit = rows.astype("f8")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    single = unit.astype("f4")
    gone = np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), 1000):
        block = single[start : start + 1000]
        products = block @ single[: start + len(block)].T
        places, others = np.nonzero(products > 1.0 - within - 1e-5)
        for place in np.unique(places):
            row = start + place
            earlier = others[places == place]
            earlier = earlier[earlier < row]
            exact = 1.0 - unit[earlier] @ unit[row]
            gone[row] = bool((~gone[earlier[exact <= within]]).any())
    return np.flatnonzero(gone)


def judge(found: Values, true: np.ndarray) -> Values:
    """Return how many of the rows that can go were named, and how many named ones can."""
    named = np.array(found.pop("gone"))
    hits = len(np.intersect1d(named, true))
    return found | {
        "gone": len(named),
        "recall": hits / len(true),
        "precision": hits / max(len(named), 1),
    }


def main() -> None:
    """Run both, print a table, and write a record."""
    if take_part(CONTESTANTS, warm_up):
        return
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[rows_options()])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--within", type=float, default=0.05)
    options.add_argument("--semhash-python", help="interpreter that has semhash")
    options.add_argument("--output", type=Path)
    arguments = options.parse_args()
    rows = rows_with_duplicates(
        arguments.rows, arguments.dimension, arguments.within, arguments.seed
    )
    pythons = {"latentscale": sys.executable}
    if arguments.semhash_python:
        pythons["semhash"] = arguments.semhash_python
    inputs = {"rows": rows, "within": np.array(arguments.within)}
    runs = in_turns(__file__, pythons, inputs, arguments.repeats, arguments.threads)
    true = gone_by_all_pairs(rows, arguments.within)
    results = {name: judge(summary(found), true) for name, found in runs.items()}
    print_table(results)
    for name, found in results.items():
        print(f"{name:20} recall {found['recall']:.4f}  precision {found['precision']:.4f}")
    if arguments.output:
        shape = {"rows": arguments.rows, "dimension": arguments.dimension}
        write(
            arguments.output,
            header(arguments) | shape | {"within": arguments.within, "results": results},
        )


if __name__ == "__main__":
    main()
