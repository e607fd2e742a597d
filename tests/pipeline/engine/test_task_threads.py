"""A task computes on one thread, whatever the process may use."""

from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from latentscale_pipeline.engine import task as tasks
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.engine.task import Task, run_task
from latentscale_pipeline.storage.artifacts import Output, need_marker
from latentscale_pipeline.storage.objects import ObjectStore


def count_threads(inputs: Inputs) -> Output:
    np.ones((2, 2)) @ np.ones((2, 2))
    return Output(values={"threads": [library["num_threads"] for library in threadpool_info()]})


def test_every_task_has_one_thread_and_the_process_its_own_again(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    tasks._libraries.cache_clear()
    with threadpool_limits(3):
        before = [library["num_threads"] for library in threadpool_info()]
        for number in range(2):
            stage = Stage(name=f"threads-{number}", work=count_threads, memory_bytes=1)
            run_task(Task(store, stage, 0, {stage.name: f"stages/{number}"}, {}, "a"))
            found = need_marker(store, f"stages/{number}/result").values["threads"]
            assert found
            assert set(found) == {1}
        assert [library["num_threads"] for library in threadpool_info()] == before
    assert 3 in before
