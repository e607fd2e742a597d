r"""The convergence scale of many points, as an iteration.

The convergence scale is where the magnitude reaches a share, 0.95, of the number ``n`` of distinct
points (Limbeck et al. 2024, definition 3.5, with ε = (1 - share) n).

Two subsets are solved densely to place a group of scales, which
:class:`latentscale.magnitude.conjugate_gradients.ConjugateGradients` solves together. After each
product, a scale whose bracket lies on one side of the goal shows on which side of it the root is.
Scales beyond the two nearest of these are dropped. Near convergence one or two products are enough.
When the root lies outside the group, further groups extend the range in growing strides. When it
lies between two scales that are far apart, a group fills the gap. Finally six scales close to the
interpolated root are solved, with a last product in double precision.

For a positive definite metric the magnitude is a continuous function of the scale. So when the
magnitude at one scale is certainly below the goal and at another certainly above, a convergence
scale lies between them: the bracket is *certified*. It isn't known to be the only one: whether
magnitude always grows with the scale is an open question, although it does grow for the point
clouds that have been tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate
from latentscale.linalg.iterations import Arrays, PairRequest, PairSums, ReadRows
from latentscale.magnitude.conjugate_gradients import Bracket, ConjugateGradients
from latentscale.magnitude.dense import (
    UNREACHED,
    NoConvergenceScale,
    dense_convergence_scale,
    log_odds,
    root_estimate,
)
from latentscale.magnitude.positive_definiteness import Separations
from latentscale.magnitude.preconditioning import gather_rows

SUBSET_ROWS = (1200, 3000)
"""Smallest and largest size of the larger of two evenly spaced subsets; in between it is a 25th of
the rows. The smaller subset is a quarter of it. Their convergence scales are extrapolated to all
rows."""

ABOUT = np.linspace(0.7, 1.4, 8)
"""The first group of scales, relative to the extrapolated scale."""

STRIDES = (1.25, 4.0, 64.0, 1e4, 1e8, 1e16, 1e32)
"""Ratios between the scales of successive groups that extend the range."""

REACHING = 6
"""Number of scales in such a group."""

FILLING = 7
"""Number of scales in a group that fills a gap."""

NARROW = 1.25
"""Largest ratio of the two scales around the root at which it is interpolated."""

COARSE_ACCURACY = 3e-4
"""Largest relative width of brackets from which the root is interpolated."""

INTERPOLATION_ACCURACY = 3e-3
"""Largest relative difference of two interpolations at which they are trusted."""

NEAR = 4e-4
"""Relative distance of the nearest two of the last scales from the interpolated root."""

LAST = np.array([-5.0, -3.0, -1.0, 1.0, 3.0, 5.0])
"""The last group of scales, in units of that distance."""

MIN_TOLERANCE = 1e-7
"""Smallest relative error required of the magnitudes at the last scales."""

MAX_GROUPS = 40
"""Groups of scales after which the search gives up."""

Stage = Literal["bracketing", "closing", "finished"]


@dataclass(frozen=True)
class ConvergenceScale:
    """Where the magnitude reaches the target share of the points.

    Attributes
    ----------
    estimate : Estimate
        In inverse units of distance. ``bounds`` is "certified" when a convergence scale certainly
        lies in the bracket.
    products : int
        Passes over all pairs of rows.
    separations : Separations
        Separations of the points, for the next iteration on them.
    """

    estimate: Estimate
    products: int
    separations: Separations


class ConvergenceSearch:
    """The search for the convergence scale, as a :class:`~latentscale.linalg.iterations.Iteration`.

    Use :meth:`start`, then :attr:`request` and :meth:`advance` in turn. Memory is that of
    conjugate gradients with eight scales
    (:func:`latentscale.magnitude.conjugate_gradients.step_bytes`).
    """

    def __init__(self, arrays: Arrays, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if name != "solver"}
        self._solver = ConjugateGradients.load(arrays, values["solver"])

    @classmethod
    def start(
        cls,
        n: int,
        *,
        target: float,
        read_rows: ReadRows,
        generator: np.random.Generator,
    ) -> Self:
        """Prepare the search and return it.

        Parameters
        ----------
        n : int
            Number of distinct rows, at least 2.
        target : float
            Share of them, above 1/n and below 1.
        read_rows : ReadRows
            Reads the distinct rows.
        generator : numpy.random.Generator
            Draws landmarks.
        """
        guess = _extrapolated_scale(n, read_rows, target)
        values: dict[str, Any] = {
            "n": n,
            "target": target,
            "seed": int(generator.integers(2**63)),
            "stage": "bracketing",
            "known": [],
            "reached": 0,
            "groups": 0,
            "products": 0,
            "separations": None,
            "estimate": None,
            "failure": None,
            "solver": _idle_solver().values(),
        }
        search = cls({}, values)
        search._begin(guess * ABOUT, COARSE_ACCURACY, read_rows)
        return search

    @classmethod
    def load(cls, arrays: Arrays, values: Mapping[str, Any]) -> Self:
        """Restore from :meth:`arrays` and :meth:`values`."""
        return cls(arrays, values)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the state."""
        return self._solver.arrays()

    def values(self) -> dict[str, Any]:
        """Return the JSON values of the state."""
        return {**self._values, "solver": self._solver.values()}

    @property
    def request(self) -> PairRequest | None:
        """The sums that the present group of scales needs."""
        return self._solver.request

    @property
    def outcome(self) -> ConvergenceScale:
        """The convergence scale; raises NoConvergenceScale with the reason if there is none."""
        if self._values["failure"] is not None:
            raise NoConvergenceScale(self._values["failure"])
        if self._values["estimate"] is None:
            raise RuntimeError("the search isn't finished: advance while request is set")
        separations = self._values["separations"]
        return ConvergenceScale(
            Estimate(**self._values["estimate"]),
            self._values["products"],
            Separations((), ()) if separations is None else Separations.load(separations),
        )

    def advance(self, sums: PairSums) -> Self:
        """Advance the present group, drop scales, and choose the next group when it is solved."""
        self._values["products"] += 1
        self._solver = self._solver.advance(sums)
        if self._solver.separations is not None:
            self._values["separations"] = self._solver.separations.values()
        if self._values["stage"] == "bracketing":
            self._bracket(sums.read_rows)
        elif self._solver.request is None:
            self._close(sums.read_rows)
        return self

    # --- Groups of scales ---

    @property
    def _goal(self) -> float:
        return float(self._values["target"] * self._values["n"])

    def _begin(self, scales: Iterable[float], tolerance: float, read_rows: ReadRows) -> None:
        """Start the next group of scales."""
        wanted = np.array(list(scales))
        if not (np.isfinite(wanted).all() and (wanted > 0).all() and len(wanted)):
            self._fail(UNREACHED)
            return
        self._values["groups"] += 1
        if self._values["groups"] > MAX_GROUPS:
            self._fail(UNREACHED)
            return
        separations = self._values["separations"]
        self._solver = _idle_solver()  # what the last one kept is free before the next begins
        self._solver = ConjugateGradients.start(
            self._values["n"],
            wanted,
            tolerance=tolerance,
            read_rows=read_rows,
            generator=np.random.default_rng([self._values["seed"], self._values["groups"]]),
            separations=None if separations is None else Separations.load(separations),
            weight_accuracy=None,
        )

    def _fail(self, reason: str) -> None:
        self._values["failure"] = reason
        self._values["stage"] = "finished"
        self._solver = _idle_solver()

    def _bracket(self, read_rows: ReadRows) -> None:
        """Drop scales far from the root; choose the next group when the others are known."""
        goal = self._goal
        brackets = self._solver.brackets()
        earlier = [bracket for bracket, known in self._known() if known]
        known = {bracket.scale: bracket for bracket in [*earlier, *brackets]}
        low = max((b.scale for b in known.values() if b.upper < goal), default=0.0)
        high = min((b.scale for b in known.values() if b.lower >= goal), default=math.inf)
        wanted = {
            b.scale for b in brackets if b.running and low <= b.scale <= high and not _is_narrow(b)
        }
        outside = low == max(known) or high == min(known)
        if wanted and not outside:
            self._solver.stop(b.scale for b in brackets if b.scale not in wanted)
            return
        self._remember(brackets)
        self._choose(read_rows)

    def _remember(self, brackets: Iterable[Bracket], *, judged: bool = False) -> None:
        self._values["known"] += [
            [b.scale, b.lower, b.value, b.upper, judged or _is_narrow(b)] for b in brackets
        ]

    def _known(self) -> list[tuple[Bracket, bool]]:
        """Return all brackets so far, and whether their values are final."""
        return [(Bracket(*numbers), good) for *numbers, good in self._values["known"]]

    def _choose(self, read_rows: ReadRows) -> None:
        """Choose the next group of scales from the known values."""
        goal, n = self._goal, self._values["n"]
        values = _trusted(self._known(), goal)
        scales = sorted(values)
        if values[scales[-1]] < goal or values[scales[0]] >= goal:
            stride = STRIDES[min(self._values["reached"], len(STRIDES) - 1)]
            self._values["reached"] += 1
            steps = stride ** np.arange(1.0, REACHING + 1.0)
            upward = values[scales[-1]] < goal
            with np.errstate(over="ignore"):
                reaching = scales[-1] * steps if upward else scales[0] / steps[::-1]
            self._begin(reaching, COARSE_ACCURACY, read_rows)
            return
        low, high = _neighbours(values, goal)
        root, inaccuracy = _interpolate(values, goal, n)
        if high > NARROW * low or inaccuracy > INTERPOLATION_ACCURACY * root:
            self._begin(_filling(low, high), COARSE_ACCURACY, read_rows)
            return
        growth = math.log(values[high] / values[low]) / math.log(high / low)
        tolerance = min(max(NEAR * growth / 3.0, MIN_TOLERANCE), COARSE_ACCURACY)
        self._values["stage"] = "closing"
        self._begin(root * (1.0 + NEAR * LAST), tolerance, read_rows)

    def _close(self, read_rows: ReadRows) -> None:
        """Finish with the last scales, or move them when the root lies elsewhere."""
        goal, found = self._goal, self._solver.outcome
        scales, estimates = found.scales, found.estimates
        values = np.array([estimate.value for estimate in estimates])
        brackets = self._solver.brackets()
        self._remember(brackets, judged=True)
        if not values[0] < goal <= values[-1]:
            self._values["stage"] = "bracketing"
            self._choose(read_rows)
            return
        try:
            estimate = _concluded(scales, estimates, goal)
        except NoConvergenceScale as error:
            self._fail(str(error))
            return
        self._values["estimate"] = {name: getattr(estimate, name) for name in Estimate.__slots__}
        self._values["stage"] = "finished"
        self._solver = _idle_solver()


