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

    def __post_init__(self) -> None:
        if self.partitions < 1 or (self.partitions > 1 and self.finalise is None):
            raise ValueError(f"stage {self.name}: several partitions need a finalise")

    @property
    def folder(self) -> str:
        """Where in the job folder its results are."""
        return f"stages/{self.name}"


@dataclass(frozen=True)
class Inputs:
    """What the work of one task may read.

    Attributes
    ----------
    stage : Stage
        The stage that is worked on.
    index : int
        Which partition; -1 in ``finalise``.
    corpora : mapping of str to Corpus
        The corpora the stage names, opened.
    results : mapping of str to Published
        The final result of every stage it needs.
    parts : sequence of Published
        In ``finalise``: the results of the partitions, in order.
    """

    stage: Stage
    index: int
    corpora: Mapping[str, Corpus]
    results: Mapping[str, Published]
    parts: Sequence[Published] = ()

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
        return np.random.default_rng(np.random.SeedSequence(self.stage.seed, spawn_key=spawn_key))


def stage_keys(stages: Sequence[Stage], fingerprints: Mapping[str, str]) -> dict[str, str]:
    """Compute the key of every stage from everything its result depends on.

    Parameters
    ----------
    stages : sequence of Stage
        In an order in which every stage comes after those it needs.
    fingerprints : mapping
        Fingerprint of each corpus by its role.

    Returns
    -------
    dict
        Sixteen hex digits by stage name.

    Raises
    ------
    ValueError
        If a name occurs twice or a stage needs one that doesn't come before it.
    """
    keys: dict[str, str] = {}
    for stage in stages:
        missing = [name for name in stage.needs if name not in keys]
        if missing or stage.name in keys:
            raise ValueError(f"stage {stage.name}: out of order, or twice (needs {missing})")
        keys[stage.name] = digest(
            {
                "stage": stage.name,
                "work": f"{stage.work.__module__}.{stage.work.__qualname__}",
                "partitions": stage.partitions,
                "parameters": stage.parameters,
                "seed": stage.seed,
                "needs": {name: keys[name] for name in stage.needs},
                "corpora": {role: fingerprints[role] for role in stage.corpora},
                "code": code_version(),
            }
        )[:16]
    return keys
