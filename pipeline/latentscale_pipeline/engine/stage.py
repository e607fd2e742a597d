"""The definition of a stage: its name, needs, partitions and work.

The work of a stage is a pure function of the corpora that it reads, the results of the stages that
it needs, its parameters and, if it draws random numbers, its own stream of them. The *key* of the
stage is a hash of these, so a result can be reused wherever the key is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import xxhash

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.storage.artifacts import Artifact, Output

Work = Callable[["Inputs"], Output]

Temporary = Literal["parts", "arrays", "result"]
"""The data of a stage that is removed once nothing reads it any more.

``parts``: the data that only the stage itself reads. ``arrays``: also its arrays, which other
stages read and no result refers to; its values are kept. ``result``: everything.
"""


MARKER_BYTES = 1024
"""Approximate size of a marker, or of the record of what was removed."""


@dataclass(frozen=True)
class Stage:
    """One step of a job.

    Attributes
    ----------
    name : str
        Unique within the job; also the name of its folder.
    work : callable
        Computes one partition. Defined at module level, so that a worker can import it.
    memory_bytes : int
        Peak memory of one task's arrays, in addition to an idle worker.
    partitions : int
        Number of independent tasks; depends on the data and the measure's configuration only.
    needs : tuple of str
        Stages whose results this one reads.
    corpora : tuple of str
        The corpora that it reads: ``corpus``, ``reference`` or both.
    parameters : mapping
        JSON values that determine the result.
    hints : mapping
        JSON values that determine no number of the result, as what is stored to save time. They
        aren't part of the stage's key.
    seed : int or None
        The job's seed if the stage draws random numbers.
    finalise : callable or None
        Combines the results of the partitions; required with several partitions.
    advance : callable or None
        Makes the stage *iterated*: its partitions are computed once per iteration. Called first
        without parts and state, then after every iteration with its parts and the previous state.
        Returns the next state or, marked as finished, the stage's result.
    reads_last_iteration : bool
        Whether the parts of an iteration read those of the previous one.
    cost_estimate : CostEstimate
        Expected total cost of its tasks.
    part_inputs : tuple of str
        For each partition, the inputs of its result besides code, if they are fewer than those of
        the stage: for example a range of shards. Such parts can be reused from jobs on other
        corpora, for example on the same corpus before it grew.
    lasting_bytes : int
        Memory that a process keeps after such a task, for loaded and compiled libraries.
    temporary : str
        The data that is removed: what only the stage itself reads once it has its result, the rest
        once all stages that need it are done. If one of these has to be recomputed, so is this
        data.
    passing : tuple of str
        Arrays of its result and its parts that aren't needed once the stages that read them are
        done.
    reads_passing : tuple of str
        Those of the stages it needs whose ``passing`` arrays it reads.
    lasting_parts : bool
        Whether other stages read its parts, which then stay as long as its result. Several parts
        with ``part_inputs`` are kept with a result that is kept.
    """

    name: str
    work: Work
    memory_bytes: int
    partitions: int = 1
    needs: tuple[str, ...] = ()
    corpora: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    finalise: Work | None = None
    advance: Work | None = None
    reads_last_iteration: bool = False
    cost_estimate: CostEstimate = CostEstimate()
    part_inputs: tuple[str, ...] = ()
    lasting_bytes: int = 0
    temporary: Temporary = "parts"
    passing: tuple[str, ...] = ()
    reads_passing: tuple[str, ...] = ()
    lasting_parts: bool = False

    def __post_init__(self) -> None:
        if self.finalise is not None and self.advance is not None:
            raise ValueError(f"stage {self.name}: either finalise or advance, not both")
        combined = self.finalise is not None or self.advance is not None
        if self.partitions < 1 or (self.partitions > 1 and not combined):
            raise ValueError(f"stage {self.name}: several partitions need finalise or advance")
        if self.part_inputs and len(self.part_inputs) != self.partitions:
            raise ValueError(f"stage {self.name}: part_inputs needs one entry for every partition")

    @property
    def folder(self) -> str:
        """Return the folder of its results within the job's folder."""
        return f"stages/{self.name}"

    @property
    def keeps_parts(self) -> bool:
        """Return whether its parts are kept when the job is finished."""
        several = self.partitions > 1 and bool(self.part_inputs)
        return self.temporary == "parts" and (self.lasting_parts or several)

    @property
    def exchanged_bytes(self) -> int:
        """Return the bytes that its tasks read of what other tasks wrote."""
        cost = self.cost_estimate
        if cost.exchanged_bytes is not None:
            return cost.exchanged_bytes
        return 0 if self.corpora else cost.bytes_read

    @property
    def running_bytes(self) -> int:
        """Return the largest size of its folder.

        An iterated stage holds three states and the parts of one iteration, or of two if they read
        those of the last.
        """
        cost = self.cost_estimate
        if cost.iterations < 2:
            return cost.bytes_written
        iteration = cost.bytes_written // cost.iterations
        state = iteration if cost.state_bytes is None else cost.state_bytes
        held = 3 * state + (1 + self.reads_last_iteration) * (iteration - state)
        return min(cost.bytes_written, held)

    @property
    def result_bytes(self) -> int:
        """Return the size of its folder once it is done, until the stages that need it are done."""
        result = self.cost_estimate.result_bytes
        return self.running_bytes if result is None else result

    @property
    def kept_bytes(self) -> int:
        """Return the size of its folder in a finished job."""
        kept = self.cost_estimate.kept_bytes
        if self.temporary != "parts":
            return MARKER_BYTES
        return self.result_bytes if kept is None else kept

    @property
    def side_by_side(self) -> int:
        """Return how many of its tasks can run at the same time."""
        return self.partitions if self.cost_estimate.iterations else 1

    @property
    def tasks(self) -> int:
        """Return its number of tasks, including those that combine parts; estimated if iterated."""
        if self.advance is not None:
            return self.cost_estimate.iterations * (self.partitions + 1) + 1
        return self.partitions + (self.finalise is not None)


