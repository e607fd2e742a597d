"""How often sampling errors of whole jobs cover the mean over fresh samples of one source."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

Rows = np.ndarray[Any, np.dtype[Any]]

OTHERS = ("hubness", "intrinsic_dimension", "spectrum")
MEASURES: dict[str, Any] = {
    name: {} for name in ("duplicates", "heat", "magnitude", "vendi", *OTHERS)
}
"""The default measures of one corpus, and others."""

DIMENSION, CLUSTERS, FAR = 64, 10, 0.02


def clusters(n: int, generator: np.random.Generator) -> Rows:
    """Draw rows of unequal clusters, and a few from far away."""
    centres = np.random.default_rng(12).normal(size=(CLUSTERS, DIMENSION))
    weights = np.arange(1.0, CLUSTERS + 1)
    kinds = generator.choice(CLUSTERS, n, p=weights / weights.sum())
    rows = centres[kinds] + 0.4 * generator.normal(size=(n, DIMENSION))
    far = generator.random(n) < FAR
    rows[far] += 3.0 * generator.normal(size=(int(far.sum()), DIMENSION))
    return rows.astype("f4")


def sentences(rows: Rows, n: int, generator: np.random.Generator) -> Rows:
    """Draw rows of real embeddings."""
    return rows[generator.choice(len(rows), n, replace=False)].astype("f4")


def scores_of(
    draw: Callable[[int, np.random.Generator], Rows], n: int, seed: int
) -> dict[str, tuple[float, float | None, float]]:
    """Return the scores of a job on a fresh sample, with their sampling errors.

    Beside them is half of the 95 % interval of a score that random numbers estimate, else 0.
    """
    from latentscale_pipeline.config.job import resolve_config
    from latentscale_pipeline.corpus.in_memory import hold_rows
    from latentscale_pipeline.engine.in_memory import run_in_memory
    from latentscale_pipeline.jobs.expectations import expect_scores, read_samples
    from latentscale_pipeline.jobs.plan import job_facts, measure_sections
    from latentscale_pipeline.measures.base import plan_measure
    from latentscale_pipeline.measures.fresh_samples import plan_samples
    from latentscale_pipeline.measures.registry import MEASURES as KNOWN

    rows = draw(n, np.random.default_rng([7, n, seed]))
    document = {"name": "e", "seed": seed, "measures": MEASURES, "corpus": "c"}
    config = resolve_config(document, "e", measures=measure_sections())
    held = {"corpus": hold_rows(rows, "corpus")}
    facts = job_facts(config, held, {})
    stages = plan_samples(KNOWN, config.measures, facts)
    for name, section in config.measures.items():
        stages += plan_measure(name, KNOWN[name], section, facts)
    with threadpool_limits(1):
        results = run_in_memory(list({stage.name: stage for stage in stages}.values()), held)
    findings = [
        KNOWN[name].collect(section, facts, results) for name, section in config.measures.items()
    ]
    samples = read_samples(config.measures, facts, results)
    return {
        " ".join(str(part) for part in (s.measure, s.score, s.kernel, s.order) if part): (
            s.value,
            s.sampling_error,
            0.5 * (s.upper - s.lower) if s.bounds == "interval95" else 0.0,
        )
        for s in expect_scores(findings, samples, facts)
        if s.value is not None
    }


def _coverage(
    found: list[dict[str, tuple[float, float | None, float]]],
) -> dict[str, dict[str, float]]:
    """Return the share of samples covered, and the root mean square error over the spread.

    A value that random numbers estimate is also as far from the mean as these put it.
    """
    table = {}
    for name in found[0]:
        known = [one[name] for one in found if name in one and one[name][1] is not None]
        if len(known) < len(found):
            continue
        values, sampling_errors, reach = np.array(known, dtype=np.float64).T
        errors = np.hypot(sampling_errors, reach / 1.96)
        away = np.abs(values - values.mean())
        spread = float(values.std(ddof=1))
        table[name] = {
            "covered": float((away <= 1.96 * errors).mean()),
            "ratio": float(np.sqrt((errors**2).mean())) / spread if spread else 0.0,
            "computed_to": float(np.sqrt(((reach / 1.96) ** 2).mean())) / spread if spread else 0.0,
        }
    return table


def errors_cover_fresh_samples(bench: Bench) -> list[dict[str, Any]]:
    """Run a job without reference on many samples of 1000 rows of two sources."""
    real = partial(sentences, bench.rows)
    return [_covers("clusters", clusters, 1000, 200), _covers("sentences", real, 1000, 200)]


def errors_of_many_rows_cover_fresh_samples(bench: Bench) -> list[dict[str, Any]]:
    """Run it on samples of 10 000 rows. Of 20 000 sentences, such samples aren't fresh."""
    return [_covers("clusters", clusters, 10_000, 50)]


def _covers(
    name: str, draw: Callable[[int, np.random.Generator], Rows], n: int, count: int
) -> dict[str, Any]:
    from tests.acceptance.run import record

    begun = time.perf_counter()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(partial(scores_of, draw, n), range(count)))
    table = _coverage(found)
    covered = [row["covered"] for row in table.values()]
    figures = {"by_score": table, "least": min(covered), "most": max(covered)}
    figures["seconds"] = time.perf_counter() - begun
    # Few samples show a share to a few percent.
    slack = 2 * (0.05 * 0.95 / count) ** 0.5
    return record(
        f"1.96 sampling errors cover {count} samples: {name}, {n:,} rows",
        figures,
        "0.90 to 0.98 of the samples for every score",
        min(covered) >= 0.90 - slack and max(covered) <= 0.98 + slack,
    )
