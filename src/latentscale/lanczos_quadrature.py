r"""Gauss and Gauss-Radau quadrature of quadratic forms by block Lanczos.

For a unit vector :math:`v` and a symmetric matrix :math:`L`, :math:`v^\top f(L) v` is the integral
of :math:`f` over a measure on the spectrum. :math:`m` Lanczos steps from :math:`v` give its Gauss
rule: nodes are the eigenvalues of the tridiagonal matrix, weights the squared first components of
its eigenvectors; one more row with a node put at 0 gives the Gauss-Radau rule (Golub & Meurant
2010, chapter 6). Where the derivatives of :math:`f` alternate in sign, as those of
:math:`e^{-t\lambda}` do, the first lies below the integral and the second above it.

Where the kernel of :math:`L` is known, random vectors are made orthogonal to it first: what they
would see of it is known without them (deflation; Gambhir, Stathopoulos & Orginos, SIAM J. Sci.
Comput. 39, 2017). The weights of a rule sum to what is left of the vector's squared length.

All vectors of a block advance together, one sparse product a step. Each new vector is made
orthogonal to the last two only, again where little of it is left: what is lost beyond shows as
repeated nodes, whose weights share what is due to one. Large blocks don't fit the caches, so a step
is as fast as memory gives: vectors are scaled to unit length where they are read, and a step reads
or writes a block six times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, get_args

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from latentscale.graph import Kernel

Float64Array = NDArray[np.float64]

Distribution = Literal["rademacher", "gaussian"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
"""What the entries of random vectors are: signs, or standard normal."""

BLOCK_BYTES = 3 << 27
WIDEST_BLOCK = 32
"""Vectors advance in blocks of at most 32, fewer where three such blocks exceed 384 MiB."""

SUMMED_ROWS = 1024
"""Rows summed by themselves before they join a total, which keeps rounding from growing with n."""

LITTLE_LEFT = 0.01
"""Share of a product's squared length; where less is left of it, it is made orthogonal again."""

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


def quadrature_rules(
    laplacian: csr_array[Any, Any],
    count: int,
    steps: int,
    generator: np.random.Generator,
    kernel: Kernel | None = None,
    distribution: Distribution = "rademacher",
    threads: int = 1,
) -> Iterator[tuple[Rule, Rule]]:
    """Find the Gauss rules and the Gauss-Radau rules, with a node at 0, of random vectors.

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
    kernel : Kernel or None
        Vectors of the matrix' kernel that the random ones are made orthogonal to.
    distribution : {"rademacher", "gaussian"}
        Of the entries of the random vectors, over √n.
    threads : int
        Blocks that advance at the same time; what they give doesn't depend on it.

    Yields
    ------
    tuple of Rule
        Gauss, Gauss-Radau: of one block of vectors after the other.

    Notes
    -----
    Costs ``steps`` sparse products for each vector, in at most 384 MiB of blocks a thread.
    """
    n = laplacian.shape[0]
    smallest = np.sqrt(_EPSILON) * norm_bound(laplacian)
    blocks = (_DRAWS[distribution](n, width, generator) for width in _block_widths(n, count))

    def advance(start: Float64Array) -> tuple[Rule, Rule]:
        return _rules_from(laplacian, start, steps, kernel, smallest)

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
    kernel: Kernel | None,
    smallest: float,
) -> tuple[Rule, Rule]:
    """Find the rules of the columns of a block, which is overwritten."""
    if kernel is not None:
        take_off(start, kernel.labels, kernel.vector, kernel.components)
    squares = _column_dots(start, start)
    # Rounding is all that is left of vectors that lie in the kernel.
    seen = squares > _EPSILON
    scale = np.where(seen, 1.0 / np.sqrt(np.where(seen, squares, 1.0)), 0.0)
    gauss, radau = rules_of(*_lanczos(laplacian, start, scale, steps, smallest))
    lengths = np.where(seen, squares, 0.0)[:, None]
    return Rule(gauss.nodes, gauss.weights * lengths), Rule(radau.nodes, radau.weights * lengths)


def seen_moments(
    laplacian: csr_array[Any, Any],
    count: int,
    generator: np.random.Generator,
    distribution: Distribution = "rademacher",
) -> Float64Array:
    """Estimate tr L³ / n and tr L⁴ / n by each of some random vectors: v'L³v and v'L⁴v.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric, sorted indices.
    count : int
        Random vectors.
    generator : numpy.random.Generator
        Their source.
    distribution : {"rademacher", "gaussian"}
        Of their entries, over √n.

    Returns
    -------
    ndarray of float64, shape (count, 2)

    Notes
    -----
    Costs two sparse products for each vector.
    """
    n, found = laplacian.shape[0], [np.empty((0, 2))]
    for width in _block_widths(n, count):
        once = laplacian @ _DRAWS[distribution](n, width, generator)
        twice = laplacian @ once
        found.append(np.column_stack([_column_dots(once, twice), _column_dots(twice, twice)]))
    return np.concatenate(found)


