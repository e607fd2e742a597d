"""The functions that measure arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from latentscale.array_types import Int64Array
from latentscale.estimate import Estimate
from latentscale_pipeline.api.computation import Computed, compute
from latentscale_pipeline.api.findings import (
    DiverseRows,
    GeomcaFindings,
    HeatTraceFindings,
    ImdFindings,
    MagnitudeFindings,
    MmdFindings,
    VendiFindings,
)
from latentscale_pipeline.config.job import Budget
from latentscale_pipeline.corpus.diversity import Metric, choose_unlike
from latentscale_pipeline.corpus.in_memory import hold_rows
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.machine import memory_bytes
from latentscale_pipeline.measures.base import Role

ORDERS = (0.1, 0.5, 1.0, 2.0, float("inf"))
"""Default orders of the Vendi score."""

BUDGET = Budget().pairs
"""Default budget of pairs of rows."""


def vendi_score(
    rows: ArrayLike,
    *,
    kernel: str = "cosine",
    bandwidth: float | str | None = None,
    orders: float | Sequence[float] = ORDERS,
    weights: ArrayLike | None = None,
    method: str = "auto",
    budget: float = BUDGET,
    seed: int = 0,
) -> VendiFindings:
    """Compute Vendi scores: the effective number of dissimilar rows.

    Order 1 is defined by Friedman & Dieng (2023), the others by Pasarkar & Dieng (2024). Small
    orders give rare rows the same weight as common ones; large orders count only common ones.

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite; stored as float16 if they are, else as float32. The cosine kernel takes no zero row.
    kernel : {"cosine", "rbf", "laplacian"}
        Similarity of two rows.
    bandwidth : float or "median", optional
        Bandwidth σ of ``rbf``, exp(-d²/2σ²), or ``laplacian``, exp(-d/σ), in units of the
        Euclidean distance; by default the median distance of random pairs.
    orders : float or sequence of float
        Orders from 0 to infinity.
    weights : array_like, shape (n,), optional
        Weights of the rows, proportional to their probabilities.
    method : {"auto", "exact", "lanczos", "nystrom", "fourier", "subsample"}
        Method for kernels other than cosine.
    budget : float
        Maximum number of pairs of rows to evaluate.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    VendiFindings
        ``found[1]`` is the score of order 1 with its bracket.

    Raises
    ------
    ValueError
        If the rows or options are invalid; the message is one line.

    Notes
    -----
    The cosine kernel costs n d² operations for any number of rows. Other kernels evaluate all pairs
    of rows; if these exceed the budget, a subsample is extrapolated.
    """
    if bandwidth is not None and np.ndim(bandwidth):
        raise ValueError("bandwidth must be a number or 'median'; call once for each of several")
    own = {"name": kernel} if bandwidth is None else {"name": kernel, "bandwidth": bandwidth}
    single = np.isscalar(orders) or getattr(orders, "ndim", 1) == 0
    listed = [
        "inf" if order == float("inf") else order
        for order in _numbers([orders] if single else orders, "orders")
    ]
    section = {"kernels": [own], "orders": listed, "method": method}
    found = compute("vendi", section, rows, weights=weights, budget=budget, seed=seed)
    entries = found.section.corpus
    return VendiFindings(
        kernel=entries[0].kernel,
        bandwidth=entries[0].bandwidth,
        rows=entries[0].n,
        scores={entry.order: _estimate(entry) for entry in entries},
    )


def magnitude_function(
    rows: ArrayLike,
    *,
    metric: str = "euclidean",
    scales: int | Sequence[float] = 20,
    target: float = 0.95,
    method: str = "auto",
    tolerance: float = 1e-3,
    budget: float = BUDGET,
    seed: int = 0,
) -> MagnitudeFindings:
    """Compute the magnitude at every scale: the effective number of distinct points.

    Limbeck et al. (2024), definitions 3.1 to 3.6. Equal rows count once; under the cosine metric
    so do rows whose directions are equal but for roundings (a distance of 1e-14).

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite; stored as float16 if they are, else as float32.
    metric : {"euclidean", "cosine", "manhattan"}
        Distance of two rows; cosine is one minus the similarity.
    scales : int or sequence of float
        Number of scales from 0 to the convergence scale, or ascending scales in 1/distance.
    target : float
        Share of the number of distinct rows that the magnitude reaches at the convergence scale.
    method : {"auto", "cholesky", "cg", "subsample", "nystrom"}
        ``auto`` chooses by the number of rows; ``nystrom`` is ``subsample`` with an estimate from
        landmarks beside it.
    tolerance : float
        Relative width of a bracket at which iterations stop.
    budget : float
        Maximum number of pairs of rows to evaluate.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    MagnitudeFindings

    Raises
    ------
    ValueError
        If the rows or options are invalid; the message is one line.

    Notes
    -----
    Above 1200 rows it costs about ten passes over all pairs of rows; below, n³/3 operations per
    scale.
    """
    listed: int | list[float]
    if isinstance(scales, int | np.integer):
        listed = int(scales)
    elif isinstance(scales, float):
        raise ValueError(f"scales must be a whole number of scales, or a list such as [{scales}]")
    else:
        listed = _numbers(scales, "scales")
    section = {
        "metric": metric,
        "scales": listed,
        "target": target,
        "method": method,
        "tolerance": tolerance,
    }
    found = compute("magnitude", section, rows, budget=budget, seed=seed)
    function = found.section.corpus
    scale = found.score("convergence_scale")
    weights = "magnitude/corpus/weights"
    return MagnitudeFindings(
        scales=np.array(function.scales),
        estimates=tuple(
            map(
                Estimate,
                function.value,
                function.lower,
                function.upper,
                function.bounds,
                function.method,
            )
        ),
        rows=function.n,
        points=function.points,
        convergence_scale=None if scale.value is None and function.scales else _estimate(scale),
        area=_estimate(found.score("area")),
        trapezium_error=function.area_trapezium_error,
        weights=found.array(weights) if weights in found.findings.arrays else None,
    )


def heat_trace(
    rows: ArrayLike,
    *,
    k: int = 5,
    metric: str = "euclidean",
    neighbours: str = "auto",
    times: tuple[float, float, int] = (0.1, 10.0, 256),
    normalization: str = "empty",
    laplacian: str = "normalized",
    probes: int | str = "auto",
    steps: int | str = 10,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> HeatTraceFindings:
    """Compute the heat trace of the k-nearest-neighbour graph at a range of diffusion times.

    Tsitsulin et al. (2020), section 3.

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite; stored as float16 if they are, else as float32.
    k : int
        Number of neighbours of a row.
    metric : {"euclidean", "cosine", "manhattan"}
        Distance of two rows.
    neighbours : {"auto", "exact", "cells", "nndescent"}
        Search for neighbours; ``auto`` is exact up to 50 000 rows.
    times : tuple of float, float and int
        First and last diffusion time, and the number of times, spaced evenly in the logarithm.
    normalization : {"empty", "none", "complete", "er"}
        Null model that the trace is divided by; ``empty`` is the number of rows.
    laplacian : {"normalized", "unnormalized"}
        The graph Laplacian to use.
    probes, steps : int or "auto"
        Number of random probes, and of Lanczos steps per probe; the paper uses 100 and 10.
    tolerance : float
        Relative standard error at which ``probes="auto"`` stops.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    HeatTraceFindings

    Raises
    ------
    ValueError
        If the rows or options are invalid; the message is one line.

    Notes
    -----
    Up to 50 000 rows neighbours are exact and cost n² d operations. Above, they come from an
    approximate search in cells whose recall is certified.
    """
    section = _heat_section(
        times,
        k=k,
        metric=metric,
        neighbours=neighbours,
        normalization=normalization,
        laplacian=laplacian,
        probes=probes,
        steps=steps,
        tolerance=tolerance,
    )
    found = compute("heat", section, rows, seed=seed).section.corpus
    return HeatTraceFindings(
        times=np.array(found.times),
        trace=np.array(found.trace),
        lower=np.array(found.lower),
        upper=np.array(found.upper),
        bounds=found.bounds,
        normalization=found.normalization,
        probes=found.probes,
        steps=found.steps,
        graph=found.graph.document(),
    )


def imd(
    corpus: ArrayLike,
    reference: ArrayLike,
    *,
    k: int = 5,
    metric: str = "euclidean",
    neighbours: str = "auto",
    times: tuple[float, float, int] = (0.1, 10.0, 256),
    normalization: str = "empty",
    laplacian: str = "normalized",
    probes: int | str = "auto",
    steps: int | str = 10,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> ImdFindings:
    """Compute the intrinsic multi-scale distance of two sets of rows of any sizes and dimensions.

    Tsitsulin et al. (2020), eq. 2, in units of the normalisation.

    Parameters
    ----------
    corpus, reference : array_like, shape (n, d) and (m, e)
        The two sets of rows.
    k, metric, neighbours, times, normalization, laplacian, probes, steps, tolerance, seed
        As for :func:`heat_trace`, which also describes the errors and the cost.

    Returns
    -------
    ImdFindings
    """
    section = _heat_section(
        times,
        k=k,
        metric=metric,
        neighbours=neighbours,
        normalization=normalization,
        laplacian=laplacian,
        probes=probes,
        steps=steps,
        tolerance=tolerance,
    )
    if reference is None:
        raise ValueError("imd compares with a reference; give one")
    found = compute("heat", section, corpus, reference, seed=seed)
    return ImdFindings(
        distance=_estimate(found.score("imd")),
        time=found.section.imd.time,
        normalization=normalization,
        unnormalized=_estimate(found.section.imd.unnormalized),
    )


def geomca_scores(
    corpus: ArrayLike,
    reference: ArrayLike,
    *,
    percentile: float = 10.0,
    epsilon: float | None = None,
    delta: float = 1.0,
    eta_c: float = 0.0,
    eta_q: float = 0.0,
    budget: float = BUDGET,
    seed: int = 0,
) -> GeomcaFindings:
    """Compute GeomCA scores: which regions of each set the other one covers.

    Poklukar et al. (2021).

    Parameters
    ----------
    corpus, reference : array_like, shape (n, d) and (m, d)
        The set E under evaluation and the reference R, of equal dimension.
    percentile : float
        Percentile of the distances within the reference that epsilon is set to.
    epsilon : float, optional
        Distance below which two rows are joined; replaces the percentile.
    delta : float
        Distance of the thinning, in units of epsilon.
    eta_c, eta_q : float
        Consistency and quality that a component must exceed to count for precision and recall.
    budget : float
        Maximum number of pairs of rows to evaluate.
    seed : int
        Seed of the sample that epsilon is estimated from.

    Returns
    -------
    GeomcaFindings

    Raises
    ------
    ValueError
        If the rows or options are invalid; the message is one line.

    Notes
    -----
    Rows are thinned in their order, so the scores depend on the order.
    """
    section = {
        "percentile": percentile,
        "epsilon": epsilon,
        "delta": delta,
        "eta_c": eta_c,
        "eta_q": eta_q,
    }
    found = compute("geomca", section, corpus, reference, budget=budget, seed=seed)
    names = ("precision", "recall", "consistency", "quality", "precision_rows", "recall_rows")
    return GeomcaFindings(
        epsilon=found.section.epsilon,
        delta=found.section.delta,
        scores={name: _estimate(found.score(name)) for name in names},
        sizes=found.section.sizes.document(),
        components=tuple(component.document() for component in found.section.components),
        component_count=found.section.component_count,
        membership=_membership(found, "corpus", np.shape(corpus)[0]),
        reference_membership=_membership(found, "reference", np.shape(reference)[0]),
    )


def _membership(found: Computed, role: Role, n: int) -> Int64Array:
    """Return the component of every row; -1 for those that weren't among the rows drawn."""
    membership = np.full(n, -1)
    membership[found.array(f"geomca/rows/{role}")] = found.array(f"geomca/membership/{role}")
    return membership


