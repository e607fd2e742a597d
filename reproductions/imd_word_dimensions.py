"""IMD between word vectors of different dimension: figure 3 of Tsitsulin et al. (2020).

    python reproductions/imd_word_dimensions.py

Word vectors of 4, 8, ... 512 dimensions made from the same text, and IMD and the PIP loss (Yin &
Shen 2018) between every two of them. The paper trains word2vec on Wikipedia. Here the text is the
docstrings of Python's standard library, NumPy and SciPy, and vectors are singular vectors of
positive pointwise mutual information, scaled by the root of the singular values: the factorisation
that word2vec's objective approximates (Levy & Goldberg 2014). Each dimension has its own random
share of the texts, since each of the paper's is a training run of its own. How much of the vectors
of fewer dimensions is in the first columns of those of more is measured, too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from scipy.stats import spearmanr

from documents import docstrings, words
from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import normalised_laplacian
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.trace import HeatTrace, estimate_heat_trace
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import as_points
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, publish

DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 512)
VOCABULARY, WINDOW, RUNS, SHARE = 4000, 5, 3, 0.7
K = 5
TIMES = np.logspace(-1, 1, 64)

FEW_VECTORS = 32
"""Up to so many singular vectors are found by Lanczos iteration, more of them densely."""


def cooccurrences(texts: list[list[str]], vocabulary: dict[str, int]) -> csr_array:
    """Count pairs of words at most ``WINDOW`` apart, with more weight for nearer ones."""
    size = len(vocabulary)
    total = csr_array((size, size))
    codes = [[vocabulary.get(word, -1) for word in text] for text in texts]
    # A gap after each text keeps words of different texts apart.
    stream = np.array([code for text in codes for code in [*text, *[-1] * WINDOW]])
    for apart in range(1, WINDOW + 1):
        left, right = stream[:-apart], stream[apart:]
        kept = (left >= 0) & (right >= 0)
        weight = np.full(int(kept.sum()), 1.0 / apart)
        pairs = csr_array((weight, (left[kept], right[kept])), shape=(size, size))
        total = total + pairs + pairs.T
    return csr_array(total)


def frequent(texts: list[list[str]], size: int) -> dict[str, int]:
    """Return the numbers of the most frequent words."""
    counts = Counter(word for text in texts for word in text)
    return {word: k for k, (word, _) in enumerate(counts.most_common(size))}


def word_vectors(texts: list[list[str]], vocabulary: dict[str, int], dimension: int) -> np.ndarray:
    """Return one row per word; columns are in descending order of their singular values."""
    pairs = cooccurrences(texts, vocabulary).tocoo()
    sums = np.asarray(pairs.sum(axis=0)).ravel()
    # Contexts by their count to the power of 3/4, as in word2vec.
    context = sums**0.75 / (sums**0.75).sum()
    share = pairs.data / np.maximum(sums[pairs.row], 1e-300) / context[pairs.col]
    positive = np.maximum(np.log(share), 0.0)
    information = csr_array((positive, (pairs.row, pairs.col)), shape=pairs.shape)
    left, singular = singular_vectors(information, dimension)
    return left * np.sqrt(singular)


def singular_vectors(matrix: csr_array, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return left singular vectors and singular values, the largest first."""
    if count <= FEW_VECTORS:
        start = np.random.default_rng(0).normal(size=matrix.shape[0])
        left, singular, _ = svds(matrix, k=count, v0=start)
        falling = np.argsort(singular)[::-1]
        return left[:, falling], singular[falling]
    dense = matrix.toarray()
    size = len(dense)
    squares, left = eigh(dense @ dense.T, subset_by_index=(size - count, size - 1))
    return left[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))


def pip_loss(first: np.ndarray, second: np.ndarray) -> float:
    """Relative Frobenius distance of the matrices of inner products, through small products."""
    a, b = first.T @ first, second.T @ second
    squares = np.square(a).sum(), np.square(b).sum()
    cross = np.square(first.T @ second).sum()
    apart = max(0.0, squares[0] + squares[1] - 2 * cross)
    return float(np.sqrt(apart / np.sqrt(squares[0] * squares[1])))


def overlap(fewer: np.ndarray, more: np.ndarray) -> float:
    """Mean squared cosine of the angles between the span of some columns and of as many others.

    Parameters
    ----------
    fewer, more : ndarray, shape (n, d) and (n, e), d <= e
        Orthogonal columns; only the first ``d`` of the second are compared.
    """
    first, second = (
        columns / np.linalg.norm(columns, axis=0) for columns in (fewer, more[:, : fewer.shape[1]])
    )
    return float(np.square(first.T @ second).sum() / fewer.shape[1])


def trace_of(vectors: np.ndarray, seed: int) -> HeatTrace:
    """Heat trace of the graph of neighbours, once for all comparisons, as a job computes it."""
    rows = vectors.astype(np.float32)
    lists = exact_neighbours(as_points(rows, "euclidean"), K).indices
    laplacian = normalised_laplacian(symmetrise(lists))
    return estimate_heat_trace(laplacian, TIMES, generator=np.random.default_rng(seed))


