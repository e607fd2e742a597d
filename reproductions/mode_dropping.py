"""Mode dropping, one mode after the other or all at once: figure 5 of Limbeck et al. (2024).

    python reproductions/mode_dropping.py

Ten modes begin with equal sizes. More and more points move to one of them, either from all nine
others at once or from one after the other. According to the paper, diversity falls in the same way
in both cases, and a good measure shows that.
Modes are normal laws with the means and covariances of the ten classes of scikit-learn's
handwritten digits, so that any number of points can be drawn from each.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from latentscale.baselines.manifold_overlap import exact_overlap
from latentscale.magnitude.function import convergence_scale, magnitude_area, magnitude_function
from latentscale.tiles.distances import as_points
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, publish

CLASSES, EACH, NEIGHBOURS, SCALES = 10, 100, 10, 10
MEASURES = ("MagDiff", "magnitude at half the scale", "recall", "coverage")
WAYS = ("simultaneous", "sequential")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Of all points, on the preferred mode."""


class Modes:
    """Normal laws of the digits' classes; constant pixels get a little noise."""

    def __init__(self) -> None:
        pixels, labels = load_digits(return_X_y=True)
        classes = [pixels[labels == kind] for kind in range(CLASSES)]
        self.means = [rows.mean(axis=0) for rows in classes]
        self.roots = []
        for rows in classes:
            variances, axes = np.linalg.eigh(np.cov(rows.T))
            self.roots.append(axes * np.sqrt(np.maximum(variances, 1e-4)))

    def draw(self, kind: int, n: int, generator: np.random.Generator) -> np.ndarray:
        """Draw points of one mode."""
        normal = generator.normal(size=(n, self.roots[kind].shape[1]))
        return self.means[kind] + normal @ self.roots[kind].T


def sizes(way: str, preferred: int, share: float, each: int) -> np.ndarray:
    """Return the number of points of every mode, given the share that has moved."""
    n = CLASSES * each
    moved = round(share * n) - each
    found = np.full(CLASSES, each)
    others = [kind for kind in range(CLASSES) if kind != preferred]
    if way == "simultaneous":
        taken = np.diff(np.round(np.linspace(0, moved, CLASSES)).astype(int))
        found[others] -= taken
    else:
        for kind in others:
            taken = min(each, moved - (found[preferred] - each))
            found[kind] -= taken
            found[preferred] += taken
    found[preferred] = n - found[others].sum()
    return found


def measure(rows: np.ndarray, cut: float) -> tuple[float, float]:
    """Return MagArea up to a scale, and the magnitude at half of that scale."""
    grid = np.linspace(0.0, cut, SCALES)
    scales = np.sort(np.append(grid, cut / 2))
    estimates = dict(
        zip(scales, magnitude_function(as_points(rows, "euclidean"), scales).estimates, strict=True)
    )
    area = magnitude_area(grid, [estimates[scale] for scale in grid])
    return area.value, estimates[cut / 2].value


def reproduce(short: bool) -> Reproduction:
    each, neighbours = (20, 5) if short else (EACH, NEIGHBOURS)
    shares = (0.1, 0.5, 0.9) if short else SHARES
    resamples = 2 if short else 20
    modes = Modes()
    found = np.empty((resamples, len(WAYS), len(shares), len(MEASURES)))
    for resample in range(resamples):
        generator = np.random.default_rng(resample)
        rows = [modes.draw(kind, each, generator) for kind in range(CLASSES)]
        reference = as_points(np.concatenate(rows), "euclidean")
        cut = convergence_scale(reference).value
        whole = measure(reference.rows, cut)
        preferred = resample % CLASSES
        extra = modes.draw(preferred, CLASSES * each, generator)
        for w, way in enumerate(WAYS):
            for s, share in enumerate(shares):
                left = sizes(way, preferred, share, each)
                kept = [part[:size] for part, size in zip(rows, left, strict=True)]
                kept[preferred] = np.concatenate([kept[preferred], extra])[: left[preferred]]
                changed = np.concatenate(kept)
                area, half = measure(changed, cut)
                points = as_points(changed, "euclidean")
                overlap = exact_overlap(points, reference, neighbours)
                found[resample, w, s] = (
                    area / whole[0] - 1, half / whole[1] - 1, overlap.recall, overlap.coverage,
                )  # fmt: skip
    return told(found, shares, each, neighbours)


def told(found: np.ndarray, shares: tuple[float, ...], each: int, k: int) -> Reproduction:
    relative = found.copy()
    relative[..., 2:] = found[..., 2:] / found[:, :, :1, 2:] - 1
    mean, deviation = relative.mean(axis=0), relative.std(axis=0)
    # How far the two ways are apart, in units of the whole fall.
    apart = np.abs(mean[0] - mean[1]).max(axis=0) / np.abs(mean).max(axis=(0, 1))
    ahead = (mean[0] - mean[1])[1:-1].min(axis=0)
    middle = int(np.abs(np.array(shares) - 0.7).argmin())
    monotone = (np.diff(mean[..., :2], axis=1) < 0).all(axis=(0, 1))
    return Reproduction(
        findings=[
            Finding(
                f"{name} falls, and alike in both ways (figure 5)",
                "the same decrease",
                f"the ways differ by at most {apart[m]:.0%} of the fall",
                bool(monotone[m] and apart[m] < 0.25),
            )
            for m, name in enumerate(MEASURES[:2])
        ]
        + [
            Finding(
                f"{name} falls faster when modes go one after the other",
                "wrongly faster",
                f"the ways differ by {apart[m]:.0%} of the fall; sequential is never ahead "
                f"by more than {max(0.0, -ahead[m]):.3f}",
                bool(apart[m] > 0.25 and ahead[m] > -0.05),
            )
            for m, name in enumerate(MEASURES)
            if m > 1
        ]
        + [
            Finding(
                "coverage sees simultaneous dropping late",
                "after about 70 %",
                f"{mean[0, middle, 3]:+.0%} at a share of {shares[middle]:.1f}",
                bool(mean[0, middle, 3] > -0.25),
            )
        ],
        panels=[
            Panel(
                name,
                "share of points on one mode",
                "relative change",
                [
                    Curve(
                        way,
                        shares,
                        mean[w, :, m],
                        (mean - deviation)[w, :, m],
                        (mean + deviation)[w, :, m],
                    )
                    for w, way in enumerate(WAYS)
                ],
            )
            for m, name in enumerate(MEASURES)
        ],
        numbers={
            "measures": MEASURES,
            "ways": WAYS,
            "shares": shares,
            "mean_relative_change": mean.tolist(),
            "deviation": deviation.tolist(),
            "largest_difference_of_ways_over_fall": apart.tolist(),
        },
        data=f"ten normal modes after the digits' classes, {each} points each, k = {k}, "
        f"{found.shape[0]} resamples",
        columns=2,
    )


if __name__ == "__main__":
    publish("mode-dropping", reproduce)
