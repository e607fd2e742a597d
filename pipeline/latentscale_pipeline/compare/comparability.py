"""Check whether two jobs can be compared: settings, scales and row counts must match.

Two scores are comparable only if they were computed in the same way. The jobs may differ in name,
folder, seed and corpus. They must agree in

* the settings of a measure that both jobs have and that decide the score; one that an earlier
  version didn't have has its default;
* for a score that counts rows by their weights, whether the rows of each of its corpora have some;
* the scales of a measure that were derived from data (epsilon, cut-off scale, bandwidths). They
  match if they are equal, or if both were derived from the same vectors with the same weights.
  With another seed, other pairs of rows are drawn, so the scales differ a little; this is noted but
  not refused;
* the number of rows, for a score that depends on it;
* for a score of a label, the number of the label's rows, within a tenth, and the scales derived
  from them, instead of those of the corpus;
* the number of dimensions, for a score that can't be compared between models;
* the reference's vectors, for a score of the pair, and whether they are those of the corpus.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import are_rows_of_label_alike
from latentscale_pipeline.results.model import ROLES, Corpus, Score
from latentscale_pipeline.results.part import Role
from latentscale_pipeline.storage.canonical import plain
from latentscale_pipeline.views.formatting import format_number, label_name, printable, shorten

SCALE_TOLERANCE = 1e-6
"""Relative difference in a scale that rounding on another machine may cause."""

SHOWN_CHARACTERS = 60
"""Maximum length of a setting's value in a message."""

SHOWN_BEFORE = 24
"""Characters that two long values have in common and that are shown before what differs."""

NO_WEIGHTS = "true, but no row has a weight,"
"""Stands for a setting that had nothing to use."""

Kind = Literal["setting", "scale", "own scale", "rows", "dimensions", "reference"]
"""What differs; on samples, an own scale is derived in the same way in both jobs."""


@dataclass(frozen=True)
class Mismatch:
    """A difference between two jobs that makes scores incomparable."""

    kind: Kind
    what: str
    job: Any
    baseline: Any
    label: str | None = None

    def __str__(self) -> str:
        job, baseline = _shown(self.job, self.baseline)
        of_label = "" if self.label is None else f" of label {shorten(label_name(self.label))}"
        return f"{self.what}{of_label} is {job} here and {baseline} in the baseline"


