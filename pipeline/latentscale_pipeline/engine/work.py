"""What a run works on: the stages of a job, their keys, and where results may already be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.storage.artifacts import Artifact, need_marker
from latentscale_pipeline.storage.objects import ObjectStore


@dataclass(frozen=True)
class Earlier:
    """What a stage depended on in an earlier plan.

    Attributes
    ----------
    when : str
        Which plan that was, in words.
    dependences : mapping
        What the stage's key was made from then.
    code : mapping
        Digests of modules by the digest that stands for all of them.
    """

    when: str
    dependences: Mapping[str, Any]
    code: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _nowhere(key: str) -> tuple[()]:
    del key
    return ()


@dataclass(frozen=True)
class Work:
    """Everything a run works on.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    stages : sequence of Stage
        Each after those it needs.
    keys : mapping
        Stage keys by name.
    corpora : mapping
        The corpora by role.
    caches : callable
        For a stage key: other job folders that planned the same stage and may have its result.
    part_caches : callable
        For a part key (:func:`~latentscale_pipeline.engine.keys.part_keys`): job folders, and
        parts in them that may have the same.
    dependences : mapping
        By stage name: what its key was made from.
    earlier : callable
        For a stage name: the same, from plans before this one.
    code : mapping
        Digests of modules by the digest that stands for all of them in ``dependences``.
    retries : int
        How often a part that failed is tried again.
    """

    store: ObjectStore
    stages: Sequence[Stage]
    keys: Mapping[str, str]
    corpora: Mapping[str, Corpus]
    caches: Callable[[str], Iterable[ObjectStore]] = _nowhere
    part_caches: Callable[[str], Iterable[tuple[ObjectStore, str]]] = _nowhere
    dependences: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    earlier: Callable[[str], Iterable[Earlier]] = _nowhere
    code: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    retries: int = 2

    def folder(self, stage: Stage) -> str:
        """Where a stage's results are: its name and its key."""
        return f"{stage.folder}/{self.keys[stage.name]}"

    def result(self, stage: Stage) -> Artifact:
        """Return the result of a stage that is done."""
        return need_marker(self.store, f"{self.folder(stage)}/result")

    def readers(self, stage: Stage) -> list[Stage]:
        """Return the stages that need a stage's result."""
        return [other for other in self.stages if stage.name in other.needs]
