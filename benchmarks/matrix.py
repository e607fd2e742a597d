"""Every two of many corpora: the command against a job for each two, none of which knows another.

    python benchmarks/matrix.py --dimension 64 --output benchmarks/results/matrix-2026-01-01.json

Every command runs in a fresh process with compiled code on disk. Of the single jobs, ``--timed``
are timed, spread over all, and their mean stands for each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
from contest import clustered_rows, header, rows_options, time_command, write

HERE = Path(__file__).resolve().parent.parent


def compare(arguments: argparse.Namespace) -> None:
    """Time the matrix and some of the single jobs, and write a record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = []
        for number in range(arguments.corpora):
            sources.append(folder / f"set{number}.npy")
            rows = clustered_rows(arguments.rows, arguments.dimension, arguments.seed + number)
            np.save(sources[-1], rows)
        measures = ("--measures", arguments.measures)
        time_command(
            HERE,
            "run",
            sources[0],
            "--reference",
            sources[1],
            *measures,
            "--output",
            folder,
            "--quiet",
        )
        whole = time_command(
            HERE, "matrix", *sources, *measures, "--output", folder / "matrix", "--quiet"
        )
        every_two = list(combinations(sources, 2))
        timed = every_two[:: max(1, len(every_two) // arguments.timed)][: arguments.timed]
        single = []
        for one, other in timed:
            with tempfile.TemporaryDirectory(dir=folder) as output:
                given = (*measures, "--output", output, "-o", "sampling.method=none", "--quiet")
                single.append(time_command(HERE, "run", one, "--reference", other, *given))
    apart = len(every_two) * statistics.mean(single)
    found = {
        "corpora": arguments.corpora,
        "rows": arguments.rows,
        "dimension": arguments.dimension,
        "measures": arguments.measures,
        "matrix_seconds": round(whole, 2),
        "single_job_seconds": [round(seconds, 2) for seconds in single],
        "all_single_jobs_seconds": round(apart, 2),
        "share": round(whole / apart, 3),
    }
    sys.stdout.write(f"matrix {whole:.1f} s, {len(every_two)} jobs {apart:.1f} s\n")
    write(arguments.output, {**header(arguments), "results": found})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[rows_options()],
    )
    parser.add_argument("--corpora", type=int, default=8)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--measures", default="heat,mmd")
    parser.add_argument("--timed", type=int, default=7, help="single jobs that are timed")
    parser.add_argument("--output", type=Path, default=Path("matrix.json"))
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
