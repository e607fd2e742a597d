"""Temporary data go once they are read, and come back if they are needed again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from latentscale_pipeline.engine.collection import collect_job, has_garbage
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.state import StageState, inspect_stage, inspect_stages, is_complete
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.executors import stepwise
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.storage.objects import ObjectStore
from tests.pipeline.engine.test_loop import Events, make_work, run
from tests.support import toy_stages as toy
from tests.support.jobs import damage
from tests.support.mortal_driver import Killed, MortalExecutor

LEFT = {
    "draw": {"collected.json"},
    "low": {"collected.json", "result.json"},
    "high": {"collected.json", "result.json", "numbers.npy"},
    "total": {"result.json"},
}
"""What a finished job has of each stage."""

TASKS = {"draw": 5, "low": 5, "high": 5, "total": 1}


def left(work: Work) -> dict[str, set[str]]:
    """Names of the objects in every stage's folder, without logs."""
    objects = {}
    for stage in work.stages:
        names = {key.rpartition("/")[2] for key in work.store.keys(work.folder(stage))}
        objects[stage.name] = {name for name in names if not name.endswith(".log")}
    return objects


def outcome(work: Work) -> Any:
    _, low, high, total = work.stages
    values = [work.result(stage).values for stage in (low, high, total)]
    return values, work.result(high).array("numbers").tolist()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    work = replace(make_work(tmp_path_factory.mktemp("whole"), toy.temporary()), keep=True)
    run(work, ThreadExecutor)
    return outcome(work)


class Watcher(Events):
    """Remembers what was there whenever a stage began or a part was tried again."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.seen: dict[tuple[str, str], dict[str, set[str]]] = {}

    def __call__(self, event: str, **fields: Any) -> None:
        super().__call__(event, **fields)
        self.seen[event, fields["stage"]] = left(self.work)


def test_data_go_once_all_that_need_them_are_done(tmp_path: Path, undisturbed: Any) -> None:
    """A part of a reader fails meanwhile: what it reads is still there."""
    work = make_work(tmp_path / "job", toy.temporary(once=str(tmp_path / "once")))
    watcher = Watcher(work)
    run_stages(work, inspect_stages(work), ThreadExecutor, "run", watcher)
    parts = {f"part-{index:05d}.json" for index in range(4)}
    for moment in (("stage_started", "high"), ("part_retried", "low"), ("stage_done", "low")):
        assert watcher.seen[moment]["draw"] == parts | {"result.json", "numbers.npy"}
    assert watcher.seen["stage_started", "total"] == {
        "draw": {"collected.json"},
        "low": {"collected.json", "result.json", "numbers.npy", "passing.npy"},
        "high": {"collected.json", "result.json", "numbers.npy", "passing.npy"},
        "total": set(),
    }
    assert left(work) == LEFT
    assert outcome(work) == undisturbed
    states = {state.stage.name: state for state in inspect_stages(work)}
    assert all(state.done for state in states.values())
    collected = {name: state.collected for name, state in states.items()}
    assert collected == {"draw": True, "low": True, "high": False, "total": False}


@pytest.mark.parametrize("tasks", range(1, sum(TASKS.values())))
def test_a_kill_between_tasks_costs_one_task(tasks: int, tmp_path: Path, undisturbed: Any) -> None:
    work = make_work(tmp_path, toy.temporary())
    first = Events()
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(tasks), "first", first)
    second, _ = run(work, ThreadExecutor, "second")
    assert sum((first.computed() + second.computed()).values()) == sum(TASKS.values())
    assert outcome(work) == undisturbed
    assert left(work) == LEFT


def test_a_kill_within_a_removal_costs_nothing(
    tmp_path: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every object or folder that is removed, before and after."""
    removed, due = 0, -1

    def mortal(remove: Any) -> Any:
        def last(store: ObjectStore, key: str) -> None:
            nonlocal removed
            removed += 1
            if removed == due:
                raise Killed
            remove(store, key)

        return last

    monkeypatch.setattr("latentscale_pipeline.storage.objects.REQUESTS", 1)
    for name in ("remove", "remove_all"):
        monkeypatch.setattr(ObjectStore, name, mortal(getattr(ObjectStore, name)))
    run(make_work(tmp_path / "whole", toy.temporary()), ThreadExecutor)
    for moment in range(1, removed + 1):
        work = make_work(tmp_path / str(moment), toy.temporary())
        events, removed, due = Events(), 0, moment
        with pytest.raises(Killed):
            run_stages(work, inspect_stages(work), ThreadExecutor, "first", events)
        due = -1
        again, _ = run(work, ThreadExecutor, "again")
        assert events.computed() + again.computed() == TASKS
        assert outcome(work) == undisturbed
        assert set(left(work)["draw"]) == {"collected.json"}


@pytest.mark.parametrize("thorough", [False, True])
def test_what_is_gone_is_computed_again_for_a_damaged_reader(
    thorough: bool, tmp_path: Path, undisturbed: Any
) -> None:
    """Found by the stage that reads it, or by an inspection: with all that it is made of."""
    work = make_work(tmp_path, toy.temporary())
    _, _, high, total = work.stages
    with pytest.raises(Killed):
        run_stages(work, inspect_stages(work), lambda: MortalExecutor(15), "first", Events())
    assert left(work)["draw"] == {"collected.json"}
    damage(tmp_path / work.result(high).path("numbers"), "flipped", at=300)
    events = Events()
    states = inspect_stages(work, thorough=thorough)
    run_stages(work, states, ThreadExecutor, "again", events)
    assert events.computed() == {"draw": 5, "high": 5, "total": 1}
    assert "numbers.npy differs from its checksum" in states[2].reason
    assert outcome(work) == undisturbed
    assert left(work) == LEFT
    # Of a finished job: what the damaged result is made of, and that only.
    damage(tmp_path / work.folder(total) / "result.json", "missing")
    again, _ = run(work, ThreadExecutor, "last")
    assert again.computed() == {"draw": 5, "low": 5, "total": 1}
    assert outcome(work) == undisturbed
    assert left(work) == LEFT


