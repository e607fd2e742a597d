"""The findings of the spectrum: its part of the results, scores and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentscale.array_types import Int64Array
from latentscale.spectrum.lengths import bin_ends
from latentscale_pipeline.measures.base import (
    CorpusFacts,
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_scored,
)
from latentscale_pipeline.measures.spectrum.plan import stage_name
from latentscale_pipeline.measures.spectrum.results import (
    RowLengths,
    SpectrumOfCorpus,
    SpectrumResults,
)
from latentscale_pipeline.measures.spectrum.scores import SCORES
from latentscale_pipeline.storage.artifacts import Artifact

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
        for name, definition in SCORES.items():
            value = found.values["scores"][name]
            scores.append(definition.score(load_scored(value), role, reason=value.get("reason")))
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


def _lengths(values: Any, counts: Int64Array) -> RowLengths:
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
