"""Whether two jobs can be compared: settings, scales and row counts must match.

A number means something only together with what it was measured with. Name, place and seed may
differ, and so may the corpus, which is what a comparison is for. These may not:

* the settings of a measure that both jobs have;
* the scales of a measure that were derived from data (epsilon, cut-off scale, bandwidths). They are
  alike when they are equal, or when both were derived from the same vectors: another seed draws
  other pairs of rows, which is noted, not refused;
* the number of rows, for a score that depends on it;
* the reference's vectors, for a score of the pair.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.results.model import ROLES, Score
from latentscale_pipeline.storage.canonical import plain
from latentscale_pipeline.views.formatting import printable, write_number

SCALE_TOLERANCE = 1e-6
"""Relative difference that rounding on another machine may make in a scale."""

SHOWN_CHARACTERS = 60
"""Of a setting's value in a message."""

Kind = Literal["setting", "scale", "rows", "reference"]


@dataclass(frozen=True)
class Mismatch:
    """Something that differs between two jobs and keeps scores from being compared."""

    kind: Kind
    what: str
    job: Any
    baseline: Any

    def __str__(self) -> str:
        return f"{self.what} is {_shown(self.job)} here and {_shown(self.baseline)} in the baseline"


@dataclass(frozen=True)
class Comparability:
    """Whether two jobs can be compared.

    Attributes
    ----------
    by_measure : mapping
        What keeps all scores of a measure from being compared.
    notes : tuple of str
        What a reader should know, and what doesn't keep anything from being compared.
    """

    job: FinishedJob
    baseline: FinishedJob
    by_measure: Mapping[str, tuple[Mismatch, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, score: Score) -> tuple[Mismatch, ...]:
        """Return why one score can't be compared."""
        return (*self.by_measure.get(score.measure, ()), *self._of_its_corpora(score))

    def _of_its_corpora(self, score: Score) -> Iterator[Mismatch]:
        for role in ROLES[score.of]:
            ours, theirs = self.job.corpora.get(role), self.baseline.corpora.get(role)
            if ours is None or theirs is None:
                continue
            if score.size_dependent and ours.n != theirs.n:
                yield Mismatch("rows", f"n of the {role}", ours.n, theirs.n)
            if (
                score.of == "pair"
                and role == "reference"
                and ours.fingerprint != theirs.fingerprint
            ):
                prints = (ours.fingerprint, theirs.fingerprint)
                yield Mismatch("reference", "fingerprint of the reference", *prints)


def find_comparability(job: FinishedJob, baseline: FinishedJob) -> Comparability:
    """Compare what two jobs were measured with."""
    notes = [
        f"{found.url} holds no config.json: the settings of its measures are unknown and were "
        "taken to be alike"
        for found in (job, baseline)
        if found.settings is None
    ]
    by_measure: dict[str, tuple[Mismatch, ...]] = {}
    ours, theirs = _sections(job), _sections(baseline)
    for measure in ours:
        if measure in theirs:
            found = _setting_differences(f"measures.{measure}", ours[measure], theirs[measure])
            by_measure[measure] = tuple(found)
    same_source = _scale_source(job) is not None and _scale_source(job) == _scale_source(baseline)
    for measure, differing in _scale_differences(job, baseline):
        set_differently = by_measure.get(measure, ())
        if not same_source:
            by_measure[measure] = (*set_differently, differing)
        elif not set_differently:
            notes.append(f"{differing}, derived from the same vectors by another draw of rows")
    return Comparability(job, baseline, by_measure, tuple(notes))


def _sections(job: FinishedJob) -> Mapping[str, Any]:
    sections = plain((job.settings or {}).get("measures"))
    return sections if isinstance(sections, dict) else {}


def _setting_differences(path: str, ours: Any, theirs: Any) -> Iterator[Mismatch]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*ours, *theirs]):
            yield from _setting_differences(f"{path}.{key}", ours.get(key), theirs.get(key))
    elif ours != theirs:
        yield Mismatch("setting", path, ours, theirs)


def _scale_source(job: FinishedJob) -> str | None:
    """Return the fingerprint of the vectors that scales were derived from, where they were."""
    source = (job.settings or {}).get("scales_from")
    if source == "auto":
        source = "reference" if "reference" in job.corpora else "corpus"
    corpus = job.corpora.get(source) if source in ("corpus", "reference") else None
    return None if corpus is None else corpus.fingerprint


def _scale_differences(job: FinishedJob, baseline: FinishedJob) -> Iterator[tuple[str, Mismatch]]:
    for name, measure in MEASURES.items():
        ours, theirs = (
            dict(measure.scales(found)) if (found := one.results.part(name)) else {}
            for one in (job, baseline)
        )
        for scale in (scale for scale in ours if scale in theirs):
            if not math.isclose(ours[scale], theirs[scale], rel_tol=SCALE_TOLERANCE):
                yield name, Mismatch("scale", scale, ours[scale], theirs[scale])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return write_number(value, 7)
    text = value if isinstance(value, str) else json.dumps(value)
    text = printable(text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
