"""Judge whether a corpus differs from its reference by more than chance, and say it in words."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from latentscale_pipeline.corpus.expressions import names_in
from latentscale_pipeline.measures.base import GROUPS
from latentscale_pipeline.measures.registry import MEASURES, ROW_FILTERS
from latentscale_pipeline.report.scores import full_title, report_of
from latentscale_pipeline.results.model import SHARE_OF_ROWS, ExpectedRange, Results, Score, Verdict
from latentscale_pipeline.views.formatting import (
    counted,
    format_number,
    format_share,
    printable,
    text_literal,
)
from latentscale_pipeline.views.scores import format_p, format_range

LEVEL = 0.05
"""Adjusted p-value up to which a score differs."""

HEADINGS = {
    "no_difference_found": "No difference found",
    "differs": "Differs from {}",
    "cannot_tell": "Cannot tell",
    None: "Not compared",
}
"""What is written above the reason, by the verdict's value."""

SAME_CORPORA = Verdict(
    value="cannot_tell",
    reason="Corpus and reference have the same rows, and p-values are for samples that share none.",
)

NO_REFERENCE = Verdict(
    value=None,
    reason="There is no reference, so nothing says what is usual.",
)

PAIRED = Verdict(
    value=None,
    reason=(
        "Rows are paired, so the scores describe how alike the two are; p-values are for corpora "
        "that share no items."
    ),
)

WITH_REFERENCE = "With a reference, a run says whether the corpus differs from it."

DIVERSITY = GROUPS[0]
"""The group of scores that say how diverse a corpus is."""

MANY = 3
"""How many times as many scores as usual lie outside their own range before a verdict warns."""

WORTH_CLEANING = 0.01
"""Share of rows from which on it is suggested to leave them out, where no verdict is about them."""

MOST = 0.5
"""Share of rows from which on these are no exceptions that could be left out: in both corpora, they
are versions of one.
"""

OF_VERSIONS = (
    "Versions of one corpus share rows by design: measure each in a job without a reference and "
    "run latentscale compare NEW OLD."
)
"""What to do about corpora that share rows, other than to leave these out of one."""

OF_STRAY_ROWS = "If they shouldn't, leave these rows out and run the job again."
"""What to do about a part of the rows that is in both corpora."""

NAMED = 3
"""Largest number of further scores that are named; the rest are counted."""


class Compared(NamedTuple):
    """A headline score with its expected range."""

    score: Score
    expected: ExpectedRange

    @property
    def p(self) -> float:
        """Return the adjusted p-value."""
        return 1.0 if self.expected.p_adjusted is None else self.expected.p_adjusted

    @property
    def title(self) -> str:
        """Return the name of the score."""
        return full_title(self.score)


def format_verdict(verdict: Verdict, usual: str = "the reference") -> tuple[str, list[str]]:
    """Return the heading of a verdict on what is usual, and its sentences."""
    heading = HEADINGS.get(verdict.value, "Cannot tell").format(usual)
    also = WITH_REFERENCE if verdict == NO_REFERENCE else verdict.also
    return heading, [verdict.reason, *([also] if also else [])]


def compared(scores: Sequence[Score]) -> list[Compared]:
    """Return the headline scores with an expected range, the least usual first."""
    known = [Compared(s, s.expected) for s in headlines_of(scores) if s.expected is not None]
    return sorted(known, key=lambda one: (one.p, one.expected.p))


def look_commands(results: Results, folder: str) -> list[str]:
    """Return the commands that list the rows behind a verdict, or else all rows.

    Without a reference, they list the rows that repeat others, if these are many.

    Parameters
    ----------
    results : Results
        Of a job.
    folder : str
        Its folder.
    """
    command = printable(f"latentscale rows {shlex.quote(folder)}")
    listed = dict(_listed(results))
    repeated = [f"--only {reason}" for reason in _repeated(results, listed)]
    filters = [*_filters(results, listed), *repeated, *_sortings(results)]
    if not filters:
        return [command] if listed else []
    return [f"{command} {text}" for text in filters]


def _sortings(results: Results) -> Iterator[str]:
    """Yield the options that list first the rows which a measure would look at."""
    for name, measure in MEASURES.items():
        part, column = results.part(name), measure.report.sorted_by
        if part is not None and column:
            found = {
                each.name
                for each in measure.row_columns(part, "corpus")
                if all(array in results.arrays for array in each.arrays)
            }
            if column.partition(":")[0] in found:
                yield f"--sort {column}"


