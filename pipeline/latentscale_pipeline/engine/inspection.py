"""Inspect a stage's folder: which parts are present and intact."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from latentscale_pipeline.storage.artifacts import (
    CorruptResult,
    StoredArtifact,
    check_bytes,
    check_sizes,
    checked_marker,
    read_marker,
    read_markers,
    withdraw,
)
from latentscale_pipeline.storage.objects import ObjectStore

COLLECTED = "collected"
"""Name of the record that replaces the removed data of a stage."""

GONE = "gone"
"""Key in the record of the arrays that were removed from results that are still there."""


HELD_MARKERS = 1024
"""Most markers that are in memory at a time: a stage may have very many parts."""


def list_stages(store: ObjectStore, under: str = "stages") -> dict[str, dict[str, int]]:
    """Return the sizes of the objects of stages, by their folders, by key; in one listing."""
    return group_by_stage(store.sizes(under))


def group_by_stage(sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the sizes of the objects of stages, by their folders, of those of a whole job."""
    found: dict[str, dict[str, int]] = {}
    for key, size in sizes.items():
        top, *folder = key.split("/", 3)[:3]
        if top == "stages" and len(folder) == 2:
            found.setdefault("/".join((top, *folder)), {})[key] = size
    return found


@dataclass(frozen=True)
class Inspection:
    """One inspection of a stage's folder.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    folder : str
        The stage's folder.
    thorough : bool
        Check every byte; else only markers are read and sizes are compared.
    problems : dict
        Filled by the inspection: the problem of each damaged part.
    repair : bool
        Withdraw damaged parts, so that they are recomputed; else nothing is changed.
    collected : bool
        Accept data that a collection removed as removed; else it counts as missing.
    listed : mapping, optional
        The sizes of all objects in the stage's folder, by key, if it has just been listed.
    """

    store: ObjectStore
    folder: str
    thorough: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    repair: bool = True
    collected: bool = True
    listed: Mapping[str, int] | None = None

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of all objects in the stage's folder, by key."""
        sizes = self.store.sizes(self.folder) if self.listed is None else dict(self.listed)
        if not self.collected:
            sizes.pop(f"{self.folder}/{COLLECTED}.json", None)
        return sizes

    @cached_property
    def record(self) -> StoredArtifact | None:
        """Return the record of a collection; None if there was no collection."""
        there = f"{self.folder}/{COLLECTED}.json" in self.sizes
        return read_marker(self.store, f"{self.folder}/{COLLECTED}") if there else None

    @property
    def gone(self) -> Collection[str]:
        """Return the names of arrays that a collection has removed."""
        return () if self.record is None else self.record.values.get(GONE, ())

    def has(self, part: str) -> bool:
        """Return whether a part is present and intact; record the problem of a damaged one."""
        return self.have([part])[0]

    def have(self, parts: Sequence[str]) -> list[bool]:
        """Return what :meth:`has` returns for each part; several markers are read at once."""
        listed = [part for part in parts if f"{part}.json" in self.sizes]
        intact = set()
        for start in range(0, len(listed), HELD_MARKERS):
            some = listed[start : start + HELD_MARKERS]
            read = zip(some, read_markers(self.store, some), strict=True)
            intact |= {part for part, marker in read if self._is_intact(part, marker)}
        return [part in intact for part in parts]

    def _is_intact(self, part: str, found: StoredArtifact | None) -> bool:
        try:
            marker = checked_marker(part, found)
            check_sizes(marker, self.sizes, self.gone)
            if self.thorough:
                check_bytes(marker, self.gone)
        except CorruptResult as damage:
            self.problems[part] = damage.problem
            if self.repair:
                withdraw(self.store, part)
            return False
        return True
