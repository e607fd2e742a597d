"""Hubness through a job: any storage, random rows, the rows themselves, and edge cases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from scipy.spatial.distance import cdist

from latentscale_pipeline.measures.hubness import plan
from tests.conftest import Ended
from tests.support.jobs import measure_rows

Command = Callable[..., Ended]


def run(folder: Path, keys: str = "", **given: Any) -> Any:
    return measure_rows(folder, f"hubness: {{{keys}}}", **given)


def normal(seed: int, n: int, d: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def values(results: Any, of: str = "corpus") -> dict[str, Any]:
    return {row["score"]: row for row in results["scores"] if row["of"] == of}


def occurrences(rows: np.ndarray, k: int) -> np.ndarray:
    distances = cdist(rows.astype("f4").astype(float), rows.astype("f4").astype(float))
    np.fill_diagonal(distances, np.inf)
    return np.bincount(np.argsort(distances, axis=1)[:, :k].ravel(), minlength=len(rows))


@pytest.mark.parametrize("shard_bytes", [10**7, 16 * 1024])
def test_scores_equal_brute_force_however_rows_are_stored(
    tmp_path: Path, shard_bytes: int, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "QUERIES", 150)  # several tasks
    rows = normal(1, 700)
    results = run(tmp_path / "job", "k: 7", shard_bytes=shard_bytes, corpus=rows)
    times = occurrences(rows, 7)
    found, part = values(results), results["measures"]["hubness"]["corpus"]
    assert found["hubness"]["value"] == pytest.approx(scipy.stats.skew(times), rel=1e-9)
    expected = 0.5 * np.abs(times - 7).sum() / times.sum()
    assert found["Robin Hood index"]["value"] == pytest.approx(expected, rel=1e-12)
    assert 0.0 < found["Robin Hood index"]["sampling_error"] < 0.05
    assert found["antihubs"]["value"] == np.mean(times == 0)
    assert {row["bounds"] for row in found.values()} == {"exact"}
    classes = [times == 0, times == 1, (times > 1) & (times < 4), (times > 3) & (times < 8)]
    assert part["occurrences"][:4] == [each.sum() for each in classes]
    assert (part["most"], sum(part["occurrences"])) == (times.max(), 700)
    [folder] = (tmp_path / "job").glob("j-*")
    listed = latentscale("rows", folder, "--sort", "neighbour_of:desc", "--limit", "1", "--json")
    assert f'"neighbour_of": {times.max()}' in listed.out


def test_there_are_more_rows_than_neighbours(tmp_path: Path) -> None:
    results = run(tmp_path / "job", "k: 100, rows: 100", corpus=normal(3, 1000))
    assert results["measures"]["hubness"]["corpus"]["rows"] == 101
    assert results["measures"]["hubness"]["corpus"]["k"] == 100


def test_random_rows_stand_for_all(tmp_path: Path) -> None:
    rows, found = normal(2, 2000), []
    for seed in range(3):
        results = run(tmp_path / str(seed), "rows: 400", job=f"seed: {seed}\n", corpus=rows)
        assert results["measures"]["hubness"]["corpus"]["rows"] == 400
        found.append(values(results))
    for name, bounds in (("Robin Hood index", "interval95"), ("hubness", "estimate")):
        assert {each[name]["bounds"] for each in found} == {bounds}
        lower, upper = (sorted(each[name][end] for each in found)[1] for end in ("lower", "upper"))
        assert all(lower < each[name]["value"] < upper for each in found)
    budget = run(tmp_path / "budget", job="budget: {pairs: 90000}\n", corpus=rows)
    assert budget["measures"]["hubness"]["corpus"]["rows"] == 300


def test_more_hubs_are_found_and_a_sample_of_the_same_is_not(tmp_path: Path) -> None:
    flat = normal(4, 900) * ([1.0] * 4 + [0.01] * 16)
    more = run(tmp_path / "more", corpus=normal(3, 900), reference=flat)
    assert more["verdict"]["value"] == "differs"
    assert values(more)["Robin Hood index"]["expected"]["p"] < 0.001
    same = run(tmp_path / "same", corpus=normal(5, 900), reference=normal(6, 900))
    assert same["verdict"]["value"] == "no_difference_found"


def test_antihubs_of_samples_are_a_mean_and_no_count(tmp_path: Path) -> None:
    results = run(tmp_path / "job", corpus=normal(7, 400, 2), reference=normal(8, 500, 2))
    expected = values(results)["antihubs"]["expected"]
    assert 0.0 < expected["lower"] < expected["upper"] < 1.5 / expected["rows"]
    # No whole number of rows lies in this range, so none may be named.
    assert "of 50 rows" not in results["verdict"]["reason"]
    [folder] = (tmp_path / "job").glob("j-*")
    assert "at equal sizes" not in (folder / "report.html").read_text()


def test_few_hubs_decide_the_scores_and_leave_no_errors(tmp_path: Path) -> None:
    rows = normal(8, 300, 300)
    rows[:6] *= 0.3
    found = values(run(tmp_path / "hubs", corpus=rows))
    for name in ("Robin Hood index", "antihubs"):
        assert found[name]["sampling_error"] is None
        assert found[name]["sampling_error_reason"].startswith("few rows fill most lists of neigh")


def test_degenerate_corpora_say_why(tmp_path: Path) -> None:
    few = values(run(tmp_path / "few", corpus=normal(7, 10)))
    assert few["hubness"]["reason"] == "10 neighbours of a row need 11 rows"
    sixty = values(run(tmp_path / "sixty", corpus=normal(7, 60)))
    assert sixty["antihubs"]["sampling_error_reason"] == "it needs 100 rows or more"
    assert "needs" not in sixty["hubness"]["sampling_error_reason"]
    equal = values(run(tmp_path / "equal", corpus=np.ones((300, 4))))
    assert equal["Robin Hood index"]["value"] < 0.3
