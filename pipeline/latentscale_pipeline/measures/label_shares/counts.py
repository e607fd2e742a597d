"""The stage that counts the rows of every label of a corpus."""

from __future__ import annotations

from collections import Counter

from latentscale_pipeline.corpus.labelled_rows import MAX_LABELS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, TEXT_BYTES, JobFacts, Role
from latentscale_pipeline.storage.artifacts import Output


def stage_name(role: Role) -> str:
    """Name the stage of a corpus."""
    return f"label-counts-{role}"


def counts_stage(role: Role, facts: JobFacts) -> Stage:
    """Plan the count of a corpus; one block of labels is in memory at a time."""
    corpus = facts.corpora[role]
    return Stage(
        name=stage_name(role),
        work=count_labels,
        corpora=(role,),
        # The key of a stage knows the vectors of its corpora; labels can change beside them.
        parameters={"role": role, "labels": corpus.labels},
        memory_bytes=corpus.labels_bytes + 2 * TEXT_BYTES * MAX_LABELS,
        cost_estimate=CostEstimate(
            bytes_read=TEXT_BYTES * corpus.n,
            bytes_written=RESULT_BYTES,
            # Python's loop over rows.
            elementwise_operations=500.0 * corpus.n,
        ),
    )


def count_labels(inputs: Inputs) -> Output:
    """Count the rows of every label; None if there are too many labels."""
    counts: Counter[str] = Counter()
    for block in inputs.corpora[inputs.parameters["role"]].companion_blocks("labels"):
        counts.update(block.tolist())
        if len(counts) > MAX_LABELS:
            return Output(values={"rows": None})
    return Output(values={"rows": dict(sorted(counts.items()))})
