"""Compare two finished jobs score by score."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from latentscale_pipeline.compare.comparability import (
    Mismatch,
    find_comparability,
    have_same_labels,
    have_same_rows,
    use_weights,
)
from latentscale_pipeline.compare.difference import ComparedScore
from latentscale_pipeline.compare.expectations import expect_scores
from latentscale_pipeline.compare.rows_changed import RowChanges, are_rows_gone
from latentscale_pipeline.config.job import OWN_SCALES
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.scores import is_of_label_rows
from latentscale_pipeline.report.verdict import judge_change, look_commands
from latentscale_pipeline.results.kernel_names import complete_names
from latentscale_pipeline.results.model import Results, RowsToLookAt, Score, Verdict
from latentscale_pipeline.results.part import Role
from latentscale_pipeline.storage.urls import strip_credentials
from latentscale_pipeline.views.formatting import counted, format_apart, printable

SAME_ROWS = Verdict(
    value="no_difference_found",
    reason="Both jobs measured the same rows.",
)

OTHER_LABELS = Verdict(
    value="no_difference_found",
    reason="Both jobs measured the same vectors; the labels of their rows differ.",
)

SHOWN_OF_LABELS = 3
"""Scores of labels that a note names."""

NEW_SINCE = "--new-since"
"""The option of ``rows`` that lists what only the job's corpus has."""

