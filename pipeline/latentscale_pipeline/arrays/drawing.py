"""Tables and curves for notebooks: plain HTML and SVG, no script, no style of the page's own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, MARGIN = 420, 200, 44
LEFT = 60  # room for a label such as -7.69e-05


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
    left, right = float(x[0]), float(x[-1])
    low, high = float(lower.min()), float(upper.max())
    across = LEFT + (x - left) / ((right - left) or 1.0) * (WIDTH - LEFT - MARGIN)

    def down(y: NDArray[np.float64]) -> NDArray[np.float64]:
        return HEIGHT - MARGIN - (y - low) / ((high - low) or 1.0) * (HEIGHT - 2 * MARGIN)

    band = _points(np.append(across, across[::-1]), np.append(down(upper), down(lower)[::-1]))
    axes = f"M{LEFT},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}"
    ends = [
        (LEFT, HEIGHT - MARGIN + 16, "middle", f"{left:.3g}"),
        (WIDTH - MARGIN, HEIGHT - MARGIN + 16, "middle", f"{right:.3g}"),
        (WIDTH / 2, HEIGHT - 8, "middle", x_label),
        (LEFT - 6, HEIGHT - MARGIN, "end", f"{low:.3g}"),
        (LEFT - 6, MARGIN + 4, "end", f"{high:.3g}"),
        (LEFT, MARGIN - 12, "start", y_label),
    ]
    texts = "".join(
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        for x, y, anchor, text in ends
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'role="img" aria-label="{escape(y_label)} over {escape(x_label)}" '
        'fill="currentColor" font-size="11" font-family="sans-serif">'
        f'<path d="{axes}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<polygon points="{band}" fill-opacity="0.2"/>'
        f'<polyline points="{_points(across, down(value))}" fill="none" stroke="currentColor"/>'
        f"{texts}</svg>"
    )


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
