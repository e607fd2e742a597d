"""IMD hardly depends on the number of rows: figure 7 (left) of Tsitsulin et al. (2020).

    python reproductions/imd_sample_size.py

Two distributions of clusters are sampled several times at growing sizes. IMD between them is
computed with exact neighbours, with latentscale's approximate neighbours in cells, and with one
NNDescent over all rows, as in the paper. FID and KID are computed, too. The main pair has 10 and 40
clusters; pairs with equal numbers of clusters show the effect of the number of rows in a cluster.
The paper samples CIFAR-10 and CIFAR-100 images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from jobs import results_of
from latentscale.baselines.frechet import frechet_distance
from latentscale.baselines.kernel_distance import kernel_distance
from latentscale.graphs.knn import summarise, symmetrise
from latentscale.graphs.laplacian import normalised_laplacian
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.trace import HeatTrace, estimate_heat_trace
from latentscale.linalg.moments import row_moments
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import as_points
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, publish

SIZES, DRAWS, DIMENSION = (500, 1000, 2000, 4000, 8000, 16000, 32000), 3, 64
K, PROBES = 5, 100
TIMES = np.logspace(-1, 1, 64)
INSIDE = (6, 12)
"""Dimensions inside the clusters of the two laws."""

PAIRS = ((10, 40), (10, 10), (1, 1))
"""Clusters of the two laws: as ten classes and a hundred are, and as many on both sides."""

WAYS = ("IMD, exact", "IMD, cells", "IMD, NNDescent", "FID", "KID")
HEAD = 1.0
"""Time at which IMD's weight peaks; the trace there is what decides."""


@dataclass(frozen=True)
class Sampled:
    """One sample of a law with its graph.

    Attributes
    ----------
    trace : HeatTrace
        Of the graph of exact neighbours.
    across : float
        Share of all neighbours that are in another cluster.
    triangles : float
        Share of the pairs of a row's neighbours that are joined themselves.
    components : int
        Connected components.
    """

    trace: HeatTrace
    across: float
    triangles: float
    components: int

    @property
    def head(self) -> float:
        """Return the trace per vertex at time 1."""
        return float(np.interp(HEAD, self.trace.times, self.trace.trace))


