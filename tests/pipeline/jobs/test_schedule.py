"""The order of stages, their time and their bytes, against schedules made by hand."""

from dataclasses import replace

import pytest

from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import MARKER_BYTES, Stage
from latentscale_pipeline.jobs.schedule import PendingStage, simulate_schedule
from latentscale_pipeline.jobs.worker_pool import WorkerPool
from tests.support import toy_stages as toy

MB = 10**6
POOL = WorkerPool(workers=2, threads=1, memory_limit=1000, idle_bytes=0, cores=4)


def stage(name: str, tasks: int, written: int, *needs: str, temporary: str = "parts") -> Stage:
    return Stage(
        name, toy.constant, 1, tasks, needs, finalise=toy.after, temporary=temporary,
        cost_estimate=CostEstimate(bytes_written=written),
    )  # fmt: skip


def fresh(stage: Stage, seconds: float) -> PendingStage:
    """All of a stage remains; every task takes ``seconds``."""
    return PendingStage(stage, seconds * stage.partitions, 1.0, 0)


def test_two_chains_run_one_after_the_other() -> None:
    """So the temporary data of the first are gone before the second makes its own."""
    stages = [
        fresh(stage("shuffle-a", 4, 100 * MB, temporary="result"), 1.0),
        fresh(stage("graph-a", 2, 10 * MB, "shuffle-a"), 3.0),
        fresh(stage("shuffle-b", 4, 100 * MB, temporary="result"), 1.0),
        fresh(stage("graph-b", 2, 10 * MB, "shuffle-b"), 3.0),
    ]
    found = simulate_schedule(stages, POOL)
    assert found.seconds == pytest.approx(2 + 3 + 2 + 3)
    assert found.peak_bytes == 100 * MB + 10 * MB + 10 * MB + MARKER_BYTES
    assert found.kept_bytes == 20 * MB + 2 * MARKER_BYTES


def test_a_stage_that_leaves_workers_idle_shares_them() -> None:
    """One task of four seconds beside six of one: 4 s on one worker, then two workers."""
    stages = [fresh(stage("long", 1, 5 * MB), 4.0), fresh(stage("short", 6, 60 * MB), 1.0)]
    found = simulate_schedule(stages, POOL)
    assert found.seconds == pytest.approx(5.0)
    assert found.peak_bytes == found.kept_bytes == 65 * MB


def test_an_odd_task_takes_a_wave_of_its_own() -> None:
    assert simulate_schedule([fresh(stage("odd", 5, MB), 1.0)], POOL).seconds == pytest.approx(3.0)


def test_results_stay_until_all_that_need_them_are_done() -> None:
    cost = CostEstimate(bytes_written=90 * MB, result_bytes=30 * MB, kept_bytes=8 * MB)
    drawn = replace(stage("drawn", 2, 0), cost_estimate=cost)
    stages = [
        fresh(drawn, 1.0),
        fresh(stage("early", 2, 40 * MB, "drawn", temporary="arrays"), 1.0),
        fresh(stage("late", 2, 20 * MB, "drawn", "early"), 1.0),
    ]
    found = simulate_schedule(stages, POOL)
    # 90, then 30 and 40, then 30, 40 and 20.
    assert found.peak_bytes == 90 * MB
    assert found.kept_bytes == 8 * MB + MARKER_BYTES + 20 * MB


def test_an_iterated_stage_holds_three_iterations() -> None:
    cost = CostEstimate(bytes_written=100 * MB, iterations=10, result_bytes=MB)
    iterated = Stage("sums", toy.halve, 1, 2, advance=toy.gather, cost_estimate=cost)
    states = replace(cost, state_bytes=4 * MB)
    assert replace(iterated, cost_estimate=states).running_bytes == (3 * 4 + 6) * MB
    twice = replace(iterated, cost_estimate=states, reads_last_iteration=True)
    assert twice.running_bytes == (3 * 4 + 2 * 6) * MB
    found = simulate_schedule([PendingStage(iterated, 20.0, 1.0, 0)], POOL)
    assert found.seconds == pytest.approx(10.0)
    assert (found.peak_bytes, found.kept_bytes) == (30 * MB, MB)


def test_what_is_there_counts_and_takes_no_time() -> None:
    done, half = stage("done", 2, 10 * MB), stage("half", 4, 40 * MB, "done")
    stages = [PendingStage(done, 0.0, 0.0, 10 * MB), PendingStage(half, 2.0, 0.5, 20 * MB)]
    found = simulate_schedule(stages, POOL)
    assert found.seconds == pytest.approx(1.0)
    assert found.peak_bytes == 50 * MB
    finished = simulate_schedule([PendingStage(done, 0.0, 0.0, 10 * MB)], POOL)
    assert (finished.seconds, finished.peak_bytes) == (0.0, 10 * MB)


def test_memory_and_cores_limit_what_runs_at_once() -> None:
    large = replace(stage("large", 4, MB), memory_bytes=600)
    threads = replace(POOL, workers=1, threads=4)
    assert simulate_schedule([fresh(large, 1.0)], threads).seconds == pytest.approx(4.0)
    crowded = replace(POOL, workers=8)
    assert simulate_schedule([fresh(stage("many", 8, MB), 1.0)], crowded).seconds == pytest.approx(
        2.0
    )


def test_very_many_tasks_are_foreseen_at_once() -> None:
    stages = [fresh(stage(f"s{i}", 100_000, MB), 0.1) for i in range(50)]
    found = simulate_schedule(stages, replace(POOL, workers=2000, cores=2000))
    assert found.seconds == pytest.approx(50 * 5.0, rel=0.01)
