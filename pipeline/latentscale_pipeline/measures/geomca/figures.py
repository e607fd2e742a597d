"""The largest components of GeomCA: how many points of each corpus, and their scores."""

from __future__ import annotations

import math
from typing import Any

from latentscale_pipeline.measures.geomca.results import Component, GeomcaResults
from latentscale_pipeline.views.content import Figure
from latentscale_pipeline.views.drawing import ROLES, axis, layout_of

Json = dict[str, Any]

SHOWN_COMPONENTS = 30
"""Components in the chart; smaller ones are in the job's store."""

DWARFING = 20
"""How many times larger than the next a component makes the others invisible beside it."""


def geomca_figures(geomca: GeomcaResults) -> list[Figure]:
    """Return the chart of the largest components, unless there are none.

    Bars are stacked; where one component dwarfs the others they stand side by side on a
    logarithmic axis, since a stack has no meaning there.
    """
    components = geomca.components[:SHOWN_COMPONENTS]
    if not components:
        return []
    ranks = [component.rank for component in components]
    sizes = sorted((component.size for component in components), reverse=True)
    dwarfed = len(sizes) > 1 and sizes[0] > DWARFING * sizes[1]
    layout = layout_of("component, by rank", "thinned points")
    layout["barmode"] = "group" if dwarfed else "stack"
    layout["bargap"] = 0.25
    layout["xaxis"] |= {
        "anchor": "y2",
        "dtick": max(1, len(ranks) // 10),
        "tick0": ranks[0],
        "range": [ranks[0] - 0.7, ranks[-1] + 0.7],
    }
    layout["yaxis"] |= {"domain": [0.42, 1.0]}
    if dwarfed:
        layout["yaxis"] |= {
            "type": "log",
            "range": [math.log10(0.5), math.log10(2 * sizes[0])],
            "title": {"text": "thinned points (log.)", "standoff": 8},
            "dtick": "D1" if sizes[0] < 100 else 1,
        }
    layout["yaxis2"] = axis("score") | {
        "domain": [0.0, 0.32],
        "range": [-0.08, 1.08],
        "tickvals": [0, 0.5, 1],
    }
    layout["height"] = 460
    count = geomca.component_count
    of_all = "" if count is None else f" of {count:,}"
    caption = (
        f"The {len(components)} largest components{of_all}: above, how many thinned points of each "
        "corpus they hold; below, consistency (1 for equally many of both) and quality (share of "
        "edges between the two corpora)."
    )
    data = [*_component_bars(components, ranks), *_component_scores(components, ranks)]
    return [Figure("geomca-components", "Components", caption, {"data": data, "layout": layout})]


def _component_bars(components: list[Component], ranks: list[int]) -> list[Json]:
    return [
        {
            "type": "bar",
            "name": role,
            "x": ranks,
            "y": [getattr(component, f"n_{role}") for component in components],
            "marker": {"color": f"@{role}", "line": {"width": 0}},
            "hovertemplate": "%{y:,}",
        }
        for role in ROLES
    ]


def _component_scores(components: list[Component], ranks: list[int]) -> list[Json]:
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": ranks,
            "y": [getattr(component, name) for component in components],
            "yaxis": "y2",
            "marker": {
                "color": f"@{name}",
                "symbol": symbol,
                "size": size,
                "line": {"color": f"@{name}", "width": 2},
            },
            "hovertemplate": "%{y:.3f}",
        }
        for name, symbol, size in (("consistency", "square", 7), ("quality", "diamond-open", 12))
    ]
