"""The spread through a job: any storage, random rows, shared scales and edge cases."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from scipy.spatial.distance import cdist, pdist

import latentscale
from latentscale_pipeline.corpus.ingest.create import ingest
from tests.support.jobs import measure_rows, results_of, run_here


def run(folder: Path, keys: str = "", **given: Any) -> Any:
    return measure_rows(folder, f"spread: {{{keys}}}", **given)


def kinds(seed: int, n: int, kinds: int = 8) -> np.ndarray:
    centres = np.random.default_rng(1).normal(size=(kinds, 10)) * 2.0
    rng = np.random.default_rng([2, seed])
    return centres[rng.integers(0, kinds, n)] + rng.normal(size=(n, 10))


def values(results: Any, of: str = "corpus") -> dict[str, Any]:
    return {row["kernel"]: row for row in results["scores"] if row["of"] == of}


def oracle(rows: np.ndarray, scale: float) -> float:
    rows = rows.astype("f4").astype(float)
    return float((1.0 / np.exp(-scale * cdist(rows, rows)).sum(axis=1)).sum())


def dcscore(rows: np.ndarray, temperature: float) -> float:
    unit = rows.astype("f4").astype(float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return float(np.trace(scipy.special.softmax(unit @ unit.T / temperature, axis=1)))


@pytest.mark.parametrize("shard_bytes", [10**7, 24 * 1024])
def test_scores_equal_brute_force_however_rows_are_stored(tmp_path: Path, shard_bytes: int) -> None:
    corpus, reference = kinds(3, 600), kinds(4, 500)
    corpora = {"corpus": corpus, "reference": reference}
    results = run(tmp_path / "job", "temperature: 0.2", shard_bytes=shard_bytes, **corpora)
    median = results["measures"]["spread"]["corpus"]["bandwidth"]
    assert median == pytest.approx(np.median(pdist(reference)), rel=0.01)
    for of, rows in (("corpus", corpus), ("reference", reference)):
        found = values(results, of)
        assert list(found) == ["scale 1", "scale 3", "scale 10", "τ = 0.2"]
        part = results["measures"]["spread"][of]["euclidean"]
        for scale, row in zip((1, 3, 10), part, strict=True):
            assert row["value"] == pytest.approx(oracle(rows, scale / median), rel=1e-9)
            assert row["bounds"] == "exact"
            assert found[f"scale {scale}"]["value"] == row["value"]
        assert found["τ = 0.2"]["value"] == pytest.approx(dcscore(rows, 0.2), rel=1e-9)
        assert all(0 < row["sampling_error"] < 0.05 * row["value"] for row in found.values())


def test_random_rows_have_an_interval(tmp_path: Path) -> None:
    rows, held = kinds(5, 2000), 0
    for seed in range(3):
        results = run(
            tmp_path / str(seed),
            "rows: 200",
            shard_bytes=24 * 1024,
            job=f"seed: {seed}\n",
            corpus=rows,
        )
        part = results["measures"]["spread"]["corpus"]
        assert part["rows"] == 200
        for row, scale in zip(part["euclidean"], (1, 3, 10), strict=True):
            assert row["bounds"] == "interval95"
            held += row["lower"] <= oracle(rows, scale / part["bandwidth"]) <= row["upper"]
    assert held >= 8
    budget = run(tmp_path / "budget", job="budget: {pairs: 600000}\n", corpus=rows)
    assert budget["measures"]["spread"]["corpus"]["rows"] == 300


def test_the_order_of_rows_makes_no_difference(tmp_path: Path) -> None:
    """Rows of two sources alternate, and nearly all are drawn."""
    rows = kinds(13, 502)
    rows[::2] += 5.0
    found = values(run(tmp_path / "drawn", "rows: 500", corpus=rows))
    whole = values(run(tmp_path / "whole", corpus=rows))
    for scale, row in found.items():
        assert row["sampling_error"] == pytest.approx(whole[scale]["sampling_error"], rel=0.25)


def test_fewer_kinds_are_found_and_a_sample_of_the_same_is_not(tmp_path: Path) -> None:
    fewer = run(tmp_path / "fewer", corpus=kinds(6, 800)[:, :] * 0.8, reference=kinds(7, 800))
    assert fewer["verdict"]["value"] == "differs"
    same = run(tmp_path / "same", corpus=kinds(8, 800), reference=kinds(9, 800))
    assert same["verdict"]["value"] == "no_difference_found"


def test_a_scale_may_come_from_another_job(tmp_path: Path) -> None:
    first = run(tmp_path / "first", corpus=kinds(10, 300))
    [folder] = (tmp_path / "first").glob("j-*")
    second = run(tmp_path / "second", job=f"scales_from: {folder}\n", corpus=3.0 * kinds(11, 300))
    widths = [found["measures"]["spread"]["corpus"]["bandwidth"] for found in (first, second)]
    assert widths[0] == widths[1]
    # A measure that shares the bandwidth takes it too, though that job didn't have it.
    other = tmp_path / "other"
    other.mkdir()
    np.save(other / "rows.npy", kinds(12, 300).astype("f4"))
    (other / "job.yaml").write_text(
        f"name: o\noutput: {other}\ncorpus: {other}/rows.npy\ncluster: {{kind: serial}}\n"
        f"scales_from: {folder}\nmeasures: {{vendi: {{kernels: [rbf]}}}}\n"
    )
    run_here(other / "job.yaml")
    assert results_of(other)["measures"]["vendi"]["corpus"][0]["bandwidth"] == widths[0]


def test_degenerate_corpora_say_why(tmp_path: Path) -> None:
    equal = run(tmp_path / "equal", "temperature: null", corpus=np.ones((60, 4)))
    assert [row["value"] for row in equal["scores"]] == [None] * 3
    assert equal["scores"][0]["reason"]
    far = values(run(tmp_path / "far", "scales: [3, 90]", corpus=kinds(14, 200)))
    assert far["scale 3"]["value"] > 1.0
    assert far["scale 90"]["reason"].startswith("nearly every row counts as different")
    cold = run(tmp_path / "cold", "scales: [3], temperature: 1.0e-9", corpus=kinds(14, 200))
    assert cold["scores"][-1]["reason"].endswith("at this temperature; set a larger one")
    one = run(
        tmp_path / "one", "bandwidth: 2.0, scales: [4], temperature: 0.1", corpus=kinds(14, 1)
    )
    assert [row["value"] for row in one["scores"]] == [1.0, 1.0]
    given = run(tmp_path / "given", "bandwidth: 2.0, scales: [4]", corpus=np.ones((60, 4)))
    assert [row["value"] for row in given["scores"]] == [1.0, 1.0]


def test_the_spread_is_at_most_the_magnitude() -> None:
    rows = kinds(12, 200)
    function = latentscale.magnitude_function(rows, scales=[0.1, 0.5, 2.0])
    for scale, estimate in zip(function.scales, function.estimates, strict=True):
        assert oracle(rows, scale) <= estimate.upper * (1 + 1e-9)


def test_a_spread_that_is_saturated_in_samples_alone_is_not_judged(tmp_path: Path) -> None:
    """Short codes repeat among many rows, and hardly among few."""
    generator = np.random.default_rng(3)
    codes = (generator.normal(size=(1400, 16)) > 0).astype("f4")
    measured = "spread: {scales: [1, 10]}"
    results = measure_rows(
        tmp_path / "codes",
        measured,
        corpus=codes[:700],
        reference=codes[700:],
        job="sampling: {rows: 60}\n",
    )
    by_scale = {row["kernel"]: row for row in results["scores"] if row["of"] == "corpus"}
    large = next(row for name, row in by_scale.items() if "10" in name)
    assert large["value"] is not None
    assert large["expected_reason"].startswith("it has no value on some samples of ")
    assert results["verdict"]["value"] == "no_difference_found"


def test_weights_move_the_bandwidth_beside_weighted_scores_alone(tmp_path: Path) -> None:
    rows = kinds(3, 300).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "weights.npy", np.where(np.arange(300) < 40, 1.0, 0.0))
    corpus = tmp_path / "weighted.zarr"
    ingest([f"{tmp_path}/rows.npy"], str(corpus), weights=f"{tmp_path}/weights.npy")
    found = []
    for name, measures in (("alone", ""), ("beside", "vendi: {kernels: [rbf], orders: [1]}, ")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "job.yaml").write_text(
            f"name: j\ncorpus: {corpus}\noutput: {folder}\ncluster: {{kind: serial}}\n"
            f"measures: {{{measures}spread: {{scales: [1]}}}}\n"
        )
        run_here(folder / "job.yaml")
        [score] = [row for row in results_of(folder)["scores"] if row["score"] == "spread"]
        found.append(score["value"])
    expected = [oracle(rows, 1.0 / np.median(pdist(chosen))) for chosen in (rows, rows[:40])]
    assert found == pytest.approx(expected, rel=1e-6)