def clean_commands(results: Results, folder: str) -> list[str]:
    """Return the commands that leave out the rows behind a verdict; empty if there are none.

    Without a reference, they leave out the rows that repeat others, if these are many.

    Of what the reference has many of as well, both are cleaned, or the next verdict would be that
    the corpus has too few of them. Where most rows are in both, the two are versions of one corpus,
    and those rows aren't left out. Nor are most rows for another reason, unless one of each kind
    stays: the corpora are then of other kinds, or of other models. Parameters are those of
    :func:`look_commands`.
    """
    listed = dict(_listed(results))
    outside = [one for one in compared(results.scores) if one.p <= LEVEL]
    versions = any(map(_is_mostly_shared, outside))
    found = {
        only: one.expected
        for one in outside
        if one.expected.found > one.expected.centre
        if not (versions and is_dependent(one))
        for only in [listed.get((one.score.measure, one.score.score), "")]
        if only in ROW_FILTERS and ROW_FILTERS[only].of == "corpus"
        if _are_exceptions(one.score, results)
        if one.expected.found < MOST or ROW_FILTERS[only].stays
    }
    # Where the rows of a part explain the excess, the others are usual and stay.
    for part in [only for only in found if ROW_FILTERS[only].part_of in found]:
        whole = ROW_FILTERS[part].part_of
        explained = found[whole].found - found[part].found <= found[whole].upper
        del found[whole if explained else part]
    reasons = list(found) or _repeated(results, listed)
    counted_in_reference = {
        score.score
        for score in results.scores
        if score.of == "reference" and (score.value or 0.0) >= WORTH_CLEANING
    }
    shared = [reason for reason in reasons if ROW_FILTERS[reason].score in counted_in_reference]
    name = shlex.quote(results.job.id)
    return [
        printable(f"latentscale subset {shlex.quote(folder)} {target} {without}")
        for target, left_out in (
            (f"{name}-clean.zarr", reasons),
            (f"{name}-clean-reference.zarr --of reference", shared),
        )
        if (without := " ".join(f"--without {reason}" for reason in left_out))
    ]


def _repeated(results: Results, listed: Mapping[tuple[str, str], str]) -> list[str]:
    """Return the reason, at most one, for which many rows can go where nothing is compared."""
    if results.corpora.reference is not None or compared(results.scores):
        return []
    shares = {
        only: score.value or 0.0
        for score in results.scores
        for only in [listed.get((score.measure, score.score), "")]
        if only and ROW_FILTERS[only].stays and score.label is None
        if _are_exceptions(score, results)
    }
    many = [only for only, share in shares.items() if share >= WORTH_CLEANING]
    # Where the rows of a part are nearly all, the part is the plainer reason.
    plain = [
        only
        for only in many
        if shares.get(ROW_FILTERS[only].part_of, 0.0) - shares[only] < WORTH_CLEANING
    ]
    return plain[:1]


def _are_exceptions(score: Score, results: Results) -> bool:
    return report_of(score.measure).are_exceptions(results.part(score.measure), score.score)


def _filters(results: Results, listed: Mapping[tuple[str, str], str]) -> list[str]:
    """Return the options that list the rows behind a verdict, once each."""
    found = (_filter(one, listed) for one in compared(results.scores) if one.p <= LEVEL)
    return list(dict.fromkeys(text for text in found if text))


def _filter(one: Compared, listed: Mapping[tuple[str, str], str]) -> str:
    """Return the options that list the rows behind a score; empty if nothing lists them."""
    above = one.expected.found > one.expected.centre
    if one.score.label is not None and listed:
        # Of a label that is rarer than usual, the reference has the rows.
        of = "" if above else "--of reference "
        condition = f"label == {text_literal(one.score.label)}"
        return f"{of}--where {shlex.quote(condition)}"
    only = listed.get((one.score.measure, one.score.score))
    return f"--only {only}" if only and above else ""


