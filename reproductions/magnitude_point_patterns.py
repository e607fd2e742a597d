"""Four point patterns ordered by diversity: table S.2 and figure 1 of Limbeck et al. (2024).

    python reproductions/magnitude_point_patterns.py

Several draws of 200 points each from a Poisson process, a Hawkes process (clustered), two Gaussians
and one Gaussian. The paper states neither their parameters nor the cut-off scale. Those used here
are stated on the page; they were chosen to reproduce the paper's mean similarity and Vendi score,
which don't depend on the scale.
"""

from __future__ import annotations

import numpy as np

import latentscale
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, publish

POINTS, DRAWS, SCALES, CUT = 200, 20, 10, 60.0
SIDE, DEVIATION = 2.0, 0.14
PARENTS, OFFSPRING, NEAR = 80, 0.8, 0.03
NAMES = ("Poisson", "Hawkes", "two Gaussians", "one Gaussian")
PAPER = {"area": (133, 99, 69, 48), "vendi": (14.6, 13.1, 5.7, 3.1),
         "similarity": (0.39, 0.39, 0.51, 0.79)}  # fmt: skip


def hawkes(generator: np.random.Generator) -> np.ndarray:
    """Draw parents uniformly and offspring near them, generation by generation."""
    pattern = list(generator.uniform(0, SIDE, size=(PARENTS, 2)))
    position = 0
    while len(pattern) < POINTS:
        for _ in range(generator.poisson(OFFSPRING)):
            child = pattern[position % len(pattern)] + generator.normal(scale=NEAR, size=2)
            if ((child >= 0) & (child <= SIDE)).all():
                pattern.append(child)
        position += 1
    return np.array(pattern[:POINTS])


def patterns(seed: int) -> tuple[np.ndarray, ...]:
    """Draw all four patterns."""
    generator = np.random.default_rng(seed)
    centres = np.array([[0.25, 0.25], [0.75, 0.75]]) * SIDE
    return (
        generator.uniform(0, SIDE, size=(POINTS, 2)),
        hawkes(generator),
        centres[np.arange(POINTS) % 2] + generator.normal(scale=DEVIATION, size=(POINTS, 2)),
        centres[0] + generator.normal(scale=DEVIATION, size=(POINTS, 2)),
    )


def mean_similarity(rows: np.ndarray) -> float:
    separations = np.sqrt(np.square(rows[:, None] - rows[None]).sum(axis=2))
    return float(np.exp(-separations).mean())


def reproduce(short: bool) -> Reproduction:
    draws = 2 if short else DRAWS
    scales = np.linspace(0.0, CUT, SCALES).tolist()
    areas, halves = np.empty((draws, 4)), np.empty((draws, 4))
    vendi, similarity = np.empty((draws, 4)), np.empty((draws, 4))
    shown = []
    for seed in range(draws):
        for kind, rows in enumerate(patterns(seed)):
            function = latentscale.magnitude_function(rows, scales=scales)
            areas[seed, kind] = function.area.value / CUT
            halves[seed, kind] = (function.area.upper - function.area.lower) / 2 / CUT
            score = latentscale.vendi_score(rows, kernel="laplacian", bandwidth=1.0, orders=[1])
            vendi[seed, kind] = score[1].value
            similarity[seed, kind] = mean_similarity(rows)
            if seed == 0:
                shown.append(Curve(NAMES[kind], function.scales, function.value))
    ordered = int((np.diff(areas, axis=1) < 0).all(axis=1).sum())
    return Reproduction(
        findings=[
            Finding(
                "MagArea orders all four (table S.2)",
                " > ".join(f"{value}" for value in PAPER["area"]),
                f"in {ordered} of {draws} draws; {means(areas, 0)} (per unit of scale)",
                ordered == draws and near(areas, "area", 0.06),
            ),
            Finding(
                "the Vendi score (table S.2)",
                ", ".join(f"{value}" for value in PAPER["vendi"]),
                means(vendi, 1),
                near(vendi, "vendi", 0.1),
            ),
            Finding(
                "mean similarity can't tell Poisson from Hawkes (table S.2)",
                ", ".join(f"{value}" for value in PAPER["similarity"]),
                means(similarity, 2),
                abs(float(np.diff(similarity.mean(axis=0))[0])) < float(similarity[:, 1].std()),
            ),
        ],
        panels=[
            Panel("magnitude functions", "scale", "effective points", shown),
            Panel(
                "MagArea of every draw",
                "pattern (1 Poisson, 2 Hawkes, 3 two Gaussians, 4 one Gaussian)",
                "MagArea per unit of scale",
                [
                    Curve(
                        name,
                        kind + 1 + np.linspace(-0.15, 0.15, draws),
                        areas[:, kind],
                        areas[:, kind] - halves[:, kind],
                        areas[:, kind] + halves[:, kind],
                        points=True,
                    )
                    for kind, name in enumerate(NAMES)
                ],
            ),
        ],
        numbers={
            "names": NAMES,
            "areas": areas.tolist(),
            "largest_half_width": float(halves.max()),
            "vendi": vendi.tolist(),
            "mean_similarity": similarity.tolist(),
            "paper": PAPER,
        },
        data=f"four patterns of {POINTS} points, seeds 0 to {draws - 1}",
        columns=2,
    )


def means(found: np.ndarray, digits: int) -> str:
    return ", ".join(
        f"{mean:.{digits}f} ± {deviation:.{digits}f}"
        for mean, deviation in zip(found.mean(axis=0), found.std(axis=0), strict=True)
    )


def near(found: np.ndarray, column: str, share: float) -> bool:
    return bool((np.abs(found.mean(axis=0) / np.array(PAPER[column]) - 1) <= share).all())


if __name__ == "__main__":
    publish("magnitude-point-patterns", reproduce)
