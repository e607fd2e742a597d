"""The count of duplicate rows, as tasks: hash the rows, then count equal hashes."""

from __future__ import annotations

import numpy as np
import xxhash

from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.storage.artifacts import Output

SHARDS_PER_TASK = 16

DIGEST_BYTES = 16


def hash_rows(inputs: Inputs) -> Output:
    """Hash the rows of a run of shards; 0 and -0 count as equal."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    first = inputs.index * SHARDS_PER_TASK
    digests = bytearray()
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard) + np.zeros((), dtype=corpus.dtype)
        for row in rows:
            digests += xxhash.xxh3_128_digest(row)
    hashes = np.frombuffer(digests, dtype=f"V{DIGEST_BYTES}")
    # Repeats end here, so a very common row can't fill a group.
    distinct = np.unique(hashes)
    groups = inputs.parameters["groups"]
    # The first 32 bits, big-endian, as a fraction of all.
    begins = distinct.view(">u4")[:: DIGEST_BYTES // 4].astype(np.float64)
    group_of = np.floor(begins * (groups / 2.0**32))
    edges = np.searchsorted(group_of, np.arange(groups + 1))
    return Output(
        values={"repeated": len(hashes) - len(distinct)},
        arrays={
            _group(group): distinct[edges[group] : edges[group + 1]]
            .view(np.uint8)
            .reshape(-1, DIGEST_BYTES)
            for group in range(groups)
        },
    )


def _group(group: int) -> str:
    return f"hashes_{group:05d}"


def count_duplicates(inputs: Inputs) -> Output:
    """Count the rows that equal an earlier row, one group of hashes after the other."""
    duplicates = sum(part.values["repeated"] for part in inputs.parts)
    for group in range(inputs.parameters["groups"]):
        hashes = np.concatenate([part.array(_group(group)) for part in inputs.parts])
        duplicates += len(hashes) - len(np.unique(hashes.view(f"V{DIGEST_BYTES}")))
    return Output(values={"duplicates": duplicates})
