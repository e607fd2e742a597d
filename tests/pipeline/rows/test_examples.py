"""Rows to look at: their labels, and which of them stay."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.repeated_ids import hash_ids
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.rows.examples import rows_to_look_at
from tests.conftest import Ended
from tests.support.jobs import run_here

Command = Callable[..., Ended]


def test_it_says_which_labels_have_the_rows(tmp_path: Path, latentscale: Command) -> None:
    """Of three labels and some rows without, one has all the copies; no other has its outliers."""
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(180, 8)).astype("f4")
    labels = np.array(["news", "mail", "code"])[np.arange(180) % 3]
    labels[170:] = ""
    (mail,) = np.nonzero(labels == "mail")
    rows[mail[20:]] = rows[mail[0]] + generator.normal(size=(len(mail) - 20, 8)) * 1e-4
    rows[[0, 1, 2]] *= 60
    np.save(tmp_path / "c.npy", rows)
    np.save(tmp_path / "labels.npy", labels)
    ended = latentscale(
        *("run", tmp_path / "c.npy", "--labels", tmp_path / "labels.npy", "-o", "group_by=labels"),
        *("--measures", "duplicates,vendi", "--output", tmp_path / "jobs"),
    )
    assert ended.code == 0, ended.err
    folder = next((tmp_path / "jobs").glob("c-*"))
    results = read_job(str(folder)).results
    near = next(each for each in results.rows or () if each.reason == "near-duplicates")
    count = len(mail) - 20
    assert [each.model_dump() for each in near.labels or ()] == [
        {"label": "mail", "count": count, "rows": len(mail)}
    ]
    said = f"more than by chance in mail ({count} of {len(mail)} rows)"
    assert f"Nearly the same as a row that stays: {said}" in ended.out.splitlines()
    assert said in (folder / "report.html").read_text()
    # The labels that were measured by themselves stand in a table, the largest first.
    lines = [re.split(r" {2,}", line) for line in ended.out.splitlines()]
    heading = lines.index(["label", "rows", "Near-duplicates", "Vendi score, cosine, order 1"])
    assert [line[:2] for line in lines[heading + 1 : heading + 4]] == [
        ["mail", "57"],
        ["news", "57"],
        ["code", "56"],
    ]
    shares = {line[0]: line[2] for line in lines[heading + 1 : heading + 4]}
    assert shares["code"].startswith("0 ± ")
    # All copies and the row that they repeat are near another one.
    assert shares["mail"].startswith(f"{100 * (count + 1) / 57:.1f} ± ")
    # Without a reference, too, rows that repeat others can go.
    assert f"rows     latentscale rows {folder} --only near-duplicates" in ended.out
    clean = f"{folder.name}-clean.zarr --without near-duplicates"
    assert f"latentscale subset {folder} {clean}" in ended.out


def test_it_says_which_row_stays_if_that_is_not_the_nearest(
    tmp_path: Path, latentscale: Command
) -> None:
    """Rows 8 and 9 are nearest to each other, and both go for row 2."""
    rows = np.random.default_rng(2).normal(size=(40, 6)).astype("f4")
    rows[[8, 9]] = rows[2] + np.array([[0.02] * 6, [0.021] * 6])
    np.save(tmp_path / "c.npy", rows)
    ended = latentscale(
        *("run", tmp_path / "c.npy", "--measures", "duplicates", "--output", tmp_path / "jobs"),
        *("-o", "measures.duplicates={metric: euclidean, within: 0.1}"),
    )
    assert ended.code == 0, ended.err
    folder = next((tmp_path / "jobs").glob("c-*"))
    (near,) = (
        each
        for each in read_job(str(folder)).results.rows or ()
        if each.reason == "near-duplicates"
    )
    assert {(each.row, each.other, each.stays) for each in near.rows} == {(8, 9, 2), (9, 8, 2)}
    page = (folder / "report.html").read_text()
    assert "nearly the same as row 9; row 2 stays" in page
    assert "lies within 0.1 (euclidean)" in ended.out


def test_dense_rows_are_not_called_copies(tmp_path: Path, latentscale: Command) -> None:
    """Most rows of few dimensions have one nearby; a corpus of copies looks otherwise."""
    generator = np.random.default_rng(0)
    dense = generator.normal(size=(4, 8))[generator.integers(4, size=300)] * 3
    dense += 0.7 * generator.normal(size=(300, 8))
    copies = generator.normal(size=(60, 8))[generator.integers(60, size=300)]
    copies += 1e-3 * generator.normal(size=(300, 8))
    coarse = "a smaller measures.duplicates.within tells these apart"
    for name, rows in (("dense", dense), ("copies", copies)):
        np.save(tmp_path / f"{name}.npy", rows.astype("f4"))
        ended = latentscale(
            *("run", tmp_path / f"{name}.npy", "--measures", "duplicates"),
            *("--output", tmp_path / "jobs"),
        )
        assert ended.code == 0, ended.err
        assert (coarse in ended.out) == (name == "dense")
        assert (" can go: an earlier row" in ended.out) == (name == "copies")
        assert ("--without near-duplicates" in ended.out) == (name == "copies")
    np.save(tmp_path / "other.npy", generator.normal(size=(300, 8)).astype("f4"))
    ended = latentscale(
        *("run", tmp_path / "dense.npy", "--reference", tmp_path / "other.npy"),
        *("--measures", "duplicates", "--output", tmp_path / "jobs"),
    )
    assert "DIFFERS FROM THE REFERENCE" in ended.out
    assert coarse in ended.out
    assert "--without near-duplicates" not in ended.out


def test_labels_are_counted_among_the_rows_that_were_looked_at(tmp_path: Path) -> None:
    """Of random rows, and of the new rows of a comparison."""
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(600, 6)).astype("f4")
    rows[500:] *= 30
    (tmp_path / "labels.txt").write_text("".join(f"{'ab'[i >= 500]}\n" for i in range(600)))
    (tmp_path / "ids.txt").write_text("".join(f"{i}\n" for i in range(600)))
    np.save(tmp_path / "c.npy", rows)
    np.save(tmp_path / "r.npy", generator.normal(size=(600, 6)).astype("f4"))
    named = {name: str(tmp_path / f"{name}.txt") for name in ("ids", "labels")}
    url = ingest([str(tmp_path / "c.npy")], str(tmp_path / "c.zarr"), **named).url
    described = {
        "name": "sampled",
        "corpus": url,
        "reference": str(tmp_path / "r.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {
            "duplicates": {
                "metric": "euclidean",
                "within": 0.01,
                "neighbours": "exact",
                "rows": 200,
            }
        },
        "budget": {"pairs": 300_000},
        "cluster": {"kind": "serial"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(described))
    finished = run_here(tmp_path / "job.yaml")
    job = read_job(finished.store.url)
    part = job.results.measures["duplicates"]
    assert part.corpus.rows == 200
    far = next(each for each in job.results.rows or () if each.reason == "outliers")
    (label,) = far.labels or ()
    assert label.label == "b"
    assert label.rows <= 60, "of 100 rows of the corpus, a third was looked at"
    assert label.count >= 0.8 * label.rows
    # Where all rows with label a are known already, all new rows have label b.
    corpus = open_corpus(url)
    (known,) = hash_ids([corpus.texts("ids")[:500]])
    again = rows_to_look_at(job, {"corpus": corpus}, np.unique(known)) or []
    assert all(each.labels is None for each in again)
