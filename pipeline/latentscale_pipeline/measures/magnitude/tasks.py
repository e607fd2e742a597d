"""Tasks of magnitude: convergence scales, magnitude functions and their difference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from latentscale.estimate import Estimate
from latentscale.linalg.iterations import Iteration, PairRequest, PairSums, iterate_in_memory
from latentscale.magnitude.conjugate_gradients import ConjugateGradients, Solutions
from latentscale.magnitude.convergence import ConvergenceSearch
from latentscale.magnitude.dense import NoConvergenceScale
from latentscale.magnitude.function import (
    CHOLESKY_ROWS,
    KEPT_BYTES,
    MagnitudeFunction,
    check_target,
    convergence_scale,
    magnitude_difference,
    magnitude_function,
    trapezium_error,
)
from latentscale.magnitude.leave_one_out import leave_rows_out
from latentscale.magnitude.near_duplicates import explain_scale
from latentscale.magnitude.positive_definiteness import Separations
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import (
    JobFacts,
    load_estimate,
    store_estimate,
)
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.shared.distinct_rows import DistinctRows
from latentscale_pipeline.measures.shared.pair_sums import (
    advance_state,
    state_output,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

Outcome = TypeVar("Outcome")

KEPT_ROWS = 16_000
"""Rows up to which one task iterates in memory; beyond, a pass over all pairs is many tasks."""


def advance_convergence(inputs: Inputs) -> Output:
    """Continue the search for the convergence scale; return the reason if there is none."""
    p = inputs.parameters
    distinct = DistinctRows.of(inputs)
    try:
        check_target(p["target"], len(distinct))
        if inputs.state is not None:
            search = advance_state(ConvergenceSearch.load, distinct, inputs)
        elif _is_dense(inputs, distinct):
            points = distinct.read(slice(0, len(distinct)))
            estimate = convergence_scale(
                points, target=p["target"], method=p["method"], tolerance=p["tolerance"]
            )
            return Output(values=_found_scale(inputs, distinct, estimate))
        else:
            search = ConvergenceSearch.start(
                len(distinct),
                target=p["target"],
                read_rows=distinct.read_groups,
                generator=inputs.generator(),
            )
        found = _outcome(search, distinct)
        if found is None:
            return state_output(search, distinct)
    except NoConvergenceScale as error:
        return Output(values={"reason": str(error)})
    values = _found_scale(inputs, distinct, found.estimate)
    return Output(values={**values, "separations": found.separations.values()})


def _found_scale(inputs: Inputs, distinct: DistinctRows, estimate: Estimate) -> dict[str, Any]:
    # A separate random stream: the search has already used the stage's first one.
    generator = replace(inputs, index=inputs.stage.partitions).generator()
    remark = explain_scale(estimate.value, len(distinct), distinct.read_groups, generator)
    return {"estimate": store_estimate(estimate), "remark": remark}


def advance_function(inputs: Inputs) -> Output:
    """Continue solving for the magnitude at the job's scales."""
    p = inputs.parameters
    scales = job_scales(inputs)
    if scales is None:
        return without_scale(inputs)
    distinct = DistinctRows.of(inputs)
    if inputs.state is not None:
        solver = advance_state(ConjugateGradients.load, distinct, inputs)
    elif _is_dense(inputs, distinct):
        points = distinct.read(slice(0, len(distinct)))
        function = magnitude_function(points, scales, method=p["method"], tolerance=p["tolerance"])
        return _function_output(inputs, function, distinct)
    else:
        solver = ConjugateGradients.start(
            len(distinct),
            scales[scales > 0],
            tolerance=p["tolerance"],
            read_rows=distinct.read_groups,
            generator=inputs.generator(),
            separations=_separations(inputs),
        )
    solutions = _outcome(solver, distinct)
    if solutions is None:
        return state_output(solver, distinct)
    return _function_output(inputs, solved_function(scales, solutions), distinct)


def solved_function(scales: np.ndarray[Any, Any], solutions: Solutions) -> MagnitudeFunction:
    """Return the magnitude function of distinct rows from its solutions at positive scales."""
    origin = (Estimate.exact(1.0, "definition"),) * (len(scales) - len(solutions.scales))
    return MagnitudeFunction(
        scales,
        origin + solutions.estimates,
        solutions.weights[:, -1].astype(np.float64),
        len(solutions.weights),
        solutions.products,
        solutions.weights,
    )


