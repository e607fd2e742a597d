"""Heat traces of graphs without structure (Tsitsulin et al. 2020, section 3.4, appendix C.4).

A heat trace is divided by one of them, and is plotted beside them. They are the paper's for the
normalised Laplacian. Under the unnormalised one, the complete graph has the eigenvalues 0 and n.
The random graph can't serve there: its eigenvalues grow with the degree, so its trace falls faster
than the weight of IMD.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from latentscale.array_types import Float64Array

Normalization = Literal["none", "empty", "complete", "er"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)

LaplacianKind = Literal["normalized", "unnormalized"]


LATEST = 2.0
"""Time up to which the eigenvalue 0 is at most 5 % of a complete graph's trace, of 150 vertices."""


def grows_with_vertices(
    kind: Normalization, time: float, laplacian: LaplacianKind = "normalized"
) -> bool:
    """Return whether a trace divided by its null model's still grows with the vertices.

    A trace per vertex doesn't depend on n. The trace of a complete graph is that of its eigenvalue
    0 alone at late times; under the unnormalised Laplacian its other eigenvalues are n.

    Parameters
    ----------
    kind : {"none", "empty", "complete", "er"}
        The null model.
    time : float
        Diffusion time, positive.
    laplacian : {"normalized", "unnormalized"}
        The Laplacian that the trace belongs to.
    """
    if kind == "complete" and laplacian == "normalized":
        return time > LATEST
    return kind in ("none", "complete")


def null_trace(
    kind: Normalization,
    times: Float64Array,
    n: int,
    mean_degree: float | None,
    laplacian: LaplacianKind = "normalized",
) -> Float64Array:
    """Return the null model's trace that the trace of n vertices is divided by.

    Parameters
    ----------
    kind : {"none", "empty", "complete", "er"}
        ``none``: 1; ``empty``: n, the trace of the graph without edges; ``complete``: that of the
        complete graph, with the eigenvalues 0 and n / (n - 1), unnormalised 0 and n; ``er``: that
        of an Erdős-Rényi graph, its n eigenvalues evenly spaced over 1 ± 2 / √(mean degree).
    times : ndarray of float64, shape (T,)
        Positive times.
    n : int
        Vertices.
    mean_degree : float or None
        Required for ``er``. The paper puts k in its place. With the mean degree of the graph, the
        random graph has as many edges. Below 4 it has negative eigenvalues.
    laplacian : {"normalized", "unnormalized"}
        The Laplacian that the trace belongs to.

    Returns
    -------
    ndarray of float64, shape (T,)

    Raises
    ------
    ValueError
        On ``er`` without a positive degree, or under the unnormalised Laplacian.
    """
    if kind == "none":
        return np.ones_like(times)
    if kind == "complete":
        eigenvalue = n if laplacian == "unnormalized" else n / max(n - 1, 1)
        return 1.0 + (n - 1) * np.exp(-times * eigenvalue)
    if kind == "er":
        if laplacian == "unnormalized":
            raise ValueError("the er normalization is for the normalised Laplacian only")
        if mean_degree is None or not mean_degree > 0:
            raise ValueError(
                f"the er normalization needs a positive mean degree, got {mean_degree}"
            )
        radius = 2.0 / np.sqrt(mean_degree)
        if n == 1:
            return np.exp(-times)
        # The eigenvalues are evenly spaced, so this is a geometric sum.
        spacing = times * 2.0 * radius / (n - 1)
        lowest: Float64Array = np.exp(-times * (1.0 - radius))
        count: Float64Array = np.expm1(-n * spacing) / np.expm1(-spacing)
        return lowest * count
    return np.full_like(times, float(n))