SAME_SCALE = 1e-6
"""Relative difference up to which two scales count as equal."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of a job with a baseline.

    Attributes
    ----------
    job, baseline : FinishedJob
        The two jobs.
    scores : tuple of ComparedScore
        The scores of the job in its order, then those that only the baseline has.
    mismatches : tuple of Mismatch
        Reasons why the two aren't comparable.
    notes : tuple of str
        Further remarks for the reader.
    rows : RowChanges or None
        Rows that the corpus gained and lost, and labels; None if neither is known.
    """

    job: FinishedJob
    baseline: FinishedJob
    scores: tuple[ComparedScore, ...]
    mismatches: tuple[Mismatch, ...] = ()
    notes: tuple[str, ...] = ()
    rows: RowChanges | None = None

    @property
    def results(self) -> Results:
        """Return the job's results with the verdict on the baseline in place of their own."""
        update = {
            "scores": self._shared_of_job,
            "verdict": self.verdict,
            "rows": self._new_rows(),
        }
        return self.job.results.model_copy(update=update)

    @property
    def verdict(self) -> Verdict:
        """Return whether the job differs from the baseline by more than chance."""
        settings = (self.job.settings or {}).get("measures") or {}
        found = judge_change(self._shared_of_job, settings)
        if found.value == "differs" or not (self._same_rows() and self._same_pairs()):
            return found
        corpora = [job.corpora.get("corpus") for job in (self.job, self.baseline)]
        return SAME_ROWS if have_same_labels(*corpora) else OTHER_LABELS

    @property
    def _shared_of_job(self) -> list[Score]:
        return [score for found in self.shared if (score := found.expected_of_job)]

    @property
    def same_reference(self) -> bool:
        """Return whether both jobs have the same rows as their reference."""
        return self._same_rows("reference")

    def _same_rows(self, role: Role = "corpus") -> bool:
        jobs = self.job, self.baseline
        corpora = [job.corpora.get(role) for job in jobs]
        return have_same_rows(*corpora, weighted=use_weights(*jobs))

    def _same_pairs(self) -> bool:
        """Return whether scores of the pair, if both jobs have some, are of the same rows."""
        pairs = [score for score in self.shared if score.score.of == "pair"]
        fewer = any(found.kind == "rows" for score in pairs for found in score.mismatches)
        # Which rows are paired may have changed with the ids, which scores alone tell.
        paired = bool((self.job.settings or {}).get("pair"))
        changed = paired and any(score.beyond_bounds for score in pairs)
        return not pairs or (self.same_reference and not fewer and not changed)

    def _new_rows(self) -> list[RowsToLookAt] | None:
        """Return the job's rows to look at that the baseline doesn't name for the same reason.

        Without ids all are returned. Of a reason that either names only some rows of, those are
        that only the job's corpus has; if these aren't known, the reason is left out.
        """
        before, after = self.baseline.results.rows, self.job.results.rows
        if before is None or after is None:
            return None
        known = {(each.reason, each.of): each for each in before}
        new = {each.reason: each for each in (self.rows.new if self.rows else ())}
        fresh = []
        for each in after:
            old = known.get((each.reason, each.of))
            if old is None or any(row.id is None for row in each.rows):
                fresh.append(each)
            elif all(one.count == len(one.rows) for one in (each, old)):
                named = {row.id for row in old.rows}
                rows = [row for row in each.rows if row.id not in named]
                fresh.append(
                    each.model_copy(update={"rows": rows, "count": len(rows), "labels": None})
                )
            elif each.of == "corpus" and each.reason in new:
                fresh.append(new[each.reason])
        return fresh

    @property
    def look_commands(self) -> list[str]:
        """Return the commands that list the rows behind the verdict."""
        # Without a baseline a job is compared with itself, and its own verdict is the one.
        alone = self.job.url == self.baseline.url
        commands = look_commands(self.job.results if alone else self.results, self.job.url)
        chosen = [command for command in commands if " --" in command]
        listed = list_of_baseline(chosen, self.job.url, self.baseline.url, self.new_reasons)
        of_baseline = [each for each in listed if each not in chosen and NEW_SINCE not in each]
        if of_baseline and are_rows_gone(self.baseline):
            return [command for command in listed if command not in of_baseline]
        return listed

    @property
    def new_reasons(self) -> list[str]:
        """Return the reasons to look at rows that only the job has; none if it has no others."""
        if self.rows is None or not self.rows.kept:
            return []
        return [each.reason for each in self.rows.new if each.count]

    @property
    def scores_of_job(self) -> list[Score]:
        """Return all scores of the job, with where the baseline puts them."""
        return [score for found in self.scores if (score := found.expected_of_job)]

    @property
    def shared(self) -> tuple[ComparedScore, ...]:
        """Return the scores that both jobs list."""
        return tuple(score for score in self.scores if score.shared)

    def describe_mismatches(self) -> list[str]:
        """Return a line for each mismatch, with the measures whose scores depend on it."""
        shown = [each for each in self.mismatches if each.kind != "own scale" or self._anyway]
        of_labels = [each for each in shown if each.label is not None]
        if len(of_labels) > 1:
            shown = [each for each in shown if each.label is None]
        lines = [str(found) + self._dependents(found) for found in shown]
        for kind, what in (("rows", "numbers of rows"), ("own scale", "scales")):
            labels = {each.label for each in of_labels if each.kind == kind}
            if labels and len(of_labels) > 1:
                lines.append(f"the {what} of {counted(len(labels), 'label')} differ")
        return lines

    def describe_own_scales(self) -> str:
        """Say which scales each job derived for itself; empty if none differ."""
        own = [
            "{} ({} here, {} there)".format(found.what, *format_apart(found.job, found.baseline))
            for found in self.mismatches
            if found.kind == "own scale" and found.label is None
        ]
        labels = {found.label for found in self.mismatches if found.kind == "own scale"} - {None}
        own += [f"scales for the rows of {counted(len(labels), 'label')}"] * bool(labels)
        if not own or self._anyway:
            return ""
        sampled = any(
            found.expected is not None
            for found in self.shared
            if any(each.kind == "own scale" for each in found.mismatches)
        )
        also = "; samples are compared all the same, each at its own scale" if sampled else ""
        lent = [
            f"; {who} takes them from {strip_credentials(str(source))}"
            for who, job in (("this job", self.job), ("the baseline", self.baseline))
            if (source := (job.settings or {}).get("scales_from", "auto")) not in OWN_SCALES
        ]
        had = "the jobs differ in" if lent else "each job derived its own"
        return (
            f"{had} {' and '.join(own)}{''.join(lent)}, so the differences of scores that depend "
            f"on it are left out{also}"
        )

    @property
    def _anyway(self) -> bool:
        return any(score.anyway for score in self.scores)

    def _dependents(self, found: Mismatch) -> str:
        if found.kind in {"setting", "scale", "own scale"}:
            return ""
        concerned = dict.fromkeys(s.score.measure for s in self.shared if found in s.mismatches)
        return f" ({', '.join(concerned)} {'depends' if len(concerned) == 1 else 'depend'} on it)"


