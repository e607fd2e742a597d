"""The fingerprint against its definition, and what it must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus.fingerprint import Fingerprint, block_digests, combine


def by_definition(rows: np.ndarray) -> str:
    digests = b"".join(
        xxhash.xxh3_128(rows[i : i + 1024].tobytes()).digest() for i in range(0, len(rows), 1024)
    )
    header = f"\n{rows.dtype.name} {rows.shape[0]} {rows.shape[1]}\n".encode()
    return xxhash.xxh3_128(digests + header).hexdigest()


def streamed(rows: np.ndarray, cuts: list[int]) -> str:
    fingerprint = Fingerprint(rows.dtype, rows.shape[1])
    for piece in np.split(rows, sorted(cuts)):
        fingerprint.update(piece)
    return fingerprint.finish()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5000),
    st.lists(st.integers(0, 5000), max_size=6),
    st.sampled_from(["float16", "float32"]),
)
def test_it_does_not_depend_on_how_the_rows_arrive(n: int, cuts: list[int], dtype: str) -> None:
    rows = np.random.default_rng(n).standard_normal((n, 3)).astype(dtype)
    assert streamed(rows, [min(cut, n) for cut in cuts]) == by_definition(rows)


@pytest.mark.parametrize("shard_rows", [1024, 2048, 4096])
def test_shards_are_hashed_apart_and_combined(shard_rows: int) -> None:
    rows = np.random.default_rng(1).standard_normal((4500, 5)).astype(np.float32)
    digests = [block_digests(rows[i : i + shard_rows]) for i in range(0, len(rows), shard_rows)]
    assert combine(digests, rows.dtype, *rows.shape) == by_definition(rows)


def test_byte_order_and_memory_order_do_not_matter() -> None:
    rows = np.random.default_rng(2).standard_normal((1500, 4)).astype(np.float32)
    assert streamed(np.asfortranarray(rows), []) == by_definition(rows)
    assert block_digests(rows.astype(">f4")) == block_digests(rows)


def test_values_dtype_shape_and_order_matter() -> None:
    rows = np.random.default_rng(3).standard_normal((2048, 4)).astype(np.float32)
    changed = rows.copy()
    changed[1500, 2] = np.nextafter(changed[1500, 2], np.float32(9))
    others = [
        changed,
        rows[::-1].copy(),
        rows[:-1],
        rows.reshape(1024, 8),
        rows.view(np.float16),
        np.roll(rows, 1024, axis=0),
    ]
    prints = {by_definition(rows), *(streamed(other, []) for other in others)}
    assert len(prints) == len(others) + 1
    assert all(len(text) == 32 for text in prints)
