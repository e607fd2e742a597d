"""A whole artifact at once: what a task does in two steps."""

from latentscale_pipeline.storage.artifacts import (
    Artifact,
    Cost,
    Output,
    create_marker,
    write_arrays,
)
from latentscale_pipeline.storage.objects import ObjectStore


def write_artifact(
    store: ObjectStore, part: str, attempt: str, output: Output, cost: Cost
) -> Artifact:
    """Store an attempt's output and try to make it the part's result."""
    objects = write_arrays(store, part, attempt, output)
    return create_marker(store, part, attempt, output.values, objects, cost)
