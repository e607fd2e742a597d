"""GeomCA in rounds over shards: kept rows, components and scores against dense integer algebra."""

import json
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.jobs.plan import Plan, make_plan, measure_sections
from latentscale_pipeline.measures.geomca import sparsification
from latentscale_pipeline.measures.geomca.collect import _over_orders
from tests.conftest import Ended
from tests.support.mortal_driver import run_counted
from tests.support.results_documents import check_results

GRID = 120
EPSILON = 5.0
ROLES = ("reference", "corpus")


@pytest.fixture(autouse=True)
def small_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold few rows at a time, so that there are many fronts and groups."""
    monkeypatch.setattr(sparsification, "MIN_HELD_ROWS", 128)
    monkeypatch.setattr(sparsification, "MAX_HELD_ROWS", 128)


def integer_rows(role: str) -> np.ndarray:
    """Rows on an integer grid, where many distances are exactly 5; some far out, some twice."""
    generator = np.random.default_rng(ROLES.index(role))
    n = 2100 + 1000 * ROLES.index(role)
    rows = generator.integers(0, GRID, size=(n, 2))
    rows[::7, 0] //= 3
    far = np.arange(50 + ROLES.index(role), n, 400)
    rows[far] += 1000 * np.arange(1, len(far) + 1)[:, None]
    rows[1500:1520] = rows[100:120]
    return rows.astype("f4")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora of several shards each."""
    folder = tmp_path_factory.mktemp("corpora")
    for role in ROLES:
        np.save(folder / f"{role}.npy", integer_rows(role))
        corpus = ingest([str(folder / f"{role}.npy")], str(folder / f"{role}.zarr"), shard_bytes=1)
        assert corpus.shard_count >= 3
    return folder


def make(corpora: Path, output: Path, *overrides: str) -> Plan:
    text = (
        f"name: rounds\ncorpus: {corpora / 'corpus.zarr'}\n"
        f"reference: {corpora / 'reference.zarr'}\noutput: {output}\n"
        f"cluster: {{kind: serial}}\nmeasures: {{geomca: {{epsilon: {EPSILON}}}}}\n"
        "sampling: {method: none}\n"
    )
    config = read_config(
        text,
        "rounds.yaml",
        overrides=overrides,
        measures=measure_sections(),
    )
    return make_plan(config)


# --- dense algebra on integers ----------------------------------------------------------------


def squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = a.astype(np.int64), b.astype(np.int64)
    return np.asarray(((a[:, None] - b[None]) ** 2).sum(axis=2))


def greedy(rows: np.ndarray, delta: Fraction) -> tuple[list[int], np.ndarray]:
    """Kept rows and the representative of every row, by one pass."""
    near = squared(rows, rows) <= float(delta * delta)
    representative = np.full(len(rows), -1)
    kept = []
    for i in range(len(rows)):
        if representative[i] < 0:
            kept.append(i)
            representative[near[i] & (representative < 0)] = i
    return kept, representative


def expected(
    sides: dict[str, np.ndarray],
    delta: Fraction = Fraction(5),
    epsilon: Fraction = Fraction(5),
    eta_c: float = 0.0,
    eta_q: float = 0.0,
) -> dict[str, Any]:
    thinned = {role: greedy(rows, delta) for role, rows in sides.items()}
    points = np.concatenate([sides[role][thinned[role][0]] for role in ROLES])
    n_reference = len(thinned["reference"][0])
    edges = np.triu(squared(points, points) < float(epsilon * epsilon), 1)
    count, labels = connected_components(csr_array(edges), directed=False)
    of_reference = np.bincount(labels[:n_reference], minlength=count)
    of_corpus = np.bincount(labels[n_reference:], minlength=count)
    between = np.bincount(labels[np.nonzero(edges[:n_reference, n_reference:])[0]], minlength=count)
    whole = np.bincount(labels[np.nonzero(edges)[0]], minlength=count)
    good = [
        2 * min(r, e) / (r + e) > eta_c and (b / w if w else 0) > eta_q
        for r, e, b, w in zip(of_reference, of_corpus, between, whole, strict=True)
    ]
    sides_of = {"reference": labels[:n_reference], "corpus": labels[n_reference:]}
    members = {
        role: labels_of[np.searchsorted(thinned[role][0], thinned[role][1])]
        for role, labels_of in sides_of.items()
    }
    inside = np.array(good)
    return {
        "thinned": thinned,
        "members": members,
        "alone": np.bincount(labels) == 1,
        "edges": sorted(zip(of_reference, of_corpus, between, whole, strict=True)),
        "scores": {
            "precision": float(inside[sides_of["corpus"]].mean()),
            "recall": float(inside[sides_of["reference"]].mean()),
            "precision_rows": float(inside[members["corpus"]].mean()),
            "recall_rows": float(inside[members["reference"]].mean()),
            "quality": between.sum() / max(1, whole.sum()),
            "consistency": 2 * min(n_reference, len(points) - n_reference) / len(points),
        },
    }


