"""Command-line overrides of the configuration: ``section.key=value``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentscale_pipeline.config.cluster import CLUSTERS
from latentscale_pipeline.config.section import parse_yaml
from latentscale_pipeline.errors import BadInput

KIND = "cluster.kind"


def apply_override(document: dict[str, Any], override: str) -> None:
    """Apply one ``section.key=value`` assignment to a document in place.

    Parameters
    ----------
    document : dict
        The parsed configuration.
    override : str
        The assignment, whose value is YAML. Missing sections are added.

    Raises
    ------
    BadInput
        If it isn't an assignment, or part of its path isn't a section.
    """
    path, separator, value = override.partition("=")
    keys = path.strip().split(".")
    # Values of storage options may be secret.
    shown = path if "storage_options" in override else override
    if not separator or not all(keys):
        raise BadInput(f"-o {shown}: write it as section.key=value")
    parsed = parse_yaml(value, f"-o {shown}")
    here = document
    for key in keys[:-1]:
        inner = here.get(key)
        if inner is None:
            inner = here[key] = {}
        if not isinstance(inner, dict):
            raise BadInput(f"-o {shown}: {key} is a value, not a section; check the path")
        here = inner
    here[keys[-1]] = parsed


def drop_settings_of_other_kinds(document: dict[str, Any], overrides: Sequence[str]) -> list[str]:
    """Remove cluster settings that don't exist for the kind of cluster in the overrides.

    Returns
    -------
    list of str
        The keys that were removed.
    """
    kinds = [value for key, _, value in (o.partition("=") for o in overrides) if key == KIND]
    model = CLUSTERS.get(kinds[-1].strip()) if kinds else None
    stored = document.get("cluster")
    if model is None or not isinstance(stored, dict):
        return []
    document["cluster"] = {k: v for k, v in stored.items() if k in model.model_fields}
    return [f"cluster.{key}" for key in stored if key not in document["cluster"]]
