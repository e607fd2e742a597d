"""Choose where a job runs if its configuration leaves that open."""

from __future__ import annotations

import math
from collections.abc import Sequence

from latentscale_pipeline.config.cluster import Auto, Cluster, Local, Serial
from latentscale_pipeline.engine.calibration import TASK_SECONDS, TYPICAL
from latentscale_pipeline.engine.stage import Stage

WORTH_WORKERS_SECONDS = 4.0
"""Work from which a second process saves more time than starting the workers takes."""


def typical_work_seconds(stages: Sequence[Stage]) -> float:
    """Return the time that stages take on one thread at typical rates."""
    costs = (TYPICAL.seconds(stage.cost_estimate) for stage in stages)
    return math.fsum(costs) + TASK_SECONDS * sum(stage.tasks for stage in stages)


def is_short(stages: Sequence[Stage]) -> bool:
    """Return whether a job takes less work than starting workers costs, at typical rates."""
    return typical_work_seconds(stages) < WORTH_WORKERS_SECONDS


def choose_cluster(cluster: Cluster, stages: Sequence[Stage]) -> Cluster:
    """Return the cluster that ``auto`` stands for; any other is returned unchanged.

    The choice is by typical rates, not by those of this machine, so it depends only on the stages
    that are left to compute.
    """
    if not isinstance(cluster, Auto):
        return cluster
    settings = cluster.model_dump(exclude={"kind"})
    if cluster.dashboard or not is_short(stages):
        return Local(**settings)
    return Serial(kind="serial", **{key: settings[key] for key in ("memory_limit", "retries")})
