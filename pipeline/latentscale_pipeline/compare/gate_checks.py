"""Check gates against a comparison: select scores and test their limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from latentscale.sampling.fresh_samples import adjust
from latentscale_pipeline.compare.difference import SIGNIFICANT_ERRORS, ComparedScore
from latentscale_pipeline.compare.expectations import label_scores, label_scores_of_job
from latentscale_pipeline.compare.gates import Drift, Gate, format_field, order_text
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.config.section import nearest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.control_chart import (
    MIN_JOBS,
    ControlLimits,
    JobOfSeries,
    comparable_scores,
    control_limits,
    false_alarm_rate,
    scores_in,
)
from latentscale_pipeline.report.scores import is_of_label_rows, report_of
from latentscale_pipeline.report.verdict import headlines_of
from latentscale_pipeline.results.kernel_names import is_kernel
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.formatting import (
    counted,
    format_alike,
    format_apart,
    format_number,
    printable,
)
from latentscale_pipeline.views.scores import format_p, format_range, why_null

SHOWN_SCALE = 1e-3
"""Relative tolerance of a gate's ``scale``, because tables show only four digits."""

ROUNDING = 1e-12
"""Relative tolerance of a limit against rounding: 0.99 is a drop of 10 % from 1.1."""

NAMED_FAILURES = 4
"""Further violations that a message names."""

WITH_HISTORY = "name one (--history, or history= in Python), or use the gate in a workflow"


@dataclass(frozen=True)
class Failure:
    """A score that violates one limit of a gate.

    Attributes
    ----------
    score : ComparedScore
        The score.
    limit : str
        The limit's name.
    message : str
        One line that states the violation and the limit.
    excess : float
        The distance from the limit, in the limit's unit; infinite if there is no number.
    """

    score: ComparedScore
    limit: str
    message: str
    excess: float


@dataclass(frozen=True)
class GateResult:
    """A gate, the scores that it selects, and its violations, the largest excess first.

    ``remark`` says on what it rests, where its own text doesn't; ``refusal`` why it can't be
    checked.
    """

    gate: Gate
    selected: tuple[ComparedScore, ...]
    failures: tuple[Failure, ...]
    remark: str = ""
    refusal: str = ""

    @property
    def passed(self) -> bool:
        """Return whether no selected score violates a limit, or violations only warn."""
        return self.outcome in ("passed", "warned")

    @property
    def outcome(self) -> Literal["passed", "warned", "failed", "unchecked"]:
        """Return what the gate says."""
        if self.refusal:
            return "unchecked"
        if not self.failures:
            return "passed"
        return "warned" if self.gate.severity == "warn" else "failed"

    @property
    def message(self) -> str:
        """Return the worst violation, and which other scores violate the gate, in one line."""
        if not self.failures:
            return self.refusal
        names = [failure.score.name for failure in self.failures]
        others = list(dict.fromkeys(name for name in names[1:] if name != names[0]))
        if others:
            more = [f"{len(others) - NAMED_FAILURES} more"] if len(others) > NAMED_FAILURES else []
            also = f" (also {'; '.join([*others[:NAMED_FAILURES], *more])})"
        else:
            also = f" (and {counted(len(names) - 1, 'more limit')})" if names[1:] else ""
        return self.failures[0].message + also


def check_gates(
    gates: Sequence[Gate],
    comparison: Comparison,
    where: str,
    earlier: Sequence[JobOfSeries] | None = None,
) -> tuple[GateResult, ...]:
    """Check gates against a comparison, all of which can be checked.

    The parameters are those of :func:`try_gates`.

    Raises
    ------
    BadInput
        If a gate can't be checked.
    """
    results = try_gates(gates, comparison, where, earlier)
    refuse_unchecked(results)
    return results


def refuse_unchecked(results: Sequence[GateResult]) -> None:
    """Raise :class:`BadInput` if a gate couldn't be checked."""
    for result in results:
        if result.refusal:
            raise BadInput(result.refusal)


