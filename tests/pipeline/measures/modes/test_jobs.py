"""Modes through a job: as defined, a planted kind of rows, and the rows that are named."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.jobs import results_of, run_here


def run(folder: Path, corpus: np.ndarray, reference: np.ndarray, keys: str = "") -> Any:
    folder.mkdir()
    text = f"name: m\noutput: {folder}\ncluster: {{kind: serial}}\n"
    text += f"measures: {{modes: {{{keys}}}}}\n"
    for role, rows in (("corpus", corpus), ("reference", reference)):
        np.save(folder / f"{role}.npy", rows.astype("f4"))
        text += f"{role}: {folder}/{role}.npy\n"
    (folder / "job.yaml").write_text(text)
    run_here(folder / "job.yaml")
    return results_of(folder)


def kinds(generator: np.random.Generator, n: int, shares: list[float]) -> Any:
    """Rows around orthogonal directions, and the direction of each."""
    chosen = generator.choice(len(shares), size=n, p=shares)
    return np.eye(len(shares))[chosen] + 0.05 * generator.normal(size=(n, len(shares))), chosen


def test_they_are_eigenvectors_and_name_their_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    corpus, ours = kinds(generator, 900, [0.4, 0.1, 0.2, 0.2, 0.1])
    reference, theirs = kinds(generator, 700, [0.2, 0.3, 0.2, 0.2, 0.1])
    results = run(tmp_path / "job", corpus, reference, "count: 2, examples: 20")
    found = results["measures"]["modes"]
    unit = [
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (each.astype("f4").astype(float) for each in (corpus, reference))
    ]
    difference = unit[0].T @ unit[0] / 900 - unit[1].T @ unit[1] / 700
    values, directions = np.linalg.eigh(difference)
    novel, missing = found["novel"], found["missing"]
    assert [mode["value"] for mode in novel] == pytest.approx(values[::-1][:2], abs=1e-12)
    assert missing[0]["value"] == pytest.approx(-values[0], abs=1e-12)
    assert novel[0]["corpus"] - novel[0]["reference"] == pytest.approx(values[-1], abs=1e-12)
    cosines = np.abs(unit[0] @ directions[:, -1])
    assert [row["row"] for row in novel[0]["rows"]] == np.argsort(-cosines)[:20].tolist()
    assert novel[0]["rows"][0]["cosine"] == pytest.approx(cosines.max(), abs=1e-12)
    assert {ours[row["row"]] for row in novel[0]["rows"]} == {0}
    assert {theirs[row["row"]] for row in missing[0]["rows"]} == {1}
    gained, lost = results["scores"]
    for row, place, mode in ((gained, -1, novel[0]), (lost, 0, missing[0])):
        value = abs(values[place])
        assert row["value"] == pytest.approx(value, abs=1e-12)
        squares = [(rows @ directions[:, place]) ** 2 for rows in unit]
        error = np.sqrt(sum(each.var() / len(each) for each in squares))
        assert row["sampling_error"] == mode["sampling_error"] == pytest.approx(error, rel=0.5)
        assert row["expected"]["p"] == 0.001
        assert row["expected"]["upper"] < value
    assert results["verdict"]["value"] == "differs"


def test_samples_of_one_source_and_a_corpus_beside_itself(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    corpus, _ = kinds(generator, 300, [0.25] * 4)
    reference, _ = kinds(generator, 250, [0.25] * 4)
    results = run(tmp_path / "samples", corpus, reference)
    assert all(row["expected"]["p"] > 0.01 for row in results["scores"])
    twice = np.concatenate([corpus, corpus])
    for name, others, kernels in (("itself", corpus, "cosine"), ("twice", twice, "rbf")):
        same = run(tmp_path / name, others, corpus, f"kernels: [{kernels}]")["scores"]
        assert all(row["value"] == pytest.approx(0.0, abs=1e-15) for row in same)
        assert all(row["lower"] <= 0.0 <= row["upper"] < 1e-12 for row in same)
        assert all(row["expected"]["p"] > 0.5 for row in same)


def test_rows_are_told_by_their_numbers_and_texts(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    rows, _ = kinds(generator, 300, [0.6, 0.2, 0.2])
    others, _ = kinds(generator, 300, [0.2, 0.2, 0.6])
    verdict = run(tmp_path / "numbers", rows, others)["verdict"]
    named = r"\(cosine\) is that of rows like \d+, \d+, \d+ of the corpus\."
    assert re.search(named, verdict["also"])
    alike, _ = kinds(generator, 300, [0.2, 0.2, 0.6])
    assert run(tmp_path / "alike", alike, others)["verdict"].get("also") is None


def test_corpora_of_unlike_sizes_of_one_source_do_not_differ(tmp_path: Path) -> None:
    """Of the larger one as many random rows take part in the test as the other one has."""
    found = []
    for seed in range(12):
        generator = np.random.default_rng([5, seed])
        corpus, reference = generator.normal(size=(300, 8)), generator.normal(size=(5000, 8))
        results = run(tmp_path / str(seed), corpus, reference)
        found += [row["expected"]["p"] for row in results["scores"]]
        assert 200 < results["scores"][0]["expected"]["rows"] <= 300
    assert min(found) > 0.005
    assert np.mean(np.array(found) < 0.1) < 0.4


def test_rows_have_ids_labels_and_texts(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from latentscale_pipeline.report.job import job_report
    from latentscale_pipeline.report.markdown import format_markdown
    from tests.support.results_documents import read

    generator = np.random.default_rng(2)
    names = np.array(["cats", "dogs", "<b>birds</b>"])
    for role, shares in (("corpus", [0.6, 0.2, 0.2]), ("reference", [0.2, 0.2, 0.6])):
        rows, chosen = kinds(generator, 400, shares)
        columns = {
            "id": [f"{role}-{row}" for row in range(len(rows))],
            "label": names[chosen],
            "text": [f"about {name}" for name in names[chosen]],
            "vector": pa.array(list(rows.astype("f4")), pa.list_(pa.float32())),
        }
        parquet.write_table(pa.table(columns), tmp_path / f"{role}.parquet")
    (tmp_path / "job.yaml").write_text(
        f"name: m\noutput: {tmp_path}/jobs\ncluster: {{kind: serial}}\nmeasures: {{modes: {{}}}}\n"
        f"corpus: {tmp_path}/corpus.parquet\nreference: {tmp_path}/reference.parquet\n"
    )
    run_here(tmp_path / "job.yaml")
    results = results_of(tmp_path / "jobs")
    [mode, *_] = results["measures"]["modes"]["novel"]
    assert {row["label"] for row in mode["rows"]} == {"cats"}
    assert all(row["id"] == f"corpus-{row['row']}" for row in mode["rows"])
    [mode, *_] = results["measures"]["modes"]["missing"]
    assert {row["label"] for row in mode["rows"]} == {"<b>birds</b>"}
    assert {row["text"] for row in mode["rows"]} == {"about <b>birds</b>"}
    first, second, third = (row["id"] for row in mode["rows"][:3])
    assert results["verdict"]["also"].endswith(
        f"The largest missing mode (cosine) is that of rows like {first}, {second}, {third} "
        "(10 of 10 labelled <b>birds</b>) of the reference."
    )
    page = format_markdown(job_report(read(results)))
    assert "cats (10 of 10)" in page
    assert "<b>birds" not in page


def test_the_rbf_kernel_finds_kinds_by_their_place(tmp_path: Path) -> None:
    """The kernel of all rows is inside of the interval, and another job takes the bandwidth."""
    from scipy.spatial.distance import cdist

    generator = np.random.default_rng(3)
    corpus, ours = kinds(generator, 240, [0.4, 0.1, 0.5])
    reference, theirs = kinds(generator, 200, [0.1, 0.4, 0.5])
    for rows, kind in ((corpus, ours), (reference, theirs)):
        rows[kind == 0] *= 3.0
        rows[kind == 1, :2] = rows[kind == 1, 1::-1]  # in the direction of the first kind
    results = run(tmp_path / "job", corpus, reference, "kernels: [cosine, rbf], bandwidth: 0.5")
    found = results["measures"]["modes"]
    assert found["bandwidth"] == 0.5
    assert [row["kernel"] for row in results["scores"]] == ["cosine"] * 2 + ["rbf 0.5"] * 2
    rows = np.concatenate([corpus, reference]).astype("f4")
    values, vectors = np.linalg.eigh(np.exp(-cdist(rows, rows, "sqeuclidean") / 0.5))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    weights = np.concatenate([np.full(240, 1.0 / 240), np.full(200, -1.0 / 200)])
    true = np.linalg.eigvalsh((root * weights) @ root)
    for row, value in zip(results["scores"][2:], (true[-1], -true[0]), strict=True):
        assert row["bounds"] == "interval95"
        assert row["lower"] <= value <= row["upper"]
        assert row["upper"] - row["lower"] < 0.2 * value
        assert row["expected"]["p"] <= 0.003
    novel, missing = (
        next(mode for mode in found[kind] if mode["kernel"] == "rbf")
        for kind in ("novel", "missing")
    )
    assert {ours[row["row"]] for row in novel["rows"]} == {0}
    assert {theirs[row["row"]] for row in missing["rows"]} == {1}
    assert results["scores"][0]["value"] < 0.4 * results["scores"][2]["value"]


def test_the_bandwidth_is_the_median_distance_or_has_a_reason(tmp_path: Path) -> None:
    from scipy.spatial.distance import pdist

    generator = np.random.default_rng(4)
    rows = generator.normal(size=(200, 5))
    results = run(tmp_path / "median", rows[:100], rows[100:], "kernels: [rbf], count: 1")
    bandwidth = results["measures"]["modes"]["bandwidth"]
    assert bandwidth == pytest.approx(np.median(pdist(rows[100:].astype("f4"))), rel=1e-6)
    equal = run(tmp_path / "equal", rows[:100], np.ones((100, 5)), "kernels: [rbf]")
    assert equal["measures"]["modes"] == {"novel": [], "missing": []}
    assert all("so it can't be a bandwidth" in row["reason"] for row in equal["scores"])


def test_few_rows_say_why(tmp_path: Path) -> None:
    rows = np.eye(4)[np.arange(99) % 4]
    results = run(tmp_path / "few", np.concatenate([rows, rows]), rows)
    assert results["measures"] == {
        "modes": None,
        "modes_reason": "the reference has fewer than 100 rows",
    }
    assert {row["reason"] for row in results["scores"]} == {"the reference has fewer than 100 rows"}
