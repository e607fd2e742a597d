"""Axes of figures: where values lie between the ends of an axis, and its ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from latentscale.array_types import Float64Array
from latentscale_pipeline.views.formatting import SUPERSCRIPTS, format_number

STRIP = 0.1
"""Share of a logarithmic axis for values of zero, if they have a strip."""

MARGIN = 0.04
"""Room at the ends of an axis whose points must not lie on its ends, as a share of its length."""

NARROWEST = 1e-12
"""Share of a value below which a difference is rounding."""

STEPS = 4
"""Fewest steps between the ticks of a linear axis; there are up to ten."""

MAX_POWERS = 6
"""Maximum number of ticks at powers of ten."""

DAY = 86_400.0
DAYS = (1, 2, 7, 14, 28, 91, 182, 365, 1826)
"""Steps between the ticks of an axis of dates, in days."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from ``low`` to ``high``.

    Attributes
    ----------
    low, high : float
        The values at its ends; positive if it is logarithmic.
    log, zeros, dates : bool
        As in :class:`~.figure.Panel`.
    places : sequence of str
        Names of the values 0, 1, 2, ….
    steps : int
        Fewest steps between the ticks of a linear axis.
    """

    low: float
    high: float
    log: bool = False
    zeros: bool = False
    places: Sequence[str] = ()
    dates: bool = False
    steps: int = STEPS

    def place(self, values: Float64Array) -> Float64Array:
        """Return where values lie: 0 at the lower end, 1 at the upper, NaN off the axis."""
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.log10(values) if self.log else values
        low, high = (math.log10(end) if self.log else end for end in (self.low, self.high))
        share = (scaled - low) / ((high - low) or 1.0)
        share[~np.isfinite(share)] = np.nan
        if not self.zeros:
            return share
        return np.where(values == 0, STRIP / 3, STRIP + (1 - STRIP) * share)

    @property
    def power(self) -> int:
        """The power of ten that a linear axis leaves to its label; 0 for none."""
        largest = max(abs(self.low), abs(self.high))
        if self.log or self.places or self.dates or 1e-3 <= largest < 1e6 or not largest:
            return 0
        return math.floor(math.log10(largest))

    def ticks(self) -> list[tuple[float, str]]:
        """Return the places of the ticks, between 0 and 1, with their texts."""
        if self.places:
            values, texts = list(map(float, range(len(self.places)))), list(self.places)
        elif self.dates:
            values, texts = _dates(self.low, self.high)
        else:
            values = self._round_values()
            if self.zeros:
                values = [value for value in values if value >= self.low]
            texts = [self._written(value) for value in values]
        placed = zip(self.place(np.array(values)).tolist(), texts, strict=True)
        none = [(STRIP / 3, "none")] if self.zeros else []
        return none + [(at, text) for at, text in placed if -1e-9 <= at <= 1 + 1e-9]

    def _written(self, value: float) -> str:
        """Write a tick with as many digits as tell it from the next."""
        largest = max(abs(self.low), abs(self.high))
        step = largest if self.log else (self.high - self.low) / 10
        digits = min(15, max(6, math.ceil(math.log10(largest / step)) + 1))
        return format_number(value / 10.0**self.power, digits, typeset=True)

    def _round_values(self) -> list[float]:
        decades = math.log10(self.high / self.low) if self.log else 0.0
        if not self.log or decades < 0.7:
            return round_steps(self.low, self.high, self.steps)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        if decades <= 2.2:
            return [step * 10.0**power for power in powers for step in (1, 2, 5)]
        return [10.0**power for power in powers][:: math.ceil(len(powers) / MAX_POWERS)]


def axis_over(
    values: Iterable[Float64Array],
    *,
    log: bool = False,
    zeros: bool = False,
    from_zero: bool = False,
    places: Sequence[str] = (),
    dates: bool = False,
    margin: bool = False,
    steps: int = STEPS,
) -> Axis:
    """Return the axis that holds some values, with a margin at its ends if asked for."""
    if places:
        return Axis(-0.5, len(places) - 0.5, places=places)
    every = np.concatenate([np.empty(0), *(array.ravel() for array in values)])
    kept = every[np.isfinite(every) & ((every > 0) | (not log))]
    low, high = (float(kept.min()), float(kept.max())) if len(kept) else (1.0, 1.0)
    if log:
        low, high = (low / 1.5, high * 1.5) if low == high else (low, high)
        beyond = (high / low) ** (MARGIN * margin)
        return Axis(low / beyond, high * beyond, log=True, zeros=zeros)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= NARROWEST * max(abs(low), abs(high)):
        room = abs(low) / 100 or 1.0
        low, high = (low, high + 1.0) if from_zero else (low - room, high + room)
    room = MARGIN * (high - low) * margin
    low, high = low - room * (not from_zero or low < 0), high + room
    return Axis(low, high, dates=dates, steps=steps)


def round_steps(low: float, high: float, steps: int = STEPS) -> list[float]:
    """Return ticks at multiples of 1, 2 or 5 times a power of ten, with few steps between."""
    rough = (high - low) / steps or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * factor for factor in (5, 2) if power * factor <= rough), power)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def in_power(power: int) -> str:
    """Name a power of ten in a label; empty for 0."""
    return f", 10{str(power).translate(SUPERSCRIPTS)}" if power else ""


def format_date(seconds: float, form: str = "%d %b %Y") -> str:
    """Write a time in UTC, given in seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime(form).lstrip("0")


def _dates(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return at most six days between two times, with their names."""
    step = DAY * next((days for days in DAYS if (high - low) / (DAY * days) <= 5), DAYS[-1])
    form = "%d %b" if step < 91 * DAY else "%b %Y"
    first = math.ceil(low / DAY) * DAY
    days = [first + k * step for k in range(math.floor((high - first) / step) + 1)]
    if not days:
        days, form = [(low + high) / 2], "%d %b %H:%M"
    return days, [format_date(day, form) for day in days]
