"""Pairs of rows: a row of the corpus and the row of the reference that represents the same item.

Rows are paired by their numbers or by their ids. Ids are hashed in one pass over each corpus, and
those with the smallest hashes are kept: they are the same items in both corpora, and a random
sample of all (Cohen & Kaplan 2007). So pairing takes no memory for the corpora.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.measures.shared.random_rows import (
    drawing_bytes,
    gather_rows,
    read_share,
    row_bytes,
    share_reading,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

PAIRS = "pairs"
"""Name of the stage that pairs rows."""

KEPT_IDS = 200_000
"""Ids of each corpus that are kept, if more pairs aren't needed. Corpora of so many rows are paired
completely."""

ID_BYTES = 24
"""Memory of a kept id: its hash, its row, and both sorted."""

BLOCK_BYTES = 256 * 2**20
"""Memory of the ids of a shard, as text."""

ID_OPERATIONS = 500
"""Elementwise operations as long as Python takes to hash an id."""

EXAMPLES = 3
"""Ids without a partner that are named."""

ROLES: tuple[Role, Role] = ("corpus", "reference")


def rows_name(role: Role) -> str:
    """Return the name of the stage with the vectors of the pairs, in the order of the pairs."""
    return f"paired-rows-{role}"


def pair_stages(facts: JobFacts, pairs: int) -> list[Stage]:
    """Plan at most so many random pairs, and their vectors in both corpora.

    Raises
    ------
    BadInput
        If the corpora can't be paired in the way that the job asks for.
    """
    pairing = [_numbers_stage(facts, pairs)] if facts.pair == "rows" else _ids_stages(facts, pairs)
    return [*pairing, *(_rows_stage(facts, role, pairs) for role in ROLES)]


def read_pairs(results: Any) -> Artifact:
    """Return the result of the stage that pairs rows: arrays ``corpus`` and ``reference``.

    Its values are ``common``, the number of pairs there are; ``unpaired``, the share of the rows of
    each corpus without a partner; and ``examples``, ids of such rows.
    """
    found: Artifact = results(PAIRS)
    return found


def _numbers_stage(facts: JobFacts, pairs: int) -> Stage:
    corpus, reference = (facts.corpora[role] for role in ROLES)
    if corpus.n != reference.n:
        raise BadInput(
            f"pair: rows needs as many rows in both corpora; the corpus has {corpus.n:,} and the "
            f"reference {reference.n:,}; pair by ids instead, with pair: ids"
        )
    return Stage(
        name=PAIRS,
        work=draw_pairs,
        parameters={"by": "rows", "n": corpus.n, "pairs": pairs},
        seed=facts.seed,
        memory_bytes=drawing_bytes(corpus.n, pairs),
        cost_estimate=CostEstimate(bytes_written=16 * pairs + RESULT_BYTES),
    )


def _ids_stages(facts: JobFacts, pairs: int) -> list[Stage]:
    for role in ROLES:
        if facts.corpora[role].ids is None:
            raise BadInput(
                f"pair: ids needs ids, and the {role} has none; give them to run or ingest with "
                "--ids or --ids-column, or pair rows of the same number with pair: rows"
            )
    kept = max(KEPT_IDS, 2 * pairs)
    sketches = [
        Stage(
            name=f"pair-ids-{role}",
            temporary="result",
            work=keep_ids,
            corpora=(role,),
            parameters={"role": role, "kept": kept, "ids": facts.corpora[role].ids},
            seed=facts.seed,
            memory_bytes=3 * ID_BYTES * kept + BLOCK_BYTES,
            cost_estimate=CostEstimate(
                bytes_written=16 * min(kept, facts.corpora[role].n) + RESULT_BYTES,
                elementwise_operations=ID_OPERATIONS * facts.corpora[role].n,
            ),
        )
        for role in ROLES
    ]
    pairing = Stage(
        name=PAIRS,
        work=pair_ids,
        needs=tuple(stage.name for stage in sketches),
        corpora=ROLES,
        parameters={"by": "ids", "pairs": pairs},
        memory_bytes=6 * ID_BYTES * kept + BLOCK_BYTES,
        cost_estimate=CostEstimate(bytes_written=16 * pairs + RESULT_BYTES),
    )
    return [*sketches, pairing]


def _rows_stage(facts: JobFacts, role: Role, pairs: int) -> Stage:
    corpus = facts.corpora[role]
    stage = Stage(
        name=rows_name(role),
        temporary="result",
        work=store_paired,
        needs=(PAIRS,),
        corpora=(role,),
        parameters={"role": role},
        memory_bytes=3 * row_bytes(corpus) * pairs + 16 * pairs,
        cost_estimate=CostEstimate(bytes_written=row_bytes(corpus) * pairs + RESULT_BYTES),
    )
    return share_reading(stage, corpus, read_paired, pairs)


# --- tasks --------------------------------------------------------------------------------------


def draw_pairs(inputs: Inputs) -> Output:
    """Draw the numbers of random rows, which are those of both corpora."""
    n, pairs = inputs.parameters["n"], inputs.parameters["pairs"]
    rows = np.sort(inputs.generator().choice(n, min(n, pairs), replace=False)).astype(np.int64)
    none: dict[str, Any] = {"unpaired": dict.fromkeys(ROLES, 0.0), "examples": {}}
    return Output(
        values={"common": n, **none},
        arrays={"corpus": rows, "reference": rows},
    )


def keep_ids(inputs: Inputs) -> Output:
    """Keep the hashes and the rows of the ids whose hashes are the smallest."""
    corpus, kept = inputs.corpora[inputs.parameters["role"]], inputs.parameters["kept"]
    hashes, rows = np.empty(0, np.uint64), np.empty(0, np.int64)
    first = 0
    for some in _hash_ids(corpus, inputs.stage.seed or 0):
        hashes = np.concatenate([hashes, some])
        rows = np.concatenate([rows, np.arange(first, first + len(some))])
        first += len(some)
        order = np.argsort(hashes, kind="stable")[:kept]
        hashes, rows = hashes[order], rows[order]
    repeated = np.flatnonzero(hashes[1:] == hashes[:-1])
    if len(repeated):
        name = corpus.texts_at("ids", rows[repeated[:1]]).tolist()[0]
        raise BadInput(
            f"{inputs.parameters['role']}: the id {name!r} occurs more than once, so rows can't be "
            "paired by ids; make ids unique, or pair rows of the same number with pair: rows"
        )
    return Output(arrays={"hashes": hashes, "rows": rows})


def _hash_ids(corpus: Corpus, seed: int) -> Iterator[NDArray[np.uint64]]:
    for block in corpus.companion_blocks("ids"):
        yield np.fromiter(
            (xxhash.xxh3_64_intdigest(str(name).encode(), seed) for name in block.tolist()),
            dtype=np.uint64,
            count=len(block),
        )


def pair_ids(inputs: Inputs) -> Output:
    """Pair the ids that both corpora have."""
    p = inputs.parameters
    sketches = [inputs.results[f"pair-ids-{role}"] for role in ROLES]
    hashes = [sketch.array("hashes") for sketch in sketches]
    sizes = [inputs.corpora[role].n for role in ROLES]
    # Above the largest kept hash of a corpus nothing is known of its ids.
    ends = [int(own[-1]) for own, n in zip(hashes, sizes, strict=True) if len(own) and len(own) < n]
    seen = [int(np.searchsorted(own, min(ends), "right")) if ends else len(own) for own in hashes]
    hashes = [own[:count] for own, count in zip(hashes, seen, strict=True)]
    rows = [sketch.array("rows")[:count] for sketch, count in zip(sketches, seen, strict=True)]
    found, *places = np.intersect1d(hashes[0], hashes[1], assume_unique=True, return_indices=True)
    alone = [np.setdiff1d(np.arange(len(own)), at) for own, at in zip(hashes, places, strict=True)]
    examples = {
        role: inputs.corpora[role].texts_at("ids", own[at[:EXAMPLES]]).tolist()
        for role, own, at in zip(ROLES, rows, alone, strict=True)
        if len(at)
    }
    # Hashes ascend, so the first pairs are a random sample of all.
    ours, theirs = (own[at[: p["pairs"]]] for own, at in zip(rows, places, strict=True))
    order = np.argsort(ours)
    share = len(found) / max(1, seen[0])
    return Output(
        values={
            "common": round(share * sizes[0]),
            "unpaired": {
                role: len(at) / max(1, count)
                for role, at, count in zip(ROLES, alone, seen, strict=True)
            },
            "examples": examples,
        },
        arrays={"corpus": ours[order], "reference": theirs[order]},
    )


def read_paired(inputs: Inputs) -> Output:
    """Read the rows of pairs in some shards."""
    corpus, rows = inputs.corpora[inputs.parameters["role"]], _rows(inputs)
    return read_share(inputs, corpus, np.sort(rows))


def store_paired(inputs: Inputs) -> Output:
    """Store the vectors of the pairs, in the order of the pairs."""
    corpus, rows = inputs.corpora[inputs.parameters["role"]], _rows(inputs)
    ascending = np.argsort(rows)
    vectors = np.empty((len(rows), corpus.d), corpus.dtype)
    vectors[ascending] = gather_rows(inputs, corpus, rows[ascending])
    return Output(arrays={"vectors": vectors})


def _rows(inputs: Inputs) -> NDArray[np.int64]:
    return inputs.results[PAIRS].array(inputs.parameters["role"])
