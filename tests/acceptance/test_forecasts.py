"""The bytes that ``plan`` foresees of a small job, against all that its processes write."""

from pathlib import Path

import pytest

from tests.acceptance.forecasts import Shape, compare


def test_bytes_are_foreseen(tmp_path: Path) -> None:
    measures = {"heat": {"neighbours": "cells"}, "vendi": {"kernels": ["cosine"]}}
    found = compare(tmp_path, Shape("small", 10_000, 16, measures))
    for name in ("written_bytes", "peak_bytes", "kept_bytes"):
        planned, happened = found[name]
        assert planned == pytest.approx(happened, rel=0.25), name
    assert found["peak_bytes"][1] < 0.7 * found["written_bytes"][1]
