"""Run stages in the calling thread, with all results in memory.

Nothing is stored, so nothing can be lost, damaged or found again: a result is handed to the tasks
that need it. Values still pass through JSON, and arrays are copied, so that tasks read what they
would read from a store.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs, Stage, Work
from latentscale_pipeline.engine.task import FINALISE, one_thread
from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.storage.artifacts import Artifact, Output

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class HeldArtifact(Artifact):
    """The result of a part, in memory.

    Attributes
    ----------
    place : str
        What its paths begin with.
    arrays : mapping
        Its arrays by name.
    sections : mapping
        For the name of an object, its sections by name.
    parts : sequence of HeldArtifact
        Of the result of a stage: its partitions, as long as another stage may read them.
    finished : bool
        Of the state of an iterated stage: whether it is the stage's result.
    """

    place: str = ""
    arrays: Arrays = field(default_factory=dict, repr=False)
    sections: Mapping[str, Arrays] = field(default_factory=dict, repr=False)
    parts: Sequence[HeldArtifact] = field(default=(), repr=False)
    finished: bool = False

    def array(self, name: str) -> NDArray[Any]:
        """Return a copy of one array."""
        return self.arrays[name].copy()

    def section(self, name: str, section: str) -> NDArray[Any]:
        """Return one section of an object, which is read only."""
        view = self.sections[name][section].view()
        view.flags.writeable = False
        return view

    def path(self, name: str) -> str:
        """Return what :meth:`HeldResults.array` takes."""
        return f"{self.place}/{name}"

    def partition(self, index: int) -> HeldArtifact:
        """Return the result of one partition."""
        return self.parts[index]


class HeldResults:
    """The results of stages, by the stages' names."""

    def __init__(self, known: Mapping[str, HeldArtifact]) -> None:
        self.held = dict(known)

    def __call__(self, name: str) -> HeldArtifact:
        """Return the result of a stage."""
        return self.held[name]

    def array(self, path: str) -> NDArray[Any]:
        """Return an array by its path."""
        place, _, name = path.rpartition("/")
        return self.held[place].array(name)


def run_in_memory(
    stages: Sequence[Stage],
    corpora: Mapping[str, Corpus],
    *,
    known: Mapping[str, HeldArtifact] | None = None,
    keep: bool = False,
) -> HeldResults:
    """Run stages, one task at a time.

    Parameters
    ----------
    stages : sequence of Stage
        The stages, each after those that it needs.
    corpora : mapping
        The corpora by role.
    known : mapping, optional
        Results of other stages that these need.
    keep : bool
        Keep temporary data, for other stages.

    Raises
    ------
    LatentscaleError
        If the input is at fault, or an accuracy is missed.
    RuntimeError
        If a task fails, with its traceback.
    """
    results = HeldResults(known or {})
    with one_thread():
        for place, stage in enumerate(stages):
            results.held[stage.name] = _run_stage(stage, corpora, results)
            if not keep:
                _release(results, stages[: place + 1], stages[place + 1 :])
    return results


def _run_stage(stage: Stage, corpora: Mapping[str, Corpus], results: HeldResults) -> HeldArtifact:
    inputs = Inputs(
        stage=stage,
        index=FINALISE,
        corpora={role: corpora[role] for role in stage.corpora},
        results={name: results(name) for name in stage.needs},
    )
    if stage.advance is not None:
        return _iterate(stage.advance, inputs)
    parts = _compute_parts(inputs)
    if stage.finalise is None:
        [result] = parts
        return replace(result, place=stage.name)
    result = _compute(stage.name, stage.finalise, replace(inputs, parts=parts))
    return replace(result, parts=parts)


def _compute_parts(inputs: Inputs) -> list[HeldArtifact]:
    stage = inputs.stage
    return [
        _compute(f"{stage.name}/{index}", stage.work, replace(inputs, index=index))
        for index in range(stage.partitions)
    ]


def _iterate(advance: Work, inputs: Inputs) -> HeldArtifact:
    """Run an iterated stage until its state is its result."""
    parts: list[HeldArtifact] = []
    while True:
        state = _compute(inputs.stage.name, advance, replace(inputs, parts=parts))
        if state.finished:
            return state
        last = parts if inputs.stage.reads_last_iteration else []
        inputs = replace(inputs, state=state, iteration=inputs.iteration + 1)
        parts = _compute_parts(replace(inputs, last_iteration=last))


def _compute(place: str, work: Work, inputs: Inputs) -> HeldArtifact:
    """Run a task, and hold its output."""
    try:
        return _hold(place, work(inputs))
    except LatentscaleError:
        raise
    except Exception:  # noqa: BLE001 -- whatever a task raises is told with its traceback
        raise RuntimeError(traceback.format_exc()) from None


def _hold(place: str, output: Output) -> HeldArtifact:
    arrays = {name: np.ascontiguousarray(array) for name, array in output.arrays.items()}
    # A task may yield sections from one buffer.
    sections = {
        name: {inside: np.array(array, ndmin=1, order="C") for inside, array in found}
        for name, found in output.sections.items()
    }
    return HeldArtifact(
        values=json.loads(json.dumps(dict(output.values), allow_nan=False)),
        objects={name: {} for name in arrays}
        | {name: {"sections": dict.fromkeys(own)} for name, own in sections.items()},
        place=place,
        arrays=arrays,
        sections=sections,
        finished=output.finished,
    )


def _release(results: HeldResults, done: Sequence[Stage], left: Sequence[Stage]) -> None:
    """Drop what no stage reads any more."""
    read = {name for stage in left for name in stage.needs}
    for stage in done:
        found = results.held.get(stage.name)
        if found is None:
            continue
        if stage.name not in read and stage.temporary == "result":
            del results.held[stage.name]
        elif stage.name not in read and not stage.keeps_parts:
            gone = found.arrays if stage.temporary == "arrays" else stage.passing
            arrays = {name: found.arrays[name] for name in found.arrays if name not in gone}
            results.held[stage.name] = replace(found, arrays=arrays, parts=())
        elif not (stage.lasting_parts or stage.keeps_parts):
            results.held[stage.name] = replace(found, parts=())
