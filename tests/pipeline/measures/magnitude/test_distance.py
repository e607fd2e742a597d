"""The magnitude distance through a job: against dense algebra, random rows, and reasons."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.magnitude import distance
from tests.support.jobs import measure_rows


def run(folder: Path, keys: str = "", **given: Any) -> Any:
    return measure_rows(folder, f"magnitude: {{distance: true, scales: 4, {keys}}}", **given)


def rows_of(seed: int, n: int, shift: float = 0.0) -> np.ndarray:
    centres = np.random.default_rng(0).normal(size=(6, 8)) * 2.0
    rng = np.random.default_rng([3, seed])
    return centres[rng.integers(0, 6, n)] + rng.normal(size=(n, 8)) + shift


def found(results: Any) -> Any:
    [row] = [row for row in results["scores"] if row["score"] == "distance"]
    return row


def oracle(first: np.ndarray, second: np.ndarray, scale: float) -> float:
    def size(rows: np.ndarray) -> float:
        rows = np.unique(rows.astype("f4").astype(float), axis=0)
        return float(np.linalg.inv(np.exp(-scale * cdist(rows, rows))).sum())

    return 2 * size(np.concatenate([first, second])) - size(first) - size(second)


def test_it_equals_dense_algebra_at_the_median_distance(tmp_path: Path) -> None:
    corpus, reference = rows_of(1, 400), rows_of(2, 300)
    corpus[:20] = reference[:20]
    results = run(tmp_path / "job", corpus=corpus, reference=reference)
    part, row = results["measures"]["magnitude"]["distance"], found(results)
    assert 1 / part["scale"] == pytest.approx(np.median(pdist(reference)), rel=0.01)
    assert row["value"] == pytest.approx(oracle(corpus, reference, part["scale"]), rel=1e-7)
    assert (row["bounds"], part["rows"]) == ("exact", [400, 300])
    assert 0 < row["sampling_error"] < 0.2 * row["value"]
    given = run(
        tmp_path / "given",
        "distance_scale: 0.5, metric: manhattan",
        corpus=corpus,
        reference=corpus,
    )
    assert found(given)["value"] == 0.0


def test_a_shift_is_found_and_a_sample_of_the_same_is_not(tmp_path: Path) -> None:
    moved = run(tmp_path / "moved", corpus=rows_of(3, 600, 1.0), reference=rows_of(4, 600))
    same = run(tmp_path / "same", corpus=rows_of(5, 600), reference=rows_of(6, 600))
    assert found(moved)["expected"]["p"] < 0.01
    assert found(same)["expected"]["p"] > 0.01
    # The difference of the magnitudes doesn't see it.
    [area] = [row for row in moved["scores"] if row["score"] == "difference"]
    assert area["expected"]["p"] > 0.01


def test_random_rows_have_an_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, reference = rows_of(7, 900), rows_of(8, 700, 1.0)
    monkeypatch.setattr(distance, "MAX_ROWS", 200)
    runs = [
        found(run(tmp_path / str(seed), job=f"seed: {seed}\n", corpus=corpus, reference=reference))
        for seed in range(3)
    ]
    middle = sorted(row["value"] for row in runs)[1]
    assert all(row["lower"] <= middle <= row["upper"] for row in runs)
    assert {row["bounds"] for row in runs} == {"interval95"}


def test_reasons(tmp_path: Path) -> None:
    rows = rows_of(9, 120)
    other = run(tmp_path / "other", corpus=rows, reference=rows_of(10, 120)[:, :5])
    assert found(other)["reason"] == "corpus and reference have different dimensions"
    near = np.concatenate([rows, rows + 1e-30])
    near[120:, 0] = np.nextafter(rows.astype("f4")[:, 0], np.float32(9))
    tiny = run(tmp_path / "near", "distance_scale: 1.0e-9", corpus=near, reference=rows)
    assert "safely positive definite" in found(tiny)["reason"]
    with pytest.raises(BadInput, match="give distance_scale as a number under metric cosine"):
        run(tmp_path / "metric", "metric: cosine", corpus=rows, reference=rows)
    far = run(tmp_path / "far", "distance_scale: 100", corpus=rows, reference=rows_of(11, 90))
    assert found(far)["reason"].startswith("nearly every row stands alone at this scale")
    with pytest.raises(BadInput, match="distance compares with a reference; add reference:"):
        run(tmp_path / "alone", corpus=rows)


def test_a_distance_that_is_nearly_its_largest_is_withheld_whatever_repeats(tmp_path: Path) -> None:
    corpus, reference = rows_of(11, 300), rows_of(12, 300)
    repeated = [np.repeat(each, 2, axis=0) for each in (corpus, reference)]
    for name, both in (("single", [corpus, reference]), ("twice", repeated)):
        rows = dict(zip(("corpus", "reference"), both, strict=True))
        row = found(run(tmp_path / name, "distance_scale: 1000", **rows))
        assert (row["value"], row["reason"]) == (None, distance.UNRESOLVED)


def test_a_few_rows_more_are_a_distance(tmp_path: Path) -> None:
    """They stand alone, and so the distance is its largest; all other rows don't."""
    reference = 0.01 * rows_of(13, 200)
    corpus = np.concatenate([reference, 50.0 + 20.0 * rows_of(14, 10)])
    row = found(run(tmp_path / "more", "distance_scale: 2", corpus=corpus, reference=reference))
    assert row["value"] == pytest.approx(10.0, rel=1e-6)
