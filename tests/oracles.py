"""Naive references for the measures, written from the papers.

Nothing here imports the package under test, and nothing is clever: dense algebra, double loops and
closed forms on small inputs.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import scipy.stats

# --- distances ------------------------------------------------------------------------------

# --- heat trace and IMD ---------------------------------------------------------------------


def sorted_distances(rows, metric):
    """Distances from every row to all others, one pair at a time: lists of (distance, row)."""
    table = []
    for i, x in enumerate(rows):
        pairs = []
        for j, y in enumerate(rows):
            if i == j:
                continue
            if metric == "euclidean":
                distance = math.sqrt(math.fsum((x - y) ** 2))
            elif metric == "cosine":
                x1, y1 = x / np.sqrt(x @ x), y / np.sqrt(y @ y)
                distance = 0.5 * math.fsum((x1 - y1) ** 2)
            else:
                distance = math.fsum(abs(x - y))
            pairs.append((distance, j))
        table.append(sorted(pairs))
    return table


def neighbours_lowest_row_first(integer_rows, k):
    """The k nearest other rows of integer vectors, ties to the lower row number."""
    rows = np.asarray(integer_rows, dtype=np.int64)
    norms = (rows**2).sum(axis=1)
    squared = norms[:, None] + norms - 2 * (rows @ rows.T)  # integers: exact
    np.fill_diagonal(squared, np.iinfo(np.int64).max)
    return np.argsort(squared, axis=1, kind="stable")[:, :k]


def adjacency_by_loops(neighbour_lists):
    """Dense binary adjacency of the OR-symmetrised neighbour graph."""
    n = len(neighbour_lists)
    adjacency = np.zeros((n, n))
    for i, row in enumerate(neighbour_lists):
        for j in row:
            if i != j:
                adjacency[i, j] = adjacency[j, i] = 1.0
    return adjacency


def laplacian_by_loops(adjacency):
    """Dense I - D^(-1/2) A D^(-1/2), with rows of zeros for isolated vertices."""
    n = len(adjacency)
    degrees = [sum(row) for row in adjacency]
    laplacian = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i == j and degrees[i] > 0:
                laplacian[i, j] = 1.0
            elif adjacency[i, j]:
                laplacian[i, j] = -adjacency[i, j] / math.sqrt(degrees[i] * degrees[j])
    return laplacian


def unnormalised_laplacian_by_loops(adjacency):
    """Dense D - A."""
    n = len(adjacency)
    laplacian = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            laplacian[i, i] += adjacency[i, j]
            laplacian[i, j] -= adjacency[i, j]
    return laplacian


def components_by_search(adjacency):
    """Number of connected components, by depth-first search."""
    unseen, count = set(range(len(adjacency))), 0
    while unseen:
        stack, count = [unseen.pop()], count + 1
        while stack:
            i = stack.pop()
            found = {j for j in unseen if adjacency[i, j]}
            unseen -= found
            stack += found
    return count


def dense_trace(laplacian, times):
    """tr exp(-tL) / n from the eigenvalues of a dense matrix."""
    eigenvalues = np.linalg.eigvalsh(laplacian)
    return np.array([math.fsum(np.exp(-t * eigenvalues)) / len(eigenvalues) for t in times])


def heat_trace(rows, k, times):
    """Return the trace per row of the graph of k neighbours, from its normalised Laplacian."""
    n = len(rows)
    _, near = scipy.spatial.KDTree(rows).query(rows, k + 1)
    adjacency = np.zeros((n, n))
    adjacency[np.arange(n)[:, None], near[:, 1:]] = 1.0
    adjacency = np.maximum(adjacency, adjacency.T)
    roots = np.sqrt(adjacency.sum(axis=1))
    spectrum = np.linalg.eigvalsh(np.eye(n) - adjacency / np.outer(roots, roots))
    return np.exp(-np.outer(times, spectrum)).mean(axis=1)


def ring_lattice_spectrum(n, reach):
    """Eigenvalues of the normalised Laplacian of n vertices joined to `reach` on either side."""
    return [
        1 - sum(math.cos(2 * math.pi * j * step / n) for step in range(1, reach + 1)) / reach
        for j in range(n)
    ]


def imd_of_spectra(first, second, digits=40):
    """sup_t exp(-2 (t + 1/t)) |h1 - h2| (Tsitsulin et al. 2020, eq. 2) and its time.

    Of traces per vertex, from eigenvalues: a fine grid, then a ternary search in many digits.
    """
    with mpmath.workdps(digits):
        spectra = [[mpmath.mpf(float(x)) for x in spectrum] for spectrum in (first, second)]

        def gap(t):
            traces = [mpmath.fsum(mpmath.exp(-t * x) for x in s) / len(s) for s in spectra]
            return mpmath.exp(-2 * (t + 1 / t)) * abs(traces[0] - traces[1])

        grid = np.geomspace(0.02, 50, 20001)
        traces = [np.exp(-np.outer(grid, spectrum)).mean(axis=1) for spectrum in (first, second)]
        peak = int((np.exp(-2 * (grid + 1 / grid)) * np.abs(traces[0] - traces[1])).argmax())
        low, high = (mpmath.mpf(float(grid[min(max(peak + i, 0), 20000)])) for i in (-1, 1))
        for _ in range(60):
            third = (high - low) / 3
            if gap(low + third) < gap(high - third):
                low += third
            else:
                high -= third
        return float(gap(low)), float(low)


def erdos_renyi_trace(times, n, degree):
    """Heat trace of n eigenvalues evenly spaced over 1 -+ 2 / sqrt(degree) (appendix C.4)."""
    ends = 1 - 2 / math.sqrt(degree), 1 + 2 / math.sqrt(degree)
    return [sum(math.exp(-t * x) for x in np.linspace(*ends, n)) for t in times]


# --- magnitude ------------------------------------------------------------------------------


def pairwise_distances(rows: np.ndarray, metric: str) -> np.ndarray:
    """All distances, one pair at a time, coordinate by coordinate."""
    n = len(rows)
    distances = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            x, y = rows[i], rows[j]
            if metric == "euclidean":
                distances[i, j] = np.sqrt(np.sum((x - y) ** 2))
            elif metric == "manhattan":
                distances[i, j] = np.sum(np.abs(x - y))
            else:
                u, v = x / np.sqrt(np.sum(x**2)), y / np.sqrt(np.sum(y**2))
                distances[i, j] = np.sum((u - v) ** 2) / 2.0
    return distances


def dense_magnitude(distances: np.ndarray, scale: float) -> tuple[float, np.ndarray, float]:
    """The sum of the inverse similarity matrix, its weights, and a bound on its rounding."""
    similarities = np.exp(-scale * distances)
    weights = np.linalg.solve(similarities, np.ones(len(similarities)))
    epsilon = np.finfo(float).eps * 10 * len(similarities)
    return float(weights.sum()), weights, float(epsilon * np.abs(weights).sum() ** 2)


def distance_in_extended_precision(x, y, metric):
    """One distance in extended precision; rows of unit length for the cosine metric."""
    differences = x.astype(np.longdouble) - y.astype(np.longdouble)
    if metric == "manhattan":
        return np.abs(differences).sum()
    squared = (differences * differences).sum()
    return np.sqrt(squared) if metric == "euclidean" else squared / 2


def similarities_by_loops(first, second, metric, scale):
    """exp(-t d) of all pairs of two sets of rows, in extended precision."""
    similarities = np.empty((len(first), len(second)), dtype=np.longdouble)
    for i, x in enumerate(first):
        for j, y in enumerate(second):
            distance = distance_in_extended_precision(x, y, metric)
            similarities[i, j] = np.exp(-np.longdouble(scale) * distance)
    return similarities


def gaussian_sums_by_loops(first, second, exponent, *, skip_own):
    """Sums over the second set of exp(-s d^2), for each row of the first, in extended precision."""
    sums = []
    for i, x in enumerate(first):
        total = np.longdouble(0)
        for j, y in enumerate(second):
            if not (skip_own and i == j):
                distance = distance_in_extended_precision(x, y, "euclidean")
                total += np.exp(-np.longdouble(exponent) * distance * distance)
        sums.append(total)
    return np.array(sums)


def extended_magnitude(rows: np.ndarray, metric: str, scale: float) -> tuple[float, float]:
    """Magnitude in extended precision by Gaussian elimination, and a bound on its rounding.

    Rows are taken as they are: under the cosine metric half their squared distance counts.
    """
    rows = rows.astype(np.longdouble)
    n = len(rows)
    matrix = np.empty((n, n), dtype=np.longdouble)
    for i in range(n):
        difference = rows - rows[i]
        if metric == "manhattan":
            distances = np.abs(difference).sum(axis=1)
        else:
            squared = (difference**2).sum(axis=1)
            distances = np.sqrt(squared) if metric == "euclidean" else squared / 2
        matrix[i] = np.exp(-np.longdouble(scale) * distances)
    augmented = np.concatenate((matrix, np.ones((n, 1), dtype=np.longdouble)), axis=1)
    for k in range(n):
        if not augmented[k, k] > 0:
            return float("nan"), float("inf")
        factors = augmented[k + 1 :, k] / augmented[k, k]
        augmented[k + 1 :, k:] -= factors[:, None] * augmented[k, k:]
    weights = np.zeros(n, dtype=np.longdouble)
    for k in range(n - 1, -1, -1):
        weights[k] = (augmented[k, n] - augmented[k, k + 1 : n] @ weights[k + 1 :]) / augmented[
            k, k
        ]
    epsilon = np.finfo(np.longdouble).eps * 30 * n
    return float(weights.sum()), float(epsilon * np.abs(weights).sum() ** 2)


def precise_cosine_magnitudes(rows: np.ndarray, scales: list[float]) -> list[Decimal]:
    """Magnitudes under the cosine distance of the rows as they are stored, in 200 digits."""
    with localcontext() as context:
        context.prec = 200
        vectors = [[Decimal(float(value)) for value in row] for row in rows]
        lengths = [sum(value * value for value in row).sqrt() for row in vectors]
        n = len(rows)
        cosines = [
            [
                sum(a * b for a, b in zip(vectors[i], vectors[j], strict=True))
                / (lengths[i] * lengths[j])
                for j in range(n)
            ]
            for i in range(n)
        ]
        magnitudes = []
        for scale in scales:
            # The squared norm of the solution of L y = 1, with the Cholesky factor L.
            factor, total = [], Decimal(0)
            solved: list[Decimal] = []
            for i in range(n):
                row: list[Decimal] = []
                for j in range(i + 1):
                    inner = sum(
                        a * b for a, b in zip(row, (factor[j] if j < i else row), strict=False)
                    )
                    distance = Decimal(0) if i == j else 1 - cosines[i][j]
                    rest = (-Decimal(scale) * distance).exp() - inner
                    row.append(rest.sqrt() if i == j else rest / factor[j][j])
                factor.append(row)
                known = sum(a * b for a, b in zip(row, solved, strict=False))
                solved.append((1 - known) / row[i])
                total += solved[i] ** 2
            magnitudes.append(total)
        return magnitudes


def two_point_magnitude(scale: float, distance: float) -> float:
    """Two points (Leinster 2013, example 2.1.1)."""
    return 2.0 / (1.0 + np.exp(-scale * distance))


def line_magnitude(positions: np.ndarray, scale: float) -> float:
    """Points on a line: 1 plus tanh of half of each gap (Leinster 2013, corollary 2.4.7)."""
    gaps = np.diff(np.sort(np.unique(positions)))
    return float(1.0 + np.tanh(scale * gaps / 2.0).sum())


def marginal_gain(similarities: np.ndarray, given: list[int], point: int) -> float:
    """What a point adds to the magnitude of others: the difference of two dense solutions."""

    def magnitude(members: list[int]) -> float:
        block = similarities[np.ix_(members, members)]
        return float(np.linalg.solve(block, np.ones(len(members))).sum()) if members else 0.0

    return magnitude([*given, point]) - magnitude(given)


def star_gain(leaves: int, to_centre: float, among: float) -> float:
    """Gain of a star's centre: equal similarities to its leaves, and equal ones among them.

    The leaves weigh the same, so the two systems of equations have one unknown each.
    """
    row = 1.0 + (leaves - 1) * among
    miss = 1.0 - leaves * to_centre / row
    return miss**2 / (1.0 - leaves * to_centre**2 / row)


def random_line_magnitude(points: int, scale: float) -> float:
    """Expected magnitude of uniform points on the unit interval: 1 plus tanh of half of each gap.

    A gap between n points has the density n (1 - x)^(n - 1); Simpson's rule where it matters.
    """
    x = np.linspace(0.0, min(1.0, 60.0 / points), 20_001)
    heights = np.tanh(scale * x / 2.0) * points * (1.0 - x) ** (points - 1)
    weights = np.where(np.arange(len(x)) % 2, 4.0, 2.0)
    weights[[0, -1]] = 1.0
    return 1.0 + (points - 1) * float(weights @ heights) * x[1] / 3.0


# --- Vendi ----------------------------------------------------------------------------------


def kernel_matrix(vectors, kernel, bandwidth=None):
    """K_ij = k(x_i, x_j), one row at a time, in extended precision."""
    rows = np.asarray(vectors, dtype=np.longdouble)
    if kernel == "cosine":
        lengths = np.sqrt(np.square(rows).sum(axis=1))
        lines = [
            (rows * x).sum(axis=1) / lengths / length
            for x, length in zip(rows, lengths, strict=True)
        ]
    elif kernel == "rbf":
        lines = [np.exp(-np.square(rows - x).sum(axis=1) / (2 * bandwidth**2)) for x in rows]
    else:
        lines = [np.exp(-np.sqrt(np.square(rows - x).sum(axis=1)) / bandwidth) for x in rows]
    return np.array(lines, dtype=np.float64)


def hill_number(proportions, order):
    """(sum p^q)^(1 / (1 - q)) over the positive proportions, with its limits at 1 and inf."""
    positive = [p for p in proportions if p > 0]
    if order == math.inf:
        return 1 / max(positive)
    if order == 1:
        return math.exp(-math.fsum(p * math.log(p) for p in positive))
    return math.fsum(p**order for p in positive) ** (1 / (1 - order))


def vendi_score(matrix, probabilities, order):
    """Vendi score of a kernel matrix; eigenvalues at the level of rounding count as zero."""
    roots = np.sqrt(probabilities)
    eigenvalues = np.linalg.eigvalsh(matrix * roots[:, None] * roots[None, :])
    tolerance = len(matrix) * np.finfo(float).eps * eigenvalues.max()
    return hill_number(eigenvalues[eigenvalues > tolerance], order)


# --- GeomCA ---------------------------------------------------------------------------------


def squared_distance(x, y):
    """Squared Euclidean distance, coordinate by coordinate in order."""
    total = 0.0
    for a, b in zip(x, y, strict=True):
        total += (float(a) - float(b)) ** 2
    return total


def greedy_sparsification(vectors, delta):
    """Kept rows and each row's earliest kept row within delta, by a plain pass in row order."""
    kept, representative = [], []
    for i, x in enumerate(vectors):
        near = [k for k in kept if squared_distance(x, vectors[k]) <= delta * delta]
        if not near:
            kept.append(i)
        representative.append(near[0] if near else i)
    return kept, representative


