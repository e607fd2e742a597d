"""The findings of the spectrum: its part of the results, scores and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.spectrum.lengths import bin_ends
from latentscale_pipeline.measures.base import (
    CorpusFacts,
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.spectrum.plan import stage_name
from latentscale_pipeline.measures.spectrum.results import (
    RowLengths,
    SpectrumOfCorpus,
    SpectrumResults,
)
from latentscale_pipeline.storage.artifacts import Artifact

UNITS: dict[str, tuple[str, str]] = {
    "effective rank": ("dimensions", "none"),
    "effective rank corrected": ("dimensions", "none"),
    "participation ratio": ("dimensions", "none"),
    "participation ratio corrected": ("dimensions", "none"),
    "RankMe": ("dimensions", "high"),
    "IsoScore": ("share", "high"),
    "first component": ("share of the variance", "none"),
    "mean length": ("distance", "none"),
    "length variation": ("deviation over mean", "none"),
}
"""Unit of each score, and which direction is better."""

SIZE_INDEPENDENT = (
    "effective rank corrected",
    "participation ratio corrected",
    "mean length",
    "length variation",
)
"""Scores that are compared between corpora of different sizes."""

PLACES = 48
"""Numbers of components at which the explained share is kept."""


def collect_spectrum(facts: JobFacts, results: Results) -> Findings:
    """Collect the scores of every corpus."""
    parts: dict[Role, SpectrumOfCorpus] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    for role, corpus in facts.corpora.items():
        found = results(stage_name(role))
        parts[role] = _part(corpus, found)
        for name, (unit, better) in UNITS.items():
            value = found.values["scores"][name]
            scores.append(
                Score.from_estimate(
                    load_estimate(value["estimate"]) if "estimate" in value else None,
                    measure="spectrum",
                    of=role,
                    score=name,
                    unit=unit,
                    better=better,
                    reason=value.get("reason"),
                    sampling_error=value.get("sampling_error"),
                    size_dependent=name not in SIZE_INDEPENDENT,
                )
            )
        arrays |= {f"spectrum/{role}/{name}": found.path(name) for name in ("shares", "lengths")}
    own = parts["corpus"]
    part = SpectrumResults(corpus=own, reference=parts.get("reference"))
    curve = (list(map(float, own.components)), own.shares) if own.shares else None
    return Findings(part, tuple(scores), arrays, curve=curve)


def _part(corpus: CorpusFacts, found: Artifact) -> SpectrumOfCorpus:
    held = np.minimum(np.cumsum(found.array("shares")), 1.0)
    # The same for all corpora of this many dimensions, so that samples compare.
    components = np.unique(np.rint(np.geomspace(1, corpus.d, PLACES)).astype(np.int64))
    known: dict[str, Any] = {"shares": []}
    if len(held):
        known = {
            "shares": held[np.minimum(components, len(held)) - 1].tolist(),
            "components_90": int(np.searchsorted(held, 0.9)) + 1,
            "components_99": int(np.searchsorted(held, 0.99)) + 1,
        }
    return SpectrumOfCorpus(
        n=corpus.n,
        dimensions=corpus.d,
        groups=found.values["groups"],
        components=components.tolist(),
        lengths=_lengths(found.values, found.array("lengths")),
        **known,
    )


def _lengths(values: Any, counts: NDArray[np.int64]) -> RowLengths:
    """Return the histogram from the first bin with rows to the last."""
    filled = np.flatnonzero(counts)
    kept = slice(int(filled[0]), int(filled[-1]) + 1) if len(filled) else slice(0, 0)
    return RowLengths(
        zero_rows=values["zero_rows"],
        least=values["least_length"],
        largest=values["largest_length"],
        edges=bin_ends()[kept.start : kept.stop + 1].tolist(),
        counts=counts[kept].tolist(),
    )
