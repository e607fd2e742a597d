"""What each number means, in one sentence, and the paper that defines it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """The name of a score and what it says."""

    title: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: its title, the question it answers and where it is defined."""

    title: str
    question: str
    source: str
    scores: dict[str, Meaning]


@dataclass(frozen=True, slots=True)
class Promise:
    """A way to obtain a bracket and what its two ends promise."""

    name: str
    sentence: str


MEASURES: dict[str, Measure] = {
    "heat": Measure(
        "Shape: heat trace and IMD",
        "Heat diffuses over the graph that joins every row to its nearest neighbours; how fast it "
        "spreads at short and at long times describes the shape of the corpus at every scale.",
        "Tsitsulin et al., The Shape of Data, ICLR 2020, equations 2 to 6",
        {
            "imd": Meaning(
                "Intrinsic distance (IMD)",
                "The largest gap between the two heat traces over all times, weighted so that "
                "times near 1 count most; 0 means the same shape at every scale, whatever the "
                "rotation, scale or dimension of the two corpora.",
            ),
            "heat_trace": Meaning(
                "Heat trace",
                "How much heat is still where it started after the given diffusion time: "
                "at short times it depends on local neighbourhoods, at long times on how well the "
                "whole corpus hangs together.",
            ),
        },
    ),
    "geomca": Measure(
        "Coverage: GeomCA",
        "Both corpora are thinned, points closer than ε are joined, and every connected component "
        "is asked how many points of each corpus it holds and how well they mix.",
        "Poklukar et al., GeomCA, ICML 2021, definitions 2.1 to 3.1",
        {
            "precision": Meaning(
                "Precision",
                "Share of the thinned corpus that lies in components which it shares with the "
                "reference.",
            ),
            "recall": Meaning(
                "Recall",
                "Share of the thinned reference that lies in components which it shares with the "
                "corpus: how much of the reference is covered.",
            ),
            "consistency": Meaning(
                "Consistency",
                "How balanced the thinned points are over the whole graph: 1 for equally many of "
                "both corpora, 0 for points of only one.",
            ),
            "quality": Meaning(
                "Quality",
                "Share of all edges that join a point of the corpus with a point of the reference.",
            ),
            "precision_rows": Meaning(
                "Precision in rows",
                "Precision counted in rows of the corpus, each row with the point that stands "
                "for it after thinning.",
            ),
            "recall_rows": Meaning(
                "Recall in rows",
                "Recall counted in rows of the reference, each row with the point that stands "
                "for it after thinning.",
            ),
        },
    ),
    "magnitude": Measure(
        "Diversity at every scale: magnitude",
        "Magnitude counts the points that are effectively distinct when distances are multiplied "
        "by t: one when everything looks alike, all of them when everything looks apart.",
        "Limbeck et al., Metric Space Magnitude, NeurIPS 2024, definitions 3.1 to 3.5",
        {
            "area": Meaning(
                "MagArea",
                "Area under the magnitude function over the evaluated scales: diversity gathered "
                "over all of them.",
            ),
            "convergence_scale": Meaning(
                "Convergence scale t_conv",
                "The scale at which magnitude has nearly reached the number of distinct points "
                "(95 % of it unless configured otherwise).",
            ),
            "difference": Meaning(
                "MagDiff",
                "Area of the corpus less the area of the reference over the same scales: above 0 "
                "the corpus is the more diverse, below 0 the reference.",
            ),
        },
    ),
    "vendi": Measure(
        "Effective number of items: Vendi scores",
        "The number of completely dissimilar items that would be as diverse as the corpus, under "
        "a kernel that says what similar means.",
        "Friedman and Dieng, The Vendi Score, TMLR 2023, definition 3.1; order q from Pasarkar and "
        "Dieng, Cousins of the Vendi Score, AISTATS 2024, equation 8",
        {
            "vendi": Meaning(
                "Vendi score",
                "Between 1, when all items are alike, and n, when all are completely dissimilar; "
                "low orders listen to rare kinds of items, high orders to the common ones.",
            ),
        },
    ),
    "baselines": Measure(
        "Usual scores beside them: baselines",
        "What other tools report of the same rows, so that these numbers can stand beside theirs.",
        "Heusel et al. 2017 (FID); Bińkowski et al. 2018 (KID); Kynkäänniemi et al. 2019 "
        "(precision and recall); Naeem et al. 2020 (density and coverage)",
        {
            "mean similarity": Meaning(
                "Mean similarity", "Mean cosine similarity of two different rows; lower is diverse."
            ),
            "IntDiv": Meaning(
                "IntDiv", "One less the mean cosine similarity of all pairs of rows."
            ),
            "GMStds": Meaning(
                "GMStds", "Geometric mean of the standard deviations of the coordinates."
            ),
            "FID": Meaning(
                "FID",
                "Fréchet distance of two normal distributions with the corpora's means and "
                "covariances.",
            ),
            "KID": Meaning(
                "KID", "Squared distance of the corpora's mean embeddings under a cubic kernel."
            ),
            "precision": Meaning(
                "Improved precision",
                "Share of the corpus within the balls that the reference's neighbours span.",
            ),
            "recall": Meaning(
                "Improved recall",
                "Share of the reference within the balls that the corpus' nearest neighbours span.",
            ),
            "density": Meaning(
                "Density", "How many of the reference's balls a row of the corpus lies in, over k."
            ),
            "coverage": Meaning(
                "Coverage", "Share of the reference's balls that hold a row of the corpus."
            ),
        },
    ),
}
"""The measures with sections of their own, in the order in which the report shows them."""

BOUNDS: dict[str, Promise] = {
    "exact": Promise("exact", "computed directly; the bracket is rounding"),
    "certified": Promise("certified", "a mathematical inequality holds at both ends"),
    "interval95": Promise(
        "95 % interval", "a confidence interval over the computation's own randomness"
    ),
    "estimate": Promise("estimate", "a heuristic at one end or both"),
}
"""How a bracket was obtained, and what that promises."""

BETTER: dict[str, str] = {"high": "higher", "low": "lower", "none": "neither"}
"""Which direction of a score is the better one."""

HEAT_UNITS: dict[str, str] = {
    "none": "heat trace",
    "empty": "heat trace per vertex",
    "complete": "heat trace relative to a complete graph",
    "er": "heat trace relative to a random graph",
}
"""What the vertical axis of the heat trace shows under each normalization."""
