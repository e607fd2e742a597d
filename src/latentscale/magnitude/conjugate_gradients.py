r"""The magnitude at several scales by conjugate gradients, as an iteration.

For each scale the system :math:`K w = \mathbf 1` is solved, starting from 0. All scales share each
pass over the pairs of rows, and a scale that is solved leaves the iteration. Where the landmarks
predict many steps, a Nyström preconditioner ``M`` reduces their number
(:mod:`latentscale.magnitude.preconditioning`).

The error of a step
-------------------
Step ``j`` raises the magnitude by :math:`\Delta_j = \alpha_j\, r_j^\top M^{-1} r_j` (Hestenes and
Stiefel 1952), so the error after ``k`` steps is the sum of all later gains. The sum of the last
``m`` gains is therefore a lower bound of the error ``m`` steps ago, and a sharp one if convergence
has not stalled (Strakoš and Tichý 2002). Three times this sum estimates the *present* error. ``m``
is a quarter of all steps, at least 4, and most of the steps where convergence is slow. This is an
estimate, not a bound.

What is certain
---------------
For any ``w`` with residual :math:`r = \mathbf 1 - K w`,

.. math:: \frac{(\mathbf 1^\top w)^2}{w^\top K w} \;\le\; \mathrm{Mag} \;=\;
          2\,\mathbf 1^\top w - w^\top K w + r^\top K^{-1} r \;\le\;
          2\,\mathbf 1^\top w - w^\top K w + \frac{\|r\|^2}{a},

where ``a`` bounds the smallest eigenvalue from below
(:mod:`latentscale.magnitude.positive_definiteness`). However ``w`` was found, one product in double
precision certifies both sides; its rounding is bounded by
:func:`latentscale.tiles.exponential_products.product_error`.

The upper bound needs a small residual, but conjugate gradients make the error small. So the
combination of the iterates with the smallest residual is updated as well: each new iterate is mixed
in by a line search (minimal residual smoothing; Weiss 1996, Zhou and Walker 1994). Without a
preconditioner its bound equals that of Gauss–Radau quadrature (Golub and Meurant 2010, chapter 12)
up to ``a`` compared with the eigenvalues, but it doesn't rely on exact arithmetic. With a
preconditioner, the iterate that is mixed in is first corrected at the landmarks. This costs nothing
beyond :math:`M^{-1} r`.

A scale leaves when its certified bracket is narrow enough, or when the estimated error is small
enough and a certified bracket would take many more steps. Steps use products in single precision
where there are many rows. A last product in double precision bounds the magnitude at all scales.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.array_types import Float64Array, FloatArray
from latentscale.estimate import Bounds, Estimate
from latentscale.linalg.iterations import Arrays, PairRequest, PairSums, ReadRows
from latentscale.magnitude.positive_definiteness import (
    Separations,
    box_magnitude,
    is_numerically_singular,
    separation_exponents,
    smallest_eigenvalues,
    sphere_magnitude,
)
from latentscale.magnitude.preconditioning import (
    BLOCK_ROWS,
    Landmarks,
    LandmarkTiles,
    Preconditioner,
    Solved,
    apply_preconditioners,
    kept_bytes,
    landmark_count,
    most_preconditioners,
    preconditioner_bytes,
    predicted_steps,
    prepare_preconditioners,
)
from latentscale.tiles.device import Precision, rounding_unit
from latentscale.tiles.distances import Points, distance_tile
from latentscale.tiles.exponential_products import (
    LOST_SIMILARITY,
    gaussian_error,
    product_error,
    similarity_error,
)

DELAY = 4
"""Smallest number of past steps whose gains estimate the error."""

DELAY_SHARES = (0.25, 0.75)
"""Share of all steps to which this number grows, after few steps and after ``MANY_STEPS``: slow
convergence stalls for longer."""

MANY_STEPS = 50

SAFETY = 3.0
"""Factor on the estimated error, which tends to be too low."""

ESTIMATED_SHARE = 0.3
"""Share of the tolerance to which an estimated error must fall."""

CERTIFIED_SHARE = 0.7
"""Share of the tolerance to which the width of a certified bracket must fall."""

FAST = 0.3
"""Ratio of a gain to the one before. At or below it twice in a row, the last gain estimates the
error."""

PATIENCE = 3
"""Further steps that may be taken for a certified bracket; half of the past steps if that is
more."""

WEIGHT_ACCURACY = 1e-2
"""Largest residual of any row at the largest scale, so that the weights of single rows are
meaningful. At most as many further steps are spent on it as the magnitude took."""

UNSEEN_ROUNDINGS = 8.0
"""Gains that steps don't see, in roundings of the magnitude."""