def stored(finished: Any, name: str) -> np.ndarray:
    path = finished.store.locate(finished.results.document()["arrays"][f"geomca/{name}"])
    return np.asarray(np.load(path))


def assert_same_partition(found: np.ndarray, wanted: np.ndarray) -> None:
    pairs = set(zip(found.tolist(), wanted.tolist(), strict=True))
    assert len(pairs) == len(set(found.tolist())) == len(set(wanted.tolist()))


def scores_of(entry: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in wanted["scores"]}


# --- the measure ------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1.0, 0.4])
def test_a_job_in_rounds_equals_dense_algebra(corpora: Path, tmp_path: Path, delta: float) -> None:
    plan = make(corpora, tmp_path / "jobs", f"measures.geomca.delta={delta}")
    by_name = {stage.name: stage for stage in plan.stages}
    assert by_name["sparsify-corpus"].partitions == 4
    assert by_name["geomca"].partitions == 17 + 25
    finished, computed = run_counted(plan)
    check_results(finished.results.document())
    iterations = Counter(stage for stage, _, part in computed if part == -1)
    assert iterations["sparsify-corpus"] >= 3
    sides = {role: integer_rows(role) for role in ROLES}
    wanted = expected(sides, delta=Fraction(5) * Fraction(delta).limit_denominator(10))
    for role in ROLES:
        kept, representative = wanted["thinned"][role]
        assert len(kept) > 128
        assert stored(finished, f"kept/{role}").tolist() == kept
        assert stored(finished, f"representative/{role}").tolist() == representative.tolist()
        assert stored(finished, f"rows/{role}").tolist() == list(range(len(sides[role])))
        members = wanted["members"][role]
        alone = np.flatnonzero(wanted["alone"][members])
        assert len(alone) > 3
        assert stored(finished, f"outliers/{role}").tolist() == alone.tolist()
        assert finished.results.document()["measures"]["geomca"]["outliers"][role] == len(alone)
    memberships = [stored(finished, f"membership/{role}") for role in ROLES]
    assert_same_partition(
        np.concatenate(memberships), np.concatenate([wanted["members"][role] for role in ROLES])
    )
    names = ("n_reference", "n_corpus", "edges_between", "edges_reference", "edges_corpus")
    counts = [stored(finished, f"components/{name}") for name in names]
    assert sorted(zip(*counts[:3], sum(counts[2:]), strict=True)) == wanted["edges"]
    found = finished.results.document()["measures"]["geomca"]
    assert scores_of(found, wanted) == pytest.approx(wanted["scores"], rel=1e-12)
    assert found["components"][0]["size"] == max(counts[0] + counts[1])


def test_random_rows_are_thinned_as_a_corpus_of_their_own(corpora: Path, tmp_path: Path) -> None:
    finished = run_counted(make(corpora, tmp_path, "measures.geomca.rows=700"))[0]
    drawn = {role: stored(finished, f"rows/{role}") for role in ROLES}
    sides = {role: integer_rows(role)[drawn[role]] for role in ROLES}
    wanted = expected(sides)
    for role in ROLES:
        assert len(set(drawn[role].tolist())) == 700
        assert (np.diff(drawn[role]) > 0).all()
        kept, representative = wanted["thinned"][role]
        assert stored(finished, f"kept/{role}").tolist() == drawn[role][kept].tolist()
        assert stored(finished, f"representative/{role}").tolist() == representative.tolist()
        alone = np.flatnonzero(wanted["alone"][wanted["members"][role]])
        assert stored(finished, f"outliers/{role}").tolist() == drawn[role][alone].tolist()
    found = finished.results.document()["measures"]["geomca"]
    assert scores_of(found, wanted) == pytest.approx(wanted["scores"], rel=1e-12)


