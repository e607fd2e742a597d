"""The twin property: figure S.5 of Limbeck et al. (2024).

    python reproductions/magnitude_twins.py

A Gaussian of 100 points whose centre is repeated, and one with 10 outliers that are repeated.
MagArea mustn't change; the Vendi score, the mean similarity and the mean deviation do.
"""

from __future__ import annotations

import numpy as np

import latentscale
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, bracketed, publish

POINTS, OUTLIERS = 100, 10
MULTIPLICITIES = (0, 1, 2, 5, 10, 20, 50, 100)
MEASURES = ("MagArea", "Vendi score", "mean similarity", "GMStds")


def cases() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the rows of both cases, and those that are repeated."""
    generator = np.random.default_rng(5)
    gaussian = generator.normal(size=(POINTS, 2)).astype(np.float32)
    outliers = (generator.normal(size=(OUTLIERS, 2)) + 8.0).astype(np.float32)
    centre = int(np.square(gaussian).sum(axis=1).argmin())
    return {
        "X5: centre": (gaussian, gaussian[[centre]]),
        "X6: outliers": (np.concatenate([gaussian, outliers]), outliers),
    }


def measures(rows: np.ndarray, scales: list[float]) -> tuple[list[float], float]:
    """Return all four measures, and half the width of MagArea's bracket."""
    area = latentscale.magnitude_function(rows, scales=scales).area
    score = latentscale.vendi_score(rows, kernel="laplacian", bandwidth=1.0, orders=[1])[1]
    separations = np.sqrt(np.square(rows[:, None].astype(float) - rows[None]).sum(axis=2))
    similarity = float(np.exp(-separations).mean())
    deviation = float(np.exp(np.log(rows.astype(float).std(axis=0)).mean()))
    return [area.value, score.value, similarity, deviation], (area.upper - area.lower) / 2


def reproduce(short: bool) -> Reproduction:
    multiplicities = (0, 1, 20) if short else MULTIPLICITIES
    findings, panels, numbers = [], [], {}
    for name, (rows, repeated) in cases().items():
        alone = latentscale.magnitude_function(rows, scales=10)
        scales = alone.scales.tolist()
        found, halves = [], []
        for multiplicity in multiplicities:
            values, half = measures(np.concatenate([rows, *[repeated] * multiplicity]), scales)
            found.append(values)
            halves.append(half)
        relative = np.array(found) / np.array(found[0])
        worst = np.abs(relative - 1).max(axis=0)
        findings += [
            Finding(
                f"{name} repeated up to {multiplicities[-1]} times: MagArea doesn't change",
                "unchanged",
                f"by at most {worst[0]:.0e}, from {bracketed(alone.area)}",
                bool(worst[0] <= 1e-9),
            ),
            Finding(
                f"{name}: the others do",
                "inconsistent changes",
                ", ".join(f"{m} by {w:.0%}" for m, w in zip(MEASURES[1:], worst[1:], strict=True)),
                bool((worst[1:] > 0.01).all()),
            ),
        ]
        panels.append(
            Panel(
                name,
                "copies",
                "relative to none",
                [Curve(m, multiplicities, relative[:, k]) for k, m in enumerate(MEASURES)],
            )
        )
        numbers[name] = {"found": found, "half_widths_of_area": halves}
    outliers = np.array(numbers["X6: outliers"]["found"])[:, 1]
    turns = bool(outliers.argmax() not in (0, len(outliers) - 1))
    findings.append(
        Finding(
            "the Vendi score of X6 rises at first and falls later",
            "switches trends",
            f"{outliers[0]:.3g}, at most {outliers.max():.3g}, at last {outliers[-1]:.3g}",
            turns,
        )
    )
    return Reproduction(
        findings=findings,
        panels=panels,
        numbers={"multiplicities": multiplicities, "measures": MEASURES, **numbers},
        data="100 normal points in the plane, 10 outliers around (8, 8), seed 5",
        columns=2,
    )


if __name__ == "__main__":
    publish("magnitude-twins", reproduce)
