"""Tables and figures of the scores by label, one each per measure, the largest labels first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from latentscale_pipeline.report.scores import full_title, report_of, score_title
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.content import Table, table_of
from latentscale_pipeline.views.figure import PLACE_HEIGHT, ROLE_STYLES, Curve, Figure, Panel
from latentscale_pipeline.views.formatting import label_name, printable, shorten
from latentscale_pipeline.views.scores import format_summarised, written_score

SHOWN_LABELS = 100
"""Maximum number of labels in a table; ``results.json`` has all."""

SUMMARISED_LABELS = 8
"""Maximum number of labels in a summary."""

DRAWN_LABELS = 20
"""Maximum number of labels in a figure."""


def label_summary(scores: Sequence[Score], counts: Mapping[str, int]) -> list[dict[str, str]]:
    """Return the largest labels with a score of every measure, as rows of a table.

    Parameters
    ----------
    scores : sequence of Score
        Scores of all measures.
    counts : mapping
        Number of rows of every measured label.
    """
    labelled = [score for score in scores if score.label is not None and score.label in counts]
    chosen = {
        measure: _main(score for score in labelled if score.measure == measure)
        for measure in dict.fromkeys(score.measure for score in labelled)
    }
    cells = {(_label(s), _whole_title(s)): format_summarised(s) for s in labelled}
    largest = _largest_first(list(counts), counts)[:SUMMARISED_LABELS]
    return [
        {
            "label": name,
            "rows": f"{counts[label]:,}",
            **{title: cells.get((label, title), "") for title in chosen.values() if title},
        }
        for label, name in zip(largest, _short_names(largest), strict=True)
    ]


def label_tables(scores: Sequence[Score], counts: Mapping[str, int]) -> list[Table]:
    """Return tables of the scores by label: one row per label, one column per score.

    Parameters
    ----------
    scores : sequence of Score
        Scores of one measure, each of one label.
    counts : mapping
        Number of rows per label, for the labels whose count is known.
    """
    if not scores:
        return []
    titles = list(dict.fromkeys(_title(score) for score in scores))
    cells: dict[str, dict[str, str]] = {}
    for score in scores:
        cells.setdefault(_label(score), {})[_title(score)] = _cell(score)
    labels = _largest_first(list(cells), counts)
    left = len(labels) - SHOWN_LABELS
    more = f"; {left:,} smaller ones are in results.json" if left > 0 else ""
    caption = f"Scores by label{more}"
    sized = any(label in counts for label in labels)
    rows = [
        {
            "label": label_name(label),
            **({"rows": f"{counts[label]:,}" if label in counts else "unknown"} if sized else {}),
            **{title: cells[label].get(title, "") for title in titles},
        }
        for label in labels[:SHOWN_LABELS]
    ]
    return [table_of(caption, rows, numeric=list(rows[0])[1:])]


def label_figures(key: str, scores: Sequence[Score], counts: Mapping[str, int]) -> list[Figure]:
    """Return one figure: the main score of a measure by label, with brackets."""
    known = [score for score in scores if score.numbers]
    if not known:
        return []
    # For measures with orders, order 1 is the main score.
    headline = next((score for score in known if score.order == "1"), known[0])
    title = _title(headline)
    chosen = {_label(score): score.numbers for score in reversed(known) if _title(score) == title}
    labels = _largest_first(list(chosen), counts)[:DRAWN_LABELS]
    shown = sorted(labels, key=lambda label: chosen[label] or ())
    value, lower, upper = zip(*(chosen[label] or () for label in shown), strict=True)
    which = (
        "Of every label" if len(labels) == len(chosen) else f"Of the {len(shown)} largest labels"
    )
    caption = f"{which}: {title}, with its bracket. Scores that count items grow with the rows."
    curve = Curve(
        title,
        range(len(shown)),
        value,
        lower,
        upper,
        points=True,
        style=ROLE_STYLES["corpus"],
    )
    panel = Panel(
        "",
        "",
        printable(headline.unit),
        [curve],
        places=_short_names(shown),
        turned=True,
        height=PLACE_HEIGHT * len(shown),
    )
    return [Figure(f"{key}-labels", "By label", caption, [panel])]


def _short_names(labels: Sequence[str]) -> list[str]:
    """Return short names of labels, and whole ones where short ones would be equal."""
    short = [shorten(label_name(label)) for label in labels]
    return [
        name if short.count(name) == 1 else label_name(label)
        for label, name in zip(labels, short, strict=True)
    ]


def _main(scores: Iterable[Score]) -> str | None:
    """Return the title of the score that says most of a measure; None without headline scores."""
    shown = [
        score
        for score in scores
        if report_of(score.measure).is_headline(score.model_copy(update={"label": None}))
    ]
    if not shown:
        return None
    main = report_of(shown[0].measure).main
    chosen = (score for score in shown if score.order == "1" or score.score == main)
    return _whole_title(next(chosen, shown[0]))


def _label(score: Score) -> str:
    return score.label or ""


def _title(score: Score) -> str:
    return score_title(score.model_copy(update={"label": None}))


def _whole_title(score: Score) -> str:
    return full_title(score.model_copy(update={"label": None}))


def _cell(score: Score) -> str:
    written = written_score(score)
    if score.value is None:
        return f"{written.value}: {written.bracket}"
    return written.value if written.bracket == "± 0" else f"{written.value} {written.bracket}"


def _largest_first(labels: list[str], counts: Mapping[str, int]) -> list[str]:
    return sorted(labels, key=lambda label: (-counts.get(label, 0), label))
