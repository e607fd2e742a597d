"""Neighbours, graph and heat trace of a corpus that no process holds, against those in memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale.graphs.knn import summarise, symmetrise
from latentscale.graphs.laplacian import normalised_laplacian, unnormalised_laplacian
from latentscale.heat.trace import estimate_heat_trace
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import as_points
from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.jobs.run import Finished
from latentscale_pipeline.measures.shared.neighbours.sizes import Layout
from tests import oracles
from tests.support.jobs import results_of, run_here, timeless
from tests.support.mortal_driver import run_counted

SIZES = "latentscale_pipeline.measures.shared.neighbours.sizes"
N, D, K = 3000, 6, 5
"""More rows than are checked, so that the certificate is one of a sample."""


@pytest.fixture(autouse=True)
def many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a few thousand rows as millions would be: cells, groups, shards and blocks of each."""
    monkeypatch.setattr(f"{SIZES}.HOME_ROWS", 60)
    monkeypatch.setattr(f"{SIZES}.cell_cap", lambda n, d: 300)
    monkeypatch.setattr(f"{SIZES}.GROUP_BYTES", 0)  # 600 rows
    monkeypatch.setattr(f"{SIZES}.VERTEX_BLOCK", 700)
    monkeypatch.setattr("latentscale_pipeline.measures.shared.shard_blocks.BLOCK_BYTES", 16_000)