def test_a_stage_that_is_computed_again_keeps_its_parts(tmp_path: Path, undisturbed: Any) -> None:
    """Its readers are done, so nothing reads its result; its own parts are still needed."""
    work = make_work(tmp_path, toy.temporary())
    kept = replace(work, keep=True)
    run(kept, ThreadExecutor)
    low = work.stages[1]
    for name in ("result", "part-00003"):
        damage(tmp_path / work.folder(low) / f"{name}.json", "missing")
    events, _ = run(work, ThreadExecutor, "again")
    assert events.computed() == {"low": 2}
    assert outcome(work) == undisturbed
    assert left(work) == LEFT


def test_steps_remove_what_no_stage_reads(
    tmp_path: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By processes without a lock; a late one finds its inputs gone and has nothing to do."""
    work = make_work(tmp_path, toy.temporary())
    late: dict[str, StageState] = {}
    for stage in work.stages:
        stepwise.init_stage(work, stage, "init")
        late[stage.name] = inspect_stage(work, stage, repair=False)
        stepwise.work_on_stage(work, stage, stepwise.Share(), "work")
        assert "draw" not in stage.needs or "numbers.npy" in left(work)["draw"]
        assert stepwise.finalise_stage(work, stage, "finalise").done
    assert left(work) == LEFT
    assert outcome(work) == undisturbed
    with monkeypatch.context() as patch:
        patch.setattr(stepwise, "inspect_stage", lambda work, stage, repair: late[stage.name])
        for stage in work.stages[1:3]:
            stepwise.work_on_stage(work, stage, stepwise.Share(), "late")
    assert all(stepwise.init_stage(work, stage, "again").done for stage in work.stages)
    assert outcome(work) == undisturbed


def test_a_sibling_takes_what_is_left_and_computes_what_is_gone(
    tmp_path: Path, undisturbed: Any
) -> None:
    """Whether the other job is finished or under way."""
    for tasks in (5, 14, 15):
        lender = make_work(tmp_path / f"lender-{tasks}", toy.temporary())
        with pytest.raises(Killed):
            run_stages(
                lender, inspect_stages(lender), lambda n=tasks: MortalExecutor(n), "a", Events()
            )
        borrower = make_work(tmp_path / f"borrower-{tasks}", toy.temporary(), (lender.store,))
        events, _ = run(borrower, ThreadExecutor)
        missing = {"low": 5, "high": 5, "total": 1}
        if tasks == 14:
            missing = {"high": 5, "total": 1}
        if tasks == 15:
            missing = {"total": 1}
        assert events.computed() == missing
        assert outcome(borrower) == undisturbed
        assert left(borrower) == LEFT


@pytest.mark.parametrize("reads_passing", [False, True])
def test_what_an_earlier_job_removed_is_computed_only_for_a_stage_that_reads_it(
    reads_passing: bool, tmp_path: Path
) -> None:
    """The new job has another reader; nothing was damaged, and no message says so."""
    lender = make_work(tmp_path / "lender", toy.temporary())
    run(lender, ThreadExecutor)
    reader = toy.reader_of_high("passing" if reads_passing else "numbers")
    borrower = make_work(tmp_path / "borrower", [*toy.temporary(), reader], (lender.store,))
    states = {state.stage.name: state for state in inspect_stages(borrower, repair=False)}
    assert states["high"].done is not reads_passing
    events, inspected = run(borrower, ThreadExecutor)
    assert events.computed() == {"reader": 1} | ({"draw": 5, "high": 5} if reads_passing else {})
    assert not any("missing" in state.reason for state in inspected)
    assert "part_corrupt" not in {event for event, _ in events}
    again, _ = run(borrower, ThreadExecutor)
    assert not again.computed()


def test_folders_are_listed_once_for_all_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find what a job has, and whether anything can go: on a remote store each list waits."""
    work = make_work(tmp_path, toy.temporary())
    listed: list[str] = []
    sizes = ObjectStore.sizes

    def watched(store: ObjectStore, prefix: str = "") -> dict[str, int]:
        listed.append(prefix)
        return sizes(store, prefix)

    monkeypatch.setattr(ObjectStore, "sizes", watched)
    states = inspect_stages(work)
    assert listed == ["stages"]
    run_stages(work, states, ThreadExecutor, "run", Events())
    listed.clear()
    assert is_complete(work)
    assert not has_garbage(work, [])
    assert listed == ["stages", "stages"]


def test_a_superseded_stage_goes(tmp_path: Path) -> None:
    work = make_work(tmp_path, toy.temporary())
    run(work, ThreadExecutor)
    for key in ("other", "named"):
        work.store.write(f"stages/low/{key}/result.json", b"{}")
    work.store.write("stages/notes.txt", b"of a user")
    assert has_garbage(work, [])
    collect_job(work, ["stages/low/named/result.a-0/numbers.npy"])
    assert not has_garbage(work, ["stages/low/named/result.a-0/numbers.npy"])
    assert set(work.store.folders("stages/low")) == {work.keys["low"], "named"}
    assert work.store.read("stages/notes.txt") == b"of a user"
    assert left(work) == LEFT
