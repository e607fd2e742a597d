"""Read the plan that is stored with a job, as untrusted input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.storage.objects import ObjectStore

StoredPlan = Mapping[str, Any]
"""The content of ``plan.json``: at least the name, key and partitions of each stage."""


def read_plan(store: ObjectStore) -> StoredPlan:
    """Return the plan in a job's folder; an empty one if there is no readable plan."""
    try:
        plan: StoredPlan = json.loads(store.read("plan.json"))
        for stage in plan["stages"]:
            str(stage["stage"]) + str(stage["key"]), int(stage["partitions"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}
    return plan


def planned_stages(plan: StoredPlan) -> dict[str, Mapping[str, Any]]:
    """Return the stages of a stored plan by name."""
    return {str(stage["stage"]): stage for stage in plan.get("stages", ())}


def planned_code(plan: StoredPlan) -> Mapping[str, Mapping[str, str]]:
    """Return the digests of modules that a stored plan lists."""
    code = plan.get("code")
    return code if isinstance(code, dict) else {}


def stage_folder(stage: Mapping[str, Any]) -> str:
    """Return the folder of a planned stage."""
    return f"stages/{stage['stage']}/{stage['key']}"
