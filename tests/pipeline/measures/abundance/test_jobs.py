"""Abundance through a job: a kind that is gone, its rows, and what small or large corpora give."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.spatial.distance
from pyarrow import parquet

from latentscale_pipeline.report.job import job_report
from latentscale_pipeline.report.markdown import format_markdown
from latentscale_pipeline.report.verdict import clean_commands, look_commands
from tests.conftest import Ended
from tests.support.jobs import results_of, run_here
from tests.support.results_documents import read

NAMES = np.array(["cats", "dogs", "<b>birds</b>"])


def write(folder: Path, shares: dict[str, list[float]], rows: int = 500, seed: int = 0) -> Any:
    """Write corpora of three kinds of rows with ids, labels and texts."""
    generator = np.random.default_rng(seed)
    vectors = {}
    for role, own in shares.items():
        kinds = generator.choice(3, size=rows, p=own)
        vectors[role] = (6.0 * np.eye(3)[kinds] + generator.normal(size=(rows, 3))).astype("f4")
        columns = {
            "id": [f"{role}-{row}" for row in range(rows)],
            "label": NAMES[kinds],
            "text": [f"about {name}" for name in NAMES[kinds]],
            "vector": pa.array(list(vectors[role]), pa.list_(pa.float32())),
        }
        parquet.write_table(pa.table(columns), folder / f"{role}.parquet")
    return vectors


def run(folder: Path, keys: str = "") -> Any:
    (folder / "job.yaml").write_text(
        f"name: a\noutput: {folder}/jobs\ncluster: {{kind: serial}}\n"
        f"measures: {{abundance: {{{keys}}}}}\n"
        f"corpus: {folder}/corpus.parquet\nreference: {folder}/reference.parquet\n"
    )
    run_here(folder / "job.yaml")
    return results_of(folder / "jobs")


def score(results: Any, name: str) -> Any:
    [found] = (row for row in results["scores"] if row["score"] == name)
    return found


def neighbourhood_shares(corpus: np.ndarray, reference: np.ndarray, k: int) -> np.ndarray:
    """Return the share of the corpus among the k nearest rows of every row, by brute force."""
    rows = np.concatenate([corpus, reference]).astype(float)
    distances = scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(rows))
    np.fill_diagonal(distances, np.inf)
    return (np.argsort(distances, axis=1)[:, :k] < len(corpus)).mean(axis=1)


def test_a_kind_that_is_gone_is_named_with_its_rows(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    rows = write(tmp_path, {"corpus": [0.55, 0.45, 0.0], "reference": [0.45, 0.35, 0.2]})
    results = run(tmp_path)
    found = results["measures"]["abundance"]
    assert (found["k"], found["rows"], found["share"]) == (100, [500, 500], 0.5)
    depleted, enriched = (score(results, name) for name in ("depleted", "enriched"))
    shares = neighbourhood_shares(rows["corpus"], rows["reference"], 100)
    rare = np.flatnonzero(shares[500:] <= found["low"])
    assert depleted["value"] == len(rare) / 500
    assert enriched["value"] == (shares[:500] >= found["high"]).mean()
    assert depleted["expected"]["rows"] == 500
    assert depleted["expected"]["p"] == 0.001
    assert "come and go together" in depleted["sampling_error_reason"]
    [kind, *_] = found["depleted"]
    assert kind["rows"] <= len(rare)
    assert kind["share"] < 0.05
    assert len(kind["examples"]) == 10
    assert {row["label"] for row in kind["examples"]} == {"<b>birds</b>"}
    assert all(row["id"] == f"reference-{row['row']}" for row in kind["examples"])
    first, second, third = (row["id"] for row in kind["examples"][:3])
    assert results["verdict"]["value"] == "differs"
    assert (
        f"Rows like {first}, {second}, {third} (10 of 10 labelled <b>birds</b>) of the reference "
        "are rarer in the corpus."
    ) in results["verdict"]["also"]
    page = format_markdown(job_report(read(results)))
    assert "birds&lt;/b&gt; (10 of 10)" in page or "birds\\</b\\> (10 of 10)" in page
    assert "about" in page

    [folder] = (tmp_path / "jobs").glob("a-*")
    output = tmp_path / "rare.csv"
    listed = latentscale("rows", folder, "--only", "rarer-kinds", "--output", output)
    assert listed.code == 0, listed.err
    table = list(csv.DictReader(io.StringIO(output.read_text())))
    assert {int(row["row"]) for row in table} == set(rare.tolist())
    nearby = [float(row["corpus_nearby"]) for row in table]
    assert nearby == sorted(nearby)
    assert nearby == pytest.approx([shares[500 + int(row["row"])] for row in table], abs=1e-6)
    assert latentscale("rows", folder, "--only", "more-frequent-kinds").code == 0
    results = read(results)
    assert "latentscale rows j --only rarer-kinds" in look_commands(results, "j")
    assert clean_commands(results, "j") == [], "a kind isn't left out as a whole"


def test_samples_of_one_source_do_not_differ(tmp_path: Path) -> None:
    write(tmp_path, {"corpus": [0.4, 0.3, 0.3], "reference": [0.4, 0.3, 0.3]}, seed=3)
    results = run(tmp_path)
    assert results["verdict"]["value"] == "no_difference_found"
    assert "are rarer" not in (results["verdict"].get("also") or "")


def test_kinds_are_named_only_where_the_job_differs(tmp_path: Path) -> None:
    """Not where a share is outside of its own range, but usual among all scores."""
    said = 0
    for seed in range(12):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        generator = np.random.default_rng(100 + seed)
        for role in ("corpus", "reference"):
            rows = list(generator.normal(size=(150, 3)).astype("f4"))
            table = pa.table({"vector": pa.array(rows, pa.list_(pa.float32()))})
            parquet.write_table(table, folder / f"{role}.parquet")
        results = run(folder, "k: 30")
        differs = {name for name in ("depleted", "enriched") if _differs(results, name)}
        also = results["verdict"].get("also") or ""
        assert ("are rarer in the corpus." in also) == ("depleted" in differs)
        assert ("are more frequent in it." in also) == ("enriched" in differs)
        said += bool(results["measures"]["abundance"]["depleted"])
    assert said > 0


def _differs(results: Any, name: str) -> bool:
    return bool(score(results, name)["expected"]["p_adjusted"] <= 0.05)


def test_random_rows_of_large_corpora_take_part(tmp_path: Path) -> None:
    rows = write(tmp_path, {"corpus": [0.5, 0.5, 0.0], "reference": [0.4, 0.3, 0.3]}, rows=900)
    results = run(tmp_path, "rows: 300, k: 40")
    found = results["measures"]["abundance"]
    assert (found["k"], found["rows"]) == (40, [300, 300])
    depleted = score(results, "depleted")
    assert (depleted["share_of"], depleted["expected"]["rows"]) == (300, 300)
    assert depleted["expected"]["p"] == 0.001
    [folder] = (tmp_path / "jobs").glob("a-*")
    drawn = {role: np.load(folder / results["arrays"][f"abundance/{role}/rows"]) for role in rows}
    share = np.load(folder / results["arrays"]["abundance/reference/share"])
    expected = neighbourhood_shares(*(rows[role][drawn[role]] for role in rows), 40)
    np.testing.assert_allclose(share, expected[300:], atol=1e-6)


def test_few_rows_say_why(tmp_path: Path) -> None:
    write(tmp_path, {"corpus": [0.5, 0.5, 0.0], "reference": [0.4, 0.3, 0.3]}, rows=99)
    results = run(tmp_path)
    assert results["measures"]["abundance"] is None
    assert results["measures"]["abundance_reason"] == "the corpus has fewer than 100 rows"
    assert score(results, "depleted")["value"] is None
