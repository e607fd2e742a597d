r"""Gauss and Gauss-Radau quadrature of quadratic forms by block Lanczos.

For a unit vector :math:`v` and a symmetric matrix :math:`L`, :math:`v^\top f(L) v` is the integral
of :math:`f` over a measure on the spectrum. :math:`m` Lanczos steps from :math:`v`
(:mod:`latentscale.linalg.lanczos`) give its Gauss rule: the nodes are the eigenvalues of the
tridiagonal matrix, the weights the squared first components of its eigenvectors. One more row that
puts a node at 0 gives the Gauss-Radau rule (Golub & Meurant 2010, chapter 6). Where the derivatives
of :math:`f` alternate in sign, as those of :math:`e^{-t\lambda}` do, the Gauss rule lies below the
integral and the Gauss-Radau rule above it.

Where the null space of :math:`L` is known, random vectors are first made orthogonal to it, because
its contribution is known without them (deflation; Gambhir, Stathopoulos & Orginos, SIAM J. Sci.
Comput. 39, 2017). The weights of a rule sum to the squared length that is left of the vector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its submodules are imported when they are first used

from latentscale.array_types import Float64Array, Int64Array
from latentscale.linalg.bounds import norm_bound
from latentscale.linalg.lanczos import Recurrence, column_dots, run_lanczos
from latentscale.linalg.null_space import NullSpace
from latentscale.linalg.random_vectors import Distribution, draw_vectors

if TYPE_CHECKING:
    from scipy.sparse import csr_array


BLOCK_BYTES = 3 << 27
WIDEST_BLOCK = 32
"""Largest number of vectors in a block; fewer where three such blocks exceed 384 MiB."""

BEYOND = 1.0e3
"""Multiple of the largest eigenvalue that was found beyond which there is none."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Rule:
    """Quadrature rules of several vectors.

    Attributes
    ----------
    nodes, weights : ndarray of float64, shape (vectors, number of nodes)
        Nodes within the spectrum's interval; weights that sum to the vectors' squared lengths.
    """

    nodes: Float64Array
    weights: Float64Array

    def __len__(self) -> int:
        return len(self.nodes)

    def weighted(self, lengths: Float64Array) -> Rule:
        """Return the rules for vectors of these squared lengths instead of 1."""
        return Rule(self.nodes, self.weights * lengths[:, None])

    def take(self, which: slice | Int64Array) -> Rule:
        """Return the rules of some of the vectors."""
        return Rule(self.nodes[which], self.weights[which])

    def sums(self, function: Callable[[Float64Array], Float64Array]) -> Float64Array:
        """Integrate a function for every vector."""
        return np.asarray((self.weights * function(self.nodes)).sum(axis=1))

    def integrate(self, values: Float64Array) -> Float64Array:
        """Integrate functions given by their values at the nodes, shape (vectors, nodes, T)."""
        return np.asarray(np.einsum("pj,pjt->pt", self.weights, values))


