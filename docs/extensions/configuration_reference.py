"""The directive ``configuration``: the keys of a section, from the models that check them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import Field, fields_of, table

from latentscale_pipeline.compare.gates import Gate
from latentscale_pipeline.config.cluster import (
    Address,
    Batch,
    Driver,
    Gateway,
    Kubernetes,
    Local,
    Serial,
    Threads,
)
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.workflow.config import Workflow

SECTIONS: dict[str, type[BaseModel]] = {
    "job": JobConfig,
    **{f"measures.{name}": section for name, section in measure_sections().items()},
    "serial": Serial,
    "threads": Threads,
    "local": Local,
    "address": Address,
    "gateway": Gateway,
    "batch": Batch,
    "kubernetes": Kubernetes,
    "driver": Driver,
    "gate": Gate,
    "workflow": Workflow,
}
"""Everything that a page can show, by the argument of the directive."""

ELSEWHERE = {"measures", "cluster", "driver"}
"""Keys of a job that have tables of their own."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("configuration", Configuration)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Configuration(SphinxDirective):
    """``{configuration} measures.heat`` becomes the table of that section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        name = self.arguments[0]
        return self.parse_text_to_nodes(table(fields(name), defaults=True))


def fields(name: str) -> list[Field]:
    """Return the keys of a section; those that have a table of their own only by name."""
    model = SECTIONS[name]
    schema: dict[str, Any] = model.model_json_schema()
    definitions = schema.get("$defs", {})
    if model is JobConfig:
        shown = {k: v for k, v in schema["properties"].items() if k not in ELSEWHERE}
        schema = {**schema, "properties": shown}
    return list(fields_of(schema, definitions, below=True))
