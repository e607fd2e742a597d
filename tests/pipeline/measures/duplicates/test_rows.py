"""Rows that repeat, leak or lie apart: against all distances, on cut corpora, on samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.duplicates import cover, nearest
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.measures.shared import random_rows
from tests import oracles
from tests.support.jobs import run_here

Array = np.ndarray


def run_job(
    folder: Path, corpora: dict[str, Array], *, shard_bytes: int = 4000, **fields: Any
) -> tuple[dict[str, Any], Path]:
    """Run a job of this measure; return its results and its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    urls = {}
    for role, rows in corpora.items():
        np.save(folder / f"{role}.npy", rows.astype("f4"))
        source = str(folder / f"{role}.npy")
        urls[role] = ingest([source], str(folder / role), shard_bytes=shard_bytes).url
    described = {
        "name": "rows",
        **urls,
        "output": str(folder / "jobs"),
        "measures": {"duplicates": {}},
        "cluster": {"kind": "serial"},
        **fields,
    }
    (folder / "job.yaml").write_text(json.dumps(described))
    found = run_here(folder / "job.yaml").results.document()
    return found, next((folder / "jobs").glob("rows-*"))


def read_array(found: dict[str, Any], folder: Path, name: str) -> Array:
    return np.load(folder / found["arrays"][f"duplicates/{name}"])


def read_groups(found: dict[str, Any], folder: Path, name: str, n: int) -> Array:
    """Return the row that stands for each row; -1 for itself."""
    groups = np.full(n, -1)
    groups[read_array(found, folder, f"{name}_rows")] = read_array(found, folder, f"{name}_by")
    return groups


def score(found: dict[str, Any], name: str, of: str = "corpus") -> dict[str, Any]:
    [row] = [row for row in found["scores"] if (row["score"], row["of"]) == (name, of)]
    return row


def crowded(generator: np.random.Generator, rows: int) -> Array:
    """Rows on a grid: many equal ones, many at exactly 1 or 2 from each other."""
    return generator.integers(0, 9, size=(rows, 3)).astype(float) + 1.0


def test_rows_that_differ_in_length_alone_are_said_to(tmp_path: Path) -> None:
    rows = np.random.default_rng(5).normal(size=(200, 6))
    said = "60 rows differ from an earlier one in length alone, or by rounding"
    for name, corpus, metric, expected in (
        ("scaled", np.concatenate([rows, 2 * rows[:60], rows[:5]]), "cosine", True),
        ("lengths", np.concatenate([rows, 2 * rows[:60], rows[:5]]), "euclidean", False),
        ("equal", np.concatenate([rows, rows[:60]]), "cosine", False),
    ):
        measures = {"duplicates": {"metric": metric, "within": 0.01}}
        found, folder = run_job(tmp_path / name, {"corpus": corpus}, measures=measures)
        results = read_job(str(folder)).results
        caveats = MEASURES["duplicates"].report.caveats(results.part("duplicates"), results)
        assert any(caveat.startswith(said) for caveat in caveats) == expected
        page = (folder / "report.html").read_text()
        assert ("in direction: the cosine distance ignores lengths" in page) == (metric == "cosine")
        assert found["corpora"]["corpus"]["duplicates"] == (60 if name == "equal" else 5)


OWN = "reference/own_nearest_distance"
EXACT = {"duplicates": {"neighbours": "exact"}}
CASES = [("euclidean", 1.0), ("cosine", 0.004), ("manhattan", 2.0)]