@dataclass(frozen=True)
class Inputs:
    """The inputs of one task.

    Attributes
    ----------
    stage : Stage
        The task's stage.
    index : int
        The partition; -1 in ``finalise`` and ``advance``.
    corpora : mapping of str to Corpus
        The corpora that the stage reads, opened.
    results : mapping of str to Artifact
        The final result of every stage that it needs.
    parts : sequence of Artifact
        In ``finalise`` and ``advance``: the results of the partitions, in order.
    state : Artifact or None
        In an iterated stage: the state before this iteration; None in the first ``advance``.
    iteration : int
        In an iterated stage: the iteration; 0 in the first ``advance``.
    last_iteration : sequence of Artifact
        If a stage's parts read those of the previous iteration: these parts, in order; empty in
        iteration 1.
    """

    stage: Stage
    index: int
    corpora: Mapping[str, Corpus]
    results: Mapping[str, Artifact]
    parts: Sequence[Artifact] = ()
    state: Artifact | None = None
    iteration: int = 0
    last_iteration: Sequence[Artifact] = ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return the stage's parameters."""
        return self.stage.parameters

    def common_generator(self) -> np.random.Generator:
        """Return the stage's stream of random numbers, the same in every partition."""
        return replace(self, index=-1).generator()

    def generator(self, place: int | None = None) -> np.random.Generator:
        """Return this partition's own stream of random numbers, or that of a place.

        Streams are spawned from the job's seed by stage and partition, so they are independent. A
        stage whose tasks draw by places doesn't draw by partitions.
        """
        if self.stage.seed is None:
            raise ValueError(f"stage {self.stage.name} has no seed and can't draw random numbers")
        words = np.frombuffer(xxhash.xxh3_128_digest(self.stage.name.encode()), dtype=">u4")
        spawn_key = (*(int(word) for word in words), self.index + 1 if place is None else place + 1)
        if self.stage.advance is not None:
            spawn_key = (*spawn_key, self.iteration)
        return np.random.default_rng(np.random.SeedSequence(self.stage.seed, spawn_key=spawn_key))