def mmd_test(
    corpus: ArrayLike,
    reference: ArrayLike,
    *,
    kernel: str = "rbf",
    bandwidth: float | str = "median",
    seed: int = 0,
) -> MmdFindings:
    """Test whether two sets of rows come from one distribution.

    The squared maximum mean discrepancy of Gretton et al. (2012), eq. 3, and a permutation test.

    Parameters
    ----------
    corpus, reference : array_like, shape (n, d) and (m, d)
        The two sets of rows, of equal dimension, at least 20 rows each.
    kernel : {"rbf", "cosine", "linear"}
        Similarity of two rows: ``rbf`` sees every difference, the others one of the means.
    bandwidth : float or "median"
        Bandwidth σ of ``rbf``, exp(-d²/2σ²), in units of the Euclidean distance; ``"median"`` is
        the median distance of random pairs of the reference.
    seed : int
        Seed of the random divisions of the rows.

    Returns
    -------
    MmdFindings

    Raises
    ------
    ValueError
        If the rows or options are invalid; the message is one line.

    Notes
    -----
    Up to 20 000 rows together all pairs are visited; beyond, one pass over the rows computes random
    Fourier features.
    """
    section = {"kernels": [kernel], "bandwidth": bandwidth}
    found = compute("mmd", section, corpus, reference, seed=seed)
    estimate = _estimate(found.score("mmd"))
    [pair] = found.section.pair
    return MmdFindings(
        kernel=kernel,
        bandwidth=pair.bandwidth,
        rows=(pair.rows[0], pair.rows[1]),
        discrepancy=estimate,
        sampling_error=pair.sampling_error,
        p=pair.p,
        expected=found.expected("mmd"),
    )


