"""The tasks that estimate epsilon."""

from __future__ import annotations

import numpy as np

from latentscale.array_types import Int64Array
from latentscale.geomca.epsilon import draw_samples, estimate_epsilon
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_estimate
from latentscale_pipeline.measures.shared.random_rows import gather_rows, read_share
from latentscale_pipeline.storage.artifacts import Output


def read_samples(inputs: Inputs) -> Output:
    """Read the rows of both samples in some shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    return read_share(inputs, corpus, np.sort(np.concatenate(_samples(inputs, corpus.n))))


def find_epsilon(inputs: Inputs) -> Output:
    """Estimate epsilon from two disjoint samples of the reference."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    try:
        samples = _samples(inputs, corpus.n)
        drawn = np.sort(np.concatenate(samples))
        points = as_points(gather_rows(inputs, corpus, drawn), "euclidean")
        left, right = (points.take(np.searchsorted(drawn, sample)) for sample in samples)
        epsilon = estimate_epsilon(left, right, p["percentile"])
    except ValueError as error:
        return Output(values={"reason": str(error)})
    return Output(values={"epsilon": epsilon.value, "estimate": store_estimate(epsilon)})


def _samples(inputs: Inputs, n: int) -> tuple[Int64Array, Int64Array]:
    return draw_samples(n, inputs.common_generator())
