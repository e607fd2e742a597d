"""Sampling errors of Vendi scores through jobs, against the spread of fresh samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.spatial.distance

from latentscale_pipeline.measures.vendi import plan as vendi
from latentscale_pipeline.measures.vendi import sampling_error
from tests import oracles
from tests.support.jobs import results_of, run_here

CENTRE = np.random.default_rng(9).normal(size=8)


def sample(n: int, seed: int) -> np.ndarray:
    return (np.random.default_rng([n, seed]).normal(size=(n, 8)) + CENTRE).astype("f4")


def spread(n: int, order: float) -> float:
    """Return the standard deviation of the cosine score over 100 fresh samples."""
    scores = []
    for seed in range(100):
        rows = sample(n, 1000 + seed).astype(float)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        scores.append(oracles.hill_number(np.linalg.eigvalsh(unit.T @ unit / n), order))
    return float(np.std(scores))


def errors(
    folder: Path, rows: np.ndarray, kernel: str = "cosine", more: str = ""
) -> dict[str, Any]:
    np.save(folder / "rows.npy", rows)
    (folder / "job.yaml").write_text(
        f"name: v\ncorpus: {folder}/rows.npy\noutput: {folder}/jobs\ncluster: {{kind: serial}}\n"
        f"measures: {{vendi: {{kernels: [{kernel}], orders: [1, 2]{more}}}}}\n"
    )
    run_here(folder / "job.yaml")
    scores = results_of(folder / "jobs")["scores"]
    return {score["order"]: score["sampling_error"] for score in scores}


@pytest.mark.parametrize("drawn", [16_384, 800])
def test_errors_are_the_spread_of_fresh_samples(
    tmp_path: Path, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sampling_error, vendi):
        monkeypatch.setattr(module, "COSINE_ROWS", drawn)
    found = errors(tmp_path, sample(2000, 0))
    for order in (1, 2):
        # A jackknife of 20 groups is itself uncertain by a sixth, and enlarged by 7 %.
        assert 0.6 < found[str(order)] / spread(2000, order) < 1.7, order


@pytest.mark.parametrize(
    ("method", "bandwidth"),
    [
        ("exact", "4.0"),
        ("lanczos", "median"),
        pytest.param("exact", "median", marks=pytest.mark.full),
        pytest.param("lanczos", "4.0", marks=pytest.mark.full),
    ],
)
def test_errors_under_other_kernels_are_the_spread_of_fresh_samples(
    tmp_path: Path, method: str, bandwidth: str
) -> None:
    kernel = f"{{name: rbf, bandwidth: {bandwidth}}}"
    found = errors(tmp_path, sample(500, 0), kernel, f", method: {method}")
    scores = []
    for seed in range(40):
        square = scipy.spatial.distance.pdist(sample(500, 1000 + seed).astype(float), "sqeuclidean")
        # A job draws 100 000 of these pairs.
        drawn = np.random.default_rng(seed).choice(square, 100_000, replace=False)
        own = 16.0 if bandwidth == "4.0" else np.median(drawn)
        matrix = np.exp(-scipy.spatial.distance.squareform(square) / (2.0 * own)) / 500
        scores.append([oracles.hill_number(np.linalg.eigvalsh(matrix), q) for q in (1, 2)])
    # A spread of 40 scores is uncertain by a ninth.
    for order, spread_of_scores in zip("12", np.std(scores, axis=0), strict=True):
        assert 0.7 < found[order] / spread_of_scores < 1.4, order


def test_the_median_of_another_corpus_is_held_fixed(tmp_path: Path) -> None:
    for role, n in (("corpus", 600), ("reference", 500)):
        np.save(tmp_path / f"{role}.npy", sample(n, 0))

    def found(bandwidth: object) -> dict[str, Any]:
        folder = tmp_path / str(bandwidth)
        config = {
            "name": "v",
            **{role: f"{tmp_path}/{role}.npy" for role in ("corpus", "reference")},
            "output": str(folder),
            "cluster": {"kind": "serial"},
            "measures": {
                "vendi": {"kernels": [{"name": "rbf", "bandwidth": bandwidth}], "orders": [2]}
            },
        }
        (tmp_path / "job.yaml").write_text(json.dumps(config))
        run_here(tmp_path / "job.yaml")
        results = results_of(folder)
        known["bandwidth"] = results["measures"]["vendi"]["corpus"][0]["bandwidth"]
        return {score["of"]: score["sampling_error"] for score in results["scores"]}

    known: dict[str, float] = {}
    median = found("median")
    fixed = found(known["bandwidth"])
    assert 0.7 < median["corpus"] / fixed["corpus"] < 1.4
    assert median["reference"] < 0.5 * fixed["reference"]


def test_few_rows_and_many_under_other_kernels_have_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(errors(tmp_path, sample(99, 0)).values()) == {None}
    monkeypatch.setattr(vendi, "is_kept", lambda n: n <= 150)
    for rows, known in ((150, True), (151, False)):
        folder = tmp_path / str(rows)
        folder.mkdir()
        found = errors(folder, sample(rows, 0), "rbf")
        assert {value is not None for value in found.values()} == {known}
