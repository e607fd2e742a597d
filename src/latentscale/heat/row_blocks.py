"""The heat trace of a graph that is too large for one process: Lanczos by blocks of rows.

A Lanczos step takes two passes over the blocks. In the first pass every block multiplies its rows
by the vectors. In the second pass it makes the product orthogonal to the last vectors, with the
coefficients that the first pass gave. Between passes only sums over blocks are added. From these
sums :class:`TraceByRows` advances the recurrence by one step (:mod:`latentscale.linalg.lanczos`).

Vectors advance in batches. The first batch holds the pilots and the first probes, and determines
the number of steps where that isn't given. Further batches hold more probes, until the trace is
known (:mod:`latentscale.heat.trace`). Where tr L³ and tr L⁴ are estimated, batches of companion
vectors follow those of probes; two steps of each give v'L³v and v'L⁴v. Random entries are a hash,
so the numbers depend on the division into blocks by rounding only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.heat.control_variates import (
    ControlVariate,
    VarianceReduction,
    fit_control_variate,
)
from latentscale.heat.trace import (
    COMPANIONS,
    MAX_PROBES,
    MAX_STEPS,
    MIN_PROBES,
    MIN_STEPS,
    PILOT_PROBES,
    HeatTrace,
    ProbeIntegrals,
    average_probes,
    is_known,
    quadrature_suffices,
    with_imd_times,
)
from latentscale.linalg.iterations import Arrays
from latentscale.linalg.lanczos import Recurrence, take_off_before, take_off_own
from latentscale.linalg.quadrature import rules_of
from latentscale.linalg.random_vectors import Distribution, hashed_vectors

if TYPE_CHECKING:
    from scipy.sparse import csr_array


BATCH = 16
"""Largest number of vectors in a batch."""

COMPANION_STEPS = 2
"""Lanczos steps that give the moments of a companion vector up to the fourth."""

FIRST_COMPANION = 2**20
"""Number of the first companion vector; those of probes are below."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class RowRequest:
    """The next computation of every block of rows.

    Attributes
    ----------
    phase : {"multiply", "orthogonalise"}
        The first or the second half of a Lanczos step.
    step : int
        Number of the step; before step 0 the vectors are random.
    seed, first, width : int
        Of the random vectors: the seed of their hash, the number of the first one, and their count.
    distribution : {"rademacher", "gaussian"}
        Distribution of their entries.
    moments : int
        How many of tr L^j, j = 0 … 4, are wanted as well: none, three or all five.
    share, scale, coupling : ndarray of float64, shape (width,)
        The last α, the factor that gives the vectors unit length, and the last β.
    """

    phase: Literal["multiply", "orthogonalise"]
    step: int
    seed: int
    first: int
    width: int
    distribution: Distribution
    moments: int
    share: Float64Array
    scale: Float64Array
    coupling: Float64Array

    def values(self) -> dict[str, Any]:
        """Return the JSON form."""
        arrays = {name: getattr(self, name).tolist() for name in ("share", "scale", "coupling")}
        return {**vars(self), **arrays}

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> RowRequest:
        """Restore a request from :meth:`values`."""
        arrays = {name: np.array(values[name]) for name in ("share", "scale", "coupling")}
        return cls(**{**values, **arrays})

    def start_vectors(self, n: int, start: int, stop: int) -> Float64Array:
        """Draw rows of the random vectors, which have n entries and about unit length."""
        columns = range(self.first, self.first + self.width)
        return hashed_vectors(self.distribution, self.seed, start, stop, columns) / math.sqrt(n)


@dataclass(frozen=True)
class RowSums:
    """The answer to a :class:`RowRequest`: sums over rows, one for each vector.

    Attributes
    ----------
    shares : sequence of float
        Of the first half of a step: dot products of vectors and products.
    squares : sequence of float
        Squared lengths: of the random vectors in the first half of step 0, of the remainder in
        every second half.
    moments : sequence of float
        tr L^j for j = 0 … 4, where requested; 0 for those that aren't wanted.
    """

    shares: Sequence[float] = ()
    squares: Sequence[float] = ()
    moments: Sequence[float] = ()

    @classmethod
    def total(cls, blocks: Sequence[RowSums]) -> RowSums:
        """Return the sum over blocks, in their order and without rounding."""
        return cls(
            *(
                [
                    math.fsum(column)
                    for column in zip(*(getattr(block, name) for block in blocks), strict=True)
                ]
                for name in ("shares", "squares", "moments")
            )
        )


