"""The task that estimates epsilon."""

from __future__ import annotations

import numpy as np

from latentscale.geomca.epsilon import draw_samples, estimate_epsilon
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import (
    store_estimate,
)
from latentscale_pipeline.storage.artifacts import Output


def find_epsilon(inputs: Inputs) -> Output:
    """Estimate epsilon from two disjoint samples of the reference."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    try:
        samples = draw_samples(corpus.n, inputs.generator())
        drawn = np.sort(np.concatenate(samples))
        points = as_points(corpus.read_index(drawn), "euclidean")
        left, right = (points.take(np.searchsorted(drawn, sample)) for sample in samples)
        epsilon = estimate_epsilon(left, right, p["percentile"])
    except ValueError as error:
        return Output(values={"reason": str(error)})
    return Output(values={"epsilon": epsilon.value, "estimate": store_estimate(epsilon)})
