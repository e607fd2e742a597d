"""Magnitude detects curvature: figure 2 and table 1 of Limbeck et al. (2024).

    python reproductions/magnitude_curvature.py

Unit disks of constant curvature from -2 to 2, 500 points each, even in the surface's own measure:
the plane, a sphere's cap in three dimensions, the Poincaré disk of radius 1/sqrt(-curvature) for
negative curvature, as in the code that the paper refers to (Turkeš et al. 2022). MagArea of
Euclidean distances over 30 scales up to 73, and a fit of the curvature by three straight pieces,
judged by five-fold cross-validation.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from latentscale.magnitude.function import MagnitudeFunction, magnitude_area, magnitude_function
from latentscale.tiles.distances import as_points
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, publish

SURFACES, POINTS, SCALES, CUT, FOLDS = 201, 500, 30, 73.0, 5
PAPER = 0.05
SHOWN = (-2.0, -1.0, 0.0, 1.0, 2.0)


def unit_disk(curvature: float, n: int, generator: np.random.Generator) -> np.ndarray:
    """Draw evenly from a geodesic disk of radius 1; the sphere's in three dimensions."""
    angle = 2 * np.pi * generator.random(n)
    share = generator.random(n)
    if curvature == 0:
        radius = np.sqrt(share)
        return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    root = np.sqrt(abs(curvature))
    if curvature > 0:
        # The area within geodesic radius r grows as 1 - cos(root r).
        polar = np.arccos(1 - share * (1 - np.cos(root)))
        directions = np.column_stack([np.cos(angle), np.sin(angle)])
        return np.column_stack([np.sin(polar)[:, None] * directions, np.cos(polar)]) / root
    distance = np.arccosh(1 + share * (np.cosh(root) - 1)) / root
    # Conformal model in a disk of radius 1/root, whose metric is 4 dx² / (1 - |root x|²)².
    radius = np.tanh(root * distance / 2) / root
    return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])


def area_of(rows: np.ndarray) -> tuple[float, float, MagnitudeFunction]:
    """MagArea, half the width of its bracket, and the function."""
    scales = np.linspace(0.0, CUT, SCALES)
    function = magnitude_function(as_points(rows, "euclidean"), scales)
    area = magnitude_area(scales, function.estimates)
    return area.value, (area.upper - area.lower) / 2, function


# --- the fit ---------------------------------------------------------------------------------


def pieces(x: np.ndarray, breaks: np.ndarray) -> np.ndarray:
    """Columns whose combinations are the continuous lines that bend at these breaks."""
    return np.column_stack([np.ones_like(x), x, *(np.maximum(x - b, 0.0) for b in breaks)])


