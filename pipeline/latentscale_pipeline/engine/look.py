"""A look at what is there of a stage: whole, or withdrawn so that it is computed again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from latentscale_pipeline.job.publishing import (
    CorruptResult,
    check_bytes,
    check_sizes,
    need_marker,
    withdraw,
)
from latentscale_pipeline.objects import ObjectStore


@dataclass(frozen=True)
class Look:
    """One look at a stage's folder.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    sizes : mapping
        Sizes of all objects in the stage's folder, by key.
    thorough : bool
        Read every byte; else only markers are read and sizes are compared.
    problems : dict
        Filled by the look: what was wrong with the parts that were withdrawn.
    withdrawing : bool
        Withdraw what isn't whole; else everything stays as it is.
    """

    store: ObjectStore
    sizes: Mapping[str, int]
    thorough: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    withdrawing: bool = True

    def has(self, part: str) -> bool:
        """Tell whether a part is there and whole; withdraw it if it is there and isn't."""
        if f"{part}.json" not in self.sizes:
            return False
        try:
            marker = need_marker(self.store, part)
            check_sizes(marker, self.sizes)
            if self.thorough:
                check_bytes(marker)
        except CorruptResult as damage:
            self.problems[part] = damage.problem
            if self.withdrawing:
                withdraw(self.store, part)
            return False
        return True
