"""What the report of a series opens with: the last verdict and since when, and headline scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from latentscale_pipeline.history.entries import (
    Entry,
    job_of_series,
    last_used,
    limiting,
    moment_of_use,
    series_of,
)
from latentscale_pipeline.report.control_chart import (
    ControlLimits,
    common_rows,
    comparable_scores,
    control_limits,
    false_alarm_rate,
    value_at,
)
from latentscale_pipeline.report.opening import fail
from latentscale_pipeline.report.scores import full_title
from latentscale_pipeline.report.terminal_summary import headlines
from latentscale_pipeline.report.verdict import HEADINGS, LEVEL
from latentscale_pipeline.results.model import SHARE_OF_ROWS, ExpectedRange, Score
from latentscale_pipeline.views.content import Mark, Opening
from latentscale_pipeline.views.figure import CHANCE, ROLE_STYLES, Curve, Figure, Panel, Style
from latentscale_pipeline.views.formatting import counted, printable

VERDICTS = {
    "no_difference_found": "no difference found",
    "differs": "differs",
    "cannot_tell": "cannot tell",
    None: "not compared",
}
"""A verdict in a table."""

PANEL_HEIGHT = 110
"""Height of a small panel, in pixels."""

OUTSIDE = Style("differs by more than chance", "line-3", symbol="diamond")
"""A score of a job that differs."""

Key = tuple[str, str, str, str | None, str | None, float | None]


WINDOW, SIGMAS = 14, 3.0
"""Jobs before each that set its control limits, and how wide these are."""

LIMITS = Style("control limits", "soft", "2 3")
"""The dotted lines between which a job is expected from those before."""


def open_series(entries: Sequence[Entry], earlier: Sequence[Entry] = ()) -> Opening:
    """Return the verdict on the last job, since when it holds, and a mark for each job.

    Jobs that are ``earlier`` than those that are shown set limits, too.
    """
    last = entries[-1]
    usual = printable((last.baseline or "").rstrip("/").rpartition("/")[2]) or "the reference"
    heading = HEADINGS.get(last.verdict, HEADINGS["cannot_tell"]).format(usual)
    outside = _outside_limits([*earlier, *entries]) if last.verdict is None else None
    kind = last.verdict or "not_compared"
    if outside:
        kind, heading = "differs", "Outside the control limits"
    elif outside is not None:
        kind, heading = "no_difference_found", "Within the control limits"
    failed = sum(entry.failed for entry in entries)
    sentences = [
        *(_since(entries) if outside is None else _beyond(outside)),
        *([printable(last.verdict_reason)] if last.verdict_reason else []),
        *_gates(entries, failed),
    ]
    opening = Opening(
        kind=kind,
        heading=heading,
        sentences=sentences,
        marks=[_mark(place, entry) for place, entry in enumerate(entries)],
    )
    return fail(opening) if last.failed else opening


def _outside_limits(entries: Sequence[Entry]) -> list[str] | None:
    """Return the headline scores of the last job that the jobs before didn't expect.

    None if too few jobs are known.
    """
    last, before = entries[-1], entries[:-1]
    chosen = [score for score in headlines(last.scores) if score.of != "reference"]
    known, outside = False, []
    for score in chosen:
        limits = None if score.value is None else _limits(last, score, before, len(chosen))
        known |= limits is not None
        if limits is not None and limits.exceeded:
            outside.append((limits.away, full_title(score)))
    return [title for _, title in sorted(outside, reverse=True)] if known else None


def _limits(
    entry: Entry, score: Score, before: Sequence[Entry], count: int
) -> ControlLimits | None:
    """Return the limits that the jobs before set for one of several scores of a job."""
    of_series = [each for each in before if series_of(each) == series_of(entry)]
    earlier = [job_of_series(each) for each in limiting(of_series)]
    job = job_of_series(entry)
    series = comparable_scores(score, job, earlier)[-WINDOW:]
    rate = false_alarm_rate(SIGMAS) / max(1, count)
    return control_limits(score, job.rows_of(score), series, rate)


def _beyond(outside: Sequence[str]) -> list[str]:
    if not outside:
        return ["The scores of the last job lie where the jobs before put them."]
    return [f"In the last job these lie outside: {'; '.join(outside)}."]


def _since(entries: Sequence[Entry]) -> list[str]:
    last = entries[-1]
    if last.verdict is None:
        why = "has no verdict" if last.baseline else "was compared with nothing"
        return [f"The last job {why}."]
    same = len(list(takewhile(lambda entry: entry.verdict == last.verdict, reversed(entries))))
    since = day_of(entries[-same])
    many = counted(len(entries), "job")
    if same == 1:
        return [f"So says the last of {many}."] if len(entries) > 1 else []
    return [f"Since {since}: the last {same} of {many}."]


def _gates(entries: Sequence[Entry], failed: int) -> list[str]:
    last = entries[-1]
    if all(entry.passed is None for entry in entries):
        return []
    whose = "their" if failed > 1 else "its"
    said = f"{failed or 'None'} of {counted(len(entries), 'job')} failed {whose} gates."
    if last.failed:
        reason = printable(last.failures.partition("\n")[0])
        return [f"{said} The last one failed{f': {reason}' if reason else ''}."]
    how = {True: "passed", False: "failed and was accepted", None: "had none"}
    return [f"{said} The last one {how[last.passed]}."]


def _mark(place: int, entry: Entry) -> Mark:
    failed = not entry.is_usual
    said = VERDICTS.get(entry.verdict, VERDICTS[None])
    if failed:
        said = "a gate failed" if entry.rejected is None else "rejected"
    kind = "failed" if failed else entry.verdict or "not_compared"
    return Mark(kind, f"{day_of(entry)}, {printable(entry.job)}: {said}", anchor_of(place))


def anchor_of(place: int) -> str:
    """Return the id of a job's row."""
    return f"job-{place}"


