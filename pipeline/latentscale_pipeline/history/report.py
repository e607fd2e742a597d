"""The report of a series: every score over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from latentscale_pipeline.history.entries import Entry
from latentscale_pipeline.report.method import PROMISES, SAMPLING_ERROR, written_cost
from latentscale_pipeline.report.scores import (
    definitions_of,
    score_title,
    title_apart,
    titled_report,
)
from latentscale_pipeline.results.kernel_names import complete_names
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.content import Answer, Fact, Figure, Report, Section, Table
from latentscale_pipeline.views.drawing import (
    Json,
    Style,
    banded_line,
    in_plot,
    layout_of,
    log_axis,
    numbered_styles,
)
from latentscale_pipeline.views.formatting import counted, printable, write_number
from latentscale_pipeline.views.scores import written_score

SPREAD = 10.0
"""Ratio of the largest to the smallest value of a figure beyond which its axis is logarithmic."""

Key = tuple[str, str, str, str | None, str | None, float | None]


def series_report(
    entries: Sequence[Entry], title: str, tags: Mapping[str, str] | None = None
) -> Report:
    """Return what the report of a series over time says.

    Parameters
    ----------
    entries : sequence of Entry
        The oldest first, at least one.
    title : str
        What the series is called.
    tags : mapping, optional
        The job that each tag is at.
    """
    entries = _with_complete_kernels(entries)
    measures = dict.fromkeys(score.measure for entry in entries for score in entry.scores)
    return Report(
        kind="series",
        title=printable(title),
        subtitle=f"{counted(len(entries), 'job')}, {_day(entries[0])} to {_day(entries[-1])}",
        conclusions=_conclusions(entries),
        answers=[_latest(entries), _gates(entries)],
        sections=[
            *(_section(place, measure, entries) for place, measure in enumerate(measures)),
            Section(
                key="method",
                title="The jobs of this series",
                question="Brackets bound the measure of each very corpus; sampling error is apart.",
                tables=[_jobs_table(entries, tags or {})],
                glossary=[*PROMISES, SAMPLING_ERROR],
            ),
        ],
    )


def _with_complete_kernels(entries: Sequence[Entry]) -> list[Entry]:
    """Name every kernel with its bandwidth, so that a score of an earlier version goes on."""
    names = complete_names(score.kernel for entry in entries for score in entry.scores)
    return [
        replace(
            entry,
            scores=tuple(
                score.model_copy(update={"kernel": names.get(score.kernel or "", score.kernel)})
                for score in entry.scores
            ),
        )
        for entry in entries
    ]


def _day(entry: Entry) -> str:
    return printable(entry.finished[:10] or "unknown")


def _conclusions(entries: Sequence[Entry]) -> list[str]:
    failed = sum(entry.passed is False for entry in entries)
    many = counted(len(entries), "job")
    whose = "their" if failed > 1 else "its"
    said = f"{failed or 'None'} of {many} failed {whose} gates"
    last = entries[-1]
    if last.passed is False:
        return [f"{said}. The last one failed: {printable(last.failures.partition(chr(10))[0])}."]
    return [f"{said}. The last one {'passed' if last.passed else 'had no gates'}."]


def _latest(entries: Sequence[Entry]) -> Answer:
    last, before = entries[-1], entries[-2] if len(entries) > 1 else None
    before_scores = before.scores if before else ()
    previous = {_key(score): score for score in before_scores if score.label is None}
    facts = []
    for score in last.scores:
        if score.label is not None or score.of == "reference" or score.value is None:
            continue
        if score.order not in (None, "1") or score.better == "none":
            continue
        written = written_score(score.document())
        earlier = previous.get(_key(score))
        facts.append(
            Fact(
                title_apart(score.document()),
                written.value,
                written.bracket,
                _change(score, earlier) if before else "",
            )
        )
    return Answer("Where does it stand?", facts)


def _change(score: Score, earlier: Score | None) -> str:
    if earlier is None or earlier.value is None or score.value is None:
        return "no such score before"
    if earlier.value == 0.0:
        return f"before: {write_number(earlier.value)}"
    share = (score.value - earlier.value) / abs(earlier.value)
    sign = "+" if share > 0 else ""
    return f"{sign}{write_number(100 * share, 2, typeset=True)} % since the one before"


def _gates(entries: Sequence[Entry]) -> Answer:
    failed = [entry for entry in entries if entry.passed is False]
    facts = [
        Fact(_day(entry), "failed", printable(entry.job), printable(entry.failures))
        for entry in failed[-5:]
    ]
    return Answer("Which failed?", facts, "" if facts else "None.")


def _key(score: Score) -> Key:
    return (score.measure, score.of, score.score, score.kernel, score.order, score.scale)


def _section(place: int, measure: str, entries: Sequence[Entry]) -> Section:
    known = titled_report(measure)
    key = measure if known else f"further-{place}"
    scores = dict.fromkeys(
        _key(score)
        for entry in entries
        for score in entry.scores
        if score.measure == measure and score.label is None
    )
    rows = [score.document() for score in entries[-1].scores if score.measure == measure]
    return Section(
        key=key,
        title=known.title if known else printable(measure),
        question=known.question if known else "",
        source=known.source if known else "",
        figures=_figures(key, list(scores), entries),
        scores=_trend_table(list(scores), entries),
        glossary=definitions_of(rows),
    )


def _history(key: Key, entries: Sequence[Entry]) -> list[tuple[Entry, Score]]:
    """Return a score wherever it has a value, the oldest first."""
    return [
        (entry, score)
        for entry in entries
        for score in entry.scores
        if score.label is None and score.value is not None and _key(score) == key
    ]


def _named(key: Key) -> str:
    measure, of, score, kernel, order, scale = key
    row = {"measure": measure, "score": score, "kernel": kernel, "order": order, "scale": scale}
    return score_title(row) if of == "pair" else f"{score_title(row)}, {of}"


def _figures(prefix: str, scores: Sequence[Key], entries: Sequence[Entry]) -> list[Figure]:
    """Return a figure for each score and kernel; orders and scales are lines of one figure."""
    groups: dict[tuple[str, str | None, bool], list[Key]] = {}
    for key in scores:
        groups.setdefault((key[2], key[3], key[1] == "pair"), []).append(key)
    figures = []
    for place, keys in enumerate(groups.values()):
        lines = [key for key in keys if key[1] != "reference"] or keys
        known = [key for key in lines if _history(key, entries)]
        if known:
            figures.append(_trend(f"{prefix}-trend-{place}", known, entries))
    return figures


def _trend(figure: str, keys: Sequence[Key], entries: Sequence[Entry]) -> Figure:
    data: list[Json] = []
    values: list[float] = []
    for style, key in zip(numbered_styles([_named(key) for key in keys]), keys, strict=True):
        data += _line(style, _history(key, entries))
        values += [value for _, score in _history(key, entries) if (value := score.value)]
    unit = next(score.unit for _, score in _history(keys[0], entries))
    layout = layout_of("finished (UTC)", in_plot(unit))
    layout["xaxis"] |= {"type": "date"}
    layout["showlegend"] = len(keys) > 1
    if values and min(values) > 0 and max(values) > SPREAD * min(values):
        layout["yaxis"] |= log_axis() | {"title": {"text": f"{in_plot(unit)} (logarithmic)"}}
    measure, _, score, kernel, _, _ = keys[0]
    title = _named((measure, keys[0][1], score, kernel, None, None))
    caption = (
        "The band is the bracket; a cross marks a job whose gates failed. Scores of corpora of "
        "different size aren't alike."
    )
    return Figure(figure, title, caption, {"data": data, "layout": layout})


def _line(style: Style, found: Sequence[tuple[Entry, Score]]) -> list[Json]:
    lower, upper = ([getattr(score, end) for _, score in found] for end in ("lower", "upper"))
    lines = banded_line(
        style,
        [entry.finished for entry, _ in found],
        [score.value for _, score in found],
        lower,
        upper,
        markers=True,
        hover="%{y:,.6~g} [%{customdata[0]:,.6~g}, %{customdata[1]:,.6~g}] %{customdata[2]}",
        custom=[
            [low, high, in_plot(entry.job)]
            for (entry, _), low, high in zip(found, lower, upper, strict=True)
        ],
    )
    lines[-1]["marker"]["size"] = 8
    lines[-1]["marker"]["symbol"] = [
        "x" if entry.passed is False else style.symbol for entry, _ in found
    ]
    return lines


def _trend_table(scores: Sequence[Key], entries: Sequence[Entry]) -> Table:
    rows = []
    for key in scores:
        found = _history(key, entries)
        if not found:
            continue
        values = [score.value for _, score in found if score.value is not None]
        last = written_score(found[-1][1].document())
        previous = found[-2][1] if len(found) > 1 else None
        rows.append(
            (
                _named(key),
                f"{last.value} {last.bracket}",
                "" if previous is None else _change(found[-1][1], previous).partition(" since")[0],
                write_number(min(values), typeset=True),
                write_number(max(values), typeset=True),
                f"{len(values)}",
                printable(found[-1][1].unit),
            )
        )
    return Table(
        "Trends",
        ("score", "last", "change", "lowest", "highest", "jobs", "unit"),
        rows,
        numeric=frozenset({1, 2, 3, 4, 5}),
    )


def _jobs_table(entries: Sequence[Entry], tags: Mapping[str, str]) -> Table:
    words = {True: "passed", False: "failed", None: "none"}
    return Table(
        "Jobs",
        (
            *("finished", "job", "rows", "gates", "tags"),
            *("time", "peak memory", "version", "baseline", "folder"),
        ),
        [
            (
                printable(entry.finished),
                printable(entry.job),
                f"{entry.corpus_rows:,}",
                words[entry.passed],
                printable(", ".join(tag for tag, job in tags.items() if job == entry.job)),
                *written_cost(entry.seconds, entry.peak_memory_bytes),
                printable(entry.version or "unknown"),
                printable(entry.baseline or ""),
                printable(entry.url),
            )
            for entry in reversed(entries)
        ],
        numeric=frozenset({2, 5, 6}),
    )
