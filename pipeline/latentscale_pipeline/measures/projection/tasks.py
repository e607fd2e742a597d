"""The task of the projection: place random rows in the plane."""

from __future__ import annotations

import numpy as np

from latentscale.projection.tsne import project
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.storage.artifacts import Output


def lay_out(inputs: Inputs) -> Output:
    """Place the drawn rows of all corpora in one plane."""
    p = inputs.parameters
    drawn = [inputs.results[name] for name in p["drawn"]]
    # Corpora of one job can be stored in different types.
    vectors = np.concatenate([each.array("vectors").astype(np.float64) for each in drawn])
    points = as_points(vectors, p["metric"])
    found = project(points, inputs.generator(), perplexity=p["perplexity"])
    return Output(
        values={"kept": found.kept, "perplexity": found.perplexity},
        arrays={
            "rows": np.concatenate([each.array("rows") for each in drawn]),
            "places": found.places,
        },
    )
