"""Tables and curves for notebooks: plain HTML and SVG, no script, no style of the page's own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from latentscale_pipeline.views.svg_plot import Curve, Panel, draw_panels


def draw_table(title: str, lines: Sequence[tuple[str, str]]) -> str:
    """Return an HTML table of names and what is said of them."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in lines
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"


def draw_band(
    x: NDArray[np.float64],
    value: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    x_label: str,
    y_label: str,
) -> str:
    """Return an SVG of a curve with its bracket.

    Parameters
    ----------
    x, value, lower, upper : ndarray, shape (m,)
        Finite, at least two, ``x`` ascending.
    x_label, y_label : str
        What the axes show.
    """
    return draw_panels([Panel("", x_label, y_label, [Curve("", x, value, lower, upper)])])
