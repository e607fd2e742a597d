"""States of iterated stages: an iteration between two passes, and vectors cut by groups of rows.

An iteration (:mod:`latentscale.linalg.iterations`) is the mathematics between two passes over all
rows. It is stored as few objects, with what the tasks of the next pass have to know. Vectors are
stored group by group, so that a task reads its own share and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.linalg.iterations import Arrays, Iteration
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.packing import pack, unpack
from latentscale_pipeline.measures.shared.row_groups import RowGroups
from latentscale_pipeline.storage.artifacts import Artifact, Output

IterationT = TypeVar("IterationT")

Load = Callable[[Arrays, Mapping[str, Any]], IterationT]
"""The ``load`` method of an iteration's class."""


def read_state(inputs: Inputs) -> Artifact:
    """Return the state that a pass starts from."""
    if inputs.state is None:
        raise ValueError("a pass starts from a state")
    return inputs.state


def state_output(
    iteration: Iteration[Any, Any, Any],
    values: Mapping[str, Any],
    arrays: Arrays | None = None,
    *,
    apart: str | None = None,
) -> Output:
    """Return the output that stores an iteration for the next pass.

    Parameters
    ----------
    iteration : Iteration
        Not finished.
    values, arrays : mapping
        What else the tasks need.
    apart : str, optional
        The array of the iteration that ``arrays`` already has, cut by groups of rows.
    """
    own = {name: array for name, array in iteration.arrays().items() if name != apart}
    packed, index = pack(own, "state_")
    return Output(
        values={"iteration": iteration.values(), "index": index, **values},
        arrays={**(arrays or {}), **packed},
        finished=False,
    )


def restore(load: Load[IterationT], state: Artifact, apart: Arrays | None = None) -> IterationT:
    """Restore an iteration from a stored state and the array that was stored in groups."""
    arrays = unpack(state.values["index"], state.array)
    return load({**arrays, **(apart or {})}, state.values["iteration"])


def cut_by_groups(vectors: NDArray[Any], groups: RowGroups) -> dict[str, NDArray[Any]]:
    """Cut vectors by groups of rows, under the names that :func:`read_group` uses."""
    return {_vectors(group): vectors[groups.rows(group)] for group in range(groups.count)}


def read_group(state: Artifact, group: int) -> NDArray[Any]:
    """Read a group's rows of the vectors."""
    return state.array(_vectors(group))


def join_groups(state: Artifact, groups: RowGroups) -> NDArray[Any]:
    """Read the vectors of all groups."""
    return np.concatenate([read_group(state, group) for group in range(groups.count)])


def add_group_sums(parts: Sequence[Artifact], groups: RowGroups, columns: int) -> Float64Array:
    """Add the sums of all tasks in order; each task has the sums of one or two groups."""
    sums = np.zeros((groups.n, columns))
    for part in parts:
        if not part.values:
            continue
        start, added = 0, part.array("sums")
        for group in part.values["groups"]:
            rows = groups.rows(group)
            sums[rows] += added[start : start + rows.stop - rows.start]
            start += rows.stop - rows.start
    return sums


def _vectors(group: int) -> str:
    return f"vectors_{group:05d}"