SAMPLED_ROWS = 300
"""Random rows whose similarity matrix shows, under the cosine distance, whether that of all rows is
numerically singular."""

PRECONDITIONED_ROWS = 1200
"""Rows from which a preconditioner is considered."""

PRECONDITIONED_STEPS = 5
"""Predicted number of steps from which a preconditioner pays off. All scales share a pass over the
pairs, so the slowest scales determine the number of passes."""

PREDICTED_GAIN = 1e-4
"""Relative gain at which the iteration is predicted to stop."""

SINGLE_ROWS = 4096
"""Rows from which steps use single precision; with fewer rows double precision is fast enough."""

EPSILON = float(np.finfo(np.float64).eps)

Phase = Literal["iterate", "judge", "finished"]
ScaleStatus = Literal["running", "certain", "estimated", "exhausted", "stopped", "failed"]
"""State of one scale: taking steps; finished with a certified bracket, or with an estimated one; at
the limit of the precision; stopped by the caller or by the limit of products; unable to continue
because of rounding."""


@dataclass(frozen=True)
class Solutions:
    """The magnitude at every scale and the weights of the distinct rows.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        Positive and ascending.
    estimates : tuple of Estimate
        The magnitude at each scale. ``bounds`` is "certified" where both ends are, and "estimate"
        where the upper end is estimated or is the number of points. The lower end is always
        certified.
    weights : ndarray, shape (n, s)
        Approximate solutions, each scaled to sum to the magnitude's value.
    products : int
        Passes over all pairs of rows, the last one in double precision.
    preconditioned : tuple of bool
        Whether a preconditioner was used at each scale.
    separations : Separations
        Separations of the points, for the next iteration on them.
    """

    scales: Float64Array
    estimates: tuple[Estimate, ...]
    weights: FloatArray
    products: int
    preconditioned: tuple[bool, ...]
    separations: Separations


@dataclass(frozen=True)
class Bracket:
    """The magnitude at a scale as known from the steps so far; accurate enough to choose scales.

    Attributes
    ----------
    scale, lower, value, upper : float
        ``upper`` is an estimate where it can't be certified, and n while convergence is slow.
    running : bool
        Whether further steps follow.
    """

    scale: float
    lower: float
    value: float
    upper: float
    running: bool = False


@dataclass
class _ScaleState:
    """The numbers of one scale's iteration; its vectors are arrays of the solver."""

    scale: float
    status: ScaleStatus = "running"
    eigenvalue: float = 0.0  # lower bound of the smallest one
    ceiling: float | None = None  # certified upper bound of the magnitude
    singular: bool = False  # numerically, so that gains don't show the error
    preconditioned: bool = False
    sharpest: float = 1.0  # largest r' M^-1 r / r' r
    energy: float = 0.0  # r' M^-1 r
    longest: float = 0.0  # step
    gains: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)  # relative, of the certified bracket
    settled: int = 0  # steps until the magnitude was known well enough

    @property
    def value(self) -> float:
        return math.fsum(self.gains)


