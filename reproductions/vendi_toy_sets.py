"""Vendi scores of small sets with known diversity: figure 1 of both papers, figure 2 of the first.

    python reproductions/vendi_toy_sets.py

Items have a shape and a colour; two are alike by 1, 0.5 or 0 as they share both, one or neither.
That is the cosine of the features (one-hot shape, one-hot colour), so the ordinary cosine kernel
computes it. Within a class, items are made less alike by features of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import latentscale
from latentscale.estimate import Estimate
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, bracketed, publish

ORDERS = (0.1, 0.5, 1.0, 2.0, float("inf"))
KINDS = 12
"""Shapes, and colours, that there can be."""

IMBALANCED = ((0.5, 0.5), (0.49, 0.49, 0.02), (0.48, 0.48, 0.02, 0.02))
"""Shares of two common classes, and of one or two rare ones beside them."""

Scores = dict[str, Estimate]


def items(shapes: Sequence[int], colours: Sequence[int] | None = None) -> np.ndarray:
    """Features whose cosines are the share of attributes that two items have in common."""
    kinds = np.eye(KINDS)
    if colours is None:
        return kinds[list(shapes)]
    return np.hstack([kinds[list(shapes)], kinds[list(colours)]])


def spread_classes(classes: int, size: int, similarity: float) -> np.ndarray:
    """Classes without anything in common, whose members are this similar to each other."""
    n = classes * size
    of_class = np.repeat(np.eye(classes), size, axis=0)
    return np.hstack([np.sqrt(similarity) * of_class, np.sqrt(1 - similarity) * np.eye(n)])


def scores(rows: np.ndarray, **options: Any) -> Scores:
    return dict(latentscale.vendi_score(rows, orders=ORDERS, **options).scores)


def mean_dissimilarity(rows: np.ndarray) -> float:
    """IntDiv: one minus the mean cosine of all ordered pairs."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return float(1.0 - (unit @ unit.T).mean())


def copies(shares: Sequence[float], n: int) -> list[int]:
    counts = [round(share * n) for share in shares]
    return [kind for kind, count in enumerate(counts) for _ in range(count)]


def mixture(shares: Sequence[float], deviation: float, n: int, seed: int) -> np.ndarray:
    """One-dimensional normals, ten apart."""
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(n, shares)
    means = np.repeat(10.0 * np.arange(len(shares)), counts)
    return (means + deviation * generator.normal(size=n))[:, None]