def clustered(n: int = N, seed: int = 0) -> np.ndarray:
    """Clusters of unequal size, some rows many times."""
    generator = np.random.default_rng(seed)
    sizes = 1.0 / np.arange(1, 13)
    centres = 4 * generator.normal(size=(12, D))
    rows = centres[generator.choice(12, size=n, p=sizes / sizes.sum())]
    rows = (rows + generator.normal(size=rows.shape)).astype("f4")
    rows[generator.choice(n, size=n // 50, replace=False)] = rows[0]
    return rows


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Finished]:
    """Run a job on rows that are ingested with shards of a size."""

    def start(rows: np.ndarray, shard_bytes: int = 8000, name: str = "a", **heat: Any) -> Finished:
        np.save(tmp_path / "rows.npy", rows)
        corpus = ingest(
            [str(tmp_path / "rows.npy")], str(tmp_path / f"{name}.zarr"), shard_bytes=shard_bytes
        )
        fields = {
            "name": name,
            "corpus": corpus.url,
            "output": str(tmp_path / name),
            "sampling": {"method": "none"},
            "measures": {"heat": {"neighbours": "cells", "times": {"count": 8}, "k": K, **heat}},
            "cluster": {"kind": "serial"},
        }
        config = tmp_path / f"{name}.yaml"
        config.write_text(json.dumps(fields))
        return run_here(config)

    return start


def lists_of(finished: Finished) -> np.ndarray:
    return np.load(
        Path(finished.store.url, finished.results.document()["arrays"]["heat/corpus/neighbours"])
    )


@pytest.mark.parametrize("undivided", [4096, 9], ids=["one coarse cell", "many coarse cells"])
def test_lists_graph_and_trace_equal_those_in_memory(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, undivided: int
) -> None:
    monkeypatch.setattr("latentscale.neighbours.two_level_cells.MAX_UNDIVIDED", undivided)
    monkeypatch.setattr("latentscale.neighbours.two_level_cells.SEARCHED_COARSE_CELLS", 3)
    assert Layout(N, D).coarse_cells == (1 if undivided > 50 else 7)
    rows = clustered()
    finished = run(rows)
    found = finished.results.document()["measures"]["heat"]["corpus"]
    lists = lists_of(finished)
    assert lists.shape == (N, K)
    assert (lists != np.arange(N)[:, None]).all()
    for row in np.sort(lists, axis=1):
        assert (np.diff(row) > 0).all()
    exact = exact_neighbours(as_points(rows, "euclidean"), K)
    distances = np.sqrt(np.square(rows[:, None].astype(float) - rows[lists]).sum(axis=2))
    hit = distances <= exact.distances[:, -1:] * (1 + 1e-12)
    recall = found["graph"]["recall"]
    assert recall["sampled"] == 1000
    assert recall["lower"] >= 0.98
    assert recall["lower"] <= hit.mean() <= recall["upper"]
    assert found["graph"]["neighbours"].startswith("cells, overlap ")

    graph = symmetrise(lists)
    summary = summarise(graph)
    assert found["graph"]["edges"] == summary.edges
    assert found["graph"]["components"] == summary.components
    assert found["graph"]["isolated"] == summary.isolated == 0
    # Of the same graph, with other probes and vertices in another order.
    truth = estimate_heat_trace(
        normalised_laplacian(graph),
        found["times"],
        generator=np.random.default_rng(0),
        probes=400,
    )
    for at, value in enumerate(found["trace"]):
        error = np.hypot(truth.standard_error[at], found["standard_error"][at])
        assert abs(truth.trace[at] - value) <= 5 * error + 2 * truth.quadrature[at]


def test_ties_make_no_hub(run: Callable[..., Finished]) -> None:
    rows = clustered()
    rows[::2] = rows[1]
    lists = lists_of(run(rows, recall=0.5))
    pointed = np.bincount(lists.ravel(), minlength=N)
    assert pointed.max() < 40


@pytest.mark.parametrize("undivided", [4096, 9], ids=["one coarse cell", "many coarse cells"])
def test_numbers_depend_on_the_rows_alone(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, undivided: int
) -> None:
    monkeypatch.setattr("latentscale.neighbours.two_level_cells.MAX_UNDIVIDED", undivided)
    monkeypatch.setattr("latentscale.neighbours.two_level_cells.SEARCHED_COARSE_CELLS", 3)
    rows = clustered()
    small = run(rows, 8000, "small")
    large = run(rows, 50_000, "large")
    assert (
        timeless(small.results.document())["measures"]
        == timeless(large.results.document())["measures"]
    )
    np.testing.assert_array_equal(lists_of(small), lists_of(large))


def test_coarse_groups_give_the_numbers_of_one_pass(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = clustered()
    rows[: N // 3] = rows[0]  # a coarse group of many pieces
    direct = run(rows, name="direct", recall=0.9)
    monkeypatch.setattr(f"{SIZES}.MAX_SECTIONS", 0)
    # Running totals before every third block.
    monkeypatch.setattr("latentscale_pipeline.measures.shared.neighbours.shuffle.RUNNING_TOTALS", 3)
    coarsely = run(rows, name="coarsely", recall=0.9)
    assert (
        timeless(direct.results.document())["measures"]
        == timeless(coarsely.results.document())["measures"]
    )
    np.testing.assert_array_equal(lists_of(direct), lists_of(coarsely))
    stages = [timing["stage"] for timing in coarsely.results.document()["timings"]]
    assert "regroup-coarse-corpus" in stages
    assert "regroup-coarse-corpus" not in [
        timing["stage"] for timing in direct.results.document()["timings"]
    ]


def test_a_second_search_goes_through_coarse_groups_too(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = clustered()
    direct = run(rows, name="direct", recall=0.95, overlap=1)
    monkeypatch.setattr(f"{SIZES}.MAX_SECTIONS", 0)
    coarsely = run(rows, name="coarsely", recall=0.95, overlap=1)
    assert (
        timeless(direct.results.document())["measures"]
        == timeless(coarsely.results.document())["measures"]
    )
    np.testing.assert_array_equal(lists_of(direct), lists_of(coarsely))


def test_a_kill_costs_what_was_under_way_and_no_step_twice(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through coarse groups, and with the trace by row blocks."""
    monkeypatch.setattr(f"{SIZES}.MAX_SECTIONS", 0)
    monkeypatch.setattr("latentscale_pipeline.measures.heat.plan.GRAPH_BYTES", 0)
    calm = run(clustered(1500), name="calm", probes=4)
    plans = []
    for name in ("counted", "killed"):
        fields = json.loads((tmp_path / "calm.yaml").read_text())
        text = json.dumps({**fields, "output": str(tmp_path / name)})
        plans.append(make_plan(read_config(text, "job.yaml", measures=measure_sections())))
    _, every = run_counted(plans[0])
    assert max(every.values()) == 1
    assert max(number for stage, number, _ in every if stage == "heat-corpus") == 20
    finished, computed = run_counted(plans[1], (10, 15, 9, 20, 30))
    assert computed == every
    assert finished.results.document()["measures"] == calm.results.document()["measures"]


def test_a_heap_larger_than_any_group(run: Callable[..., Finished]) -> None:
    rows = clustered()
    rows[: N // 2] = rows[0]
    finished = run(rows, recall=0.9)
    lists = lists_of(finished)
    assert (lists[: N // 2] < N).all()
    assert (rows[lists[: N // 2]] == rows[0]).all()


def test_lists_of_large_corpora_stay_in_the_order_of_cells(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = clustered()
    together = lists_of(run(rows, name="together"))
    monkeypatch.setattr("latentscale_pipeline.measures.shared.neighbours.plan.JOINED_ENTRIES", 0)
    apart = run(rows, name="apart")
    arrays = {
        name: np.load(Path(apart.store.url, path))
        for name, path in apart.results.document()["arrays"].items()
    }
    blocks = range(-(-N // 700))
    order = np.concatenate([arrays[f"heat/corpus/rows/{block:05d}"] for block in blocks])
    lists = np.concatenate([arrays[f"heat/corpus/neighbours/{block:05d}"] for block in blocks])
    assert sorted(order) == list(range(N))
    np.testing.assert_array_equal(order[lists], together[order])


def test_probes_in_rounds_give_the_trace(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = clustered()
    alone = run(rows, name="alone", probes=24).results.document()["measures"]["heat"]["corpus"]
    monkeypatch.setattr("latentscale_pipeline.measures.heat.plan.TASK_OPERATIONS", 1.0)
    shared = run(rows, name="shared", probes=24)
    timings = {timing["stage"]: timing for timing in shared.results.document()["timings"]}
    # The first step, and two rounds of six parts each.
    assert timings["heat-corpus"]["tasks"] == 1 + 2 * (6 + 1)
    found = shared.results.document()["measures"]["heat"]["corpus"]
    assert found["probes"] == 24
    for at in range(8):
        error = np.hypot(alone["standard_error"][at], found["standard_error"][at])
        assert abs(alone["trace"][at] - found["trace"][at]) <= 5 * error + 1e-12
    automatic = run(rows, name="automatic", tolerance=0.01, steps="auto").results.document()
    heat = automatic["measures"]["heat"]["corpus"]
    assert heat["probes"] >= 4
    relative = np.array(heat["standard_error"]) / np.array(heat["trace"])
    assert relative.max() <= 0.01


@pytest.mark.parametrize(
    ("laplacian", "distribution"),
    [
        ("unnormalized", "gaussian"),
        pytest.param("normalized", "rademacher", marks=pytest.mark.full),
    ],
)
def test_row_blocks_give_the_trace_of_one_block(
    run: Callable[..., Finished],
    monkeypatch: pytest.MonkeyPatch,
    laplacian: str,
    distribution: str,
) -> None:
    rows = clustered(900)
    monkeypatch.setattr("latentscale_pipeline.measures.heat.plan.GRAPH_BYTES", 0)
    monkeypatch.setattr("latentscale.heat.row_blocks.BATCH", 12)
    keys = {"probes": 20, "laplacian": laplacian, "steps": 6, "distribution": distribution}
    traces = []
    for size in (200, 900):
        monkeypatch.setattr(f"{SIZES}.VERTEX_BLOCK", size)
        finished = run(rows, name=f"blocks-{size}", **keys)
        traces.append(finished.results.document()["measures"]["heat"]["corpus"])
        timings = {timing["stage"]: timing for timing in finished.results.document()["timings"]}
        # Three batches of twelve, twelve and four vectors; two iterations a step.
        iterations = 3 * 6 * 2
        assert timings["heat-corpus"]["tasks"] == 1 + iterations * (-(-900 // size) + 1)
    for key in ("trace", "lower", "upper", "standard_error"):
        np.testing.assert_allclose(traces[0][key], traces[1][key], rtol=1e-9, atol=1e-14)
    form = normalised_laplacian if laplacian == "normalized" else unnormalised_laplacian
    truth = oracles.dense_trace(form(symmetrise(lists_of(finished))).toarray(), traces[0]["times"])
    found = {key: np.array(traces[0][key]) for key in ("trace", "lower", "upper", "standard_error")}
    width = 0.5 * (found["upper"] - found["lower"])
    assert (np.abs(found["trace"] - truth) <= 2.5 * width).all()


def test_row_blocks_estimate_the_moments_of_a_graph_with_hubs(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the graph had hubs: blocks send no rows to square it, and companions follow."""
    monkeypatch.setattr("latentscale_pipeline.measures.heat.plan.GRAPH_BYTES", 0)
    for limit in ("PRODUCT_WORK", "PRODUCT_WORK_OF_A_ROW"):
        monkeypatch.setattr(f"latentscale.heat.trace.{limit}", 0)
    finished = run(clustered(1500), probes=20, steps=10)
    document = finished.results.document()
    found = document["measures"]["heat"]["corpus"]
    timings = {timing["stage"]: timing for timing in document["timings"]}
    # 28 vectors of ten steps in two batches, 80 companions of two steps in five.
    iterations = 2 * (2 * 10 + 5 * 2)
    assert timings["heat-corpus"]["tasks"] == 1 + iterations * (-(-1500 // 700) + 1)
    assert not list(Path(finished.store.url).rglob("needed.npy"))
    graph = normalised_laplacian(symmetrise(lists_of(finished)))
    truth = oracles.dense_trace(graph.toarray(), found["times"])
    assert (np.abs(found["trace"] - truth) <= 5 * np.array(found["standard_error"])).all()
    [stage] = [s for s in planned_stages(finished) if s["stage"] == "heat-corpus"]
    assert stage["method"].endswith("by row blocks, moments estimated")


def planned_stages(finished: Finished) -> list[dict[str, Any]]:
    plan = json.loads(finished.store.read("plan.json"))
    return list(plan["stages"])


def test_row_blocks_go_on_until_the_trace_is_known(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentscale_pipeline.measures.heat.plan.GRAPH_BYTES", 0)
    finished = run(clustered(900), tolerance=0.05, laplacian="unnormalized", steps="auto")
    found = finished.results.document()["measures"]["heat"]["corpus"]
    assert found["steps"] in (20, 40, 80)
    graph = unnormalised_laplacian(symmetrise(lists_of(finished)))
    truth = oracles.dense_trace(graph.toarray(), found["times"])
    width = 0.5 * (np.array(found["upper"]) - np.array(found["lower"]))
    assert (np.abs(found["trace"] - truth) <= 2.5 * width).all()
    relative = np.array(found["standard_error"]) / np.array(found["trace"])
    assert relative.max() <= 0.05
    assert found["probes"] in [4 << i for i in range(9)]


def test_a_missed_recall_is_searched_for_again(run: Callable[..., Finished]) -> None:
    rows = clustered()
    finished = run(rows, recall=0.95, overlap=1)
    graph = finished.results.document()["measures"]["heat"]["corpus"]["graph"]
    first, second = graph["attempts"]
    assert (first["overlap"], second["overlap"]) == (1, 2)
    assert first["recall"]["lower"] < 0.95 <= second["recall"]["lower"]
    assert second["recall"] == graph["recall"]
    assert graph["neighbours"] == "cells, overlap 1, then 2"
    lists = lists_of(finished)
    distances = np.sqrt(np.square(rows[:, None].astype(float) - rows[lists]).sum(axis=2))
    exact = exact_neighbours(as_points(rows, "euclidean"), K)
    hit = distances <= exact.distances[:, -1:] * (1 + 1e-12)
    assert graph["recall"]["lower"] <= hit.mean() <= graph["recall"]["upper"]
    summary = summarise(symmetrise(lists))
    assert (graph["edges"], graph["components"]) == (summary.edges, summary.components)


def test_a_certificate_that_holds_is_not_searched_for_again(run: Callable[..., Finished]) -> None:
    finished = run(clustered())
    graph = finished.results.document()["measures"]["heat"]["corpus"]["graph"]
    assert [attempt["recall"] for attempt in graph["attempts"]] == [graph["recall"]]
    for stage in ("regroup", "search", "neighbours"):
        folder = Path(finished.store.url, "stages", f"{stage}-again-corpus")
        assert list(folder.glob("*/*.json"))
        assert not list(folder.glob("*/part-*/*"))


def test_a_recall_missed_twice_ends_the_job_with_the_figures(run: Callable[..., Finished]) -> None:
    from latentscale_pipeline.errors import TargetMissed

    noise = np.random.default_rng(0).normal(size=(N, D)).astype("f4")
    figures = r"recall is certified at 0\.\d{4} and 0\.\d{4} only, with overlaps of 1 and 2"
    with pytest.raises(TargetMissed, match=figures) as missed:
        run(noise, recall=0.9999, overlap=1)
    # The same command would miss it again, so a scheduler mustn't retry it.
    assert missed.value.exit_code == 2


def test_results_are_those_of_workers(run: Callable[..., Finished], tmp_path: Path) -> None:
    """Sizes are a parent's, so this one works with those of real jobs: one cell."""
    results = timeless(run(clustered(1200)).results.document())
    assert results["measures"]["heat"]["corpus"]["graph"]["recall"]["sampled"] == 1200
    assert results_of(tmp_path / "a")["measures"] == results["measures"]