def reproduce(short: bool) -> Reproduction:
    """Compare the vectors of all dimensions."""
    packages = () if short else ("numpy", "scipy")
    texts = [words(text) for text in docstrings(packages)]
    dimensions = DIMENSIONS[:4] if short else DIMENSIONS
    size, runs = (800, 1) if short else (VOCABULARY, RUNS)
    texts = texts[:2000] if short else texts
    vocabulary = frequent(texts, size)
    count = len(dimensions)
    distance, pip, inside, alone = np.zeros((4, runs, count, count))
    half = 0.0
    for run in range(runs):
        generator = np.random.default_rng(run)
        vectors = []
        for dimension in dimensions:
            chosen = generator.permutation(len(texts))[: int(SHARE * len(texts))]
            vectors.append(word_vectors([texts[k] for k in chosen], vocabulary, dimension))
        traces = [trace_of(rows, count * run + k) for k, rows in enumerate(vectors)]
        for i, more in enumerate(vectors):
            for j, fewer in enumerate(vectors[:i]):
                found = imd_of_traces(traces[i], traces[j], generator=generator).estimate
                distance[run, i, j] = distance[run, j, i] = found.value
                half = max(half, (found.upper - found.lower) / 2)
                pip[run, i, j] = pip[run, j, i] = pip_loss(more, fewer)
                inside[run, i, j] = inside[run, j, i] = overlap(fewer, more)
                first = more[:, : fewer.shape[1]]
                alone[run, i, j] = alone[run, j, i] = pip_loss(more, first)
    mean, deviation = distance.mean(axis=0), distance.std(axis=0, ddof=min(1, runs - 1))
    pip_mean, pip_deviation = pip.mean(axis=0), pip.std(axis=0, ddof=min(1, runs - 1))
    inside, alone = inside.mean(axis=0), alone.mean(axis=0)
    steps = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    above = np.triu_indices(count, 1)
    order = {
        name: float(spearmanr(matrix[above], steps[above]).statistic)
        for name, matrix in (("IMD", mean), ("PIP", pip_mean))
    }
    graded = int(sum((np.diff(mean[i, i:]) > 0).all() for i in range(count - 1)))
    ratio = {"IMD": mean[0, 2] / mean[0, 1], "PIP": pip_mean[0, 2] / pip_mean[0, 1]}
    return Reproduction(
        findings=[
            Finding(
                "closer dimensions have a lower IMD (figure 3)",
                "lower",
                f"rank correlation with the number of doublings {order['IMD']:.2f}; "
                f"growing in {graded} of {count - 1} rows",
                order["IMD"] > 0.7,
            ),
            Finding(
                "closer dimensions have a lower PIP loss (figure 3)",
                "lower",
                f"rank correlation {order['PIP']:.2f}",
                order["PIP"] > 0.7,
            ),
            Finding(
                "by IMD, 4 is clearly closer to 8 than to 16",
                "clearly closer",
                f"{mean[0, 1]:.3g} ± {2 * deviation[0, 1]:.1g} and "
                f"{mean[0, 2]:.3g} ± {2 * deviation[0, 2]:.1g}: {ratio['IMD']:.2f} times",
                bool(mean[0, 1] + 2 * deviation[0, 1] < mean[0, 2] - 2 * deviation[0, 2]),
            ),
            Finding(
                "by PIP it is much less so",
                "not closer",
                f"{pip_mean[0, 1]:.3g} and {pip_mean[0, 2]:.3g}: {ratio['PIP']:.2f} times",
                bool(ratio["PIP"] - 1 < 0.5 * (ratio["IMD"] - 1)),
            ),
            Finding(
                "vectors of fewer dimensions span the first columns of those of more",
                "not stated",
                "overlap of the spaces "
                + ", ".join(
                    f"{inside[k, k + 1]:.2f} ({dimensions[k]} in {dimensions[k + 1]})"
                    for k in range(count - 1)
                ),
                bool(inside[above].min() > 0.9),
            ),
            Finding(
                "first columns alone would have the same PIP loss",
                "not stated",
                f"{alone[0, 1]:.3g} and {alone[0, 2]:.3g} from 4 to 8 and 16; "
                f"less than what came out by {(1 - alone / pip_mean.clip(1e-12))[above].min():.0%} "
                f"to {(1 - alone / pip_mean.clip(1e-12))[above].max():.0%}",
                bool((np.abs(alone - pip_mean)[above] < 0.1 * pip_mean[above]).all()),
            ),
        ],
        panels=[
            Panel(
                title,
                "dimension",
                label,
                [
                    Curve(
                        f"to {dimensions[i]} dimensions",
                        np.delete(dimensions, i),
                        np.delete(matrix[i], i),
                        np.delete((matrix - 2 * spread)[i], i),
                        np.delete((matrix + 2 * spread)[i], i),
                    )
                    for i in range(0, count, 2)
                ],
                log_x=True,
            )
            for title, label, matrix, spread in (
                ("IMD", "IMD per vertex", mean, deviation),
                ("PIP loss", "relative PIP loss", pip_mean, pip_deviation),
            )
        ],
        numbers={
            "dimensions": dimensions,
            "texts": len(texts),
            "words": int(sum(map(len, texts))),
            "vocabulary": len(vocabulary),
            "runs": runs,
            "imd": mean.tolist(),
            "deviation": deviation.tolist(),
            "largest_half_width": half,
            "pip": pip_mean.tolist(),
            "pip_deviation": pip_deviation.tolist(),
            "overlap": inside.tolist(),
            "pip_of_first_columns": alone.tolist(),
        },
        data=f"{len(texts)} docstrings, {len(vocabulary)} words, {SHARE:.0%} of texts a dimension",
        columns=2,
    )


if __name__ == "__main__":
    publish("imd-word-dimensions", reproduce)
