"""The engine: same results on every executor, nothing done twice, nothing lost."""

import http.client
import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Worker

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.config.sizes import parse_bytes
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.executor import Executor
from latentscale_pipeline.engine.keys import stage_keys
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.memory import (
    IDLE_WORKER_BYTES,
    check_memory,
    idle_memory,
    tasks_that_fit,
)
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.engine.state import StageState, inspect_stages
from latentscale_pipeline.engine.task import Task
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.executors.dask.executor import DaskExecutor
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.storage.objects import ObjectStore
from tests.support import toy_stages as toy


@pytest.fixture(scope="module")
def dask_executor() -> Iterator[DaskExecutor]:
    with local_cluster(Local(workers=2, threads=2, memory_limit=2**30)) as executor:
        yield executor


@pytest.fixture(params=["serial", "dask"])
def executor(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[Executor]]:
    if request.param == "serial":
        return ThreadExecutor
    running = request.getfixturevalue("dask_executor")
    return lambda: nullcontext(running)


class Events(list[tuple[str, dict[str, Any]]]):
    """Everything a run told, in order."""

    def __call__(self, event: str, **fields: Any) -> None:
        self.append((event, fields))

    def computed(self) -> Counter[str]:
        """How many parts of each stage were computed."""
        return Counter(fields["stage"] for event, fields in self if event == "part_done")


def make_work(root: Path, stages: list[Stage], caches: tuple[ObjectStore, ...] = ()) -> Work:
    keys = stage_keys(stages, {})
    return Work(ObjectStore(str(root)), stages, keys, {}, lambda key: caches)


def run(
    work: Work, executor: Callable[[], AbstractContextManager[Executor]], attempt: str = "run"
) -> tuple[Events, list[StageState]]:
    events = Events()
    stage_states = inspect_stages(work)
    run_stages(work, stage_states, executor, attempt, events)
    return events, stage_states


def numbers(work: Work) -> list[Any]:
    drawn = work.result(work.stages[0])
    parts = [drawn.partition(i).array("numbers").tolist() for i in range(4)]
    return [parts, *(work.result(stage).values for stage in work.stages)]


def contents(work: Work) -> dict[str, bytes]:
    keys = work.store.keys()
    return {key: work.store.read(key) for key in keys}


def test_both_executors_give_the_same_numbers(tmp_path: Path, dask_executor: DaskExecutor) -> None:
    serial = make_work(tmp_path / "serial", toy.chain())
    parallel = make_work(tmp_path / "parallel", toy.chain())
    run(serial, ThreadExecutor)
    run(parallel, lambda: nullcontext(dask_executor))
    assert numbers(serial) == numbers(parallel)


def test_values_order_and_count(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]]
) -> None:
    work = make_work(tmp_path, toy.chain())
    events, _ = run(work, executor)
    parts, drawn, squared, side = numbers(work)
    assert drawn["order"] == [0, 1, 2, 3]
    assert drawn["total"] == pytest.approx(np.sum(parts), rel=1e-12)
    assert squared["square"] == drawn["total"] ** 2
    assert squared["largest"] == np.max(parts)
    assert side["constant"] == 7
    assert events.computed() == {"draw": 5, "square": 1, "side": 1}


def test_nothing_is_done_twice(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]]
) -> None:
    work = make_work(tmp_path, toy.chain())
    run(work, executor)
    before = contents(work)

    def never() -> AbstractContextManager[Executor]:
        raise AssertionError("nothing is missing")

    events, stage_states = run(work, never)
    assert events.computed() == {}
    assert [stage_state.reason for stage_state in stage_states] == ["already done"] * 3
    assert contents(work) == before


def inside(key: str) -> str:
    """A key below its stage's folder."""
    return "/".join(key.split("/")[3:])


@pytest.mark.parametrize("lost", ["marker", "object"])
def test_only_what_is_missing_is_done(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]], lost: str
) -> None:
    work = make_work(tmp_path, toy.chain())
    run(work, executor)
    before = numbers(work)
    part = work.result(work.stages[0]).partition(2)
    work.store.remove(f"{part.part}.json" if lost == "marker" else part.path("numbers"))
    work.store.remove(f"{work.folder(work.stages[0])}/result.json")
    events, stage_states = run(work, executor, "second")
    assert events.computed() == {"draw": 2}
    why = "" if lost == "marker" else f"; recomputed: {inside(part.path('numbers'))} is missing"
    assert stage_states[0].reason == f"resumed: 3 of 4 parts were there{why}"
    assert numbers(work) == before