@pytest.mark.parametrize(("metric", "within"), CASES)
@pytest.mark.parametrize("rows", [(260, 260), (300, 180), (150, 240)])
def test_counts_and_arrays_are_those_of_all_distances(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    metric: str,
    within: float,
    rows: tuple[int, int],
) -> None:
    monkeypatch.setattr(nearest, "QUERY_ROWS", 100)
    monkeypatch.setattr(cover, "HELD_BYTES", 28 * 3 * 40)
    monkeypatch.setattr(random_rows, "BLOCK_ROWS", 16)
    generator = np.random.default_rng(len(metric) + rows[0])
    corpora = {
        role: crowded(generator, n) for role, n in zip(("corpus", "reference"), rows, strict=True)
    }
    corpora["corpus"][7] = (90.0, -80.0, 1.0)  # far from all
    measures = {"duplicates": {"metric": metric, "within": within}}
    found, folder = run_job(tmp_path, corpora, measures=measures)
    part = found["measures"]["duplicates"]
    name = {"manhattan": "cityblock"}.get(metric, metric)
    for role, points in corpora.items():
        own = cdist(points, points, name)
        np.fill_diagonal(own, np.inf)
        other_role = "reference" if role == "corpus" else "corpus"
        other = cdist(points, corpora[other_role], name)
        for place, distances in (("own", own), ("other", other)):
            stored = read_array(found, folder, f"{role}/{place}_nearest_distance")
            np.testing.assert_allclose(stored, distances.min(axis=1), rtol=1e-6, atol=1e-12)
            row = read_array(found, folder, f"{role}/{place}_nearest_row")
            own_rows = np.arange(len(row))
            np.testing.assert_allclose(distances[own_rows, row], stored, rtol=1e-6, atol=1e-12)
        np.fill_diagonal(own, 0.0)
        for array, reach in (("covered", within), ("repeated", 0.0)):
            representative = greedy(own, reach + 1e-12)
            expected = np.where(representative == np.arange(len(own)), -1, representative)
            stored = read_groups(found, folder, f"{role}/{array}", len(points))
            np.testing.assert_array_equal(stored, expected)
        np.fill_diagonal(own, np.inf)
        assert part[role] == {
            "rows": len(points),
            "exact_duplicates": (own.min(axis=1) <= 1e-12).sum(),
            "near_duplicates": (own.min(axis=1) <= within + 1e-12).sum(),
            "repeated": len(read_array(found, folder, f"{role}/repeated_rows")),
            "covered": len(read_array(found, folder, f"{role}/covered_rows")),
        }
        for title, key in (("exact duplicates", "exact_duplicates"), ("covered", "covered")):
            row = score(found, title, role)
            assert row["value"] == row["lower"] == row["upper"] == part[role][key] / len(points)
    apart = read_array(found, folder, "corpus/other_nearest_distance")
    pair = part["pair"]
    assert pair["leaks"] == (apart <= np.float32(within)).sum()
    # All but 1 in 5000 of so few rows are all.
    assert pair["outlier_distance"] == read_array(found, folder, OWN).max()
    assert pair["outliers"] == (apart > pair["outlier_distance"]).sum() >= 1
    uncovered = read_array(found, folder, "reference/other_nearest_distance")
    assert pair["not_covered"] == (uncovered > pair["outlier_distance"]).sum()


def greedy(distances: Array, within: float) -> Array:
    """Return the earliest kept row within a distance of each row, row by row."""
    kept: list[int] = []
    representative = np.arange(len(distances))
    for row in range(len(distances)):
        near = [other for other in kept if distances[row, other] <= within]
        if near:
            representative[row] = near[0]
        else:
            kept.append(row)
    return representative


def test_greedy_of_distances_is_that_of_the_oracle() -> None:
    rows = crowded(np.random.default_rng(1), 120)
    assert greedy(cdist(rows, rows), 1.0).tolist() == oracles.greedy_sparsification(rows, 1.0)[1]


