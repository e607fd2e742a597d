"""Build the report of a series of jobs: its verdicts, and every score over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from latentscale_pipeline.history.entries import Entry, format_gates, last_used
from latentscale_pipeline.history.opening import (
    SIGMAS,
    VERDICTS,
    WINDOW,
    Key,
    anchor_of,
    day_of,
    headline_figures,
    key_of,
    open_series,
    seconds_of,
)
from latentscale_pipeline.report.method import COSTS, PROMISES, SAMPLING_ERROR, written_cost
from latentscale_pipeline.report.scores import (
    definitions_of,
    score_title,
    section_of,
)
from latentscale_pipeline.results.model import SHARE_OF_ROWS, Score
from latentscale_pipeline.views.content import Report, Section, Table, table_of
from latentscale_pipeline.views.figure import Curve, Figure, Panel, Style, numbered_styles
from latentscale_pipeline.views.formatting import counted, format_number, printable
from latentscale_pipeline.views.scores import whole_scores, written_score

WIDE = 10.0
"""Ratio of a figure's largest to its smallest value above which its axis is logarithmic."""

ENDS = ("value", "lower", "upper")

CAPTION = (
    "Grey is where chance alone puts a job, and a diamond is a score beyond that. Scores that "
    "differ in the last job come first. Dotted lines are control limits: where the "
    f"{WINDOW} jobs before, or fewer, put each job, at {SIGMAS:g} sigmas."
)

Trend = Sequence[tuple[Entry, Score]]
"""A score over a series of jobs."""


def series_report(
    entries: Sequence[Entry],
    title: str,
    tags: Mapping[str, str] | None = None,
    shown: int | None = None,
) -> Report:
    """Return the report of a series of jobs over time.

    Parameters
    ----------
    entries : sequence of Entry
        The jobs, the oldest first; at least one.
    title : str
        The title of the series.
    tags : mapping, optional
        The job of each tag.
    shown : int, optional
        How many of the newest are shown; those before only set limits.
    """
    earlier, entries = entries[: -(shown or len(entries))], entries[-(shown or 0) :]
    measures = dict.fromkeys(score.measure for entry in entries for score in entry.scores)
    panels = headline_figures(entries, earlier)
    return Report(
        kind="series",
        title=printable(title),
        subtitle=f"{counted(len(entries), 'job')}, {day_of(entries[0])} to {day_of(entries[-1])}",
        opening=open_series(entries, earlier),
        sections=[
            *([_headlines(panels)] if panels else []),
            Section("jobs", "Jobs", tables=[_verdicts_table(entries, tags or {})]),
            *(_section(place, measure, entries) for place, measure in enumerate(measures)),
            Section(
                key="method",
                title="How these were computed",
                question="A bracket bounds the measure of one corpus, without sampling error.",
                tables=[_costs_table(entries)],
                glossary=[*PROMISES, SAMPLING_ERROR],
                folded=True,
            ),
        ],
    )


def _change(score: Score, earlier: Score | None) -> str:
    if earlier is None or earlier.value is None or score.value is None:
        return "no such score before"
    if score.unit == SHARE_OF_ROWS:
        points = 100 * (score.value - earlier.value)
        sign = "+" if points > 0 else ""
        return f"{sign}{format_number(points, 2, typeset=True)} points since the one before"
    if earlier.value == 0.0:
        return f"before: {format_number(earlier.value)}"
    share = (score.value - earlier.value) / abs(earlier.value)
    sign = "+" if share > 0 else ""
    return f"{sign}{format_number(100 * share, 2, typeset=True)} % since the one before"


def _headlines(figures: Sequence[Figure]) -> Section:
    return Section("scores", "Headline scores", CAPTION, figures=figures, small=True)


def _section(place: int, measure: str, entries: Sequence[Entry]) -> Section:
    heading = section_of(measure, place)
    trends = _trends(measure, entries)
    return replace(
        heading,
        figures=_figures(heading.key, trends),
        scores=_trend_table(trends),
        glossary=definitions_of([s for s in entries[-1].scores if s.measure == measure]),
        folded=True,
    )


def _trends(measure: str, entries: Sequence[Entry]) -> list[Trend]:
    """Return the series of each score of whole corpora, without nulls, the oldest first."""
    found: dict[Key, list[tuple[Entry, Score]]] = {}
    for entry in entries:
        for score in whole_scores(entry.scores, measure):
            known = found.setdefault(key_of(score), [])
            known += [] if score.value is None else [(entry, score)]
    return [trend for trend in found.values() if trend]


def _named(score: Score) -> str:
    return score_title(score) if score.of == "pair" else f"{score_title(score)}, {score.of}"