def test_a_part_found_corrupt_by_its_reader_is_redone(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]]
) -> None:
    work = make_work(tmp_path, toy.chain())
    run(work, executor)
    before = numbers(work)
    key = work.result(work.stages[0]).partition(1).path("numbers")
    data = bytearray(work.store.read(key))
    data[200] ^= 1
    work.store.write(key, bytes(data))
    work.store.remove(f"{work.folder(work.stages[1])}/result.json")
    events, _ = run(work, executor, "second")
    corrupt = [fields["problem"] for event, fields in events if event == "part_corrupt"]
    assert len(corrupt) == 1
    assert "part-00001" in corrupt[0]
    assert "differs from its checksum" in corrupt[0]
    assert next(f["part"] for e, f in events if e == "part_done" and f["stage"] == "draw") == 1
    assert numbers(work) == before


def test_many_readers_of_one_corrupt_part_have_it_redone_once(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]]
) -> None:
    readers = [Stage(f"square-{i}", toy.square, toy.MEMORY, needs=("draw",)) for i in range(8)]
    work = make_work(tmp_path, [toy.chain()[0], *readers])
    run(make_work(tmp_path, [toy.chain()[0]]), ThreadExecutor)
    key = work.result(work.stages[0]).partition(1).path("numbers")
    data = bytearray(work.store.read(key))
    data[200] ^= 1
    work.store.write(key, bytes(data))
    events, _ = run(work, executor, "second")
    assert sum(event == "part_corrupt" for event, _ in events) == 1
    assert events.computed()["draw"] == 1
    assert len({work.result(stage).values["square"] for stage in readers}) == 1


@pytest.mark.parametrize("lost", ["nothing", "marker", "object", "result", "all"])
def test_looking_ahead_finds_what_a_survey_would_and_touches_nothing(
    tmp_path: Path, lost: str
) -> None:
    work = make_work(tmp_path, toy.chain())
    if lost != "all":
        run(work, ThreadExecutor)
        part = work.result(work.stages[0]).partition(2)
        gone = {
            "marker": [f"{part.part}.json"],
            "object": [part.path("numbers")],
            "result": [f"{work.folder(work.stages[0])}/result.json"],
        }
        for key in gone.get(lost, []):
            work.store.remove(key)
    before = contents(work)
    seen = [
        (s.done, s.found, list(s.waiting), s.reason) for s in inspect_stages(work, repair=False)
    ]
    assert contents(work) == before
    assert seen == [(s.done, s.found, list(s.waiting), s.reason) for s in inspect_stages(work)]
    assert [done for done, *_ in seen] == {
        "nothing": [True, True, True],
        "all": [False, False, False],
    }.get(lost, [False, True, True])


def test_looking_ahead_names_the_sibling_that_lends(tmp_path: Path) -> None:
    first = make_work(tmp_path / "first", toy.chain())
    run(first, ThreadExecutor)
    second = make_work(tmp_path / "second", toy.chain(), caches=(first.store,))
    assert {s.reason for s in inspect_stages(second, repair=False)} == {"reused from first"}
    first.store.remove(first.result(first.stages[0]).partition(1).path("numbers"))
    draw, *others = inspect_stages(second, repair=False)
    assert (draw.done, draw.reason) == (False, "computed")
    assert {s.reason for s in others} == {"reused from first"}
    assert second.store.keys() == []