def _listed(results: Results) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the names of filters whose columns the job has, by the measure and its score."""
    for name, measure in MEASURES.items():
        part = results.part(name)
        for only, found in measure.row_filters.items() if part is not None else ():
            columns = {column.name for column in measure.row_columns(part, found.of)}
            if columns.issuperset(names_in(found.where)):
                yield (name, found.score), only


def sample_rows(known: Sequence[Compared]) -> int | None:
    """Return the rows that most scores were measured on; None if all are counts."""
    counts = Counter(one.expected.rows for one in known if one.score.unit != SHARE_OF_ROWS)
    return max(counts, key=lambda rows: (counts[rows], rows), default=None)


def found_and_usual(
    one: Compared, rows: int | None = None, *, typeset: bool = False
) -> tuple[str, str]:
    """Return what was found and what is expected, as text.

    Counts say among how many rows, and other scores of samples at how many if it isn't ``rows``.
    """
    found, usual = format_range(one.expected, one.score.unit, typeset=typeset)
    if is_count(one):
        found = f"{found} of {one.expected.rows:,}"
    elif rows is not None and one.expected.rows != rows and not _is_value(one):
        found = f"{found} at {one.expected.rows:,}"
    return found, usual


def is_count(one: Compared) -> bool:
    """Return whether a score counts rows."""
    return one.score.unit == SHARE_OF_ROWS


def is_subsampled(one: Compared) -> bool:
    """Return whether a count is what it would be if both corpora had the rows of the smaller."""
    return is_count(one) and one.score.label is None and not _is_value(one)


def _is_value(one: Compared) -> bool:
    """Return whether the score itself was compared, not one of fewer rows."""
    value = one.score.value
    return value is None or math.isclose(value, one.expected.found, rel_tol=1e-9, abs_tol=1e-12)


def distance(expected: ExpectedRange) -> float:
    """Return how far a score is from what is expected, in widths of the range on that side."""
    above = expected.found > expected.centre
    reach = expected.upper - expected.centre if above else expected.centre - expected.lower
    away = expected.found - expected.centre
    if not reach:
        return math.copysign(math.inf, away) if away else 0.0
    return away / reach


def headlines_of(scores: Sequence[Score]) -> list[Score]:
    """Return the scores that the verdict is about: headline scores of the corpus and the pair."""
    return [
        score
        for score in scores
        if score.of != "reference"
        and (score.label is None or report_of(score.measure).of_labels)
        and report_of(score.measure).is_headline(score)
    ]


def judge(
    scores: Sequence[Score], *, compares: bool, paired: bool = False, remarks: Sequence[str] = ()
) -> Verdict:
    """Judge a job by its headline scores.

    Parameters
    ----------
    scores : sequence of Score
        All scores of the job, with their expected ranges.
    compares : bool
        Whether the job has a reference.
    paired : bool
        Whether its rows represent the same items as those of the corpus.
    remarks : sequence of str
        Sentences of measures, as on what wasn't compared.
    """
    if not compares:
        return NO_REFERENCE
    if paired:
        return PAIRED
    return _with_remarks(_judge(scores), remarks)


def _with_remarks(verdict: Verdict, remarks: Sequence[str]) -> Verdict:
    also = " ".join(filter(None, [verdict.also, *remarks]))
    return verdict.model_copy(update={"also": also or None})


def _judge(scores: Sequence[Score]) -> Verdict:
    known = compared(scores)
    unknown = _unjudged(scores)
    outside = [one for one in known if one.p <= LEVEL]
    if outside and all(is_dependent(one) for one in outside):
        return _share_rows(outside, known)
    if outside:
        # Counts of rows come first: they say what to look at, and may be why other scores differ.
        outside.sort(key=lambda one: (_is_mostly_shared(one), not is_count(one)))
        found = _differs(outside, known)
        return _with_remarks(found, [OF_VERSIONS] if any(map(_is_mostly_shared, outside)) else [])
    if unknown or not known:
        return _cannot_tell(unknown or _unjudged(scores, every=True), known)
    return _no_difference(known)


def judge_change(
    scores: Sequence[Score], settings: Mapping[str, Mapping[str, Any]] | None = None
) -> Verdict:
    """Judge a job by its headline scores and where a baseline puts them.

    Parameters
    ----------
    scores : sequence of Score
        The scores that both jobs have, with their expected ranges from the baseline.
    settings : mapping, optional
        The settings of each measure in the job.
    """

    def of_own_scale(one: Compared) -> str:
        own = (settings or {}).get(one.score.measure) or {}
        return report_of(one.score.measure).said_of_own_scale(one.score, own)

    known = compared(scores)
    unknown = _unjudged(scores)
    outside = [one for one in known if one.p <= LEVEL]
    if not known or (not outside and len(unknown) > len(known)):
        return _cannot_tell(unknown or _unjudged(scores, every=True), known)
    outside.sort(key=lambda one: (bool(of_own_scale(one)), not is_count(one)))
    verdict = (
        _differs(outside, known, [one for one in known if not of_own_scale(one)])
        if outside
        else _no_difference(known, "the baseline", partly=bool(unknown))
    )
    verdict = _with_remarks(verdict, list(dict.fromkeys(map(of_own_scale, outside))))
    if not unknown:
        return verdict
    why = unknown[0].expected_reason or "a job was measured by an earlier version"
    left_out = f"{counted(len(unknown), 'headline score')} can't be judged: {why}."
    return _with_remarks(verdict, [left_out])


def _unjudged(scores: Sequence[Score], *, every: bool = False) -> list[Score]:
    """Return the headline scores that a verdict would be about if their range were known.

    ``every`` one without a range includes those that a verdict isn't about.
    """
    return [
        score
        for score in headlines_of(scores)
        if score.expected is None and (every or report_of(score.measure).is_judged(score))
    ]


def _equation(p: float) -> str:
    written = format_p(p)
    return f"p < {written[1:]}" if written.startswith("<") else f"p = {written}"


def _sentence(one: Compared) -> str:
    found, usual = found_and_usual(one)
    if is_count(one):
        verb = "is" if usual == "1" else "are"
        label = one.score.label
        named = f"Label {printable(label)}" if label else "No label"
        subject = one.title if label is None else named
        if is_subsampled(one):
            share = format_share(one.score.value or 0.0)
            found = f"{share} of the rows; at equal sizes {found}"
        return f"{subject}: {found} rows, where {usual} {verb} expected"
    at = "" if _is_value(one) else f" at {counted(one.expected.rows, 'row')}"
    return f"{one.title} is {found}{at}, where {usual} is expected"


def _also(others: Sequence[Compared], word: str) -> str:
    """Name the other scores that are higher, or lower, than chance puts them."""
    above = word == "higher"
    titles = [one.title for one in others if (one.expected.found > one.expected.centre) == above]
    named = titles[:NAMED] + ([f"{len(titles) - NAMED} more"] if titles[NAMED:] else [])
    return f"{word.capitalize()} than expected: {'; '.join(named)}." if named else ""


def _diversity(known: Sequence[Compared]) -> str:
    """Say whether the corpus is more or less diverse; empty if no score of it measures that."""
    of_diversity = [
        one
        for one in known
        if one.score.of == "corpus"
        and one.score.better == "high"
        and report_of(one.score.measure).group == DIVERSITY
    ]
    outside = [one for one in of_diversity if one.p <= LEVEL]
    higher = sum(one.expected.found > one.expected.centre for one in outside)
    lower, of = len(outside) - higher, f"{counted(len(of_diversity), 'score')} of diversity"
    if not of_diversity:
        return ""
    if not outside:
        return f"No difference of diversity is found, by {of}."
    if higher and lower:
        return f"By {higher} of {of} it is more diverse, and by {lower} less."
    word = "more" if higher else "less"
    whole = "" if len(outside) == len(of_diversity) else f"{len(outside)} of "
    if higher and any(map(_has_outliers, known)):
        return f"It is more diverse by {whole}{of}, which outliers raise, too."
    return f"It is {word} diverse, by {whole}{of}."


def _has_outliers(one: Compared) -> bool:
    """Return whether a score counts more rows than chance makes that are unlike all others."""
    filters = MEASURES[one.score.measure].row_filters.values()
    apart = any(each.apart and each.score == one.score.score for each in filters)
    return apart and one.p <= LEVEL and one.expected.found > one.expected.centre


def _corrected(known: list[Compared]) -> str:
    """Say for how many scores a p-value is corrected."""
    return f", corrected for {len(known)} scores" if len(known) > 1 else ""


def _differs(
    outside: list[Compared], known: list[Compared], of_diversity: Sequence[Compared] | None = None
) -> Verdict:
    first, *others = outside
    also = [
        _diversity(known if of_diversity is None else of_diversity),
        *(_also(others, word) for word in ("higher", "lower")),
    ]
    also.append(_rest(outside, known))
    return Verdict(
        value="differs",
        reason=f"{_sentence(first)} ({_equation(first.p)}{_corrected(known)}).",
        also=" ".join(filter(None, also)) or None,
        compared=len(known),
    )


def _rest(outside: list[Compared], known: list[Compared]) -> str:
    """Say how many scores show no difference; empty if none does."""
    rest = len(known) - len(outside)
    return f"The other {rest} {'shows' if rest == 1 else 'show'} no difference." if rest else ""


def is_dependent(one: Compared) -> bool:
    """Return whether a score shows that the corpora aren't independent samples, if it is high."""
    above = one.expected.found > one.expected.centre
    return above and one.score.score in report_of(one.score.measure).dependent