def _figures(prefix: str, trends: Sequence[Trend]) -> list[Figure]:
    """Return one figure per score and kernel, with a line for each order or scale."""
    groups: dict[tuple[str, str | None, bool], list[Trend]] = {}
    dated = ([(e, score) for e, score in trend if seconds_of(e) is not None] for trend in trends)
    for trend in filter(None, dated):
        score = trend[0][1]
        groups.setdefault((score.score, score.kernel, score.of == "pair"), []).append(trend)
    return [
        _figure(
            f"{prefix}-trend-{place}",
            [trend for trend in group if trend[0][1].of != "reference"] or group,
        )
        for place, group in enumerate(groups.values())
    ]


def _figure(key: str, trends: Sequence[Trend]) -> Figure:
    first = trends[0][0][1]
    styles = numbered_styles([_named(trend[0][1]) for trend in trends])
    values = [score.value for trend in trends for _, score in trend if score.value]
    wide = bool(values) and 0 < WIDE * min(values) < max(values)
    caption = (
        "Bars are the brackets; a cross marks a job whose gates failed. Scores of corpora of "
        "different size aren't alike."
    )
    curves = [
        curve
        for style, trend in zip(styles, trends, strict=True)
        for curve in _curves(style, trend)
    ]
    panel = Panel("", "last used (UTC)", printable(first.unit), curves, log_y=wide, dates=True)
    title = _named(first.model_copy(update={"order": None, "scale": None}))
    return Figure(key, title, caption, [panel])


def _curves(style: Style, found: Trend) -> list[Curve]:
    """Return the line of a score, and the points of the jobs that failed or were rejected."""
    failed = [(entry, score) for entry, score in found if not entry.is_usual]
    passed = [(entry, score) for entry, score in found if entry.is_usual]
    crosses = replace(style, symbol="cross")
    line = replace(_points(style, found)[0], name="", points=False, lower=None, upper=None)
    return [line, *_points(style, passed), *_points(crosses, failed)]


def _points(style: Style, found: Trend) -> list[Curve]:
    if not found:
        return []
    times = [at for entry, _ in found if (at := seconds_of(entry)) is not None]
    value, lower, upper = ([getattr(score, end) for _, score in found] for end in ENDS)
    jobs = [e.job if e.is_usual else f"{e.job}, {_why_unusual(e)}" for e, _ in found]
    return [Curve(style.name, times, value, lower, upper, points=True, style=style, texts=jobs)]


def _why_unusual(entry: Entry) -> str:
    return "gates failed" if entry.rejected is None else "rejected"


def _trend_table(trends: Sequence[Trend]) -> Table:
    rows = []
    for found in trends:
        values = [score.value for _, score in found if score.value is not None]
        last = found[-1][1]
        change = _change(last, found[-2][1]).partition(" since")[0] if len(found) > 1 else ""
        rows.append(
            {
                "score": _named(last),
                "last": str(written_score(last)),
                "change": change,
                "lowest": format_number(min(values), typeset=True),
                "highest": format_number(max(values), typeset=True),
                "jobs": f"{len(values)}",
                "unit": printable(last.unit),
            }
        )
    return table_of("Trends", rows, numeric=("last", "change", "lowest", "highest", "jobs"))


def _verdicts_table(entries: Sequence[Entry], tags: Mapping[str, str]) -> Table:
    latest = list(enumerate(entries))[::-1]
    rows = [
        {
            "last used": printable(last_used(entry)),
            "job": printable(entry.job),
            "verdict": VERDICTS.get(entry.verdict, VERDICTS[None]),
            "strongest reason": printable(entry.failures.replace("\n", "; "))
            if entry.failed
            else printable(entry.warnings.replace("\n", "; ") or entry.verdict_reason or ""),
            "rows": f"{entry.corpus_rows:,}",
            "gates": printable(format_gates(entry)),
            "tags": printable(", ".join(tag for tag, job in tags.items() if job == entry.job)),
            "baseline": printable((entry.baseline or "").rstrip("/").rpartition("/")[2]),
        }
        for _, entry in latest
    ]
    table = table_of("Newest first", rows, numeric=("rows",))
    return replace(table, anchors=[anchor_of(place) for place, _ in latest])


def _costs_table(entries: Sequence[Entry]) -> Table:
    rows = [
        {
            "job": printable(entry.job),
            **written_cost(entry.seconds, entry.peak_memory_bytes),
            "version": printable(entry.version or "unknown"),
            "folder": printable(entry.url),
        }
        for entry in reversed(entries)
    ]
    return table_of("Cost", rows, numeric=COSTS)
