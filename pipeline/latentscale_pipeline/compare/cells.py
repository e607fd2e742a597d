"""Format every cell of a comparison, for all output formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latentscale_pipeline.compare.difference import ComparedScore, Verdict
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.scores import full_title, score_title, title_apart
from latentscale_pipeline.results.model import SHARE_OF_ROWS, ExpectedRange, Score
from latentscale_pipeline.views.formatting import (
    Written,
    counted,
    format_alike,
    format_estimate,
    format_number,
    printable,
)
from latentscale_pipeline.views.scores import format_summarised, score_name, written_score

WORDS = {
    Verdict.WITHIN_BOUNDS: "within brackets",
    Verdict.NOT_SIGNIFICANT: "not significant",
    Verdict.SIGNIFICANT: "significant",
    Verdict.SAMPLING_ERROR_UNKNOWN: "beyond brackets, sampling error unknown",
    Verdict.ONLY_IN_JOB: "only in the job",
    Verdict.ONLY_IN_BASELINE: "only in the baseline",
}
"""The text of each verdict; a score that is null shows its reason instead."""

SIZES_DIFFER = "beyond brackets, sizes differ"
"""The text where both sampling errors are known, but not that of the difference."""

COLUMNS = ("measure", "score", "of", "job", "baseline", "difference", "relative", "verdict")
"""The columns of a compared score, in order."""


@dataclass(frozen=True)
class ComparedCells:
    """The formatted cells of a compared score."""

    measure: str
    score: str
    of: str
    job: Written
    baseline: Written
    difference: str
    relative: str
    change: str
    verdict: str
    significant: bool

    def row(self) -> dict[str, str]:
        """Return the texts by column."""
        return {name: str(getattr(self, name)) for name in COLUMNS}


def format_scores(comparison: Comparison, *, typeset: bool = False) -> list[ComparedCells]:
    """Format every score, grouped by measure in order of appearance.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    typeset : bool
        For web pages: name scores as in the papers, and write ``1.3 × 10⁻⁵`` and true minus
        signs. Otherwise name scores as gates do, in plain characters.
    """
    order = list(dict.fromkeys(compared.score.measure for compared in comparison.scores))
    arranged = sorted(comparison.scores, key=lambda found: order.index(found.score.measure))
    return [format_score(compared, typeset=typeset) for compared in arranged]


def format_score(compared: ComparedScore, *, typeset: bool) -> ComparedCells:
    """Format one score; see :func:`format_scores`."""
    score = compared.score
    verdict = WORDS.get(compared.verdict) or (
        "not comparable" if compared.left_out else compared.why_not
    )
    unknown = compared.verdict is Verdict.SAMPLING_ERROR_UNKNOWN
    if unknown and not compared.errors_add_up and score.label is None:
        verdict = SIZES_DIFFER
    if compared.verdict is Verdict.SIGNIFICANT and compared.improved is not None:
        verdict += ", better" if compared.improved else ", worse"
    job, baseline = (_side(side, typeset) for side in (compared.job, compared.baseline))
    difference, relative = _difference(compared, typeset=typeset), _relative(compared, typeset)
    usual = compared.expected
    if usual is not None and score.unit != SHARE_OF_ROWS and is_told_by_samples(compared):
        job, baseline = _samples(usual, typeset)
        change = usual.found - usual.centre
        written = format_estimate(change, usual.found - usual.upper, usual.found - usual.lower)
        difference, relative = _signed(change, written.value), _sampled_change(usual, typeset)
    return ComparedCells(
        measure=printable(score.measure),
        score=score_title(score) if typeset else score_name(score),
        of=score.of,
        job=job,
        baseline=baseline,
        difference=difference,
        relative=relative,
        change=_change(compared, typeset=typeset),
        verdict=f"{verdict} (incomparable)" if compared.mismatches and compared.anyway else verdict,
        significant=compared.verdict is Verdict.SIGNIFICANT,
    )


BRACKETS = "± and [ , ]: bracket of the computation, without sampling error"
"""What the signs mean in a table of all scores."""

SUMMARY = ("", "job", "baseline", "change", " ")
"""The columns of a score in a summary of a comparison."""


def summarise_score(compared: ComparedScore) -> dict[str, str]:
    """Format one score for a summary, by column: with its sampling errors, and its change."""
    score, usual = compared.score, compared.expected
    told = compared.significant is not False and compared.beyond_bounds is not False
    cells = format_score(compared, typeset=False)
    remark = cells.verdict if told else ""
    known = {"job": compared.job, "baseline": compared.baseline}
    sides = {name: "" if side is None else format_summarised(side) for name, side in known.items()}
    if usual is not None and is_told_by_samples(compared):
        if score.unit == SHARE_OF_ROWS:
            remark = ", ".join(filter(None, [remark, f"on samples of {usual.rows:,} rows"]))
        else:
            sides = {"job": str(cells.job), "baseline": str(cells.baseline)}
    return {
        "": title_apart(score) if score.of == "reference" else full_title(score),
        **sides,
        "change": cells.change,
        " ": remark,
    }


def is_told_by_samples(compared: ComparedScore) -> bool:
    """Return whether the change is that of samples: these tell, or nothing else is comparable."""
    usual, job = compared.expected, compared.job
    if usual is None or job is None or usual.found == job.value:
        return False
    if compared.score.unit == SHARE_OF_ROWS:
        return bool(compared.significant)
    return bool(compared.mismatches or compared.significant)


def _samples(usual: ExpectedRange, typeset: bool) -> list[Written]:
    """Format the means of the job's samples and of the baseline's, and say at how many rows."""
    width = (usual.upper - usual.lower) / 10
    texts, power = format_alike([usual.found, usual.centre], width, typeset=typeset)
    return [Written(text + power, f"at {counted(usual.rows, 'row')}") for text in texts]


def _change(compared: ComparedScore, *, typeset: bool) -> str:
    """Format how a score changed; as samples did where these tell or nothing else is comparable."""
    if compared.score.unit == SHARE_OF_ROWS:
        return _points(compared, typeset=typeset)
    if compared.expected is not None and is_told_by_samples(compared):
        return _sampled_change(compared.expected, typeset)
    return _relative(compared, typeset) or _difference(compared, typeset=typeset)


def _sampled_change(usual: ExpectedRange, typeset: bool) -> str:
    share = (usual.found - usual.centre) / abs(usual.centre) if usual.centre else 0.0
    return _percent(share, typeset=typeset)


def format_identity(job: FinishedJob) -> str:
    """Format a job's name, id, source and folder."""
    source = f" of {printable(job.source)}" if job.source else ""
    return f"{printable(job.name)} ({printable(job.id)}){source} · {printable(job.url)}"