def law(clusters: int, inside: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows and the cluster of each; the clusters are always the same."""
    fixed = np.random.default_rng((100, clusters, inside))
    centres = fixed.normal(size=(clusters, DIMENSION))
    maps = fixed.normal(size=(clusters, inside, DIMENSION)) / np.sqrt(inside)
    generator = np.random.default_rng((seed, clusters, inside))
    of = generator.integers(clusters, size=n)
    rows = centres[of]
    # One cluster at a time: the maps of all rows together would be larger than all else.
    for cluster in range(clusters):
        own = np.flatnonzero(of == cluster)
        rows[own] += 0.5 * generator.normal(size=(len(own), inside)) @ maps[cluster]
    return rows.astype(np.float32), of


def sampled(rows: np.ndarray, of: np.ndarray, seed: int) -> Sampled:
    """Build the graph of exact neighbours and measure it."""
    lists = exact_neighbours(as_points(rows, "euclidean"), K).indices
    adjacency = symmetrise(lists)
    return Sampled(
        trace=traced(adjacency, seed),
        across=float((of[lists] != of[:, None]).mean()),
        triangles=triangles(adjacency),
        components=summarise(adjacency).components,
    )


def traced(adjacency: csr_array, seed: int) -> HeatTrace:
    """Trace of a graph at all times, with the paper's number of probes."""
    generator = np.random.default_rng(seed)
    return estimate_heat_trace(
        normalised_laplacian(adjacency), TIMES, generator=generator, probes=PROBES
    )


def triangles(adjacency: csr_array) -> float:
    """Share of the pairs of edges at a vertex whose ends are joined: the transitivity."""
    degrees = np.diff(adjacency.indptr).astype(float)
    closed = adjacency.multiply(adjacency @ adjacency).sum()
    return float(closed / (degrees * (degrees - 1)).sum())


def by_cells(pair: list[np.ndarray], seed: int) -> float:
    """Per-vertex IMD of two sets from a job that finds neighbours in cells."""
    section = {
        "k": K,
        "neighbours": "cells",
        "times": {"start": 0.1, "stop": 10, "count": len(TIMES)},
        "probes": PROBES,
    }
    found = results_of({"heat": section}, *pair, seed=seed)
    [score] = [s for s in found["scores"] if (s["measure"], s["score"]) == ("heat", "imd")]
    return float(score["value"])


def by_descent(pair: list[np.ndarray], seed: int) -> float:
    """Compute the same from one NNDescent over all rows of each."""
    from pynndescent import NNDescent

    traces = []
    for side, rows in enumerate(pair):
        descent = NNDescent(rows, n_neighbors=K + 1, random_state=seed, n_jobs=1)
        lists = descent.neighbor_graph[0][:, 1:].astype(np.int64)
        traces.append(traced(symmetrise(lists), 2 * seed + side))
    return imd_of_traces(*traces, generator=np.random.default_rng(seed)).estimate.value


def reproduce(short: bool) -> Reproduction:
    """Measure all pairs of laws at growing sizes."""
    sizes, draws = ((300, 600), 2) if short else (SIZES, DRAWS)
    ways = WAYS[:1] + WAYS[3:] if short else WAYS
    laws = {(clusters, INSIDE[side]) for pair in PAIRS for side, clusters in enumerate(pair)}
    shape = (draws, len(sizes))
    measured = np.empty((*shape, len(ways)))
    by_pair = np.empty((*shape, len(PAIRS)))
    graphs = {which: np.empty((*shape, 4)) for which in laws}
    half = 0.0
    for draw in range(draws):
        for s, n in enumerate(sizes):
            rows, found = {}, {}
            for side, which in enumerate(sorted(laws)):
                rows[which], of = law(*which, n, draw)
                one = found[which] = sampled(rows[which], of, len(laws) * draw + side)
                graphs[which][draw, s] = one.head, one.across, one.triangles, one.components
            for p, pair in enumerate(PAIRS):
                first, second = (found[which] for which in zip(pair, INSIDE, strict=True))
                generator = np.random.default_rng(draw)
                between = imd_of_traces(first.trace, second.trace, generator=generator).estimate
                by_pair[draw, s, p] = between.value
                half = max(half, (between.upper - between.lower) / 2)
            both = [rows[which] for which in zip(PAIRS[0], INSIDE, strict=True)]
            approximate = [] if short else [by_cells(both, draw), by_descent(both, draw)]
            measured[draw, s] = [
                by_pair[draw, s, 0],
                *approximate,
                frechet_distance(*map(row_moments, both)).value,
                kernel_distance(*both).value,
            ]
    graph = {which: found.mean(axis=0) for which, found in graphs.items()}
    return Reproduction(
        findings=claims(measured, by_pair, graph, sizes, ways, half),
        panels=figure(measured, by_pair, graph, sizes, ways),
        numbers={
            "sizes": sizes,
            "draws": draws,
            "ways": ways,
            "mean": measured.mean(axis=0).tolist(),
            "deviation": measured.std(axis=0, ddof=1).tolist(),
            "pairs": [pair_name(pair) for pair in PAIRS],
            "imd_of_pairs": by_pair.mean(axis=0).tolist(),
            "deviation_of_pairs": by_pair.std(axis=0, ddof=1).tolist(),
            "graphs": {
                law_name(which): {
                    "trace_at_1": found[:, 0].tolist(),
                    "neighbours_in_another_cluster": found[:, 1].tolist(),
                    "triangles": found[:, 2].tolist(),
                    "components": found[:, 3].tolist(),
                }
                for which, found in sorted(graph.items())
            },
            "largest_half_width_of_imd": half,
        },
        data=f"laws of 1, 10 and 40 clusters of 6 or 12 dimensions in {DIMENSION}, "
        f"{sizes[0]:,} to {sizes[-1]:,} rows a side, seeds 0 to {draws - 1}",
        columns=2,
    )


def pair_name(pair: tuple[int, int]) -> str:
    """Return a label with the numbers of clusters of a pair."""
    if pair == (1, 1):
        return "one cluster each"
    return f"{pair[0]} clusters each" if pair[0] == pair[1] else f"{pair[0]} and {pair[1]} clusters"


def law_name(which: tuple[int, int]) -> str:
    """Return a label with the clusters of a distribution and their dimensions."""
    return f"{which[0]} of {which[1]} dimensions"


def claims(
    measured: np.ndarray,
    by_pair: np.ndarray,
    graph: dict[tuple[int, int], np.ndarray],
    sizes: tuple[int, ...],
    ways: tuple[str, ...],
    half: float,
) -> list[Finding]:
    """Compare the results with the paper's claims, and report what was tried where they differ."""
    mean, deviation = measured.mean(axis=0), measured.std(axis=0, ddof=1)
    later = slice(1, None)
    findings = []
    for p, pair in enumerate(PAIRS):
        of = by_pair.mean(axis=0)[:, p]
        drift = np.abs(of / of[-1] - 1)
        middle = min(len(sizes) // 2 + 1, len(sizes) - 1)
        findings.append(
            Finding(
                f"IMD doesn't diverge with the sample size: {pair_name(pair)}",
                "not too much",
                f"within {drift[later].max():.0%} of its last value from {sizes[1]:,} rows on, "
                f"{drift[middle:].max():.0%} from {sizes[middle]:,}; brackets ± {half:.1g}",
                bool(drift[later].max() < 0.25),
            )
        )
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
    return findings + reasons(by_pair, graph, sizes)


def reasons(
    by_pair: np.ndarray, graph: dict[tuple[int, int], np.ndarray], sizes: tuple[int, ...]
) -> list[Finding]:
    """Test two explanations for IMD at few rows: edges across clusters, and rows per cluster."""
    few, many = ((PAIRS[0][0], INSIDE[0]), (PAIRS[0][1], INSIDE[1]))
    ahead = graph[few][:, 0] - graph[many][:, 0]
    alike = graph[PAIRS[1][1], INSIDE[1]][:, 0]
    times = PAIRS[0][1] // PAIRS[1][1]
    same = [(s, sizes.index(n * times)) for s, n in enumerate(sizes) if n * times in sizes]
    findings = [
        Finding(
            "neighbours in other clusters are the reason",
            "not stated",
            f"{graph[many][0, 1]:.1%} of all neighbours at {sizes[0]:,} rows, "
            f"{graph[many][1, 1]:.1%} at {sizes[1]:,}",
            bool(graph[many][0, 1] > 0.05),
        ),
        Finding(
            "small clusters full of triangles are the reason",
            "not stated",
            f"pairs of neighbours that are joined: {graph[many][0, 2]:.2f} of 40 clusters and "
            f"{graph[few][0, 2]:.2f} of 10 at {sizes[0]:,} rows, {graph[many][-1, 2]:.2f} and "
            f"{graph[few][-1, 2]:.2f} at {sizes[-1]:,}; difference of traces at t = 1 from "
            f"{ahead[0]:+.4f} to {ahead[-1]:+.4f}",
            bool(ahead[0] < 0 < ahead[-1]),
        ),
    ]
    if same:
        apart = max(abs(alike[s] - graph[many][t, 0]) for s, t in same)
        moved = np.ptp([graph[many][t, 0] for _, t in same])
        findings.append(
            Finding(
                "the number of rows in a cluster is what decides",
                "not stated",
                f"40 clusters of n rows have the trace of 10 of n/4 within {apart:.1g}, "
                f"while it moves by {moved:.1g}",
                bool(apart < 0.25 * moved),
            )
        )
    return findings


def figure(
    measured: np.ndarray,
    by_pair: np.ndarray,
    graph: dict[tuple[int, int], np.ndarray],
    sizes: tuple[int, ...],
    ways: tuple[str, ...],
) -> list[Panel]:
    """Draw all distances, IMD by pair and by way, and the traces that make it up."""

    def banded(name: str, values: np.ndarray, unit: float = 1.0) -> Curve:
        mean, twice = values.mean(axis=0) / unit, 2 * values.std(axis=0, ddof=1) / unit
        return Curve(name, sizes, mean, mean - twice, mean + twice)

    return [
        Panel(
            "relative to the largest sample",
            "rows a side",
            "share of the last value",
            [
                banded(name, measured[..., w], measured[:, -1, w].mean())
                for w, name in enumerate(ways)
            ],
            log_x=True,
        ),
        Panel(
            "IMD by the numbers of clusters",
            "rows a side",
            "IMD per vertex",
            [banded(pair_name(pair), by_pair[..., p]) for p, pair in enumerate(PAIRS)],
            log_x=True,
        ),
        Panel(
            "heat trace at t = 1",
            "rows a side",
            "per vertex",
            [Curve(law_name(which), sizes, found[:, 0]) for which, found in sorted(graph.items())],
            log_x=True,
        ),
        Panel(
            "triangles",
            "rows a side",
            "share of pairs of neighbours joined",
            [Curve(law_name(which), sizes, found[:, 2]) for which, found in sorted(graph.items())],
            log_x=True,
        ),
    ]


if __name__ == "__main__":
    publish("imd-sample-size", reproduce)
