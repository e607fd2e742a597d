"""The kernel with its bandwidth and the output format, shared by the stages of Vendi scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, cast

from numpy.typing import NDArray

from latentscale.estimate import Estimate
from latentscale.tiles.distances import Points, as_points
from latentscale.vendi.kernels import Kernel
from latentscale.vendi.scores import Spectrum, vendi_score
from latentscale.vendi.truncation import truncated_spectrum
from latentscale_pipeline.config.user_functions import load_function
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs, Work
from latentscale_pipeline.errors import BadInput, first_line
from latentscale_pipeline.measures.base import store_estimate
from latentscale_pipeline.measures.shared.bandwidth import read_bandwidth
from latentscale_pipeline.storage.artifacts import Output


@dataclass(frozen=True)
class Similarity:
    """A kernel with its bandwidth in this job; None for kernels without one."""

    kernel: Kernel
    bandwidth: float | None


def under_kernel(work: Callable[[Inputs, Similarity], Output]) -> Work:
    """Wrap ``work`` to pass it the kernel of its stage.

    If the bandwidth could not be computed, the wrapper returns the reason. A ValueError under a
    user's function becomes BadInput, because retrying cannot help.
    """

    @wraps(work)
    def working(inputs: Inputs) -> Output:
        name = inputs.parameters["kernel"]
        bandwidth, reason = read_bandwidth(inputs)
        if reason:
            return Output(values={"reason": reason})
        if inputs.parameters.get("weights") and not _has_weight(inputs):
            return Output(values={"reason": "all weights are 0", "bandwidth": bandwidth})
        if ":" not in name:
            return work(inputs, Similarity(cast(Kernel, name), bandwidth))
        try:
            return work(inputs, Similarity(_named(name, load_function(name)), bandwidth))
        except ValueError as problem:
            raise BadInput(str(problem)) from None

    return working


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a user's function that tells in a line with its name what it raises."""

    @wraps(function)
    def calling(*blocks: Any) -> Any:
        try:
            return function(*blocks)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            raised = f"{type(error).__name__}: {first_line(error)}"
            raise BadInput(f"{name} raised {raised}; correct the function") from error

    return calling


def _has_weight(inputs: Inputs) -> bool:
    """Return whether a row has a weight; those with some label may have none."""
    weights = inputs.corpora[inputs.parameters["role"]].weights()
    return weights is None or bool(weights.any())


def read_centred(corpus: Corpus, similarity: Similarity) -> Points:
    """Read all rows, with an origin in their midst for kernels of distances."""
    points = as_points(corpus.read_all(), "euclidean")
    return points if callable(similarity.kernel) else points.about(points.rows.mean(axis=0))


def scores_output(
    inputs: Inputs,
    bandwidth: float | None,
    score: Callable[[float], Estimate],
    arrays: Mapping[str, NDArray[Any]] | None = None,
) -> Output:
    """Return the output with the score of every order of the stage."""
    values = {"scores": _scored(inputs, score), "bandwidth": bandwidth}
    return Output(values=values, arrays=arrays or {})


def spectrum_output(
    inputs: Inputs,
    bandwidth: float | None,
    spectrum: Spectrum,
    arrays: Mapping[str, NDArray[Any]] | None = None,
) -> Output:
    """Return the output with the scores of all eigenvalues, and the truncated ones if asked."""
    held = {"eigenvalues": spectrum.eigenvalues, **(arrays or {})}
    scored = scores_output(inputs, bandwidth, partial(vendi_score, spectrum), held)
    kept = inputs.parameters.get("truncation")
    if kept is None:
        return scored
    truncated = _scored(inputs, partial(vendi_score, truncated_spectrum(spectrum, kept)))
    return replace(scored, values={**scored.values, "truncated": truncated})


def _scored(inputs: Inputs, score: Callable[[float], Estimate]) -> dict[str, Any]:
    return {order: store_estimate(score(float(order))) for order in inputs.parameters["orders"]}
