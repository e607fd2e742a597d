"""The JSON Schema of ``results.json``: generated from the model, shipped with the package.

Readers of results rely on its names: names may be added, but never renamed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from pydantic.json_schema import models_json_schema

from latentscale_pipeline.results.model import RESULTS_SCHEMA as RESULTS_SCHEMA
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.results.part import Part, when_null

Json = dict[str, Any]

REFERENCE = "#/$defs/"

DROPPED = frozenset({"title", "default", "inline"})
"""Keywords of generated schemas that don't restrict a document."""


def load_schema() -> Json:
    """Return the JSON Schema (2020-12) that every ``results.json`` of this version follows."""
    text = resources.files(__package__).joinpath("results.schema.json").read_text("utf-8")
    schema: Json = json.loads(text)
    return schema


def results_schema(measures: Mapping[str, type[Part]]) -> Json:
    """Generate the schema.

    Parameters
    ----------
    measures : mapping
        The model of each measure's part, by the measure's name.
    """
    models: list[type[Part]] = [Results, *measures.values()]
    places, made = models_json_schema([(model, "validation") for model in models])
    raw: dict[str, Json] = made["$defs"]
    definitions = {
        _name(key, part): _plain(part, raw)
        for key, part in raw.items()
        if not part.get("inline", False)
    }
    document = definitions.pop("results")
    parts = {name: _plain(places[model, "validation"], raw) for name, model in measures.items()}
    document["properties"]["measures"] |= {
        "properties": {
            **{name: _or_null(part, _meaning(measures[name])) for name, part in parts.items()},
            **{f"{name}_reason": {"$ref": f"{REFERENCE}reason"} for name in measures},
        },
        "additionalProperties": {"type": ["object", "null", "string"]},
        "allOf": [when_null(name, f"{name}_reason") for name in measures],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:latentscale:results:1",
        "title": "latentscale results",
        **document,
        "description": " ".join((Results.__doc__ or "").split()),
        "$defs": definitions,
    }


def format_schema(schema: Json) -> str:
    """Return a schema as text, in the form that the package ships."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _plain(schema: Json, raw: Mapping[str, Json]) -> Json:
    """Simplify a schema of pydantic: names in snake case, one branch for null, no defaults."""
    if "$ref" in schema:
        key = schema["$ref"].removeprefix(REFERENCE)
        if not raw[key].get("inline", False):
            said = {name: schema[name] for name in schema if name not in DROPPED}
            return said | {"$ref": f"{REFERENCE}{_name(key, raw[key])}"}
        return _plain(
            {**raw[key], **{name: schema[name] for name in schema if name != "$ref"}}, raw
        )
    plain = {key: _value(key, value, raw) for key, value in schema.items() if key not in DROPPED}
    branches = plain.pop("anyOf", None)
    if branches is None:
        return plain
    known = [branch for branch in branches if branch != {"type": "null"}]
    if len(known) != 1:
        return plain | {"anyOf": branches}
    return _or_null(known[0], plain.pop("description", None)) | plain


def _value(key: str, value: Any, raw: Mapping[str, Json]) -> Any:
    if key in {"properties", "$defs"}:
        return {name: _plain(part, raw) for name, part in value.items()}
    if key in {"items", "additionalProperties"} and isinstance(value, dict):
        return _plain(value, raw)
    if key == "anyOf":
        return [_plain(branch, raw) for branch in value]
    return " ".join(value.split("\n\n")[0].split()) if key == "description" else value


def _or_null(schema: Json, description: str | None) -> Json:
    """Allow null, so that errors in values that aren't null still name their location."""
    said = {} if description is None else {"description": description}
    if "$ref" in schema or "properties" in schema:
        return {"if": {"not": {"type": "null"}}, "then": schema, **said}
    return {**schema, "type": [schema["type"], "null"], **said}


def _meaning(model: type[Part]) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _name(key: str, part: Json) -> str:
    """Return the name of a definition: its model's title in snake case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part.get("title", key)).lower()
