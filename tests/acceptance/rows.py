"""The promises on rows at their full counts; run by ``make test-full`` as ``rows-…``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentscale.sampling.shares import exact_interval
from tests.acceptance.heat import results_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

ROLES = ("corpus", "reference")
Rows = np.ndarray[Any, np.dtype[Any]]

SEEDS = 3
NOISE = 1e-3
WITHIN = 0.005
"""Distance of near-duplicates: injected ones are at about 0.0002 of unit rows."""

MILLION, DIMENSION = 1_000_000, 128

TEN_MILLION, FEW_DIMENSIONS = 10_000_000, 16


def injected_rows_are_found(bench: Bench) -> list[dict[str, Any]]:
    """Inject near-duplicates, copies of reference rows and outliers into half of all rows."""
    from tests.acceptance.run import record

    worst: dict[str, float] = {}
    begun = time.perf_counter()
    for seed in range(SEEDS):
        for name, value in _find_injected(bench.rows.astype("f4"), seed).items():
            worst[name] = min(worst.get(name, 1.0), value)
    worst["seconds"] = (time.perf_counter() - begun) / SEEDS
    limits = {"near-duplicates": 0.99, "leaks": 0.99, "outliers": 0.95}
    held = all(
        worst[f"{name}, {which}"] >= least
        for name, least in limits.items()
        for which in ("precision", "recall")
    )
    half = len(bench.rows) // 2
    promise = (
        f"of {half} rows against {half} others, 5 % made near-duplicates, 2 % copies of reference "
        f"rows, 1 % outliers: rows named, worst of {SEEDS} tries"
    )
    limit = "precision and recall at least 0.99 (near-duplicates, leaks), 0.95 (outliers)"
    return [record(promise, worst, limit, held)]


def _find_injected(rows: Rows, seed: int) -> dict[str, float]:
    import latentscale

    generator = np.random.default_rng(seed)
    order = generator.permutation(len(rows))
    corpus, reference = np.split(rows[order[: len(rows) // 2 * 2]], 2)
    clean = corpus.copy()
    n, d = corpus.shape
    near, sources, leaks, far, _ = np.split(
        generator.permutation(n), np.cumsum([n // 20, n // 20, n // 50, n // 100])
    )
    corpus[near] = corpus[sources] + generator.normal(scale=NOISE, size=(len(near), d))
    corpus[leaks] = reference[generator.choice(n, len(leaks), replace=False)]
    corpus[far] = generator.normal(size=(len(far), d))
    section = {"duplicates": {"within": WITHIN}}
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"measures": section, "output": Path(folder)}
        before = latentscale.run(clean, reference, name="before", **options)
        after = latentscale.run(corpus, reference, name="after", **options)
        found: dict[str, float] = {}
        pairs = dict(zip(near.tolist(), sources.tolist(), strict=True))
        injected = {max(pair) for pair in pairs.items()}
        for name, wanted in (
            ("near-duplicates", injected),
            ("leaks", set(leaks.tolist())),
            ("outliers", set(far.tolist())),
        ):
            # Rows that real data name by themselves aren't mistakes.
            known = set(before.rows(name).numbers.tolist())
            named = set(after.rows(name).numbers.tolist())
            found[f"{name}, recall"] = len(named & wanted) / len(wanted)
            if name == "outliers":
                known = set()
            found[f"{name}, precision"] = len(named & wanted) / len(named - (known - wanted))
    return found


def a_million_rows_against_a_million(bench: Bench) -> list[dict[str, Any]]:
    """Name the near-duplicates, leaks and outliers among a million rows, and count what is missed.

    The neighbour graphs of both corpora, in the same job, are what the time is compared with.
    """
    from tests.acceptance.run import GIB, record, watch

    corpora, put_in = _damaged_million(np.random.default_rng(12))
    cluster = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": 2 * GIB}
    measures = {"duplicates": {}, "heat": {"probes": 4, "steps": 4}}
    options = {"measures": measures, "cluster": cluster, "sampling": {"method": "none"}}
    config = bench.job("rows-million", corpora["corpus"], corpora["reference"], **options)
    del corpora
    watched = watch("run", config)
    figures: dict[str, Any] = watched.figures()
    promise = (
        f"near-duplicates, leaks and outliers among {MILLION} rows of {DIMENSION} dimensions "
        f"against {MILLION}, in cells"
    )
    limit = (
        "recall of rows with another within the distance >= 0.98 at its lower end, of those put in "
        ">= 0.99; outliers exact; 1.3 times the time of both neighbour graphs; every process < 2 "
        "GiB; no task 20 % over its projection"
    )
    if watched.code != 0:
        return [record(promise, figures | {"said": watched.last_line}, limit, held=False)]
    results = results_of(bench.output("rows-million"))
    seconds = {t["stage"]: t["seconds"] for t in results["timings"]}
    graphs = sum(time for stage, time in seconds.items() if stage.startswith(GRAPH_STAGES))
    rows = sum(time for stage, time in seconds.items() if stage.startswith(ROW_STAGES))
    over = [
        timing["stage"]
        for timing in results["timings"]
        if timing["peak_memory_bytes"] > 1.2 * timing["projected_memory_bytes"]
    ]
    [folder] = bench.output("rows-million").glob("rows-million-*")
    found = _recall_of(results, folder, put_in)
    figures |= {
        "seconds_of_work": {stage: round(time, 1) for stage, time in seconds.items()},
        "work_for_graphs": round(graphs, 1),
        "work_for_rows": round(rows, 1),
        "stages_over_their_projection": over,
        **found,
    }
    largest = max(watched.driver, *watched.workers.values(), 0)
    held = (
        rows <= 1.3 * graphs
        and largest < 2 * GIB
        and not over
        and min(found["checked: lower end"], found["checked_across: lower end"]) >= 0.98
        and found["outliers with exact bounds"] == 1
        and min(found[f"recall of {name} put in"] for name in put_in) >= 0.99
    )
    return [record(promise, figures, limit, held)]


GRAPH_STAGES = (
    *(f"{stage}-{role}" for stage in ("cells", "checks", "regroup") for role in ROLES),
    *(f"{stage}-{role}" for stage in ("search", "neighbours", "graph") for role in ROLES),
)
ROW_STAGES = (
    *(f"{stage}-{role}" for stage in ("nearest", "nearest-rows", "covered") for role in ROLES),
    *("near-sample", "near-cells", "regroup-near", "search-near", "rows-compared"),
)


def _damaged_million(generator: np.random.Generator) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Return two corpora of 1000 clusters, and the rows of the first that were put in."""
    centres = generator.standard_normal((1000, DIMENSION), dtype="f4")
    corpora = {}
    for role in ROLES:
        rows = np.empty((MILLION, DIMENSION), "f4")
        for start in range(0, MILLION, 50_000):
            block = generator.standard_normal((50_000, DIMENSION), dtype="f4")
            rows[start : start + 50_000] = centres[generator.integers(1000, size=50_000)]
            rows[start : start + 50_000] += np.float32(0.5) * block
        corpora[role] = rows
    near, sources, leaks, outliers, _ = np.split(
        generator.permutation(MILLION), np.cumsum([50_000, 50_000, 60_000, 1_000])
    )
    corpus = corpora["corpus"]
    # At about 0.03 of each other, where near is up to 0.05.
    corpus[near] = corpus[sources]
    corpus[near] += np.float32(0.28) * generator.standard_normal((50_000, DIMENSION), dtype="f4")
    corpus[leaks] = corpora["reference"][generator.choice(MILLION, len(leaks), replace=False)]
    corpus[leaks] += np.float32(0.28) * generator.standard_normal((60_000, DIMENSION), dtype="f4")
    corpus[outliers] = 5 * generator.standard_normal((1_000, DIMENSION), dtype="f4")
    return corpora, {
        "near-duplicates": np.maximum(near, sources),
        "leaks": leaks,
        "outliers": outliers,
    }


