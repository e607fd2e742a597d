"""Duplicate rows are counted the same however shards and hashes are cut."""

import json
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.corpus.ingest.create import ingest
from tests.support.jobs import run_here

DUPLICATES = "latentscale_pipeline.measures.shared.duplicate_count"


@pytest.mark.parametrize(("group_bytes", "shards"), [(None, 16), (48 * 300, 2), (48 * 40, 1)])
def test_duplicates_are_counted_in_groups_of_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int | None, shards: int
) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(1000, 3)).astype("f4")
    rows[generator.choice(1000, 300, replace=False)] = rows[5]
    rows[::7] = rows[1::7][: len(rows[::7])]
    rows[10], rows[11] = (1.0, 0.0, 0.0), (1.0, -0.0, 0.0)
    expected = 1000 - len({tuple(row) for row in rows.tolist()})
    np.save(tmp_path / "rows.npy", rows)
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c.zarr"), shard_bytes=1200)
    monkeypatch.setattr(f"{DUPLICATES}.SHARDS_PER_TASK", shards)
    if group_bytes:
        monkeypatch.setattr(f"{DUPLICATES}.GROUP_BYTES", group_bytes)
    config = tmp_path / "job.yaml"
    fields = {
        "name": "duplicates",
        "corpus": corpus.url,
        "output": str(tmp_path / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine"], "orders": [1]}},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(fields))
    assert run_here(config).results.document()["corpora"]["corpus"]["duplicates"] == expected


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (1.4, None),
        (0.4, "Rows of the reference are 2.5 times as long as those of the corpus on average; "),
        (300.0, "Rows of the corpus are 300 times as long as those of the reference on average; "),
    ],
)
def test_the_verdict_says_that_rows_have_another_length(
    tmp_path: Path, scale: float, said: str | None
) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 300, 8)).astype("f4")
    urls = {}
    for role, of_role, by in zip(("corpus", "reference"), rows, (scale, 1.0), strict=True):
        unit = by * of_role / np.linalg.norm(of_role, axis=1, keepdims=True)
        np.save(tmp_path / f"{role}.npy", unit.astype("f4"))
        target = str(tmp_path / f"{role}.zarr")
        urls[role] = ingest([str(tmp_path / f"{role}.npy")], target, shard_bytes=1200).url
    fields = {
        "name": "lengths",
        **urls,
        "output": str(tmp_path / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine"], "orders": [1]}},
        "cluster": {"kind": "serial"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(fields))
    verdict = run_here(tmp_path / "job.yaml").results.verdict
    assert verdict is not None
    remark = "check that both are scaled alike, or both normalised."
    assert (verdict.also or "").endswith(f"{said}{remark}" if said else "four times in five.")


@pytest.mark.parametrize("copies", [1, 2])
def test_the_verdict_says_that_the_reference_has_many_copies(tmp_path: Path, copies: int) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 300, 8)).astype("f4")
    urls = {}
    for role, of_role in zip(("corpus", "reference"), rows, strict=True):
        np.save(tmp_path / f"{role}.npy", np.repeat(of_role, copies, axis=0))
        urls[role] = ingest([str(tmp_path / f"{role}.npy")], str(tmp_path / f"{role}.zarr")).url
    fields = {
        "name": "copies",
        **urls,
        "output": str(tmp_path / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine"], "orders": [1]}},
        "cluster": {"kind": "serial"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(fields))
    verdict = run_here(tmp_path / "job.yaml").results.verdict
    assert verdict is not None
    said = (
        "300 of the reference's 600 rows repeat an earlier one. What is expected by chance holds "
        "if its source repeats rows in this way by chance; if they were copied, compare without "
        "copies."
    )
    assert (said in (verdict.also or "")) == (copies == 2)
