"""The directive ``results``: the fields of a part of ``results.json``, from its schema."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import fields_of, table

from latentscale_pipeline.results.schema import load_schema


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Results(SphinxDirective):
    """``{results} score`` becomes the table of that definition; ``document`` means the schema."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        schema = load_schema()
        name = self.arguments[0]
        part = schema if name == "document" else schema["$defs"][name]
        fields = list(fields_of(part, schema["$defs"], below=False))
        return self.parse_text_to_nodes(table(fields, defaults=False))
