"""Explain a large convergence scale by near-duplicate rows.

The magnitude counts two points as one until the scale resolves their distance. So the convergence
scale is about the inverse of the nearest-neighbour distance that all but a small share of the
points exceed. When many rows have a near copy, that is the distance of the copies: the scale is
correct by its definition, but says nothing about the other rows. To detect this, it is compared
with the nearest-neighbour distance of rows without a copy, estimated by the 90 % quantile over all
rows.
"""

from __future__ import annotations

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.linalg.iterations import ReadRows
from latentscale.neighbours.exact import nearest
from latentscale.tiles.distances import Points

SAMPLED_ROWS = 256
"""Rows whose nearest neighbours are searched."""

NEAR_DUPLICATE_PRODUCT = 300.0
"""Product of the scale and that distance above which near-duplicates determine the scale.

On evenly or randomly spread points of any dimension the product is about 3 to 100.
"""

UNCOPIED = 0.9
"""Quantile of the nearest-neighbour distances that represents rows without a copy."""


def explain_scale(
    scale: float, n: int, read_rows: ReadRows, generator: np.random.Generator
) -> str | None:
    """Explain a convergence scale far above what the typical distances suggest.

    Parameters
    ----------
    scale : float
        The convergence scale.
    n : int
        Number of distinct rows.
    read_rows : ReadRows
        Reads the rows.
    generator : numpy.random.Generator
        Draws the sample.

    Returns
    -------
    str or None
        A sentence with the figures, or None when the scale is an ordinary one.

    Notes
    -----
    Costs ``256 n`` distances, and memory for a block of rows and the sample.
    """
    chosen = np.sort(generator.choice(n, size=min(n, SAMPLED_ROWS), replace=False))
    distances = _nearest_distances(chosen, read_rows)
    usual = float(np.quantile(distances, UNCOPIED))
    if not scale * usual > NEAR_DUPLICATE_PRODUCT:
        return None
    close = float((distances * scale < NEAR_DUPLICATE_PRODUCT / 10).mean())
    within = NEAR_DUPLICATE_PRODUCT / 10 / scale
    return (
        f"about {close:.0%} of the distinct rows lie within {within:.1e} of another one, "
        f"others {usual:.1e} from their nearest; the near ones are told apart at large scales "
        "only, and the convergence scale is theirs; merge_within merges such rows"
    )


def _nearest_distances(
    chosen: np.ndarray[tuple[int], np.dtype[np.int64]], read_rows: ReadRows
) -> Float64Array:
    sample = _gather(chosen, read_rows)
    best = np.full(len(chosen), np.inf)
    start = 0
    for block in read_rows():
        ids = np.arange(start, start + len(block))
        found = nearest(sample, block, 1, query_ids=chosen, candidate_ids=ids)
        best = np.minimum(best, found.distances[:, 0])
        start += len(block)
    return best


def _gather(chosen: np.ndarray[tuple[int], np.dtype[np.int64]], read_rows: ReadRows) -> Points:
    rows, norms, start = [], [], 0
    last = None
    for block in read_rows():
        inside = chosen[(chosen >= start) & (chosen < start + len(block))] - start
        part = block.take(inside)
        rows.append(part.rows)
        norms.append(part.squared_norms)
        start += len(block)
        last = block
    if last is None:
        raise ValueError("there are no rows")
    return Points(np.concatenate(rows), np.concatenate(norms), last.metric, last.origin)
