"""Scores of single labels: one table and one figure a measure, the largest labels first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.report.scores import score_title
from latentscale_pipeline.views.content import Figure, Table
from latentscale_pipeline.views.drawing import error_bars, in_plot, layout_of
from latentscale_pipeline.views.formatting import printable
from latentscale_pipeline.views.scores import written_score

Json = dict[str, Any]

SHOWN_LABELS = 100
"""Labels in a table; all are in ``results.json``."""

DRAWN_LABELS = 40
"""Labels in a figure."""


def label_tables(rows: list[Json], counts: Mapping[str, int]) -> list[Table]:
    """Return what every label scored: a row a label, a column a score.

    Parameters
    ----------
    rows : list of dict
        Rows of ``scores`` of one measure that name a label.
    counts : mapping
        Rows of the corpus by label, as far as that is known.
    """
    if not rows:
        return []
    titles = list(dict.fromkeys(_title(row) for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row["label"], {})[_title(row)] = _cell(row)
    labels = _largest_first(list(cells), counts)
    left = len(labels) - SHOWN_LABELS
    more = f"; {left:,} smaller ones are in results.json" if left > 0 else ""
    caption = f"Scores by label{more}"
    sized = any(label in counts for label in labels)
    return [
        Table(
            caption,
            ("label", *(["rows"] if sized else []), *titles),
            [
                (
                    printable(label),
                    *([f"{counts[label]:,}" if label in counts else "unknown"] if sized else []),
                    *(cells[label].get(title, "") for title in titles),
                )
                for label in labels[:SHOWN_LABELS]
            ],
            numeric=frozenset(range(1, len(titles) + 1 + sized)),
        )
    ]


def label_figures(key: str, rows: list[Json], counts: Mapping[str, int]) -> list[Figure]:
    """Return one figure: the score that a measure lists first, by label, with its brackets."""
    known = [row for row in rows if row["value"] is not None]
    if not known:
        return []
    title = _title(_headline(known))
    chosen = {row["label"]: row for row in reversed(known) if _title(row) == title}
    labels = _largest_first(list(chosen), counts)[:DRAWN_LABELS]
    shown = sorted((chosen[label] for label in labels), key=lambda row: float(row["value"]))
    value, lower, upper = ([row[end] for row in shown] for end in ("value", "lower", "upper"))
    layout = layout_of(in_plot(shown[0]["unit"]), "")
    layout["hovermode"] = "closest"
    layout["height"] = 130 + 20 * len(shown)
    places = list(range(len(shown)))
    layout["yaxis"] |= {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [_short(row["label"]) for row in shown],
        "range": [-0.7, len(shown) - 0.3],
    }
    layout["showlegend"] = False
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": title,
        "x": value,
        "y": places,
        "text": [in_plot(row["label"]) for row in shown],
        "error_x": error_bars(value, lower, upper) | {"color": "@corpus"},
        "marker": {"color": "@corpus", "size": 9},
        "hovertemplate": "%{text}: %{x:,.5~g}",
    }
    which = (
        "Of every label" if len(labels) == len(chosen) else f"Of the {len(shown)} largest labels"
    )
    caption = f"{which}: {title}, with its bracket. Scores that count items grow with the rows."
    return [Figure(f"{key}-labels", "By label", caption, {"data": [trace], "layout": layout})]


def _headline(rows: list[Json]) -> Json:
    """Return a row of the score that stands for its measure: order 1 where there are orders."""
    return next((row for row in rows if row.get("order") == "1"), rows[0])


def _title(row: Json) -> str:
    return score_title({**row, "label": None})


def _cell(row: Json) -> str:
    if row["value"] is None:
        return f"none: {printable(row.get('reason') or 'no reason was recorded')}"
    written = written_score(row)
    return written.value if written.bracket == "± 0" else f"{written.value} {written.bracket}"


def _largest_first(labels: list[str], counts: Mapping[str, int]) -> list[str]:
    return sorted(labels, key=lambda label: (-counts.get(label, 0), label))


def _short(label: str) -> str:
    text = printable(label)
    return in_plot(text if len(text) <= 32 else f"{text[:31]}…")
