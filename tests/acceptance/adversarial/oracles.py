"""The measures in a few hundred digits, from the stored values, by the papers' definitions.

Nothing here imports the package under test. Numbers are python-flint's: rationals where a
comparison decides, and balls with an error bound elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from flint import acb_mat, arb, arb_mat, ctx, fmpq

BITS = 1400
"""Binary digits: near-duplicates at the smallest float32 distances keep a few hundred."""

VANISHING = 1e-40
"""Multiple of the diameter below which a scale is close to 0."""

ctx.prec = BITS


def rationals(rows: np.ndarray) -> list[list[fmpq]]:
    """Return the stored values as they are."""
    return [[fmpq(*float(value).as_integer_ratio()) for value in row] for row in rows]


def squared_distances(rows: np.ndarray, others: np.ndarray | None = None) -> list[list[fmpq]]:
    """Return the squared Euclidean distances of all pairs, exactly."""
    a = rationals(rows)
    b = a if others is None else rationals(others)
    return [[sum(((p - q) ** 2 for p, q in zip(x, y, strict=True)), fmpq(0)) for y in b] for x in a]


def cosines(rows: np.ndarray) -> list[list[arb]]:
    """Return the cosine of every pair."""
    a = rationals(rows)
    lengths = [arb(sum((p * p for p in x), fmpq(0))).sqrt() for x in a]
    return [
        [
            arb(sum((p * q for p, q in zip(x, y, strict=True)), fmpq(0))) / (lx * ly)
            for y, ly in zip(a, lengths, strict=True)
        ]
        for x, lx in zip(a, lengths, strict=True)
    ]


def distances(rows: np.ndarray, metric: str) -> list[list[arb]]:
    """Return the distance of every pair under a metric."""
    if metric == "cosine":
        found = cosines(rows)
        return [[arb(0) if i == j else 1 - c for j, c in enumerate(r)] for i, r in enumerate(found)]
    if metric == "euclidean":
        return [[arb(s).sqrt() for s in row] for row in squared_distances(rows)]
    a = rationals(rows)
    return [
        [arb(sum((abs(p - q) for p, q in zip(x, y, strict=True)), fmpq(0))) for y in a] for x in a
    ]


def kernel_matrix(rows: np.ndarray, kernel: str, bandwidth: float | None) -> list[list[arb]]:
    """Return the similarity of every pair."""
    if kernel == "cosine":
        return cosines(rows)
    assert bandwidth is not None
    sigma = arb(fmpq(*float(bandwidth).as_integer_ratio()))
    if kernel == "rbf":
        squared = squared_distances(rows)
        return [[(-arb(s) / (2 * sigma**2)).exp() for s in row] for row in squared]
    return [[(-s / sigma).exp() for s in row] for row in distances(rows, "euclidean")]


def weighted(
    rows: np.ndarray, kernel: str, bandwidth: float | None, weights: list[fmpq]
) -> list[list[arb]]:
    """Return the similarities, each times the roots of the weights of both rows."""
    roots = [arb(weight).sqrt() for weight in weights]
    return [
        [p * s * q for q, s in zip(roots, row, strict=True)]
        for p, row in zip(roots, kernel_matrix(rows, kernel, bandwidth), strict=True)
    ]


def eigenvalues(matrix: list[list[arb]]) -> list[arb]:
    """Return the eigenvalues of a symmetric matrix, checked by the traces of its powers.

    The solver fails on some matrices with blocks or multiple eigenvalues. So the matrix is
    reflected about a vector without pattern first, and about another one if that wasn't enough.
    """
    whole = arb_mat(matrix)
    for attempt in range(8):
        vector = [arb(i + 2 + 31 * attempt).sqrt() - attempt for i in range(len(matrix))]
        found = _reflected_eigenvalues(whole, vector)
        if _have_traces(found, whole):
            return found
    raise ArithmeticError("the oracle's eigenvalues are wrong")


def _reflected_eigenvalues(whole: arb_mat, vector: list[arb]) -> list[arb]:
    twice = 2 / sum((v * v for v in vector), arb(0))
    mirror = arb_mat(
        [
            [(1 if i == j else 0) - twice * v * w for j, w in enumerate(vector)]
            for i, v in enumerate(vector)
        ]
    )
    return [v.real for v in acb_mat(mirror * whole * mirror).eig(algorithm="approx")]


def _have_traces(values: list[arb], whole: arb_mat) -> bool:
    power = whole
    for exponent in range(1, 5):
        trace = sum((power[i, i] for i in range(len(values))), arb(0))
        gap = abs(trace - sum((value**exponent for value in values), arb(0)))
        if not gap < arb(2) ** (-BITS // 2):
            return False
        power = power * whole
    return True


def vendi_score(spectrum: Sequence[arb], order: float) -> float:
    """Return the Hill number of eigenvalues of trace n, of an order."""
    spectrum = [value for value in spectrum if value > arb(2) ** (-BITS // 4)]  # not rounding
    total = sum(spectrum, arb(0))
    shares = [value / total for value in spectrum]
    if order == math.inf:
        return float(1 / max(shares, key=float))
    if order == 0:
        return float(len(shares))
    if order == 1:
        return float((-sum((p * p.log() for p in shares), arb(0))).exp())
    q = arb(fmpq(*float(order).as_integer_ratio()))
    return float(sum((p**q for p in shares), arb(0)) ** (1 / (1 - q)))


def magnitude(table: list[list[arb]], scale: float) -> arb:
    """Return the magnitude of distinct points at a scale.

    At 0 it is 1. Close to 0 it differs from 1 by no more than the order of scale times diameter
    (Meckes 2020), while the digits needed to see that grow with the number of points.
    """
    if scale * max(float(s) for row in table for s in row) < VANISHING:
        return arb(1)
    if scale == math.inf:
        return arb(len(table))
    t = arb(fmpq(*float(scale).as_integer_ratio()))
    matrix = arb_mat([[(-t * s).exp() for s in row] for row in table])
    try:
        weights = matrix.solve(arb_mat([[1]] * len(table)))
    except ZeroDivisionError:
        raise ArithmeticError("the oracle has too few digits") from None
    value = sum((weights[i, 0] for i in range(len(table))), arb(0))
    if not value.rad() < 1e-20 * value:
        raise ArithmeticError("the oracle has too few digits")
    return value


def trapezium(scales: Sequence[float], values: Sequence[arb]) -> arb:
    """Return the area under a function by the trapezium rule."""
    ends = [arb(fmpq(*float(scale).as_integer_ratio())) for scale in scales]
    return sum(
        ((ends[i + 1] - ends[i]) * (values[i] + values[i + 1]) / 2 for i in range(len(ends) - 1)),
        arb(0),
    )


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Return the squared Fréchet distance, from the eigenvalues of the covariances' product."""
    means, covariances = [], []
    for rows in (rationals(first), rationals(second)):
        n, d = len(rows), len(rows[0])
        mean = [sum((row[i] for row in rows), fmpq(0)) / n for i in range(d)]
        moved = [[value - m for value, m in zip(row, mean, strict=True)] for row in rows]
        means.append(mean)
        covariances.append(
            [
                [sum((row[i] * row[j] for row in moved), fmpq(0)) / (n - 1) for j in range(d)]
                for i in range(d)
            ]
        )
    a, b = covariances
    places = range(len(a))
    gap = sum(((p - q) ** 2 for p, q in zip(*means, strict=True)), fmpq(0))
    spreads = [sum((c[i][i] for i in places), fmpq(0)) for c in covariances]
    product = [[sum((a[i][k] * b[k][j] for k in places), fmpq(0)) for j in places] for i in places]
    size = sum((product[i][i] for i in places), fmpq(0))
    overlap = arb(0)
    if size:
        shares = eigenvalues([[arb(value / size) for value in row] for row in product])
        overlap = sum((share.sqrt() for share in shares if share > 0), arb(0)) * arb(size).sqrt()
    return float(arb(gap + spreads[0] + spreads[1]) - 2 * overlap)


