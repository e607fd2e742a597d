"""Every measure and method on one nasty corpus, beside the oracle.

Intervals of random methods need more rows than the oracle can take, so :func:`intervals_of` puts
them beside the dense answer, whose brackets :func:`cases_of` checks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import latentscale
from latentscale.baselines.clipping import ROUNDING
from latentscale.baselines.frechet import frechet_distance
from latentscale.baselines.kernel_distance import kernel_distance
from latentscale.baselines.manifold_overlap import exact_overlap
from latentscale.baselines.moments import (
    geometric_mean_deviation,
    internal_diversity,
    mean_similarity,
)
from latentscale.duplicates.distinct import EQUAL_DIRECTION, find_distinct
from latentscale.estimate import Estimate
from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import normalised_laplacian, unnormalised_laplacian
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.trace import dense_heat_trace, estimate_heat_trace
from latentscale.linalg.moments import row_moments
from latentscale.magnitude.function import (
    NoConvergenceScale,
    convergence_scale,
    magnitude_area,
    magnitude_difference,
    magnitude_function,
)
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import METRICS, Metric, as_points
from latentscale.vendi.kernels import METRIC_OF_KERNEL
from latentscale.vendi.lanczos import kernel_scores
from latentscale.vendi.scores import (
    kernel_spectrum,
    moment_spectrum,
    nystrom_spectrum,
    vendi_bracket,
    vendi_score,
)
from latentscale.vendi.second_moments import second_moment
from tests.acceptance.adversarial import oracles
from tests.acceptance.adversarial.corpora import NASTY, draw_corpus
from tests.oracles import clipped_overlap

ORDERS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, math.inf)
TIMES = np.array([0.1, 0.5, 1.0, 3.0, 10.0])
ULP = 2.0**-52


@dataclass(frozen=True)
class Case:
    """One bracket beside the truth."""

    kind: str
    seed: int
    score: str
    method: str
    estimate: Estimate
    truth: float

    @property
    def inside(self) -> bool:
        """Whether the bracket holds the truth, to a rounding of the oracle's own result."""
        slack = 4 * ULP * abs(self.truth)
        return self.estimate.lower - slack <= self.truth <= self.estimate.upper + slack

    @property
    def violated(self) -> bool:
        """Whether it promises more than it keeps."""
        return self.estimate.bounds in ("exact", "certified") and not self.inside

    def __str__(self) -> str:
        found = self.estimate
        return (
            f"{self.kind}, seed {self.seed}: {self.score} by {self.method} is {self.truth!r}, "
            f"and the bracket {found.value!r} [{found.lower!r}, {found.upper!r}] {found.bounds}"
        )


@dataclass(frozen=True)
class Skipped:
    """A bracket that isn't checked, and why."""

    reason: str


def cases_of(kind: str, seed: int, skipped: Counter[str] | None = None) -> Iterator[Case]:
    """Yield the brackets of all measures of one corpus, and of a pair; count those left out."""
    generator = np.random.default_rng([list(NASTY).index(kind), seed])
    n, d = int(generator.integers(2, 20)), int(generator.integers(1, 7))
    n = 1 if seed % 4 == 3 else n
    rows = draw_corpus(kind, generator, n, d)
    others = draw_corpus(kind, generator, int(generator.integers(6, 20)), d)
    for measure in MEASURES.values():
        for found in measure(rows, others, generator):
            if not isinstance(found, Skipped):
                yield Case(kind, seed, *found)
            elif skipped is not None:
                skipped[found.reason] += 1


Found = Iterator[tuple[str, str, Estimate, float] | Skipped]


def _typical_distance(rows: np.ndarray, generator: np.random.Generator) -> float:
    """Draw a length about which the rows differ."""
    gaps = np.linalg.norm(rows[:, None] - rows, axis=2)
    positive = gaps[gaps > 0]
    middle = float(generator.choice(positive)) if positive.size else 1.0
    return middle * 10.0 ** generator.uniform(-1, 1)