def _random_signs(n: int, width: int, generator: np.random.Generator) -> Float64Array:
    """Columns of ±1 / √n; each takes the same draws whatever the width of its block."""
    octets = np.empty((width, -(-n // 8)), dtype=np.uint8)
    for column in octets:
        column[:] = np.frombuffer(generator.bytes(len(column)), dtype=np.uint8)
    signs = np.empty((n, width))
    _spread_signs(octets, 1.0 / np.sqrt(n), signs)
    return signs


def _random_normals(n: int, width: int, generator: np.random.Generator) -> Float64Array:
    """Columns of standard normal entries over √n, drawn one after the other."""
    normals = np.empty((n, width))
    for column in range(width):
        normals[:, column] = generator.standard_normal(n)
    normals /= np.sqrt(n)
    return normals


_DRAWS: dict[Distribution, Callable[[int, int, np.random.Generator], Float64Array]] = {
    "rademacher": _random_signs,
    "gaussian": _random_normals,
}


def _block_widths(n: int, columns: int) -> Iterator[int]:
    widest = min(max(BLOCK_BYTES // (3 * 8 * n), 1), WIDEST_BLOCK)
    if widest > 8:
        widest -= widest % 8  # whole cache lines
    for start in range(0, columns, widest):
        yield min(widest, columns - start)


def rules_of(diagonal: Float64Array, off_diagonal: Float64Array) -> tuple[Rule, Rule]:
    """Find the rules that belong to tridiagonal matrices.

    Parameters
    ----------
    diagonal : ndarray of float64, shape (vectors, steps)
        Their diagonals.
    off_diagonal : ndarray of float64, shape (vectors, steps)
        What is beside them; the last of each leads out of the matrix.

    Returns
    -------
    tuple of Rule
        Gauss; Gauss-Radau with a node at 0.
    """
    steps = diagonal.shape[1]
    gauss = _quadrature(diagonal, off_diagonal[:, :-1])
    # The Radau matrix has one more row whose diagonal makes 0 an eigenvalue: β² over the last
    # pivot of the tridiagonal's LDLᵀ factors (Golub & Meurant 2010, section 6.2.1).
    pivot = diagonal[:, 0].copy()
    for step in range(1, steps):
        pivot = diagonal[:, step] - np.square(off_diagonal[:, step - 1]) / _above_zero(pivot)
    # Columns that broke down have a last β of 0: the extra node is cut off and changes nothing.
    extra = np.square(off_diagonal[:, -1]) / _above_zero(pivot)
    radau = _quadrature(np.column_stack([diagonal, extra]), off_diagonal)
    return gauss, radau


def _above_zero(pivot: Float64Array) -> Float64Array:
    return np.maximum(pivot, _EPSILON)


def _quadrature(diagonal: Float64Array, off_diagonal: Float64Array) -> Rule:
    size = diagonal.shape[1]
    matrices = np.zeros((len(diagonal), size, size))
    place = np.arange(size)
    matrices[:, place, place] = diagonal
    matrices[:, place[1:], place[:-1]] = off_diagonal
    nodes, vectors = np.linalg.eigh(matrices)
    return Rule(np.maximum(nodes, 0.0), np.square(vectors[:, 0, :]))


def _lanczos(
    laplacian: csr_array[Any, Any],
    start: Float64Array,
    scale: Float64Array,
    steps: int,
    smallest: float,
) -> tuple[Float64Array, Float64Array]:
    """Tridiagonal matrices of independent Lanczos runs, one for each column of ``start * scale``.

    Returns the diagonals (probes, steps) and off-diagonals (probes, steps), the last of which
    leads out of the matrix. A run that meets an invariant subspace, and has vectors shorter than
    ``smallest``, continues with zeros. ``start`` is overwritten.
    """
    width = start.shape[1]
    diagonal = np.zeros((steps, width))
    off_diagonal = np.zeros((steps, width))
    previous, current, product = np.zeros_like(start), start, np.empty_like(start)
    previous_scale = np.zeros(width)
    coupling = np.zeros(width)
    for step in range(steps):
        share = scale * _multiply(
            laplacian.indptr,
            laplacian.indices,
            laplacian.data,
            current,
            scale,
            previous,
            coupling * previous_scale,
            product,
        )
        square, rest = _take_share(product, current, share * scale)
        if (square < LITTLE_LEFT * (np.square(share) + np.square(coupling))).any():
            # Twice is enough: the second time takes off what rounding left of the last two.
            first, second = rest * scale, _column_dots(product, previous) * previous_scale
            _take_shares(product, current, first * scale, previous, second * previous_scale)
            share += first
            square = _column_dots(product, product)
        length = np.sqrt(square)
        going = length > smallest
        coupling = np.where(going, length, 0.0)
        diagonal[step], off_diagonal[step] = share, coupling
        previous_scale, scale = scale, np.where(going, 1.0 / np.where(going, length, 1.0), 0.0)
        previous, current, product = current, product, previous
    return diagonal.T, off_diagonal.T


def norm_bound(laplacian: csr_array[Any, Any]) -> float:
    """Bound the largest eigenvalue by Gershgorin's theorem; 1 for a matrix of zeros.

    Parameters
    ----------
    laplacian : csr_array, shape (n, n)
        A symmetric matrix.

    Returns
    -------
    float
        The largest sum of a row's absolute values.
    """
    return _largest_row_sum(laplacian.indptr, laplacian.data) or 1.0


@numba.njit(cache=True, nogil=True)
def _largest_row_sum(indptr: NDArray[Any], data: Float64Array) -> float:
    largest = 0.0
    for i in range(len(indptr) - 1):
        total = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            total += abs(data[entry])
        largest = max(largest, total)
    return largest


@numba.njit(cache=True, nogil=True)
def take_off(
    columns: Float64Array,
    labels: NDArray[np.int32],
    vector: Float64Array,
    components: int,
) -> None:
    """Make columns orthogonal to the vectors of a :class:`~latentscale.graph.Kernel`."""
    n, width = columns.shape
    shares = np.zeros((components, width))
    for i in range(n):
        for c in range(width):
            shares[labels[i], c] += vector[i] * columns[i, c]
    for i in range(n):
        for c in range(width):
            columns[i, c] -= vector[i] * shares[labels[i], c]


@numba.njit(cache=True, nogil=True)
def _spread_signs(octets: NDArray[np.uint8], unit: float, signs: Float64Array) -> None:
    """Turn the bits of every column, the highest of an octet first, into signs of a size."""
    n, width = signs.shape
    for i in range(n):
        place, shift = i >> 3, 7 - (i & 7)
        for c in range(width):
            signs[i, c] = unit * (2.0 * ((octets[c, place] >> shift) & 1) - 1.0)


@numba.njit(cache=True, nogil=True)
def _multiply(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: Float64Array,
    current: Float64Array,
    scale: Float64Array,
    previous: Float64Array,
    coupling: Float64Array,
    product: Float64Array,
) -> Float64Array:
    """Set product = L current scale - previous coupling; return its dot products with current."""
    n, width = current.shape
    shares = np.zeros(width)
    partial = np.zeros(width)
    row = np.empty(width)
    for i in range(n):
        for c in range(width):
            row[c] = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            j, factor = indices[entry], data[entry]
            for c in range(width):
                row[c] += factor * current[j, c]
        for c in range(width):
            value = row[c] * scale[c] - previous[i, c] * coupling[c]
            product[i, c] = value
            partial[c] += current[i, c] * value
        if i % SUMMED_ROWS == 0 or i == n - 1:
            shares += partial
            partial[:] = 0.0
    return shares


@numba.njit(cache=True, nogil=True)
def _take_share(
    target: Float64Array, first: Float64Array, share: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Take off shares of a block; return squared lengths, and dot products with the block."""
    n, width = target.shape
    squares, rests = np.zeros(width), np.zeros(width)
    partial, partial_rest = np.zeros(width), np.zeros(width)
    for i in range(n):
        for c in range(width):
            left = target[i, c] - share[c] * first[i, c]
            target[i, c] = left
            partial[c] += left * left
            partial_rest[c] += left * first[i, c]
        if i % SUMMED_ROWS == 0 or i == n - 1:
            squares += partial
            rests += partial_rest
            partial[:] = 0.0
            partial_rest[:] = 0.0
    return squares, rests


@numba.njit(cache=True, nogil=True)
def _take_shares(
    target: Float64Array,
    first: Float64Array,
    first_share: Float64Array,
    second: Float64Array,
    second_share: Float64Array,
) -> None:
    """Take off shares of two blocks."""
    n, width = target.shape
    for i in range(n):
        for c in range(width):
            target[i, c] -= first_share[c] * first[i, c] + second_share[c] * second[i, c]


@numba.njit(cache=True, nogil=True)
def _column_dots(a: Float64Array, b: Float64Array) -> Float64Array:
    n, width = a.shape
    totals, partial = np.zeros(width), np.zeros(width)
    for i in range(n):
        for c in range(width):
            partial[c] += a[i, c] * b[i, c]
        if i % SUMMED_ROWS == 0 or i == n - 1:
            totals += partial
            partial[:] = 0.0
    return totals
