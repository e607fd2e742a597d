"""Vendi scores of every label's rows under the cosine kernel.

The labels are dealt to tasks so that what each keeps fits a cap; a task reads the corpus once. A
thousand labels in 384 dimensions are one task's. How many tasks there may have to be follows from
the size of the corpus, since labels with few rows take no more than their rows: those without
labels end at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.tiles.distances import row_blocks
from latentscale.vendi.label_moments import LabelledMoments, label_bytes
from latentscale.vendi.scores import order_name, vendi_score
from latentscale.vendi.second_moments import BLOCK_ROWS
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import RESULT_BYTES, CorpusFacts, JobFacts, Role, Score
from latentscale_pipeline.measures.vendi.config import Vendi
from latentscale_pipeline.storage.artifacts import Artifact, Output

LABEL_BYTES = 576 * 2**20
"""Memory for the sums of the labels of one task."""

TEXT_BYTES = 200
"""Memory of one row's label while labels are numbered."""

TEXT_ROWS = 65_536
"""Labels that are turned into text at once."""

VALUES_ONLY = 1.5
"""Multiply-adds to find all eigenvalues of a matrix, over its rows cubed."""


def plan_labels(section: Vendi, facts: JobFacts, role: Role) -> Stage:
    """Plan the scores of every label of a corpus.

    Raises
    ------
    BadInput
        If the corpus has no labels.
    """
    corpus = facts.corpora[role]
    if corpus.labels is None:
        raise BadInput(
            f"{role}: measures.vendi.labels is true and the corpus has no labels; ingest it with "
            "--labels, or leave it false"
        )
    # Dealt in order, two tasks that follow each other hold more than one's share together.
    tasks = 2 * (corpus.stored_bytes // LABEL_BYTES) + 1
    packed = 4 * corpus.d * (corpus.d + 1)
    weights = corpus.weights if section.weights else None
    return Stage(
        name=stage_name(role),
        work=score_labels,
        finalise=join_labels,
        partitions=tasks,
        corpora=(role,),
        parameters={
            "role": role,
            "orders": [order_name(order) for order in section.orders],
            "labels": corpus.labels,
            "weights": weights,
        },
        memory_bytes=min(LABEL_BYTES, corpus.stored_bytes)
        + packed
        + 2 * corpus.shard_stored_bytes
        + (TEXT_BYTES + (8 if weights else 0)) * corpus.n
        + 16 * BLOCK_ROWS * corpus.d,
        cost_estimate=_cost_estimate(corpus),
    )


def stage_name(role: Role) -> str:
    """Name the stage that scores a corpus's labels."""
    return f"vendi-labels-{role}"


def _cost_estimate(corpus: CorpusFacts) -> CostEstimate:
    return CostEstimate(
        bytes_read=corpus.stored_bytes,
        bytes_written=RESULT_BYTES,
        float64_multiply_adds=corpus.n * float(corpus.d) ** 2 / 2
        + VALUES_ONLY * corpus.n * float(corpus.d),
        elementwise_operations=2.0 * corpus.n * corpus.d,
        method="exact",
        why="second moments of all labels in one pass over the rows",
    )


def score_labels(inputs: Inputs) -> Output:
    """Score a share of the labels."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    names, codes = _number_labels(corpus)
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
    values = np.full((int(mine.sum()), len(p["orders"])), np.nan)
    for row, spectrum in enumerate(moments.spectra()):
        if spectrum is not None:
            values[row] = [vendi_score(spectrum, float(order)).value for order in p["orders"]]
    return Output(
        values={"labels": [name for name, own in zip(names, mine, strict=True) if own]},
        arrays={"scores": values, "counts": counts[mine]},
    )


def _number_labels(corpus: Corpus) -> tuple[list[str], NDArray[np.int64]]:
    """Return the labels in order, and the number of every row's."""
    numbers: dict[str, int] = {}
    codes = np.empty(corpus.n, dtype=np.int64)
    first = 0
    for block in corpus.companion_blocks("labels"):
        for rows in row_blocks(len(block), TEXT_ROWS):
            texts = block[rows].tolist()
            codes[first : first + len(texts)] = [numbers.setdefault(x, len(numbers)) for x in texts]
            first += len(texts)
    names = sorted(numbers)
    rank = np.empty(len(names), dtype=np.int64)
    rank[[numbers[name] for name in names]] = np.arange(len(names))
    return names, rank[codes]


def _deal(sizes: list[int]) -> NDArray[np.int64]:
    """Give each label in order the task in which it fits."""
    tasks = np.empty(len(sizes), dtype=np.int64)
    task = held = 0
    for label, size in enumerate(sizes):
        if held and held + size > LABEL_BYTES:
            task, held = task + 1, 0
        tasks[label] = task
        held += size
    return tasks


def join_labels(inputs: Inputs) -> Output:
    """Join what the tasks found, in the order of the labels."""
    parts = [part for part in inputs.parts if part.values["labels"]]
    return Output(
        values={"labels": [label for part in parts for label in part.values["labels"]]},
        arrays={
            name: np.concatenate([part.array(name) for part in parts])
            for name in ("scores", "counts")
        },
    )


def label_scores(artifact: Artifact, orders: list[str], role: Role) -> list[Score]:
    """Turn the published values into rows of ``scores``."""
    values = artifact.array("scores")
    return [
        _score(float(values[row, column]), label=label, order=order, of=role)
        for row, label in enumerate(artifact.values["labels"])
        for column, order in enumerate(orders)
    ]


def _score(value: float, **fields: Any) -> Score:
    known = {
        "measure": "vendi",
        "score": "vendi",
        "kernel": "cosine",
        "unit": "effective items",
        "better": "high",
        **fields,
    }
    if np.isnan(value):
        return Score(value=None, reason="all weights of the label are 0", **known)
    return Score(value=value, lower=value, upper=value, bounds="exact", **known)
