"""Tasks of the intrinsic dimension: draw rows, find their neighbours, and score them."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from latentscale.intrinsic_dimension.copies import SeenRows, merge_few_copies
from latentscale.intrinsic_dimension.estimators import neighbour_distances, with_content_keys
from latentscale.intrinsic_dimension.scores import Dimension, score_dimensions
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.distances import as_points
from latentscale.tiles.top_lists import content_keys
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_estimate
from latentscale_pipeline.measures.shared.random_rows import drawn_rows, gather_rows
from latentscale_pipeline.measures.shared.records import load_record, record_output
from latentscale_pipeline.measures.shared.shard_blocks import points_by_blocks
from latentscale_pipeline.storage.artifacts import Output


def store_drawn(inputs: Inputs) -> Output:
    """Store the drawn rows, with numbers that ascend, and how far their neighbours may be."""
    p, rows = inputs.parameters, drawn_rows(inputs)
    corpus = inputs.corpora[p["role"]]
    vectors = gather_rows(inputs, corpus, rows)
    within = np.full(len(rows), np.inf)
    if p["among_drawn"]:
        points = as_points(vectors, p["metric"])
        once = np.unique(content_keys(points.rows), return_index=True)[1]
        near = nearest(
            points,
            points.take(once),
            p["among_drawn"],
            query_ids=rows,
            candidate_ids=rows[once],
        )
        within = near.distances[:, -1]
    return Output(arrays={"rows": rows, "vectors": vectors, "within": within})


def find_neighbours(inputs: Inputs) -> Output:
    """Find the nearest rows of some shards to every drawn row."""
    p = inputs.parameters
    corpus, drawn = inputs.corpora[p["role"]], inputs.results[p["drawn"]]
    rows, within = drawn.array("rows"), drawn.array("within")
    queries = with_content_keys(as_points(drawn.array("vectors"), p["metric"]))
    best, seen = Neighbours.none(len(rows), p["length"]), SeenRows.none()
    first = inputs.index * p["shards"]
    for shard in range(first, min(first + p["shards"], corpus.shard_count)):
        start = corpus.shard_range(shard).start
        for piece, points in points_by_blocks(corpus.read_shard(shard), p["metric"]):
            ids = np.arange(start + piece.start, start + piece.stop, dtype=np.int64)
            few, seen = seen.admit(content_keys(points.rows))
            if not few.all():
                points, ids = points.take(np.flatnonzero(few)), ids[few]
            if not len(ids):
                continue
            best = nearest(
                queries,
                with_content_keys(points),
                p["length"],
                query_ids=rows,
                candidate_ids=ids,
                known=best,
                within=within,
            )
    return record_output(best)


def score_rows(inputs: Inputs) -> Output:
    """Join the neighbours of all parts, and compute the dimensions."""
    p = inputs.parameters
    corpus, drawn = inputs.corpora[p["role"]], inputs.results[p["drawn"]]
    rows, within = drawn.array("rows"), drawn.array("within")
    parts = (load_record(Neighbours, part) for part in inputs.parts)
    found = reduce(partial(merge_few_copies, k=p["length"], metric=p["metric"]), parts)
    ends = (found.indices[:, -1] >= 0) & (p["length"] < corpus.n - 1) | np.isfinite(within)
    lists = neighbour_distances(rows, found, p["metric"], ends)
    seed = int(inputs.generator().integers(2**62)) if p["errors"] else None
    dimensions = score_dimensions(lists, corpus.n, corpus.d, p["neighbours"], seed)
    return Output(
        values={
            "rows": len(rows),
            "two_nearest": _stored(dimensions.two_nearest),
            "maximum_likelihood": [_stored(each) for each in dimensions.maximum_likelihood],
        }
    )


def _stored(found: Dimension) -> dict[str, Any]:
    estimate = None if found.estimate is None else store_estimate(found.estimate)
    return {"estimate": estimate, "sampling_error": found.sampling_error, "rows": found.rows}