def _recall_of(
    results: dict[str, Any], folder: Path, put_in: dict[str, Rows]
) -> dict[str, float | int]:
    """Return the certified recall, and that of the rows that were put in."""

    def array(name: str) -> Rows:
        return np.load(folder / results["arrays"][f"duplicates/corpus/{name}"])

    part = results["measures"]["duplicates"]
    apart = array("other_nearest_distance")
    named = {
        "near-duplicates": array("covered_rows"),
        "leaks": np.flatnonzero(apart <= part["within"]),
        "outliers": np.flatnonzero(apart > part["pair"]["outlier_distance"]),
    }
    found: dict[str, float | int] = {}
    for name in ("checked", "checked_across"):
        each = part["corpus"][name]
        found |= {
            f"{name}: near": each["near"],
            f"{name}: near found": each["near_found"],
            f"{name}: lower end": exact_interval(each["near_found"], each["near"])[0],
            f"{name}: nearest found": each["nearest"] / each["rows"],
        }
    found["outliers with exact bounds"] = sum(
        score["bounds"] == "exact" for score in results["scores"] if score["score"] == "outliers"
    )
    for name, rows in put_in.items():
        found[f"recall of {name} put in"] = float(np.isin(rows, named[name]).mean())
        found[f"{name} named"] = len(named[name])
    return found


