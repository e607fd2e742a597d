"""Tasks of Vendi scores: second moments, spectra, random features and subsets."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

import numpy as np

from latentscale.linalg.fourier_features import FourierKernel, draw_frequencies, fourier_features
from latentscale.sampling.rarefaction import HALVINGS
from latentscale.tiles.device import Precision
from latentscale.tiles.distances import as_points, row_blocks
from latentscale.vendi.fourier import FREQUENCIES, FeatureSpectra, fourier_score
from latentscale.vendi.lanczos import kernel_scores
from latentscale.vendi.rarefaction import (
    SubsetBrackets,
    extrapolated_scores,
    score_curve,
    subsample_scores,
)
from latentscale.vendi.scores import (
    kernel_spectrum,
    moment_spectrum,
    nystrom_spectrum,
    sufficient_precision,
    vendi_bracket,
)
from latentscale.vendi.second_moments import (
    MomentSum,
    Rounding,
    SecondMoment,
    merge_moments,
)
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.vendi.similarity import (
    Similarity,
    read_centred,
    scores_output,
    spectrum_output,
    under_kernel,
)
from latentscale_pipeline.storage.artifacts import Output

SHARDS_PER_TASK = 8
"""Shards whose second moment one task sums."""

LANDMARKS = 2_000
"""Largest number of landmarks of the Nystrom bracket."""

SINGLE_ROWS = 200_000
"""Fewest rows of a corpus for which single precision is tried."""

SAMPLED_ROWS = 16_384
"""Rows from which the precision of a task is chosen."""

SUBSETS, SUBSET_ROWS, MIN_SUBSET = 2, 4096, 512
"""Number of random subsets, their rows, and the fewest rows that can be divided into pieces."""

ORIGIN_ROWS = 101
"""First rows whose median is the origin of the features; the median is robust to outliers."""

FEATURE_ROWS = 8192
"""Rows converted to features at a time."""


def precision_rows(n: int) -> int:
    """Return the rows for which precision is chosen: a power of 2, so it rarely changes."""
    return 2 ** int(math.log2(n)) if n >= SINGLE_ROWS else 0


def sum_moments(inputs: Inputs) -> Output:
    """Sum the second moment of a run of shards, in single precision where that suffices."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    weights = corpus.weights() if inputs.parameters["weights"] else None
    first = inputs.index * SHARDS_PER_TASK
    moments: MomentSum | None = None
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard)
        if moments is None:
            moments = MomentSum(_precision(inputs, rows[:SAMPLED_ROWS], corpus.n))
        moments.add(rows, None if weights is None else weights[corpus.shard_range(shard)])
        del rows
    assert moments is not None  # noqa: S101  (every task has shards)
    return _moment_output(moments)


def _moment_output(moments: MomentSum) -> Output:
    moment = moments.moment()
    values = {"total": moment.total, "rounding": asdict(moment.rounding)}
    return Output(values=values, arrays={"matrix": moment.matrix})


def _precision(inputs: Inputs, sample: np.ndarray[Any, Any], n: int) -> Precision:
    rows = precision_rows(n)
    if not rows:
        return "double"
    orders = [float(order) for order in inputs.parameters["orders"]]
    return sufficient_precision(sample, orders, rows)


def score_moments(inputs: Inputs) -> Output:
    """Merge the moments in order and score their spectrum."""
    moment = _merged(inputs)
    if moment.total == 0:
        return Output(values={"reason": "all weights are 0", "bandwidth": None})
    n = inputs.corpora[inputs.parameters["role"]].n
    spectrum = moment_spectrum(moment, n)
    scored = spectrum_output(inputs, None, spectrum, {"matrix": moment.matrix})
    return replace(scored, values={**scored.values, "total": moment.total})


def _merged(inputs: Inputs) -> SecondMoment:
    return merge_moments(
        SecondMoment(
            part.values["total"], part.array("matrix"), Rounding(**part.values["rounding"])
        )
        for part in inputs.parts
    )