def vendi_cases(rows: np.ndarray, others: np.ndarray, generator: np.random.Generator) -> Found:
    """Dense and Nyström under every kernel, second moments under the cosine kernel."""
    del others
    for kernel, metric in METRIC_OF_KERNEL.items():
        bandwidth = None if kernel == "cosine" else _typical_distance(rows, generator)
        points = as_points(rows, metric)
        truths = oracles.eigenvalues(oracles.kernel_matrix(rows, kernel, bandwidth))
        yield from _weighted_vendi(rows, kernel, bandwidth, generator)
        landmarks = int(generator.integers(1, len(rows) + 1))
        dense = kernel_spectrum(points, kernel, bandwidth)
        nystrom = nystrom_spectrum(points, kernel, bandwidth, landmarks, generator)
        moment = moment_spectrum(second_moment(rows), len(rows))
        for order in ORDERS:
            truth = oracles.vendi_score(truths, order)
            name = f"vendi {kernel} {bandwidth} of order {order}"
            yield name, "dense", vendi_score(dense, order), truth
            yield name, f"{landmarks} landmarks", vendi_bracket(nystrom, order), truth
            if kernel == "cosine":
                yield name, "moments", vendi_score(moment, order), truth


def _weighted_vendi(
    rows: np.ndarray, kernel: str, bandwidth: float | None, generator: np.random.Generator
) -> Found:
    """Rows with weights, some of them 0 and some far apart."""
    weights = 10.0 ** generator.uniform(-6, 3, size=len(rows))
    weights[generator.random(len(rows)) < 0.2] = 0.0
    weights[0] = 1.0
    points = as_points(rows, METRIC_OF_KERNEL[kernel])
    exact = [oracles.fmpq(*weight.as_integer_ratio()) for weight in weights.tolist()]
    truths = oracles.eigenvalues(oracles.weighted(rows, kernel, bandwidth, exact))
    dense = kernel_spectrum(points, kernel, bandwidth, weights)
    moment = moment_spectrum(second_moment(rows, weights), len(rows))
    for order in ORDERS:
        truth = oracles.vendi_score(truths, order)
        name = f"weighted vendi {kernel} {bandwidth} of order {order}"
        yield name, "dense", vendi_score(dense, order), truth
        if kernel == "cosine":
            yield name, "moments", vendi_score(moment, order), truth


def magnitude_cases(rows: np.ndarray, others: np.ndarray, generator: np.random.Generator) -> Found:
    """Factor and conjugate gradients under every metric, areas, and their difference."""
    for metric in METRICS:
        table, other = (
            oracles.distances(
                _distinct_directions(side) if metric == "cosine" else np.unique(side, axis=0),
                metric,
            )
            for side in (rows, others)
        )
        gaps = [float(gap) for i, row in enumerate(table) for gap in row[:i]]
        middle = float(generator.choice(gaps)) if gaps else 1.0
        scales = np.append(0.0, np.sort(10.0 ** generator.uniform(-2, 2, size=3)) / middle)
        scales[1] *= 10.0 ** -generator.choice([0, 0, 5, 100, 300])
        if not np.isfinite(scales).all() or scales[-1] > 1e300:
            yield Skipped("a scale overflows")
            continue
        if scales[1] == 0.0:
            yield Skipped("a scale underflows")
            continue
        yield from _convergence_scale(rows, metric, table)
        try:
            truths, theirs = ([oracles.magnitude(t, s) for s in scales] for t in (table, other))
        except ArithmeticError:
            yield Skipped("the oracle of the magnitude has too few digits")
            continue
        for method in ("cholesky", "cg"):
            found, second = (
                magnitude_function(as_points(side, metric), scales, method=method)
                for side in (rows, others)
            )
            for scale, estimate, truth in zip(scales, found.estimates, truths, strict=True):
                yield f"magnitude {metric} at {scale!r}", method, estimate, float(truth)
            area = oracles.trapezium(scales, truths)
            yield f"area {metric}", method, magnitude_area(scales, found.estimates), float(area)
            gap = area - oracles.trapezium(scales, theirs)
            yield f"difference {metric}", method, magnitude_difference(found, second), float(gap)


def _distinct_directions(rows: np.ndarray) -> np.ndarray:
    """Return the rows that stand for all directions, once each row is shown to be near its own."""
    found = find_distinct(as_points(rows, "cosine"))
    table = oracles.distances(rows, "cosine")
    near, apart = EQUAL_DIRECTION * (1 + 1e-3), EQUAL_DIRECTION * (1 - 1e-3)
    for i, group in enumerate(found.group):
        assert table[i][found.rows[group]] < near, f"row {i} has another direction"
    for i in found.rows:
        assert all(table[i][j] > apart for j in found.rows if j != i), f"row {i} is there twice"
    return rows[found.rows]


