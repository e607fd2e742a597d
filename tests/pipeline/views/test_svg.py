"""Panels place values on their axes, say them in words, and escape every text."""

import math
import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import numpy as np
import pytest

from latentscale_pipeline.views.axis import Axis, axis_over
from latentscale_pipeline.views.figure import Curve, Panel, Rule, Style, styles_of
from latentscale_pipeline.views.svg import draw_panel, draw_panels

SVG = "{http://www.w3.org/2000/svg}"


def drawn(panel: Panel) -> tuple[ElementTree.Element, list[tuple[float, float | None, str]]]:
    """Return a panel's SVG, and what is said of its places."""
    found = draw_panel(panel, styles_of([panel]), lambda name: f"var(--{name})")
    root = ElementTree.fromstring(f'<svg xmlns="http://www.w3.org/2000/svg">{found.body}</svg>')
    return root, [(read.x, read.y, read.text) for read in found.readouts]


def centres(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Return the centres of all discs, in percent."""
    return [
        (float(disc.attrib["cx"].rstrip("%")), float(disc.attrib["cy"].rstrip("%")))
        for disc in root.iter(f"{SVG}circle")
    ]


def paths(root: ElementTree.Element, tone: str) -> list[list[tuple[float, float]]]:
    """Return the points of the lines of a colour, in thousandths."""
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+),([-\d.]+)", path.attrib["d"])]
        for path in root.iter(f"{SVG}path")
        if path.get("stroke") == f"var(--{tone})"
    ]


def test_lines_points_and_legends_of_a_file() -> None:
    line = Curve("a & b", [1.0, 10.0, 100.0], [0.0, 5.0, 10.0], [0.0, 4.0, 9.0], [1.0, 6.0, 10.0])
    dots = Curve("dots", [1.0, np.nan, 100.0], [10.0, 1.0, 0.0], points=True)
    panels = [Panel("<one>", "x", "y", [line, dots], log_x=True)] * 2
    root = ElementTree.fromstring(draw_panels(panels, columns=1, paper="white"))
    lines = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("stroke") == "#0072B2"]
    first, second, in_legend = lines
    assert first == second
    assert in_legend == "M0,6H24"
    places = [tuple(map(float, point.split(","))) for point in str(first)[1:].split()]
    # Evenly spaced powers of ten, growing upwards.
    assert places[1][0] == pytest.approx((places[0][0] + places[2][0]) / 2, abs=0.1)
    assert places[0][1] > places[1][1] > places[2][1]
    shapes = [path for path in root.iter(f"{SVG}path") if path.get("fill") == "#D55E00"]
    assert len(shapes) == 5, "two a panel, one in the legend; one has no coordinates"
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count("a & b") == 1
    assert {"<one>", "1", "10", "100", "0", "2"} <= set(texts)


def test_a_single_curve_has_the_colour_of_the_text() -> None:
    text = draw_panels([Panel("", "x", "y", [Curve("", [0, 1], [0, 1])])])
    assert 'stroke="currentColor"' in text
    assert "<rect" not in text
    both = [Curve("a", [0, 1], [0, 1]), Curve("b", [0, 1], [1, 0])]
    assert 'stroke="#0072B2"' in draw_panels([Panel("", "x", "y", both)]), "and no other has it"


def test_points_lie_where_their_values_say() -> None:
    curve = Curve("c", [0, 1, 2], [10.0, 20.0, 30.0], [10, 15, 30], [10, 25, 30], points=True)
    root, said = drawn(Panel("", "order", "y", [curve], places=["low", "mid", "high"]))
    across, down = zip(*centres(root), strict=True)
    assert across == pytest.approx((100 / 6, 50, 500 / 6), abs=0.01)
    assert down == pytest.approx((100 - 400 / 108, 50, 400 / 108), abs=0.01)
    (bars,) = (path for path in paths(root, "line-0") if len(path) == 6)
    assert bars[2] == pytest.approx((500, 500 + 250 / 1.08), abs=0.1)
    assert bars[3] == pytest.approx((500, 500 - 250 / 1.08), abs=0.1)
    assert [text for _, _, text in said] == [
        "order low: c 10",
        "order mid: c 20 [15, 25]",
        "order high: c 30",
    ]
    assert [(x, y) for x, y, _ in said] == [(16.67, None), (50.0, None), (83.33, None)]


def test_curves_are_read_together_at_each_value_of_x() -> None:
    ours = Curve("ours", [1.0, 2.0], [3.0, 4.0], texts=["exact", "a <b>"])
    theirs = Curve("theirs", [2.0, 3.0], [5.0, 6.0])
    unnamed = Curve("", [1.0, 3.0], [3.0, 6.0])
    _, said = drawn(Panel("", "t", "y", [ours, theirs, unnamed]))
    assert [text for _, _, text in said] == [
        "t 1: ours 3, exact",
        "t 2: ours 4, a <b>; theirs 5",
        "t 3: theirs 6",
    ]


def test_scattered_points_are_read_one_by_one_and_zeros_have_a_strip() -> None:
    texts = ["only theirs", "both", "large"]
    curve = Curve("c", [1, 1, 100], [0, 10, 100], points=True, texts=texts)
    panel = Panel("", "x", "y", [curve], log_x=True, log_y=True, zeros=True, scattered=True)
    root, said = drawn(panel)
    places = centres(root)
    assert said == [(*place, text) for place, text in zip(places, texts, strict=True)] or (
        sorted(text for _, _, text in said) == sorted(texts)
    )
    assert places[0][1] == pytest.approx(100 - 100 * 0.1 / 3, abs=0.01)
    assert places[0][0] == places[1][0]
    assert places[1][1] < 90
    assert {"none", "1", "10", "100"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_a_turned_panel_names_its_places_down_the_page() -> None:
    curve = Curve("score", [0, 1], [5.0, 9.0], [4.0, 9.0], [6.0, 9.0], points=True)
    panel = Panel("", "", "items", [curve], places=["poetry", "<law>"], turned=True)
    root, said = drawn(panel)
    assert [text for _, _, text in said] == ["poetry: score 5.0 [4.0, 6.0]", "<law>: score 9"]
    (low, below), (high, above) = centres(root)
    assert (below, above) == (75, 25)
    assert high > low
    assert "<law>" in {text.text for text in root.iter(f"{SVG}text")}


def test_zeros_have_their_strip_to_themselves() -> None:
    ticks = axis_over([np.array([0.0, 1.0, 90.0])], log=True, zeros=True, margin=True).ticks()
    assert [text for _, text in ticks] == ["none", "1", "2", "5", "10", "20", "50", "100"]
    assert ticks[1][0] > 0.1


def test_a_bracket_that_reaches_zero_ends_at_a_logarithmic_axis() -> None:
    curve = Curve("c", [1, 2], [5.0, 50.0], [0.0, 40.0], [6.0, 60.0], points=True)
    root, said = drawn(Panel("", "t", "y", [curve], log_y=True))
    assert len(centres(root)) == 2
    (bars,) = (path for path in paths(root, "line-0") if len(path) == 4)
    assert bars[0][1] == 1000
    assert [text for _, _, text in said] == ["t 1: c 5.0 [0.0, 6.0]", "t 2: c 50 [40, 60]"]


def test_small_numbers_of_a_turned_panel_have_their_power_below() -> None:
    curve = Curve("c", [0, 1], [2e-6, 3e-6], points=True)
    panel = Panel("", "", "heat", [curve], places=["a", "b"], turned=True)
    found = draw_panel(panel, styles_of([panel]), str)
    assert (found.x_label, found.y_label) == ("", "heat, 10⁻⁶")


def test_a_panel_without_values_is_drawn() -> None:
    draw_panels([Panel("", "x", "y", []), Panel("", "x", "y", [Curve("c", [1], [math.nan])])])


def test_rules_and_the_grey_of_chance_are_drawn() -> None:
    chance = Curve(
        "chance", [0, 1], [0, 0], [-1, -2], [1, 2], line=False, style=Style("", "chance")
    )
    panel = Panel("", "x", "y", [chance], rules=[Rule(0.25, Style("", "corpus"))])
    root, _ = drawn(panel)
    (band,) = (path for path in root.iter(f"{SVG}path") if path.get("fill") == "var(--chance)")
    assert band.attrib["fill-opacity"] == "1"
    (rule,) = (path for path in root.iter(f"{SVG}path") if path.get("stroke") == "var(--corpus)")
    assert rule.attrib["d"] == "M250.0,0V1000"
    assert rule.attrib["stroke-dasharray"] == "2 3"


@pytest.mark.parametrize(
    ("low", "high", "log", "texts"),
    [
        (0.0, 10.0, False, ["0", "2", "4", "6", "8", "10"]),
        (-0.3, 0.3, False, ["−0.3", "−0.2", "−0.1", "0", "0.1", "0.2", "0.3"]),
        (147.1, 147.3, False, ["147.1", "147.15", "147.2", "147.25", "147.3"]),
        (0.1, 10.0, True, ["0.1", "0.2", "0.5", "1", "2", "5", "10"]),
        (1.0, 3.0, True, ["1", "1.5", "2", "2.5", "3"]),
        (1.0, 1e4, True, ["1", "10", "100", "1,000", "10,000"]),
        (1.0, 1e12, True, ["1", "1,000", "1,000,000", "10⁹", "10¹²"]),
        (0.0, 4e-6, False, ["0", "1", "2", "3", "4"]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, log: bool, texts: list[str]) -> None:
    axis = Axis(low, high, log=log)
    ticks = axis.ticks()
    assert [text.replace("1 × ", "") for _, text in ticks] == texts
    values = np.array([at for at, _ in ticks])
    assert (values >= -1e-9).all()
    assert (values <= 1 + 1e-9).all()


def test_a_small_power_of_ten_stands_in_the_label() -> None:
    panel = Panel("", "t", "gap", [Curve("", [1, 2], [0.0, 4e-6])], from_zero=True)
    assert draw_panel(panel, styles_of([panel]), str).y_label == "gap, 10⁻⁶"
    plain = Panel("", "t", "gap", [Curve("", [1, 2], [0.0, 4.0])])
    assert draw_panel(plain, styles_of([plain]), str).y_label == "gap"


@pytest.mark.parametrize(
    ("days", "texts"),
    [
        ([0, 3], ["1 Jan", "2 Jan", "3 Jan", "4 Jan"]),
        ([0, 60], ["1 Jan", "15 Jan", "29 Jan", "12 Feb", "26 Feb"]),
        ([0, 800], ["Jan 2026", "Jul 2026", "Dec 2026", "Jul 2027", "Dec 2027"]),
        ([0.25, 0.26], ["1 Jan 06:07"]),
    ],
)
def test_dates_are_named_by_day_or_month(days: list[float], texts: list[str]) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    axis = Axis(*(start + 86_400 * day for day in days), dates=True)
    assert [text for _, text in axis.ticks()] == texts


def test_ticks_that_lie_close_can_be_told_apart() -> None:
    for low, high in ((147.1234561, 147.1234563), (1e7, 1.00001e7), (3.0, 3.0 + 1e-15)):
        texts = [text for _, text in axis_over([np.array([low, high])]).ticks()]
        assert len(set(texts)) == len(texts) >= 2


@pytest.mark.parametrize("value", [0.0, 3.0, -2.0])
def test_one_value_has_an_axis_too(value: float) -> None:
    axis = axis_over([np.array([value])])
    assert axis.low < value < axis.high
    (place,) = axis.place(np.array([value]))
    assert place == pytest.approx(0.5)


def test_an_axis_leaves_out_what_it_cannot_show() -> None:
    axis = axis_over([np.array([0.0, -1.0, 1.0, 100.0, math.inf])], log=True)
    assert (axis.low, axis.high) == (1.0, 100.0)
    found = axis.place(np.array([0.0, -1.0, 10.0]))
    assert np.isnan(found[:2]).all()
    assert found[2] == pytest.approx(0.5)


def test_texts_are_escaped_wherever_they_stand() -> None:
    hostile = '"><script>alert(1)</script>'
    curve = Curve(hostile, [0, 1], [1.0, 2.0], end=hostile, texts=[hostile] * 2)
    panels = [
        Panel(hostile, hostile, hostile, [curve, Curve("b", [0], [1.0])], places=[hostile] * 2)
    ]
    root = ElementTree.fromstring(draw_panels(panels))
    assert not list(root.iter(f"{SVG}script"))
    assert [text.text for text in root.iter(f"{SVG}text")].count(hostile) == 7


def test_a_map_is_a_square_without_axes_and_its_points_are_one_path() -> None:
    kinds = [
        Curve(name, [0, 250, 1000], [0, 1000, 500], dot=5, style=Style(name, name), texts="abc")
        for name in ("one", "two")
    ]
    panel = Panel("", "", "", kinds, scattered=True, bare=1000)
    root, said = drawn(panel)
    assert list(root.iter(f"{SVG}text")) == []
    for kind in ("one", "two"):
        assert paths(root, kind) == [[(0, 1000), (250, 0), (1000, 500)]]
    assert said == [
        (x, y, f"{kind}: {name}")
        for x, y, name in ((0.0, 100.0, "a"), (25.0, 0.0, "b"), (100.0, 50.0, "c"))
        for kind in ("one", "two")
    ]
    file = ElementTree.fromstring(draw_panels([panel], width=400))
    [area] = [each for each in file.iter(f"{SVG}svg") if each.get("height") not in (None, "100%")]
    assert area.attrib["width"] == area.attrib["height"]
    assert file.attrib["aria-label"] == "a map"


def test_names_of_rules_and_of_ends_of_curves() -> None:
    ends = [Curve(name, [0, 1], [0, y], end=name) for name, y in (("a", 1.0), ("b", 1.01))]
    own = Rule(0.2, Style("limit", "line-2"))
    known = Rule(0.8, Style("a", "line-0"))
    root, _ = drawn(
        Panel("", "", "", [*ends, Curve("c", [0, 1], [0, 0.2], end="c")], rules=[own, known])
    )
    texts = [text.text for text in root.iter(f"{SVG}text")]
    # What a curve is called needs no name at its rule; a name that would cover another is left out.
    assert [text for text in texts if text in {"a", "b", "c", "limit"}] == ["a", "c", "limit"]


def test_a_low_panel_has_fewer_ticks() -> None:
    curve = Curve("a", [0, 1], [-0.7, 1.25])
    counts = [
        len(
            [
                1
                for text in drawn(Panel("", "", "", [curve], height=height))[0].iter(f"{SVG}text")
                if text.get("text-anchor") == "end"
            ]
        )
        for height in (200, 110)
    ]
    assert counts == [4, 2]
