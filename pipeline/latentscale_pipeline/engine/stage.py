"""A stage as data: what it is called, what it needs, its partitions, and the work of each.

A stage's work is a pure function of the corpora it names, the results of the stages it needs, its
parameters and, where it draws at random, its own stream of random numbers. That is what its *key*
is made of, and why a result can be used again wherever the key is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.job.identity import code_version, digest
from latentscale_pipeline.job.publishing import Output, Published

Work = Callable[["Inputs"], Output]


@dataclass(frozen=True)
class Effort:
    """What all tasks of a stage take together, foreseen from the size of the data.

    It says nothing of the result, so it is no part of a stage's key.

    Attributes
    ----------
    bytes_read, bytes_written : int
        Of corpora and of earlier results; of the stage's own.
    products, single_products : float
        Multiply-adds in matrix products of float64, of float32.
    folds : float
        Entries that are visited one at a time, in units of the time that it takes to turn an entry
        of a matrix product into a distance (about a nanosecond): distances, exponentials, hashes,
        edges.
    rounds : int
        Expected rounds of an iterated stage; 0 when its first ``advance`` is expected to be its
        last, 1 when it isn't iterated.
    method : str
        How it is computed, where there is a choice.
    why : str
        What decided for this method.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    products: float = 0.0
    single_products: float = 0.0
    folds: float = 0.0
    rounds: int = 1
    method: str = ""
    why: str = ""

    @property
    def multiply_adds(self) -> float:
        """Multiply-adds in matrix products; a multiply-add is two floating point operations."""
        return self.products + self.single_products


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
        Makes the stage *iterated*: its partitions are computed in rounds. Called first with no
        parts and no state, then after every round with its parts and the state before it; gives
        the next state, and at last, marked as finished, the stage's result.
    reads_last_round : bool
        The parts of an iterated stage's rounds read those of the round before.
    effort : Effort
        What all its tasks take together.
    part_inputs : tuple of str
        For every partition what its result depends on beside code, where that is less than the
        stage depends on: a run of shards, say. Parts of jobs on other corpora, such as this one
        before it grew, are then used again.
    lasting_bytes : int
        Memory that a process keeps once it has run such a task: libraries loaded and compiled.
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
    reads_last_round: bool = False
    effort: Effort = Effort()
    part_inputs: tuple[str, ...] = ()
    lasting_bytes: int = 0

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
    def part_keys(self) -> tuple[str, ...]:
        """Keys of the partitions' results that don't depend on the rest; empty where all do."""
        if not self.part_inputs:
            return ()
        begun = {"work": work_name(self.work), "code": code_version()}
        return tuple(digest({**begun, "inputs": inputs})[:16] for inputs in self.part_inputs)

    @property
    def side_by_side(self) -> int:
        """How many of its tasks can run at the same time."""
        return self.partitions if self.effort.rounds else 1

    @property
    def tasks(self) -> int:
        """How many tasks it takes, those that combine parts included; expected when iterated."""
        if self.advance is not None:
            return self.effort.rounds * (self.partitions + 1) + 1
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
    results : mapping of str to Published
        The final result of every stage it needs.
    parts : sequence of Published
        In ``finalise`` and ``advance``: the results of the partitions, in order.
    state : Published or None
        In an iterated stage: the state before this round; None in the very first ``advance``.
    round_number : int
        In an iterated stage: the round, 0 for the first ``advance``.
    last_round : sequence of Published
        Where a stage's parts read those of the round before: these, in order; none in round 1.
    """

    stage: Stage
    index: int
    corpora: Mapping[str, Corpus]
    results: Mapping[str, Published]
    parts: Sequence[Published] = ()
    state: Published | None = None
    round_number: int = 0
    last_round: Sequence[Published] = ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The stage's parameters."""
        return self.stage.parameters

    def generator(self) -> np.random.Generator:
        """Return this partition's own stream of random numbers.

        Streams are spawned from the job's seed by stage and partition, so no two are related.
        """
        if self.stage.seed is None:
            raise ValueError(f"stage {self.stage.name} has no seed: it may not draw at random")
        words = np.frombuffer(xxhash.xxh3_128_digest(self.stage.name.encode()), dtype=">u4")
        spawn_key = (*(int(word) for word in words), self.index + 1)
        if self.stage.advance is not None:
            spawn_key = (*spawn_key, self.round_number)
        return np.random.default_rng(np.random.SeedSequence(self.stage.seed, spawn_key=spawn_key))


def work_name(work: Work) -> str:
    """Name the code of a stage."""
    return f"{work.__module__}.{work.__qualname__}"


def stage_dependences(
    stages: Sequence[Stage], fingerprints: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """List everything that the result of every stage depends on, as JSON.

    Parameters
    ----------
    stages : sequence of Stage
        In an order in which every stage comes after those it needs.
    fingerprints : mapping
        Fingerprint of each corpus by its role.

    Returns
    -------
    dict
        By stage name; what :func:`stage_key` is made from. ``needs`` has the keys of the stages
        that it needs.

    Raises
    ------
    ValueError
        If a name occurs twice or a stage needs one that doesn't come before it.
    """
    found: dict[str, dict[str, Any]] = {}
    for stage in stages:
        missing = [name for name in stage.needs if name not in found]
        if missing or stage.name in found:
            raise ValueError(f"stage {stage.name}: out of order, or twice (needs {missing})")
        found[stage.name] = {
            "stage": stage.name,
            "work": work_name(stage.work),
            "iterated": stage.advance is not None,
            "partitions": stage.partitions,
            "parameters": dict(stage.parameters),
            "seed": stage.seed,
            "needs": {name: stage_key(found[name]) for name in stage.needs},
            "corpora": {role: fingerprints[role] for role in stage.corpora},
            "code": code_version(),
        }
    return found


def stage_key(dependences: Mapping[str, Any]) -> str:
    """Hash everything that a stage's result depends on, to sixteen hex digits."""
    return digest(dependences)[:16]


def stage_keys(stages: Sequence[Stage], fingerprints: Mapping[str, str]) -> dict[str, str]:
    """Compute the key of every stage, by name; see :func:`stage_dependences`."""
    found = stage_dependences(stages, fingerprints)
    return {name: stage_key(dependences) for name, dependences in found.items()}