def _convergence_scale(rows: np.ndarray, metric: Metric, table: list) -> Found:
    """Yield the share of points at both ends of the bracket of the convergence scale."""
    if len(table) < 3:
        yield Skipped("too few rows for a convergence scale")
        return
    try:
        found = convergence_scale(as_points(rows, metric), target=0.8)
    except NoConvergenceScale:
        yield Skipped("no convergence scale")
        return
    # The magnitude grows about its convergence scale, so its ends stand for those of the scale.
    shares = [
        float(oracles.magnitude(table, end)) / len(table)
        for end in (found.lower, found.value, found.upper)
    ]
    ends, middle = shares[::2], sorted(shares)[1]
    share = Estimate(middle, *ends, found.bounds, found.method)
    yield f"convergence scale {metric}", "dense", share, 0.8


def heat_cases(rows: np.ndarray, others: np.ndarray, generator: np.random.Generator) -> Found:
    """Traces and IMD by dense eigenvalues, on graphs of true neighbours."""
    traces, spectra = [], []
    for corpus in (rows, others):
        if len(corpus) < 4:
            yield Skipped("too few rows for a graph")
            return
        k = min(3, len(corpus) - 1)
        lists = exact_neighbours(as_points(corpus, "euclidean"), k).indices
        _check_neighbours(corpus, lists)
        graph = symmetrise(lists)
        trace = dense_heat_trace(normalised_laplacian(graph), TIMES)
        truths, spectrum = oracles.heat_trace(graph.toarray(), TIMES)
        traces.append(trace)
        spectra.append(spectrum)
        for place, truth in enumerate(truths):
            ends = (float(part[place]) for part in (trace.trace, trace.lower, trace.upper))
            yield f"heat trace at {TIMES[place]}", "dense", Estimate(*ends, "exact", "dense"), truth
    found = imd_of_traces(*traces, generator=generator)
    yield "imd", "dense", found.estimate, oracles.imd(*spectra)


def _check_neighbours(rows: np.ndarray, lists: np.ndarray) -> None:
    """Refuse a list with a row that is farther than one that is left out, beyond rounding."""
    squared = oracles.squared_distances(rows)
    for i, row in enumerate(squared):
        ascending = sorted(gap for j, gap in enumerate(row) if j != i)
        last = float(ascending[lists.shape[1] - 1])
        farthest = max(float(row[j]) for j in lists[i])
        assert farthest <= last * (1 + 1e-12), f"row {i} has a neighbour too far"


def geomca_cases(rows: np.ndarray, others: np.ndarray, generator: np.random.Generator) -> Found:
    """GeomCA of arrays, at an epsilon that is a distance of two rows, rounded."""
    both = np.concatenate([rows, others])
    table = oracles.squared_distances(both)
    gaps = sorted({gap for i, row in enumerate(table) for gap in row[:i] if gap > 0})
    if not gaps:
        yield Skipped("all rows are equal")
        return
    # A rounded distance of two rows, or the number above.
    epsilon = math.sqrt(float(generator.choice([float(gap) for gap in gaps])))
    epsilon = math.nextafter(epsilon, math.inf) if generator.random() < 0.3 else epsilon
    found = latentscale.geomca_scores(
        rows.astype(np.float32), others.astype(np.float32), epsilon=epsilon
    )
    exact_epsilon = oracles.fmpq(*epsilon.as_integer_ratio())
    truths = oracles.geomca_scores(table, len(rows), exact_epsilon**2)
    for name, truth in truths.items():
        yield f"geomca {name} at {epsilon!r}", "arrays", found.scores[name], truth


def baseline_cases(rows: np.ndarray, others: np.ndarray, generator: np.random.Generator) -> Found:
    """Moments, kernel distance and overlap of manifolds."""
    del generator
    n = len(rows)
    if n == 1:
        yield Skipped("a single row has no baselines")
        return
    moments = row_moments(rows)
    similarities = oracles.cosines(rows)
    total = sum((sum(row, oracles.arb(0)) for row in similarities), oracles.arb(0))
    truth = float((total - n) / (n * (n - 1)))
    yield "mean similarity", "moments", mean_similarity(moments), truth
    yield "IntDiv", "moments", internal_diversity(moments), float(1 - total / n**2)
    exact = oracles.rationals(rows)
    variances = []
    for column in zip(*exact, strict=True):
        mean = sum(column, oracles.fmpq(0)) / n
        variances.append(sum(((v - mean) ** 2 for v in column), oracles.fmpq(0)) / n)
    product = oracles.arb(math.prod(variances, start=oracles.fmpq(1)))
    deviation = float(product.root(2 * len(variances))) if all(variances) else 0.0
    yield "GMStds", "moments", geometric_mean_deviation(moments), deviation
    same = frechet_distance(moments, row_moments(rows[::-1]))
    yield "FID of a permutation", "moments", same, 0.0
    distance = frechet_distance(moments, row_moments(others))
    yield "FID", "moments", distance, oracles.frechet_distance(rows, others)
    kid = kernel_distance(rows, others)
    bracket = Estimate(
        kid.value, kid.value - kid.rounding, kid.value + kid.rounding, "exact", "pairs"
    )
    yield "KID", "pairs", bracket, float(_kernel_distance(exact, oracles.rationals(others)))
    k = min(3, n - 1, len(others) - 1)
    found = exact_overlap(as_points(rows, "euclidean"), as_points(others, "euclidean"), k)
    truths = _overlap(rows, others, k)
    for name, value in truths.items():
        own = getattr(found, name)
        reach = ROUNDING * own if name.startswith("clipped") else 0.0
        yield name, "pairs", Estimate(own, own - reach, own + reach, "exact", "pairs"), value


