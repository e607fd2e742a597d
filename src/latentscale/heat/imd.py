"""IMD: the distance between two heat traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from latentscale.estimate import Estimate
from latentscale.heat.trace import HeatTrace

Float64Array = NDArray[np.float64]

BOOTSTRAP_DRAWS = 4000

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


def imd_weight(times: Float64Array) -> Float64Array:
    """Return the weight of every time, e^(-2(t + 1/t))."""
    return np.asarray(np.exp(-2.0 * (times + 1.0 / times)))


def imd_of_traces(
    first: HeatTrace,
    second: HeatTrace,
    *,
    generator: np.random.Generator,
    graph_error: float = 0.0,
) -> ImdResult:
    """Compute IMD (Tsitsulin et al. 2020, eq. 2) with a 95 % interval.

    Parameters
    ----------
    first, second : HeatTrace
        Traces at the same times, in the same normalisation, from independent probes.
    generator : numpy.random.Generator
        Source of the bootstrap's multipliers.
    graph_error : float
        Error from the approximation of the two graphs, in units of IMD.

    Returns
    -------
    ImdResult
        The interval is [max(0, S - q), S + q]. With exact eigenvalues of both graphs and no graph
        error, q is rounding and ``bounds`` is "exact".

    Raises
    ------
    ValueError
        If times or normalisations differ, or the graph error isn't a number of at least 0.
    """
    _check_alike(first, second, graph_error)
    times = first.times
    weight = imd_weight(times)
    weighted = weight * np.abs(first.trace - second.trace)
    peak = int(weighted.argmax())
    value = float(weighted[peak])
    # Opposite signs don't matter: the multipliers are symmetric.
    swings = sum(_bootstrap_swings(heat.deviations * weight, generator) for heat in (first, second))
    reach = float(np.quantile(np.abs(swings).max(axis=1), BAND_LEVEL)) + graph_error
    reach += float((weight * (first.quadrature + second.quadrature)).max())
    standard_error = float(
        weight[peak] * np.hypot(first.standard_error[peak], second.standard_error[peak])
    )
    dense = first.probes == 0 and second.probes == 0
    estimate = Estimate(
        value=value,
        lower=max(0.0, value - reach),
        upper=value + reach,
        bounds="exact" if dense and graph_error == 0 else "interval95",
        method="dense" if dense else "lanczos",
        standard_error=standard_error,
    )
    return ImdResult(estimate, float(times[peak]))


def weighted_gap(
    times: Float64Array,
    traces: tuple[Float64Array, Float64Array],
    bands: tuple[tuple[Float64Array, Float64Array], tuple[Float64Array, Float64Array]],
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return the weighted gap between two heat traces; its largest value is their IMD.

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


def imd_sampling_error(times: Float64Array, errors: Sequence[Float64Array]) -> float:
    """Return the standard error of IMD over fresh samples, from those of both traces.

    The standard deviation of IMD itself would be too small: near 0 the deviation of an absolute
    value is two thirds of that of the difference.
    """
    return float((imd_weight(times) * np.hypot(*errors)).max())


def _check_alike(first: HeatTrace, second: HeatTrace, graph_error: float) -> None:
    if not np.array_equal(first.times, second.times):
        raise ValueError("the heat traces are at different times; compute both at the same ones")
    if first.normalization != second.normalization:
        raise ValueError(
            f"the heat traces are normalised differently: {first.normalization} and "
            f"{second.normalization}"
        )
    if not (np.isfinite(graph_error) and graph_error >= 0):
        raise ValueError(f"graph_error must be a number of at least 0, got {graph_error}")


def _bootstrap_swings(deviations: Float64Array, generator: np.random.Generator) -> Float64Array:
    """Draw errors of the mean at all times, shape (draws, T)."""
    probes = len(deviations)
    if probes == 0:
        return np.zeros((BOOTSTRAP_DRAWS, deviations.shape[1]))
    # Few probes understate the spread. The ratio of Student's quantile to the normal one
    # compensates for that.
    few = float(stdtrit(probes - 1, 0.975)) / 1.959963984540054
    multipliers = generator.standard_normal((BOOTSTRAP_DRAWS, probes))
    swings: Float64Array = multipliers @ (deviations * (few / np.sqrt(probes * (probes - 1))))
    return swings
