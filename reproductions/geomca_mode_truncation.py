"""Modes missing and modes added: figures 5, 7, 10 and 12 of Poklukar et al. (2021).

    python reproductions/geomca_mode_truncation.py

Twelve clusters with the sizes of the paper's table 2 stand for the encodings of its twelve classes
of box arrangements: close, well-separated ones for the model that separates classes (Siamese), and
broad ones for the model that doesn't (SimCLR). The reference has the first seven classes, the set
under evaluation the first t + 1.
"""

from __future__ import annotations

import numpy as np

import latentscale
from jobs import results_of
from latentscale.baselines.manifold_overlap import exact_overlap
from latentscale.geomca.epsilon_graph import epsilon_components
from latentscale.tiles.distances import as_points
from latentscale_pipeline.views.figure import Curve, Panel
from records import Finding, Reproduction, publish

TRAIN = (670, 690, 395, 706, 349, 409, 295)
HOLDOUT = (666, 625, 373, 684, 429, 377, 309, 312, 310, 293, 279, 345)
LAST = 6
"""The class at which the set under evaluation matches the reference."""

DIMENSION = 12
SPREADS = {"separated": (0.05, 2), "broad": (0.25, 8)}
"""Deviation of a class along each of so many directions; centres are 1.4 apart."""

PAPER = {"percentile": 1.0, "delta": 0.5, "eta_c": 0.75, "eta_q": 0.45}
ETAS_Q, ETAS_C = (0.0, 0.1, 0.3), (0.0, 0.4, 0.6)
LARGE, A_CLASS = 100, 250
SCORES = ("precision", "recall", "improved precision", "improved recall")


def classes(sizes: tuple[int, ...], kind: str, seed: int) -> list[np.ndarray]:
    """Draw the encodings of every class; the class centres are fixed."""
    deviation, inside = SPREADS[kind]
    fixed = np.random.default_rng(7)
    centres = np.linalg.qr(fixed.normal(size=(DIMENSION, DIMENSION)))[0]
    axes = np.linalg.qr(fixed.normal(size=(len(HOLDOUT), DIMENSION, inside)))[0]
    generator = np.random.default_rng(seed)
    return [
        centres[k] + deviation * generator.normal(size=(size, inside)) @ axes[k].T
        for k, size in enumerate(sizes)
    ]


def shares_of_modes(t: int) -> tuple[float, float]:
    """Precision and recall by the classes' sizes, if every class is a component of its own."""
    covered = min(t, LAST) + 1
    return sum(HOLDOUT[:covered]) / sum(HOLDOUT[: t + 1]), sum(TRAIN[:covered]) / sum(TRAIN)


