"""IMD: the distance between two heat traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate, student_quantile
from latentscale.heat.supremum import IMD_TIMES, imd_weight, largest_beyond, largest_gap
from latentscale.heat.trace import HeatTrace

BOOTSTRAP_DRAWS = 4000

SMALL_SHARE = 1e-3
"""Share of the largest deviation. Times with less can't have the largest error."""

NEGLIGIBLE_VARIANCE = 1e-12
"""Share of the largest variance that is left out at any time."""

BAND_LEVEL = 0.98
"""Level of the bootstrap quantile for a 95 % interval: few probes cost 2 % of the coverage."""


@dataclass(frozen=True)
class ImdResult:
    """The intrinsic multi-scale distance of two graphs.

    Attributes
    ----------
    estimate : Estimate
        IMD in the units of the two traces' normalisation.
    time : float
        The time at which the supremum is attained.
    """

    estimate: Estimate
    time: float


def imd_of_traces(
    first: HeatTrace,
    second: HeatTrace,
    *,
    generator: np.random.Generator,
) -> ImdResult:
    """Compute IMD (Tsitsulin et al. 2020, eq. 2) with its interval.

    Parameters
    ----------
    first, second : HeatTrace
        Traces in the same normalisation, from independent probes. Their ``times`` don't matter.
    generator : numpy.random.Generator
        Source of the bootstrap's multipliers.

    Returns
    -------
    ImdResult
        The supremum over all positive times. The interval is [max(0, S - q), S + q]. With exact
        eigenvalues of both graphs q is rounding, and ``bounds`` is "exact".

    Raises
    ------
    ValueError
        If the normalisations differ.
    """
    if first.normalization != second.normalization:
        raise ValueError(
            f"the heat traces are normalised differently: {first.normalization} and "
            f"{second.normalization}"
        )
    weight = imd_weight(IMD_TIMES)
    value, time = largest_gap(first.imd_trace - second.imd_trace)
    reach = _band([heat.imd_deviations * weight for heat in (first, second)], generator)
    reach += float((weight * (first.imd_quadrature + second.imd_quadrature)).max())
    errors = np.hypot(first.imd_standard_error, second.imd_standard_error)
    standard_error = float((weight * errors)[np.abs(IMD_TIMES - time).argmin()])
    dense = first.probes == 0 and second.probes == 0
    per_vertex = first.normalization in ("empty", "er")
    whole = 1 if per_vertex else max(first.vertices, second.vertices)
    estimate = Estimate(
        value=value,
        lower=max(0.0, value - reach),
        upper=max(value + reach, largest_beyond(whole)),
        bounds="exact" if dense else "interval95",
        method="dense" if dense else "lanczos",
        standard_error=standard_error,
    )
    return ImdResult(estimate, time)


def weighted_gap(
    times: Float64Array,
    traces: tuple[Float64Array, Float64Array],
    bands: tuple[tuple[Float64Array, Float64Array], tuple[Float64Array, Float64Array]],
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return the weighted gap between two heat traces; its supremum is their IMD.

    Parameters
    ----------
    times : ndarray of float64, shape (T,)
        Positive times.
    traces : tuple of ndarray of float64
        The two traces.
    bands : tuple of tuple of ndarray of float64
        The lower and the upper end of each trace.

    Returns
    -------
    tuple of ndarray of float64
        The gap, and its lower and upper end when both traces vary within their bands.
    """
    weight = imd_weight(times)
    gap = np.abs(traces[0] - traces[1])
    slack = sum(upper - lower for lower, upper in bands) / 2
    return weight * gap, weight * np.maximum(0.0, gap - slack), weight * (gap + slack)


def imd_sampling_error(errors: Sequence[Float64Array]) -> float:
    """Return the standard error of IMD over fresh samples, from those of both traces.

    The errors are those at :data:`~latentscale.heat.supremum.IMD_TIMES`. The standard deviation of
    IMD itself would be too small: near 0 the deviation of an absolute value is two thirds of that
    of the difference.
    """
    return float((imd_weight(IMD_TIMES) * np.hypot(*errors)).max())


def _band(deviations: Sequence[Float64Array], generator: np.random.Generator) -> float:
    """Return a high quantile of the largest error at any time of the difference of two means."""
    sizes = sum(np.sqrt(np.square(each).sum(axis=0)) for each in deviations)
    # Beyond t = 0.2 to 7, about, the weight leaves too little to be the largest.
    matter = sizes > SMALL_SHARE * np.max(sizes)
    if not matter.any():
        return 0.0
    covariance = sum(_covariance_of_mean(each[:, matter]) for each in deviations)
    factor = _factor(np.asarray(covariance))
    swings = generator.standard_normal((BOOTSTRAP_DRAWS, len(factor))) @ factor
    return float(np.quantile(np.abs(swings).max(axis=1), BAND_LEVEL))


def _covariance_of_mean(deviations: Float64Array) -> Float64Array:
    """Return the covariance of the error of the mean between all times, shape (T, T).

    Normal multipliers of the deviations draw errors with just this covariance, and the errors of
    two graphs are independent. So errors are drawn from the sum, whose rank is a small fraction of
    the number of probes, because traces are smooth.
    """
    probes = len(deviations)
    if probes == 0:
        return np.zeros((deviations.shape[1],) * 2)
    # Few probes understate the spread. The ratio of Student's quantile to the normal one
    # compensates for that.
    few = student_quantile(0.975, probes - 1) / 1.959963984540054
    scaled = deviations * (few / np.sqrt(probes * (probes - 1)))
    covariance: Float64Array = scaled.T @ scaled
    return covariance


def _factor(covariance: Float64Array) -> Float64Array:
    """Return F of few rows with F^T F equal to a covariance, but for rounding."""
    negligible = NEGLIGIBLE_VARIANCE * float(covariance.diagonal().max())
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(covariance, tol=negligible)
    found = np.empty((rank, len(covariance)))
    found[:, pivots - 1] = np.triu(factor)[:rank]
    return found
