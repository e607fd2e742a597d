"""The work of a run: the stages of a job, their keys, and where their results may already be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.storage.artifacts import Artifact, need_marker
from latentscale_pipeline.storage.objects import ObjectStore


@dataclass(frozen=True)
class EarlierPlan:
    """The dependencies of a stage in an earlier plan.

    Attributes
    ----------
    when : str
        The name of that plan, for display.
    dependencies : mapping
        The inputs of the stage's key in that plan.
    code : mapping
        Digests of modules, by the digest of all of them.
    """

    when: str
    dependencies: Mapping[str, Any]
    code: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _nowhere(key: str) -> tuple[()]:
    del key
    return ()


@dataclass(frozen=True)
class Work:
    """The work of a run.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    stages : sequence of Stage
        The stages, each after those that it needs.
    keys : mapping
        Stage keys by name.
    corpora : mapping
        The corpora by role.
    caches : callable
        Takes a stage key; returns the folders of other jobs that may have that stage's result.
    part_caches : callable
        Takes a part key (:func:`~latentscale_pipeline.engine.keys.part_keys`); returns the folders
        of other jobs that may have that part, with its place in each.
    dependencies : mapping
        The inputs of each stage's key, by stage name.
    earlier : callable
        Takes a stage name; returns the same from earlier plans.
    code : mapping
        Digests of modules, by the digest of all of them that ``dependencies`` refers to.
    retries : int
        How many times a failed part is retried.
    keep : bool
        Whether temporary data are kept.
    """

    store: ObjectStore
    stages: Sequence[Stage]
    keys: Mapping[str, str]
    corpora: Mapping[str, Corpus]
    caches: Callable[[str], Iterable[ObjectStore]] = _nowhere
    part_caches: Callable[[str], Iterable[tuple[ObjectStore, str]]] = _nowhere
    dependencies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    earlier: Callable[[str], Iterable[EarlierPlan]] = _nowhere
    code: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    retries: int = 2
    keep: bool = False

    def folder(self, stage: Stage) -> str:
        """Return the folder of a stage's results, which contains its name and its key."""
        return f"{stage.folder}/{self.keys[stage.name]}"

    def result(self, stage: Stage) -> Artifact:
        """Return the result of a stage that is done."""
        return need_marker(self.store, f"{self.folder(stage)}/result")

    def readers(self, stage: Stage) -> list[Stage]:
        """Return the stages that need a stage's result."""
        return [other for other in self.stages if stage.name in other.needs]
