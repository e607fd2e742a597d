"""Write a report as one HTML page that needs no network.

Names chosen by users (of jobs, corpora, labels, measures) are escaped, by the template or where
figures are drawn. Figures are SVG in the page: they fit its width, print, and need no script. The
page has its own content security policy: only its style sheet and its one script run, and nothing
is fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING

from latentscale_pipeline.views.content import Report, Section
from latentscale_pipeline.views.figure import Figure, Grid, Panel, legend_of, styles_of
from latentscale_pipeline.views.svg import Drawing, draw_grid, draw_panel, sample_of

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

MAX_COLUMNS = 4
"""Columns of a table that fits half of a wide page."""


def format_html(report: Report) -> str:
    """Return a report as one self-contained HTML document."""
    # Imported here because comparisons on a terminal don't need it.
    from markupsafe import Markup

    style, script = _text("page.css"), _text("page.js")
    return _page().render(
        report=report,
        draw=_draw,
        halves=_halves(report.sections),
        style=Markup(style),  # noqa: S704  (the package's own file)
        script=Markup(script),  # noqa: S704  (the package's own file)
        style_hash=_content_hash(style),
        script_hash=_content_hash(script),
    )


@cache
def _page() -> Template:
    """Return the compiled template; compiling takes longer than most pages."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["markup"] = Markup
    environment.filters["with_code"] = _with_code
    return environment.from_string(_text("page.html.j2"))


def _with_code(text: str) -> Markup:
    """Escape a sentence whose code stands between backticks."""
    from markupsafe import Markup

    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Markup.escape(text)
    written = (
        Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts)
    )
    return Markup("").join(written)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A figure for the page: panels with their drawings, and a legend of samples with names."""

    panels: Sequence[tuple[Panel | Grid, Drawing]]
    legend: Sequence[tuple[str, str]]


def _draw(figure: Figure) -> _Drawn:
    styles = styles_of(figure.panels)
    return _Drawn(
        [
            *([(figure.grid, draw_grid(figure.grid, _variable))] if figure.grid else []),
            *((panel, draw_panel(panel, styles, _variable)) for panel in figure.panels),
        ],
        [
            (name, sample_of(style, _variable, points=points))
            for name, style, points in legend_of(figure.panels)
        ],
    )


def _halves(sections: Sequence[Section]) -> set[str]:
    """Return the sections that stand side by side: two of one picture, or of a narrow table."""
    paired: set[str] = set()
    for one, other in pairwise(sections):
        if one.key not in paired and _is_narrow(one) and _is_narrow(other):
            paired |= {one.key, other.key}
    return paired


def _is_narrow(section: Section) -> bool:
    if section.folded or section.small or section.scores:
        return False
    if section.figures:
        return len(section.figures) == 1
    return len(section.tables) == 1 and len(section.tables[0].header) <= MAX_COLUMNS


def _variable(colour: str) -> str:
    """Return a colour of the page's scheme."""
    return f"var(--{colour})"


def _text(name: str) -> str:
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    # As a browser normalises line ends before it hashes a script.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _content_hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
