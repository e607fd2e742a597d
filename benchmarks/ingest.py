"""The speed of ingest, compared with a plain copy of the same bytes.

    python benchmarks/ingest.py [--gib 4] [--workers 1] [--repeats 3] [--folder FOLDER]

Every repetition copies the file and waits until the copy is on the disk (fsync). Then it ingests
the file with the command line in a separate process; the time includes its start. The source is in
the same state of the system's caches for both. The peak memory is that of the largest process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

DIMENSIONS = 384
BLOCK_ROWS = 10_000
COPIED_AT_ONCE = 8 << 20


def write_source(path: Path, gib: float) -> int:
    """Write a ``.npy`` file of about ``gib`` GiB, and return its size in bytes."""
    rows = int(gib * 2**30 / (4 * DIMENSIONS))
    block = np.random.default_rng(0).standard_normal((BLOCK_ROWS, DIMENSIONS)).astype("f4")
    with path.open("wb") as file:
        about = {"descr": "<f4", "fortran_order": False, "shape": (rows, DIMENSIONS)}
        np.lib.format.write_array_header_1_0(file, about)
        for start in range(0, rows, BLOCK_ROWS):
            file.write(block[: rows - start].data)
        file.flush()
        os.fsync(file.fileno())
    return path.stat().st_size


def copy_seconds(source: Path, target: Path) -> float:
    """Copy a file to the disk, delete the copy, and return the seconds that copying took."""
    begun = time.perf_counter()
    with source.open("rb") as read, target.open("wb") as write:
        shutil.copyfileobj(read, write, COPIED_AT_ONCE)
        write.flush()
        os.fsync(write.fileno())
    seconds = time.perf_counter() - begun
    target.unlink()
    return seconds


def ingest_seconds(source: Path, target: Path, workers: int) -> tuple[float, int]:
    """Ingest a file with the command line; return seconds and the largest process' peak memory."""
    command = "from latentscale_pipeline.cli import main; main()"
    arguments = ["ingest", str(source), str(target), "--workers", str(workers)]
    begun = time.perf_counter()
    process = psutil.Popen(
        [sys.executable, "-c", command, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while process.poll() is None:
        for each in [process, *_children(process)]:
            try:
                peak = max(peak, each.memory_info().rss)
            except psutil.Error:
                continue
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"ingest ended with exit code {process.returncode}")
    seconds = time.perf_counter() - begun
    shutil.rmtree(target)
    return seconds, peak


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def measure(folder: Path, gib: float, workers: int, iterations: int) -> dict[str, Any]:
    """Copy and ingest in turn, and return rates and memory."""
    source = folder / "source.npy"
    size = write_source(source, gib)
    copies, ingests, peaks = [], [], []
    for _ in range(iterations):
        copies.append(copy_seconds(source, folder / "copy"))
        seconds, peak = ingest_seconds(source, folder / "corpus.zarr", workers)
        ingests.append(seconds)
        peaks.append(peak)
    ratios = [copy / ingest for copy, ingest in zip(copies, ingests, strict=True)]
    return {
        "gib": round(size / 2**30, 2),
        "workers": workers,
        "copy_mb_per_second": [round(size / 1e6 / seconds) for seconds in copies],
        "ingest_mb_per_second": [round(size / 1e6 / seconds) for seconds in ingests],
        "rate_against_copy": [round(ratio, 2) for ratio in ratios],
        "median_rate_against_copy": round(statistics.median(ratios), 2),
        "largest_process_gib": round(max(peaks) / 2**30, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gib", type=float, default=4.0, help="size of the source")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of the ingest")
    parser.add_argument("--repeats", type=int, default=3, help="number of repetitions")
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for name, value in measure(Path(folder), asked.gib, asked.workers, asked.repeats).items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