def multiply_block(
    request: RowRequest,
    block: csr_array[Any, Any],
    gathered: Float64Array,
    vector: Float64Array,
    before: Float64Array | None,
) -> tuple[Float64Array, RowSums]:
    """Compute the first half of a step for one block.

    Parameters
    ----------
    request : RowRequest
        A request of the phase ``multiply``.
    block : csr_array, shape (m, c)
        Rows of the Laplacian. Its columns are the vertices at which these rows have entries.
    gathered : ndarray of float64, shape (c, width)
        The rows of the vectors at these vertices.
    vector, before : ndarray of float64, shape (m, width)
        The block's own rows of the vectors, and of the previous vectors; the latter is None at step
        0.

    Returns
    -------
    tuple of ndarray and RowSums
        The block's rows of the product; its sums, without moments.
    """
    product = block @ gathered
    shares = take_off_before(product, vector, before, request.coupling)
    squares = np.einsum("ij,ij->j", vector, vector) if request.step == 0 else np.empty(0)
    return product, RowSums(shares.tolist(), squares.tolist())


def orthogonalise_block(
    request: RowRequest, vector: Float64Array, product: Float64Array
) -> tuple[Float64Array, Float64Array, RowSums]:
    """Compute the second half of a step for one block.

    Parameters
    ----------
    request : RowRequest
        A request of the phase ``orthogonalise``.
    vector, product : ndarray of float64, shape (m, width)
        The vectors and the product of the first half.

    Returns
    -------
    tuple of ndarray, ndarray and RowSums
        The block's rows of the vectors, of unit length; the remainder of the product; its sums.
    """
    # The length of a random vector is known only after all blocks have drawn their part.
    scale = request.scale if request.step == 0 else 1.0
    vector, rest = vector * scale, product * scale
    squares = take_off_own(rest, vector, request.share)
    return vector, rest, RowSums(squares=squares.tolist())


@dataclass(frozen=True)
class TraceSettings:
    """The settings of a trace; ``steps`` and ``probes`` are None for automatic.

    ``n`` is the number of vertices, ``norm`` bounds the largest eigenvalue, ``exact`` tells whether
    tr L³ and tr L⁴ are computed, not estimated, and the rest is as for
    :func:`latentscale.heat.trace.estimate_heat_trace`.
    """

    n: int
    norm: float
    steps: int | None
    probes: int | None
    tolerance: float
    distribution: Distribution
    variance_reduction: VarianceReduction
    exact: bool = True


