"""Run a job's stages stepwise, as plain processes: batch arrays or a shell.

The three steps of a stage are in :mod:`latentscale_pipeline.executors.stepwise`; here they meet a
job's folder. Each process plans the job again from it, so all that they share is files.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from latentscale_pipeline.engine.state import StageState
from latentscale_pipeline.executors.stepwise import (
    Share,
    finalise_stage,
    find_stage,
    init_stage,
    work_on_stage,
)
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.resume import plan_again
from latentscale_pipeline.jobs.run import job_work, work_with_caches
from latentscale_pipeline.storage.lock import refuse_if_running
from latentscale_pipeline.storage.urls import storage_options


@dataclass(frozen=True)
class StagedJob:
    """A job that is computed stage by stage.

    Attributes
    ----------
    plan : Plan
        Made again from the job's folder.
    attempt : str
        Names this process in the names of what it writes.
    """

    plan: Plan
    attempt: str

    @classmethod
    def open(
        cls, folder: str, overrides: Sequence[str] = (), *, allow_code: bool = False
    ) -> StagedJob:
        """Plan a job again from its folder.

        Raises
        ------
        BadInput
            As :func:`~latentscale_pipeline.jobs.resume.plan_again`, and if a run of the job lives.
        """
        plan = plan_again(folder, overrides, allow_code=allow_code)
        with storage_options(plan.config.storage_options):
            refuse_if_running(job_work(plan).store)
        return cls(plan, uuid.uuid4().hex[:12])

    @property
    def stages(self) -> list[str]:
        """Names of its stages, each after those it needs."""
        return [stage.name for stage in self.plan.stages]

    def init(self, name: str) -> StageState:
        """Get a stage, or its next iteration, ready; tell what is to be computed."""
        with storage_options(self.plan.config.storage_options):
            work = work_with_caches(self.plan)
            return init_stage(work, find_stage(work, name), self.attempt)

    def work(self, name: str, share: Share) -> int:
        """Compute one process' share of the missing parts; return how many there were."""
        with storage_options(self.plan.config.storage_options):
            work = job_work(self.plan)
            return work_on_stage(work, find_stage(work, name), share, self.attempt)

    def finalise(self, name: str) -> StageState:
        """Make the result of a stage, or the state of its iteration, from its parts."""
        with storage_options(self.plan.config.storage_options):
            work = job_work(self.plan)
            return finalise_stage(work, find_stage(work, name), self.attempt)
