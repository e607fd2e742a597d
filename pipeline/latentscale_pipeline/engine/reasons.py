"""Why a stage is computed although one of that name was computed before.

A stage's key is a hash: that it changed says nothing about what changed. So every plan that is
stored with a job lists what its keys were made from, and the next run compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.job.identity import canonical

LISTED_CHANGES = 3
"""Parameters that are named with their values; of more, only how many."""

CONFIGURED = ("seed", "partitions", "work", "iterated")
"""What follows from the configuration beside a stage's parameters."""


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say what changed between two lists of what a stage depends on.

    Parameters
    ----------
    before, now : mapping
        As :func:`~latentscale_pipeline.engine.stage.stage_dependences` gives them.

    Returns
    -------
    str
        Code, input, configuration with its values; stages that it needs only when nothing of its
        own changed. Empty when all is equal.
    """
    found = []
    if before.get("code") != now["code"]:
        found.append("code")
    roles = _differing(_mapping(before, "corpora"), now["corpora"])
    if roles:
        found.append(f"input ({', '.join(roles)})")
    configured = _configuration(before, now)
    if configured:
        found.append(f"configuration ({configured})")
    if not found:
        needs = _differing(_mapping(before, "needs"), now["needs"])
        found = [f"stage {name}" for name in needs]
    return ", ".join(found)


def _configuration(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    values = [
        {**_mapping(fields, "parameters"), **{name: fields.get(name) for name in CONFIGURED}}
        for fields in (before, now)
    ]
    names = _differing(*values)
    listed = [
        f"{name} {_short(values[0].get(name))} → {_short(values[1].get(name))}"
        for name in names[:LISTED_CHANGES]
    ]
    more = len(names) - len(listed)
    return ", ".join([*listed, *([f"{more} more"] if more else [])])


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a mapping from a stored plan, which anyone may have written."""
    found = fields.get(name)
    return found if isinstance(found, Mapping) else {}


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name in {**now, **before}
        if canonical(before.get(name)) != canonical(now.get(name))
    ]


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