@under_kernel
def score_kernel(inputs: Inputs, similarity: Similarity) -> Output:
    """Score all eigenvalues of a kernel matrix."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    points = as_points(corpus.read_all(), "euclidean")
    weights = corpus.weights() if inputs.parameters["weights"] else None
    kernel, bandwidth = similarity.kernel, similarity.bandwidth
    spectrum = kernel_spectrum(points, kernel, bandwidth, weights)
    return spectrum_output(inputs, bandwidth, spectrum)


@under_kernel
def estimate_kernel(inputs: Inputs, similarity: Similarity) -> Output:
    """Score a kernel matrix that is kept in memory, by stochastic Lanczos."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    points = read_centred(corpus, similarity)
    orders = [float(order) for order in inputs.parameters["orders"]]
    weights = corpus.weights() if inputs.parameters["weights"] else None
    kernel, bandwidth = similarity.kernel, similarity.bandwidth
    found = kernel_scores(points, kernel, bandwidth, orders, inputs.generator(), weights)
    return scores_output(inputs, bandwidth, found.__getitem__)


@under_kernel
def bracket_kernel(inputs: Inputs, similarity: Similarity) -> Output:
    """Bracket the scores of a kernel matrix by its Nystrom approximation."""
    points = as_points(inputs.corpora[inputs.parameters["role"]].read_all(), "euclidean")
    kernel, bandwidth = similarity.kernel, similarity.bandwidth
    landmarks = min(LANDMARKS, len(points))
    nystrom = nystrom_spectrum(points, kernel, bandwidth, landmarks, inputs.generator())
    return scores_output(inputs, bandwidth, partial(vendi_bracket, nystrom))


@under_kernel
def sum_features(inputs: Inputs, similarity: Similarity) -> Output:
    """Sum the second moment of the random Fourier features of a run of shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    bandwidth = cast(float, similarity.bandwidth)
    kernel = cast(FourierKernel, similarity.kernel)
    # Every task uses the same frequencies and origin. Any origin near most rows will do.
    generator = inputs.common_generator()
    frequencies = draw_frequencies(kernel, bandwidth, corpus.d, FREQUENCIES, generator)
    few = corpus.read_rows(0, min(corpus.n, ORIGIN_ROWS)).astype(np.float64)
    origin = np.median(few, axis=0)
    first = inputs.index * SHARDS_PER_TASK
    moments = MomentSum("single")
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard)
        for block in row_blocks(len(rows), FEATURE_ROWS):
            moments.add(fourier_features(rows[block], origin, frequencies))
    return _moment_output(moments)


@under_kernel
def score_features(inputs: Inputs, similarity: Similarity) -> Output:
    """Score the spectrum of the features."""
    moment, n = _merged(inputs), inputs.corpora[inputs.parameters["role"]].n
    spectra = FeatureSpectra.of(moment, n)
    return scores_output(inputs, similarity.bandwidth, partial(fourier_score, spectra, n))


@under_kernel
def score_subset(inputs: Inputs, similarity: Similarity) -> Output:
    """Score the pieces of one size of one random subset."""
    subset, halving = divmod(inputs.index, HALVINGS + 1)
    vectors = inputs.results[inputs.parameters["sample"]].array("vectors")
    points = as_points(np.split(vectors, SUBSETS)[subset], "euclidean")
    found = subsample_scores(
        points, similarity.kernel, similarity.bandwidth, _descending(inputs), 2**halving
    )
    ends = {"lower": found.lower, "upper": found.upper}
    return Output(values={"size": found.size}, arrays={"values": found.values, **ends})


@under_kernel
def extrapolate_subsets(inputs: Inputs, similarity: Similarity) -> Output:
    """Extrapolate the subsets' scores to all rows."""
    orders, n = _descending(inputs), inputs.corpora[inputs.parameters["role"]].n
    subsets = [
        SubsetBrackets(
            part.values["size"], part.array("values"), part.array("lower"), part.array("upper")
        )
        for part in inputs.parts
    ]
    found = extrapolated_scores(subsets, orders, n)
    curve = score_curve(subsets)
    estimates = dict(zip(orders, found, strict=True))
    # Columns in the order in which the orders were given.
    columns = [orders.index(float(order)) for order in inputs.parameters["orders"]]
    arrays = {"rarefaction_sizes": curve.sizes, "rarefaction": curve.means[:, columns]}
    return scores_output(inputs, similarity.bandwidth, estimates.__getitem__, arrays)


def _descending(inputs: Inputs) -> list[float]:
    return sorted((float(order) for order in inputs.parameters["orders"]), reverse=True)
