"""Naive references for the measures, written from the papers.

Nothing here imports the package under test, and nothing is clever: dense algebra, double loops and
closed forms on small inputs.
"""

import math

import numpy as np

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


def ring_lattice_spectrum(n, reach):
    """Eigenvalues of the normalised Laplacian of n vertices joined to `reach` on either side."""
    return [
        1 - sum(math.cos(2 * math.pi * j * step / n) for step in range(1, reach + 1)) / reach
        for j in range(n)
    ]


def imd_of_traces(times, first, second):
    """sup_t exp(-2 (t + 1/t)) |h1 - h2| (Tsitsulin et al. 2020, eq. 2) and its time."""
    return max(
        (math.exp(-2 * (t + 1 / t)) * abs(a - b), t)
        for t, a, b in zip(times, first, second, strict=True)
    )


def erdos_renyi_trace(times, n, degree):
    """Heat trace of n eigenvalues evenly spaced over 1 -+ 2 / sqrt(degree) (appendix C.4)."""
    ends = 1 - 2 / math.sqrt(degree), 1 + 2 / math.sqrt(degree)
    return [sum(math.exp(-t * x) for x in np.linspace(*ends, n)) for t in times]


# --- magnitude ------------------------------------------------------------------------------

# --- Vendi ----------------------------------------------------------------------------------

# --- GeomCA ---------------------------------------------------------------------------------
