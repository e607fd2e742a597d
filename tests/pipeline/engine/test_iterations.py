"""Iterated stages: rounds, their states, and what a kill or damage between them costs."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.iterations import remove_finished_iterations
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.executors.dask.executor import DaskExecutor
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.storage.artifacts import SPENT, Artifact, need_marker
from tests.pipeline.engine.test_loop import Events, make_work, run
from tests.support import toy_stages as toy
from tests.support.mortal_driver import Killed, MortalExecutor


@pytest.fixture(scope="module")
def dask_executor() -> Iterator[DaskExecutor]:
    with local_cluster(Local(workers=2, threads=1, memory_limit=2**30)) as executor:
        yield executor


def outcome(work: Work, stage: Stage) -> tuple[list[float], Any]:
    result = work.result(stage)
    return result.array("numbers").tolist(), result.values["noises"]


def undisturbed(root: Path) -> tuple[list[float], Any]:
    stage = toy.iterated()
    work = make_work(root, [stage])
    run(work, ThreadExecutor)
    return outcome(work, stage)


def test_rounds_go_on_until_the_state_is_finished(tmp_path: Path) -> None:
    stage = toy.iterated(iterations=5)
    work = make_work(tmp_path, [stage])
    events, stage_states = run(work, ThreadExecutor)
    numbers, noises = outcome(work, stage)
    assert numbers == [2.0**-5] * 10
    assert np.unique(np.array(noises)).size == 15  # every part of every round draws its own
    assert events.computed() == {"halve": 1 + 5 * 4}
    assert stage_states[0].done
    assert work.result(stage).values[SPENT]["tasks"] == 21
    iterations = [fields["round"] for event, fields in events if event == "part_done"]
    assert iterations == [0] + [number for number in range(1, 6) for _ in range(4)]


def test_only_the_newest_states_outlive_their_round(tmp_path: Path) -> None:
    stage = toy.iterated(iterations=5)
    work = replace(make_work(tmp_path, [stage]), keep=True)
    run(work, ThreadExecutor)
    folders = work.store.folders(work.folder(stage))
    assert [name for name in folders if name.startswith("round")] == ["round-0004"]
    assert work.store.exists(f"{work.folder(stage)}/round-0004/state.json")


def test_logs_of_tries_outlive_their_round(tmp_path: Path) -> None:
    work = make_work(tmp_path, [toy.iterated()])
    inside = f"{work.folder(work.stages[0])}/round-0001"
    for name in ("part-00000.json", "part-00000.a-0/x.npy", "part-00001.b-0.log", "state.json"):
        work.store.write(f"{inside}/{name}", b"{}")
    remove_finished_iterations(work.store, work.stages[0], work.folder(work.stages[0]), 1)
    left = [key.rpartition("/")[2] for key in work.store.keys(inside)]
    assert left == ["part-00001.b-0.log", "state.json"]


def test_both_executors_give_the_same_numbers(tmp_path: Path, dask_executor: DaskExecutor) -> None:
    stage = toy.iterated()
    work = make_work(tmp_path / "parallel", [stage])
    run(work, lambda: nullcontext(dask_executor))
    assert outcome(work, stage) == undisturbed(tmp_path / "serial")


@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 4, 5, 12, 19, 20])
def test_a_kill_costs_no_more_than_what_was_under_way(tmp_path: Path, tasks: int) -> None:
    stage = toy.iterated()
    work = make_work(tmp_path / "killed", [stage])
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(tasks), "first", Events())
    events, _ = run(work, ThreadExecutor, "second")
    assert events.computed() == {"halve": 21 - tasks}
    assert outcome(work, stage) == undisturbed(tmp_path / "calm")
    assert work.result(stage).values[SPENT]["tasks"] == 21


def test_where_a_resumed_stage_stands_is_said(tmp_path: Path) -> None:
    work = make_work(tmp_path, [toy.iterated()])
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(7), "first", Events())
    assert inspect_stages(work)[0].reason == "resumed in round 2: 2 of 3 parts were there"


def flip(work: Work, artifact: Artifact, name: str) -> None:
    key = artifact.path(name)
    data = bytearray(work.store.read(key))
    data[-1] ^= 1
    work.store.write(key, bytes(data))


def test_a_damaged_part_of_a_round_is_redone_alone(tmp_path: Path) -> None:
    stage = toy.iterated()
    work = make_work(tmp_path / "damaged", [stage])
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(7), "first", Events())
    folder = work.folder(stage)
    flip(work, need_marker(work.store, f"{folder}/round-0002/part-00000"), "share")
    events, _ = run(work, ThreadExecutor, "second")
    assert events.computed() == {"halve": 21 - 7 + 1}
    problem = next(str(fields["problem"]) for event, fields in events if event == "part_corrupt")
    assert problem.startswith("recomputed: round-0002/part-00000.first-")
    assert problem.endswith("share.npy differs from its checksum")
    assert outcome(work, stage) == undisturbed(tmp_path / "calm")


def test_a_damaged_state_costs_one_round(tmp_path: Path) -> None:
    stage = toy.iterated()
    work = make_work(tmp_path / "damaged", [stage])
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(13), "first", Events())
    flip(work, need_marker(work.store, f"{work.folder(stage)}/round-0003/state"), "numbers")
    events, _ = run(work, ThreadExecutor, "second")
    assert events.computed() == {"halve": 21 - 13 + 4}
    assert outcome(work, stage) == undisturbed(tmp_path / "calm")


def test_a_damaged_result_costs_one_round(tmp_path: Path) -> None:
    reader = Stage("reader", toy.read_numbers, toy.MEMORY, needs=("halve",))
    stage = toy.iterated()
    work = replace(make_work(tmp_path / "damaged", [stage, reader]), keep=True)
    run(work, ThreadExecutor)
    flip(work, work.result(stage), "numbers")
    work.store.remove(f"{work.folder(reader)}/result.json")
    events, _ = run(work, ThreadExecutor, "second")
    assert events.computed() == {"halve": 4, "reader": 1}
    assert outcome(work, stage) == undisturbed(tmp_path / "calm")
    assert work.result(reader).values["total"] == pytest.approx(10 / 32)


def test_a_sibling_job_lends_a_finished_iterated_stage(tmp_path: Path) -> None:
    stage = toy.iterated()
    cache = make_work(tmp_path / "first", [stage])
    run(cache, ThreadExecutor)
    reuser = make_work(tmp_path / "second", [stage], (cache.store,))
    events, stage_states = run(reuser, ThreadExecutor)
    assert events.computed() == {}
    assert stage_states[0].reason == "reused from first"
    assert outcome(reuser, stage) == outcome(cache, stage)


def test_looking_ahead_finds_the_round_that_comes_next(tmp_path: Path) -> None:
    stage = toy.iterated()
    work = make_work(tmp_path, [stage])
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(11), "first", Events())
    before = work.store.sizes()
    [seen] = inspect_stages(work, repair=False)
    assert work.store.sizes() == before
    [found] = inspect_stages(work)
    assert (seen.iteration, seen.found, seen.reason) == (3, 2, found.reason)
    assert found.reason == "resumed in round 3: 2 of 3 parts were there"


def test_tasks_of_an_iterated_stage_are_those_of_its_expected_rounds(tmp_path: Path) -> None:
    stage = replace(toy.iterated(), cost_estimate=CostEstimate(iterations=5))
    work = make_work(tmp_path, [stage])
    events, _ = run(work, ThreadExecutor)
    assert stage.tasks == events.computed()["halve"] == 21
    assert stage.side_by_side == 3
    at_once = replace(stage, cost_estimate=CostEstimate(iterations=0))
    assert (at_once.tasks, at_once.side_by_side) == (1, 1)


def passed_on() -> list[float]:
    numbers = np.arange(1.0, 5.0)
    for _ in range(4):
        numbers = np.roll(numbers, 1) + np.roll(numbers, -1)
    return numbers.tolist()


@pytest.mark.parametrize("tasks", [0, 1, 4, 5, 6, 10, 17, 25])
def test_parts_that_read_the_last_round_survive_a_kill(tmp_path: Path, tasks: int) -> None:
    stage = toy.passing()
    work = make_work(tmp_path, [stage])
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(tasks), "first", Events())
    events, _ = run(work, ThreadExecutor, "second")
    assert events.computed() == {"pass": 26 - tasks}
    assert work.result(stage).values["numbers"] == passed_on()
    left = [key for key in work.store.keys(work.folder(stage)) if "/part-" in key]
    assert left == []


@pytest.mark.parametrize("damaged", [["3/part-00001"], ["3/part-00001", "2/part-00002"]])
def test_a_damaged_part_of_the_last_round_is_redone(tmp_path: Path, damaged: list[str]) -> None:
    stage = toy.passing()
    work = make_work(tmp_path, [stage])
    # The first step, three rounds, and a part of the fourth.
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(17), "first", Events())
    for part in damaged:
        flip(work, need_marker(work.store, f"{work.folder(stage)}/round-000{part}"), "number")
    run(work, ThreadExecutor, "second")
    assert work.result(stage).values["numbers"] == passed_on()


def test_a_stage_is_combined_in_one_way() -> None:
    with pytest.raises(ValueError, match="either finalise or advance"):
        Stage("both", toy.halve, 1, finalise=toy.gather, advance=toy.gather)