def test_what_was_put_in_is_found(tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    centres = generator.normal(size=(40, 24))
    pool = centres[generator.integers(40, size=2400)] + 0.7 * generator.normal(size=(2400, 24))
    corpus, reference = pool[:1200].copy(), pool[1200:]
    chosen = generator.permutation(1200)
    near, sources, leaks, far = np.split(chosen[:156], [60, 120, 144])
    corpus[near] = corpus[sources] + generator.normal(size=(60, 24)) * 1e-3
    corpus[leaks] = reference[:24]
    corpus[far] = 20.0 * generator.normal(size=(12, 24))
    found, folder = run_job(
        tmp_path,
        {"corpus": corpus, "reference": reference},
        measures={"duplicates": {"metric": "euclidean", "within": 0.05}},
    )
    covered = read_groups(found, folder, "corpus/covered", 1200)
    pairs = {frozenset(pair) for pair in zip(near.tolist(), sources.tolist(), strict=True)}
    gone = np.flatnonzero(covered >= 0)
    assert {frozenset((int(row), int(covered[row]))) for row in gone} == pairs
    distance = read_array(found, folder, "corpus/other_nearest_distance")
    row = read_array(found, folder, "corpus/other_nearest_row")
    assert set(np.flatnonzero(distance <= 0.05)) == set(leaks)
    np.testing.assert_array_equal(row[leaks], np.arange(24))
    far_from = found["measures"]["duplicates"]["pair"]["outlier_distance"]
    outliers = np.flatnonzero(distance > far_from)
    assert set(far) <= set(outliers)
    assert len(outliers) <= 18
    assert found["verdict"]["value"] == "differs"
    assert found["verdict"]["reason"].startswith(
        "Near-duplicates: 120 of 1,200 rows, where 0 to 7 are expected (p < 0.001"
    )


def test_samples_of_one_source_are_not_told_apart(tmp_path: Path) -> None:
    """Of sizes that differ, with near-duplicates that the source itself has."""
    generator = np.random.default_rng(11)
    alarms = 0
    for seed in range(15):
        source = generator.normal(size=(3000, 5))
        source[:400] = source[400:800] + 1e-3 * generator.normal(size=(400, 5))
        drawn = generator.permutation(3000)
        sizes = ((300, 300), (500, 200), (200, 500))[seed % 3]
        corpora = {
            "corpus": source[drawn[: sizes[0]]],
            "reference": source[drawn[sizes[0] : sum(sizes)]],
        }
        found, _ = run_job(tmp_path / str(seed), corpora)
        expected = [row["expected"] for row in found["scores"] if "expected" in row]
        assert [one["rows"] for one in expected[:2]] == [min(sizes)] * 2
        assert len(expected) == 6
        alarms += found["verdict"]["value"] == "differs"
    assert alarms <= 3


def test_few_rows_beside_many_are_not_told_apart(tmp_path: Path) -> None:
    """Of many rows of the reference, one lies apart; among as few as the corpus has, none does."""
    generator = np.random.default_rng(12)
    for seed in range(8):
        sizes = {"corpus": 5 if seed % 2 else 10, "reference": 1500}
        corpora = {role: generator.normal(size=(n, 12)) for role, n in sizes.items()}
        found, _ = run_job(tmp_path / str(seed), corpora)
        assert found["verdict"]["value"] == "no_difference_found"
    apart = {"corpus": np.full((10, 12), 9.0), "reference": corpora["reference"]}
    found, _ = run_job(tmp_path / "apart", apart)
    assert found["verdict"]["value"] == "differs"


def test_random_rows_stand_for_all_where_these_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(1500, 6))
    rows[:300] = rows[300:600]
    corpora = {"corpus": rows, "reference": generator.normal(size=(900, 6))}
    whole, _ = run_job(tmp_path / "whole", corpora)
    monkeypatch.setattr(nearest, "PAIRS", 500 * 3300)
    found, folder = run_job(tmp_path / "drawn", corpora, measures=EXACT)
    part = found["measures"]["duplicates"]
    assert part["corpus"]["rows"] == part["reference"]["rows"] == 500
    assert "covered" not in part["corpus"]
    assert "duplicates/corpus/covered_by" not in found["arrays"]
    drawn = read_array(found, folder, "corpus/rows")
    np.testing.assert_array_equal(drawn, np.unique(drawn))
    for name in ("exact duplicates", "near-duplicates", "leaks", "outliers", "not covered"):
        of = "corpus" if "dup" in name else "pair"
        row, true = score(found, name, of), score(whole, name, of)["value"]
        # The distance of outliers is that of the rows which were looked up.
        far = name in ("outliers", "not covered")
        assert row["bounds"] == ("estimate" if far else "interval95")
        assert row["lower"] <= true <= row["upper"]
        assert row["share_of"] == 500
    shares = {(row["score"], row["of"]): row.get("share_of") for row in whole["scores"]}
    assert shares.pop(("not covered", "pair")) == 900
    assert set(shares.values()) == {None}
    assert score(found, "exact duplicates")["value"] == pytest.approx(0.4, abs=0.06)
    assert found["corpora"]["corpus"]["duplicates"] == 300


