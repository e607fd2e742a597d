"""The job that names no measures, on millions of rows whose scores are known.

Rows lie in tight clusters around the axes. The corpus has ten clusters and the reference eight, of
which six are the same. So six tenths of the corpus lie near rows of the reference, and six eighths
of the reference near rows of the corpus. The rows of some clusters are copies of others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.jobs import results_of, tasks_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench, Watched

DIMENSION, WIDE = 64, 384
"""Dimensions of the rows: of most jobs, and of the one on wide rows."""

INSIDE = 12
"""Dimensions in which the rows of a cluster differ most."""

CLUSTERS = {"corpus": range(10), "reference": range(4, 12)}
COPIES = 1000
"""Rows at the end of the corpus that equal the first ones."""

FOLDER_ROWS = 10**7
"""Rows from which a job's folder is small beside its corpora."""

BLOCK = 1 << 17
PAIRS = 20_000_000
"""Random pairs for the mean of squared similarities."""

WORKERS = 2
LIMIT = 2 * 2**30

KILLED_AT = (0.35, 0.6)
"""When a run is killed, in shares of the time of one that isn't."""


def write_clusters(path: Path, n: int, role: str, dimension: int = DIMENSION) -> Path:
    """Write ``n`` rows in float16, by blocks. Clusters are as tight in any dimension."""
    generator = np.random.default_rng([0, len(role)])
    axes = 4 * np.eye(dimension)[list(CLUSTERS[role])]
    tight = np.sqrt(DIMENSION / dimension)
    inside = np.random.default_rng(1).normal(size=(12, INSIDE, dimension)) * (0.05 * tight)
    rows = np.lib.format.open_memmap(path, "w+", np.float16, (n, dimension))
    for start in range(0, n, BLOCK):
        block = rows[start : start + BLOCK]
        owner = generator.integers(len(axes), size=len(block))
        block[:] = axes[owner] + 0.02 * tight * generator.standard_normal(block.shape)
        for cluster, number in enumerate(CLUSTERS[role]):
            mine = owner == cluster
            block[mine] += generator.standard_normal((mine.sum(), INSIDE)) @ inside[number]
    if role == "corpus":
        rows[-COPIES:] = rows[:COPIES]
    rows.flush()
    return path


def blocks(path: Path) -> Iterator[np.ndarray]:
    """Yield all rows in double precision."""
    rows = np.load(path, mmap_mode="r")
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK].astype(np.float64)


def cosine_scores(path: Path) -> dict[float, float]:
    """Compute Vendi scores of the cosine kernel from the eigenvalues of the second moment."""
    moment, n = np.float64(0.0), 0
    for rows in blocks(path):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        moment = moment + unit.T @ unit
        n += len(unit)
    found = np.linalg.eigvalsh(moment / n)
    found = found[found > 0]
    powers = {q: float((found**q).sum() ** (1 / (1 - q))) for q in (0.1, 0.5, 2.0)}
    entropy = float(np.exp(-(found * np.log(found)).sum()))
    return {**powers, 1.0: entropy, np.inf: float(1 / found[-1])}