def day_of(entry: Entry) -> str:
    """Return the day on which a job was last in use."""
    return printable(last_used(entry)[:10] or "unknown")


def seconds_of(entry: Entry) -> float | None:
    """Return when a job was last in use, in seconds since the epoch; None if that is unknown."""
    moment = moment_of_use(entry)
    return None if moment is None else moment.timestamp()


def key_of(score: Score) -> Key:
    """Return what tells a score from others of a job, except for its label."""
    return (score.measure, score.of, score.score, score.kernel, score.order, score.scale)


# --- headline scores --------------------------------------------------------------------------


def headline_figures(entries: Sequence[Entry], earlier: Sequence[Entry] = ()) -> list[Figure]:
    """Return a small figure of each headline score, those that differ in the last job first.

    Jobs that are ``earlier`` than those that are shown set limits, too.
    """
    dated = [entry for entry in entries if seconds_of(entry) is not None]
    chosen = [score for score in headlines(entries[-1].scores) if score.of != "reference"]
    chosen.sort(key=lambda score: not _differs(score))
    figures = []
    for place, score in enumerate(chosen):
        found = [
            (entry, own)
            for entry in dated
            for own in entry.scores
            if key_of(own) == key_of(score) and own.label == score.label and own.value is not None
        ]
        if found:
            title = full_title(score)
            figures.append(_figure(f"headline-{place}", title, found, earlier, len(chosen)))
    return figures


def _differs(score: Score) -> bool:
    expected = score.expected
    if expected is None or expected.p_adjusted is None:
        return False
    return expected.p_adjusted <= LEVEL


def _figure(
    key: str,
    title: str,
    found: Sequence[tuple[Entry, Score]],
    earlier: Sequence[Entry],
    count: int,
) -> Figure:
    rows = common_rows([own for _, own in found])
    counts = found[-1][1].unit == SHARE_OF_ROWS
    caption = f"on samples of {rows:,} rows" if rows else "of all rows"
    values = [value_at(own, rows) for _, own in found]
    times = [seconds_of(entry) or 0.0 for entry, _ in found]
    style = Style("job", ROLE_STYLES["corpus"].colour)
    jobs = [entry.job for entry, _ in found]
    curves = [Curve("", times, values, style=style)]
    for name, differs in ((style, False), (OUTSIDE, True)):
        here = [place for place, (_, own) in enumerate(found) if _differs(own) == differs]
        if here:
            x, y = ([row[place] for place in here] for row in (times, values))
            texts = [jobs[place] for place in here]
            curves.append(Curve(name.name, x, y, points=True, style=name, texts=texts))
    usual = [
        (at, own.expected)
        for at, (_, own) in zip(times, found, strict=True)
        if own.expected and (counts or own.expected.rows == rows)
    ]
    if (rows or counts) and usual:
        curves.insert(0, _chance(usual))
    curves += _control_lines(times, found, rows, earlier, count)
    panel = Panel("", "", "", curves, dates=True, from_zero=counts, height=PANEL_HEIGHT)
    return Figure(key, title, caption, [panel])


def _control_lines(
    times: Sequence[float],
    found: Sequence[tuple[Entry, Score]],
    rows: int | None,
    earlier: Sequence[Entry],
    count: int,
) -> list[Curve]:
    """Return the limits that the jobs before each set, of values on as many rows as are drawn.

    They are those of one of ``count`` scores.
    """
    drawn: list[tuple[float, float, float]] = []
    entries = [entry for entry, _ in found]
    for place, (at, (entry, own)) in enumerate(zip(times, found, strict=True)):
        limits = _limits(entry, own, [*earlier, *entries[:place]], count)
        if limits is not None and limits.rows == rows:
            drawn.append((at, limits.lower, limits.upper))
    if not drawn:
        return []
    x, lower, upper = zip(*drawn, strict=True)
    return [Curve(name, x, y, style=LIMITS) for name, y in ((LIMITS.name, lower), ("", upper))]


def _chance(usual: Sequence[tuple[float, ExpectedRange]]) -> Curve:
    return Curve(
        CHANCE.name,
        [at for at, _ in usual],
        [known.centre for _, known in usual],
        [known.lower for _, known in usual],
        [known.upper for _, known in usual],
        style=CHANCE,
    )