def diverse_rows(
    rows: ArrayLike,
    count: int,
    *,
    cover: bool = False,
    metric: str = "cosine",
    seed: int = 0,
) -> DiverseRows:
    """Choose rows that are unlike each other, as ``latentscale subset --diverse`` does.

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite rows to choose from. The cosine takes no zero row.
    count : int
        Number of rows to choose, from 1 to n.
    cover : bool
        Choose rows so that all others have one of them near, as ``--cover`` does, rather than those
        that raise the Vendi score of order 2 (cosine kernel) most.
    metric : {"cosine", "euclidean"}
        How distances are measured with ``cover``.
    seed : int
        Seed of the random rows that the chosen ones are compared with.

    Returns
    -------
    DiverseRows
        ``rows[found.numbers]`` are the chosen rows.

    Raises
    ------
    ValueError
        If the rows or options are invalid; the message is one line.

    Notes
    -----
    Rows are chosen one by one (:mod:`latentscale.sampling.greedy_rows`), in at most n · count · d
    multiply-adds; usually far fewer. Outliers are among the first: leave them out before.
    """
    if metric not in get_args(Metric):
        raise ValueError(f"metric must be one of {', '.join(get_args(Metric))}, not {metric!r}")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"count must be a whole number of at least 1, not {count!r}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number from 0, below 2**63, not {seed!r}")
    try:
        corpus = hold_rows(rows, "rows")
        found = choose_unlike(
            corpus,
            np.arange(corpus.n),
            int(count),
            cover=cover,
            metric=cast(Metric, metric),
            seed=seed,
            memory_bytes=memory_bytes(),
            progress=lambda _chosen, _count: None,
        )
    except BadInput as error:
        said = str(error)
        for options, arguments in (
            ("choose --cover --metric euclidean", 'give cover=True and metric="euclidean"'),
            ("draw fewer to choose from with --sample", "give fewer rows"),
        ):
            said = said.replace(options, arguments)
        raise ValueError(said) from None
    return DiverseRows(
        numbers=found.rows,
        of=corpus.n,
        metric=metric if cover else "cosine",
        retained=found.retained,
        by_random_rows=found.by_random_rows,
    )


def _heat_section(times: tuple[float, float, int], **settings: Any) -> dict[str, Any]:
    if np.shape(times) != (3,):
        raise ValueError("times must be the first and last time, and their number")
    start, stop, count = times
    return {**settings, "times": {"start": start, "stop": stop, "count": count}}


def _numbers(given: Any, name: str) -> list[float]:
    """Return numbers of a sequence as floats."""
    try:
        numbers = list(given)
        if not any(isinstance(number, bool | np.bool_) for number in numbers):
            return [float(number) for number in numbers]
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be numbers, not {given!r}")


def _estimate(found: Any) -> Estimate:
    """Return a number with its bracket from a part of the results.

    Raises
    ------
    ValueError
        If it couldn't be computed; the message is the reason.
    """
    if found.value is None:
        reason = getattr(found, "reason", None) or getattr(found, "value_reason", None)
        raise ValueError(reason or "it can't be computed")
    return Estimate(
        found.value,
        found.lower,
        found.upper,
        found.bounds,
        getattr(found, "method", ""),
        getattr(found, "standard_error", 0.0),
    )
