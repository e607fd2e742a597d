"""The inspection of a stage's folder: which parts are there and whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from latentscale_pipeline.storage.artifacts import (
    CorruptResult,
    check_bytes,
    check_sizes,
    need_marker,
    withdraw,
)
from latentscale_pipeline.storage.objects import ObjectStore


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
    """

    store: ObjectStore
    folder: str
    thorough: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    repair: bool = True

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of all objects in the stage's folder, by key."""
        return self.store.sizes(self.folder)

    def has(self, part: str) -> bool:
        """Tell whether a part is there and whole; note what is wrong with a damaged one."""
        if f"{part}.json" not in self.sizes:
            return False
        try:
            marker = need_marker(self.store, part)
            check_sizes(marker, self.sizes)
            if self.thorough:
                check_bytes(marker)
        except CorruptResult as damage:
            self.problems[part] = damage.problem
            if self.repair:
                withdraw(self.store, part)
            return False
        return True