def _is_mostly_shared(one: Compared) -> bool:
    """Return whether a score shows that most rows of the corpus are in the reference, too."""
    return is_dependent(one) and one.expected.found >= MOST


def _share_rows(outside: list[Compared], known: list[Compared]) -> Verdict:
    first, *others = outside
    mostly = any(map(_is_mostly_shared, outside))
    advice = OF_VERSIONS if mostly else f"{OF_STRAY_ROWS} {OF_VERSIONS}"
    return Verdict(
        value="cannot_tell",
        reason=(
            f"{_sentence(first)} ({_equation(first.p)}): the two share rows, and p-values are for "
            "samples that don't."
        ),
        also=" ".join(filter(None, [_also(others, "higher"), _rest(outside, known), advice])),
        compared=len(known),
    )


def _cannot_tell(unknown: list[Score], known: list[Compared]) -> Verdict:
    if not unknown:
        return Verdict(value="cannot_tell", reason="No headline score was measured.")
    first = unknown[0]
    why = first.reason or first.expected_reason or "the job was measured by an earlier version"
    count = f"{len(unknown)} of {len(unknown) + len(known)} headline scores"
    has = "has" if len(unknown) == 1 else "have"
    such = "" if len(unknown) == 1 else "such as "
    reasons = {score.reason or score.expected_reason for score in unknown}
    named = (known or len(reasons) > 1) and (first.reason or first.expected_reason)
    which = f", {such}{full_title(first)}" if named else ""
    return Verdict(
        value="cannot_tell",
        reason=f"{count} {has} no expected range{which}: {why}.",
        also=_rest([], known) or None,
        compared=len(known),
    )


