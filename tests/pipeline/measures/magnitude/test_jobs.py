"""Magnitude in rounds over pairs of row groups: the numbers, and what a kill between them costs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.jobs.plan import Plan, make_plan, measure_sections
from latentscale_pipeline.measures.magnitude import plan, tasks
from latentscale_pipeline.measures.shared import row_groups
from tests import oracles
from tests.support.mortal_driver import run_counted

ROWS, DIMENSION = 500, 6


def keep_up_to(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, tasks):
        monkeypatch.setattr(module, "KEPT_ROWS", rows)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even a small corpus into several groups, and call it too large for one task."""
    keep_up_to(0, monkeypatch)
    monkeypatch.setattr(row_groups, "MIN_ROWS", 192)
    monkeypatch.setattr(row_groups, "ROUNDED_ROWS", 32)


def rows(metric: str) -> np.ndarray:
    """Some rows near each other, some far, some twice, far from the origin."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(20, DIMENSION)) * 3
    drawn = centres[rng.integers(20, size=ROWS)] + rng.normal(size=(ROWS, DIMENSION)) * 0.3
    drawn += 5.0
    drawn[100:120] = drawn[300:320] * (2.0 if metric == "cosine" else 1.0)
    return drawn.astype("f4")


def make(folder: Path, metric: str, method: str = "cg", sampling: str = "none") -> Plan:
    source = folder / "corpus.npy"
    if not source.exists():
        np.save(source, rows(metric))
    text = (
        f"name: rounds\ncorpus: {source}\noutput: {folder / 'jobs'}\n"
        f"cluster: {{kind: serial}}\nsampling: {{method: {sampling}}}\n"
        f"measures: {{magnitude: {{metric: {metric}, scales: 6, method: {method}}}}}\n"
    )
    return make_plan(read_config(text, "rounds.yaml", measures=measure_sections()))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_the_function_equals_dense_algebra(tmp_path: Path, metric: str) -> None:
    planned = make(tmp_path, metric)
    assert {stage.name: stage.partitions for stage in planned.stages}["convergence-corpus"] == 6
    finished = run_counted(planned)[0]
    found = finished.results.document()["measures"]["magnitude"]["corpus"]
    distances = oracles.pairwise_distances(rows(metric).astype("f8"), metric)
    kept = np.setdiff1d(np.arange(ROWS), np.arange(300, 320))
    distances = distances[np.ix_(kept, kept)]
    dense = [oracles.dense_magnitude(distances, t)[0] for t in found["scales"][1:]]
    assert found["points"] == len(kept)
    np.testing.assert_allclose(found["value"][1:], dense, rtol=1e-3)
    assert all(np.array(found["lower"][1:]) <= np.array(dense) * (1 + 1e-9))
    assert set(found["method"][1:]) == {"cg"}
    own, weights, _ = oracles.dense_magnitude(distances, found["convergence_scale"])
    assert own == pytest.approx(0.95 * len(kept), rel=2e-3)
    stored = np.load(
        finished.store.locate(finished.results.document()["arrays"]["magnitude/corpus/weights"])
    )
    shared = np.zeros(ROWS)
    shared[kept] = weights
    shared[300:320] = shared[100:120] = shared[100:120] / 2
    np.testing.assert_allclose(stored, shared, atol=0.02)


def test_one_task_gives_what_passes_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = run_counted(make(tmp_path, "cosine"))[0].results.document()
    (tmp_path / "kept").mkdir()
    keep_up_to(ROWS, monkeypatch)
    found, computed = run_counted(make(tmp_path / "kept", "cosine"))
    assert {number for stage, number, _ in computed if "corpus" in stage} == {0}
    for one, other in zip(found.results.document()["scores"], passes["scores"], strict=True):
        assert one["value"] == pytest.approx(other["value"], rel=1e-3)
        assert one["lower"] <= other["upper"]
        assert other["lower"] <= one["upper"]


def test_areas_carry_the_bracket_of_the_cut_off_scale(tmp_path: Path) -> None:
    np.save(tmp_path / "corpus.npy", rows("euclidean"))
    np.save(tmp_path / "reference.npy", rows("euclidean")[:400])

    def areas(name: str, settings: str) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
        text = (
            f"name: {name}\ncorpus: {tmp_path / 'corpus.npy'}\n"
            f"reference: {tmp_path / 'reference.npy'}\noutput: {tmp_path / 'jobs'}\n"
            f"cluster: {{kind: serial}}\nmeasures: {{magnitude: {{method: cg, {settings}}}}}\n"
        )
        planned = make_plan(read_config(text, "cut.yaml", measures=measure_sections()))
        found = run_counted(planned)[0].results.document()
        scores = {(row["score"], row["of"]): row for row in found["scores"]}
        return found["measures"]["magnitude"], scores

    derived, scores = areas("derived", "scales: 5")
    scales = derived["corpus"]["scales"]
    given, plain = areas("given", f"scales: {scales}")
    assert given["corpus"]["value"] == pytest.approx(derived["corpus"]["value"], rel=1e-3)
    cut = derived["reference"]["convergence"]
    points = [derived[role]["points"] for role in ("corpus", "reference")]
    later, before = cut["upper"] - cut["value"], cut["value"] - cut["lower"]
    for role, n in zip(("corpus", "reference"), points, strict=True):
        function, area = derived[role], scores["area", role]
        for side, change in (("upper", later), ("lower", -before)):
            known = np.trapezoid(function[side], scales) + n * change
            assert area[side] == pytest.approx(known, rel=1e-9)
        assert plain["area", role]["upper"] - plain["area", role]["lower"] < 2e-3 * area["value"]
    difference = scores["difference", "pair"]
    known = np.trapezoid(
        np.subtract(derived["corpus"]["upper"], derived["reference"]["lower"]), scales
    )
    slack = max(later * (points[0] - 1), before * (points[1] - 1))
    assert difference["upper"] == pytest.approx(known + slack, rel=1e-6)
    assert derived["difference_trapezium_error"] > 0.0


def test_a_kill_costs_what_was_under_way_and_no_product_twice(tmp_path: Path) -> None:
    for name in ("calm", "killed"):
        (tmp_path / name).mkdir()
    calm, every = run_counted(make(tmp_path / "calm", "euclidean"))
    assert max(every.values()) == 1
    assert max(number for stage, number, _ in every if stage == "magnitude-corpus") >= 5
    finished, computed = run_counted(make(tmp_path / "killed", "euclidean"), (7, 40, 23))
    assert computed == every
    assert finished.results.document()["scores"] == calm.results.document()["scores"]
    assert finished.results.document()["measures"] == calm.results.document()["measures"]


def test_small_sets_are_factorised_at_once(tmp_path: Path) -> None:
    finished, computed = run_counted(make(tmp_path, "euclidean", "auto"))
    assert {number for _, number, _ in computed} == {0}
    assert set(finished.results.document()["measures"]["magnitude"]["corpus"]["method"][1:]) == {
        "cholesky"
    }


def near_duplicates(folder: Path, share: float, keys: str) -> dict[str, Any]:
    """Magnitude of 400 rows of which a share has another one very near."""
    rng = np.random.default_rng(9)
    drawn = rng.normal(size=(400, DIMENSION))
    twins = int(400 * share)
    drawn[400 - twins :] = drawn[:twins] + rng.normal(size=(twins, DIMENSION)) * 4e-6
    np.save(folder / "corpus.npy", drawn.astype("f4"))
    text = (
        f"name: near\ncorpus: {folder / 'corpus.npy'}\noutput: {folder / 'jobs'}\n"
        f"cluster: {{kind: serial}}\nmeasures: {{magnitude: {{scales: 4, {keys}}}}}\n"
    )
    plan = make_plan(read_config(text, "near.yaml", measures=measure_sections()))
    found: dict[str, Any] = run_counted(plan)[0].results.document()["measures"]["magnitude"][
        "corpus"
    ]
    return found


@pytest.mark.parametrize("method", ["cg", "cholesky"])
def test_few_near_duplicates_leave_the_convergence_scale_alone(tmp_path: Path, method: str) -> None:
    found = near_duplicates(tmp_path, 0.04, f"method: {method}")
    assert 1 < found["convergence_scale"] < 100
    assert "remark" not in found["convergence"]


@pytest.mark.parametrize("method", ["cg", "cholesky"])
def test_many_near_duplicates_are_named_and_merged_when_asked(tmp_path: Path, method: str) -> None:
    found = near_duplicates(tmp_path, 0.2, f"method: {method}")
    assert found["convergence_scale"] > 1e4
    assert "merge" in found["convergence"]["remark"]
    merged = near_duplicates(tmp_path, 0.2, f"method: {method}, merge_within: 1.0e-3")
    assert merged["points"] == 320
    assert 1 < merged["convergence_scale"] < 100


@pytest.mark.parametrize("metric", ["euclidean", pytest.param("cosine", marks=pytest.mark.full)])
def test_area_and_convergence_scale_have_the_errors_of_dense_algebra(
    tmp_path: Path, metric: str
) -> None:
    def area_error(method: str, sampling: str = "auto") -> float | None:
        finished = run_counted(make(tmp_path, metric, method, sampling))[0]
        area, scale = finished.results.scores
        of_scale.append(scale.sampling_error)
        scales.append(finished.results.document()["measures"]["magnitude"]["corpus"]["scales"])
        return area.sampling_error

    scales: list[list[float]] = []
    of_scale: list[float | None] = []
    assert area_error("cg", "none") is None
    found = [area_error(method) for method in ("cg", "cholesky")]
    kept = np.setdiff1d(np.arange(ROWS), np.arange(300, 320))
    distances = oracles.pairwise_distances(rows(metric).astype("f8"), metric)[np.ix_(kept, kept)]
    falls = np.zeros((len(scales[1]), ROWS))
    for row, scale in zip(falls[1:], scales[1][1:], strict=True):
        inverse = np.linalg.inv(np.exp(-scale * distances))
        row[kept] = inverse.sum(axis=0) ** 2 / np.diag(inverse)
    falls[:, np.r_[100:120, 300:320]] = 0.0  # rows that are there twice
    expected = np.sqrt(ROWS - 1) * np.std(np.trapezoid(falls, scales[1], axis=0))
    # Of the rows outside the largest weights a third is drawn, and neighbours stand for all others.
    np.testing.assert_allclose(found, expected, rtol=0.15)
    # The function ends at the convergence scale.
    end = scales[1][-1]
    below, above = (np.linalg.inv(np.exp(-t * distances)).sum() for t in (0.99 * end, 1.01 * end))
    moves = (falls[-1] - 0.95) / ((above - below) / (0.02 * end))
    moves[np.r_[100:120, 300:320]] = 0.0
    assert of_scale[0] is None
    np.testing.assert_allclose(of_scale[1:], np.sqrt(ROWS - 1) * np.std(moves), rtol=0.15)
