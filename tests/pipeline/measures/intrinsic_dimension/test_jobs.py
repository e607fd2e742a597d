"""The intrinsic dimension through a job: any storage, random rows, labels and edge cases."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.jobs import measure_rows


def run(folder: Path, keys: str = "", **given: Any) -> Any:
    return measure_rows(folder, f"intrinsic_dimension: {{{keys}}}", **given)


def torus(seed: int, n: int, dimension: int) -> np.ndarray:
    angles = 2.0 * math.pi * np.random.default_rng(seed).random((n, dimension))
    return np.hstack([np.cos(angles), np.sin(angles), np.zeros((n, 12 - 2 * dimension))])


def values(results: Any, of: str = "corpus") -> dict[str, Any]:
    return {row["score"]: row for row in results["scores"] if row["of"] == of}


def brute_force(rows: np.ndarray, k: int) -> float:
    rows = rows.astype("f4").astype(float)
    differences = rows[:, None, :] - rows[None, :, :]
    distances = np.sort(np.sqrt((differences**2).sum(axis=-1)), axis=1)[:, 1 : k + 1]
    return float(1.0 / np.log(distances[:, -1:] / distances[:, :-1]).mean())


def test_scores_equal_brute_force_however_rows_are_stored(tmp_path: Path) -> None:
    rows = torus(0, 700, 3)
    for name, size in (("whole", 10**7), ("cut", 5000)):
        results = run(tmp_path / name, "k: 12", shard_bytes=size, corpus=rows)
        row, part = values(results)["MLE"], results["measures"]["intrinsic_dimension"]["corpus"]
        expected = brute_force(rows, 12)
        assert row["value"] == pytest.approx(expected, rel=1e-9)
        assert row["lower"] <= expected <= row["upper"]
        assert row["bounds"] == "exact"
        assert 0.0 < row["sampling_error"] < 0.2
        curve = part["maximum_likelihood"]
        assert curve["neighbours"] == [5, 10, 12, 20, 50, 100]
        for k, value in zip(curve["neighbours"], curve["value"], strict=True):
            assert value == pytest.approx(brute_force(rows, k), rel=1e-9)
        assert curve["rows"] == [700] * 6


def test_random_rows_among_all_have_an_interval(tmp_path: Path) -> None:
    rows = torus(1, 1500, 2)
    held = []
    for seed in range(3):
        results = run(tmp_path / str(seed), "rows: 200", job=f"seed: {seed}\n", corpus=rows)
        row = values(results)["MLE"]
        assert row["bounds"] == "interval95"
        assert results["measures"]["intrinsic_dimension"]["corpus"]["rows"] == 200
        held.append(row["lower"] <= brute_force(rows, 20) <= row["upper"])
    assert sum(held) >= 2
    budget = run(tmp_path / "budget", job="budget: {pairs: 450000}\n", corpus=rows)
    assert budget["measures"]["intrinsic_dimension"]["corpus"]["rows"] == 300


def test_another_dimension_is_found_and_the_same_is_not(tmp_path: Path) -> None:
    results = run(tmp_path / "lower", corpus=torus(2, 900, 2), reference=torus(3, 900, 3))
    row = values(results)["MLE"]["expected"]
    assert results["verdict"]["value"] == "differs"
    assert row["p"] < 0.001
    chance = results["measures"]["intrinsic_dimension"]["chance"]
    assert all(np.array(chance["found"])[:3] < np.array(chance["lower"])[:3])
    found = []
    for seed in range(3):
        same = run(
            tmp_path / f"same-{seed}",
            corpus=torus(10 + seed, 700, 2),
            reference=torus(60 + seed, 700, 2),
        )
        found.append(values(same)["MLE"]["expected"]["p"])
    assert min(found) > 0.003


def test_degenerate_corpora_say_why(tmp_path: Path) -> None:
    found = values(run(tmp_path / "few", corpus=torus(4, 20, 2)))
    assert found["MLE"]["reason"] == "20 neighbours of a row need 21 rows"
    assert found["TwoNN"]["value"] == pytest.approx(2.0, abs=1.5)
    found = values(run(tmp_path / "fewer", corpus=torus(4, 9, 2)))
    assert found["MLE"]["reason"] == "20 neighbours of a row need 21 rows"
    assert found["TwoNN"]["reason"].startswith("fewer than 10 rows have two neighbours")
    found = values(run(tmp_path / "equal", corpus=np.ones((60, 4))))
    none = "no row has so many neighbours, or all of these are equally far"
    assert found["MLE"]["reason"] == none
    # Of one-hot rows all are equally far, and so are the nearest of most short codes.
    found = values(run(tmp_path / "one-hot", corpus=np.eye(60)))
    assert found["MLE"]["reason"] == none
    assert found["TwoNN"]["reason"].endswith("or these are equally far")
    codes = np.random.default_rng(6).normal(size=(700, 10)) > 0
    found = values(run(tmp_path / "codes", corpus=codes.astype("f4")))
    assert found["TwoNN"]["value"] is None
    copies = np.repeat(torus(5, 100, 2), 30, axis=0)
    results = run(tmp_path / "copies", corpus=copies)
    assert values(results)["TwoNN"]["value"] == pytest.approx(2.0, abs=0.6)
    part = results["measures"]["intrinsic_dimension"]["corpus"]["maximum_likelihood"]
    assert part["neighbours"] == [5, 10, 20, 50]


def test_samples_with_too_few_rows_leave_scores_without_a_range(tmp_path: Path) -> None:
    results = run(tmp_path / "job", "k: 60", corpus=torus(6, 200, 2), reference=torus(7, 200, 2))
    row = values(results)["MLE"]
    assert row["value"] == pytest.approx(brute_force(torus(6, 200, 2), 60), rel=1e-9)
    assert row["expected_reason"] == "it has no value on some samples of 50 rows"
    two = values(results)["TwoNN"]
    assert two["expected"]["lower"] < two["value"] < two["expected"]["upper"]


def test_labels_and_other_dimensions_are_measured(tmp_path: Path) -> None:
    results = run(tmp_path / "unlike", corpus=torus(6, 300, 2), reference=torus(7, 300, 3)[:, :7])
    assert values(results, "reference")["MLE"]["value"] > values(results)["MLE"]["value"]
    rows = np.concatenate([torus(8, 300, 1), torus(9, 300, 3)])
    np.savetxt(tmp_path / "labels.txt", ["line"] * 300 + ["solid"] * 300, fmt="%s")
    results = run(
        tmp_path / "labelled",
        labels=str(tmp_path / "labels.txt"),
        job="group_by: labels\n",
        corpus=rows,
    )
    found = {row.get("label"): row["value"] for row in results["scores"] if row["score"] == "MLE"}
    assert found["line"] == pytest.approx(brute_force(rows[:300], 20), rel=1e-9)
    assert found["solid"] == pytest.approx(brute_force(rows[300:], 20), rel=1e-9)


def test_a_row_with_many_copies_leaves_room_for_other_neighbours(tmp_path: Path) -> None:
    rows = np.random.default_rng(8).normal(size=(300, 6)).astype("f4")
    copied = np.concatenate([rows, np.repeat(rows[:1], 400, axis=0)])
    differences = copied[:, None, :].astype(float) - rows[None].astype(float)
    distances = np.sort(np.sqrt((differences**2).sum(axis=-1)), axis=1)[:, 1:21]
    expected = float(1.0 / np.log(distances[:, -1:] / distances[:, :-1]).mean())
    for name, size in (("whole", 10**7), ("cut", 3000)):
        results = run(tmp_path / name, shard_bytes=size, corpus=copied)
        assert values(results)["MLE"]["value"] == pytest.approx(expected, rel=1e-9)
        assert values(results)["MLE"]["bounds"] == "exact"
        part = results["measures"]["intrinsic_dimension"]["corpus"]
        assert part["maximum_likelihood"]["rows"] == [700] * 5
