"""The models of all measures' results.

``python -m latentscale_pipeline.measures.results_models`` prints the schema of ``results.json``
that the package ships.
"""

from __future__ import annotations

import sys

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.results.model import Labels
from latentscale_pipeline.results.part import Part
from latentscale_pipeline.results.schema import format_schema, results_schema


def results_models() -> dict[str, type[Part]]:
    """Return the model of every measure's results by name, and that of the labels."""
    models = {name: measure.results for name, measure in MEASURES.items() if measure.results}
    return {**models, "labels": Labels}


if __name__ == "__main__":
    sys.stdout.write(format_schema(results_schema(results_models())))
