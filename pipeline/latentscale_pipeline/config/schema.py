"""The JSON Schema of a job's configuration, for editors and early checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.config.section import Section


def config_schema(measures: Mapping[str, type[Section]]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a configuration file.

    Parameters
    ----------
    measures : mapping
        The section of every known measure, by name.

    Notes
    -----
    It checks names, types and ranges. What relates keys to each other (a measure that needs a
    reference, kernels listed twice) is checked when the configuration is read.
    """
    models: list[type[Section]] = [JobConfig, *measures.values()]
    places, common = models_json_schema([(model, "validation") for model in models])
    definitions = common["$defs"]
    job = definitions.pop(JobConfig.__name__)
    job["properties"]["measures"] = {
        "description": "Measures to take, by name; without this key, all that apply.",
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {
            name: {"anyOf": [places[section, "validation"], {"type": "null"}]}
            for name, section in measures.items()
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "latentscale job",
        "description": "A job of latentscale.",
        **{key: job[key] for key in ("type", "additionalProperties", "required", "properties")},
        "$defs": definitions,
    }