def test_failures_are_retried_logged_and_contained(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]]
) -> None:
    allowed = tmp_path / "allowed"
    stages = [
        toy.one("failing", toy.fail_until_allowed, allowed=str(allowed)),
        Stage("after", toy.after, toy.MEMORY, needs=("failing",)),
        *toy.chain(),
    ]
    work = make_work(tmp_path / "job", stages)
    events = Events()
    with pytest.raises(Incomplete) as caught:
        run_stages(work, inspect_stages(work), executor, "first", events)
    message = str(caught.value)
    folder = f"{work.store.url}/{work.folder(stages[0])}"
    assert message.startswith(f"stage failing: RuntimeError: not today (log: {folder}/result.")
    assert message.endswith(".log); run the same command again to retry")
    assert sum(event == "part_retried" for event, _ in events) == 2
    assert events.computed() == {"draw": 5, "square": 1, "side": 1}
    logs = [key for key in work.store.keys("stages/failing") if key.endswith(".log")]
    assert len(logs) == 3
    assert b"RuntimeError: not today\nnor tomorrow" in work.store.read(logs[0])

    allowed.write_text("yes")
    events, _ = run(work, executor, "second")
    assert events.computed() == {"failing": 1, "after": 1}
    assert work.result(stages[1]).values == {"after": ["failing"]}


def test_bad_input_ends_the_run(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]]
) -> None:
    work = make_work(tmp_path, [toy.one("refusing", toy.refuse)])
    with pytest.raises(BadInput, match="corpus: shard 3 is damaged"):
        run(work, executor)


def _has_second(dask_worker: Worker) -> bool:
    return any(str(key).startswith("second") for key in dask_worker.state.tasks)


def test_a_worker_prefers_earlier_stages(tmp_path: Path) -> None:
    """The second stage comes before most of the third, which could begin long before it."""
    file = tmp_path / "file"
    third = Stage("third", toy.wait_for_file, toy.MEMORY, 6, finalise=toy.after,
                  parameters={"begun": str(tmp_path / "begun"), "allowed": str(file)})  # fmt: skip
    stages = [toy.one("first", toy.constant, value=1),
              Stage("second", toy.after, toy.MEMORY, needs=("first",)), third]  # fmt: skip
    work, ended = make_work(tmp_path / "job", stages), list[str]()

    def notify(event: str, **fields: Any) -> None:
        if event == "part_done":
            ended.append(fields["stage"])

    with local_cluster(Local(workers=1, threads=1, memory_limit=2**30)) as executor:

        def submit(task: Task) -> None:
            DaskExecutor.submit(executor, task)
            if task.stage.name == "second":
                while not any(executor.client.run(_has_second).values()):
                    time.sleep(0.01)
                file.touch()

        executor.submit = submit  # type: ignore[method-assign]
        run_stages(work, inspect_stages(work), lambda: nullcontext(executor), "run", notify)
    assert ended.index("second") < len(ended) - 3, ended


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    stages = [toy.one("dying", toy.die_once, died=str(tmp_path / "died")), *toy.chain()]
    work = make_work(tmp_path / "job", stages)
    run(work, lambda: local_cluster(Local(workers=1, memory_limit=2**30)))
    assert work.result(stages[0]).values == {"survived": True}
    assert work.result(stages[2]).values["square"] > 0


def test_the_dashboard_is_off_without_bokeh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with local_cluster(Local(workers=1, memory_limit=2**30, dashboard=True)) as executor:
        assert executor.dashboard is None


@pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="needs bokeh")
def test_the_dashboard_is_shown_to_its_own_pages_on_loopback() -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    with local_cluster(Local(workers=1, memory_limit=2**30, dashboard=True)) as executor:
        assert executor.dashboard is not None
        place = executor.dashboard.removeprefix("http://").removesuffix("/status")
        assert place.startswith("127.0.0.1:")

        def answer(path: str, **headers: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection(place, timeout=10)
            connection.request("GET", path, headers=headers)
            answered = connection.getresponse()
            found = answered.status, answered.read().decode()
            connection.close()
            return found

        assert answer("/status")[0] == 200
        assert answer("/info/main/workers.html")[0] == 404
        assert answer("/status/ws", **upgrade, Origin="http://elsewhere.example")[0] == 403
        assert answer("/health") == (200, "ok")
        if importlib.util.find_spec("prometheus_client") is not None:
            found = answer("/metrics")
            assert found[0] == 200
            assert 'dask_scheduler_workers{state="idle"} 1.0' in found[1]


def test_a_sibling_job_lends_its_results(tmp_path: Path) -> None:
    first = make_work(tmp_path / "first", toy.chain())
    run(first, ThreadExecutor)
    second = make_work(tmp_path / "second", toy.chain(), caches=(first.store,))
    events, stage_states = run(second, ThreadExecutor)
    assert events.computed() == {}
    assert {stage_state.reason for stage_state in stage_states} == {"reused from first"}
    assert numbers(second) == numbers(first)


def test_another_seed_is_another_result(tmp_path: Path) -> None:
    first = make_work(tmp_path, toy.chain())
    run(first, ThreadExecutor)
    second = make_work(tmp_path, toy.chain(seed=4))
    events, stage_states = run(second, ThreadExecutor)
    assert events.computed() == {"draw": 5, "square": 1}
    assert stage_states[0].reason.startswith("computed: configuration, input or code differ")
    assert numbers(second)[0] != numbers(first)[0]


def test_keys_cover_everything_a_result_depends_on() -> None:
    def keys(fingerprint: str = "f", **changes: Any) -> dict[str, str]:
        fields: dict[str, Any] = {
            "name": "a",
            "work": toy.draw,
            "memory_bytes": 1,
            "corpora": ("corpus",),
            "seed": 0,
        }
        stages = [
            Stage(**{**fields, **changes}),
            Stage("b", toy.after, 1, needs=(changes.get("name", "a"),)),
        ]
        return stage_keys(stages, {"corpus": fingerprint})

    base = keys()
    for changed in (
        keys("g"),
        keys(seed=1),
        keys(parameters={"k": 6}),
        keys(work=toy.constant),
        keys(partitions=2, finalise=toy.add_up),
    ):
        assert changed["a"] != base["a"]
        assert changed["b"] != base["b"], "what needs it changes too"
    assert (
        keys(memory_bytes=5, lasting_bytes=7, cost_estimate=CostEstimate(3, 4, why="because"))
        == base
    )


@pytest.mark.parametrize(
    "stages",
    [
        [Stage("b", toy.after, 1, needs=("a",)), toy.one("a", toy.constant)],
        [toy.one("a", toy.constant), toy.one("a", toy.constant)],
    ],
)
def test_stages_out_of_order_are_refused(stages: list[Stage]) -> None:
    with pytest.raises(ValueError, match="out of order or duplicate"):
        stage_keys(stages, {})


def test_no_two_streams_of_random_numbers_are_related() -> None:
    streams = [
        Inputs(Stage(name, toy.draw, 1, seed=seed), index, {}, {}).generator().normal(size=2000)
        for name in ("heat-corpus", "heat-reference")
        for index in (-1, 0, 1)
        for seed in (0, 1)
    ]
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 5 / np.sqrt(2000)


def test_drawing_without_a_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="has no seed"):
        Inputs(toy.one("a", toy.draw), 0, {}, {}).generator()


def test_a_task_that_can_not_fit_is_refused() -> None:
    stages = [Stage("small", toy.draw, 10), Stage("large", toy.draw, 2**30)]
    check_memory(stages, 2**30 + IDLE_WORKER_BYTES)
    with pytest.raises(BadInput) as caught:
        check_memory(stages, 2**30 + IDLE_WORKER_BYTES - 1)
    assert str(caught.value).startswith(
        "stage large needs 1.4GiB in one process, but cluster.memory_limit is 1.3GiB; set "
        "cluster.memory_limit to 1.4GiB or more"
    )
    check_memory(stages, parse_bytes("1.4GiB"))


def test_libraries_that_stay_loaded_count_for_every_task() -> None:
    stages = [
        Stage("heavy", toy.draw, 10, lasting_bytes=2**28),
        Stage("large", toy.draw, 2**30),
    ]
    assert idle_memory(stages) == IDLE_WORKER_BYTES + 2**28
    check_memory(stages, 2**30 + 2**28 + IDLE_WORKER_BYTES)
    with pytest.raises(BadInput, match=r"needs 1\.6GiB in one process"):
        check_memory(stages, 2**30 + 2**28 + IDLE_WORKER_BYTES - 1)


@pytest.mark.parametrize(("limit", "fit"), [(2**30, 2), (2**30 + 2**28, 3), (1, 1)])
def test_memory_decides_how_many_tasks_fit(limit: int, fit: int) -> None:
    stage = Stage("a", toy.draw, 2**28)
    assert tasks_that_fit(stage, limit, 2**28 + 2**27) == fit
