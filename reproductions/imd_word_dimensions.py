"""IMD between word vectors of different dimension: figure 3 of Tsitsulin et al. (2020).

    python reproductions/imd_word_dimensions.py

Word vectors of 4, 8, ... 64 dimensions made from the same text, and IMD and the PIP loss (Yin &
Shen 2018) between every two of them. The paper trains word2vec on Wikipedia. Here the text is the
docstrings of Python's standard library, NumPy and SciPy, and vectors are singular vectors of
positive pointwise mutual information, scaled by the root of the singular values: the factorisation
that word2vec's objective approximates (Levy & Goldberg 2014). Each dimension has its own random
share of the texts, since each of the paper's is a training run of its own.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from scipy.stats import spearmanr

import latentscale
from documents import docstrings, words
from latentscale_pipeline.panels import Curve, Panel
from records import Finding, Reproduction, publish

DIMENSIONS = (4, 8, 16, 32, 64)
VOCABULARY, WINDOW, RUNS, SHARE = 2000, 5, 2, 0.7


def cooccurrences(texts: list[list[str]], vocabulary: dict[str, int]) -> csr_array:
    """Count pairs of words at most ``WINDOW`` apart, nearer ones more."""
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
    """Give the most frequent words numbers."""
    counts = Counter(word for text in texts for word in text)
    return {word: k for k, (word, _) in enumerate(counts.most_common(size))}


def word_vectors(texts: list[list[str]], vocabulary: dict[str, int], dimension: int) -> np.ndarray:
    """Return one row a word, columns in falling order of their singular values."""
    pairs = cooccurrences(texts, vocabulary).tocoo()
    sums = np.asarray(pairs.sum(axis=0)).ravel()
    # Contexts by their count to the power of 3/4, as in word2vec.
    context = sums**0.75 / (sums**0.75).sum()
    share = pairs.data / np.maximum(sums[pairs.row], 1e-300) / context[pairs.col]
    positive = np.maximum(np.log(share), 0.0)
    information = csr_array((positive, (pairs.row, pairs.col)), shape=pairs.shape)
    start = np.random.default_rng(0).normal(size=information.shape[0])
    left, singular, _ = svds(information, k=dimension, v0=start)
    falling = np.argsort(singular)[::-1]
    return left[:, falling] * np.sqrt(singular[falling])


def pip_loss(first: np.ndarray, second: np.ndarray) -> float:
    """Relative Frobenius distance of the matrices of inner products, through small products."""
    a, b = first.T @ first, second.T @ second
    squares = np.square(a).sum(), np.square(b).sum()
    cross = np.square(first.T @ second).sum()
    apart = max(0.0, squares[0] + squares[1] - 2 * cross)
    return float(np.sqrt(apart / np.sqrt(squares[0] * squares[1])))


def reproduce(short: bool) -> Reproduction:
    """Compare the vectors of all dimensions."""
    packages = () if short else ("numpy", "scipy")
    texts = [words(text) for text in docstrings(packages)]
    dimensions = DIMENSIONS[:4] if short else DIMENSIONS
    size, runs = (800, 1) if short else (VOCABULARY, RUNS)
    texts = texts[:2000] if short else texts
    vocabulary = frequent(texts, size)
    count = len(dimensions)
    imd, half, pip = np.zeros((runs, count, count)), 0.0, np.zeros((runs, count, count))
    for run in range(runs):
        generator = np.random.default_rng(run)
        vectors = []
        for dimension in dimensions:
            chosen = generator.permutation(len(texts))[: int(SHARE * len(texts))]
            vectors.append(word_vectors([texts[k] for k in chosen], vocabulary, dimension))
        for i, one in enumerate(vectors):
            for j, other in enumerate(vectors[:i]):
                found = latentscale.imd(one, other, seed=run, times=(0.1, 10.0, 64)).distance
                imd[run, i, j] = imd[run, j, i] = found.value
                half = max(half, (found.upper - found.lower) / 2)
                pip[run, i, j] = pip[run, j, i] = pip_loss(one, other)
    mean, deviation = imd.mean(axis=0), imd.std(axis=0)
    pip_mean, pip_deviation = pip.mean(axis=0), pip.std(axis=0)
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
                    for i in range(count)
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
        },
        data=f"{len(texts)} docstrings, {len(vocabulary)} words, {SHARE:.0%} of texts a dimension",
        columns=2,
    )


if __name__ == "__main__":
    publish("imd-word-dimensions", reproduce)
