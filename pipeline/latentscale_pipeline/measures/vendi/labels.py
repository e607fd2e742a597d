"""Vendi scores of every label's rows under the cosine kernel.

The labels are distributed over tasks so that the sums of each task fit a memory limit; a task reads
the corpus once. One task holds a thousand labels in 384 dimensions. The number of tasks is an upper
bound from the size of the corpus, because labels with few rows take no more memory than their rows.
Tasks that get no labels end at once.

Sampling errors are found from up to :func:`error_rows` random rows of every label, and the labels
are distributed in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int32Array, Int64Array
from latentscale.estimate import Estimate
from latentscale.vendi.label_moments import LabelledMoments, label_bytes
from latentscale.vendi.sampling_error import cosine_sampling_errors
from latentscale.vendi.scores import vendi_score
from latentscale_pipeline.corpus import number_labels
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role, Score
from latentscale_pipeline.measures.vendi.scores import SCORES
from latentscale_pipeline.storage.artifacts import Artifact, Output

LABEL_BYTES = 576 * 2**20
"""Memory for the sums of the labels of one task, or for their rows."""

ERROR_ROWS = 4096
"""Rows of a label from which the errors are found, unless the rows have many dimensions."""

ENDS: Mapping[str, str] = {"scores": "value", "lower": "lower", "upper": "upper"}
"""Arrays of a label's scores, with the attributes of an estimate."""


def stage_name(role: Role) -> str:
    """Return the name of the stage that scores a corpus's labels."""
    return f"vendi-labels-{role}"


def sampling_stage_name(role: Role) -> str:
    """Return the name of the stage that finds the sampling errors of these scores."""
    return f"vendi-labels-sampling-{role}"


def error_rows(dimension: int) -> int:
    """Return the largest number of rows of a label from which its errors are found.

    The errors fall with the root of the number of rows only where it is far above the dimension.
    """
    return max(ERROR_ROWS, 4 * dimension)


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


def jackknife_labels(inputs: Inputs) -> Output:
    """Find the sampling errors of the scores of the task's share of the labels."""
    p, generator = inputs.parameters, inputs.generator()
    corpus = inputs.corpora[p["role"]]
    names, codes = number_labels(corpus)
    enough = np.bincount(codes, minlength=len(names)) >= p["least"]
    weights = corpus.weights() if p["weights"] else None
    if weights is not None:
        codes = np.where(weights > 0, codes, -1)
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    drawn = np.where(enough, np.minimum(counts, p["most"]), 0)
    mine = (_deal((drawn * corpus.d * corpus.dtype.itemsize).tolist()) == inputs.index) & (
        drawn > 0
    )
    if not mine.any():
        return Output(values={"labels": [], "reasons": {}})
    rows = _draw_rows(codes, np.where(mine, drawn, 0), generator)
    vectors = corpus.read_index(rows)
    orders = [float(order) for order in p["orders"]]
    held = _rows_by_label(codes[rows], len(names))
    errors, reasons = [], {}
    for label in np.flatnonzero(mine).tolist():
        own = held[label]
        masses = None if weights is None else weights[rows[own]]
        try:
            found = cosine_sampling_errors(vectors[own], orders, generator, masses)
        except ValueError as problem:
            reasons[names[label]] = str(problem)
            found = np.full(len(orders), np.nan)
        errors.append(found * math.sqrt(len(own) / counts[label]))
    labels = [name for name, own in zip(names, mine, strict=True) if own]
    return Output(
        values={"labels": labels, "reasons": reasons}, arrays={"errors": np.array(errors)}
    )


def _draw_rows(
    codes: Int32Array, drawn: Int64Array, generator: np.random.Generator
) -> NDArray[np.intp]:
    """Draw the given number of rows of every label; their numbers ascend."""
    held = _rows_by_label(codes, len(drawn))
    chosen = [
        generator.choice(held[label], drawn[label], replace=False)
        for label in np.flatnonzero(drawn).tolist()
    ]
    return np.sort(np.concatenate(chosen))


def _rows_by_label(codes: Int32Array, labels: int) -> list[NDArray[np.intp]]:
    """Return the places of every label's rows; those with a negative number aren't returned."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.searchsorted(codes[order], np.arange(labels)))[1:]


def join_label_errors(inputs: Inputs) -> Output:
    """Join the tasks' errors in the order of the labels."""
    parts = [part for part in inputs.parts if part.values["labels"]]
    return Output(
        values={
            "labels": [label for part in parts for label in part.values["labels"]],
            "reasons": {key: why for part in parts for key, why in part.values["reasons"].items()},
        },
        arrays={
            "errors": np.concatenate([part.array("errors") for part in parts])
            if parts
            else np.empty((0, len(inputs.parameters["orders"])))
        },
    )


def label_scores(
    artifact: Artifact, sampled: Artifact | None, orders: list[str], role: Role
) -> list[Score]:
    """Convert the stored values, and the sampling errors if there are any, to ``scores``."""
    ends = np.stack([artifact.array(name) for name in ENDS], axis=-1)
    counts = artifact.array("counts").tolist()
    labels = [] if sampled is None else sampled.values["labels"]
    errors = {} if sampled is None else dict(zip(labels, sampled.array("errors"), strict=True))
    reasons = {} if sampled is None else sampled.values["reasons"]
    return [
        _score(
            ends[row, column].tolist(),
            None if label not in errors else float(errors[label][column]),
            reasons.get(label),
            role,
            label=label,
            rows=int(counts[row]),
            order=order,
        )
        for row, label in enumerate(artifact.values["labels"])
        for column, order in enumerate(orders)
    ]


def _score(
    ends: Sequence[float],
    error: float | None,
    error_reason: str | None,
    role: Role,
    **fields: str | int,
) -> Score:
    value, lower, upper = ends
    known = not np.isnan(value)
    has_error = known and error is not None and not np.isnan(error)
    return SCORES["vendi"].score(
        Estimate(value, lower, upper, "exact", "") if known else None,
        role,
        kernel="cosine",
        reason=None if known else "all weights of the label are 0",
        sampling_error=error if has_error else None,
        sampling_error_reason=error_reason if known and not has_error else None,
        **fields,
    )
