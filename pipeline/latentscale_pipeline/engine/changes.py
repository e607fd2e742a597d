"""Explain why a stage is recomputed: what changed in its key.

A stage's key is a hash, which doesn't show what changed. So the stored plan of a job lists the
inputs of every key, and the next run compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.storage.canonical import canonical

LISTED_CHANGES = 3
"""How many changed parameters, or modules, are named; the rest are counted."""

CONFIGURED = ("seed", "partitions", "work", "iterated")
"""Fields that follow from the configuration, besides a stage's parameters."""


def changes(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    code: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Describe the changes between two records of what a stage depends on.

    Parameters
    ----------
    before, now : mapping
        As returned by :func:`~latentscale_pipeline.engine.keys.stage_dependencies`.
    code : mapping, optional
        Digests of modules by the digest of all of them. Changed modules are named if both sets are
        known.

    Returns
    -------
    str
        The changed code, libraries, inputs and settings with their values. Changed stages that it
        needs are listed only if nothing else changed. Empty if everything is equal.
    """
    found = []
    if before.get("code") != now["code"]:
        found.append(_describe_code(before.get("code"), now["code"], code or {}))
    found += _changed_versions(_mapping(before, "versions"), now["versions"])
    roles = _differing(_mapping(before, "corpora"), now["corpora"])
    if roles:
        found.append(f"input ({', '.join(roles)})")
    elif before.get("layouts") != now.get("layouts"):
        found.append("shards of the input")
    configured = _configuration(before, now)
    if configured:
        found.append(f"configuration ({configured})")
    if not found:
        needs = _differing(_mapping(before, "needs"), now["needs"])
        found = [f"stage {name}" for name in needs]
    return ", ".join(found)


def _describe_code(before: Any, now: str, code: Mapping[str, Mapping[str, str]]) -> str:
    """Name the changed modules, or return ``code`` if they aren't known."""
    if not isinstance(before, str) or not {before, now} <= code.keys():
        return "code"
    names = _differing(code[before], code[now])
    more = len(names) - LISTED_CHANGES
    listed = [*names[:LISTED_CHANGES], *([f"{more} more"] if more > 0 else [])]
    return f"code ({', '.join(listed)})"


def _changed_versions(before: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {before[name]} → {version}"
        for name, version in now.items()
        if name in before and before[name] != version
    ]


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
    """Return a mapping from a stored plan, or an empty one if the plan holds something else."""
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