def _kernel_distance(x: list, y: list) -> oracles.fmpq:
    def mean(a: list, b: list, same: bool) -> oracles.fmpq:
        total = sum(
            (
                (sum((p * q for p, q in zip(r, s, strict=True)), oracles.fmpq(0)) / len(r) + 1) ** 3
                for i, r in enumerate(a)
                for j, s in enumerate(b)
                if not (same and i == j)
            ),
            oracles.fmpq(0),
        )
        return total / (len(a) * (len(b) - same))

    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


def _overlap(e: np.ndarray, r: np.ndarray, k: int) -> dict[str, float]:
    """Return all scores."""

    def radii(rows: np.ndarray) -> list:
        table = oracles.squared_distances(rows)
        return [
            sorted(g for j, g in enumerate(row) if j != i)[k - 1] for i, row in enumerate(table)
        ]

    between, balls_e, balls_r = oracles.squared_distances(e, r), radii(e), radii(r)
    in_r = np.array([[g <= balls_r[j] for j, g in enumerate(row)] for row in between])
    in_e = np.array([[g <= balls_e[i] for g in row] for i, row in enumerate(between)])
    median = sorted(balls_r)[(len(r) - 1) // 2]
    near = [min(ball, median) for ball in balls_r]
    typical, good = clipped_overlap(
        in_r,
        [[g <= near[j] for j, g in enumerate(row)] for row in between],
        [[g <= near[j] for j, g in enumerate(row)] for row in oracles.squared_distances(r)],
        k,
    )
    return {
        "precision": float(in_r.any(axis=1).mean()),
        "recall": float(in_e.any(axis=0).mean()),
        "density": float(in_r.sum() / (k * len(e))),
        "coverage": float(in_r.any(axis=0).mean()),
        "clipped_density": float(typical),
        "clipped_coverage": float(good),
    }


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], Found]] = {
    "vendi": vendi_cases,
    "magnitude": magnitude_cases,
    "heat": heat_cases,
    "geomca": geomca_cases,
    "baselines": baseline_cases,
}


def intervals_of(kind: str, seed: int) -> Iterator[Case]:
    """Yield 95 % intervals of one corpus of a few hundred rows, beside the dense answer."""
    generator = np.random.default_rng([list(NASTY).index(kind), seed, 1])
    rows = draw_corpus(kind, generator, 130, int(generator.integers(2, 7)))
    points = as_points(rows, "euclidean")
    bandwidth = _typical_distance(rows, generator)
    spectrum = kernel_spectrum(points, "rbf", bandwidth)
    found = kernel_scores(points, "rbf", bandwidth, (0.5, 1.0, 5.0), generator)
    for order, estimate in found.items():
        truth = vendi_score(spectrum, order)
        middle = min(max(truth.value, estimate.lower), estimate.upper)
        inside = truth.lower <= middle <= truth.upper
        name = f"vendi rbf {bandwidth} of order {order}"
        yield Case(kind, seed, name, "lanczos", estimate, middle if inside else truth.value)
    graph = symmetrise(exact_neighbours(points, 5).indices)
    for form in (normalised_laplacian, unnormalised_laplacian):
        laplacian, steps = form(graph), None if form is unnormalised_laplacian else 10
        dense = dense_heat_trace(laplacian, TIMES)
        trace = estimate_heat_trace(laplacian, TIMES, probes=16, steps=steps, generator=generator)
        for place, time in enumerate(TIMES):
            ends = (float(part[place]) for part in (trace.trace, trace.lower, trace.upper))
            estimate = Estimate(*ends, "interval95", "lanczos")
            name = f"heat trace of the {form.__name__} at {time}"
            yield Case(kind, seed, name, "lanczos", estimate, float(dense.trace[place]))