def quadrature_rules(
    laplacian: csr_array[Any, Any],
    count: int,
    steps: int,
    generator: np.random.Generator,
    null_space: NullSpace | None = None,
    distribution: Distribution = "rademacher",
    threads: int = 1,
    widest_block: int = WIDEST_BLOCK,
) -> Iterator[tuple[Rule, Rule]]:
    """Compute the Gauss rules and the Gauss-Radau rules (with a node at 0) of random vectors.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite, sorted indices.
    count : int
        Random vectors to start from.
    steps : int
        Lanczos steps, at least 1.
    generator : numpy.random.Generator
        Source of the vectors.
    null_space : NullSpace or None
        The known null space of the matrix, to which the random vectors are made orthogonal.
    distribution : {"rademacher", "gaussian"}
        Distribution of the random vectors' entries, times √n.
    threads : int
        Blocks that advance at the same time. The result doesn't depend on it.
    widest_block : int
        Largest number of vectors in a block. Only rounding depends on it.

    Yields
    ------
    tuple of Rule
        Gauss and Gauss-Radau rules of each block of vectors in turn.

    Notes
    -----
    Costs ``steps`` sparse products for each vector, in at most 384 MiB of blocks a thread.
    """
    n = laplacian.shape[0]
    smallest = np.sqrt(_EPSILON) * norm_bound(laplacian)
    widths = _block_widths(n, count, widest_block)
    blocks = (draw_vectors(distribution, n, width, generator) for width in widths)

    def advance(start: Float64Array) -> tuple[Rule, Rule]:
        return _rules_from(laplacian, start, steps, null_space, smallest)

    if threads == 1:
        yield from map(advance, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        # No block is drawn before a thread is free for it.
        under_way = deque(pool.submit(advance, start) for start in islice(blocks, threads))
        while under_way:
            yield under_way.popleft().result()
            under_way.extend(pool.submit(advance, start) for start in islice(blocks, 1))


def _rules_from(
    laplacian: csr_array[Any, Any],
    start: Float64Array,
    steps: int,
    null_space: NullSpace | None,
    smallest: float,
) -> tuple[Rule, Rule]:
    """Compute the rules of the columns of a block, which is overwritten."""
    if null_space is not None:
        null_space.project_out(start)
    squares = column_dots(start, start)
    # Of vectors that lie in the null space, only rounding is left.
    seen = squares > _EPSILON
    scale = np.where(seen, 1.0 / np.sqrt(np.where(seen, squares, 1.0)), 0.0)
    gauss, radau = rules_of(run_lanczos(laplacian, start, scale, steps, smallest))
    lengths = np.where(seen, squares, 0.0)
    return gauss.weighted(lengths), radau.weighted(lengths)


def seen_moments(
    laplacian: csr_array[Any, Any],
    count: int,
    generator: np.random.Generator,
    distribution: Distribution = "rademacher",
) -> Float64Array:
    """Estimate tr L³ / n and tr L⁴ / n by each of several random vectors: v'L³v and v'L⁴v.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric, sorted indices.
    count : int
        Random vectors.
    generator : numpy.random.Generator
        Source of the vectors.
    distribution : {"rademacher", "gaussian"}
        Distribution of their entries, times √n.

    Returns
    -------
    ndarray of float64, shape (count, 2)

    Notes
    -----
    Costs two sparse products for each vector.
    """
    n, found = laplacian.shape[0], [np.empty((0, 2))]
    for width in _block_widths(n, count):
        once = laplacian @ draw_vectors(distribution, n, width, generator)
        twice = laplacian @ once
        found.append(np.column_stack([column_dots(once, twice), column_dots(twice, twice)]))
    return np.concatenate(found)


def _block_widths(n: int, columns: int, widest_block: int = WIDEST_BLOCK) -> Iterator[int]:
    widest = min(max(BLOCK_BYTES // (3 * 8 * n), 1), widest_block)
    if widest > 8:
        widest -= widest % 8  # whole cache lines
    for start in range(0, columns, widest):
        yield min(widest, columns - start)


def rules_of(recurrence: Recurrence) -> tuple[Rule, Rule]:
    """Compute the rules of the tridiagonal matrices of a recurrence.

    Returns
    -------
    tuple of Rule
        The Gauss rules, and the Gauss-Radau rules with a node at 0. Weights sum to 1.
    """
    return gauss_rule(recurrence), radau_rule(recurrence)


def gauss_rule(recurrence: Recurrence) -> Rule:
    """Compute the Gauss rules of a recurrence's tridiagonal matrices."""
    return _rule(tridiagonal_matrices(recurrence))


def radau_rule(recurrence: Recurrence) -> Rule:
    """Compute the Gauss-Radau rules with a node at 0 of a recurrence's tridiagonal matrices."""
    diagonal, off_diagonal = recurrence.diagonal, recurrence.off_diagonal
    largest = np.abs(diagonal).max(axis=0) + 2.0 * off_diagonal.max(axis=0)
    smallest = np.maximum(_EPSILON * largest, np.finfo(np.float64).tiny)
    # One more row has the diagonal that makes 0 an eigenvalue: β² over the last pivot of the
    # tridiagonal's LDLᵀ factors (Golub & Meurant 2010, section 6.2.1).
    pivot, singular = diagonal[0], diagonal[0] <= smallest
    for step in range(1, len(diagonal)):
        pivot = diagonal[step] - np.square(off_diagonal[step - 1]) / np.maximum(pivot, smallest)
        singular |= pivot <= smallest
    extra = np.square(off_diagonal[-1]) / np.maximum(pivot, smallest)
    # No node lies beyond the spectrum. Where rounding puts one there, the tridiagonal matrix has
    # the node at 0 already, and needs no other row.
    singular |= extra > BEYOND * largest
    with_row = Recurrence(
        np.vstack([diagonal, np.where(singular, 0.0, extra)]),
        np.vstack([off_diagonal[:-1], np.where(singular, 0.0, off_diagonal[-1])]),
        recurrence.scale,
    )
    return _rule(tridiagonal_matrices(with_row))


def tridiagonal_matrices(recurrence: Recurrence) -> Float64Array:
    """Form the tridiagonal matrices of all columns, shape (c, steps, steps)."""
    diagonal, off_diagonal = recurrence.diagonal.T, recurrence.off_diagonal.T
    columns, size = diagonal.shape
    matrices = np.zeros((columns, size, size))
    place = np.arange(size)
    matrices[:, place, place] = diagonal
    matrices[:, place[1:], place[:-1]] = off_diagonal[:, : size - 1]
    matrices[:, place[:-1], place[1:]] = off_diagonal[:, : size - 1]
    return matrices


def _rule(matrices: Float64Array) -> Rule:
    try:
        nodes, vectors = np.linalg.eigh(matrices)
    except np.linalg.LinAlgError:
        # Divide and conquer fails on a few ordinary matrices. QR iteration is slower.
        solved = [scipy.linalg.eigh(matrix, driver="ev") for matrix in matrices]
        nodes, vectors = (np.stack(part) for part in zip(*solved, strict=True))
    return Rule(np.maximum(nodes, 0.0), np.square(vectors[:, 0, :]))
