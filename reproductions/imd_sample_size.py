"""IMD hardly moves with the number of rows: figure 7 (left) of Tsitsulin et al. (2020).

    python reproductions/imd_sample_size.py

Two laws of clusters, sampled at growing sizes several times; IMD between them with exact
neighbours, with our approximate ones in cells, and with one NNDescent over all rows, which is what
the paper takes; FID and KID beside it. The paper samples CIFAR-10 and CIFAR-100 images.
"""

from __future__ import annotations

import numpy as np

from jobs import results_of
from latentscale.frechet import frechet_distance
from latentscale.graph import normalised_laplacian, symmetrise
from latentscale.heat import HeatTrace, heat_trace, imd
from latentscale.kernel_distance import kernel_distance
from latentscale.moments import row_moments
from latentscale_pipeline.panels import Curve, Panel
from records import Finding, Reproduction, publish

SIZES, DRAWS, DIMENSION = (500, 1000, 2000, 4000), 3, 64
K, TIMES, PROBES = 5, 64, 100
CLUSTERS = (10, 40)
INSIDE = (6, 12)
"""Clusters, and dimensions of each, of the two laws: as ten classes and a hundred are."""

WAYS = ("IMD, exact", "IMD, cells", "IMD, NNDescent", "FID", "KID")


def law(which: int, n: int, seed: int) -> np.ndarray:
    """Draw rows of clusters; the clusters are always the same."""
    fixed = np.random.default_rng(100 + which)
    clusters, inside = CLUSTERS[which], INSIDE[which]
    centres = fixed.normal(size=(clusters, DIMENSION))
    maps = fixed.normal(size=(clusters, inside, DIMENSION)) / np.sqrt(inside)
    generator = np.random.default_rng((seed, which))
    of = generator.integers(clusters, size=n)
    normal = 0.5 * generator.normal(size=(n, inside))
    return (centres[of] + np.einsum("ni,nij->nj", normal, maps[of])).astype(np.float32)


def by_job(pair: list[np.ndarray], neighbours: str, seed: int) -> tuple[float, float]:
    """Per-vertex IMD of two sets, and half the width of its bracket, from a job."""
    section = {
        "k": K,
        "neighbours": neighbours,
        "times": {"start": 0.1, "stop": 10, "count": TIMES},
        "probes": PROBES,
    }
    found = results_of({"heat": section}, *pair, seed=seed)
    [score] = [s for s in found["scores"] if (s["measure"], s["score"]) == ("heat", "imd")]
    return score["value"], (score["upper"] - score["lower"]) / 2


def by_descent(pair: list[np.ndarray], seed: int) -> float:
    """Compute the same from one NNDescent over all rows of each."""
    from pynndescent import NNDescent

    generator = np.random.default_rng(seed)

    def trace(rows: np.ndarray) -> HeatTrace:
        descent = NNDescent(rows, n_neighbors=K + 1, random_state=seed, n_jobs=1)
        lists = descent.neighbor_graph[0][:, 1:].astype(np.int64)
        laplacian = normalised_laplacian(symmetrise(lists))
        times = np.logspace(-1, 1, TIMES)
        return heat_trace(laplacian, times, generator=generator, probes=PROBES)

    return imd(trace(pair[0]), trace(pair[1]), generator=generator).estimate.value


def reproduce(short: bool) -> Reproduction:
    """Measure both laws at growing sizes."""
    sizes, draws = ((300, 600), 2) if short else (SIZES, DRAWS)
    ways = WAYS[:1] + WAYS[3:] if short else WAYS
    found = np.empty((draws, len(sizes), len(ways)))
    half = 0.0
    for draw in range(draws):
        for s, n in enumerate(sizes):
            pair = [law(which, n, draw) for which in (0, 1)]
            values, width = measured(pair, ways, draw)
            found[draw, s], half = values, max(half, width)
    mean, deviation = found.mean(axis=0), found.std(axis=0, ddof=1)
    return Reproduction(
        findings=claims(mean, deviation, sizes, ways, half),
        panels=[
            Panel(
                "relative to the largest sample",
                "rows a side",
                "share of the last value",
                [
                    Curve(
                        name,
                        sizes,
                        mean[:, w] / mean[-1, w],
                        (mean - 2 * deviation)[:, w] / mean[-1, w],
                        (mean + 2 * deviation)[:, w] / mean[-1, w],
                    )
                    for w, name in enumerate(ways)
                ],
                log_x=True,
            ),
            Panel(
                "IMD per vertex",
                "rows a side",
                "IMD",
                [
                    Curve(
                        name,
                        sizes,
                        mean[:, w],
                        (mean - 2 * deviation)[:, w],
                        (mean + 2 * deviation)[:, w],
                    )
                    for w, name in enumerate(ways)
                    if name.startswith("IMD")
                ],
                log_x=True,
            ),
        ],
        numbers={
            "sizes": sizes,
            "draws": draws,
            "ways": ways,
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
            "largest_half_width_of_imd": half,
        },
        data=f"two laws of {CLUSTERS[0]} and {CLUSTERS[1]} clusters in {DIMENSION} dimensions",
        columns=2,
    )


def measured(pair: list[np.ndarray], ways: tuple[str, ...], seed: int) -> tuple[list[float], float]:
    """All distances of one pair, and half the width of the exact IMD's bracket."""
    exact, width = by_job(pair, "exact", seed)
    values = [exact]
    if len(ways) == len(WAYS):
        values += [by_job(pair, "cells", seed)[0], by_descent(pair, seed)]
    values.append(frechet_distance(row_moments(pair[0]), row_moments(pair[1])).value)
    values.append(kernel_distance(*pair).value)
    return values, width


def claims(
    mean: np.ndarray,
    deviation: np.ndarray,
    sizes: tuple[int, ...],
    ways: tuple[str, ...],
    half: float,
) -> list[Finding]:
    """State what the paper says of the figure."""
    later = slice(1, None)
    drift = np.abs(mean[later] / mean[-1] - 1).max(axis=0)
    findings = [
        Finding(
            "IMD doesn't diverge with the sample size",
            "not too much",
            f"within {drift[0]:.0%} of its last value from {sizes[1]:,} rows on; "
            f"brackets ± {half:.1g}",
            bool(drift[0] < 0.25),
        )
    ]
    for way in ("IMD, cells", "IMD, NNDescent"):
        if way in ways:
            w = ways.index(way)
            more = deviation[later, w].mean() / deviation[later, 0].mean()
            gap = mean[:, w] / mean[:, 0] - 1
            findings += [
                Finding(
                    f"{way}: approximate neighbours add no variance",
                    "no additional variance",
                    f"deviation of draws is {more:.2f} times that of exact ones",
                    bool(more < 1.5),
                ),
                Finding(
                    f"{way}: and diverge slightly as rows grow",
                    "slightly further than exact",
                    f"{gap[0]:+.1%} at {sizes[0]:,} rows, {gap[-1]:+.1%} at {sizes[-1]:,}",
                    bool(abs(gap[-1]) < 0.15),
                ),
            ]
    return findings


if __name__ == "__main__":
    publish("imd-sample-size", reproduce)
