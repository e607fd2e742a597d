"""The JSON Schema of ``results.json``, shipped with the package.

Everything that reads results relies on its names: they may be added to, never renamed.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

RESULTS_SCHEMA = "latentscale.results/1"
"""The value of ``schema`` in the results that this version writes."""


def load_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) that every ``results.json`` of this version follows."""
    text = resources.files(__package__).joinpath("results.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