@dataclass(frozen=True)
class TraceByRows:
    """An :class:`~latentscale.linalg.iterations.Iteration` whose outcome is a heat trace.

    Attributes
    ----------
    settings : TraceSettings
        The settings of the trace.
    times : ndarray of float64, shape (T,)
        Positive ascending times.
    seed, wanted, steps : int
        Seed of the hash of random entries; total number of vectors; steps of each.
    phase : {"multiply", "orthogonalise"}
        The half of a step that is requested.
    recurrence : Recurrence
        The recurrence of the present batch.
    lengths : ndarray of float64, shape (width,)
        Squared lengths of the batch's random vectors.
    diagonals, off_diagonals, all_lengths : ndarray of float64
        Of all earlier batches: shapes (steps, vectors) twice, and (vectors,).
    moments : ndarray of float64, shape (5,)
        tr L^j for j = 0 … 4; the last two are 0 where they are estimated.
    companions : ndarray of float64, shape (vectors, 2)
        The estimates of tr L³ / n and tr L⁴ / n by each companion vector.
    trace : HeatTrace or None
        The outcome.
    """

    settings: TraceSettings
    times: Float64Array
    seed: int
    wanted: int
    steps: int
    phase: Literal["multiply", "orthogonalise"]
    recurrence: Recurrence
    lengths: Float64Array
    diagonals: Float64Array
    off_diagonals: Float64Array
    all_lengths: Float64Array
    moments: Float64Array
    companions: Float64Array
    trace: HeatTrace | None = None

    @classmethod
    def start(
        cls, settings: TraceSettings, times: Float64Array, generator: np.random.Generator
    ) -> TraceByRows:
        """Draw a seed and begin with the first batch: pilots and the first probes."""
        steps = MIN_STEPS if settings.steps is None else settings.steps
        probes = MIN_PROBES if settings.probes is None else settings.probes
        none = np.empty((steps, 0))
        begun = cls(
            settings=settings,
            times=times,
            seed=int(generator.integers(2**62)),
            wanted=PILOT_PROBES + probes,
            steps=steps,
            phase="multiply",
            recurrence=Recurrence.begin(np.empty(0)),
            lengths=np.empty(0),
            diagonals=none,
            off_diagonals=none,
            all_lengths=np.empty(0),
            moments=np.zeros(5),
            companions=np.empty((0, 2)),
        )
        return begun._begin_batch()

    @property
    def request(self) -> RowRequest | None:
        """The next computation of the blocks; None when finished."""
        if self.trace is not None:
            return None
        recurrence, step = self.recurrence, len(self.recurrence.off_diagonal)
        multiplies = self.phase == "multiply"
        begins = multiplies and step == 0 and len(self.all_lengths) == 0
        of_probes, of_companions = len(self.all_lengths), FIRST_COMPANION + len(self.companions)
        return RowRequest(
            phase=self.phase,
            step=step,
            seed=self.seed,
            first=of_companions if self._has_probes else of_probes,
            width=len(recurrence.scale),
            distribution=self.settings.distribution,
            moments=(5 if self.settings.exact else 3) if begins else 0,
            share=np.empty(0) if multiplies else recurrence.share,
            scale=recurrence.scale,
            coupling=recurrence.coupling,
        )

    @property
    def outcome(self) -> HeatTrace:
        """The heat trace per vertex, once it is known."""
        if self.trace is None:
            raise RuntimeError("the trace isn't finished: advance while request is set")
        return self.trace

    def advance(self, sums: RowSums) -> TraceByRows:
        """Take the blocks' sums; after the last step of a batch, check if the trace is known."""
        if self.phase == "multiply":
            return self._take_shares(sums)
        smallest = math.sqrt(_EPSILON) * self.settings.norm
        recurrence = self.recurrence.take_squares(np.array(sums.squares), smallest)
        stepped = replace(self, phase="multiply", recurrence=recurrence)
        if self._has_probes:
            done = len(recurrence.diagonal) == COMPANION_STEPS
            return stepped._end_companions() if done else stepped
        if len(recurrence.diagonal) < self.steps:
            return stepped
        if stepped._wants_more_steps():
            none = np.empty((2 * self.steps, 0))
            return replace(stepped, steps=2 * self.steps, diagonals=none, off_diagonals=none)
        return stepped._end_batch()

    def _take_shares(self, sums: RowSums) -> TraceByRows:
        shares, recurrence, lengths = np.array(sums.shares), self.recurrence, self.lengths
        if len(recurrence.off_diagonal) == 0:
            lengths = np.array(sums.squares)
            recurrence = Recurrence.begin(1.0 / np.sqrt(lengths))
            shares = shares / lengths
        moments = np.array(sums.moments) if len(sums.moments) else self.moments
        return replace(
            self,
            phase="orthogonalise",
            recurrence=recurrence.take_shares(shares),
            lengths=lengths,
            moments=moments,
        )

    def _wants_more_steps(self) -> bool:
        """Return whether the first batch needs more steps; later batches take as many as it did."""
        settings = self.settings
        most = min(MAX_STEPS, settings.n)
        if settings.steps is not None or len(self.all_lengths) > 0 or self.steps >= most:
            return False
        rules = rules_of(self.recurrence)
        return not quadrature_suffices(*rules, self.times, settings.tolerance)

    @property
    def _has_probes(self) -> bool:
        """Return whether all vectors but companions have ended."""
        return len(self.all_lengths) == self.wanted

    @property
    def _companions_left(self) -> int:
        """Return how many companions the probes still need."""
        # With one step the polynomials have no powers that need an estimate.
        fitted = self.settings.variance_reduction == "moments" and self.steps > 1
        if self.settings.exact or not fitted:
            return 0
        return COMPANIONS * (self.wanted - PILOT_PROBES) - len(self.companions)

    def _begin_batch(self) -> TraceByRows:
        """Start the vectors that are still needed, at most one batch."""
        left = self.wanted - len(self.all_lengths)
        width = min(BATCH, self._companions_left if self._has_probes else left)
        return replace(
            self,
            phase="multiply",
            recurrence=Recurrence.begin(np.ones(width)),
            lengths=np.ones(width),
        )

    def _end_batch(self) -> TraceByRows:
        batch = self.recurrence
        ended = replace(
            self,
            diagonals=np.hstack([self.diagonals, batch.diagonal]),
            off_diagonals=np.hstack([self.off_diagonals, batch.off_diagonal]),
            all_lengths=np.concatenate([self.all_lengths, self.lengths]),
        )
        return ended._end_vectors()

    def _end_companions(self) -> TraceByRows:
        """Add v'L³v and v'L⁴v, which are the same powers of the tridiagonal matrix."""
        (first, second), (next_to, last) = self.recurrence.diagonal, self.recurrence.off_diagonal
        square = next_to**2
        cubes = first**3 + square * (2 * first + second)
        fourths = (first**2 + square) ** 2 + square * ((first + second) ** 2 + last**2)
        seen = self.lengths[:, None] * np.column_stack([cubes, fourths])
        return replace(self, companions=np.vstack([self.companions, seen]))._end_vectors()

    def _end_vectors(self) -> TraceByRows:
        """Begin the next batch, or end if the trace is known."""
        if not self._has_probes or self._companions_left > 0:
            return self._begin_batch()
        (trace, control), settings = self._average(), self.settings
        if (
            settings.probes is not None
            or is_known(trace, control, settings.tolerance)
            or trace.probes >= MAX_PROBES
        ):
            return replace(self, trace=trace)
        return replace(self, wanted=PILOT_PROBES + 2 * trace.probes)._begin_batch()

    def _average(self) -> tuple[HeatTrace, ControlVariate]:
        settings, everywhere = self.settings, with_imd_times(self.times)
        # These runs have ended, so the scale of their vectors doesn't matter.
        whole = Recurrence(self.diagonals, self.off_diagonals, np.empty(0))
        gauss, radau = (rule.weighted(self.all_lengths) for rule in rules_of(whole))
        control = fit_control_variate(
            gauss.take(slice(PILOT_PROBES)),
            self.moments,
            settings.norm,
            everywhere,
            self.steps,
            0,
            settings.variance_reduction,
            settings.distribution,
            exact=settings.exact,
        )
        probes = (rule.take(slice(PILOT_PROBES, None)) for rule in (gauss, radau))
        below, above = (
            rule.integrate(control.remainder(everywhere, rule.nodes)) for rule in probes
        )
        if control.slopes.any():
            each = self.companions.reshape(len(below), COMPANIONS, 2).mean(axis=1)
            below, above = below + each @ control.slopes, above + each @ control.slopes
        seen = ProbeIntegrals(below, above)
        n = settings.n
        return average_probes(self.times, [seen], control, n, self.steps, least=1.0 / n), control

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the state."""
        return {**{name: getattr(self, name) for name in ARRAYS}, **self.recurrence.arrays()}

    def values(self) -> dict[str, Any]:
        """Return the JSON values of the state."""
        own = {name: getattr(self, name) for name in ("seed", "wanted", "steps", "phase")}
        return {**own, "settings": asdict(self.settings)}

    @classmethod
    def load(cls, arrays: Arrays, values: Mapping[str, Any]) -> TraceByRows:
        """Restore from :meth:`arrays` and :meth:`values`."""
        own: dict[str, Any] = {**values, **{name: arrays[name] for name in ARRAYS}}
        own["settings"] = TraceSettings(**values["settings"])
        return cls(**own, recurrence=Recurrence.load(arrays))


ARRAYS = ("times", "lengths", "diagonals", "off_diagonals", "all_lengths", "moments", "companions")