def overlap(reference: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """Return improved precision and recall (k = 3) for equally many rows of both sets."""
    generator = np.random.default_rng(0)
    size = min(len(reference), len(rows))
    parts = [part[generator.permutation(len(part))[:size]] for part in (rows, reference)]
    found = exact_overlap(*(as_points(part, "euclidean") for part in parts), 3)
    return found.precision, found.recall


def reproduce(short: bool) -> Reproduction:
    """Run the experiments on truncation, corruption and separation of modes."""
    steps = (0, 6, 11) if short else tuple(range(12))
    kinds = ("separated",) if short else tuple(SPREADS)
    truncated = {kind: truncation(kind, steps) for kind in kinds}
    corrupted = corruption((3,) if short else (1, 3, 5, 6))
    epsilons = (0.2, 0.5) if short else tuple(k / 20 for k in range(1, 19))
    separable = {kind: separability(kind, epsilons) for kind in kinds}
    return Reproduction(
        findings=[
            *claims_of_truncation(truncated, steps),
            *claims_of_thresholds(corrupted),
            *claims_of_separation(separable, epsilons),
        ],
        panels=[
            *(
                Panel(
                    f"{name} classes",
                    "last class t",
                    "score",
                    [Curve(score, steps, values[score]) for score in SCORES],
                )
                for name, values in truncated.items()
            ),
            Panel(
                "corrupted classes, recall",
                "last class t",
                "recall",
                [
                    Curve(name, corrupted["t"], recall)
                    for name, (_, recall) in thresholds(corrupted)
                ],
            ),
            Panel(
                "components of more than 100 points",
                "epsilon",
                "components",
                [Curve(name, epsilons, values["large"]) for name, values in separable.items()],
            ),
            Panel(
                "network quality",
                "epsilon",
                "quality",
                [Curve(name, epsilons, values["quality"]) for name, values in separable.items()],
            ),
        ],
        numbers={
            "steps": steps,
            "truncation": truncated,
            "corruption": corrupted,
            "epsilons": epsilons,
            "separability": separable,
        },
        data="twelve clusters of the paper's sizes in 12 dimensions, seeds 1 to 4",
    )


# --- experiments -----------------------------------------------------------------------------


def truncation(kind: str, steps: tuple[int, ...]) -> dict[str, list[float]]:
    """Figure 5: precision and recall over t, and the improved ones beside them."""
    reference = np.concatenate(classes(TRAIN, kind, 1))
    holdout = classes(HOLDOUT, kind, 2)
    values: dict[str, list[float]] = {name: [] for name in SCORES}
    joined: list[float] = []
    for t in steps:
        rows = np.concatenate(holdout[: t + 1])
        found = latentscale.geomca_scores(rows, reference, **PAPER)
        improved = overlap(reference, rows)
        pair = (found.scores["precision"].value, found.scores["recall"].value)
        for name, value in zip(values, (*pair, *improved), strict=True):
            values[name].append(value)
        joined.append(classes_in_one_component(found.reference_membership, TRAIN))
    return {**values, "epsilon": [found.epsilon], "joined": joined}


def classes_in_one_component(membership: np.ndarray, sizes: tuple[int, ...]) -> int:
    """Return the largest number of classes that have most of their rows in one component."""
    ends = np.cumsum(sizes)[:-1]
    homes = []
    for ranks in np.split(membership, ends):
        rows_of = np.bincount(ranks[ranks >= 0], minlength=1)
        if 2 * rows_of.max() > len(ranks):
            homes.append(int(rows_of.argmax()))
    return max(map(homes.count, homes), default=0)


def corruption(steps: tuple[int, ...]) -> dict[str, list]:
    """Figure 12: every class but the first with a random part of its rows, over thresholds."""
    generator = np.random.default_rng(3)
    reference = np.concatenate(classes(TRAIN, "separated", 1))
    holdout = classes(HOLDOUT, "separated", 2)
    parts = [holdout[0]] + [
        rows[: generator.integers(1, max(2, len(rows) // 3))] for rows in holdout[1:]
    ]
    found: dict[str, list] = {"t": list(steps), "eta_q": [], "eta_c": [], "reference": []}
    # One job a step: a sweep shares the graph of all thresholds.
    sweep = {"eta_c": [*ETAS_C, PAPER["eta_c"]], "eta_q": [*ETAS_Q, PAPER["eta_q"]]}
    for t in steps:
        rows = np.concatenate(parts[: t + 1])
        results = results_of({"geomca": {**PAPER, "sweep": sweep}}, rows, reference)
        scores = {
            (entry["eta_c"], entry["eta_q"]): [entry["precision"], entry["recall"]]
            for entry in results["measures"]["geomca"]["sweep"]
        }
        found["eta_q"].append([scores[0.0, eta] for eta in ETAS_Q])
        found["eta_c"].append([scores[eta, 0.0] for eta in ETAS_C])
        found["reference"].append(scores[PAPER["eta_c"], PAPER["eta_q"]])
    return found


def separability(kind: str, epsilons: tuple[float, ...]) -> dict[str, list[float]]:
    """Figures 7 and 10: 250 points a class and side, all kept, over epsilon."""
    sizes = (A_CLASS,) * (LAST + 1)
    sides = [as_points(np.concatenate(classes(sizes, kind, seed)), "euclidean") for seed in (3, 4)]
    values: dict[str, list[float]] = {"large": [], "quality": []}
    for epsilon in epsilons:
        found = epsilon_components(*sides, float(epsilon))
        values["large"].append(int((found.size > LARGE).sum()))
        edges = found.edges_between.sum() + found.edges_reference.sum() + found.edges_corpus.sum()
        values["quality"].append(float(found.edges_between.sum() / max(1, edges)))
    return values


# --- claims ----------------------------------------------------------------------------------


def claims_of_truncation(
    truncated: dict[str, dict[str, list[float]]], steps: tuple[int, ...]
) -> list[Finding]:
    """Figure 5."""
    findings = []
    for name, values in truncated.items():
        expected = np.array([shares_of_modes(t) for t in steps])
        found = np.column_stack([values["precision"], values["recall"]])
        improved = np.column_stack([values["improved precision"], values["improved recall"]])
        off = np.abs(found - expected).max()
        match = steps.index(LAST)
        correlation = [np.corrcoef(found[:, k], improved[:, k])[0, 1] for k in (0, 1)]
        findings += [
            Finding(
                f"{name} classes: recall grows up to t = 6, precision falls beyond",
                "reflect the number of modes",
                f"off from the shares of modes by {off:.2f} at most",
                bool(off < 0.15),
            ),
            Finding(
                f"{name} classes: both are high at t = 6",
                "both high",
                f"{found[match, 0]:.3f} and {found[match, 1]:.3f}",
                bool(found[match].min() > 0.8),
            ),
            Finding(
                f"{name} classes: agree with improved precision and recall",
                "correlate well",
                f"correlations {correlation[0]:.2f} and {correlation[1]:.2f}",
                min(correlation) > 0.8,
            ),
        ]
    if "broad" in truncated:
        apart, close = (truncated[name]["joined"] for name in ("separated", "broad"))
        findings.append(
            Finding(
                "broad classes: several are one component, separated ones aren't",
                "its reason for a drop",
                f"{min(close)} to {max(close)} of the reference's 7 classes over t, "
                f"separated {min(apart)} to {max(apart)}",
                min(close) > 1 == max(apart),
            )
        )
    return findings


def claims_of_thresholds(found: dict[str, list]) -> list[Finding]:
    """Figure 12."""
    falls = [
        np.diff(np.array(found[name]), axis=1).max() <= 0 and np.ptp(np.array(found[name])[:, :, 1])
        for name in ("eta_q", "eta_c")
    ]
    text = [
        f"recall at t = {found['t'][-1]} for {name} = {', '.join(map(str, etas))}: "
        + ", ".join(f"{pair[1]:.2f}" for pair in found[name][-1])
        for name, etas in (("eta_q", ETAS_Q), ("eta_c", ETAS_C))
    ]
    return [
        Finding(
            f"corrupted classes: scores fall with a larger threshold of {what}",
            "decrease",
            said,
            bool(fallen),
        )
        for what, said, fallen in zip(("quality", "consistency"), text, falls, strict=True)
    ]


def claims_of_separation(
    found: dict[str, dict[str, list[float]]], epsilons: tuple[float, ...]
) -> list[Finding]:
    """Figures 7 and 10."""
    ranges = {
        name: [e for e, large in zip(epsilons, values["large"], strict=True) if large == LAST + 1]
        for name, values in found.items()
    }
    findings = [
        Finding(
            "separated classes give seven large components for a wide range of epsilon (figure 7)",
            "0.1 to 0.6",
            span(ranges["separated"]),
            len(ranges["separated"]) >= len(epsilons) // 3,
        )
    ]
    if "broad" in found:
        low, high = (np.mean(found[name]["quality"]) for name in ("broad", "separated"))
        findings += [
            Finding(
                "broad ones are more sensitive to it (figure 7)",
                "much more sensitive",
                span(ranges["broad"]),
                len(ranges["broad"]) < len(ranges["separated"]) / 2,
            ),
            Finding(
                "separated classes have the higher quality (figure 10)",
                "higher",
                f"means over epsilon {high:.3f} and {low:.3f}",
                bool(high > low),
            ),
        ]
    return findings


def span(values: list[float]) -> str:
    """Return the range of values as text."""
    return f"{min(values):.2g} to {max(values):.2g}" if values else "never"


def thresholds(found: dict[str, list]) -> list[tuple[str, tuple[list[float], list[float]]]]:
    """Return precision and recall over t for every threshold."""
    pairs = []
    for key, etas in (("eta_q", ETAS_Q), ("eta_c", ETAS_C)):
        for k, eta in enumerate(etas):
            column = np.array(found[key])[:, k]
            pairs.append((f"{key} = {eta}", (column[:, 0].tolist(), column[:, 1].tolist())))
    both = np.array(found["reference"])
    pairs.append(("the paper's both", (both[:, 0].tolist(), both[:, 1].tolist())))
    return pairs


if __name__ == "__main__":
    publish("geomca-mode-truncation", reproduce)