def _separations(inputs: Inputs) -> Separations | None:
    """Return the separations of the rows that the search for the scale found, if any."""
    own = inputs.results.get(f"convergence-{inputs.parameters['role']}")
    known = None if own is None else own.values.get("separations")
    return None if known is None else Separations.load(known)


def _outcome(
    iteration: Iteration[PairRequest, PairSums, Outcome], distinct: DistinctRows
) -> Outcome | None:
    """Return the outcome of an iteration; None if a pass of other tasks comes first."""
    if iteration.request is None:
        return iteration.outcome
    if distinct.corpus.n > KEPT_ROWS:
        return None
    points = distinct.read(slice(0, len(distinct)))
    return iterate_in_memory(iteration, points, kept_bytes=KEPT_BYTES)


def _is_dense(inputs: Inputs, distinct: DistinctRows) -> bool:
    method = inputs.parameters["method"]
    return method == "cholesky" or (method == "auto" and len(distinct) <= CHOLESKY_ROWS)


def _function_output(inputs: Inputs, function: MagnitudeFunction, distinct: DistinctRows) -> Output:
    """Return the output for the function of a corpus's distinct rows."""
    known: dict[str, Any] = {}
    if inputs.parameters["errors"] and len(function.scales) > 1:
        left_out = leave_rows_out(
            function.scales,
            function.solutions,
            np.bincount(distinct.group, minlength=len(distinct)),
            distinct.read_groups,
            distinct.read,
            # A separate random stream: the solver has already used the stage's first one.
            replace(inputs, index=inputs.stage.partitions).generator(),
        )
        magnitudes = np.array([estimate.value for estimate in function.estimates])
        known["area_error"] = left_out.area_error()
        known["scale_error"] = left_out.scale_error(magnitudes, inputs.parameters["target"])
    return Output(
        values={
            "estimates": [store_estimate(estimate) for estimate in function.estimates],
            "points": function.points,
            "products": function.products,
            **known,
        },
        arrays={
            "scales": function.scales,
            "weights": distinct.distinct.share(function.weights),
        },
    )


def cut_source(section: Magnitude, facts: JobFacts) -> str | None:
    """Return the stage that computes the cut-off scale; None where the scales are given."""
    given = isinstance(section.scales, list) or facts.fixed_scales.get("t_cut") is not None
    return None if given else f"convergence-{facts.scale_role}"


def job_scales(inputs: Inputs) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Return the scales of a function; None if there is no cut-off scale."""
    p = inputs.parameters
    if isinstance(p["scales"], list):
        return np.asarray(p["scales"], dtype=np.float64)
    cut = p["cut"]
    if cut is None:
        found = inputs.results[p["cut_from"]].values
        if "reason" in found:
            return None
        cut = found["estimate"]["value"]
    return np.linspace(0.0, cut, p["scales"])


def without_scale(inputs: Inputs) -> Output:
    """Return the reason why there are no scales."""
    reason = inputs.results[inputs.parameters["cut_from"]].values.get("reason")
    return Output(values={"reason": reason or "there is no cut-off scale"})


def compare_functions(inputs: Inputs) -> Output:
    """Compute the area between the two functions."""
    functions = [load_magnitude(inputs.results[f"magnitude-{r}"]) for r in ("corpus", "reference")]
    first, second = functions
    if first is None or second is None:
        return Output(values={"reason": "one of the magnitude functions could not be computed"})
    source = inputs.parameters["cut_from"]
    cut = None if source is None else load_estimate(inputs.results[source].values["estimate"])
    values = [a.value - b.value for a, b in zip(first.estimates, second.estimates, strict=True)]
    return Output(
        values={
            "estimate": store_estimate(magnitude_difference(first, second, cut=cut)),
            "trapezium_error": trapezium_error(first.scales, values),
        }
    )


def load_magnitude(artifact: Artifact) -> MagnitudeFunction | None:
    """Load a function; None where it could not be computed."""
    if "reason" in artifact.values:
        return None
    return MagnitudeFunction(
        scales=artifact.array("scales"),
        estimates=tuple(load_estimate(values) for values in artifact.values["estimates"]),
        weights=artifact.array("weights") if "weights" in artifact.objects else np.empty(0),
        points=artifact.values["points"],
        products=artifact.values["products"],
    )