def epsilon_graph(reference, corpus, epsilon):
    """Components of the strict epsilon-graph on R then E, with their edges by type.

    A list of (vertices, RR edges, EE edges, RE edges), vertices being numbers into R followed by
    E; largest component first, then by first vertex.
    """
    points = [*reference, *corpus]
    n, n_reference = len(points), len(reference)
    edges = [
        (i, j)
        for i in range(n)
        for j in range(i + 1, n)
        if squared_distance(points[i], points[j]) < epsilon * epsilon
    ]
    neighbours = {i: set() for i in range(n)}
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    unseen, components = set(range(n)), []
    while unseen:
        component, frontier = set(), {min(unseen)}
        while frontier:
            component |= frontier
            frontier = set().union(*(neighbours[i] for i in frontier)) - component
        unseen -= component
        types = [(i >= n_reference) + (j >= n_reference) for i, j in edges if i in component]
        components.append((sorted(component), types.count(0), types.count(2), types.count(1)))
    return sorted(components, key=lambda c: (-len(c[0]), c[0][0]))


def geomca_scores(components, n_reference, eta_c, eta_q, counts):
    """Precision, recall, consistency, quality, then precision and recall weighted by counts."""

    def consistency(vertices):
        r = sum(v < n_reference for v in vertices)
        return 1 - Fraction(abs(2 * r - len(vertices)), len(vertices))

    def quality(rr, ee, re):
        return 1 - Fraction(rr + ee, rr + ee + re) if rr + ee + re else Fraction(0)

    good = set()
    for vertices, rr, ee, re in components:
        if consistency(vertices) > eta_c and quality(rr, ee, re) > eta_q:
            good |= set(vertices)

    def share(members, weight):
        return Fraction(
            sum(weight[v] for v in members if v in good), sum(weight[v] for v in members)
        )

    everything = sorted(v for vertices, *_ in components for v in vertices)
    reference = [v for v in everything if v < n_reference]
    corpus = [v for v in everything if v >= n_reference]
    ones = [1] * len(everything)
    totals = [sum(c[k] for c in components) for k in (1, 2, 3)]
    exact = (
        share(corpus, ones),
        share(reference, ones),
        consistency(everything),
        quality(*totals),
        share(corpus, counts),
        share(reference, counts),
    )
    return tuple(float(value) for value in exact)