def test_a_sweep_gives_what_jobs_of_their_own_give(corpora: Path, tmp_path: Path) -> None:
    sweep = "{epsilon: [1.0, 1.4], delta: [1.0, 0.6], eta_c: [0.0, 0.5], eta_q: [0.0, 0.6]}"
    drawn = "measures.geomca.rows=600"
    plan = make(corpora, tmp_path / "jobs", f"measures.geomca.sweep={sweep}", drawn)
    counted = ("duplicates", "hashes", "expected", "sampled")
    names = [stage.name for stage in plan.stages if not stage.name.startswith(counted)]
    assert sorted(names) == [
        "geomca",
        "geomca-epsilon-1.0-delta-0.6",
        "geomca-epsilon-1.4-delta-0.6",
        "geomca-epsilon-1.4-delta-1.0",
        "rows-corpus",
        "rows-reference",
        "sparsify-corpus",
        "sparsify-corpus-delta-0.6",
        "sparsify-reference",
        "sparsify-reference-delta-0.6",
    ]
    finished = run_counted(plan)[0]
    check_results(finished.results.document())
    found = finished.results.document()["measures"]["geomca"]["sweep"]
    assert len(found) == 16
    sides = {role: integer_rows(role)[stored(finished, f"rows/{role}")] for role in ROLES}
    for entry in found:
        wanted = expected(
            sides,
            Fraction(entry["delta"]).limit_denominator(10),
            Fraction(entry["epsilon"]).limit_denominator(10),
            entry["eta_c"],
            entry["eta_q"],
        )
        assert scores_of(entry, wanted) == pytest.approx(wanted["scores"], rel=1e-12)
        assert entry["sizes"]["corpus_sparse"] == len(wanted["thinned"]["corpus"][0])
        assert entry["component_count"] == len(wanted["edges"])
    assert len({(entry["epsilon"], entry["delta"]) for entry in found}) == 4


def test_replicates_bracket_the_scores_over_row_orders(corpora: Path, tmp_path: Path) -> None:
    alone = run_counted(make(corpora, tmp_path / "alone"))[0].results.document()
    plan = make(corpora, tmp_path / "jobs", "replicates.count=3")
    finished = run_counted(plan)[0]
    check_results(finished.results.document())
    found = finished.results.document()["measures"]["geomca"]
    assert len(found["orders"]) == 3
    assert len({order["recall"] for order in found["orders"]}) > 1
    sides = {role: integer_rows(role) for role in ROLES}
    for role in ROLES:
        path = f"stages/sparsify-{role}-order-2"
        assert plan.keys[f"sparsify-{role}-order-2"] != plan.keys[f"sparsify-{role}-order-1"]
        [kept] = Path(finished.store.url, path).rglob("kept.npy")
        rows = sides[role][np.load(kept)]
        apart = squared(rows, rows)
        np.fill_diagonal(apart, 10**6)
        assert apart.min() > 25
        assert (squared(sides[role], rows).min(axis=1) <= 25).all()
        assert np.load(kept).tolist() != greedy(sides[role], Fraction(5))[0]
    for row, other in zip(finished.results.document()["scores"], alone["scores"], strict=True):
        assert row["value"] == other["value"]
        values = [order[row["score"]] for order in found["orders"]] if row["of"] == "pair" else []
        if values:
            half = 4.302653 * float(np.std(values, ddof=1)) * math.sqrt(4 / 3)
            low, high = np.mean(values) - half, np.mean(values) + half
            assert row["lower"] == pytest.approx(min(row["value"], max(0.0, low)), abs=1e-6)
            assert row["upper"] == pytest.approx(max(row["value"], min(1.0, high)), abs=1e-6)
            assert row["bounds"] == ("interval95" if half > 0 else "estimate")


def test_replicates_of_random_rows_say_nothing_of_all_rows(corpora: Path, tmp_path: Path) -> None:
    plan = make(corpora, tmp_path / "jobs", "replicates.count=3", "measures.geomca.rows=600")
    found = run_counted(plan)[0].results.document()
    check_results(found)
    assert len(found["measures"]["geomca"]["orders"]) == 3
    for row in found["scores"]:
        if row["of"] == "pair":
            assert (row["lower"], row["upper"], row["bounds"]) == (0.0, 1.0, "estimate")


