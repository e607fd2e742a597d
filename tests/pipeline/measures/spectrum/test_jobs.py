"""The spectrum through a job: as defined, however rows are stored, with labels and edge cases."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ingest
from tests.support.jobs import measure_rows, run_here


def run(folder: Path, job: str = "", **given: Any) -> Any:
    return measure_rows(folder, "spectrum: {}", job=job, **given)


def drawn(seed: int, n: int, power: float = 0.5) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(n, 24)) / np.arange(1, 25) ** power).astype("f4")


def values(results: Any, of: str = "corpus") -> dict[str, Any]:
    return {row["score"]: row for row in results["scores"] if row["of"] == of}


def test_scores_equal_their_formulas(tmp_path: Path) -> None:
    rows = drawn(0, 900).astype(float) + 0.3
    results = run(tmp_path / "job", corpus=rows)
    rows = rows.astype("f4").astype(float)
    found = values(results)
    variances = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    shares = variances / variances.sum()
    singular = np.linalg.svd(rows, compute_uv=False)
    singular /= singular.sum()
    lengths = np.linalg.norm(rows, axis=1)
    expected = {
        "effective rank": np.exp(-(shares * np.log(shares)).sum()),
        "participation ratio": 1.0 / (shares**2).sum(),
        "RankMe": np.exp(-(singular * np.log(singular)).sum()),
        "IsoScore": (1.0 / (shares**2).sum() - 1.0) / 23.0,
        "first component": shares[0],
        "mean length": lengths.mean(),
        "length variation": lengths.std() / lengths.mean(),
    }
    for name, value in expected.items():
        assert found[name]["value"] == pytest.approx(value, rel=1e-9)
        assert found[name]["lower"] <= value <= found[name]["upper"]
        assert found[name]["bounds"] == "exact"
    error = lengths.std() / np.sqrt(900)
    assert found["mean length"]["sampling_error"] == pytest.approx(error, rel=0.5)
    for name in ("effective rank", "participation ratio"):
        assert found[f"{name} corrected"]["value"] > found[name]["value"]
        assert found[f"{name} corrected"]["bounds"] == "estimate"
        assert found[f"{name} corrected"]["size_dependent"] is False
    part = results["measures"]["spectrum"]["corpus"]
    cumulative = np.cumsum(shares)
    assert part["shares"] == pytest.approx(cumulative[np.array(part["components"]) - 1])
    assert part["components_90"] == np.searchsorted(cumulative, 0.9) + 1
    assert sum(part["lengths"]["counts"]) == 900
    assert (
        part["lengths"]["edges"][0]
        <= lengths.min()
        <= lengths.max()
        <= part["lengths"]["edges"][-1]
    )


def test_the_order_of_rows_changes_no_error(tmp_path: Path) -> None:
    """Rows of a corpus are often sorted, by kind or by time."""
    generator = np.random.default_rng(4)
    kinds = np.sort(generator.integers(10, size=3000))
    rows = 3 * generator.normal(size=(10, 12))[kinds] + generator.normal(size=(3000, 12))
    rows = rows * (1 + kinds[:, None] / 10)
    ordered = values(run(tmp_path / "ordered", corpus=rows))
    mixed = values(run(tmp_path / "mixed", corpus=generator.permutation(rows)))
    for name in ("effective rank", "mean length", "IsoScore"):
        errors = ordered[name]["sampling_error"], mixed[name]["sampling_error"]
        assert 0.5 < errors[0] / errors[1] < 2.0, name
    lengths = np.linalg.norm(rows, axis=1)
    for found in (ordered, mixed):
        error = found["mean length"]["sampling_error"]
        assert error == pytest.approx(lengths.std() / np.sqrt(3000), rel=0.5)


def test_shards_change_nothing(tmp_path: Path) -> None:
    """Groups of rows depend on their places, also where rows were appended."""
    rows = drawn(1, 3000)
    whole = values(run(tmp_path / "whole", corpus=rows))
    cut = values(run(tmp_path / "cut", shard_bytes=20_000, corpus=rows))
    np.save(tmp_path / "first.npy", rows[:1111])
    np.save(tmp_path / "rest.npy", rows[1111:])
    url = ingest([str(tmp_path / "first.npy")], str(tmp_path / "grown.zarr"), shard_bytes=1).url
    append([str(tmp_path / "rest.npy")], url)
    (tmp_path / "job.yaml").write_text(
        f"name: j\noutput: {tmp_path / 'jobs'}\ncluster: {{kind: serial}}\ncorpus: {url}\n"
        "measures: {spectrum: {}}\n"
    )
    grown = values(run_here(tmp_path / "job.yaml").results.document())
    for found in (cut, grown):
        for name, row in whole.items():
            for key in ("value", "sampling_error"):
                assert found[name][key] == pytest.approx(row[key], rel=1e-8), (name, key)


def test_a_collapse_and_longer_rows_are_found(tmp_path: Path) -> None:
    results = run(tmp_path / "flat", corpus=drawn(2, 1500, 1.5), reference=drawn(3, 1500))
    assert results["verdict"]["value"] == "differs"
    row = values(results)["effective rank"]["expected"]
    assert row["p"] < 0.001
    assert row["lower"] > values(results)["effective rank"]["value"]
    results = run(tmp_path / "long", corpus=1.05 * drawn(2, 1500), reference=drawn(3, 1500))
    found = values(results)
    assert found["mean length"]["expected"]["p"] < 0.01
    assert found["effective rank"]["expected"]["p"] > 0.01


def test_two_samples_of_one_source_do_not_differ(tmp_path: Path) -> None:
    found = []
    for seed in range(5):
        results = run(
            tmp_path / str(seed), corpus=drawn(10 + seed, 700), reference=drawn(90 + seed, 900)
        )
        found += [
            values(results)[name]["expected"]["p"] for name in ("effective rank", "mean length")
        ]
    assert min(found) > 0.002
    assert np.mean(np.array(found) < 0.1) < 0.4


def test_degenerate_corpora_say_why(tmp_path: Path) -> None:
    found = values(run(tmp_path / "equal", corpus=np.full((50, 3), 0.5)))
    assert found["effective rank"]["reason"] == "all rows are equal: nothing varies"
    assert found["effective rank corrected"]["reason"] == "all rows are equal: nothing varies"
    assert found["RankMe"]["value"] == pytest.approx(1.0)
    assert found["mean length"]["value"] == pytest.approx(0.75**0.5)
    found = values(run(tmp_path / "zero", corpus=np.zeros((50, 3))))
    assert found["RankMe"]["reason"] == found["length variation"]["reason"] == "all rows are zero"
    found = values(run(tmp_path / "one", corpus=np.array([[3.0, 4.0]])))
    assert found["effective rank"]["reason"] == "there is only one row: nothing varies"
    assert found["mean length"]["value"] == 5.0
    found = values(run(tmp_path / "narrow", corpus=np.arange(60.0)[:, None]))
    assert found["effective rank"]["value"] == 1.0
    assert "one dimension" in found["IsoScore"]["reason"]
    found = values(run(tmp_path / "few", corpus=drawn(4, 30)))
    assert "40 rows" in found["effective rank corrected"]["reason"]
    assert found["effective rank"]["sampling_error"] is None


def test_corpora_of_other_dimensions_and_labels_are_measured(tmp_path: Path) -> None:
    results = run(tmp_path / "unlike", corpus=drawn(5, 300), reference=drawn(6, 400)[:, :10])
    assert values(results, "reference")["effective rank"]["value"] < 10
    rows = np.concatenate([drawn(7, 200), drawn(8, 300, 2.0)])
    np.savetxt(tmp_path / "labels.txt", ["wide"] * 200 + ["flat"] * 300, fmt="%s")
    results = run(
        tmp_path / "labelled",
        "group_by: labels\n",
        labels=str(tmp_path / "labels.txt"),
        corpus=rows,
    )
    found = {
        row["label"]: row["value"]
        for row in results["scores"]
        if row["score"] == "effective rank" and row.get("label")
    }
    assert found["wide"] > 2.0 * found["flat"]


def test_how_rows_were_normalised_makes_no_difference(tmp_path: Path) -> None:
    """Unit rows in half and in single precision have mean lengths apart by rounding alone."""
    corpus, reference = (drawn(seed, 400).astype(float) for seed in (1, 2))
    units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (corpus, reference)]
    halves = units[0].astype("f2").astype("f4")
    results = run(tmp_path / "same", corpus=halves, reference=units[1].astype("f4"))
    expected = values(results)["mean length"]["expected"]
    assert (expected["p"], expected["z"]) == (1.0, 0.0)
    assert expected["smallest_found"] >= 1e-3
    assert expected["lower"] < 0.9995 < 1.0005 < expected["upper"]
    assert results["verdict"]["value"] == "no_difference_found"
    assert "Mean length" not in results["verdict"]["also"]
    longer = run(tmp_path / "longer", corpus=1.002 * units[0], reference=units[1])
    assert values(longer)["mean length"]["expected"]["p"] < 1e-6