def try_gates(
    gates: Sequence[Gate],
    comparison: Comparison,
    where: str,
    earlier: Sequence[JobOfSeries] | None = None,
) -> tuple[GateResult, ...]:
    """Check those gates against a comparison that can be checked.

    A gate can't be if it selects no score, asks for significance where nothing says what chance
    does, or has ``p_below`` and selects a score without an expected range; and if it limits a
    change of a score that can't be compared (where the numbers of rows or derived scales differ:
    not even on samples), unless another score fails. Its result says why.

    Parameters
    ----------
    gates : sequence of Gate
        The gates to check.
    comparison : Comparison
        Scores of either job are selected, so a score that only the baseline has fails its gate.
    where : str
        Name of the gates file, for messages.
    earlier : sequence of JobOfSeries, optional
        The earlier jobs of a history, the oldest first, for ``drift``.
    """
    results = []
    for position, gate in enumerate(gates):
        try:
            result = _check_gate(gate, comparison, f"{where}: gates.{position}", earlier)
        except BadInput as error:
            result = GateResult(gate, (), (), refusal=str(error))
        results.append(result)
    return tuple(results)


def _check_gate(
    gate: Gate,
    comparison: Comparison,
    place: str,
    earlier: Sequence[JobOfSeries] | None,
) -> GateResult:
    known, shares = _with_label(comparison, gate)
    selected = select(gate, known.scores, place)
    if gate.drift is not None and not gate.selectors:
        headlines = {id(score) for score in headlines_of([each.score for each in selected])}
        selected = tuple(each for each in selected if id(each.score) in headlines)
    incomparable = _incomparable(gate, selected)
    unknown = {id(score) for score in incomparable}
    if gate.significant:
        _refuse_unknown_significance(gate, selected, place)
    failures = [
        failure
        for score in selected
        for name, (check, sign) in LIMITS.items()
        if getattr(gate, name) is not None
        if check is not _change or id(score) not in unknown
        if (failure := check(gate, score, name, sign)) is not None
    ]
    if gate.p_below is not None:
        own = _own(gate, known, selected, place)
        # A label of too few rows isn't compared with the reference.
        failures += _unexpected(gate.p_below, own, place) if own or not shares else ()
    more = f" and {counted(len(incomparable) - 1, 'more score')}" if incomparable[1:] else ""
    remark = f"{incomparable[0].name}{more} can't be compared" if incomparable else ""
    if gate.drift is not None:
        if earlier is None:
            raise BadInput(f"{place} has drift, which needs a history; {WITH_HISTORY}")
        daily = _of_every_day(selected, place)
        drifted, said = _drifts(gate.drift, daily, comparison.job, earlier)
        failures += drifted
        remark = "; ".join(filter(None, (remark, said)))
        others = [getattr(gate, name) for name in LIMITS]
        selected = daily if {gate.p_below, *others} == {None} else selected
    if incomparable and (not failures or gate.severity == "warn"):
        _refuse(incomparable[0], place)
    failures.sort(key=lambda failure: -failure.excess)
    return GateResult(gate, selected, tuple(failures), remark)


def _with_label(comparison: Comparison, gate: Gate) -> tuple[Comparison, bool]:
    """Add the share of the label that a gate names, judged alone, and say whether it is there.

    Only the least usual shares are scores of a comparison, judged among all.
    """
    if gate.label is None:
        return _with_all_labels(comparison, gate), False
    shares = label_scores([gate.label], comparison.job, comparison.baseline)
    if not shares:  # the baseline has no labels
        alone = label_scores_of_job([gate.label], comparison.job)
        shares = [ComparedScore(score, None) for score in alone]
    measures = {share.score.measure for share in shares}
    others = [
        score
        for score in comparison.scores
        if score.score.label != gate.label or score.score.measure not in measures
    ]
    wanted = measures if gate.measure is None else measures & {gate.measure}
    added = [share for share in shares if share.score.measure in wanted]
    return replace(comparison, scores=(*others, *added)), bool(added)


def _with_all_labels(comparison: Comparison, gate: Gate) -> Comparison:
    """Add the shares of all labels, for a gate that limits them and names none."""
    limits = any(getattr(gate, name) is not None for name in LIMITS)
    if not limits or gate.measure is None or "label" in gate.selectors:
        return comparison
    shares = [
        share
        for share in label_scores(None, comparison.job, comparison.baseline)
        if share.score.measure == gate.measure
    ]
    if not shares:
        return comparison
    others = [score for score in comparison.scores if score.score.measure != gate.measure]
    return replace(comparison, scores=(*others, *shares))