def _idle_solver() -> ConjugateGradients:
    return ConjugateGradients.start(
        0, [], tolerance=0.5, read_rows=lambda: iter(()), generator=np.random.default_rng(0)
    )


def _is_narrow(bracket: Bracket) -> bool:
    return bracket.upper - bracket.lower <= COARSE_ACCURACY * bracket.value


def _trusted(known: Sequence[tuple[Bracket, bool]], goal: float) -> dict[float, float]:
    """Return the accurate values around the goal; all values when there are none."""
    narrow = {bracket.scale: bracket.value for bracket, good in known if good}
    if any(value < goal for value in narrow.values()) and any(v >= goal for v in narrow.values()):
        return narrow
    return {bracket.scale: bracket.value for bracket, _ in known}


def _filling(low: float, high: float) -> Float64Array:
    spaced = np.geomspace if high > 1.5 * low else np.linspace
    filling: Float64Array = spaced(low, high, FILLING + 2)[1:-1]
    return filling


def _concluded(scales: Float64Array, estimates: Sequence[Estimate], goal: float) -> Estimate:
    """Interpolate the root between the last scales, and bracket it by the certain ones."""
    values = np.maximum.accumulate([estimate.value for estimate in estimates])
    place = int(np.searchsorted(values, goal))
    slope = (values[place] - values[place - 1]) / (scales[place] - scales[place - 1])
    root = float(scales[place - 1] + (goal - values[place - 1]) / slope)
    below = [k for k, estimate in enumerate(estimates) if estimate.upper < goal]
    above = [k for k, estimate in enumerate(estimates) if estimate.lower >= goal]
    if below and above and max(below) < min(above):
        low, high = max(below), min(above)
        sure = {estimates[low].bounds, estimates[high].bounds} == {"certified"}
        return Estimate(
            root,
            min(float(scales[low]), root),
            max(float(scales[high]), root),
            "certified" if sure else "estimate",
            "cg",
        )
    nearest = estimates[place]
    shift = goal - nearest.value
    shifted = Estimate(goal, nearest.lower + shift, nearest.upper + shift, "estimate", "cg")
    return root_estimate(
        root, shifted, goal, float(slope), float(scales[place] - scales[place - 1])
    )