def reproduce(short: bool) -> Reproduction:
    n = 100 if short else 600
    most = 4 if short else KINDS
    modes = range(1, most + 1)
    balanced = [scores(items(copies([1 / m] * m, n - n % m))) for m in modes]
    alike = [mean_dissimilarity(items(copies([1 / m] * m, n - n % m))) for m in modes]
    imbalanced = [scores(items(copies(shares, n))) for shares in IMBALANCED]

    four = list(np.arange(n) % 4)
    other = list(np.arange(n) // 4 % 4)
    shape_only, both = scores(items(four)), scores(items(four, other))
    intdiv_shape = mean_dissimilarity(items(four))
    intdiv_both = mean_dissimilarity(items(four, other))
    # Colours follow shapes for a share of the items, and go their own way for the rest.
    shares = (1.0, 0.5, 0.0) if short else (1.0, 0.75, 0.5, 0.25, 0.0)
    correlated = [mixed_colours(four, other, share) for share in shares]
    by_correlation = [scores(rows) for rows in correlated]
    intdiv_correlated = [mean_dissimilarity(rows) for rows in correlated]

    similarities = (1.0, 0.8, 0.5) if short else (1.0, 0.95, 0.9, 0.8, 0.65, 0.5)
    inside = [scores(spread_classes(3, n // 10, similarity)) for similarity in similarities]
    deviations = (0.1, 0.5) if short else (0.1, 0.2, 0.3, 0.4, 0.5)
    rbf = {"kernel": "rbf", "bandwidth": 1.0}
    normals = [scores(mixture([0.2] * 5, d, n, 0), **rbf) for d in deviations]
    components = range(1, 4 if short else 6)
    by_components = [scores(mixture([1 / m] * m, 0.1, n, 1), **rbf) for m in components]

    everything = [
        *balanced, *imbalanced, shape_only, both, *by_correlation, *inside, *normals,
    ]  # fmt: skip
    return Reproduction(
        findings=[
            *counting(balanced, alike),
            *imbalance(imbalanced),
            *attributes(shape_only, both, intdiv_shape, intdiv_both),
            *correlation(by_correlation, intdiv_correlated),
            *variance_inside(inside, similarities),
            *of_normals(by_components, normals),
            *ordering(everything),
        ],
        panels=[
            by_order("number of classes", list(modes), balanced, "balanced classes"),
            by_order("classes, the last ones rare", [2, 3, 4], imbalanced, "imbalance"),
            by_order("share that follows", list(shares), by_correlation, "correlated attributes"),
            by_order("1 - similarity", [1 - s for s in similarities], inside, "inside classes"),
            by_order("modes", list(components), by_components, "normal modes"),
            by_order("deviation of a mode", list(deviations), normals, "five normal modes"),
        ],
        numbers={
            "orders": [f"{order:g}" for order in ORDERS],
            "balanced": [values(found) for found in balanced],
            "imbalanced": [values(found) for found in imbalanced],
            "shape_only": values(shape_only),
            "shape_and_colour": values(both),
            "by_correlation": [values(found) for found in by_correlation],
            "by_similarity": [values(found) for found in inside],
            "by_components": [values(found) for found in by_components],
            "by_deviation": [values(found) for found in normals],
        },
        data="items with shapes and colours; normal mixtures, seeds 0 and 1",
    )


def mixed_colours(shapes: list[int], others: list[int], share: float) -> np.ndarray:
    """Colours equal to the shapes for this share of items, spread evenly, else independent."""
    follows = (np.arange(len(shapes)) // 16 * 0.618034) % 1 < share
    return items(shapes, np.where(follows, shapes, others).tolist())


def values(found: Scores) -> dict[str, list[float]]:
    return {order: [e.value, e.lower, e.upper] for order, e in found.items()}


def by_order(label: str, x: list[float] | list[int], found: list[Scores], title: str) -> Panel:
    curves = [
        Curve(
            f"order {order}",
            x,
            [scores[order].value for scores in found],
            [scores[order].lower for scores in found],
            [scores[order].upper for scores in found],
        )
        for order in found[0]
    ]
    return Panel(title, label, "Vendi score", curves)


# --- claims ----------------------------------------------------------------------------------


def counting(balanced: list[Scores], alike: list[float]) -> list[Finding]:
    exact = [abs(e.value - m) for m, found in enumerate(balanced, 1) for e in found.values()]
    gains = np.diff(alike)
    return [
        Finding(
            "all orders count balanced, distinct classes (1a, A)",
            "the number of classes",
            f"off by at most {max(exact):.0e}, 1 to {len(balanced)} classes",
            max(exact) < 1e-3,
        ),
        Finding(
            "IntDiv gains less with every class (1a)",
            "converges to 1",
            f"gains fall from {gains[0]:.2f} to {gains[-1]:.3f}",
            bool((np.diff(gains) < 0).all()),
        ),
    ]


def imbalance(found: list[Scores]) -> list[Finding]:
    last = found[-1]
    misses = [4 - last[order].value for order in last]
    return [
        Finding(
            "smaller orders come nearer the number of imbalanced classes (B)",
            "q = 1 gives about 3 for 4 classes",
            ", ".join(f"q = {order}: {bracketed(last[order])}" for order in ("0.1", "1", "inf")),
            all(np.diff(misses) > 0) and last["0.1"].value > 3.5 and last["1"].value < 3,
        )
    ]


def attributes(shape: Scores, both: Scores, before: float, after: float) -> list[Finding]:
    raised = [order for order in both if both[order].lower > shape[order].upper + 1e-6]
    return [
        Finding(
            "two attributes raise the score of every order but infinity (1b, C)",
            "all q but infinity",
            f"raised: {', '.join(raised)}; q = 1: {shape['1'].value:.3g} to {both['1'].value:.3g}",
            raised == list(both)[:-1],
        ),
        Finding(
            "IntDiv stays as it is (1b)",
            "unchanged",
            f"{before:.4f} and {after:.4f}",
            abs(before - after) < 5e-3,
        ),
    ]


def correlation(found: list[Scores], alike: list[float]) -> list[Finding]:
    rises = {order: np.diff([scores[order].value for scores in found]) for order in found[0]}
    rising = [order for order, steps in rises.items() if (steps > 1e-6).all()]
    ends = f"{found[0]['1'].value:.3g} to {found[-1]['1'].value:.3g}"
    return [
        Finding(
            "less correlated attributes, higher scores, but at infinity (1c, D)",
            "all q but infinity",
            f"rising: {', '.join(rising)}; q = 1 from {ends}",
            rising == list(found[0])[:-1],
        ),
        Finding(
            "IntDiv doesn't see the correlation (1c)",
            "unchanged",
            f"{alike[0]:.4f} to {alike[-1]:.4f}",
            max(alike) - min(alike) < 5e-3,
        ),
    ]


def variance_inside(found: list[Scores], similarities: Sequence[float]) -> list[Finding]:
    growth = {order: found[-1][order].value / found[0][order].value for order in found[0]}
    least = min(growth, key=lambda order: growth[order])
    steps = [found[k + 1]["0.1"].value / found[k]["0.1"].value for k in range(len(found) - 1)]
    return [
        Finding(
            "the order infinity resists variance inside classes best (E)",
            "infinity most resistant",
            ", ".join(f"q = {order}: x {factor:.3g}" for order, factor in growth.items()),
            least == "inf",
        ),
        Finding(
            "order 0.1 hardly tells one amount of variance from another (E)",
            "S2 and S3 nearly equal",
            f"first step x {steps[0]:.3g}, last x {steps[-1]:.3g}",
            steps[-1] < 1.1 < steps[0],
        ),
    ]


def of_normals(components: list[Scores], deviations: list[Scores]) -> list[Finding]:
    counted = [found["1"] for found in components]
    first, last = deviations[0]["1"], deviations[-1]["1"]
    near = [abs(e.value / m - 1) for m, e in enumerate(counted, 1)]
    return [
        Finding(
            "q = 1 counts the modes of normal mixtures (first paper, figure 2)",
            f"1 to {len(counted)}",
            ", ".join(f"{e.value:.3g}" for e in counted),
            max(near) < 0.1,
        ),
        Finding(
            "and grows with the variance of five modes",
            "5 to 7",
            f"{bracketed(first)} to {bracketed(last)}",
            4.8 < first.value < 5.5 and last.lower > first.upper,
        ),
    ]


def ordering(found: list[Scores]) -> list[Finding]:
    falls = all(
        (np.diff([e.value for e in scores.values()]) <= 1e-9 * max(1, scores["0.1"].value)).all()
        for scores in found
    )
    squeezed = [(s["2"].value, s["inf"].value) for s in found]
    held = all(
        np.sqrt(two) <= end * (1 + 1e-9) and end <= two * (1 + 1e-9) for two, end in squeezed
    )
    return [
        Finding("scores fall with the order (eq. 9)", "always", f"{len(found)} sets", falls),
        Finding(
            "the root of order 2 <= order infinity <= order 2 (eq. 10)",
            "always",
            f"{len(found)} sets",
            held,
        ),
    ]


if __name__ == "__main__":
    publish("vendi-toy-sets", reproduce)
