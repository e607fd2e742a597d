"""A stage as data: its name, needs, partitions and work.

A stage's work is a pure function of the corpora it names, the results of the stages it needs, its
parameters and, where it draws at random, its own stream of random numbers. That is what its *key*
is made of, and why a result can be used again wherever the key is the same.
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
"""What of a stage goes when the job is finished.

``parts``: what only the stage itself reads. ``arrays``: its arrays as well, which other stages
read; its values stay. ``result``: everything.
"""


@dataclass(frozen=True)
class Stage:
    """One step of a job.

    Attributes
    ----------
    name : str
        Unique within the job; names its folder.
    work : callable
        Computes one partition. Defined at module level, so that a worker can import it.
    memory_bytes : int
        Arrays that one task holds at its peak, beyond an idle worker.
    partitions : int
        How many independent tasks; a function of the data and the measure's configuration only.
    needs : tuple of str
        Stages whose results this one reads.
    corpora : tuple of str
        Which corpora it reads: ``corpus``, ``reference`` or both.
    parameters : mapping
        JSON values that determine the result.
    seed : int or None
        The job's seed when the stage draws at random.
    finalise : callable or None
        Combines the partitions' results into the stage's; needed with several partitions.
    advance : callable or None
        Makes the stage *iterated*: its partitions are computed once an iteration. Called first
        with no parts and no state, then after every iteration with its parts and the state before.
        Gives the next state, and at last, marked as finished, the stage's result.
    reads_last_iteration : bool
        The parts of an iteration read those of the one before.
    cost_estimate : CostEstimate
        What all its tasks take together.
    part_inputs : tuple of str
        For every partition what its result depends on beside code, where that is less than the
        stage depends on: a run of shards, say. Parts of jobs on other corpora, such as this one
        before it grew, are then used again.
    lasting_bytes : int
        Memory that a process keeps once it has run such a task: libraries loaded and compiled.
    temporary : str
        What of it is removed when the job is finished. Where other stages read that, it is computed
        again if one of those has to be. Arrays that the results name stay.
    passing : tuple of str
        Arrays of its result and its parts that nobody needs once the job is finished.
    lasting_parts : bool
        Its parts are read by other stages, and stay with its result. They do as well where several
        have ``part_inputs``.
    """

    name: str
    work: Work
    memory_bytes: int
    partitions: int = 1
    needs: tuple[str, ...] = ()
    corpora: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    finalise: Work | None = None
    advance: Work | None = None
    reads_last_iteration: bool = False
    cost_estimate: CostEstimate = CostEstimate()
    part_inputs: tuple[str, ...] = ()
    lasting_bytes: int = 0
    temporary: Temporary = "parts"
    passing: tuple[str, ...] = ()
    lasting_parts: bool = False

    def __post_init__(self) -> None:
        if self.finalise is not None and self.advance is not None:
            raise ValueError(f"stage {self.name}: either finalise or advance, not both")
        combined = self.finalise is not None or self.advance is not None
        if self.partitions < 1 or (self.partitions > 1 and not combined):
            raise ValueError(f"stage {self.name}: several partitions need a finalise")
        if self.part_inputs and len(self.part_inputs) != self.partitions:
            raise ValueError(f"stage {self.name}: part_inputs for every partition, or for none")

    @property
    def folder(self) -> str:
        """Where in the job folder its results are."""
        return f"stages/{self.name}"

    @property
    def keeps_parts(self) -> bool:
        """Whether its parts outlive the job that computed them."""
        several = self.partitions > 1 and bool(self.part_inputs)
        return self.temporary == "parts" and (self.lasting_parts or several)

    @property
    def side_by_side(self) -> int:
        """How many of its tasks can run at the same time."""
        return self.partitions if self.cost_estimate.iterations else 1

    @property
    def tasks(self) -> int:
        """How many tasks it takes, those that combine parts included; expected when iterated."""
        if self.advance is not None:
            return self.cost_estimate.iterations * (self.partitions + 1) + 1
        return self.partitions + (self.finalise is not None)


@dataclass(frozen=True)
class Inputs:
    """What the work of one task may read.

    Attributes
    ----------
    stage : Stage
        The stage that is worked on.
    index : int
        Which partition; -1 in ``finalise`` and ``advance``.
    corpora : mapping of str to Corpus
        The corpora the stage names, opened.
    results : mapping of str to Artifact
        The final result of every stage it needs.
    parts : sequence of Artifact
        In ``finalise`` and ``advance``: the results of the partitions, in order.
    state : Artifact or None
        In an iterated stage: the state before this iteration; None in the very first ``advance``.
    iteration : int
        In an iterated stage: which iteration, 0 for the first ``advance``.
    last_iteration : sequence of Artifact
        Where a stage's parts read those of the iteration before: these, in order; none in
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
        """The stage's parameters."""
        return self.stage.parameters

    @property
    def tie_seed(self) -> int:
        """The seed that breaks ties between equal distances, one for all partitions."""
        return int(self.stage.seed or 0)

    def common_generator(self) -> np.random.Generator:
        """Return the stage's stream of random numbers: the same in every partition."""
        return replace(self, index=-1).generator()

    def generator(self) -> np.random.Generator:
        """Return this partition's own stream of random numbers.

        Streams are spawned from the job's seed by stage and partition, so no two are related.
        """
        if self.stage.seed is None:
            raise ValueError(f"stage {self.stage.name} has no seed: it may not draw at random")
        words = np.frombuffer(xxhash.xxh3_128_digest(self.stage.name.encode()), dtype=">u4")
        spawn_key = (*(int(word) for word in words), self.index + 1)
        if self.stage.advance is not None:
            spawn_key = (*spawn_key, self.iteration)
        return np.random.default_rng(np.random.SeedSequence(self.stage.seed, spawn_key=spawn_key))
