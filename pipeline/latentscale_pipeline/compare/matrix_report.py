"""Show many corpora: matrices and trees as a page, and on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from latentscale.array_types import Float64Array
from latentscale_pipeline.compare.matrix import Matrix, Places, ScoreMatrix
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.views.axis import in_power
from latentscale_pipeline.views.content import Report, Section, Table
from latentscale_pipeline.views.figure import Curve, Figure, Grid, Panel, Style
from latentscale_pipeline.views.formatting import counted, format_number, listed, printable, shorten
from latentscale_pipeline.views.scores import format_summarised, why_null
from latentscale_pipeline.views.terminal import format_table

TREE = Style("", "line-0")

WITH_DISTANCES = [
    name
    for name, measure in MEASURES.items()
    if any(definition.relation for definition in measure.report.scores.values())
]
"""Measures of how near two corpora are."""

LEAF_HEIGHT = 30
"""Height of a corpus in a tree, in pixels."""

NAME_LENGTH = 28
"""Longest name of a corpus on a terminal."""


def matrix_report(matrix: Matrix, name: str) -> Report:
    """Return the page about many corpora."""
    matrices = matrix.matrices()
    return Report(
        kind="comparison",
        title=name,
        subtitle=f"{counted(len(matrix.names), 'corpus', 'corpora')}, every two of them",
        conclusions=[nearest_and_farthest(matrix, found) for found in matrices],
        warnings=warnings_of(matrix),
        sections=[
            *(_section(matrix, found, place) for place, found in enumerate(matrices)),
            *([_alone(matrix)] if matrix.alone() else []),
        ],
    )


def warnings_of(matrix: Matrix) -> list[str]:
    """Return what no reader of the matrices should overlook."""
    said = []
    sizes = matrix.sizes()
    if len(set(sizes)) > 1:
        said.append(
            f"The corpora have {min(sizes):,} to {max(sizes):,} rows, and distances may depend on "
            "that: compare corpora of equally many rows, by latentscale subset --sample."
        )
    weighted = matrix.weighted()
    if len(set(weighted.values())) > 1:
        theirs, none = (
            listed(name for name, has in weighted.items() if has is kind) for kind in (True, False)
        )
        said.append(
            f"Rows have weights in {theirs}, and none in {none}: scores of each corpus by itself "
            "that use weights can't be compared."
        )
    unknown = [
        found.title
        for found in matrix.matrices()
        if any(
            score.value is not None and score.sampling_error is None
            for score in found.scores.values()
        )
    ]
    if unknown:
        said.append(
            f"The sampling error of {', '.join(unknown)} isn't known here: small differences may "
            "be chance. A run of two corpora says whether theirs is."
        )
    # What measures say of one corpus alone isn't about a pair.
    between = {score.measure for found in matrix.matrices() for score in found.scores.values()}
    said += [
        f"{printable(matrix.names[one])} and {printable(matrix.names[other])}: {caveat}."
        for (one, other), job in matrix.jobs.items()
        for name, measure in MEASURES.items()
        if name in between
        if (part := job.results.part(name)) is not None
        for caveat in measure.report.caveats(part, job.results)
    ]
    return [*said, *_unmeasured(matrix)]


def _unmeasured(matrix: Matrix) -> Iterator[str]:
    """Say which measures some pairs lack, and why the first of them does."""
    for name in MEASURES:
        reasons = {
            places: reason
            for places, job in matrix.jobs.items()
            if (reason := job.results.measures.get(f"{name}_reason"))
        }
        if reasons:
            yield _without_value(matrix, name, reasons)
    for found in matrix.matrices():
        nulls = {
            places: why_null(score)
            for places, score in found.scores.items()
            if score.value is None
            if f"{score.measure}_reason" not in matrix.jobs[_in_order(places)].results.measures
        }
        if nulls:
            yield _without_value(matrix, found.title, nulls, of=len(found.scores))


def _in_order(places: Places) -> Places:
    return min(places), max(places)


def _without_value(
    matrix: Matrix, name: str, reasons: Mapping[Places, str], of: int | None = None
) -> str:
    """Say how many pairs have no value, and why the first has none."""
    (one, other), reason = next(iter(reasons.items()))
    names = f"{printable(matrix.names[one])} and {printable(matrix.names[other])}"
    return (
        f"{name}: {len(reasons)} of {of or len(matrix.jobs)} pairs have no value, such as {names}: "
        f"{printable(reason)}."
    )


def nearest_and_farthest(matrix: Matrix, found: ScoreMatrix) -> str:
    """Say which two corpora are the nearest by a score, and which the farthest."""
    sign = 1.0 if found.relation == "distance" else -1.0
    apart = {
        places: sign * score.value
        for places, score in found.scores.items()
        if score.value is not None
    }
    if not apart:
        return f"{found.title}: no two corpora have a value."
    near, far = min(apart, key=apart.__getitem__), max(apart, key=apart.__getitem__)
    joined = "in" if found.directed else "and"
    values = list(apart.values())
    said = []
    for one, other in (near, far):
        alike = values.count(apart[one, other]) - 1
        with_others = f" and {counted(alike, 'other pair')}" if alike else ""
        said.append(
            f"{printable(matrix.names[one])} {joined} {printable(matrix.names[other])}"
            f"{with_others} ({format_summarised(found.scores[one, other])})"
        )
    if len(apart) == 1:
        return f"{found.title}: {said[0]}."
    if found.directed:
        return f"{found.title}: largest is that of {said[0]}, smallest {said[1]}."
    return f"{found.title}: nearest are {said[0]}, farthest {said[1]}."


def matrix_lines(matrix: Matrix) -> Iterator[str]:
    """Yield every matrix as lines of text, near corpora beside each other."""
    for found in matrix.matrices():
        order, values = found.order(), found.values
        columns = ["", *(str(place + 1) for place in order)]
        rows = [
            {
                "": f"{row + 1}  {shorten(printable(matrix.names[row]), NAME_LENGTH)}",
                **{str(column + 1): _written(values[row, column]) for column in order},
            }
            for row in order
        ]
        yield from (f"{found.title}, {_kind(found)}", *format_table(columns, rows))
        yield from (nearest_and_farthest(matrix, found), "")
    if not matrix.matrices():
        yield from (
            f"No measure of these jobs says how near corpora are; {', '.join(WITH_DISTANCES)} do.",
            "",
        )
    yield from warnings_of(matrix)
    if matrix.alone():
        yield ""
        table = _alone_table(matrix)
        rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
        yield from ("Each corpus by itself", *format_table(table.header, rows), "")


def _kind(found: ScoreMatrix) -> str:
    if found.directed:
        return "of the corpus at the left in the one above"
    return "a distance" if found.relation == "distance" else "a similarity"


def _written(value: float) -> str:
    return format_number(value, 3) if np.isfinite(value) else "·"


def _section(matrix: Matrix, found: ScoreMatrix, place: int) -> Section:
    order = found.order()
    names = [f"{each + 1}  {matrix.names[each]}" for each in order]
    values = found.values[np.ix_(order, order)]
    apart = np.maximum(values if found.relation == "distance" else 1.0 - values, 0.0)
    largest = float(np.nanmax(apart, initial=0.0)) or 1.0
    shades = np.nan_to_num(apart / largest)
    power = _common_power(values)
    texts = [
        [f"{value / 10.0**power:.2f}" if np.isfinite(value) else "·" for value in row]
        for row in values
    ]
    darker = "farther apart" if found.relation == "distance" else "less alike"
    unit = f" The unit is {in_power(power).lstrip(', ')}." if power else ""
    which = f" Values are {_kind(found)}." if found.directed else ""
    caption = f"The darker, the {darker}.{which}{unit}"
    key = f"matrix-{place}"
    grid = Figure(
        f"{key}-grid",
        "Every two",
        caption,
        grid=Grid(names, [str(each + 1) for each in order], texts, shades.tolist()),
    )
    tree = _tree(matrix, found, f"{key}-tree")
    return Section(key=key, title=found.title, figures=[grid, *([tree] if tree else [])])


def _common_power(values: Float64Array) -> int:
    """Return the power of ten that numbers of a grid are divided by, so that they are short."""
    largest = float(np.nanmax(np.abs(values), initial=0.0))
    power = math.floor(math.log10(largest)) if largest > 0.0 else 0
    return 0 if -1 <= power <= 2 else power


def _tree(matrix: Matrix, found: ScoreMatrix, key: str) -> Figure | None:
    """Draw which corpora are joined at which mean distance; None if a value is missing."""
    merges, order = found.merges(), found.order()
    if not merges:
        return None
    # Places run upwards, and the rows of the grid downwards.
    order = order[::-1]
    at = {place: (float(order.index(place)), 0.0) for place in range(found.n)}
    curves = []
    for number, merge in enumerate(merges):
        (one, low), (other, high) = at[merge.first], at[merge.second]
        height = merge.height
        line = ([one, one, other, other], [low, height, height, high])
        curves.append(Curve("", *line, style=TREE))
        at[found.n + number] = ((one + other) / 2.0, height)
    label = "mean distance" if found.relation == "distance" else "1 − mean similarity"
    panel = Panel(
        "",
        "",
        label,
        curves,
        from_zero=True,
        places=[shorten(matrix.names[each], NAME_LENGTH) for each in order],
        turned=True,
        height=LEAF_HEIGHT * found.n,
    )
    caption = "Groups of corpora are joined where the line between them lies: average linkage."
    return Figure(key, "Which are near each other", caption, [panel])


def _alone(matrix: Matrix) -> Section:
    return Section(key="alone", title="Each corpus by itself", tables=[_alone_table(matrix)])


def _alone_table(matrix: Matrix) -> Table:
    scores = matrix.alone()
    header = ("corpus", *scores)
    rows = [
        (
            printable(name),
            *(
                "none" if (score := column[place]) is None else format_summarised(score)
                for column in scores.values()
            ),
        )
        for place, name in enumerate(matrix.names)
    ]
    return Table("Scores of each corpus", header, rows, frozenset(range(1, len(header))))
