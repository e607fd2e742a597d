"""The promises on verdicts at their full counts; run by ``make test-full`` as ``verdict-…``."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from latentscale_pipeline.results.model import Results, Score
    from tests.acceptance.run import Bench

Rows = np.ndarray[Any, np.dtype[Any]]

SAMPLED = ("heat", "geomca", "magnitude", "vendi")
"""Measures that are measured on samples."""

MEASURES: dict[str, Any] = {"duplicates": {}, **{name: {} for name in SAMPLED}}
ALARMS = {(600, 600): 200, (200, 600): 100}
"""Pairs of samples of one source, by the rows of corpus and reference."""

COMPARED = {(600, 600, 0): 200, (600, 900, 0): 100, (600, 600, 600): 100}
"""Pairs of jobs on samples of one source, by the rows of both and of their reference."""

TRIES, MANY = 10, 5000
"""Tries of every change, and the rows of corpus and reference."""

KINDS = 10
"""Rows are divided into as many labels, by the nearest of random rows."""


def decide(corpus: Rows, reference: Rows, seed: int = 0) -> tuple[str | None, dict[str, float]]:
    """Return the verdict of a default job, and the (adjusted) p-value of every score."""
    from latentscale_pipeline.report.verdict import judge

    scores = _measure({"corpus": corpus, "reference": reference}, seed).scores
    p = {_name(s): s.expected.p_adjusted or s.expected.p for s in scores if s.expected is not None}
    return judge(scores, compares=True).value, p


def decide_between(
    corpus: Rows, baseline: Rows, reference: Rows | None, seed: int = 0
) -> tuple[str | None, dict[str, float]]:
    """Return the verdict of a comparison of two default jobs, and the p-value of every score."""
    from latentscale_pipeline.compare.jobs import compare
    from latentscale_pipeline.measures.finished_job import FinishedJob

    beside = {} if reference is None else {"reference": reference}
    jobs = [
        FinishedJob(f"jobs/{number}", _measure({"corpus": rows, **beside}, seed + number))
        for number, rows in enumerate((corpus, baseline))
    ]
    comparison = compare(*jobs)
    verdict = comparison.results.verdict
    assert verdict is not None
    return verdict.value, {_name(s.score): s.p for s in comparison.scores if s.p is not None}


def _name(score: Score) -> str:
    named = (score.measure, score.score, score.kernel, score.order)
    return " ".join(str(part) for part in named if part)


def _measure(rows: dict[str, Rows], seed: int) -> Results:
    """Return what a default job says of samples, its counts of rows, and cosine Vendi scores.

    Other scores of all rows are left out, because they take long.
    """
    from latentscale_pipeline.config.job import resolve_config
    from latentscale_pipeline.corpus.in_memory import hold_rows
    from latentscale_pipeline.engine.in_memory import run_in_memory
    from latentscale_pipeline.jobs.expectations import expect_scores, read_samples
    from latentscale_pipeline.jobs.plan import job_facts, measure_sections
    from latentscale_pipeline.measures.base import Findings
    from latentscale_pipeline.measures.fresh_samples import plan_samples, stage_name
    from latentscale_pipeline.measures.registry import MEASURES as KNOWN
    from latentscale_pipeline.results.model import Corpora, Corpus, Job, Results, Score

    chosen = {name: {} for name in MEASURES if name != "geomca" or "reference" in rows}
    document = {"name": "v", "seed": seed, "measures": chosen, **dict.fromkeys(rows, "c")}
    config = resolve_config(document, "v", measures=measure_sections())
    held = {role: hold_rows(own, role) for role, own in rows.items()}
    facts = job_facts(config, held, {})
    counts, section = KNOWN["duplicates"], config.measures["duplicates"]
    vendi = config.measures["vendi"]
    cosine = vendi.model_copy(update={"kernels": vendi.kernels[:1]})
    stages = [*counts.plan(section, facts), *plan_samples(KNOWN, config.measures, facts)]
    stages += KNOWN["vendi"].plan(cosine, facts)
    stages = list({stage.name: stage for stage in stages}.values())
    with threadpool_limits(1):
        results = run_in_memory(stages, held)
    numbers = {"value": 0.0, "lower": 0.0, "upper": 0.0, "bounds": "exact"}
    names = ("of", "score", "kernel", "order", "scale")
    scores = tuple(
        Score(measure=measure, **numbers, **dict(zip(names, json.loads(identity), strict=True)))
        for measure in SAMPLED
        if measure in chosen
        for identity in results(stage_name(measure)).values["means"]
        if "cosine" not in json.loads(identity)
    )
    whole = KNOWN["vendi"].collect(cosine, facts, results)
    found = counts.collect(section, facts, results)
    return Results(
        job=Job(id=f"v-{seed}", name="v"),
        corpora=Corpora(
            **{role: Corpus(n=len(own), fingerprint=_print(own)) for role, own in rows.items()}
        ),
        scores=expect_scores(
            [found, replace(whole, section=None), Findings(None, scores)],
            read_samples(config.measures, facts, results),
            facts,
        ),
        measures={"duplicates": found.section},
    )


def _print(rows: Rows) -> str:
    return hashlib.sha256(rows.tobytes()).hexdigest()[:16]


def _jobs_of_one_source(
    rows: Rows, sizes: tuple[int, int, int], seed: int
) -> tuple[str | None, dict[str, float]]:
    drawn = rows[np.random.default_rng([3, seed]).choice(len(rows), sum(sizes), replace=False)]
    corpus, baseline, reference = np.split(drawn, np.cumsum(sizes)[:-1])
    return decide_between(corpus, baseline, reference if len(reference) else None, 2 * seed)


def _changed_since(rows: Rows, name: str, seed: int) -> tuple[str | None, dict[str, float]]:
    generator = np.random.default_rng([4, seed])
    drawn = rows[generator.choice(len(rows), 2 * MANY, replace=False)]
    corpus, baseline = drawn[:MANY], drawn[MANY:]
    return decide_between(
        CHANGES[name](corpus, baseline, generator), baseline.astype("f4"), None, 2 * seed
    )


def _same_source(
    rows: Rows, sizes: tuple[int, int], seed: int
) -> tuple[str | None, dict[str, float]]:
    drawn = rows[np.random.default_rng([1, seed]).choice(len(rows), sum(sizes), replace=False)]
    return decide(drawn[: sizes[0]], drawn[sizes[0] :], seed)


def cut_a_label(rows: Rows, others: Rows, generator: np.random.Generator) -> Rows:
    """Remove half of the rows of one label."""
    centres = rows[generator.choice(len(rows), KINDS, replace=False)].astype(float)
    labels = (rows.astype(float) @ centres.T).argmax(axis=1)
    chosen = np.flatnonzero(labels == np.argsort(np.bincount(labels, minlength=KINDS))[KINDS // 2])
    return np.delete(rows, generator.choice(chosen, len(chosen) // 2, replace=False), axis=0)


def add_near_duplicates(rows: Rows, others: Rows, generator: np.random.Generator) -> Rows:
    """Replace 5 % of the rows by near-duplicates of others."""
    changed = rows.astype("f4")
    count = len(rows) // 20
    copied = rows[generator.choice(np.arange(count, len(rows)), count, replace=False)]
    changed[:count] = copied + generator.normal(scale=1e-3, size=copied.shape)
    return changed


def add_outliers(rows: Rows, others: Rows, generator: np.random.Generator) -> Rows:
    """Replace 3 % of the rows by rows from elsewhere: random directions."""
    changed = rows.astype("f4")
    far = generator.normal(size=(3 * len(rows) // 100, rows.shape[1]))
    changed[: len(far)] = far / np.linalg.norm(far, axis=1, keepdims=True)
    return changed


CHANGES: dict[str, Callable[[Rows, Rows, np.random.Generator], Rows]] = {
    "one label of ten cut by half": cut_a_label,
    "5 % near-duplicates": add_near_duplicates,
    "3 % outliers": add_outliers,
}


def _changed(rows: Rows, name: str, seed: int) -> tuple[str | None, dict[str, float]]:
    generator = np.random.default_rng([2, seed])
    drawn = rows[generator.choice(len(rows), 2 * MANY, replace=False)]
    corpus, reference = drawn[:MANY], drawn[MANY:]
    return decide(CHANGES[name](corpus, reference, generator), reference.astype("f4"), seed)


def _on_two_cores(
    work: Callable[[int], tuple[str | None, dict[str, float]]], seeds: Sequence[int]
) -> list[tuple[str | None, dict[str, float]]]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, seeds))


def _shares(found: Sequence[tuple[str | None, dict[str, float]]]) -> dict[str, float]:
    """Return how often each score has p of at most 0.05."""
    counts = Counter(name for _, p in found for name, value in p.items() if value <= 0.05)
    return {name: counts[name] / len(found) for name in found[0][1]}


def false_alarms(bench: Bench) -> list[dict[str, Any]]:
    """Compare samples of one source."""
    from tests.acceptance.run import record

    records = []
    for sizes, pairs in ALARMS.items():
        begun = time.perf_counter()
        found = _on_two_cores(partial(_same_source, bench.rows, sizes), range(pairs))
        share = sum(value == "differs" for value, _ in found) / pairs
        figures = {"share": share, "by_score": _shares(found)}
        figures["seconds"] = time.perf_counter() - begun
        promise = "false alarms of {} pairs of {} and {} rows of one source".format(pairs, *sizes)
        records.append(record(promise, figures, "at most 0.07", share <= 0.07))
    return records


def alarms_of_comparisons(bench: Bench) -> list[dict[str, Any]]:
    """Compare jobs on samples of one source, with and without a common reference."""
    from tests.acceptance.run import record

    records = []
    for sizes, pairs in COMPARED.items():
        begun = time.perf_counter()
        found = _on_two_cores(partial(_jobs_of_one_source, bench.rows, sizes), range(pairs))
        share = sum(value == "differs" for value, _ in found) / pairs
        figures = {"share": share, "by_score": _shares(found)}
        figures["seconds"] = time.perf_counter() - begun
        promise = "false alarms of {} comparisons of {} and {} rows, reference {}".format(
            pairs, *sizes
        )
        records.append(record(promise, figures, "at most 0.07", share <= 0.07))
    return records


def power_of_comparisons(bench: Bench) -> list[dict[str, Any]]:
    """Compare jobs on changed samples with jobs on others of the same source."""
    return _power(bench, _changed_since, "without a reference")


def power(bench: Bench) -> list[dict[str, Any]]:
    """Compare changed samples with others of the same source."""
    return _power(bench, _changed, "against a reference")


def _power(
    bench: Bench,
    compare: Callable[[Rows, str, int], tuple[str | None, dict[str, float]]],
    how: str,
) -> list[dict[str, Any]]:
    from tests.acceptance.run import record

    records = []
    for name in CHANGES:
        begun = time.perf_counter()
        found = _on_two_cores(partial(compare, bench.rows, name), range(TRIES))
        share = sum(value == "differs" for value, _ in found) / TRIES
        figures = {"share": share, "by_score": _shares(found)}
        figures["seconds"] = time.perf_counter() - begun
        promise = f"{name}, found {how} in {TRIES} tries at {MANY} and {MANY} rows"
        records.append(record(promise, figures, "at least 0.95", share >= 0.95))
    return records