def rows_of_ten_million(bench: Bench) -> list[dict[str, Any]]:
    """Export what is known of ten million rows, with ids, and list the first hundred."""
    from tests.acceptance.run import GIB, record, watch

    generator = np.random.default_rng(13)
    centres = generator.standard_normal((1000, FEW_DIMENSIONS), dtype="f4")
    rows = np.empty((TEN_MILLION, FEW_DIMENSIONS), "f4")
    for start in range(0, TEN_MILLION, 100_000):
        rows[start : start + 100_000] = centres[generator.integers(1000, size=100_000)]
        noise = generator.standard_normal((100_000, FEW_DIMENSIONS), dtype="f4")
        rows[start : start + 100_000] += np.float32(0.5) * noise
    copied = generator.permutation(TEN_MILLION)[:200_000].reshape(2, -1)
    rows[copied[0]] = rows[copied[1]]
    np.save(bench.folder / "ten.npy", rows)
    del rows
    with (bench.folder / "ten.txt").open("w") as file:
        file.writelines(f"row-{row}\n" for row in range(TEN_MILLION))
    corpus = bench.folder / "ten.zarr"
    ingested = watch("ingest", bench.folder / "ten.npy", corpus, "--ids", bench.folder / "ten.txt")
    cluster = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": 2 * GIB}
    measures = {"duplicates": {"within": 0.0001}, "vendi": {"kernels": ["cosine"], "orders": [1]}}
    options = {"measures": measures, "cluster": cluster, "sampling": {"method": "none"}}
    config = bench.job("rows-ten-million", corpus, **options)
    ran = watch("run", config)
    promise = (
        f"rows of a job of {TEN_MILLION} rows of {FEW_DIMENSIONS} dimensions with ids: all of them "
        "to Parquet, and the first hundred"
    )
    limit = "<= 1 GiB to export; the first hundred within 10 s; all that were put in are named"
    figures: dict[str, Any] = {"ingest": ingested.figures(), "job": ran.figures()}
    if ran.code != 0:
        return [record(promise, figures | {"said": ran.last_line}, limit, held=False)]
    [job] = bench.output("rows-ten-million").glob("rows-ten-million-*")
    timings = results_of(bench.output("rows-ten-million"))["timings"]
    over = [
        t["stage"] for t in timings if t["peak_memory_bytes"] > 1.2 * t["projected_memory_bytes"]
    ]
    exported = watch("rows", job, "--output", bench.folder / "rows.parquet")
    first = watch("rows", job, "--sort", "vendi_influence:desc", "--limit", 100, "--json")
    gone = watch("rows", job, "--only", "near-duplicates", "--output", bench.folder / "gone.csv")
    said = (bench.folder / "gone.csv").read_text().splitlines()[1:] if gone.code == 0 else []
    named = {int(line.split(",")[0]) for line in said}
    put_in = {int(row) for row in copied.max(axis=0)}
    figures |= {
        "seconds_of_work": {t["stage"]: round(t["seconds"], 1) for t in timings},
        "stages_over_their_projection": over,
        "export": exported.figures(),
        "parquet_bytes": (bench.folder / "rows.parquet").stat().st_size,
        "first hundred": first.figures(),
        "lines": len(first.out.splitlines()),
        "near-duplicates to CSV": gone.figures(),
        "recall of what was put in": len(named & put_in) / len(put_in),
    }
    held = (
        exported.code == first.code == gone.code == 0
        and exported.peak_rss <= GIB
        and first.seconds <= 10
        and len(first.out.splitlines()) == 100
        and figures["recall of what was put in"] >= 0.99
        and max(ran.driver, *ran.workers.values(), 0) < 2 * GIB
        and not over
    )
    return [record(promise, figures, limit, held)]