def heat_trace(adjacency: np.ndarray, times: Sequence[float]) -> tuple[list[float], list[arb]]:
    """Return the heat trace per vertex of the normalised Laplacian, and its eigenvalues."""
    n, degrees = len(adjacency), adjacency.sum(axis=1).astype(int).tolist()
    laplacian = [
        [
            (arb(1) if i == j and degrees[i] else arb(0))
            - (1 / arb(degrees[i] * degrees[j]).sqrt() if adjacency[i, j] else arb(0))
            for j in range(n)
        ]
        for i in range(n)
    ]
    found = eigenvalues(laplacian)
    traces = [float(sum(((-v * arb(t)).exp() for v in found), arb(0)) / n) for t in times]
    return traces, found


def imd(first: Sequence[arb], second: Sequence[arb]) -> float:
    """Return the supremum of the weighted gap of two traces, from a grid and golden sections."""
    a, b = (np.array([np.longdouble(float(v)) for v in s]) for s in (first, second))

    def gap(times: np.ndarray) -> np.ndarray:
        ours, theirs = (np.exp(-np.multiply.outer(times, s)).mean(axis=-1) for s in (a, b))
        return np.exp(-2 * (times + 1 / times)) * np.abs(ours - theirs)

    grid = np.exp(np.linspace(-4, 4, 4001).astype(np.longdouble))
    values = gap(grid)
    best = values.max()
    for place in np.argsort(values)[-5:]:
        low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
        fine = np.linspace(low, high, 4001)
        best = max(best, gap(fine).max())
    return float(best)


def geomca_scores(
    squared: list[list[fmpq]], n_corpus: int, squared_epsilon: fmpq
) -> dict[str, float]:
    """Return GeomCA's scores with delta = epsilon, from squared distances of corpus and reference.

    The corpus comes first. Each side is thinned in its order (definition 3.1), kept rows nearer
    than epsilon are joined, and components with rows of both count (definitions 2.2 to 2.5).
    """
    sides = [list(range(n_corpus)), list(range(n_corpus, len(squared)))]
    kept: list[int] = []
    stands_for: dict[int, int] = {}
    for side in sides:
        own: list[int] = []
        for row in side:
            near = next((k for k in own if squared[row][k] <= squared_epsilon), None)
            if near is None:
                own.append(row)
            stands_for[row] = row if near is None else near
        kept += own
    component = {row: row for row in kept}
    edges = [
        (a, b) for i, a in enumerate(kept) for b in kept[:i] if squared[a][b] < squared_epsilon
    ]
    for a, b in edges:
        old, new = component[a], component[b]
        component = {row: new if name == old else name for row, name in component.items()}
    corpus = {row for row in kept if row < n_corpus}
    mixed = {component[a] for a, b in edges if (a in corpus) != (b in corpus)}

    def share(side: list[int], by_rows: bool) -> float:
        points = side if by_rows else [row for row in side if row in component]
        good = [row for row in points if component[stands_for[row]] in mixed]
        return len(good) / len(points)

    between = [edge for edge in edges if (edge[0] in corpus) != (edge[1] in corpus)]
    others = len(kept) - len(corpus)
    return {
        "precision": share(sides[0], False),
        "recall": share(sides[1], False),
        "consistency": 1 - abs(len(corpus) - others) / len(kept),
        "quality": len(between) / len(edges) if edges else 0.0,
        "precision_rows": share(sides[0], True),
        "recall_rows": share(sides[1], True),
    }
