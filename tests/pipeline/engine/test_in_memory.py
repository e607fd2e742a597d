"""Stages in memory: the same results as with a store, and nothing kept that nobody reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.engine.in_memory import run_in_memory
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.storage.artifacts import SPENT, Output
from tests.pipeline.engine.test_loop import make_work, run
from tests.support import toy_stages as toy


def contents(result: Any) -> Any:
    arrays = {
        name: [result.section(name, inside).tolist() for inside in described["sections"]]
        if "sections" in described
        else (result.array(name).tolist(), str(result.array(name).dtype))
        for name, described in result.objects.items()
    }
    return {key: value for key, value in result.values.items() if key != SPENT}, arrays


def many_kinds(inputs: Inputs) -> Output:
    def sections() -> Any:
        buffer = np.zeros(3, dtype=np.int16)
        for number in range(2):
            buffer[:] = number
            yield str(number), buffer

    return Output(
        {"pair": (1, 2), "by_number": {3: "three"}},
        {"zero": np.float32(5.0)[()] * np.ones(()), "turned": np.arange(6.0).reshape(2, 3).T},
        sections={"cut": sections()},
    )


def spoil(inputs: Inputs) -> Output:
    """Change what was read, which must stay as it is for others."""
    read = inputs.results["kinds"].array("turned")
    before = read.tolist()
    read[:] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        inputs.results["kinds"].section("cut", "1")[:] = 7
    return Output({"read": before})


def kinds() -> list[Stage]:
    readers = [Stage(name, spoil, 1, needs=("kinds",)) for name in ("first", "second")]
    return [Stage("kinds", many_kinds, 1), *readers]


@pytest.mark.parametrize(
    "stages",
    [toy.chain(), [toy.iterated()], [toy.passing()], toy.temporary(), kinds()],
    ids=["chain", "iterated", "reads the last iteration", "temporary", "kinds of data"],
)
def test_results_are_those_of_a_store(stages: list[Stage], tmp_path: Path) -> None:
    work = make_work(tmp_path, stages)
    run(work, ThreadExecutor)
    held = run_in_memory(stages, {})
    for stage in stages:
        if stage.temporary == "parts" and not stage.passing:
            assert contents(held(stage.name)) == contents(work.result(stage))


def test_what_nothing_reads_any_more_is_dropped() -> None:
    stages = toy.temporary()
    held = run_in_memory(stages, {})
    assert set(held.held) == {"low", "high", "total"}  # the whole draw was temporary
    assert not held("low").arrays
    assert set(held("high").arrays) == {"numbers"}
    assert not held("high").parts
    kept = run_in_memory(stages, {}, keep=True)
    assert set(kept("low").arrays) == {"numbers", "passing"}
    assert len(kept("draw").parts) == 4
    again = run_in_memory(stages[1:], {}, known={"draw": kept("draw")})
    assert again("total").values == held("total").values


def test_an_array_is_found_by_its_path() -> None:
    held = run_in_memory([toy.iterated()], {})
    result = held("halve")
    np.testing.assert_array_equal(held.array(result.path("numbers")), np.full(10, 2.0**-5))


def test_a_failing_task_tells_where_and_bad_input_stays_what_it_is() -> None:
    failing = Stage("a", toy.fail_in_one_part, 1, partitions=4, finalise=toy.count_parts)
    with pytest.raises(RuntimeError, match=r"in fail_in_one_part\n(.*\n)*RuntimeError: part two"):
        run_in_memory([failing], {})
    with pytest.raises(BadInput, match="shard 3 is damaged"):
        run_in_memory([toy.one("b", toy.refuse)], {})


def fail_late(inputs: Inputs) -> Output:
    def sections() -> Any:
        raise MemoryError("no room")
        yield

    return Output({}, sections={"cut": sections()})


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda inputs: Output({"score": float("nan")}), "ValueError: Out of range float values"),
        (fail_late, "MemoryError: no room"),
    ],
)
def test_an_output_that_cannot_be_held_is_told_with_its_traceback(work: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        run_in_memory([Stage("spoilt", work, 1)], {})