def _extrapolated_scale(n: int, read_rows: ReadRows, target: float) -> float:
    """Guess the convergence scale from two subsets: it grows like a power of their size."""
    rows_of_few, rows_of_many = SUBSET_ROWS
    most = min(max(n // 25, rows_of_few), rows_of_many)
    sizes = [min(n, rows) for rows in (most // 4, most)]
    small, large = (
        dense_convergence_scale(
            gather_rows(read_rows, np.linspace(0, n - 1, rows).astype(np.int64)),
            max(target, 1.5 / rows),
            1e-3,
        ).value
        for rows in sizes
    )
    if n == sizes[1]:
        return large
    power = math.log(large / small) / math.log(sizes[1] / sizes[0])
    return large * math.pow(n / sizes[1], min(max(power, 0.0), 1.0))


def _neighbours(values: Mapping[float, float], goal: float) -> tuple[float, float]:
    """Return the neighbouring scales between which the magnitude first reaches the goal."""
    scales = sorted(values)
    reached = next(k for k, scale in enumerate(scales) if values[scale] >= goal)
    return scales[reached - 1], scales[reached]


def _interpolate(values: Mapping[float, float], goal: float, n: int) -> tuple[float, float]:
    """Interpolate the scale of a magnitude, and say how far two interpolations differ."""
    low, high = _neighbours(values, goal)
    scales = np.array(sorted(values))
    ascending = np.maximum.accumulate([values[scale] for scale in scales])
    odds = np.array([log_odds(value, n) for value in ascending])
    keep = np.diff(odds, prepend=-np.inf) > 0
    wanted = log_odds(goal, n)
    curve = scipy.interpolate.PchipInterpolator(odds[keep], np.log(scales[keep]))
    chord = np.interp(wanted, odds[keep], np.log(scales[keep]))
    root, straight = (float(np.clip(np.exp(at), low, high)) for at in (curve(wanted), chord))
    return root, abs(root - straight)
