"""Near rows of all rows by cells: what is found, what is missed, and that far rows are settled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import CorpusFacts, JobFacts
from latentscale_pipeline.measures.duplicates import cells, far, in_cells, nearest
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.duplicates.search import merge_rows
from latentscale_pipeline.storage.artifacts import Output
from tests.conftest import Ended
from tests.pipeline.measures.duplicates.test_rows import Array, read_array, run_job, score

Command = Callable[..., Ended]

SIZES = "latentscale_pipeline.measures.shared.neighbours.sizes"
CELLS = {"duplicates": {"metric": "euclidean", "within": 0.3, "neighbours": "cells"}}


@pytest.fixture
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make many cells, groups, blocks and pieces of a few hundred rows."""
    monkeypatch.setattr(cells, "HOME_ROWS", 60)
    monkeypatch.setattr(f"{SIZES}.cell_cap", lambda n, d: 150)
    monkeypatch.setattr(f"{SIZES}.GROUP_BYTES", 0)  # 300 rows
    monkeypatch.setattr("latentscale_pipeline.measures.shared.shard_blocks.BLOCK_BYTES", 8_000)
    monkeypatch.setattr(in_cells, "BLOCK_ROWS", 500)


def clustered(generator: np.random.Generator, rows: int, d: int = 8) -> Array:
    centres = np.random.default_rng(99).normal(size=(30, d)) * 3.0
    return centres[generator.integers(30, size=rows)] + generator.normal(size=(rows, d))