class ConjugateGradients:
    """An :class:`~latentscale.linalg.iterations.Iteration` whose outcome is :class:`Solutions`.

    Use :meth:`start`, then :attr:`request` and :meth:`advance` in turn.

    Notes
    -----
    With ``n`` rows in ``d`` dimensions, ``s`` scales, ``c`` of them preconditioned with ``m``
    landmarks, :func:`step_bytes` bounds the memory of a step, apart from the block of rows being
    read.
    """

    def __init__(self, arrays: Arrays, values: Mapping[str, Any]) -> None:
        self._arrays: dict[str, NDArray[Any]] = dict(arrays)
        self._values = dict(values)
        self._states = [_ScaleState(**state) for state in values["states"]]
        self._tiles: LandmarkTiles | None = None  # of the steps that this object takes

    @classmethod
    def start(
        cls,
        n: int,
        scales: ArrayLike,
        *,
        tolerance: float,
        read_rows: ReadRows,
        generator: np.random.Generator,
        separations: Separations | None = None,
        weight_accuracy: float | None = WEIGHT_ACCURACY,
    ) -> Self:
        """Prepare the iteration and return it.

        Parameters
        ----------
        n : int
            Number of distinct rows.
        scales : array_like of float, shape (s,)
            Positive, finite, strictly ascending; may be empty. Even spacing is fastest.
        tolerance : float
            Relative error allowed, in (0, 1).
        read_rows : ReadRows
            Reads the distinct rows.
        generator : numpy.random.Generator
            Draws landmarks.
        separations : Separations, optional
            Separations from an earlier iteration on the same rows. Otherwise they are requested
            together with the first products.
        weight_accuracy : float
            Largest residual allowed for any row at the largest scale, where the weights themselves
            are results; None when weights don't matter.

        Notes
        -----
        Reads the rows once to draw landmarks. Where preconditioners pay, reads them three times or
        more to prepare and apply them.
        """
        scales = np.array(scales, dtype=np.float64)
        values: dict[str, Any] = {
            "n": n,
            "tolerance": tolerance,
            "weight_accuracy": weight_accuracy,
            "precision": "single" if n >= SINGLE_ROWS else "double",
            "products": 0,
            "phase": "iterate" if len(scales) else "finished",
            "states": [asdict(_ScaleState(scale)) for scale in scales.tolist()],
            "separations": None if separations is None else separations.values(),
            "exponents": [],
            "landmarks": None,
            "estimates": [],
        }
        solver = cls({}, values)
        if n == 1:
            solver._conclude_at_once()
        elif len(scales):
            solver._begin(read_rows, generator)
        return solver

    @classmethod
    def load(cls, arrays: Arrays, values: Mapping[str, Any]) -> Self:
        """Restore from :meth:`arrays` and :meth:`values`."""
        return cls(arrays, values)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the state."""
        return dict(self._arrays)

    def values(self) -> dict[str, Any]:
        """Return the JSON values of the state."""
        return {**self._values, "states": [asdict(state) for state in self._states]}

    @property
    def request(self) -> PairRequest | None:
        """The next products: of the directions, or of the final weights in double precision."""
        phase: Phase = self._values["phase"]
        if phase == "finished":
            return None
        if phase == "judge":
            places, name = list(range(len(self._states))), "weights"
            precision: Precision = "double"
        else:
            places, name = self._running(), "directions"
            precision = self._values["precision"]
        return PairRequest(
            np.array([self._states[k].scale for k in places]),
            np.stack([self._arrays[f"{name}-{k}"] for k in places], axis=1),
            precision,
            np.array(self._values["exponents"]),
        )

    @property
    def outcome(self) -> Solutions:
        """The solutions, once the iteration is finished."""
        if self._values["phase"] != "finished":
            raise RuntimeError("conjugate gradients aren't finished: advance while request is set")
        weights = [self._arrays[f"weights-{k}"] for k in range(len(self._states))]
        return Solutions(
            np.array([state.scale for state in self._states]),
            tuple(Estimate(**values) for values in self._values["estimates"]),
            np.stack(weights, axis=1) if weights else np.empty((self._values["n"], 0)),
            self._values["products"],
            tuple(state.preconditioned for state in self._states),
            self.separations or Separations((), ()),
        )

    @property
    def separations(self) -> Separations | None:
        """The separations of the points; None while unknown."""
        values = self._values["separations"]
        return None if values is None else Separations.load(values)

    def brackets(self) -> list[Bracket]:
        """Return the present bracket at every scale; the final estimates once they exist."""
        if self._values["phase"] == "finished":
            scales = [state.scale for state in self._states]
            estimates = self.outcome.estimates
            return [
                Bracket(scale, estimate.lower, estimate.value, estimate.upper)
                for scale, estimate in zip(scales, estimates, strict=True)
            ]
        return [self._bracket(state) for state in self._states]

    def stop(self, scales: Iterable[float]) -> None:
        """Take no more steps at these scales."""
        stopped = set(scales)
        for k in self._running():
            if self._states[k].scale in stopped:
                self._leave(k, "stopped")
        self._turn()

    def advance(self, sums: PairSums) -> Self:
        """Take a step at every unsolved scale, or bound the magnitudes at the end."""
        products, read_rows = sums.products, sums.read_rows
        self._values["products"] += 1
        if self._values["phase"] == "judge":
            self._judge(products, read_rows)
            self._values["phase"] = "finished"
            return self
        places = self._running()
        if self._values["products"] == 1:
            self._bound_eigenvalues(products, sums.gaussians, read_rows)
        moved = [k for i, k in enumerate(places) if self._move(k, products[:, i])]
        self._tiles = self._tiles or self._new_tiles(read_rows)
        for k, solved in self._precondition(moved, self._tiles).items():
            self._turn_direction(k, solved.solution)
            self._smooth(k, solved)
            self._decide(k)
        if self._values["products"] >= most_products(self._values["n"]):
            for k in self._running():
                self._leave(k, "stopped")
        self._turn()
        return self

    # --- Start ---

    def _conclude_at_once(self) -> None:
        """Finish with magnitude 1 at every scale, for a single point."""
        one = Estimate.exact(1.0, "cg")
        for k in range(len(self._states)):
            self._arrays[f"weights-{k}"] = np.ones(1)
            self._values["estimates"].append(
                {name: getattr(one, name) for name in Estimate.__slots__}
            )
        self._values["phase"] = "finished"

    def _begin(self, read_rows: ReadRows, generator: np.random.Generator) -> None:
        n = self._values["n"]
        landmarks = Landmarks.draw(n, read_rows, generator)
        if self._values["separations"] is None and landmarks.points.metric == "euclidean":
            self._values["exponents"] = separation_exponents(
                _mean_square(landmarks.points)
            ).tolist()
        dtype = np.dtype(np.float32 if self._values["precision"] == "single" else np.float64)
        for k in self._running():
            for name in ("weights", "best-weights"):
                self._arrays[f"{name}-{k}"] = np.zeros(n, dtype)
            for name in ("residuals", "best-residuals"):
                self._arrays[f"{name}-{k}"] = np.ones(n, dtype)
        if landmarks.points.metric == "cosine":
            self._bound_on_sphere(landmarks.points)
        else:
            self._bound_in_box(read_rows)
        if n >= PRECONDITIONED_ROWS:
            self._prepare(landmarks, read_rows, generator)
        for k, solved in self._precondition(self._running(), self._new_tiles(read_rows)).items():
            self._arrays[f"directions-{k}"] = np.zeros(n, dtype)
            self._turn_direction(k, solved.solution)
            self._smooth(k, solved)

    def _bound_on_sphere(self, points: Points) -> None:
        """Bound the magnitude under the cosine distance, and find singular matrices."""
        sample = points.take(slice(0, SAMPLED_ROWS))
        distances = distance_tile(sample, sample)
        for state in self._states:
            state.ceiling = sphere_magnitude(state.scale, points.dimension)
            state.singular = is_numerically_singular(distances, state.scale)

    def _bound_in_box(self, read_rows: ReadRows) -> None:
        """Bound the magnitude by that of the box around all rows."""
        ends = [(points.rows.min(axis=0), points.rows.max(axis=0)) for points in read_rows()]
        low, high = np.array(ends, np.float64).swapaxes(0, 1)
        sides = high.max(axis=0) - low.min(axis=0)
        for state in self._states:
            state.ceiling = box_magnitude(state.scale, sides)

    def _prepare(
        self, landmarks: Landmarks, read_rows: ReadRows, generator: np.random.Generator
    ) -> None:
        """Prepare preconditioners for the scales at which many steps are predicted."""
        slow = [
            k
            for k in self._running()
            if predicted_steps(
                landmarks,
                self._states[k].scale,
                self._values["n"],
                PREDICTED_GAIN,
                PRECONDITIONED_STEPS,
            )
            >= PRECONDITIONED_STEPS
        ][: most_preconditioners(self._values["n"])]
        if not slow:
            return
        scales = [self._states[k].scale for k in slow]
        prepared, vecchia = prepare_preconditioners(
            landmarks, scales, self._values["n"], read_rows, generator
        )
        for k, preconditioner in zip(slow, prepared, strict=True):
            if preconditioner is not None:
                self._arrays[f"landmark-factor-{k}"] = preconditioner.landmark_factor
                self._arrays[f"row-factors-{k}"] = preconditioner.row_factors
                self._states[k].preconditioned = True
        self._arrays["vecchia"] = vecchia
        self._arrays["landmarks"] = landmarks.points.rows
        self._arrays["positions"] = landmarks.positions
        origin = landmarks.points.origin
        if origin is not None:
            self._arrays["origin"] = origin
        self._values["landmarks"] = [landmarks.count, landmarks.points.metric]

    def _landmarks(self) -> Landmarks:
        count, metric = self._values["landmarks"]
        rows = self._arrays["landmarks"]
        norms = np.einsum("ij,ij->i", rows, rows)
        points = Points(rows, norms, metric, self._arrays.get("origin"))
        return Landmarks(points, self._arrays["positions"], count)

    def _bound_eigenvalues(
        self, products: Float64Array, gaussian_sums: Float64Array, read_rows: ReadRows
    ) -> None:
        """Bound the smallest eigenvalues by the Gaussian sums, or by the sums of rows."""
        n, places = self._values["n"], self._running()
        exponents = np.array(self._values["exponents"])
        if len(exponents):
            errors = np.max(
                [gaussian_error(b, exponents, "single", rows=n) for b in read_rows()], 0
            )
            largest = gaussian_sums.max(axis=0) * (1.0 + errors) + n * LOST_SIMILARITY
            separations = Separations(tuple(exponents.tolist()), tuple(largest.tolist()))
            self._values["separations"] = separations.values()
            self._values["exponents"] = []
        scales = np.array([self._states[k].scale for k in places])
        separations = self.separations or Separations((), ())
        bounds = smallest_eigenvalues(scales, separations)
        if not bounds.all():
            precision: Precision = self._values["precision"]
            _, errors = _relative_errors(read_rows, scales, precision, n)
            for i, k in enumerate(places):
                # Without a preconditioner the first direction was the vector of ones.
                if not self._states[k].preconditioned and errors[i] < 0.5:
                    sums = float(products[:, i].max()) / (1.0 - float(errors[i]))
                    bounds[i] = max(bounds[i], 2.0 - sums)
        for i, k in enumerate(places):
            self._states[k].eigenvalue = float(bounds[i])
            if not bounds[i] > 0:
                del self._arrays[f"best-weights-{k}"], self._arrays[f"best-residuals-{k}"]

    # --- A step ---

    def _running(self) -> list[int]:
        return [k for k, state in enumerate(self._states) if state.status == "running"]

    def _move(self, k: int, image: Float64Array) -> bool:
        """Move one scale's weights along its direction; return whether that was possible."""
        state = self._states[k]
        direction, residual = self._arrays[f"directions-{k}"], self._arrays[f"residuals-{k}"]
        curvature = _dot(direction, image)
        if not (curvature > 0 and state.energy > 0 and math.isfinite(curvature)):
            self._leave(k, "failed")
            return False
        step = state.energy / curvature
        self._arrays[f"weights-{k}"] += (step * direction).astype(direction.dtype, copy=False)
        residual -= (step * image).astype(residual.dtype)
        state.gains.append(step * state.energy)
        state.longest = max(state.longest, step)
        return True

    def _new_tiles(self, read_rows: ReadRows) -> LandmarkTiles | None:
        if self._values["landmarks"] is None:
            return None
        return LandmarkTiles(self._landmarks(), self._values["n"], read_rows)

    def _precondition(
        self, places: Sequence[int], tiles: LandmarkTiles | None
    ) -> dict[int, Solved]:
        """Apply each scale's preconditioner to its residual."""
        residuals = {k: self._arrays[f"residuals-{k}"] for k in places}
        rest = [k for k in places if self._states[k].preconditioned]
        solved = {k: Solved(residuals[k], residuals[k], None) for k in places}
        if rest and tiles is not None:
            found = apply_preconditioners(
                tiles,
                self._arrays["vecchia"],
                [self._states[k].scale for k in rest],
                [self._preconditioner(k) for k in rest],
                [residuals[k] for k in rest],
            )
            solved |= dict(zip(rest, found, strict=True))
        return solved

    def _preconditioner(self, k: int) -> Preconditioner:
        return Preconditioner(
            self._arrays[f"landmark-factor-{k}"], self._arrays[f"row-factors-{k}"]
        )

    def _turn_direction(self, k: int, solution: FloatArray) -> None:
        """Make the next direction conjugate to the last."""
        state, direction = self._states[k], self._arrays[f"directions-{k}"]
        residual = self._arrays[f"residuals-{k}"]
        energy, squared = _dot(residual, solution), _dot(residual, residual)
        direction *= energy / state.energy if state.energy > 0 else 0.0
        direction += solution
        state.energy = energy
        if squared > 0:
            state.sharpest = max(state.sharpest, energy / squared)

    def _smooth(self, k: int, solved: Solved) -> None:
        """Mix the new iterate into the combination of least residual."""
        best = self._arrays.get(f"best-residuals-{k}")
        if best is None:
            return
        best_weights, weights = self._arrays[f"best-weights-{k}"], self._arrays[f"weights-{k}"]
        change = solved.corrected - best
        length = _dot(change, change)
        share = -_dot(best, change) / length if length > 0 else 0.0
        best += (share * change).astype(best.dtype, copy=False)
        change = weights - best_weights
        if solved.correction is not None:
            chosen = self._arrays["positions"][: len(solved.correction)]
            change[chosen] += solved.correction.astype(change.dtype)
        best_weights += (share * change).astype(best.dtype, copy=False)

    # --- The decision ---

    def _decide(self, k: int) -> None:
        """End the steps of a scale when it is solved."""
        state, tolerance = self._states[k], self._values["tolerance"]
        value, last = state.value, self._arrays[f"residuals-{k}"]
        best = self._arrays.get(f"best-residuals-{k}")
        certain = False
        if best is not None:
            state.widths.append(_dot(best, best) / state.eigenvalue / value)
            certain = state.widths[-1] <= CERTIFIED_SHARE * tolerance
        estimated = remaining_error(state.gains) <= ESTIMATED_SHARE * tolerance * value
        if certain or estimated:
            state.settled = state.settled or len(state.gains)
        residual = best if certain and best is not None else last
        if (certain or (estimated and not self._certain_soon(state))) and (
            _size(residual) <= self._weight_accuracy(k)
            or len(state.gains) >= state.settled + max(PATIENCE, state.settled)
        ):
            self._leave(k, "certain" if certain else "estimated")
        elif not _dot(last, last) > len(last) * float(np.finfo(last.dtype).eps) ** 2:
            self._leave(k, "exhausted")

    def _weight_accuracy(self, k: int) -> float:
        wanted: float | None = self._values["weight_accuracy"]
        return math.inf if wanted is None or k + 1 < len(self._states) else wanted

    def _certain_soon(self, state: _ScaleState) -> bool:
        """Return whether the certified bracket will be narrow enough in a few more steps."""
        goal = CERTIFIED_SHARE * self._values["tolerance"]
        if len(state.widths) < 3 or not math.isfinite(state.widths[-1]):
            return False
        if state.widths[-1] <= goal:
            return True
        rate = math.sqrt(state.widths[-1] / state.widths[-3])
        if not 0.0 < rate < 1.0:
            return False
        further = math.log(goal / state.widths[-1]) / math.log(rate)
        return further <= max(PATIENCE, len(state.gains) // 2)

    def _leave(self, k: int, status: ScaleStatus) -> None:
        """End a scale, keeping only its weights and its residual."""
        self._states[k].status = status
        best = self._arrays.pop(f"best-weights-{k}", None)
        best_residual = self._arrays.pop(f"best-residuals-{k}", None)
        if best is not None and best_residual is not None and status != "estimated":
            self._arrays[f"weights-{k}"] = best
            self._arrays[f"residuals-{k}"] = best_residual
        del self._arrays[f"directions-{k}"]
        self._arrays.pop(f"landmark-factor-{k}", None)
        self._arrays.pop(f"row-factors-{k}", None)

    def _turn(self) -> None:
        """Switch to the final product when no scale takes steps any more."""
        if self._values["phase"] == "iterate" and not self._running():
            self._values["phase"] = "judge"
            self._tiles = None
            for name in ("landmarks", "positions", "origin", "vecchia"):
                self._arrays.pop(name, None)

    def _bracket(self, state: _ScaleState) -> Bracket:
        value, n = state.value, float(self._values["n"])
        error = remaining_error(state.gains)
        last = state.gains[-3:]
        if len(last) == 3 and last[2] <= FAST * last[1] <= FAST * FAST * last[0]:
            error = min(error, SAFETY * state.gains[-1])
        if state.widths:
            error = min(error, value * state.widths[-1])
        running = state.status == "running"
        return Bracket(state.scale, value, value, min(value + error, n), running)

    # --- The final product ---

    def _judge(self, products: Float64Array, read_rows: ReadRows) -> None:
        n = self._values["n"]
        scales = np.array([state.scale for state in self._states])
        entries, errors = _relative_errors(read_rows, scales, "double", n)
        for k, state in enumerate(self._states):
            weights = self._arrays[f"weights-{k}"].astype(np.float64)
            residuals = self._arrays.pop(f"residuals-{k}")
            judged = _Judgement.of(
                weights,
                products[:, k],
                float(entries[k]),
                float(errors[k]),
                state.eigenvalue,
                math.inf if state.ceiling is None else state.ceiling,
            )
            error = self._estimated_error(state, 1.0 - products[:, k], residuals)
            estimate = judged.estimate(error, self._values["tolerance"])
            if judged.total > 0:
                weights *= estimate.value / judged.total
            self._arrays[f"weights-{k}"] = weights.astype(residuals.dtype)
            self._values["estimates"].append(
                {name: getattr(estimate, name) for name in Estimate.__slots__}
            )

    def _estimated_error(
        self, state: _ScaleState, residual: Float64Array, expected: FloatArray
    ) -> float:
        """Estimate the error from the last gains and from how far the residual is from expected."""
        if state.status == "failed" or state.singular:
            return math.inf
        lost = residual if state.status == "exhausted" else residual - expected
        error = SAFETY * state.longest * state.sharpest * float(lost @ lost)
        error += UNSEEN_ROUNDINGS * rounding_unit(self._values["precision"]) * state.value
        return error if state.status == "exhausted" else error + remaining_error(state.gains)


@dataclass(frozen=True)
class _Judgement:
    """Bounds of the magnitude from one product in double precision.

    Attributes
    ----------
    n : int
    total : float
        Sum of the weights.
    lower, value, upper : float
        Certified bounds, and in between the lower bound without the allowance for rounding.
    """

    n: int
    total: float
    lower: float
    value: float
    upper: float

    @classmethod
    def of(
        cls,
        weights: Float64Array,
        product: Float64Array,
        entries: float,
        error: float,
        eigenvalue: float,
        ceiling: float,
    ) -> _Judgement:
        """Bound the magnitude by weights and their product.

        ``entries`` bounds the relative error of similarities of different points, ``error`` that of
        the product with positive weights. ``ceiling`` bounds the magnitude itself.
        """
        n = len(weights)
        total, form = float(weights.sum()), float(weights @ product)
        size = float(np.abs(weights).sum())
        negative = float(-weights.sum(where=weights < 0))
        # K|w| is at most Kw plus twice the negative part, because no similarity exceeds 1.
        reach = np.full(n, size)
        if error < 0.5:
            np.minimum(reach, (np.abs(product) + 2.0 * negative) / (1.0 - error), out=reach)
        folding = EPSILON if math.isinf(entries) else (error - entries) / (1.0 + entries) + EPSILON
        with np.errstate(over="ignore", invalid="ignore"):  # what isn't finite is told apart below
            rounding = entries * np.maximum(reach - np.abs(weights), 0.0) + folding * reach
        rounding += LOST_SIMILARITY * 2 * n * size
        total_error = n * EPSILON * size
        form_error = float(np.abs(weights) @ rounding)
        form_error += n * EPSILON * float(np.abs(weights) @ np.abs(product))
        value, lower, upper = 1.0, 1.0, ceiling
        if not math.isfinite(form_error):
            eigenvalue = 0.0
        if form > 0:
            sure = max(abs(total) - total_error, 0.0)
            value = max(min(total * total / form, ceiling), 1.0)
            lower = max(sure * sure / (form + form_error) * (1.0 - 8 * EPSILON), 1.0)
        if eigenvalue > 0:
            residual = np.abs(1.0 - product) + rounding
            with np.errstate(over="ignore"):  # then it bounds nothing
                remainder = float(residual @ residual) * (1.0 + n * EPSILON) / eigenvalue
            upper = min(upper, 2.0 * total - form + remainder + 2.0 * total_error + form_error)
        return cls(n, total, min(lower, value), value, upper)

    def estimate(self, error: float, tolerance: float) -> Estimate:
        """Return the bracket: certified if narrow, else by the estimated error, else up to n.

        Gains that stalled say nothing of those to come, as of rows within tight clusters, so an
        estimated error is no smaller than the tolerance.
        """
        top = float(self.n)
        value = min(self.value, top)
        lower = min(self.lower, value)
        certified = max(min(self.upper, top), value)
        least = tolerance * lower * (1.0 - 1e-9) - (value - lower)
        reach = max(error + (value - lower), least)
        guessed = max(min(value + reach, certified), value)
        bounds: Bounds = "estimate"
        upper = guessed
        if self.upper - lower <= tolerance * value or (
            math.isfinite(self.upper) and not guessed < certified and self.upper <= top
        ):
            bounds, upper = "certified", certified
        return Estimate(value, lower, upper, bounds, "cg")


def most_products(n: int) -> int:
    """Return the number of products after which the iteration gives up."""
    return 50 + 4 * math.isqrt(n)


def remaining_error(gains: Sequence[float]) -> float:
    """Estimate the error from the gains of the last steps, a lower bound of the earlier error."""
    count = len(gains)
    few, many = DELAY_SHARES
    share = max(few, min(count / MANY_STEPS, 1.0) * many)
    delay = max(DELAY, math.ceil(share * count))
    return SAFETY * math.fsum(gains[-delay:]) if count > delay else math.inf


def step_bytes(n: int, scales: int, preconditioned: int, dimension: int) -> int:
    """Bound the memory of a step, apart from a block of rows and the products.

    Parameters
    ----------
    n, scales, dimension : int
        Distinct rows, scales and coordinates.
    preconditioned : int
        Scales with a preconditioner; all of them when the number isn't known.
    """
    item = 4 if n >= SINGLE_ROWS else 8
    m = landmark_count(n) if n >= PRECONDITIONED_ROWS else 0
    some = min(preconditioned, most_preconditioners(n))
    vectors = n * item * (6 * scales + 2 * some + 3)
    if m == 0:
        return vectors + 48 * n
    blocks = BLOCK_ROWS * (8 * dimension + 16 * m + 48 * scales) + 48 * n
    kept = kept_bytes(n, dimension)
    return vectors + preconditioner_bytes(n, preconditioned, dimension) + blocks + kept


def _relative_errors(
    read_rows: ReadRows, scales: Float64Array, precision: Precision, n: int
) -> tuple[Float64Array, Float64Array]:
    """Bound the errors of similarities and products; infinite at extremely large scales."""
    farthest = _farthest_row(read_rows)
    with np.errstate(over="ignore", invalid="ignore"):
        entries = similarity_error(farthest, scales, precision)
        products = product_error(farthest, scales, precision, rows=n)
    return np.nan_to_num(entries, nan=np.inf), np.nan_to_num(products, nan=np.inf)


def _farthest_row(read_rows: ReadRows) -> Points:
    """Return the row farthest from the origin: error bounds depend on it alone."""
    farthest, largest = None, -1.0
    for block in read_rows():
        sizes = block.tile_rows("double", 1.0).sizes
        place = int(np.argmax(sizes))
        if sizes[place] > largest:
            farthest, largest = block.take(slice(place, place + 1)), float(sizes[place])
    if farthest is None:
        raise ValueError("there are no rows to read")
    return farthest


def _mean_square(points: Points) -> float:
    """Return the mean squared distance between the points."""
    centre = points.rows.mean(axis=0)
    spread = points.rows - centre
    return 2.0 * float(np.einsum("ij,ij->i", spread, spread).mean())


def _dot(a: FloatArray, b: FloatArray) -> float:
    """Return the inner product, summed in double precision."""
    return float(np.einsum("i,i->", a, b, dtype=np.float64))


def _size(vector: FloatArray) -> float:
    return float(max(vector.max(), -vector.min()))