def test_too_many_pairs_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "PAIRS", 399 * 1000)
    corpora = {
        role: np.random.default_rng(3).normal(size=(500, 4)) for role in ("corpus", "reference")
    }
    found, _ = run_job(tmp_path, corpora, measures=EXACT)
    assert found["measures"]["duplicates"] is None
    assert found["measures"]["duplicates_reason"] == (
        "1,000 rows have so many pairs that fewer than 400 random rows could be compared with "
        "all; set measures.duplicates.rows to compare that many"
    )
    assert found["scores"] == []
    with pytest.raises(BadInput, match="pairs of rows of the corpus, and budget"):
        run_job(
            tmp_path / "asked",
            corpora,
            measures={"duplicates": {"rows": 210}},
            budget={"pairs": 1000},
        )


def test_the_advice_for_too_many_pairs_works(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    sizes = {"corpus": 5000, "reference": 4000}
    corpora = {role: generator.normal(size=(n, 4)) for role, n in sizes.items()}
    few = {"pairs": 3e6}  # a row of the corpus has 9000 beside it, and 4000 at the smaller size
    found, _ = run_job(tmp_path / "few", corpora, measures={"duplicates": {}}, budget=few)
    assert found["measures"]["duplicates_reason"].endswith(
        "compared with all; set measures.duplicates.rows to 400 and budget.pairs to 5.2e+06, or "
        "measures.duplicates.rows to at most 230"
    )
    # Without rows, a search in cells is checked by as many rows as the budget allows, not by 5000.
    for rows, pairs in ((400, 5.2e6), (230, 3e6), (None, 6e6)):
        asked = {"measures": {"duplicates": {"rows": rows}}, "budget": {"pairs": pairs}}
        found, _ = run_job(tmp_path / f"{rows}", corpora, **asked)
        assert found["measures"]["duplicates"] is not None


def test_a_small_budget_takes_fewer_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(8)
    sizes = {"corpus": 900, "reference": 600}
    corpora = {role: generator.normal(size=(n, 4)) for role, n in sizes.items()}
    found, _ = run_job(tmp_path, corpora, measures=EXACT, budget={"pairs": 1e6})
    part = found["measures"]["duplicates"]
    # A row of either is compared with 900, 600 and, again, 600 of the 900.
    assert part["corpus"]["rows"] == part["reference"]["rows"] == 10**6 // 2100


@pytest.mark.parametrize("sizes", [(1, 80), (80, 1), (1, 0)])
def test_one_row_has_no_other_rows(tmp_path: Path, sizes: tuple[int, int]) -> None:
    generator = np.random.default_rng(3)
    corpora = {
        role: generator.normal(size=(n, 4))
        for role, n in zip(("corpus", "reference"), sizes, strict=True)
        if n
    }
    found, _ = run_job(tmp_path, corpora)
    assert found["measures"]["duplicates"] is None
    assert found["measures"]["duplicates_reason"].endswith("has one row, which has no other rows")


def test_corpora_of_different_dimensions_are_measured_alone(tmp_path: Path) -> None:
    generator = np.random.default_rng(6)
    corpora = {
        "corpus": generator.normal(size=(200, 4)),
        "reference": generator.normal(size=(180, 7)),
    }
    found, _ = run_job(tmp_path, corpora)
    part = found["measures"]["duplicates"]
    assert "pair" not in part
    assert part["reference"]["rows"] == 180
    assert {row["of"] for row in found["scores"]} == {"corpus", "reference"}
    assert "duplicates/corpus/other_nearest_row" not in found["arrays"]


def test_a_distance_needs_a_scale(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="within must be given with metric euclidean"):
        run_job(
            tmp_path,
            {"corpus": np.eye(4)},
            measures={"duplicates": {"metric": "euclidean"}},
        )


@pytest.mark.parametrize("neighbours", ["exact", "cells"])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_a_distance_beyond_single_precision_is_its_largest_number(
    neighbours: str, metric: str, tmp_path: Path
) -> None:
    generator = np.random.default_rng(9)
    corpora = {role: generator.normal(size=(400, 2)) for role in ("corpus", "reference")}
    corpora["corpus"][:2] = [[3e38, 3e38], [-3e38, 3e38]]
    measures = {"duplicates": {"metric": metric, "within": 0.01, "neighbours": neighbours}}
    found, folder = run_job(tmp_path, corpora, measures=measures)
    distances = read_array(found, folder, "corpus/other_nearest_distance")
    assert distances[0] == np.finfo(np.float32).max
    assert np.isfinite(distances).all()
    assert score(found, "outliers", "pair")["value"] >= 2 / 400
