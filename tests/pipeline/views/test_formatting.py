"""Numbers are written with the digits that their brackets support."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentscale_pipeline.corpus.expressions import texts_equalled
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.formatting import (
    format_bytes,
    format_duration,
    format_estimate,
    format_number,
    printable,
    text_literal,
)
from latentscale_pipeline.views.scores import score_name


@pytest.mark.parametrize(
    ("value", "lower", "upper", "shown", "bracket"),
    [
        (45.3127, 45.3071, 45.3189, "45.313", "[45.307, 45.319]"),
        (575.947, 572.568, 579.328, "575.9", "[572.5, 579.4]"),
        (1.264e-5, 9.798e-6, 1.548e-5, "1.26e-05", "[0.97e-05, 1.55e-05]"),
        (0.32, 0.32, 0.32, "0.32", "± 0"),
        (1.0, 1.0, 1.0, "1", "± 0"),
        (0.0, 0.0, 0.0, "0", "± 0"),
        (2.3638926927, 2.363892691, 2.363892695, "2.36389", "± 3e-09"),
        (12345678.0, 12345000.0, 12346000.0, "12,345,700", "[12,345,000, 12,346,000]"),
        (1200.0, 100.0, 9000.0, "1,200", "[100, 9,000]"),
        (-4.7047, -4.7313, -4.6993, "-4.705", "[-4.732, -4.699]"),
        (0.0, 0.0, 3.21e-7, "0.0e-07", "[0.0e-07, 3.3e-07]"),
    ],
)
def test_the_bracket_decides_the_digits(
    value: float, lower: float, upper: float, shown: str, bracket: str
) -> None:
    written = format_estimate(value, lower, upper)
    assert (written.value, written.bracket) == (shown, bracket)


def test_numbers_are_typeset_with_powers_of_ten_and_minus_signs() -> None:
    written = format_estimate(-1.264e-5, -1.548e-5, -9.798e-6, typeset=True)
    assert written.value == "−1.26 × 10⁻⁵"
    assert written.bracket == "[−1.55, −0.97] × 10⁻⁵"
    assert format_estimate(2.36389, 2.363889998, 2.363890002, typeset=True).bracket == "± 3 × 10⁻⁹"


def test_a_value_without_ends_says_so() -> None:
    assert format_estimate(1.5, None, None).bracket == "unknown"


finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(finite, min_size=3, max_size=3))
def test_a_printed_bracket_contains_the_true_one(numbers: list[float]) -> None:
    lower, value, upper = sorted(numbers)
    written = format_estimate(value, lower, upper)
    shown = float(written.value.replace(",", ""))
    if written.bracket.startswith("["):
        ends = written.bracket.strip("[]").split(", ")
        low, high = (float(end.replace(",", "")) for end in ends)
        assert low <= lower <= upper <= high
        assert low <= shown <= high
    else:
        half_width = float(written.bracket.removeprefix("± ").replace(",", ""))
        assert half_width >= max(value - lower, upper - value) * (1 - 1e-12)
        assert shown == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.0223, "0.022"), (99.96, "100"), (1e-7, "1e-07"), (0.0, "0"), (-3.25, "-3.2")],
)
def test_numbers_without_a_bracket(number: float, shown: str) -> None:
    assert format_number(number, 2) == shown


def test_sizes_and_durations() -> None:
    assert format_bytes(512) == "512 B"
    assert format_bytes(412_000_000) == "393 MiB"
    assert format_bytes(3 * 2**30) == "3.0 GiB"
    assert format_duration(9.94) == "9.9 s"
    assert format_duration(75) == "1 min 15 s"
    assert format_duration(7261) == "2 h 01 min"


def test_control_and_direction_characters_are_replaced() -> None:
    assert printable("a\x1b[31mb\u202ec\nd") == "a�[31mb�c�d"
    assert printable("größer × 2") == "größer × 2"
    assert printable("a\u2028b\u2067c\u200ed\ue000\ud800") == "a�b�c�d\ue000�"


@pytest.mark.parametrize(
    "text",
    ["r\u00a0100", "東京\u3000大阪", "می\u200cخواهم", "soft\u00adhyphen", "👩\u200d👩\u200d👧"],
)
def test_blanks_and_joiners_are_text(text: str) -> None:
    assert printable(text) == text
    assert text_literal(text) == f'"{text}"'


@pytest.mark.parametrize("text", ["a\nb", "naïve\u202e", 'it\'s "so" \\ \x7f', "\u200fr\u2029"])
def test_literals_are_read_as_the_text(text: str) -> None:
    literal = text_literal(text)
    assert printable(literal) == literal
    assert texts_equalled(f"label == {literal}", "label") == [text]


def test_a_score_is_named_with_its_qualifiers() -> None:
    def name(**fields: Any) -> str:
        return score_name(Score(of="corpus", value=None, **fields))

    assert name(measure="vendi", score="vendi", kernel="rbf", order="inf") == "rbf, order inf"
    assert name(measure="heat", score="heat_trace", scale=1.0) == "heat_trace (scale 1)"
    assert name(measure="a", score="b", label="x") == "b (label x)"
    assert name(measure="vendi", score="vendi") == "vendi"
