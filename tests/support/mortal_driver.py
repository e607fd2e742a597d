"""A driver that dies in the middle of its work, without leaving the process."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from latentscale_pipeline.engine.executor import Ending
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.engine.task import Task
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.run import Finished, run_job
from latentscale_pipeline.storage.objects import ObjectStore

Computed = Counter[tuple[str, int, int]]
"""How often every part was computed: by stage, round and number."""


class Killed(BaseException):
    """The driver dies."""


class MortalExecutor(ThreadExecutor):
    """Runs so many tasks, then takes the driver down."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self._left = tasks

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        if self._left == 0:
            raise Killed
        ended = super().next_ended(seconds)
        self._left -= ended is not None
        return ended


class ComputedParts:
    """Counts the parts that a run tells of."""

    def __init__(self) -> None:
        self.counts: Computed = Counter()

    def __call__(self, event: str, **fields: Any) -> None:
        if event == "part_done":
            self.counts[fields["stage"], fields.get("round", 0), fields["part"]] += 1


def run_counted(plan: Plan, lifetimes: Sequence[int] = ()) -> tuple[Finished, Computed]:
    """Run a job whose driver dies after so many tasks, and again until it's done."""
    store = ObjectStore(plan.config.output).child(plan.id)
    work = Work(store, plan.stages, plan.keys, dict(plan.corpora.items()))
    parts = ComputedParts()
    for lifetime in lifetimes:
        with pytest.raises(Killed):
            run_stages(
                work,
                inspect_stages(work),
                lambda life=lifetime: MortalExecutor(life),
                "first",
                parts,
            )
    return run_job(plan, parts), parts.counts