def _own(
    gate: Gate, comparison: Comparison, selected: Sequence[ComparedScore], place: str
) -> list[ComparedScore]:
    """Return the job's selected scores, with what its reference or else the baseline expects."""
    scores = comparison.job.scores
    by_reference = any(score.expected or score.expected_reason for score in scores)
    if not by_reference:
        scores = comparison.scores_of_job
    missing = [score for score in selected if score.job is None]
    if by_reference and gate.label is not None:
        alone = label_scores_of_job([gate.label], comparison.job)
        judged = {share.measure for share in alone}
        known = [s for s in scores if s.label != gate.label or s.measure not in judged]
        scores = (*known, *alone)
    own = [ComparedScore(score, None) for score in scores]
    if gate.label is not None and all(score.label != gate.label for score in scores):
        return missing
    if missing and not any(_is_selected(gate, score) for score in own):
        return missing
    return [*missing, *select(gate, own, place)] if own else missing


def _unexpected(p_below: float, selected: Sequence[ComparedScore], place: str) -> list[Failure]:
    """Return the scores that differ from what is expected of the other corpus's source."""
    failures = []
    known = []
    unknown = []
    for score in selected:
        own = score.job
        if own is None or own.value is None:
            why = "only the baseline has it" if own is None else f"it is null: {why_null(own)}"
            failures.append(Failure(score, "p_below", f"{score.name}: {why}", math.inf))
        elif own.expected is not None:
            known.append((score, own.expected, own.unit))
        elif own.of != "reference" and (own.label is None or is_of_label_rows(own)):
            why = own.expected_reason or "nothing says what chance does to it"
            unknown.append((own, f"{score.name} has no expected range: {why}"))
    for own, why in unknown:
        # Others tell, and the verdict isn't about this one.
        if not (known or failures) or (
            headlines_of([own]) and report_of(own.measure).is_judged(own)
        ):
            raise BadInput(f"{place} has p_below, and {why}")
    if not known and not failures:
        raise BadInput(
            f"{place} has p_below, and no selected score is compared with a reference or baseline"
        )
    p_values = np.array([expected.p for _, expected, _ in known])
    # Scores of labels, which may be many, cost those of all rows no power.
    of_labels = np.array([is_of_label_rows(score.score) for score, *_ in known], dtype=bool)
    for family in (of_labels, ~of_labels):
        p_values[family] = adjust(p_values[family])
    for (score, expected, unit), p in zip(known, p_values.tolist(), strict=True):
        if p < p_below:
            found, usual = format_range(expected, unit)
            problem = (
                f"{score.name} is {found}, where {usual} is expected at {expected.rows:,} rows "
                f"(p {format_p(p)}); p_below allows {p_below:g}"
            )
            failures.append(Failure(score, "p_below", problem, p_below - p))
    return failures


def _of_every_day(selected: Sequence[ComparedScore], place: str) -> tuple[ComparedScore, ...]:
    """Return the scores that all jobs of a series have."""
    kept = []
    for each in selected:
        definition = report_of(each.score.measure).scores.get(each.score.score)
        if definition is None or not definition.unusual_only:
            kept.append(each)
    if not kept:
        raise BadInput(
            f"{place} has drift on the share of a label, which a history has only on days "
            "when it isn't usual; use max_drop, max_rise or p_below"
        )
    return tuple(kept)


def _drifts(
    drift: Drift,
    selected: Sequence[ComparedScore],
    job: FinishedJob,
    earlier: Sequence[JobOfSeries],
) -> tuple[list[Failure], str]:
    """Return the scores outside of the limits of earlier jobs, and how many jobs set these."""
    rate = false_alarm_rate(drift.sigmas) / max(1, len(selected))
    whole = job.corpora["corpus"].n if "corpus" in job.corpora else 0
    reference = job.corpora["reference"].fingerprint if "reference" in job.corpora else None
    weighted = {role: corpus.weighted for role, corpus in job.corpora.items()}
    dimensions = {role: corpus.d for role, corpus in job.corpora.items()}
    own = JobOfSeries(whole, reference, job.scores, job.measure_settings, weighted, dimensions)
    failures, counts, unlike = [], [], []
    for compared in selected:
        score = compared.job
        if score is None or score.value is None:
            why = "missing" if score is None else f"null: {why_null(score)}"
            failures.append(Failure(compared, "drift", f"{compared.name} is {why}", math.inf))
            continue
        before = comparable_scores(score, own, earlier)[-drift.window :]
        if len(before) < MIN_JOBS <= len(scores_in(score, earlier)):
            unlike.append(compared.name)
            continue
        counts.append(len(before))
        limits = control_limits(score, own.rows_of(score), before, rate)
        if limits is not None and limits.exceeded:
            failures.append(Failure(compared, "drift", _outside(compared, limits), limits.away))
    remarks = []
    if counts:
        most = max(counts)  # fewer may have as many rows, which some scores need
        remarks.append(_how_many(most, len(earlier)))
        if most < MIN_JOBS:
            remarks.append(f"limits begin at {MIN_JOBS}")
    if unlike:
        more = f" and {counted(len(unlike) - 1, 'more score')}" if len(unlike) > 1 else ""
        remarks.append(
            f"no limits for {unlike[0]}{more}: fewer than {MIN_JOBS} earlier jobs have as "
            "many rows and dimensions, the same reference, the same settings, and weights for the "
            "same corpora"
        )
    return failures, "; ".join(remarks)


