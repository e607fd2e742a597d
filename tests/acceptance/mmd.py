"""The promises on the two-sample test at their full counts; run as ``mmd-…``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats
from sklearn.metrics.pairwise import rbf_kernel

from latentscale.linalg.fourier_features import draw_frequencies, fourier_features
from latentscale.mmd.group_sums import GroupSums, sum_feature_pairs, sum_rbf_pairs
from latentscale.mmd.two_sample import two_sample_discrepancy
from latentscale.sampling.median_distance import median_bandwidth
from latentscale.tiles.distances import as_points
from latentscale_pipeline.measures.mmd.tasks import divide_rows
from tests.support.jobs import results_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

GIB = 2**30
NULL_PAIRS, NULL_ROWS = 500, (300, 200)
POWER_PAIRS, POWER_ROWS, PERMUTATIONS = 200, 1000, 999
MILLION, DIMENSION = 1_000_000, 64


def _clustered(generator: np.random.Generator, n: int) -> np.ndarray:
    centres = np.random.default_rng(1).normal(size=(20, 16))
    return centres[generator.integers(20, size=n)] + 0.3 * generator.normal(size=(n, 16))


def _group_p(
    corpus: np.ndarray, reference: np.ndarray, generator: np.random.Generator, *, fourier: bool
) -> float:
    """Return the p-value as a job finds it, from all pairs or from random features."""
    size, counts = divide_rows(len(corpus), len(reference))
    if fourier:  # groups of several rows, as where there are many
        size, counts = 4, (len(corpus) // 4, len(reference) // 4)
    chosen = [
        rows[generator.permutation(len(rows))[: count * size]].astype(float)
        for rows, count in zip((corpus, reference), counts, strict=True)
    ]
    rows, sizes = np.concatenate(chosen), np.full(sum(counts), size)
    points = as_points(chosen[1], "euclidean")
    bandwidth = median_bandwidth(points, generator=generator, pairs=10_000)
    origin = rows.mean(axis=0)
    if fourier:
        frequencies = draw_frequencies("rbf", bandwidth, rows.shape[1], 256, generator)
        features = fourier_features(rows, origin, frequencies).reshape(len(sizes), size, -1)
        pairs = sum_feature_pairs(features.sum(axis=1, dtype=np.float64)) / 256
    else:
        pairs = sum_rbf_pairs(as_points(rows, "euclidean").about(origin), sizes, bandwidth)
    sums = GroupSums(pairs, sizes.astype(float), sizes, counts[0])
    return two_sample_discrepancy(sums, generator, divisions=PERMUTATIONS).expected.p


def uniform_under_the_null(bench: Bench) -> list[dict[str, Any]]:
    """p-values of pairs of samples of one source are uniform."""
    from tests.acceptance.run import record

    records = []
    for source in ("clusters", "embeddings"):
        for fourier in (False, True):
            found = []
            for seed in range(NULL_PAIRS):
                generator = np.random.default_rng([7, seed])
                count = sum(NULL_ROWS)
                rows = (
                    _clustered(generator, count)
                    if source == "clusters"
                    else bench.rows[generator.choice(len(bench.rows), count, replace=False)]
                )
                pair = rows[: NULL_ROWS[0]], rows[NULL_ROWS[0] :]
                found.append(_group_p(*pair, generator, fourier=fourier))
            p = float(stats.kstest(found, "uniform").pvalue)
            figures = {"ks_p": p, "share_below_0.05": float(np.mean(np.array(found) <= 0.05))}
            how = "random features of groups of 4 rows" if fourier else "all pairs of rows"
            promise = f"p-values of {NULL_PAIRS} pairs of one source are uniform: {source}, {how}"
            records.append(record(promise, figures, "ks_p >= 0.01", p >= 0.01))
    return records


def _changed(bench: Bench) -> Iterator[tuple[np.ndarray, np.ndarray, np.random.Generator]]:
    """Yield samples of which a tenth of one is replaced by rows of one neighbourhood."""
    rows = bench.rows.astype(np.float32)
    for seed in range(POWER_PAIRS):
        generator = np.random.default_rng([8, seed])
        drawn = rows[generator.choice(len(rows), 2 * POWER_ROWS, replace=False)]
        corpus, reference = drawn[:POWER_ROWS].copy(), drawn[POWER_ROWS:]
        near = np.argsort(((rows - corpus[0]) ** 2).sum(axis=1))[:1000]
        count = POWER_ROWS // 10
        corpus[:count] = rows[generator.choice(near, count, replace=False)]
        yield corpus, reference, generator


def _permuted_p(corpus: np.ndarray, reference: np.ndarray, generator: np.random.Generator) -> float:
    """Return the p-value of a permutation test of rows with the kernel matrix of scikit-learn."""
    m, rows = len(corpus), np.concatenate([corpus, reference]).astype(float)
    points = as_points(reference, "euclidean")
    bandwidth = median_bandwidth(points, generator=generator, pairs=10_000)
    kernel = rbf_kernel(rows, gamma=0.5 / bandwidth**2)
    np.fill_diagonal(kernel, 0.0)
    sides = np.tile(np.arange(len(rows)) < m, (PERMUTATIONS + 1, 1))
    sides[1:] = generator.permuted(sides[1:], axis=1)
    chosen = sides.astype(float)
    inside = np.einsum("ij,ij->i", chosen @ kernel, chosen)
    touching, n = chosen @ kernel.sum(axis=1), len(rows) - m
    others = kernel.sum() - 2 * touching + inside
    found = inside / (m * (m - 1)) + others / (n * (n - 1)) - 2 * (touching - inside) / (m * n)
    return float(np.mean(found >= found[0] - 1e-12))


def power_beside_permutations_of_rows(bench: Bench) -> list[dict[str, Any]]:
    """The same differences are found as by permuting rows of the whole matrix."""
    from tests.acceptance.run import record

    found = {"groups": 0, "rows": 0}
    for corpus, reference, generator in _changed(bench):
        found["groups"] += _group_p(corpus, reference, generator, fourier=False) <= 0.05
        found["rows"] += _permuted_p(corpus, reference, generator) <= 0.05
    figures = {name: count / POWER_PAIRS for name, count in found.items()}
    held = figures["groups"] >= figures["rows"] - 0.05
    promise = f"power at {POWER_ROWS} rows in {POWER_PAIRS} tries, beside permutations of all rows"
    return [record(promise, figures, "at most 5 points less", held)]


def a_million_beside_a_million(bench: Bench) -> list[dict[str, Any]]:
    """A million rows beside a million: time and memory."""
    from tests.acceptance.run import record, watch

    generator = np.random.default_rng(9)
    centres = generator.normal(size=(100, DIMENSION))
    corpora = [
        (
            centres[generator.integers(100, size=MILLION)]
            + 0.5 * generator.normal(size=(MILLION, DIMENSION))
        ).astype("f4")
        for _ in range(2)
    ]
    cluster = {"kind": "local", "workers": 2, "memory_limit": 2 * GIB}
    config = bench.job("mmd-million", *corpora, measures={"mmd": {}}, cluster=cluster)
    del corpora
    begun = time.perf_counter()
    watched = watch("run", config)
    figures: dict[str, Any] = watched.figures() | {"whole": round(time.perf_counter() - begun, 1)}
    if watched.code == 0:
        [score] = results_of(bench.output("mmd-million"))["scores"]
        figures |= {"p": score["expected"]["p"], "value": score["value"]}
    largest = max(watched.driver, *watched.workers.values(), 0)
    held = watched.code == 0 and watched.seconds <= 600 and largest < 2 * GIB
    promise = f"{MILLION} rows beside {MILLION} of {DIMENSION} dimensions, ingest included"
    return [record(promise, figures, "<= 600 s, every process < 2 GiB", held)]
