"""Rows that a corpus gained and lost since the baseline, by their ids."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.compare.rows_changed import RowChanges, count_changes
from latentscale_pipeline.corpus.ingest.create import ingest
from tests.conftest import Ended
from tests.support.comparisons import SETTINGS, results, row
from tests.support.results_documents import finished_job


def corpus_of(folder: Path, name: str, ids: list[str] | None) -> Any:
    """Ingest a corpus of some ids, and return it."""
    count = 5 if ids is None else len(ids)
    np.save(folder / f"{name}.npy", np.random.default_rng(count).normal(size=(count, 3)))
    settings = {}
    if ids is not None:
        (folder / f"{name}.txt").write_text("".join(f"{one}\n" for one in ids))
        settings["ids"] = str(folder / f"{name}.txt")
    return ingest([str(folder / f"{name}.npy")], str(folder / f"{name}.zarr"), **settings)


def job_on(corpus: Any, name: str, **changes: Any) -> Any:
    document = results([row(1.0)], name=name, n=corpus.n, fingerprint=corpus.fingerprint)
    document["corpora"]["corpus"] |= {"uri": corpus.url, **changes}
    return finished_job(document, SETTINGS, f"jobs/{name}-1a2b3c4d")


def test_ids_are_counted_by_where_they_are(tmp_path: Path) -> None:
    before = corpus_of(tmp_path, "before", [f"id-{i}" for i in range(100)] + ["ä", "猫"])
    after = corpus_of(tmp_path, "after", ["猫", *(f"id-{i}" for i in range(30, 140))])
    changes = count_changes(job_on(after, "nightly"), job_on(before, "release"))
    assert changes == RowChanges(added=40, removed=31, kept=71)
    assert str(changes) == "40 rows added, 31 removed, 71 kept, by their ids"
    same = count_changes(job_on(before, "nightly"), job_on(before, "release"))
    assert same == RowChanges(0, 0, 102)


@pytest.mark.parametrize(
    "changes", [{"uri": "nowhere.zarr"}, {"fingerprint": "f00d"}, {"uri": None}]
)
def test_a_corpus_that_is_not_there_any_more_is_not_counted(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    corpus = corpus_of(tmp_path, "rows", ["a", "b"])
    assert count_changes(job_on(corpus, "nightly", **changes), job_on(corpus, "release")) is None


def test_rows_without_ids_are_not_counted(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "rows", None)
    assert count_changes(job_on(corpus, "nightly"), job_on(corpus, "release")) is None


def test_ids_that_repeat_are_not_counted(tmp_path: Path) -> None:
    twice = corpus_of(tmp_path, "twice", ["a", "b", "a"])
    once = corpus_of(tmp_path, "once", ["a", "b"])
    assert count_changes(job_on(twice, "nightly"), job_on(once, "release")) is None


def test_every_view_says_what_changed(tmp_path: Path, latentscale: Any) -> None:
    folders = []
    for name, first in (("release", 0), ("nightly", 3)):
        corpus = corpus_of(tmp_path, name, [f"id-{i}" for i in range(first, first + 10)])
        found = job_on(corpus, name)
        folder = tmp_path / f"{name}-1a2b3c4d"
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(found.results.document()))
        (folder / "config.json").write_text(json.dumps(SETTINGS))
        folders.append(folder)
    release, nightly = folders
    said = "3 rows added, 3 removed, 7 kept, by their ids"
    ended: Ended = latentscale("compare", nightly, release)
    assert f"rows      {said}\n" in ended.out
    assert f"\n{said}." in latentscale("compare", nightly, release, "--markdown", "-").out
    document = json.loads(latentscale("compare", nightly, release, "--json").out)
    assert document["rows"] == {"added": 3, "removed": 3, "kept": 7}
    assert f"{said}." in latentscale("report", nightly, release).out