def compare(
    job: FinishedJob, baseline: FinishedJob, *, allow_incomparable: bool = False
) -> Comparison:
    """Compare every score of two jobs.

    Two scores are matched if they agree in measure, corpus, score, kernel, order, label and
    scale. This needs no knowledge of the measure.

    Parameters
    ----------
    job, baseline : FinishedJob
        The jobs.
    allow_incomparable : bool
        Whether scores are compared that were measured in different ways, such as on corpora of
        different sizes. Otherwise these are left out, with the reason.
    """
    comparability = find_comparability(job, baseline)
    paired = [
        ComparedScore(
            ours,
            theirs,
            comparability.of(ours, theirs) if ours and theirs else (),
            anyway=allow_incomparable,
        )
        for ours, theirs in _paired(job.scores, baseline.scores)
    ]
    scores = expect_scores(paired, job, baseline)
    of_scores = [item for score in scores for item in score.mismatches]
    of_measures = comparability.by_measure.values()
    found = [item for items in of_measures for item in _without_set_scales(items, of_scores)]
    found += of_scores
    mismatches = tuple({repr(item): item for item in found}.values())  # settings have no hash
    notes = (*comparability.notes, *_changed_of_labels(scores))
    return Comparison(job, baseline, tuple(scores), mismatches, notes)


def _changed_of_labels(scores: Sequence[ComparedScore]) -> Iterator[str]:
    """Say which scores of labels changed by more than chance, which no verdict is about."""
    judged = [each for each in scores if each.p is not None and is_of_label_rows(each.score)]
    changed = sorted((each for each in judged if each.significant), key=lambda each: each.p or 0.0)
    if not changed:
        return
    names = [each.name for each in changed]
    more = len(names) - SHOWN_OF_LABELS
    named = "; ".join(names[:SHOWN_OF_LABELS]) + (f"; {more:,} more" if more > 0 else "")
    yield (
        f"{len(changed):,} of {counted(len(judged), 'score')} of single labels changed by more "
        f"than chance, adjusted for their number, which the verdict isn't about: {named}"
    )


def _without_set_scales(
    found: Sequence[Mismatch], of_scores: Collection[Mismatch]
) -> list[Mismatch]:
    """Leave out scales that no score calls derived, where settings differ that may give them."""
    is_set = any(item.kind == "setting" for item in found)
    return [
        item
        for item in found
        if not (is_set and item.kind == "own scale" and item not in of_scores)
    ]


def list_of_baseline(
    commands: Sequence[str], job: str, baseline: str, new: Collection[str] = ()
) -> list[str]:
    """Let commands list rows of the baseline where they would list those of a job's reference.

    Of a label that is rarer than in the baseline, the baseline has the rows. Of reasons with new
    rows, these are listed.
    """
    beside, usual = (
        printable(f"rows {shlex.quote(folder)}{of}")
        for folder, of in ((job, " --of reference"), (baseline, ""))
    )
    since = printable(f" {NEW_SINCE} {shlex.quote(baseline)}")
    return [
        command.replace(beside, usual, 1) + since * (command.partition(" --only ")[2] in new)
        for command in commands
    ]


def _paired(
    ours: Sequence[Score], theirs: Sequence[Score]
) -> Iterator[tuple[Score | None, Score | None]]:
    complete = complete_names(score.kernel for score in (*ours, *theirs))
    waiting: defaultdict[tuple[str | None, ...], list[Score]] = defaultdict(list)
    for score in theirs:
        waiting[_key(score, complete)].append(score)
    for score in ours:
        candidates = waiting[_key(score, complete)]
        match = next((other for other in candidates if _same_scale(score, other)), None)
        if match is not None:
            candidates.remove(match)
        yield score, match
    left = {id(score) for scores in waiting.values() for score in scores}
    yield from ((None, score) for score in theirs if id(score) in left)


def _key(score: Score, complete: Mapping[str, str]) -> tuple[str | None, ...]:
    kernel = None if score.kernel is None else complete.get(score.kernel, score.kernel)
    return (score.measure, score.of, score.score, kernel, score.order, score.label)


def _same_scale(score: Score, other: Score) -> bool:
    if score.scale is None or other.scale is None:
        return score.scale is other.scale
    return math.isclose(score.scale, other.scale, rel_tol=SAME_SCALE)