def _how_many(used: int, earlier: int) -> str:
    """Say how many earlier jobs limits come from, of those that there are."""
    if used:
        return counted(used, "earlier job")
    lacking = counted(earlier, "earlier job")
    return f"{lacking}, none with a score to compare" if earlier else "no earlier job of this name"


def _outside(compared: ComparedScore, limits: ControlLimits) -> str:
    """Say where earlier jobs put a score."""
    numbers = (limits.value, limits.lower, limits.upper)
    (value, lower, upper), power = format_alike(numbers, limits.upper - limits.lower)
    at = f" at {limits.rows:,} rows" if limits.rows else ""
    return (
        f"{compared.name} is {value}{power}{at}, where the {limits.jobs} jobs before put it "
        f"between {lower}{power} and {upper}{power}"
    )


def select(gate: Gate, scores: Sequence[ComparedScore], place: str) -> tuple[ComparedScore, ...]:
    """Return the scores that a gate selects.

    Raises
    ------
    BadInput
        If there is none. The message names the field that excluded the last scores, and its
        possible values.
    """
    left = list(scores)
    passed: list[str] = []
    for name, wanted in gate.selectors.items():
        found = [score for score in left if _matches(score.score, name, wanted)]
        if not found:
            among = f"none with {' and '.join(passed)}" if passed else "none"
            known = [value for s in left if (value := getattr(s.score, name)) is not None]
            raise BadInput(
                f"{place} selects no score: {among} has {name} "
                f"{format_field(wanted)}{_known(name, wanted, known)}"
            )
        left = found
        passed.append(f"{name} {format_field(wanted)}")
    return tuple(left)


def _is_selected(gate: Gate, score: ComparedScore) -> bool:
    return all(_matches(score.score, name, wanted) for name, wanted in gate.selectors.items())


def _matches(score: Score, name: str, wanted: Any) -> bool:
    value = getattr(score, name)
    if value is None or wanted is None:
        return value is wanted
    if name == "scale":
        return math.isclose(value, wanted, rel_tol=SHOWN_SCALE)
    if name == "kernel":
        return is_kernel(value, wanted)
    return bool((order_text(value) if name == "order" else value) == wanted)


def _known(name: str, wanted: Any, known: Sequence[Any]) -> str:
    if name == "label" and wanted is not None:
        close = nearest(str(wanted), [printable(label) for label in known if label])
        if "did you mean" in close:
            return close
        return "; no row of either corpus may have it, or one of them has no labels"
    if not known:
        return f"; they have no {name}, leave it out"
    if name == "scale":
        return f"; the nearest is {format_number(min(known, key=lambda at: abs(at - wanted)), 6)}"
    return nearest(str(wanted), dict.fromkeys(printable(value) for value in known))


def _incomparable(gate: Gate, selected: Sequence[ComparedScore]) -> list[ComparedScore]:
    """Return the scores whose change a gate limits and nobody knows."""
    if gate.max_drop is None and gate.max_rise is None:
        return []
    return [score for score in selected if score.left_out and score.sampled is None]


def _refuse(score: ComparedScore, place: str) -> None:
    """Refuse a gate on the change of a score that can't be compared."""
    shared = any("scale" in found.kind for found in score.mismatches)
    mend = "give both jobs the same scales (scales_from: a finished job), or " * shared
    differing = "; ".join(map(str, score.mismatches))
    raise BadInput(
        f"{place} selects {score.name}, which can't be compared: {differing}; {mend}"
        "compare anyway with --allow-incomparable (allow_incomparable: true in a workflow)"
    )


