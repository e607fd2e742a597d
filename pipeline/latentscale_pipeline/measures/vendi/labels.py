"""Vendi scores of every label's rows under the cosine kernel.

The labels are distributed over tasks so that the sums of each task fit a memory limit; a task reads
the corpus once. One task holds a thousand labels in 384 dimensions. The number of tasks is an upper
bound from the size of the corpus, because labels with few rows take no more memory than their rows.
Tasks that get no labels end at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latentscale.array_types import Int64Array
from latentscale.estimate import Estimate
from latentscale.vendi.label_moments import LabelledMoments, label_bytes
from latentscale.vendi.scores import vendi_score
from latentscale_pipeline.corpus import number_labels
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role, Score
from latentscale_pipeline.measures.vendi.scores import SCORES
from latentscale_pipeline.storage.artifacts import Artifact, Output

LABEL_BYTES = 576 * 2**20
"""Memory for the sums of the labels of one task."""


ENDS: Mapping[str, str] = {"scores": "value", "lower": "lower", "upper": "upper"}
"""Arrays of a label's scores, with the attributes of an estimate."""


def stage_name(role: Role) -> str:
    """Return the name of the stage that scores a corpus's labels."""
    return f"vendi-labels-{role}"


def score_labels(inputs: Inputs) -> Output:
    """Score the task's share of the labels."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    names, codes = number_labels(corpus)
    counts = np.bincount(codes, minlength=len(names))
    sizes = [label_bytes(int(count), corpus.d, corpus.dtype.itemsize) for count in counts]
    mine = _deal(sizes) == inputs.index
    if not mine.any():
        return Output(values={"labels": []})
    places = np.where(mine, np.cumsum(mine) - 1, -1)
    moments = LabelledMoments(counts[mine], corpus.d, corpus.dtype)
    weights = corpus.weights() if p["weights"] else None
    for shard in range(corpus.shard_count):
        held = corpus.shard_range(shard)
        rows = corpus.read_shard(shard)
        moments.add(rows, places[codes[held]], None if weights is None else weights[held])
        del rows
    found = {name: np.full((int(mine.sum()), len(p["orders"])), np.nan) for name in ENDS}
    for row, spectrum in enumerate(moments.spectra()):
        if spectrum is None:
            continue
        for column, order in enumerate(p["orders"]):
            score = vendi_score(spectrum, float(order))
            for name, attribute in ENDS.items():
                found[name][row, column] = getattr(score, attribute)
    return Output(
        values={"labels": [name for name, own in zip(names, mine, strict=True) if own]},
        arrays={**found, "counts": counts[mine]},
    )


def _deal(sizes: list[int]) -> Int64Array:
    """Return the task of each label; tasks are filled in order."""
    tasks = np.empty(len(sizes), dtype=np.int64)
    task = held = 0
    for label, size in enumerate(sizes):
        if held and held + size > LABEL_BYTES:
            task, held = task + 1, 0
        tasks[label] = task
        held += size
    return tasks


def join_labels(inputs: Inputs) -> Output:
    """Join the tasks' scores in the order of the labels."""
    parts = [part for part in inputs.parts if part.values["labels"]]
    return Output(
        values={"labels": [label for part in parts for label in part.values["labels"]]},
        arrays={
            name: np.concatenate([part.array(name) for part in parts]) for name in (*ENDS, "counts")
        },
    )


def label_scores(artifact: Artifact, orders: list[str], role: Role) -> list[Score]:
    """Convert the stored values to rows of ``scores``."""
    ends = np.stack([artifact.array(name) for name in ENDS], axis=-1)
    counts = artifact.array("counts").tolist()
    return [
        _score(ends[row, column].tolist(), role, label=label, rows=int(counts[row]), order=order)
        for row, label in enumerate(artifact.values["labels"])
        for column, order in enumerate(orders)
    ]


def _score(ends: Sequence[float], role: Role, **fields: str | int) -> Score:
    value, lower, upper = ends
    known = not np.isnan(value)
    return SCORES["vendi"].score(
        Estimate(value, lower, upper, "exact", "") if known else None,
        role,
        kernel="cosine",
        reason=None if known else "all weights of the label are 0",
        **fields,
    )