@dataclass(frozen=True)
class Comparability:
    """Whether two jobs can be compared.

    Attributes
    ----------
    by_measure : mapping
        The mismatches that make all scores of a measure incomparable.
    notes : tuple of str
        Remarks for the reader on differences that don't prevent a comparison.
    same_labelled_rows : bool
        Whether the corpora have the same rows with the same labels.
    """

    job: FinishedJob
    baseline: FinishedJob
    by_measure: Mapping[str, tuple[Mismatch, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    same_labelled_rows: bool = False

    def of(self, score: Score, other: Score) -> tuple[Mismatch, ...]:
        """Return the mismatches that make a score of the job and the baseline's incomparable."""
        found = list(self.by_measure.get(score.measure, ()))
        scales = self._scales_of_label(score)
        if scales is not None:
            found = [*(each for each in found if "scale" not in each.kind), *scales]
        found = [each for each in found if _matters(each, score)]
        if any(mismatch.kind == "setting" for mismatch in found):
            # What was set may say the scale, so neither job need have derived its own.
            found = [
                replace(each, kind="scale") if each.kind == "own scale" else each for each in found
            ]
        return (*found, *self._of_its_corpora(score, other))

    def _scales_of_label(self, score: Score) -> list[Mismatch] | None:
        """Return the scales of a score's label in which the jobs differ; None if not known."""
        parts = [each.results.part("labels") for each in (self.job, self.baseline)]
        known = [part.scales or {} if part else {} for part in parts]
        label = score.label
        if label is None or any(label not in scales for scales in known):
            return None
        if self.same_labelled_rows:
            return []
        ours, theirs = (scales[label].get(score.measure, {}) for scales in known)
        return [replace(each, kind="own scale", label=label) for each in _differing(ours, theirs)]

    def _of_its_corpora(self, score: Score, other: Score) -> Iterator[Mismatch]:
        used = [_rows_of(each, score) for each in (self.job, self.baseline)]
        if score.size_dependent and None not in used and used[0] != used[1]:
            yield Mismatch("rows", f"number of pairs of {score.measure}", used[0], used[1])
        if score.of == "pair":
            own = [_compared_with(each) for each in (self.job, self.baseline)]
            if own[0] != own[1]:
                yield Mismatch("reference", "reference", *own)
        for role in ROLES[score.of]:
            ours, theirs = self.job.corpora.get(role), self.baseline.corpora.get(role)
            if ours is None or theirs is None:
                continue
            yield from self._of_weights(role, score)
            measure = MEASURES.get(score.measure)
            known = None not in (ours.d, theirs.d)
            if known and ours.d != theirs.d and not (measure and measure.spans_models(score)):
                yield Mismatch("dimensions", f"dimension of the {role}", ours.d, theirs.d)
            if None in used:
                yield from self._of_rows(role, score, other)
            if (
                score.of == "pair"
                and role == "reference"
                and ours.fingerprint != theirs.fingerprint
            ):
                prints = (ours.fingerprint, theirs.fingerprint)
                yield Mismatch("reference", "fingerprint of the reference", *prints)

    def _of_rows(self, role: Role, score: Score, other: Score) -> Iterator[Mismatch]:
        if not score.size_dependent:
            return
        ours, theirs = self.job.rows_of(score), self.baseline.rows_of(other)
        if score.label is not None and ours and theirs:
            if not are_rows_of_label_alike(ours, theirs):
                yield Mismatch("rows", "number of rows", ours, theirs, score.label)
            return
        whole = [each.corpora[role].n for each in (self.job, self.baseline)]
        if whole[0] != whole[1]:
            yield Mismatch("rows", f"n of the {role}", whole[0], whole[1])

    def _of_weights(self, role: Role, score: Score) -> Iterator[Mismatch]:
        measure, jobs = MEASURES.get(score.measure), (self.job, self.baseline)
        known = [each.measure_settings.get(score.measure) for each in jobs]
        if measure is None or None in known or not _tell_weights(*jobs):
            return
        sections = [_with_defaults(score.measure, section) for section in known]
        has = [each.corpora[role].weighted for each in jobs]
        counts = [
            measure.counts_weights(section, weighted, score)
            for section, weighted in zip(sections, has, strict=True)
        ]
        if counts[0] != counts[1]:
            shown = [
                NO_WEIGHTS if section["weights"] and not weighted else section["weights"]
                for section, weighted in zip(sections, has, strict=True)
            ]
            yield Mismatch("setting", f"measures.{score.measure}.weights of the {role}", *shown)


def _matters(mismatch: Mismatch, score: Score) -> bool:
    """Return whether a score depends on a setting or scale in which two jobs differ."""
    measure = MEASURES.get(score.measure)
    if measure is None:
        return True
    if "scale" in mismatch.kind:
        return measure.depends_on(score, mismatch.what)
    keys = mismatch.what.split(".")[2:3]
    ours, theirs = (
        [measure.deciding_settings({key: value}, score) for key in keys]
        for value in (mismatch.job, mismatch.baseline)
    )
    return not keys or ours != theirs


def _compared_with(job: FinishedJob) -> str:
    """Say what a job's corpus is compared with; every row is at distance 0 from itself."""
    prints = {corpus.fingerprint for corpus in job.corpora.values()}
    return "the corpus itself" if len(prints) < len(job.corpora) else "another corpus"


def _rows_of(job: FinishedJob, score: Score) -> int | None:
    measure, part = MEASURES.get(score.measure), job.results.part(score.measure)
    return None if measure is None or part is None else measure.rows_of(part, score)


def find_comparability(job: FinishedJob, baseline: FinishedJob) -> Comparability:
    """Compare the settings, scales and corpora of two jobs."""
    notes = [
        f"{found.url} holds no config.json: the settings of its measures are unknown and were "
        "assumed to match"
        for found in (job, baseline)
        if found.settings is None
    ]
    dimensions = [each.corpora["corpus"].d for each in (job, baseline) if "corpus" in each.corpora]
    if len({*dimensions} - {None}) > 1:
        notes.append(
            "the corpora have {} and {} dimensions, so the model that made them is another".format(
                *dimensions
            )
        )
    by_measure: dict[str, tuple[Mismatch, ...]] = {}
    ours, theirs = job.measure_settings, baseline.measure_settings
    for measure in ours:
        if measure in theirs:
            sections = [_with_defaults(measure, each[measure]) for each in (ours, theirs)]
            found = _setting_differences(f"measures.{measure}", *sections)
            scores = [s for each in (job, baseline) for s in each.scores if s.measure == measure]
            by_measure[measure] = tuple(
                each
                for each in found
                if not scores or any(_matters(each, s) for s in scores)
                if not (each.what == f"measures.{measure}.weights" and _tell_weights(job, baseline))
            )
    weighted = use_weights(job, baseline)
    same_source = have_same_rows(*map(_scale_source, (job, baseline)), weighted=weighted)
    references = [each.corpora.get("reference") for each in (job, baseline)]
    own = len({found.fingerprint if found else None for found in references}) == 1
    if not own and all(references):
        notes.append(
            "the two jobs have different references, so scores of corpus against reference can't "
            "be compared; run both against one reference"
        )
    for measure, scale in _scale_differences(job, baseline):
        set_differently = by_measure.get(measure, ())
        differing = replace(scale, kind="own scale") if own else scale
        if not same_source:
            by_measure[measure] = (*set_differently, differing)
        elif not set_differently:
            notes.append(f"{differing}, derived from the same vectors by another draw of rows")
    corpora = [each.corpora.get("corpus") for each in (job, baseline)]
    unlabelled = [each is not None and each.labels_fingerprint is None for each in corpora]
    if len({*unlabelled}) > 1:
        lacking = "job" if unlabelled[0] else "baseline"
        notes.append(f"labels weren't compared: the corpus of the {lacking} has none")
    same = have_same_rows(*corpora, weighted=weighted) and have_same_labels(*corpora)
    return Comparability(job, baseline, by_measure, tuple(notes), same)


def _with_defaults(measure: str, settings: Any) -> Any:
    """Return the settings of a measure with the defaults of those that its version didn't have."""
    if measure not in MEASURES or not isinstance(settings, dict):
        return settings
    fields = MEASURES[measure].section.model_fields
    added = {
        name: plain(to_jsonable_python(field.get_default(call_default_factory=True)))
        for name, field in fields.items()
        if name not in settings and not field.is_required()
    }
    return {**added, **settings}


def _tell_weights(*jobs: FinishedJob) -> bool:
    """Return whether jobs say which rows have weights; those of earlier versions don't."""
    return all(corpus.weighted is not None for job in jobs for corpus in job.corpora.values())


def _setting_differences(path: str, ours: Any, theirs: Any) -> Iterator[Mismatch]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*ours, *theirs]):
            yield from _setting_differences(f"{path}.{key}", ours.get(key), theirs.get(key))
    elif ours != theirs:
        yield Mismatch("setting", path, ours, theirs)


