"""Tasks of the spectrum: moments and lengths by groups of rows, and what they score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.linalg.moments import Moments, row_moments
from latentscale.spectrum.lengths import Lengths, row_lengths
from latentscale.spectrum.scores import GroupSums, merge_sums, score_groups
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_scored
from latentscale_pipeline.storage.artifacts import Artifact, Output

DRAWN_ROWS = 2**16
"""Rows, one after another, among which groups are drawn."""

RECORDS: Mapping[str, type[Moments] | type[Lengths]] = {"moments": Moments, "lengths": Lengths}
"""What is summed for each group."""


def sum_groups(inputs: Inputs) -> Output:
    """Sum the moments and the lengths of the rows of some shards, by random groups."""
    p, corpus = inputs.parameters, inputs.corpora[inputs.parameters["role"]]
    first = inputs.index * p["shards"]
    shards = range(first, min(first + p["shards"], corpus.shard_count))
    start, stop = corpus.shard_range(shards[0]).start, corpus.shard_range(shards[-1]).stop
    groups = _groups_of(start, stop, inputs)
    found: dict[int, GroupSums] = {}
    for shard in shards:
        rows, place = corpus.read_shard(shard), corpus.shard_range(shard)
        group = groups[place.start - start : place.stop - start]
        for number in np.unique(group).tolist():
            own = rows[group == number]
            _add(found, number, GroupSums(row_moments(own), row_lengths(own)))
    return Output(values={"numbers": list(found)}, arrays=_stacked(list(found.values())))


def _groups_of(start: int, stop: int, inputs: Inputs) -> NDArray[np.intp]:
    """Return the groups of rows, which depend on their places in the corpus alone.

    Rows near each other are often alike, so groups are drawn among many rows at once.
    """
    groups = np.arange(DRAWN_ROWS, dtype=np.intp) % inputs.parameters["groups"]
    first, last = start // DRAWN_ROWS, -(-stop // DRAWN_ROWS)
    drawn = [inputs.generator(place).permutation(groups) for place in range(first, last)]
    return np.concatenate(drawn)[start - first * DRAWN_ROWS :][: stop - start]


def score_sums(inputs: Inputs) -> Output:
    """Join the sums of all parts, and score the corpus."""
    held: dict[int, GroupSums] = {}
    for part in inputs.parts:
        for number, sums in zip(part.values["numbers"], _groups(part), strict=True):
            _add(held, number, sums)
    groups = [held[number] for number in sorted(held)]
    scored = score_groups(groups)
    scores = {
        name: {"reason": found} if isinstance(found, str) else store_scored(found)
        for name, found in scored.scores.items()
    }
    lengths = scored.whole.lengths
    return Output(
        values={
            "scores": scores,
            "groups": len(groups),
            "least_length": lengths.least,
            "largest_length": lengths.largest,
            "zero_rows": scored.whole.moments.zero_rows,
        },
        arrays={"shares": scored.shares, "lengths": lengths.bins},
    )


def _add(held: dict[int, GroupSums], number: int, sums: GroupSums) -> None:
    held[number] = merge_sums([held[number], sums]) if number in held else sums


def _stacked(groups: Sequence[GroupSums]) -> dict[str, NDArray[Any]]:
    """Return one array for each field of the groups' records."""
    return {
        f"{kind}_{field.name}": np.stack(
            [getattr(getattr(group, kind), field.name) for group in groups]
        )
        for kind, record in RECORDS.items()
        for field in fields(record)
        if groups
    }


def _groups(part: Artifact) -> Iterator[GroupSums]:
    """Yield the groups of a part, in the order in which they are stored."""
    arrays = {name: part.array(name) for name in part.objects}
    for place in range(len(part.values["numbers"])):
        values: dict[str, list[Any]] = {
            kind: [arrays[f"{kind}_{field.name}"][place] for field in fields(record)]
            for kind, record in RECORDS.items()
        }
        moments, lengths = (
            [value if value.ndim else value.item() for value in values[kind]] for kind in RECORDS
        )
        yield GroupSums(Moments(*moments), Lengths(*lengths))