def test_a_kill_costs_what_was_under_way_and_no_round_twice(corpora: Path, tmp_path: Path) -> None:
    calm, every = run_counted(make(corpora, tmp_path / "calm"))
    assert max(every.values()) == 1
    finished, computed = run_counted(make(corpora, tmp_path / "killed"), (7, 20, 31))
    assert computed == every
    assert finished.results.document()["measures"] == calm.results.document()["measures"]


# --- epsilon and the plan ---------------------------------------------------------------------


def test_epsilon_is_that_of_rows_read_one_by_one(corpora: Path, tmp_path: Path) -> None:
    plan = make(corpora, tmp_path, "measures.geomca={percentile: 5, delta: 0.5}")
    found = run_counted(plan)[0].results.document()["measures"]["geomca"]
    rows = integer_rows("reference")
    distances = np.sqrt(squared(rows, rows))[np.triu_indices(len(rows), 1)]
    # Distances on a grid take few values, and resampling may always give the same one.
    assert found["epsilon_lower"] <= found["epsilon"] <= found["epsilon_upper"]
    assert found["epsilon"] == pytest.approx(np.percentile(distances, 5), rel=0.05)
    assert found["epsilon_upper"] < 1.2 * found["epsilon_lower"]
    assert found["delta"] == 0.5 * found["epsilon"]


def test_thresholds_cost_nothing(corpora: Path, tmp_path: Path) -> None:
    first, second = (
        make(corpora, tmp_path, f"measures.geomca.eta_c={eta}", f"measures.geomca.eta_q={eta}")
        for eta in (0.0, 0.5)
    )
    assert first.id != second.id
    # Samples are scored where they are measured.
    samples = {"expected-geomca", "sampled-50-geomca", "sampled-100-geomca"}
    assert {name: key for name, key in first.keys.items() if name not in samples} == {
        name: key for name, key in second.keys.items() if name not in samples
    }


def test_a_job_that_would_keep_too_many_rows_takes_random_ones(
    corpora: Path, tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    config = tmp_path / "job.yaml"
    described = {
        "name": "budget",
        "corpus": str(corpora / "corpus.zarr"),
        "reference": str(corpora / "reference.zarr"),
        "output": str(tmp_path / "jobs"),
        "measures": {"geomca": {}},
        "budget": {"pairs": 1e5},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(described))
    ended = latentscale("plan", config)
    assert ended.code == 0
    assert "890 random rows" in ended.out
    ended = latentscale("plan", config, "-o", "measures.geomca.rows=1000")
    assert ended.code == 2
    [line] = ended.err.strip().splitlines()
    assert "budget.pairs is 1.0e+05; set measures.geomca.rows to 890 or fewer" in line
    assert latentscale("plan", config, "-o", "measures.geomca.rows=890").code == 0
    assert latentscale("plan", config, "-o", "budget.pairs=2e6").code == 0
    assert latentscale("run", config, "-o", "measures.geomca.rows=100").code == 0
    described["name"] = "fitting"
    config.write_text(json.dumps(described))
    assert latentscale("run", config).code == 0
    [stored_results] = (tmp_path / "jobs").glob("fitting-*/results.json")
    results = json.loads(stored_results.read_text())
    words = {row["bounds"] for row in results["scores"] if row["measure"] == "geomca"}
    assert words == {"estimate"}
    [drawn] = np.load(stored_results.parent / results["arrays"]["geomca/rows/corpus"]).shape
    assert drawn == 890


def test_a_bracket_by_orders_that_agree_is_an_estimate() -> None:
    others = [0.81] * 7  # their mean in floating point is another number
    assert float(np.mean(others)) != 0.81
    estimate = _over_orders(0.81, others, drawn=False)
    assert (estimate.lower, estimate.value, estimate.upper) == (0.81, 0.81, 0.81)
    assert (estimate.bounds, estimate.standard_error) == ("estimate", 0.0)
    assert _over_orders(0.81, [*others, 0.82], drawn=False).bounds == "interval95"