def damaged(n: int, m: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return corpora, and the rows of the first that repeat, leak, lie apart."""
    generator = np.random.default_rng(n + m)
    corpus, reference = clustered(generator, n), clustered(generator, m)
    near, sources, equal, leaks, apart = np.split(
        generator.permutation(n)[: n // 5], np.cumsum([n // 20, n // 20, n // 40, n // 40])
    )
    corpus[near] = corpus[sources] + 1e-3 * generator.normal(size=(len(near), 8))
    corpus[equal] = corpus[equal[0]]
    corpus[leaks] = reference[generator.choice(m, len(leaks), replace=False)]
    corpus[apart] = 40.0 * generator.normal(size=(len(apart), 8))
    rows = {"near": near, "sources": sources, "equal": equal, "leaks": leaks, "apart": apart}
    return {"corpus": corpus.astype("f4"), "reference": reference.astype("f4")}, rows


def distances_by_force(corpora: dict[str, Array], role: str, source: str) -> Array:
    found = cdist(corpora[role].astype("f8"), corpora[source].astype("f8"))
    if role == source:
        np.fill_diagonal(found, np.inf)
    return np.asarray(found.min(axis=1))


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize(
    ("sizes", "sections"),
    [((2000, 2000), 4), ((2400, 900), 1 << 20), ((900, 2400), 4)],
)
def test_what_is_near_is_found_and_what_is_far_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int], sections: int
) -> None:
    monkeypatch.setattr(f"{SIZES}.MAX_SECTIONS", sections)
    corpora, put_in = damaged(*sizes)
    found, folder = run_job(tmp_path, corpora, measures=CELLS)
    stages = {timing["stage"] for timing in found["timings"]}
    assert ("regroup-coarse-near-corpus" in stages) == (sections == 4)
    part = found["measures"]["duplicates"]
    true = {
        (role, place): distances_by_force(corpora, role, source)
        for role, other in (("corpus", "reference"), ("reference", "corpus"))
        for place, source in (("own", role), ("other", other))
    }
    for (role, place), expected in true.items():
        stored = read_array(found, folder, f"{role}/{place}_nearest_distance")
        row = read_array(found, folder, f"{role}/{place}_nearest_row")
        source = role if place == "own" else {"corpus": "reference"}.get(role, "corpus")
        apart = np.linalg.norm(
            corpora[role].astype("f8") - corpora[source][row].astype("f8"), axis=1
        )
        np.testing.assert_allclose(stored, apart, rtol=1e-6, atol=1e-9)
        assert (stored >= expected * (1 - 1e-6)).all()
        near = expected <= 0.3
        assert (stored[near] <= 0.3).sum() >= 0.99 * near.sum()
        check = part[role]["checked" if place == "own" else "checked_across"]
        assert check["near"] >= check["near_found"] >= 0.98 * check["near"]
        assert 0.8 * check["rows"] < check["nearest"] <= check["rows"]
    pair = part["pair"]
    reach = pair["outlier_distance"]
    # Far rows are compared with all others, so what is said of them is exact.
    own = np.sort(true["reference", "own"])
    assert reach == pytest.approx(own[int(np.ceil(0.9998 * (len(own) - 1)))], rel=1e-6)
    assert pair["outliers"] == (true["corpus", "other"] > reach).sum() >= len(put_in["apart"]) - 1
    assert pair["not_covered"] == (true["reference", "other"] > reach).sum()
    assert pair["outliers_settled"]["checked"] == pair["outliers_settled"]["beyond"]
    assert score(found, "outliers", "pair")["bounds"] == "exact"
    near = score(found, "near-duplicates")
    share = float((true["corpus", "own"] <= 0.3).mean())
    assert near["lower"] == near["value"] <= share <= near["upper"] < near["value"] + 0.02
    covered = read_array(found, folder, "corpus/covered_rows")
    pairs = np.sort(np.column_stack([put_in["near"], put_in["sources"]]), axis=1)
    assert np.isin(pairs[:, 1], covered).mean() > 0.99
    assert np.isin(np.sort(put_in["equal"])[1:], covered).all()
    distance = read_array(found, folder, "corpus/other_nearest_distance")
    assert (distance[put_in["leaks"]] == 0.0).all()


@pytest.mark.usefixtures("small_cells")
def test_expected_ranges_are_at_the_smaller_size(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    rows = clustered(generator, 3600)
    rows[:600] = rows[600:1200] + 1e-3
    rows = generator.permutation(rows)
    corpora = {"corpus": rows[:2600], "reference": rows[2600:]}
    found, _ = run_job(tmp_path, corpora, measures=CELLS)
    exact = {"duplicates": {**CELLS["duplicates"], "neighbours": "exact"}}
    usual, _ = run_job(tmp_path / "exact", corpora, measures=exact)
    for name in ("near-duplicates", "leaks", "outliers", "not covered"):
        of = "corpus" if "dup" in name else "pair"
        ours, theirs = (score(each, name, of) for each in (found, usual))
        assert ours["value"] == pytest.approx(theirs["value"], abs=0.005)
        # Which rows are the fewer ones is drawn anew.
        assert ours["expected"]["rows"] == theirs["expected"]["rows"]
        for end in ("lower", "upper", "centre"):
            assert ours["expected"][end] == pytest.approx(theirs["expected"][end], abs=0.02)
    assert found["verdict"]["value"] == usual["verdict"]["value"]


@pytest.mark.usefixtures("small_cells")
def test_a_corpus_elsewhere_is_far_and_too_many_far_rows_are_drawn_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far, "FAR_PAIRS", 0.0)
    generator = np.random.default_rng(6)
    corpora = {"corpus": clustered(generator, 1500) + 100.0, "reference": clustered(generator, 700)}
    found, folder = run_job(tmp_path, corpora, measures=CELLS)
    pair = found["measures"]["duplicates"]["pair"]
    assert pair["outliers"] == 1500
    assert pair["outliers_settled"] == {"beyond": 1500, "checked": 200, "confirmed": 200}
    outliers = score(found, "outliers", "pair")
    assert (outliers["value"], outliers["upper"]) == (1.0, 1.0)
    # Of the reference too few rows were compared with all others, so it reaches farther.
    own = read_array(found, folder, "reference/own_nearest_distance")
    assert pair["outlier_distance"] >= own.max()
    assert outliers["lower"] == pytest.approx(0.025 ** (1 / 200))
    assert outliers["bounds"] == "interval95"
    assert np.isfinite(read_array(found, folder, "corpus/other_nearest_distance")).all()


@pytest.mark.usefixtures("small_cells")
def test_a_heap_of_equal_rows_larger_than_a_group(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    corpus, reference = clustered(generator, 2500), clustered(generator, 1000)
    heap = generator.choice(2500, 1200, replace=False)
    corpus[heap], reference[17] = corpus[heap[0]], corpus[heap[0]]
    corpora = {"corpus": corpus.astype("f4"), "reference": reference.astype("f4")}
    found, folder = run_job(tmp_path, corpora, measures=CELLS)
    part = found["measures"]["duplicates"]
    assert part["corpus"]["exact_duplicates"] == 1200
    assert part["corpus"]["repeated"] == 1199
    assert (read_array(found, folder, "corpus/other_nearest_row")[heap] == 17).all()


@pytest.mark.usefixtures("small_cells")
def test_one_corpus_and_corpora_of_other_dimensions(tmp_path: Path) -> None:
    generator = np.random.default_rng(8)
    rows = clustered(generator, 1500)
    rows[:100] = rows[100:200]
    alone, _ = run_job(tmp_path / "alone", {"corpus": rows}, measures=CELLS)
    assert alone["measures"]["duplicates"]["corpus"]["repeated"] == 100
    assert "checked_across" not in alone["measures"]["duplicates"]["corpus"]
    other = {"corpus": rows, "reference": clustered(generator, 900, d=5)}
    found, _ = run_job(tmp_path / "other", other, measures=CELLS)
    part = found["measures"]["duplicates"]
    assert "pair" not in part
    assert part["corpus"] == alone["measures"]["duplicates"]["corpus"] | {
        "checked": part["corpus"]["checked"]
    }
    assert part["reference"]["rows"] == 900


def test_the_same_numbers_on_more_workers(tmp_path: Path, small_cells: None) -> None:
    corpora, _ = damaged(1800, 1200)
    results: list[dict[str, Any]] = []
    for index, shard_bytes in enumerate((4000, 9000)):
        found, folder = run_job(
            tmp_path / str(index), corpora, measures=CELLS, shard_bytes=shard_bytes
        )
        arrays = {
            name: read_array(found, folder, name.removeprefix("duplicates/")).tolist()
            for name in found["arrays"]
        }
        results.append({"measures": found["measures"], "arrays": arrays})
    assert results[0] == results[1]


def test_rows_are_not_for_cells(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="rows is for neighbours: exact"):
        run_job(
            tmp_path,
            {"corpus": np.eye(4)},
            measures={"duplicates": {"rows": 100, "neighbours": "cells"}},
        )


@pytest.mark.usefixtures("small_cells")
def test_far_rows_that_are_not_far_count_by_their_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells call too many rows far; those that are compared with all tell how many are."""
    generator = np.random.default_rng(16)
    corpora = {"corpus": clustered(generator, 3000), "reference": clustered(generator, 3000)}
    corpora["corpus"][:300] += 30.0
    exact, _ = run_job(tmp_path / "exact", corpora, measures=CELLS)
    monkeypatch.setattr(far, "most_settled", lambda n: 150)
    found, _ = run_job(tmp_path / "drawn", corpora, measures=CELLS)
    settled = found["measures"]["duplicates"]["pair"]["outliers_settled"]
    assert settled["checked"] == 150 < settled["beyond"]
    row, true = score(found, "outliers", "pair"), score(exact, "outliers", "pair")
    assert row["value"] == pytest.approx(
        settled["beyond"] * settled["confirmed"] / settled["checked"] / 3000, abs=1 / 3000
    )
    assert row["lower"] <= true["value"] <= row["upper"]
    assert row["bounds"] == "interval95"


def merge_and_misjudge(inputs: Inputs) -> Output:
    """Merge as ever, and call some rows far that are near."""
    merged = merge_rows(inputs)
    start = inputs.index * inputs.parameters["block_rows"]
    if inputs.parameters["role"] == "corpus":
        places = np.arange(300, 375) - start
        for name, distances in merged.arrays.items():
            if name.startswith("reference") and name.endswith("distance"):
                distances[places[(places >= 0) & (places < len(distances))]] = 50.0
    return merged


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("m", [3000, 1500])
def test_of_rows_that_were_not_checked_as_many_are_far_as_of_the_others(
    m: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(16)
    corpora = {"corpus": clustered(generator, 3000), "reference": clustered(generator, m)}
    corpora["corpus"][:300] += 30.0
    monkeypatch.setattr(far, "most_settled", lambda n: 150)
    monkeypatch.setattr(in_cells, "merge_rows", merge_and_misjudge)
    found, _ = run_job(tmp_path, corpora, measures=CELLS)
    settled = found["measures"]["duplicates"]["pair"]["outliers_settled"]
    assert settled["checked"] == 150
    assert settled["beyond"] >= 375
    assert 20 <= settled["checked"] - settled["confirmed"] <= 45
    row = score(found, "outliers", "pair")
    share = settled["confirmed"] / settled["checked"]
    assert row["value"] * 3000 == round(settled["beyond"] * share)
    assert row["lower"] <= 300 / 3000 <= row["upper"]
    assert row["expected"]["found"] == pytest.approx(settled["beyond"] * share / 3000)


@pytest.mark.usefixtures("small_cells")
def test_too_many_near_rows_have_no_groups(
    tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "MAX_CHECKED", 500)
    generator = np.random.default_rng(17)
    rows = clustered(generator, 1600)
    rows[:800] = rows[800:] + 1e-3
    budget = {"pairs": 1_100_000}
    found, folder = run_job(tmp_path, {"corpus": rows}, measures=CELLS, budget=budget)
    part = found["measures"]["duplicates"]["corpus"]
    assert part["near_duplicates"] == 1600
    assert "covered" not in part
    covered = score(found, "covered")
    assert covered["value"] is None
    assert covered["reason"] == (
        "1,600 rows of the corpus have another one near: more than 1.1e+06 pairs; raise "
        "budget.pairs, or lower within"
    )
    ended = latentscale("rows", folder, "--only", "near-duplicates")
    assert ended.code == 2
    ended = latentscale("rows", folder, "--where", "nearest_distance < 0.1", "--limit", "2000")
    assert ended.code == 0
    assert len(ended.out.splitlines()) > 1600


@pytest.mark.parametrize(
    ("n", "m", "in_cells", "checked"),
    [
        (30_000, 30_000, False, 30_000),
        (40_000, 40_000, True, 10_000),
        (1_000_000, 1_000_000, True, 5000),
        (20_000_000, 20_000_000, True, 400),
        (20_000_000, 3_000_000, True, 400),
        (20_000_001, 0, False, 0),
    ],
)
def test_the_search_follows_from_the_sizes(n: int, m: int, in_cells: bool, checked: int) -> None:
    sizes = {"corpus": n, **({"reference": m} if m else {})}
    facts = JobFacts(
        {role: CorpusFacts(size, 8, "float32", 10, size // 10 + 1) for role, size in sizes.items()},
        seed=0,
        pairs=2e11,
        scale_role="corpus",
    )
    found = nearest.choose_search(Duplicates(), facts)
    if not checked:
        assert found is None
        with pytest.raises(BadInput, match="cells take up to 20,000,000 rows of a corpus"):
            nearest.choose_search(Duplicates(neighbours="cells"), facts)
        return
    assert found is not None
    assert found.in_cells == in_cells
    assert found.compared["corpus"] == checked
    assert found.known == sizes
