"""The promises on GeomCA at their full counts; run by ``make test-full`` as ``geomca-…``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.jobs import results_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

GIB = 2**30
INTRINSIC = 64
CHECKED_ROWS = 200


def write_cluster(path: Path, n: int, dimension: int, seed: int) -> Path:
    """Write one broad cluster of intrinsic dimension 64, some rows at a time."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, INTRINSIC)))[0].T
    generator = np.random.default_rng(seed)
    rows = np.lib.format.open_memmap(path, "w+", "f4", (n, dimension))
    for start in range(0, n, 10_000):
        drawn = generator.normal(size=(min(10_000, n - start), INTRINSIC))
        rows[start : start + len(drawn)] = drawn @ turn
    rows.flush()
    return path


def tried(
    bench: Bench, name: str, n: int, dimension: int, limit: float, **keys: Any
) -> list[dict[str, Any]]:
    """Run GeomCA alone on two such clusters, and hold it to a time and four gibibytes."""
    from tests.acceptance.run import record, watch

    sides = {
        role: write_cluster(bench.folder / f"{name}-{role}.npy", n, dimension, seed)
        for seed, role in enumerate(("corpus", "reference"), start=1)
    }
    config = bench.job(
        name,
        sides["corpus"],
        sides["reference"],
        measures={"geomca": keys},
        budget={"pairs": 2e11},
        cluster={"kind": "local", "workers": 2, "threads": 1, "memory_limit": 4 * GIB},
    )
    ran = watch("run", config, timeout=2 * limit)
    described = f"GeomCA of {n:,} + {n:,} rows of {dimension}, {keys or 'by default'}"
    if ran.code != 0:
        return [record(described, {**ran.figures(), "said": ran.last_line}, "exit 0", held=False)]
    results = results_of(bench.output(name))
    found = results["measures"]["geomca"]
    [folder] = bench.output(name).glob(f"{name}-*")
    wrong = faults(
        {role: np.load(path, mmap_mode="r") for role, path in sides.items()},
        lambda array: np.load(folder / results["arrays"][f"geomca/{array}"]),
        found,
    )
    largest = max([ran.driver, *ran.workers.values()])
    over = [
        timing["stage"]
        for timing in results["timings"]
        if timing["peak_memory_bytes"] > 1.2 * timing["projected_memory_bytes"]
    ]
    return [
        record(
            described,
            {
                **ran.figures(),
                "seconds_of_work": {t["stage"]: t["seconds"] for t in results["timings"]},
                "sizes": found["sizes"],
                "components": found["component_count"],
                "edges_of_the_largest": found["components"][0]["edges"],
                "precision": found["precision"],
                "recall": found["recall"],
                "stages_over_their_projection": over,
                "rows_checked": 2 * CHECKED_ROWS,
                "faults": wrong,
            },
            f"seconds < {limit:.0f}, every process < 4 GiB and within its projection, no faults",
            ran.seconds < limit and largest < 4 * GIB and not over and not wrong,
        )
    ]


def faults(
    sides: dict[str, np.ndarray], read: Callable[[str], np.ndarray], found: dict[str, Any]
) -> int:
    """Count what is wrong with some rows: their representatives, and their neighbours' components.

    A pass is greedy exactly when every row is represented by the earliest kept row within delta.
    """
    generator = np.random.default_rng(0)
    kept = {role: read(f"kept/{role}") for role in sides}
    points = {role: rows[kept[role]].astype(np.float64) for role, rows in sides.items()}
    members = {role: read(f"membership/{role}") for role in sides}
    count = 0
    for role, rows in sides.items():
        representative = read(f"representative/{role}")
        for i in generator.choice(len(rows), CHECKED_ROWS, replace=False):
            squares = squared_distances(points[role], rows[i])
            near = kept[role][squares <= found["delta"] ** 2]
            count += int(len(near) == 0 or near[0] != representative[i])
        for i in generator.choice(kept[role], CHECKED_ROWS // 4, replace=False):
            for other in sides:
                close = squared_distances(points[other], rows[i]) < found["epsilon"] ** 2
                count += int((members[other][kept[other][close]] != members[role][i]).sum())
    return count


def squared_distances(points: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Squared distances of a row, some points at a time."""
    blocks = np.array_split(points, max(1, points.size // 10**7))
    return np.concatenate([((block - row.astype(np.float64)) ** 2).sum(axis=1) for block in blocks])


def size_of_the_paper(bench: Bench) -> list[dict[str, Any]]:
    """Compare 50 000 and 50 000 rows of 4096, ingest included, in five minutes."""
    return tried(bench, "paper", 50_000, 4096, 300.0)


def half_of_epsilon(bench: Bench) -> list[dict[str, Any]]:
    """Thin with half of epsilon, which keeps nearly all rows and billions of edges."""
    return tried(bench, "half", 50_000, 128, 3600.0, delta=0.5)


def million_rows(bench: Bench) -> list[dict[str, Any]]:
    """Compare a million and a million rows of 64 within an hour."""
    return tried(bench, "million", 1_000_000, 64, 3600.0)
