"""Pairs of rows: a row of the corpus and the row of the reference that represents the same item.

Rows are paired by their numbers or by their ids. Of the smaller corpus the ids with the smallest
hashes are kept, which are a random sample of all if they are fewer (Cohen & Kaplan 2007); one pass
over the other corpus finds their partners. So pairing takes no memory for the corpora.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash

from latentscale.array_types import Int64Array, UInt64Array
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.measures.shared.random_rows import (
    drawing_bytes,
    gather_in_order,
    read_share,
    row_bytes,
    share_reading,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

KEPT_IDS = 200_000
"""Ids of the smaller corpus that are kept. One of so many rows is paired completely."""

ID_BYTES = 24
"""Memory of a kept id: its hash, its row, and both sorted."""

BLOCK_BYTES = 256 * 2**20
"""Memory of the ids of a shard, as text."""

ID_OPERATIONS = 500
"""Elementwise operations as long as Python takes to hash an id."""

EXAMPLES = 3
"""Ids without a partner that are named."""

ROLES: tuple[Role, Role] = ("corpus", "reference")


def pairs_name(measure: str) -> str:
    """Return the name of the stage that pairs rows: arrays ``corpus`` and ``reference``.

    Its values are ``common``, the number of pairs there are; ``unpaired``, the share of the rows of
    each corpus without a partner; and ``examples``, ids of such rows.
    """
    return f"{measure}-pairs"


def rows_name(measure: str, role: Role) -> str:
    """Return the name of the stage with the vectors of the pairs, in the order of the pairs."""
    return f"{measure}-rows-{role}"


def pair_stages(facts: JobFacts, pairs: int, measure: str) -> list[Stage]:
    """Plan at most so many random pairs for a measure, and their vectors in both corpora.

    Raises
    ------
    BadInput
        If the corpora can't be paired in the way that the job asks for.
    """
    plan = _number_stages if facts.pair == "rows" else _ids_stages
    pairing = plan(facts, pairs, pairs_name(measure))
    return [*pairing, *(_rows_stage(facts, role, pairs, measure) for role in ROLES)]


def _number_stages(facts: JobFacts, pairs: int, name: str) -> list[Stage]:
    corpus, reference = (facts.corpora[role] for role in ROLES)
    if corpus.n != reference.n:
        named = corpus.ids is not None and reference.ids is not None
        mend = "pair by ids instead, with" if named else "give as many rows, or both ids and"
        raise BadInput(
            f"pair: rows needs as many rows in both corpora; the corpus has {corpus.n:,} and the "
            f"reference {reference.n:,}; {mend} pair: ids"
        )
    drawing = Stage(
        name=name,
        work=draw_pairs,
        parameters={"by": "rows", "n": corpus.n, "pairs": pairs},
        seed=facts.seed,
        memory_bytes=drawing_bytes(corpus.n, pairs),
        cost_estimate=CostEstimate(bytes_written=16 * pairs + RESULT_BYTES),
    )
    return [drawing]


def _ids_stages(facts: JobFacts, pairs: int, name: str) -> list[Stage]:
    for role in ROLES:
        if facts.corpora[role].ids is None:
            option = "--ids" if role == "corpus" else "--reference-ids"
            alike = len({facts.corpora[each].n for each in ROLES}) == 1
            raise BadInput(
                f"pair: ids needs ids, and the {role} has none; give them to run with {option} or "
                f"{option}-column, or to ingest"
                + ", or pair rows of the same number with pair: rows"
                * alike
            )
    small, large = sorted(ROLES, key=lambda role: facts.corpora[role].n)
    sketch = Stage(
        name=f"pair-ids-{small}",
        temporary="result",
        work=keep_ids,
        corpora=(small,),
        parameters={"role": small, "kept": KEPT_IDS, "ids": facts.corpora[small].ids},
        seed=facts.seed,
        memory_bytes=3 * ID_BYTES * KEPT_IDS + BLOCK_BYTES,
        cost_estimate=CostEstimate(
            bytes_written=16 * min(KEPT_IDS, facts.corpora[small].n) + RESULT_BYTES,
            elementwise_operations=ID_OPERATIONS * facts.corpora[small].n,
        ),
    )
    pairing = Stage(
        name=name,
        work=pair_ids,
        needs=(sketch.name,),
        corpora=ROLES,
        parameters={
            "by": "ids",
            "small": small,
            "large": large,
            "pairs": pairs,
            "ids": facts.corpora[large].ids,
        },
        seed=facts.seed,
        memory_bytes=5 * ID_BYTES * KEPT_IDS + BLOCK_BYTES,
        cost_estimate=CostEstimate(
            bytes_written=16 * pairs + RESULT_BYTES,
            elementwise_operations=ID_OPERATIONS * facts.corpora[large].n,
        ),
    )
    return [sketch, pairing]


def _rows_stage(facts: JobFacts, role: Role, pairs: int, measure: str) -> Stage:
    corpus = facts.corpora[role]
    stage = Stage(
        name=rows_name(measure, role),
        temporary="result",
        work=store_paired,
        needs=(pairs_name(measure),),
        corpora=(role,),
        parameters={"role": role, "paired": pairs_name(measure)},
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
    """Keep the hashes and the rows of the ids whose hashes are the smallest, in their order."""
    role, kept = inputs.parameters["role"], inputs.parameters["kept"]
    hashes, rows = np.empty(0, np.uint64), np.empty(0, np.int64)
    for first, some in _hash_ids(inputs, role):
        hashes = np.concatenate([hashes, some])
        rows = np.concatenate([rows, np.arange(first, first + len(some))])
        order = np.argsort(hashes, kind="stable")[:kept]
        hashes, rows = hashes[order], rows[order]
    _refuse_repeated(inputs, role, hashes, rows)
    return Output(arrays={"hashes": hashes, "rows": rows})


def _hash_ids(inputs: Inputs, role: Role) -> Iterator[tuple[int, UInt64Array]]:
    """Yield the first row of each block of ids, and their hashes."""
    first, seed = 0, inputs.stage.seed or 0
    for block in inputs.corpora[role].companion_blocks("ids"):
        names = block.tolist()
        if "" in names:
            raise BadInput(
                f"{role}: row {first + names.index('')} has no id, so it can't be paired by ids; "
                "give every row an id, or pair rows of the same number with pair: rows"
            )
        hashes = (xxhash.xxh3_64_intdigest(str(name).encode(), seed) for name in names)
        yield first, np.fromiter(hashes, dtype=np.uint64, count=len(names))
        first += len(names)


def _refuse_repeated(inputs: Inputs, role: Role, hashes: UInt64Array, rows: Int64Array) -> None:
    """Refuse an id that occurs twice; hashes ascend."""
    repeated = np.flatnonzero(hashes[1:] == hashes[:-1])
    if len(repeated):
        both = np.sort(rows[repeated[0] : repeated[0] + 2])
        [name] = inputs.corpora[role].texts_at("ids", both[:1]).tolist()
        raise BadInput(
            f"{role}: rows {both[0]} and {both[1]} have the same id, {name!r}, so rows can't be "
            "paired by ids; make ids unique, or pair rows of the same number with pair: rows"
        )


def pair_ids(inputs: Inputs) -> Output:
    """Find the partners of the kept ids."""
    p = inputs.parameters
    small, large = p["small"], p["large"]
    kept = inputs.results[f"pair-ids-{small}"]
    hashes, rows = kept.array("hashes"), kept.array("rows")
    complete = len(hashes) == inputs.corpora[small].n
    places, partners, alone, seen = [], [], list[int](), 0
    for first, some in _hash_ids(inputs, large):
        # Above the largest kept hash nothing is known of the smaller corpus.
        known = np.flatnonzero(some <= hashes[-1]) if not complete else np.arange(len(some))
        place = np.minimum(np.searchsorted(hashes, some[known]), len(hashes) - 1)
        found = hashes[place] == some[known]
        places.append(place[found])
        partners.append(first + known[found])
        alone += (first + known[~found])[: EXAMPLES - len(alone)].tolist()
        seen += len(known)
    place, partner = np.concatenate(places), np.concatenate(partners)
    order = np.argsort(place, kind="stable")
    place, partner = place[order], partner[order]
    _refuse_repeated(inputs, large, hashes[place], partner)
    lonely = np.setdiff1d(np.arange(len(hashes)), place)
    without = {small: rows[lonely[:EXAMPLES]], large: np.array(alone, np.int64)}
    # Hashes ascend, so the first pairs are a random sample of all.
    found_rows = {small: rows[place[: p["pairs"]]], large: partner[: p["pairs"]]}
    ascending = np.argsort(found_rows["corpus"])
    return Output(
        values={
            "common": round(len(place) / len(hashes) * inputs.corpora[small].n),
            "unpaired": {
                small: len(lonely) / len(hashes),
                large: 1.0 - len(place) / max(1, seen),
            },
            "examples": {
                role: inputs.corpora[role].texts_at("ids", numbers).tolist()
                for role, numbers in without.items()
                if len(numbers)
            },
        },
        arrays={role: found_rows[role][ascending] for role in ROLES},
    )


def read_paired(inputs: Inputs) -> Output:
    """Read the rows of pairs in some shards."""
    corpus, rows = inputs.corpora[inputs.parameters["role"]], _rows(inputs)
    return read_share(inputs, corpus, np.sort(rows))


def store_paired(inputs: Inputs) -> Output:
    """Store the vectors of the pairs, in the order of the pairs."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    return Output(arrays={"vectors": gather_in_order(inputs, corpus, _rows(inputs))})


def _rows(inputs: Inputs) -> Int64Array:
    return inputs.results[inputs.parameters["paired"]].array(inputs.parameters["role"])


def too_few_found(paired: Artifact, m: int) -> BadInput:
    """Return that ids have too few pairs, with ids that have no partner."""
    examples = paired.values["examples"]
    named = ", ".join(f"{ids[0]!r} is only in the {role}" for role, ids in examples.items())
    return BadInput(
        f"pair: ids found {m} ids that are in both corpora{f' ({named})' if named else ''}; check "
        "that both name the same items in the same way, upper and lower case included"
    )
