"""The report's section on Vendi scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from latentscale_pipeline.measures.base import MeasureReport, Score
from latentscale_pipeline.measures.vendi.results import VendiResults, VendiScore
from latentscale_pipeline.measures.vendi.scores import SCORES
from latentscale_pipeline.results.model import CurveRange, Results
from latentscale_pipeline.views.chance import with_chance
from latentscale_pipeline.views.figure import (
    Curve,
    Figure,
    Panel,
    Style,
    present,
    said_of_brackets,
)
from latentscale_pipeline.views.formatting import format_number, listed, printable
from latentscale_pipeline.views.rarefaction import Growth, draw_rarefaction
from latentscale_pipeline.views.scores import whole_scores
from latentscale_pipeline.views.terms import BOUNDS

Drawn = tuple[Style, Sequence[VendiScore]]
Kernel = tuple[str, float | None]
Numbers = tuple[float, float, float]


HEADLINES = ("1",)
COSINE_HEADLINES = ("0.1", "1", "inf")
"""Orders that stand in summaries."""


class VendiReport(MeasureReport):
    """The effective number of items of a corpus."""

    group = "Diversity"
    title = "Effective number of items: Vendi scores"
    question = (
        "The number of completely dissimilar items that would be as diverse as the corpus, under "
        "a kernel that defines similarity."
    )
    source = (
        "Friedman and Dieng, The Vendi Score, TMLR 2023, definition 3.1; order q from Pasarkar "
        "and Dieng, Cousins of the Vendi Score, AISTATS 2024, equation 8"
    )
    scores = SCORES

    def is_headline(self, score: Score) -> bool:
        """Return whether the order is 1; of whole scores under cosine also a low and a high one."""
        if score.score == "truncated_vendi":
            return score.order in HEADLINES
        return score.order in (COSINE_HEADLINES if score.kernel == "cosine" else HEADLINES)

    def figures(self, found: VendiResults, results: Results) -> list[Figure]:
        """Draw the scores by order, and how they differ; a figure for each kernel.

        Where subsets were scored, their rarefaction curves follow.
        """
        figures = []
        scores = whole_scores(results.scores, "vendi", of="corpus")
        names = list(dict.fromkeys(score.kernel for score in scores))
        for place, ((kernel, bandwidth), drawn) in enumerate(_by_kernel(present(found))):
            figure = _draw_orders(f"vendi-{place}", kernel, bandwidth, drawn)
            own = [
                score
                for score in scores
                if score.score == "vendi" and score.kernel in names[place : place + 1]
            ]
            figures.append(_with_chance(figure, own))
            curves = [curve for style, entries in drawn for curve in _curves(style, entries)]
            grown = draw_rarefaction(f"vendi-{place}-rarefaction", curves, "effective items")
            figures += [grown] if grown else []
        return figures

    def overlays(self, found: Sequence[Drawn]) -> list[Figure]:
        """Draw the scores of several jobs by order, one plot per kernel."""
        return [
            _draw_orders(f"vendi-{place}", kernel, bandwidth, drawn)
            for place, ((kernel, bandwidth), drawn) in enumerate(_by_kernel(found))
        ]

    def notes(self, found: VendiResults) -> list[str]:
        """State when the scores of two corpora are comparable, and whose rows have weights."""
        weighted = [f"{line}." for line in _weighted(found)]
        if not found.reference:
            return weighted
        return [
            *weighted,
            (
                "Scores of two corpora are comparable only under the same kernel and bandwidth, "
                "and can grow with the number of rows: compare corpora of similar size."
            ),
        ]

    def caveats(self, found: VendiResults, results: Results) -> list[str]:
        """Say whose rows count by their weights."""
        return _weighted(found)

    def methods(self, found: VendiResults) -> list[tuple[str, str]]:
        """Return the methods of each kernel."""
        return [
            (f"Vendi, {style.name}", _kernel_method(entries, *kernel))
            for style, entries in present(found)
            for kernel in dict.fromkeys((entry.kernel, entry.bandwidth) for entry in entries)
        ]


def _weighted(found: VendiResults) -> list[str]:
    if not found.weighted:
        return []
    only = ""
    if found.reference and len(found.weighted) == 1:
        other = "reference" if found.weighted == ["corpus"] else "corpus"
        only = f", and the {other} has none, so the scores of the two can't be compared"
    whose = "both corpora" if len(found.weighted) > 1 else f"the {found.weighted[0]}"
    said = f"Vendi scores count the rows of {whose} by their weights{only}"
    return [f"{said}; other measures count each row once"]


def _beside(theirs: Numbers | None) -> str:
    """Give the score of the reference, if there is one."""
    if theirs is None:
        return ""
    return f"; the reference is as diverse as {_plainly(theirs[0])}"


def _plainly(value: float) -> str:
    return format_number(value, 3, typeset=True)


def _kernel_method(entries: Sequence[VendiScore], kernel: str, bandwidth: float | None) -> str:
    methods = listed(
        entry.method for entry in entries if (entry.kernel, entry.bandwidth) == (kernel, bandwidth)
    )
    width = "" if bandwidth is None else f", σ = {format_number(bandwidth)}"
    return f"{printable(kernel)} kernel{width}: {methods}"


def _draw_orders(key: str, kernel: str, bandwidth: float | None, chosen: Sequence[Drawn]) -> Figure:
    """Draw scores of one kernel by order, as points with their brackets."""
    brackets = [numbers for _, entries in chosen for entry in entries if (numbers := entry.numbers)]
    values = [value for value, _, _ in brackets]
    spread = bool(values) and max(values) > 10 * min(values)
    orders = sorted({float(entry.order) for _, entries in chosen for entry in entries})
    counts = " and ".join(
        f"{entries[0].n:,} ({style.name})" for style, entries in chosen if entries
    )
    width = "" if bandwidth is None else f" with bandwidth σ = {format_number(bandwidth)}"
    said = [
        f"Effective number of items out of {counts}, kernel {printable(kernel)}{width}.",
        said_of_brackets(brackets, "Bars are the brackets"),
        *(
            f"Order {printable(entry.order)} of the {style.name} is missing: "
            f"{printable(entry.value_reason)}."
            for style, entries in chosen
            for entry in entries
            if entry.value is None
        ),
    ]
    caption = " ".join(filter(None, said))
    panel = Panel(
        "",
        "order",
        "effective items",
        [_points(style, entries, orders) for style, entries in chosen],
        log_y=spread,
        from_zero=not spread,
        places=[_order_name(order) for order in orders],
    )
    return Figure(key, f"Vendi score by order, {printable(kernel)} kernel", caption, [panel])


def _with_chance(figure: Figure, scores: Sequence[Score]) -> Figure:
    """Add a panel of the differences from the reference, with those that chance makes."""
    known = [(score, score.expected) for score in scores if score.expected]
    orders = list(figure.panels[0].places)
    names = [_order_name(float(score.order or "nan")) for score, _ in known]
    if (
        len(known) < 2
        or not all(expected.centre for _, expected in known)
        or set(names) - set(orders)
    ):
        return figure
    ends = ("found", "centre", "lower", "upper")
    ranges = CurveRange(
        rows=known[0][1].rows,
        x=[orders.index(name) for name in names],
        **{end: [getattr(each, end) for _, each in known] for end in ends},
    )
    return with_chance(figure, ranges)


def _points(style: Style, entries: Sequence[VendiScore], orders: Sequence[float]) -> Curve:
    known = [(entry, numbers) for entry in entries if (numbers := entry.numbers)]
    value, lower, upper = ([numbers[end] for _, numbers in known] for end in range(3))
    return Curve(
        style.name,
        [orders.index(float(entry.order)) for entry, _ in known],
        value,
        lower,
        upper,
        points=True,
        line=True,
        style=style,
        texts=[listed([BOUNDS[entry.bounds or ""].name, entry.method]) for entry, _ in known],
    )


def _by_kernel(drawn: Sequence[Drawn]) -> list[tuple[Kernel, list[Drawn]]]:
    """Return the entries of each kernel and bandwidth, by order."""
    found: dict[Kernel, list[Drawn]] = {}
    for style, entries in drawn:
        own: dict[Kernel, list[VendiScore]] = {}
        for entry in sorted(entries, key=lambda entry: float(entry.order)):
            own.setdefault((entry.kernel, entry.bandwidth), []).append(entry)
        for kernel in dict.fromkeys((entry.kernel, entry.bandwidth) for entry in entries):
            found.setdefault(kernel, []).append((style, own[kernel]))
    return list(found.items())


def _curves(style: Style, entries: Sequence[VendiScore]) -> list[Growth]:
    return [
        Growth(
            of=f"order {'∞' if entry.order == 'inf' else entry.order}",
            style=style,
            sizes=entry.rarefaction.sizes,
            values=entry.rarefaction.values,
            n=entry.n,
            value=numbers[0],
            lower=numbers[1],
            upper=numbers[2],
        )
        for entry in entries
        if entry.rarefaction and (numbers := entry.numbers)
    ]


def _order_name(order: float) -> str:
    return "∞" if order == math.inf else f"{order:g}"