def job_names(jobs: Sequence[FinishedJob]) -> list[str]:
    """Return the names of jobs, or their ids if names are equal."""
    names = [job.name for job in jobs]
    return [printable(job.name if names.count(job.name) == 1 else job.id) for job in jobs]


def format_notes(comparison: Comparison) -> Iterator[str]:
    """Yield the mismatches, notes and caveats of a comparison."""
    yield from (f"Unlike: {printable(found)}." for found in comparison.describe_mismatches())
    notes = [*comparison.notes, comparison.describe_own_scales()]
    yield from (f"Note: {printable(note)}." for note in notes if note)
    unknown = sum(
        compared.verdict is Verdict.SAMPLING_ERROR_UNKNOWN for compared in comparison.shared
    )
    if unknown:
        differ = "differs" if unknown == 1 else "differ"
        yield (
            f"{unknown} of {len(comparison.shared)} scores {differ} beyond the brackets where the "
            "sampling error of the difference is unknown: the numbers of the two corpora differ, "
            "but two samples of one source may differ as much."
        )


def _side(score: Score | None, typeset: bool) -> Written:
    """Format a score: for web pages with its sampling error, otherwise with its bracket."""
    if score is None or score.value is None:
        return Written("none" if score else "", "")
    if typeset:
        return Written(format_summarised(score, typeset=True), "")
    return written_score(score, typeset=False)


def _points(compared: ComparedScore, *, typeset: bool = False) -> str:
    """Format the difference of two shares of rows, also of corpora that differ in size."""
    sides = [None if score is None else score.value for score in (compared.job, compared.baseline)]
    if sides[0] is None or sides[1] is None or not (compared.values or compared.sampled):
        return ""
    points = 100 * (sides[0] - sides[1])
    return _signed(points, f"{format_number(points, 3, typeset=typeset)} points")


def _difference(compared: ComparedScore, *, typeset: bool = False) -> str:
    if compared.difference is None:
        shares = compared.score.unit == SHARE_OF_ROWS
        return _points(compared, typeset=typeset) if shares else ""
    if typeset and compared.score.unit == SHARE_OF_ROWS:
        return _points(compared, typeset=True)
    if compared.difference == 0.0:
        return "0"
    written = format_estimate(compared.difference, compared.lower, compared.upper, typeset=typeset)
    return _signed(compared.difference, written.value)


def _relative(compared: ComparedScore, typeset: bool) -> str:
    return "" if compared.relative is None else _percent(compared.relative, typeset=typeset)


def _percent(share: float, *, typeset: bool) -> str:
    return _signed(share, f"{format_number(100 * share, 3, typeset=typeset)} %")


def _signed(number: float, text: str) -> str:
    return f"+{text}" if number > 0 else text