def use_weights(*jobs: FinishedJob) -> bool:
    """Return whether a measure of any of these jobs uses weights, if rows have some."""
    return any(
        _with_defaults(measure, section).get("weights", False)
        for job in jobs
        for measure, section in job.measure_settings.items()
        if isinstance(section, dict)
    )


def have_same_rows(ours: Corpus | None, theirs: Corpus | None, *, weighted: bool) -> bool:
    """Return whether two corpora have the same vectors in the same order, of the same weights.

    Weights are compared where they are used. Those in results of earlier versions aren't known, and
    count as others.
    """
    if ours is None or theirs is None:
        return False
    if weighted and (ours.weighted or theirs.weighted):
        weights = ours.weights_fingerprint
        if weights is None or weights != theirs.weights_fingerprint:
            return False
    return (ours.n, ours.fingerprint) == (theirs.n, theirs.fingerprint)


def have_same_labels(ours: Corpus | None, theirs: Corpus | None) -> bool:
    """Return whether the rows of two corpora have the same labels, or either's aren't known."""
    prints = {each.labels_fingerprint for each in (ours, theirs) if each is not None}
    return len(prints - {None}) < 2


def _scale_source(job: FinishedJob) -> Corpus | None:
    """Return the corpus that scales were derived from; None if they weren't."""
    source = (job.settings or {}).get("scales_from")
    if source == "auto":
        source = "reference" if "reference" in job.corpora else "corpus"
    return job.corpora.get(source) if source in ("corpus", "reference") else None


def _scale_differences(job: FinishedJob, baseline: FinishedJob) -> Iterator[tuple[str, Mismatch]]:
    for name, measure in MEASURES.items():
        ours, theirs = (
            dict(measure.scales(found)) if (found := one.results.part(name)) else {}
            for one in (job, baseline)
        )
        yield from ((name, each) for each in _differing(ours, theirs))


def _differing(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Iterator[Mismatch]:
    for scale in (scale for scale in ours if scale in theirs):
        if not math.isclose(ours[scale], theirs[scale], rel_tol=SCALE_TOLERANCE):
            yield Mismatch("scale", scale, ours[scale], theirs[scale])


def _shown(*values: Any) -> Iterator[str]:
    """Format two values; long ones from a little before the place where they differ."""
    texts = [printable(_text(value)) for value in values]
    common = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
    start = max(0, len(list(common)) - SHOWN_BEFORE)
    for text in texts:
        if max(map(len, texts)) <= SHOWN_CHARACTERS:
            yield text
        else:
            rest = text[start:]
            end = rest if len(rest) <= SHOWN_CHARACTERS else f"{rest[: SHOWN_CHARACTERS - 1]}…"
            yield f"…{end}" if start else end


def _text(value: Any) -> str:
    if isinstance(value, float):
        return format_number(value, 7)
    return value if isinstance(value, str) else json.dumps(value)
