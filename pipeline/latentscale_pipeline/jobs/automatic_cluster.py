"""Choose where a job runs if its configuration leaves that open."""

from __future__ import annotations

import math
from collections.abc import Sequence

from latentscale_pipeline.config.cluster import Auto, Cluster, Local, Threads
from latentscale_pipeline.engine.calibration import TASK_SECONDS, TYPICAL
from latentscale_pipeline.engine.stage import Stage

WORTH_WORKERS_SECONDS = 60.0
"""Work from which processes pay: they take seconds to start, but one that dies is replaced."""


def typical_work_seconds(stages: Sequence[Stage]) -> float:
    """Return the time that stages take on one thread at typical rates."""
    costs = (TYPICAL.seconds(stage.cost_estimate) for stage in stages)
    return math.fsum(costs) + TASK_SECONDS * sum(stage.tasks for stage in stages)


def is_short(stages: Sequence[Stage]) -> bool:
    """Return whether a job takes too little work to start workers for, at typical rates."""
    return typical_work_seconds(stages) < WORTH_WORKERS_SECONDS


def choose_cluster(cluster: Cluster, stages: Sequence[Stage]) -> Cluster:
    """Return the cluster that ``auto`` stands for; any other is returned unchanged.

    The choice is by typical rates, not by those of this machine, so it depends only on the stages
    that are left to compute. Threads have the memory of all the workers together.
    """
    if not isinstance(cluster, Auto):
        return cluster
    settings = cluster.model_dump(exclude={"kind"})
    if cluster.dashboard or not is_short(stages):
        return Local(**settings)
    return Threads(
        kind="threads",
        threads=cluster.workers * cluster.threads,
        memory_limit=cluster.workers * cluster.memory_limit,
        retries=cluster.retries,
    )
