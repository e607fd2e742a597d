"""The inspection of a stage's folder: which parts are there and whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from latentscale_pipeline.storage.artifacts import (
    Artifact,
    CorruptResult,
    check_bytes,
    check_sizes,
    need_marker,
    read_marker,
    withdraw,
)
from latentscale_pipeline.storage.objects import ObjectStore

COLLECTED = "collected"
"""Name of the record that is left where a finished job no longer needs all of a stage."""

GONE = "gone"
"""Where the record names the arrays that were removed from what is still there."""


@dataclass(frozen=True)
class Inspection:
    """One inspection of a stage's folder.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    folder : str
        That of the stage.
    thorough : bool
        Read every byte; else only markers are read and sizes are compared.
    problems : dict
        Filled by the inspection: what was wrong with the parts that are damaged.
    repair : bool
        Withdraw what is damaged, so that it is computed again; else everything stays as it is.
    collected : bool
        Look at what a collection has left as such; else all that it removed is missing.
    """

    store: ObjectStore
    folder: str
    thorough: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    repair: bool = True
    collected: bool = True

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of all objects in the stage's folder, by key."""
        sizes = self.store.sizes(self.folder)
        if not self.collected:
            sizes.pop(f"{self.folder}/{COLLECTED}.json", None)
        return sizes

    @cached_property
    def record(self) -> Artifact | None:
        """What a collection left; None where there was none."""
        there = f"{self.folder}/{COLLECTED}.json" in self.sizes
        return read_marker(self.store, f"{self.folder}/{COLLECTED}") if there else None

    @property
    def gone(self) -> Collection[str]:
        """Names of arrays that a collection has removed."""
        return () if self.record is None else self.record.values.get(GONE, ())

    def has(self, part: str) -> bool:
        """Return whether a part is there and whole; note what is wrong with a damaged one."""
        if f"{part}.json" not in self.sizes:
            return False
        try:
            marker = need_marker(self.store, part)
            check_sizes(marker, self.sizes, self.gone)
            if self.thorough:
                check_bytes(marker, self.gone)
        except CorruptResult as damage:
            self.problems[part] = damage.problem
            if self.repair:
                withdraw(self.store, part)
            return False
        return True