def second_order(path: Path, bandwidth: float) -> tuple[float, float]:
    """Estimate the score of order 2 of a Gaussian kernel from pairs, and its standard error."""
    rows, generator = np.load(path, mmap_mode="r"), np.random.default_rng(2)
    drawn = rows[np.sort(generator.integers(len(rows), size=400_000))].astype(np.float64)
    total = squares = 0.0
    for _ in range(PAIRS // 10**6):
        first, second = generator.integers(len(drawn), size=(2, 10**6))
        apart = np.square(drawn[first] - drawn[second]).sum(axis=1)
        similar = np.exp(-apart / bandwidth**2)
        total, squares = total + similar.sum(), squares + np.square(similar).sum()
    mean = total / PAIRS
    # The rows drawn vary, too: eight parts in a thousand of the spread at most.
    error = np.sqrt((squares / PAIRS - mean**2) * (1 / PAIRS + 4 / len(drawn)))
    return 1 / mean, float(error / mean**2)


def compare_with_truth(
    results: dict[str, Any], sources: dict[str, Path], copies: int
) -> dict[str, dict[str, Any]]:
    """Compare what a job found with what is known of its rows."""
    scores = {
        (row["of"], row["score"], row.get("kernel"), row.get("order")): row
        for row in results["scores"]
    }
    table: dict[str, dict[str, Any]] = {}

    def add(name: str, row: dict[str, Any], known: float, error: float) -> None:
        low, high = row["lower"] - error, row["upper"] + error
        table[name] = {
            "found": row["value"],
            "lower": row["lower"],
            "upper": row["upper"],
            "known": known,
            "uncertain_by": error,
            "inside": bool(low <= known <= high),
        }

    for role, path in sources.items():
        for order, known in cosine_scores(path).items():
            name = "inf" if order == np.inf else order
            row = next(
                row
                for key, row in scores.items()
                if key[:3] == (role, "vendi", "cosine") and float(key[3]) == float(name)
            )
            add(f"{role}: vendi, cosine, order {name}", row, known, 1e-9 * known)
        kernels = results["measures"]["vendi"][role]
        bandwidth = next(k["bandwidth"] for k in kernels if k["kernel"].startswith("rbf"))
        known, error = second_order(path, bandwidth)
        row = next(
            row
            for key, row in scores.items()
            if key[0] == role and str(key[2]).startswith("rbf") and float(key[3]) == 2.0
        )
        add(f"{role}: vendi, rbf, order 2", row, known, 3 * error)
    shared = len(set(CLUSTERS["corpus"]) & set(CLUSTERS["reference"]))
    for score, role in (("precision_rows", "corpus"), ("recall_rows", "reference")):
        row = scores["pair", score, None, None]
        known = shared / len(CLUSTERS[role])
        # A few rows are farther than epsilon from all others, fewer among many.
        error = 0.02
        add(f"geomca {score}", row, known, error)
    counted = results["corpora"]["corpus"]["duplicates"]
    table["duplicates"] = {"found": counted, "known": copies, "inside": counted == copies}
    return table


def ten_million_rows_by_default(bench: Bench) -> list[dict[str, Any]]:
    """10⁷ rows and a reference of 10⁶, all default measures, two workers of 2 GiB."""
    return known_scores(bench, 10**7)


def a_million_rows_by_default(bench: Bench) -> list[dict[str, Any]]:
    """10⁶ rows and a reference of 10⁵: beside ten million, they say how each stage grows."""
    return known_scores(bench, 10**6)


def two_million_wide_rows_by_default(bench: Bench) -> list[dict[str, Any]]:
    """2·10⁶ rows of 384 dimensions and a reference of 2·10⁵, all default measures."""
    return known_scores(bench, 2 * 10**6, WIDE)


def killed_on_the_way(bench: Bench) -> list[dict[str, Any]]:
    """2·10⁶ rows and a reference of 2·10⁵: killed twice, and run again."""
    return killed_twice(bench, 2 * 10**6)


def killed_twice(bench: Bench, n: int) -> list[dict[str, Any]]:
    """Forecast and run the default job, and kill another one in two stages of it."""
    from tests.acceptance.run import end, kill_after, numbers_of, record, run_command, watch

    whole, cut = (_job_on_clusters(bench, name, n) for name in ("whole", "cut"))
    planned = json.loads(run_command("plan", whole, "--json").stdout)["total"]
    ran = watch("run", whole, interval=1.0, timeout=4 * 3600.0)
    every = tasks_of(bench.output("whole"))
    killed = []
    for share in KILLED_AT:
        left = kill_after(share * ran.seconds, "run", cut)
        if left is not None:
            killed.append(round(share * ran.seconds))
            end(left)
    last = watch("run", cut, interval=1.0, timeout=4 * 3600.0)
    # Nothing is left of a job that failed but what it said.
    if ran.code or last.code:
        figures = {"said": ran.last_line if ran.code else last.last_line}
        return [record("killed twice and run again", figures, "exit 0", held=False)]
    done = tasks_of(bench.output("cut"))
    repeated = sum(max(0, count - every[task]) for task, count in done.items())
    same = numbers_of(bench.output("cut")) == numbers_of(bench.output("whole"))
    return [
        record(
            f"the default job on {n:,} rows, killed twice and run again",
            {
                **ran.figures(),
                "seconds_of_work": seconds_of_work(results_of(bench.output("whole"))),
                "killed_after_seconds": killed,
                "last_run_seconds": round(last.seconds),
                "tasks": sum(every.values()),
                "tasks_repeated": repeated,
                "same_results": same,
            },
            "the same results, at most the tasks under way repeated",
            same and repeated <= WORKERS * len(killed),
        ),
        _plan_beside(planned, ran),
    ]


def _plan_beside(planned: dict[str, Any], ran: Watched) -> dict[str, Any]:
    """Compare the seconds and the memory of a plan with those of the run."""
    from tests.acceptance.run import record

    peak = max([ran.driver, *ran.workers.values()])
    return record(
        "its plan beside the run",
        {
            "planned": planned,
            "seconds": round(ran.seconds),
            "memory_of_planned": round(peak / planned["projected_memory_bytes"], 3),
        },
        "seconds within a factor of 2, memory within a quarter",
        0.5 <= ran.seconds / planned["seconds"] <= 2.0
        and 0.75 <= peak / planned["projected_memory_bytes"] <= 1.25,
    )


def _job_on_clusters(bench: Bench, name: str, n: int, dimension: int = DIMENSION) -> Path:
    sources = {
        role: write_clusters(bench.folder / f"{name}-{role}.npy", rows, role, dimension)
        for role, rows in (("corpus", n), ("reference", n // 10))
    }
    cluster = {"kind": "local", "workers": WORKERS, "threads": 1, "memory_limit": LIMIT}
    return bench.job(name, sources["corpus"], sources["reference"], cluster=cluster)


def seconds_of_work(results: dict[str, Any]) -> dict[str, float]:
    """Return what each stage took, added over the workers."""
    return {timing["stage"]: round(timing["seconds"], 1) for timing in results["timings"]}


def known_scores(bench: Bench, n: int, dimension: int = DIMENSION) -> list[dict[str, Any]]:
    """Run the default job on ``n`` rows and a tenth of them, and compare it with what is known."""
    from tests.acceptance.run import GIB, record, run_command, watch

    config = _job_on_clusters(bench, "known", n, dimension)
    planned = json.loads(run_command("plan", config, "--json").stdout)["total"]
    sources = {role: bench.folder / f"known-{role}.npy" for role in CLUSTERS}
    ran = watch("run", config, interval=1.0, timeout=4 * 3600.0)
    figures: dict[str, Any] = ran.figures()
    largest = max([ran.driver, *ran.workers.values()])
    ended = record(
        f"a job without measures on {n:,} rows and {n // 10:,}, of {dimension} dimensions",
        figures,
        "exit 0, every process < 2 GiB; goal for 10⁷: 3600 seconds",
        ran.code == 0 and largest < LIMIT,
    )
    if ran.code != 0:
        figures["said"] = ran.last_line
        return [ended]
    results = results_of(bench.output("known"))
    figures["seconds_of_work"] = seconds_of_work(results)
    held = folder_bytes(bench.output("known") / results["job"]["id"])
    stored = sum(folder_bytes(path) for path in bench.output("known").glob("corpora/*"))
    table = compare_with_truth(results, sources, COPIES)
    figures["folder_gib"] = round(held / GIB, 3)
    figures["folder_share_of_corpora"] = round(held / stored, 3)
    entries = [
        ended,
        _plan_beside(planned, ran),
        record(
            "its scores agree with what is known",
            table,
            "every known score inside",
            all(row["inside"] for row in table.values()),
        ),
    ]
    if n >= FOLDER_ROWS:
        small = held <= 0.1 * stored
        entries.append(record("its folder", {}, "at most 0.1 of the corpora", small))
    return entries


def folder_bytes(folder: Path) -> int:
    """Add up the sizes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