# --- baselines ------------------------------------------------------------------------------


def frechet(x, y, square_root):
    """Squared Fréchet distance with the matrix square root, as its definition reads."""
    a, b = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    difference = x.mean(axis=0) - y.mean(axis=0)
    return float(difference @ difference + np.trace(a + b - 2 * square_root(a @ b).real))


def kernel_distance(x, y):
    """Unbiased squared discrepancy under the cubic kernel, all pairs written out."""

    def kernel(a, b):
        return (a @ b.T / x.shape[1] + 1) ** 3

    def without_diagonal(matrix):
        return (matrix.sum() - np.trace(matrix)) / (len(matrix) * (len(matrix) - 1))

    return float(
        without_diagonal(kernel(x, x)) + without_diagonal(kernel(y, y)) - 2 * kernel(x, y).mean()
    )


def gaussian_kernel_distance(dimension, shift):
    """Its expectation for unit normal laws that differ by a shift of every coordinate."""
    d, s2 = dimension, dimension * shift**2

    def moment(mu2, mean):
        # x.y for x ~ N(a, 1), y ~ N(b, 1): moments from its conditional normal law given y.
        # mean = a.b, mu2 = |a|^2 + |b|^2.
        second = mean**2 + mu2 + d
        third = mean**3 + 3 * mean * (mu2 + d) + 6 * mean
        return 1 + 3 * mean / d + 3 * second / d**2 + third / d**3

    return moment(2 * s2, s2) + moment(0.0, 0.0) - 2 * moment(s2, 0.0)


