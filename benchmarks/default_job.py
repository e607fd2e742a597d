"""The default job on a few thousand rows, from command to report, here and in another checkout.

    python benchmarks/default_job.py --before OTHER_CHECKOUT --data embeddings.npy \
        --output benchmarks/results/default-job-2026-01-01.json

Every command runs in a fresh process with compiled code on disk, in turns, and ends with its report
written. A first run of each checkout, which may compile, isn't counted. ``--data`` takes rows of
384 dimensions from a file; without it they are drawn. The checkouts use this interpreter, so both
run with the same libraries.
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
    read_rows,
    rows_options,
    show_medians,
    time_command,
    write,
)
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent.parent
CASES = {
    "plan, 2000 x 384": ("plan", 2000, 384, "npy"),
    "run, 2000 x 384": ("run", 2000, 384, "npy"),
    "run, 9000 x 64": ("run", 9000, 64, "npy"),
    "run, 10000 x 384": ("run", 10_000, 384, "npy"),
    "run, 2000 x 384, Parquet": ("run", 2000, 384, "parquet"),
    "run, 2000 x 384, JSON lines": ("run", 2000, 384, "jsonl"),
    "run, 2000 x 384, CSV": ("run", 2000, 384, "csv"),
}


def time_job(checkout: Path, command: str, source: Path) -> float:
    """Return the seconds of one command in a fresh process and an empty output folder."""
    with tempfile.TemporaryDirectory() as output:
        quiet = ["--quiet"] if command == "run" else []
        return time_command(checkout, command, source, "--output", output, *quiet)


def save(path: Path, rows: NDArray[np.float32]) -> None:
    """Write rows in the format that the file's suffix names."""
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".csv":
        np.savetxt(path, rows, delimiter=",", fmt="%.9g")
    elif path.suffix == ".jsonl":
        lines = (
            json.dumps({"id": f"r{i}", "embedding": row.tolist()}) for i, row in enumerate(rows)
        )
        path.write_text("".join(f"{line}\n" for line in lines))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        pq.write_table(pa.table({"vector": vectors}), path)


def compare(arguments: argparse.Namespace) -> None:
    """Time every case in every checkout, print the medians, and write a record."""
    checkouts = compared_checkouts(arguments, HERE)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case, (command, n, dimension, suffix) in CASES.items():
            if arguments.only not in case:
                continue
            source = Path(folder) / f"{n}x{dimension}.{suffix}"
            few = min(n, arguments.most_rows)
            own = dimension == arguments.dimension
            rows = read_rows(arguments, few) if own else clustered_rows(few, dimension, 0)
            save(source, rows)
            seconds: dict[str, list[float]] = {name: [] for name in checkouts}
            for turn in range(arguments.repeats + 1):
                for name, checkout in checkouts.items():
                    took = time_job(checkout, command, source)
                    if turn:
                        seconds[name].append(round(took, 3))
            found[case] = {name: statistics.median(times) for name, times in seconds.items()}
            found[case]["seconds"] = seconds
            show_medians(case, {name: found[case][name] for name in checkouts})
    write(arguments.output, {**header(arguments), "results": found})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[rows_options(), checkout_options()],
    )
    parser.add_argument("--most-rows", type=int, default=10_000, help="largest number of rows")
    parser.add_argument("--output", type=Path, default=Path("default-job.json"))
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