def _refuse_unknown_significance(gate: Gate, selected: Sequence[ComparedScore], place: str) -> None:
    limits_value = gate.min is not None or gate.max is not None
    limits_change = gate.max_drop is not None or gate.max_rise is not None
    for score in selected:
        # A score that is null fails the gate with its reason, so its uncertainty isn't needed.
        compared = limits_change and score.values is not None and score.significant is None
        rows = {
            "job": score.job if limits_value or compared else None,
            "baseline": score.baseline if compared else None,
        }
        unknown = [
            name
            for name, row in rows.items()
            if row is not None and row.value is not None and row.sampling_error is None
        ]
        if compared and not score.errors_add_up and not unknown:
            other = ", or compare jobs with samples of it (sampling.method: auto)"
            raise BadInput(
                f"{place} asks for significance of {score.name}, and {score.why_no_error}; leave "
                f"out significant{'' if score.score.label else other}"
            )
        if unknown:
            # Replicates tell the errors of all rows, not of those with a label.
            other = ", or compare jobs that know it (replicates)"
            raise BadInput(
                f"{place} asks for significance and the sampling error of {score.name} is "
                f"unknown in the {' and in the '.join(unknown)}; leave out significant"
                f"{'' if score.score.label else other}"
            )


def _change(gate: Gate, score: ComparedScore, limit: str, sign: float) -> Failure | None:
    allowed: float = getattr(gate, limit)
    values = score.sampled or score.values
    if values is None:
        problem = f"{score.name} can't be compared ({score.why_not})"
        return Failure(score, limit, problem, math.inf)
    job, baseline = values
    at = f" at {score.expected.rows:,} rows" if score.expected and score.sampled else ""
    amount = sign * (job - baseline)
    if not gate.absolute and amount > 0.0:
        amount = amount / abs(baseline) if baseline else math.inf
    if not _beyond(amount, allowed) or (gate.significant and not _significant(score, sign)):
        return None
    verb = "fell" if sign < 0 else "rose"
    before, after = format_apart(baseline, job)
    if math.isinf(amount):
        allows = f"no {limit} relative to it allows that; absolute: true would count it"
        problem = f"{score.name} {verb} from {before} to {after}{at}; {allows}"
        return Failure(score, limit, problem, amount)
    factor, unit = (1, "") if gate.absolute else (100, " %")
    by, most = format_apart(factor * amount, factor * allowed)
    problem = (
        f"{score.name} {verb} by {by}{unit}, from {before} to {after}{at}; {limit} allows "
        f"{most}{unit}"
    )
    return Failure(score, limit, problem, amount - allowed)


def _significant(score: ComparedScore, sign: float) -> bool:
    """Return whether a change is significant, and its samples don't say the opposite."""
    usual = score.expected
    return bool(score.significant) and (usual is None or sign * (usual.found - usual.centre) >= 0)


def _bound(gate: Gate, compared: ComparedScore, limit: str, sign: float) -> Failure | None:
    allowed: float = getattr(gate, limit)
    score, name = compared.job, compared.name
    if score is None:
        problem = f"{name} is missing: only the baseline has it"
        return Failure(compared, limit, problem, math.inf)
    if score.value is None:
        return Failure(compared, limit, f"{name} is null: {why_null(score)}", math.inf)
    likely = _nearest_likely(score, sign) if gate.significant else score.value
    if not _beyond(sign * likely, sign * allowed):
        return None
    value, asked = format_apart(score.value, allowed)
    side = "below" if sign < 0 else "above"
    problem = f"{name} is {value}, {side} the {limit} of {asked}"
    return Failure(compared, limit, problem, sign * (score.value - allowed))


def _nearest_likely(score: Score, sign: float) -> float:
    """Return the most favourable value of a score within its bracket and sampling error."""
    end = score.upper if sign < 0 else score.lower
    likely: float = cast(float, end) - sign * SIGNIFICANT_ERRORS * cast(float, score.sampling_error)
    return likely


def _beyond(amount: float, limit: float) -> bool:
    return amount > limit and not math.isclose(amount, limit, rel_tol=ROUNDING)


LIMITS: Mapping[str, tuple[Callable[[Gate, ComparedScore, str, float], Failure | None], float]] = {
    "max_drop": (_change, -1.0),
    "max_rise": (_change, 1.0),
    "min": (_bound, -1.0),
    "max": (_bound, 1.0),
}
"""The limits of a gate: the function that checks each, and the direction of a violation."""