def manifold_overlap(e, r, k):
    """Precision, recall, density and coverage, clipped too, as their definitions read."""
    distances = np.linalg.norm(e[:, None] - r[None], axis=2)
    own_e = np.sort(np.linalg.norm(e[:, None] - e[None], axis=2), axis=1)[:, k]
    own_r = np.sort(np.linalg.norm(r[:, None] - r[None], axis=2), axis=1)[:, k]
    inside = distances <= own_r[None]
    near = np.minimum(own_r, np.sort(own_r)[(len(r) - 1) // 2])
    among = np.linalg.norm(r[:, None] - r[None], axis=2) <= near[None]
    return (
        np.mean([row.any() for row in inside]),
        np.mean([(distances[:, j] <= own_e).any() for j in range(len(r))]),
        inside.sum() / (k * len(e)),
        np.mean([inside[:, j].any() for j in range(len(r))]),
        *clipped_overlap(inside, distances <= near[None], among, k),
    )


def clipped_overlap(inside, near, among, k):
    """Clipped density and coverage from memberships in balls, in those of clipped radius, and those
    of the reference itself in these.
    """
    inside, near, among = (np.asarray(each, dtype=int) for each in (inside, near, among))
    (m, n), filling = inside.shape, np.mean(np.minimum(inside.sum(axis=0), k)) / k
    usual = np.mean(np.minimum(among.sum(axis=1) - 1, k))
    typical = np.mean(np.minimum(near.sum(axis=1), k))
    means = [
        np.minimum(np.arange(good + 1), k)
        @ scipy.stats.betabinom(good, k, n - k).pmf(np.arange(good + 1))
        / k
        for good in range(m + 1)
    ]
    return min(1.0, typical / usual), np.interp(filling, means, np.arange(m + 1)) / m
