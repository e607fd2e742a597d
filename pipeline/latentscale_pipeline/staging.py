"""A job's stages as plain processes: for arrays of a batch system, or a person at a shell.

The three steps of a stage are in :mod:`latentscale_pipeline.engine.by_hand`; here they meet a job's
folder. Each process plans the job again from it, so all that they share is files.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from latentscale_pipeline.addresses import storage_options
from latentscale_pipeline.engine.by_hand import Share, Step, begin, combine, compute, find_stage
from latentscale_pipeline.job.lock import refuse_if_running
from latentscale_pipeline.plan import Plan
from latentscale_pipeline.resume import plan_again
from latentscale_pipeline.run import borrowing_work, job_work


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
            As :func:`~latentscale_pipeline.resume.plan_again`, and if a run of the job lives.
        """
        plan = plan_again(folder, overrides, allow_code=allow_code)
        with storage_options(plan.config.storage_options):
            refuse_if_running(job_work(plan).store)
        return cls(plan, uuid.uuid4().hex[:12])

    @property
    def stages(self) -> list[str]:
        """Names of its stages, each after those it needs."""
        return [stage.name for stage in self.plan.stages]

    def init(self, name: str) -> Step:
        """Get a stage, or its next round, ready; tell what is to be computed."""
        with storage_options(self.plan.config.storage_options):
            work = borrowing_work(self.plan)
            return begin(work, find_stage(work, name), self.attempt)

    def work(self, name: str, share: Share) -> int:
        """Compute one process' share of the missing parts; return how many there were."""
        with storage_options(self.plan.config.storage_options):
            work = job_work(self.plan)
            return compute(work, find_stage(work, name), share, self.attempt)

    def finalise(self, name: str) -> Step:
        """Combine the parts of a stage, or of its round."""
        with storage_options(self.plan.config.storage_options):
            work = job_work(self.plan)
            return combine(work, find_stage(work, name), self.attempt)
