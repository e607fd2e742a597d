"""Duplicate rows are counted the same however shards and hashes are cut."""

import json
from pathlib import Path
from typing import Any

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


def also_said(folder: Path, settings: dict[str, Any] | None = None, **corpora: np.ndarray) -> str:
    """Return what the verdict of a job on a corpus and its reference says beside the evidence."""
    fields = {
        "name": "remarks",
        "output": str(folder / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine"], "orders": [1]}},
        "cluster": {"kind": "serial"},
        **(settings or {}),
    }
    for role, rows in corpora.items():
        np.save(folder / f"{role}.npy", rows.astype("f4"))
        source, target = str(folder / f"{role}.npy"), str(folder / f"{role}.zarr")
        fields[role] = ingest([source], target, shard_bytes=1200).url
    (folder / "job.yaml").write_text(json.dumps(fields))
    verdict = run_here(folder / "job.yaml").results.verdict
    assert verdict is not None
    return verdict.also or ""


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (1.2, None),
        (1.4, "Rows of the corpus are 1.4 times as long as those of the reference on average; "),
        (0.4, "Rows of the reference are 2.5 times as long as those of the corpus on average; "),
        (300.0, "Rows of the corpus are 300 times as long as those of the reference on average; "),
    ],
)
def test_the_verdict_says_that_rows_have_another_length(
    tmp_path: Path, scale: float, said: str | None
) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 300, 8))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    also = also_said(tmp_path, corpus=scale * rows[0], reference=rows[1])
    remark = "check that both are scaled alike, or both normalised."
    assert also.endswith(f"{said}{remark}" if said else "four times in five.")


@pytest.mark.parametrize("copies", [1, 2])
def test_the_verdict_says_that_the_reference_has_many_copies(tmp_path: Path, copies: int) -> None:
    rows = np.repeat(np.random.default_rng(0).normal(size=(2, 300, 8)), copies, axis=1)
    also = also_said(tmp_path, corpus=rows[0], reference=rows[1])
    said = (
        "300 of the reference's 600 rows repeat an earlier one. What is expected by chance holds "
        "if its source repeats rows in this way by chance; if they were copied, compare without "
        "copies."
    )
    assert (said in also) == (copies == 2)


def test_the_verdict_asks_whether_one_model_made_corpora_that_lie_apart(tmp_path: Path) -> None:
    rows = np.abs(np.random.default_rng(0).normal(size=(400, 24)))
    settings: dict[str, Any] = {"measures": {"duplicates": {}}}
    said = also_said(tmp_path, settings, corpus=rows, reference=-rows)
    assert "Nearly all rows of each corpus lie far from the other one. If two models" in said
    alike = tmp_path / "alike"
    alike.mkdir()
    assert "lie far" not in also_said(alike, settings, corpus=rows[:200], reference=rows[200:])
    # Of rows that repeat, the nearest others are at distance 0, and all further ones are outliers.
    twice = tmp_path / "twice"
    twice.mkdir()
    near = np.repeat(np.random.default_rng(3).normal(size=(2, 400, 3)), 2, axis=1)
    assert "lie far" not in also_said(twice, settings, corpus=near[0], reference=near[1])
