"""Tasks that find the sampling errors of Vendi scores by leaving out rows, or groups of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.tiles.distances import as_points
from latentscale.vendi.leave_one_out import leave_one_out_errors
from latentscale.vendi.sampling_error import cosine_sampling_errors, kernel_sampling_errors
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import load_estimate
from latentscale_pipeline.measures.shared.random_rows import gather_rows, read_share
from latentscale_pipeline.measures.vendi.similarity import Similarity, read_centred, under_kernel
from latentscale_pipeline.storage.artifacts import Output

COSINE_ROWS = 16_384
"""Rows from which the errors under the cosine kernel are found; beyond, they fall as the root."""

GROUPED_ROWS = 600
"""Largest number of rows for which the errors of truncated scores under other kernels are found."""

UNSURE_MEDIAN = "how it changes with the median bandwidth of the rows isn't known; give a bandwidth"
"""Why an order that depends on the smallest eigenvalues has no error."""

MIN_ROWS = 100
"""Fewest rows for which errors are found."""


def read_rows(inputs: Inputs) -> Output:
    """Read the rows in some shards from which the errors are found."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    return read_share(inputs, corpus, _rows(inputs, corpus, inputs.common_generator()))


def jackknife_moments(inputs: Inputs) -> Output:
    """Find the errors under the cosine kernel, from all rows or from a random sample."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    generator = inputs.common_generator()
    rows = _rows(inputs, corpus, generator)
    vectors = gather_rows(inputs, corpus, rows)
    weights = corpus.weights() if inputs.parameters["weights"] else None
    counted = corpus.n if weights is None else np.count_nonzero(weights)
    drawn = None if weights is None else weights[rows]
    try:
        errors = cosine_sampling_errors(
            vectors, _orders(inputs), generator, drawn, kept=_kept(inputs)
        )
    except ValueError as problem:
        return Output(values={"reason": str(problem)})
    return _errors_output(inputs, errors * math.sqrt(len(rows) / counted))


@under_kernel
def jackknife_kernel(inputs: Inputs, similarity: Similarity) -> Output:
    """Find the errors of whole and truncated scores under another kernel, from all rows."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    points = as_points(corpus.read_all(), "euclidean")
    weights = corpus.weights() if inputs.parameters["weights"] else None
    kernel, bandwidth = similarity.kernel, similarity.bandwidth
    try:
        errors = kernel_sampling_errors(
            points,
            kernel,
            bandwidth,
            _orders(inputs),
            inputs.generator(),
            weights,
            kept=_kept(inputs),
        )
    except ValueError as problem:
        return Output(values={"reason": str(problem)})
    return _errors_output(inputs, errors)


@under_kernel
def leave_out_rows(inputs: Inputs, similarity: Similarity) -> Output:
    """Find the errors under another kernel, by leaving out single rows."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    scored = inputs.results[inputs.parameters["scored"]].values
    if "reason" in scored:
        return Output(values={"reason": scored["reason"]})
    names = inputs.parameters["orders"]
    scores = {float(order): load_estimate(scored["scores"][order]).value for order in names}
    weights = corpus.weights() if inputs.parameters["weights"] else None
    points = read_centred(corpus, similarity)
    kernel, bandwidth = similarity.kernel, similarity.bandwidth
    try:
        errors = leave_one_out_errors(
            points,
            kernel,
            bandwidth,
            scores,
            inputs.generator(),
            weights,
            median_pairs=inputs.parameters["median_pairs"],
        )
    except ValueError as problem:
        return Output(values={"reason": str(problem)})
    known = {order: errors[float(order)] for order in names if float(order) in errors}
    return Output(values={"errors": known, "reason": UNSURE_MEDIAN})


def _rows(inputs: Inputs, corpus: Corpus, generator: np.random.Generator) -> Int64Array:
    """Draw rows that have a weight, or any if none has."""
    most = inputs.parameters["rows"]
    weights = corpus.weights() if inputs.parameters["weights"] else None
    if weights is None or not weights.any():
        return np.sort(generator.choice(corpus.n, min(most, corpus.n), replace=False))
    counted = np.flatnonzero(weights)
    return np.sort(generator.choice(counted, min(most, len(counted)), replace=False))


def _orders(inputs: Inputs) -> Sequence[float]:
    return [float(order) for order in inputs.parameters["orders"]]


def _kept(inputs: Inputs) -> int | None:
    kept: int | None = inputs.parameters.get("truncation")
    return kept


def _errors_output(inputs: Inputs, errors: Float64Array) -> Output:
    orders = inputs.parameters["orders"]
    names = ("errors",) if _kept(inputs) is None else ("errors", "truncated_errors")
    by_name = zip(names, errors.reshape(len(names), -1).tolist(), strict=True)
    return Output(values={name: dict(zip(orders, of, strict=True)) for name, of in by_name})
