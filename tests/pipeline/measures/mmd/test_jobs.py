"""The discrepancy through a job: as defined, by pairs and by features, and what is left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.measures.mmd import plan
from latentscale_pipeline.measures.mmd.tasks import divide_rows, rows_taken
from tests.support.jobs import results_of, run_here

KERNELS = "kernels: [rbf, cosine, linear], bandwidth: 1.5"


def run(folder: Path, corpus: np.ndarray, reference: np.ndarray, keys: str = "") -> Any:
    folder.mkdir()
    text = f"name: m\noutput: {folder}\ncluster: {{kind: serial}}\nmeasures: {{mmd: {{{keys}}}}}\n"
    for role, rows in (("corpus", corpus), ("reference", reference)):
        np.save(folder / f"{role}.npy", rows.astype("f4"))
        text += f"{role}: {folder}/{role}.npy\n"
    (folder / "job.yaml").write_text(text)
    run_here(folder / "job.yaml")
    return results_of(folder)


def by_kernel(results: Any) -> dict[str, Any]:
    return {row["kernel"]: row for row in results["scores"]}


def matrix(name: str, rows: np.ndarray) -> np.ndarray:
    if name == "rbf 1.5":
        return np.exp(-((rows[:, None] - rows[None]) ** 2).sum(axis=2) / (2 * 1.5**2))
    if name == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


def unbiased(kernel: np.ndarray, m: int) -> float:
    """MMD² by its definition, from the kernel of the first m rows and the rest."""
    n = len(kernel) - m
    first, second, both = kernel[:m, :m], kernel[m:, m:], kernel[:m, m:]
    within = (first.sum() - np.trace(first)) / (m * (m - 1))
    within += (second.sum() - np.trace(second)) / (n * (n - 1))
    return float(within - 2 * both.mean())


def corpora(m: int, n: int, shift: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng([m, n])
    return generator.normal(shift, size=(m, 4)), generator.normal(size=(n, 4))


def test_it_equals_its_definition(tmp_path: Path) -> None:
    corpus, reference = corpora(120, 90)
    results = run(tmp_path / "job", corpus, reference, KERNELS)
    rows = np.concatenate([corpus, reference]).astype("f4").astype(float)
    found = by_kernel(results)
    assert list(found) == ["rbf 1.5", "cosine", "linear"]
    for name, row in found.items():
        assert row["value"] == pytest.approx(unbiased(matrix(name, rows), 120), abs=1e-11)
        assert (row["of"], row["bounds"]) == ("pair", "exact")
        assert row["lower"] <= row["value"] <= row["upper"]
        assert row["expected"]["p"] == 1e-4
        assert row["expected"]["upper"] < row["value"]
    assert results["verdict"]["value"] == "differs"
    [rbf, *_] = results["measures"]["mmd"]["pair"]
    assert (rbf["groups"], rbf["rows"], rbf["method"]) == ([120, 90], [120, 90], "pairs")
    assert rbf["divisions"] == 9999


def test_the_bracket_of_a_linear_kernel_has_the_unit_of_the_data(tmp_path: Path) -> None:
    rows = corpora(50, 50)
    widths = []
    for name, unit in (("one", 1.0), ("small", 1e-6)):
        job = run(tmp_path / name, *(unit * own for own in rows), "kernels: [linear]")
        [found] = by_kernel(job).values()
        assert found["lower"] < found["value"] < found["upper"]
        widths.append((found["upper"] - found["lower"]) / found["value"])
    assert widths[1] == pytest.approx(widths[0], rel=1e-3)


def test_features_of_many_rows_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, reference = corpora(600, 500)
    pairs = by_kernel(run(tmp_path / "pairs", corpus, reference, KERNELS))
    monkeypatch.setattr(plan, "PAIRED_ROWS", 100)
    found = by_kernel(run(tmp_path / "features", corpus, reference, KERNELS))
    rows = np.concatenate([corpus, reference]).astype("f4").astype(float)
    for name, row in found.items():
        expected = unbiased(matrix(name, rows), 600)
        assert row["lower"] - 1e-11 <= expected <= row["upper"] + 1e-11
        assert row["sampling_error"] == pytest.approx(pairs[name]["sampling_error"], rel=0.15)
        assert row["expected"]["upper"] == pytest.approx(pairs[name]["expected"]["upper"], rel=0.4)
        assert row["expected"]["p"] == 1e-4
    assert found["linear"]["bounds"] == "exact"
    assert found["rbf 1.5"]["bounds"] == "interval95"
    assert found["rbf 1.5"]["upper"] - found["rbf 1.5"]["lower"] < 0.2 * found["rbf 1.5"]["value"]


@pytest.mark.parametrize("paired", [20_000, 100])
def test_samples_of_one_source_and_a_corpus_beside_itself(
    paired: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PAIRED_ROWS", paired)
    corpus, reference = corpora(700, 600, shift=0.0)
    [row] = run(tmp_path / "samples", corpus, reference)["scores"]
    assert row["kernel"] == "rbf median"
    assert row["expected"]["p"] > 0.05
    [row] = run(tmp_path / "itself", corpus, corpus)["scores"]
    assert row["value"] < 0
    assert row["expected"]["p"] == 1.0


@pytest.mark.parametrize(
    ("m", "n", "size", "counts"),
    [
        (20, 30, 1, (20, 30)),
        (500, 500, 1, (500, 500)),
        (1001, 1300, 3, (333, 433)),
        (20, 10**6, 2, (10, 1000)),
        (10**6, 10**6, 2000, (500, 500)),
        (10**9, 10**9, 20_000, (500, 500)),
    ],
)
def test_groups_have_equally_many_rows(m: int, n: int, size: int, counts: tuple[int, int]) -> None:
    assert divide_rows(m, n) == (size, counts)
    assert divide_rows(n, m) == (size, counts[::-1])
    for count, taken in zip(counts, (rows_taken(m, n), rows_taken(n, m)), strict=True):
        assert count * size <= taken


def test_without_a_bandwidth_or_rows_it_says_why(tmp_path: Path) -> None:
    alike = np.ones((30, 2))
    results = run(tmp_path / "alike", alike, alike)
    [row] = results["scores"]
    assert row["value"] is None
    assert "the median distance is 0" in row["reason"]
    assert results["measures"]["mmd"] == {"pair": []}
    few = run(tmp_path / "few", alike, np.ones((19, 2)))
    assert few["measures"] == {
        "mmd": None,
        "mmd_reason": "the reference has fewer than 20 rows",
    }
    [row] = few["scores"]
    assert (row["value"], row["reason"]) == (None, "the reference has fewer than 20 rows")
    assert "the reference has fewer than 20 rows" in few["verdict"]["reason"]