def fit_pieces(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares over the lines and their two breaks."""

    def misfit(breaks: np.ndarray) -> float:
        columns = pieces(x, breaks)
        weights = np.linalg.lstsq(columns, y, rcond=None)[0]
        return float(np.square(columns @ weights - y).sum())

    quantiles = np.quantile(x, np.linspace(0.1, 0.9, 9))
    starts = [np.array([a, b]) for i, a in enumerate(quantiles) for b in quantiles[i + 1 :]]
    first = min(starts, key=misfit)
    breaks = minimize(misfit, first, method="Nelder-Mead", options={"maxiter": 200}).x
    return breaks, np.linalg.lstsq(pieces(x, breaks), y, rcond=None)[0]


def fit_parabola(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Median regression on a parabola, by weights that make squares into absolute values."""
    columns = np.column_stack([np.ones_like(x), x, x**2])
    weights = np.ones_like(x)
    for _ in range(50):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(columns * root[:, None], y * root, rcond=None)[0]
        weights = 1.0 / np.maximum(np.abs(columns @ found - y), 1e-4)
    return found


def cross_validated(x: np.ndarray, y: np.ndarray, kind: str, seed: int) -> list[float]:
    """Mean squared error of every fold."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(x)), FOLDS)
    errors = []
    for test in parts:
        train = np.setdiff1d(np.arange(len(x)), test)
        middle, width = x[train].mean(), x[train].std()
        inside, outside = (x[train] - middle) / width, (x[test] - middle) / width
        if kind == "pieces":
            breaks, weights = fit_pieces(inside, y[train])
            found = pieces(outside, breaks) @ weights
        else:
            a, b, c = fit_parabola(inside, y[train])
            found = a + b * outside + c * outside**2
        errors.append(float(np.square(found - y[test]).mean()))
    return errors


def reproduce(short: bool) -> Reproduction:
    surfaces, points = (31, 150) if short else (SURFACES, POINTS)
    generator = np.random.default_rng(0)
    curvatures = np.linspace(-2.0, 2.0, surfaces)
    measured = [area_of(unit_disk(float(k), points, generator)) for k in curvatures]
    areas = np.array([area for area, _, _ in measured])
    errors = {
        kind: cross_validated(areas, curvatures, kind, seed=0) for kind in ("pieces", "parabola")
    }
    mean = {kind: float(np.mean(found)) for kind, found in errors.items()}
    spread = {kind: float(np.std(found)) for kind, found in errors.items()}
    below, above = areas[curvatures < 0].max(), areas[curvatures > 0].min()
    shown = [int(np.abs(curvatures - k).argmin()) for k in SHOWN]
    bracket = max(half / area for area, half, _ in measured)
    return Reproduction(
        findings=[
            Finding(
                "three straight pieces tell the curvature from MagArea (table 1, MSE)",
                "0.05 ± 0.03",
                f"{mean['pieces']:.3f} ± {spread['pieces']:.3f} over {FOLDS} folds",
                mean["pieces"] <= PAPER + 0.03,
            ),
            Finding(
                "a quantile regression on a parabola (table 1, MSE)",
                "0.10 ± 0.05",
                f"{mean['parabola']:.3f} ± {spread['parabola']:.3f} over {FOLDS} folds",
                mean["parabola"] <= 0.10 + 0.05,
            ),
            Finding(
                "MagArea falls with curvature where that is positive (figure 2)",
                "falls",
                f"correlation {correlation(areas, curvatures, 0.0, 2.0):.3f}",
                correlation(areas, curvatures, 0.0, 2.0) < -0.5,
            ),
            Finding(
                "and with its size where it is negative (appendix D.1)",
                "falls",
                f"correlation {correlation(areas, -curvatures, 0.0, 2.0):.3f}",
                correlation(areas, -curvatures, 0.0, 2.0) < -0.5,
            ),
            Finding(
                "positive and negative curvature are clearly apart (figure 2)",
                "clear separation",
                f"MagArea at most {below:.0f} below zero, at least {above:.0f} above",
                bool(below < above),
            ),
            Finding(
                "the computation's own error is far below the differences",
                "not stated",
                f"brackets of all areas within {bracket:.0e} of the value",
                bracket < 1e-6,
            ),
        ],
        panels=[
            Panel(
                "magnitude functions",
                "scale",
                "effective points",
                [
                    Curve(
                        f"curvature {curvatures[k]:g}",
                        measured[k][2].scales,
                        [e.value for e in measured[k][2].estimates],
                    )
                    for k in shown
                ],
            ),
            Panel(
                "MagArea over curvature",
                "curvature",
                "MagArea",
                [Curve("one surface", curvatures, areas, points=True)],
            ),
        ],
        numbers={
            "surfaces": surfaces,
            "points": points,
            "curvatures": curvatures.tolist(),
            "areas": areas.tolist(),
            "largest_relative_half_width": bracket,
            "errors": errors,
            "mse": mean,
            "mse_deviation": spread,
        },
        data=f"{surfaces} geodesic unit disks of {points} points, seed 0",
        columns=2,
    )


def correlation(areas: np.ndarray, curvatures: np.ndarray, low: float, high: float) -> float:
    kept = (curvatures >= low) & (curvatures <= high)
    return float(np.corrcoef(areas[kept], curvatures[kept])[0, 1])


if __name__ == "__main__":
    publish("magnitude-curvature", reproduce)
