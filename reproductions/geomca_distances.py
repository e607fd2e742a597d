"""The effect of epsilon and delta on GeomCA: figures 8 and 11 of Poklukar et al. (2021).

    python reproductions/geomca_distances.py

Both sets have 5000 rows. The reference is the output of a fixed random network for normal latent
vectors; the set under evaluation is its output for truncated ones, at eleven levels of truncation.
The paper uses VGG16 features of faces and of StyleGAN images.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

import latentscale
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, publish

ROWS, LATENT, HIDDEN, DIMENSION = 5000, 24, 128, 512
LEVELS = tuple(k / 10 for k in range(11))
WIDEST = 2.0
"""Latent values stay within this many times the level."""

SCORES = ("precision", "recall", "consistency", "quality")
SETTINGS = (
    "epsilon(10), delta 0.8 of it",
    "epsilon(10), delta the same",
    "epsilon(30), delta the same",
    "epsilon(30), delta epsilon(10)",
)


def latent(n: int, bound: float | None, seed: int) -> np.ndarray:
    """Draw from a truncated normal law: entries outside the bound are drawn again."""
    uniform = np.random.default_rng(seed).random((n, LATENT))
    if bound is None:
        return ndtri(uniform)
    low = ndtr(-bound)
    return np.clip(ndtri(low + uniform * (1 - 2 * low)), -bound, bound)


def network(rows: np.ndarray) -> np.ndarray:
    """Apply a fixed random network of two layers to latent vectors."""
    fixed = np.random.default_rng(11)
    first = fixed.normal(size=(LATENT, HIDDEN)) / np.sqrt(LATENT)
    second = fixed.normal(size=(HIDDEN, DIMENSION)) / np.sqrt(HIDDEN)
    return (np.maximum(rows @ first, 0.0) @ second).astype(np.float32)


def reproduce(short: bool) -> Reproduction:
    """Score every level with three pairs of distances."""
    n, levels = (600, (0.3, 1.0)) if short else (ROWS, LEVELS)
    reference = network(latent(n, None, 1))
    found = np.empty((len(SETTINGS), len(levels), len(SCORES)))
    for row, level in enumerate(levels):
        rows = network(latent(n, WIDEST * level, 2))
        paper = latentscale.geomca_scores(rows, reference, percentile=10.0, delta=1.0)
        wide = latentscale.geomca_scores(rows, reference, percentile=30.0, delta=1.0)
        results = (
            latentscale.geomca_scores(rows, reference, percentile=10.0, delta=0.8),
            paper,
            wide,
            # Thinned as before: only the distance at which points are joined is another.
            latentscale.geomca_scores(
                rows, reference, percentile=30.0, delta=paper.delta / wide.epsilon
            ),
        )
        for setting, result in enumerate(results):
            found[setting, row] = [result.scores[name].value for name in SCORES]
    return Reproduction(
        findings=claims(found, levels),
        panels=[
            Panel(
                name,
                "truncation level",
                name,
                [Curve(s, levels, found[k, :, column]) for k, s in enumerate(SETTINGS)],
            )
            for column, name in enumerate(SCORES)
        ],
        numbers={
            "rows_a_side": n,
            "levels": levels,
            "settings": SETTINGS,
            "scores": SCORES,
            "found": found.tolist(),
            "epsilon": [paper.epsilon, wide.epsilon],
            "bounds": paper.scores["precision"].bounds,
        },
        data=f"{n} rows a side of a random network, {DIMENSION} dimensions, seeds 1, 2 and 11",
        columns=2,
    )


def claims(found: np.ndarray, levels: tuple[float, ...]) -> list[Finding]:
    """Compare the results with the paper's claims about figures 8 and 11."""
    less, paper, wide, only = found
    changed = np.abs(wide - paper)
    order = np.corrcoef(levels, paper[:, 1])[0, 1]
    rise = (less - paper)[:, :2].mean(axis=0)
    fall = (less - paper)[:, 3].mean()
    return [
        Finding(
            "recall follows the level of truncation (figure 8)",
            "reflects it",
            f"from {paper[0, 1]:.2f} to {paper[-1, 1]:.2f}, correlation {order:.2f}",
            bool(order > 0.8),
        ),
        Finding(
            "quality is perfect with delta = epsilon (figure 8)",
            "1 at every level",
            f"between {paper[:, 3].min():.4g} and {paper[:, 3].max():.4g}",
            bool((paper[:, 3][paper[:, 1] > 0] == 1).all()),
        ),
        Finding(
            "a larger epsilon, and delta with it, changes scores slightly (figure 11)",
            "only slight changes",
            ", ".join(
                f"{name} by {mean:.2f} (at most {most:.2f})"
                for name, mean, most in zip(
                    SCORES, changed.mean(axis=0), changed.max(axis=0), strict=True
                )
            ),
            bool(changed.mean() < 0.15),
        ),
        Finding(
            "if delta stays behind, quality falls as with a smaller delta",
            "not shown",
            f"by {(only - wide)[:, 3].mean():+.3f} on average",
            bool((only - wide)[:, 3].mean() < 0),
        ),
        Finding(
            "a smaller delta raises precision and recall (figure 11)",
            "increase",
            f"by {rise[0]:+.3f} and {rise[1]:+.3f} on average",
            bool((rise > 0).all()),
        ),
        Finding(
            "and lowers quality (figure 11)",
            "decreases",
            f"by {fall:+.3f} on average",
            bool(fall < 0),
        ),
    ]


if __name__ == "__main__":
    publish("geomca-distances", reproduce)