def _no_difference(
    known: list[Compared], usual: str = "the reference", *, partly: bool = False
) -> Verdict:
    least = known[0]
    which = " that can be compared" if partly else ""
    outside = sum(one.expected.p <= LEVEL for one in known)
    if len(known) == 1:
        where = f"The score{which} is where a fresh sample of {usual}'s source would put it"
    elif outside:
        where = (
            f"None of {len(known)} headline scores{which} differs from {usual} by more than chance"
        )
    else:
        where = (
            f"All {len(known)} headline scores{which} are where a fresh sample of {usual}'s source "
            "would put them"
        )
    corrected = f"; {least.p:.2f}{_corrected(known)}" if len(known) > 1 else ""
    reason = (
        f"{where}. The least usual: {_sentence(least)} ({_equation(least.expected.p)}{corrected})."
    )
    if outside and len(known) > 1:
        lie = "lies outside its" if outside == 1 else "lie outside their"
        usually = format_number(LEVEL * len(known), 2)
        reason += f" {outside} of them {lie} own 95 % range, where chance puts {usually} on average"
        reason += (
            "; scores are related, so this may be chance too, and more rows would tell."
            if outside > max(1.0, MANY * LEVEL * len(known))
            else "."
        )
    return Verdict(
        value="no_difference_found", reason=reason, also=_found_from(known), compared=len(known)
    )


def _found_from(known: list[Compared]) -> str | None:
    """Say which differences would have been found, for the two sharpest measures of a corpus."""
    smallest: dict[str, tuple[float, str]] = {}
    for one in known:
        centre = one.expected.centre
        if one.score.of == "corpus" and centre and one.score.unit != SHARE_OF_ROWS:
            share = one.expected.smallest_found / abs(centre)
            best = smallest.get(one.score.measure)
            definition = report_of(one.score.measure).scores.get(one.score.score)
            # Of a score that doesn't vary, any change would be found.
            least = 0.0 if definition is None else definition.resolution
            if share > least and (best is None or share < best[0]):
                smallest[one.score.measure] = (share, one.title)
    if not smallest:
        return None
    said = " or ".join(
        f"of {title} by {format_number(100 * share, 2)} %"
        for share, title in sorted(smallest.values())[:2]
    )
    return f"A change {said} would have been found four times in five."
