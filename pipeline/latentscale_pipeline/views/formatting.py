"""Format numbers with as many digits as their bracket supports.

The bracket determines the digits of its value: two digits of the bracket's width are shown, and the
ends are rounded outward, so that the printed bracket contains the exact one. A bracket narrower
than the printed digits is written as ``± x``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

NO_LABEL = "(none)"
"""What is shown for the label of rows without one."""

MAX_DIGITS = 6
"""Maximum number of significant digits of a value, however narrow its bracket."""

MIN_DIGITS = 2
"""Minimum number of significant digits of a value, however wide its bracket."""

PLAIN_EXPONENTS = range(-3, 9)
"""Decimal exponents of numbers that are written without a power of ten."""

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_FALSIFYING = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufffe\uffff]"
)
"""Control and bidirectional characters, ends of lines, and what no text may have."""

APART = range(4, 18)
"""Digits of two numbers: the fewest that tell them apart."""


@dataclass(frozen=True, slots=True)
class Written:
    """A formatted value and its bracket."""

    value: str
    bracket: str

    def __str__(self) -> str:
        return f"{self.value} {self.bracket}".strip()


def format_estimate(
    value: float, lower: float | None, upper: float | None, *, typeset: bool = False
) -> Written:
    """Format a value and its bracket with the digits that the bracket's width supports.

    Parameters
    ----------
    value : float
        A finite number.
    lower, upper : float or None
        The ends of its bracket; if None, the bracket is written as "unknown".
    typeset : bool
        Write ``1.3 × 10⁻⁵`` and a true minus sign instead of ``1.3e-05``.
    """
    if lower is None or upper is None:
        return Written(format_number(value, typeset=typeset), "unknown")
    leading = _leading_exponent(value, lower, upper)
    places = _decimal_places(upper - lower, leading)
    step = Decimal(1).scaleb(-places)
    exponent = 0 if leading in PLAIN_EXPONENTS else leading

    def digits(number: float, rounding: str) -> str:
        rounded = _decimal(number).quantize(step, rounding=rounding, context=_WIDE)
        return f"{rounded.scaleb(-exponent) + 0:,f}"

    half_width = max(upper - value, value - lower)
    if upper == lower:
        shown = _without_trailing_zeros(digits(value, ROUND_HALF_EVEN))
        bracket = "± 0"
    elif upper - lower < step:
        shown = digits(value, ROUND_HALF_EVEN)
        return Written(
            _sign(shown + _power(exponent, typeset), typeset),
            f"± {_rounded_up(half_width, typeset)}",
        )
    else:
        shown = digits(value, ROUND_HALF_EVEN)
        ends = (digits(lower, ROUND_FLOOR), digits(upper, ROUND_CEILING))
        if typeset:
            bracket = f"[{ends[0]}, {ends[1]}]{_power(exponent, typeset)}"
        else:
            bracket = f"[{', '.join(end + _power(exponent, typeset) for end in ends)}]"
    return Written(_sign(shown + _power(exponent, typeset), typeset), _sign(bracket, typeset))


def format_number(number: float, digits: int = 4, *, typeset: bool = False) -> str:
    """Format a number without a bracket, without trailing zeros."""
    step = Decimal(1).scaleb(_leading_exponent(number) - digits + 1)
    rounded = _decimal(number).quantize(step, context=_WIDE)
    # Rounding may carry into another digit.
    leading = rounded.adjusted() if rounded else 0
    exponent = 0 if leading in PLAIN_EXPONENTS else leading
    text = _without_trailing_zeros(f"{rounded.scaleb(-exponent) + 0:,f}")
    return _sign(text + _power(exponent, typeset), typeset)


def format_alike(
    numbers: Sequence[float], width: float, *, typeset: bool = False
) -> tuple[list[str], str]:
    """Format numbers with the same decimals, two digits of a width, and their power of ten."""
    leading = _leading_exponent(*numbers)
    step = Decimal(1).scaleb(-_decimal_places(width, leading))
    exponent = 0 if leading in PLAIN_EXPONENTS else leading
    texts = [
        f"{_decimal(number).quantize(step, context=_WIDE).scaleb(-exponent) + 0:,f}"
        for number in numbers
    ]
    if not width:
        texts = [_without_trailing_zeros(text) for text in texts]
    return [_sign(text, typeset) for text in texts], _power(exponent, typeset)


def format_apart(first: float, second: float) -> tuple[str, str]:
    """Format two numbers with enough digits to tell them apart."""
    for digits in APART:
        written = format_number(first, digits), format_number(second, digits)
        if written[0] != written[1] or first == second:
            break
    return written


def format_share(share: float) -> str:
    """Format a fraction as a percentage."""
    return f"{format_number(100 * share, 3)} %"


def format_bytes(count: float) -> str:
    """Format a size in binary units."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 100 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_rough_duration(seconds: float) -> str:
    """Format an estimated duration, to one or two digits: seconds, minutes or hours."""
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * unit:
            count = seconds / unit
            return f"about {count:.{int(name == 'h' and count < 10)}f} {name}"
    return f"about {max(10, 10 * round(seconds / 10))} s"


def printable(text: object) -> str:
    """Replace control and bidirectional characters, which could falsify terminal output."""
    return _FALSIFYING.sub("\N{REPLACEMENT CHARACTER}", str(text))


def text_literal(text: str) -> str:
    """Return a text as ``--where`` takes it, in quotes and printable."""
    literal = json.dumps(text, ensure_ascii=False)
    return _FALSIFYING.sub(lambda found: f"\\u{ord(found[0]):04x}", literal)


def label_name(label: str) -> str:
    """Return what is shown for a label; blanks at its ends are between quotes."""
    shown = printable(label)
    return f'"{shown}"' if label != label.strip() else shown or NO_LABEL


def shorten(text: str, most: int = 32) -> str:
    """Return a printable text of at most so many characters."""
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def listed(names: Iterable[str | None]) -> str:
    """Join names to a list, without duplicates."""
    return ", ".join(printable(name) for name in dict.fromkeys(names) if name)


_WIDE = Context(prec=400)


def _decimal(number: float) -> Decimal:
    return Decimal(repr(float(number)))


def _leading_exponent(*numbers: float) -> int:
    largest = max(abs(number) for number in numbers)
    return _decimal(largest).adjusted() if largest > 0 else 0


def _decimal_places(width: float, leading: int) -> int:
    finest = MAX_DIGITS - 1 - leading
    coarsest = MIN_DIGITS - 1 - leading
    wanted = 1 - math.floor(math.log10(width)) if width > 0 else finest
    return min(finest, max(coarsest, wanted))


def _rounded_up(number: float, typeset: bool) -> str:
    """Format a half width with one digit, rounded up."""
    exponent = _decimal(number).adjusted()
    step = Decimal(1).scaleb(exponent)
    amount = _decimal(number).quantize(step, rounding=ROUND_CEILING, context=_WIDE)
    return format_number(float(amount), 1, typeset=typeset)


def _without_trailing_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _power(exponent: int, typeset: bool) -> str:
    if exponent == 0:
        return ""
    return f" × 10{str(exponent).translate(SUPERSCRIPTS)}" if typeset else f"e{exponent:+03d}"


def _sign(text: str, typeset: bool) -> str:
    if not typeset:
        return text
    return text.replace("-", "\N{MINUS SIGN}")
