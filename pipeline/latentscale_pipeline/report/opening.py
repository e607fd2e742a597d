"""What the report of a job opens with: the verdict, and the answers to three questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

from latentscale_pipeline.measures.base import GROUPS
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.look import first_rows, format_labels, say_usual
from latentscale_pipeline.report.scores import full_title, report_of
from latentscale_pipeline.report.verdict import (
    HEADINGS,
    LEVEL,
    Compared,
    clean_commands,
    distance,
    format_verdict,
    found_and_usual,
    headlines_of,
    is_subsampled,
    look_commands,
    sample_rows,
)
from latentscale_pipeline.results.model import SHARE_OF_ROWS, Results, Score
from latentscale_pipeline.views.content import Opening, Strip
from latentscale_pipeline.views.formatting import counted, format_share, printable
from latentscale_pipeline.views.scores import format_p, format_range, format_summarised

ROWS = GROUPS[-1]
"""The group of scores that count rows."""

FAR = 10.0
"""Distance beyond which a score is drawn at the edge, in widths of its range."""

NO_VERDICT = "The job was measured by an earlier version, which gave no verdict."


def open_report(results: Results, usual: str = "the reference") -> Opening:
    """Return the verdict of a job on what is usual, with its evidence by groups of scores."""
    verdict = results.verdict
    heading, sentences = (
        format_verdict(verdict, usual) if verdict else (HEADINGS[None], [NO_VERDICT])
    )
    headlines = sorted(headlines_of(results.scores), key=_place)
    compared = [Compared(score, score.expected) for score in headlines if score.expected]
    sampled_rows = sample_rows(compared)
    strips = [_strip(score, results, sampled_rows) for score in headlines]
    rows = [strip for strip in strips if strip.group == ROWS]
    scores = [strip for strip in strips if strip.group != ROWS]
    sampled = [one for one in compared if report_of(one.score.measure).group != ROWS]
    look, commands = first_rows(results), look_commands(results, results.job.id)
    commands += clean_commands(results, results.job.id)
    return Opening(
        kind=(verdict.value if verdict else None) or "not_compared",
        heading=heading,
        sentences=sentences,
        rows=rows,
        rows_said=_rows_said(results, rows),
        question=_question(sampled, headlines),
        strips=scores,
        strips_said=_strips_said(sampled, headlines),
        reach=_reach(len(compared)),
        look=look,
        look_said=_look_said(results, found=bool(look)),
        commands=commands,
    )


def fail(opening: Opening) -> Opening:
    """Say in the heading that a gate failed; a verdict in it stays what it is."""
    heading = f"{opening.heading}; a gate failed" if opening.heading else "A gate failed"
    return replace(opening, kind="failed", heading=heading)


def _place(score: Score) -> int:
    group = report_of(score.measure).group
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def _strip(score: Score, results: Results, rows: int | None) -> Strip:
    title, group = full_title(score), report_of(score.measure).group
    if score.expected is None:
        return Strip(title, _alone(score, results), group=group)
    one = Compared(score, score.expected)
    found, usual = format_range(score.expected, score.unit, typeset=True)
    if score.unit != SHARE_OF_ROWS:
        found = found_and_usual(one, rows, typeset=True)[0]
    elif one.expected.rows != _rows(results) or is_subsampled(one):
        found = f"{found} of {one.expected.rows:,}"
    # Beyond the edge it makes no difference how far.
    away = min(max(distance(score.expected), -FAR), FAR)
    return Strip(title, found, usual, format_p(one.p), away, one.p <= LEVEL, group)


def _rows(results: Results) -> int:
    return results.corpora.by_role()["corpus"].n


def _alone(score: Score, results: Results) -> str:
    """Write a score that is compared with nothing: with its sampling error, or as rows."""
    if score.value is None:
        return "none"
    if score.unit == SHARE_OF_ROWS:
        whole = score.of == "corpus" and score.bounds == "exact"
        return f"{round(score.value * _rows(results)):,}" if whole else format_share(score.value)
    return format_summarised(score, typeset=True)


def _rows_said(results: Results, rows: Sequence[Strip]) -> str:
    if not rows:
        reasons = [
            results.measures.get(f"{name}_reason")
            for name, measure in MEASURES.items()
            if measure.report.group == ROWS
        ]
        why = next(filter(None, reasons), None)
        if why:
            return f"Not known: {printable(why)}."
        return "No measure of this job counts unusual rows."
    if not any(strip.expected for strip in rows):
        return "Nothing says what is usual."
    unusual = sum(strip.differs for strip in rows)
    unknown = sum(not strip.expected for strip in rows)
    rest = f" Nothing says what is usual of {unknown} of these." if unknown else ""
    beyond = sum(strip.away > 1 and not strip.differs for strip in rows)
    if beyond:
        lie = counted(beyond, "count lies", "counts lie")
        rest += f" {lie} beyond the usual, as chance may have it among so many scores."
    if not unusual:
        return f"Nothing unusual among its rows.{rest}" if not rest else rest.strip()
    said = "One of these is" if unusual == 1 else f"{unusual} of these are"
    fewer = all(strip.away < 0 for strip in rows if strip.differs)
    return f"{said} not usual{': fewer than expected' if fewer else ''}.{rest}"


def _question(compared: Sequence[Compared], headlines: Sequence[Score]) -> str:
    if compared:
        return "How does it compare?"
    if _of_both(headlines):
        return "How alike are they?"
    diverse = any(report_of(score.measure).group == "Diversity" for score in headlines)
    return "How diverse is it?" if diverse else "What is its shape?"


def _of_both(headlines: Sequence[Score]) -> bool:
    return bool(headlines) and all(score.of == "pair" for score in headlines)


def _strips_said(compared: Sequence[Compared], headlines: Sequence[Score]) -> str:
    if not compared:
        mixed = ", and of corpus and reference together" * any(s.of == "pair" for s in headlines)
        of = "corpus and reference together" if _of_both(headlines) else f"the corpus{mixed}"
        return f"Scores of {of}, with their sampling errors where they are known."
    rows = sample_rows(compared)
    at = f" at {rows:,} rows" if rows else ""
    return f"Each dot is a score of the corpus{at}; the grey is where chance alone puts it."


def _reach(count: int) -> float:
    """Return the half width of the range of all scores together, by Bonferroni's inequality."""
    quantile = NormalDist().inv_cdf
    return quantile(1 - LEVEL / 2 / max(count, 1)) / quantile(1 - LEVEL / 2)


def _look_said(results: Results, *, found: bool) -> str:
    if results.rows is None:
        return "No measure of this job says which rows stand out."
    if not found:
        return "No row stands out."
    labels = "".join(f" {line[0].upper()}{line[1:]}." for line in format_labels(results))
    return f"The rows that stand out most{say_usual(results)}.{labels}"
