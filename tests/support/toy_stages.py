"""Stages small enough to reason about, importable by worker processes."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.artifacts import Output

MEMORY = 1000


def draw(inputs: Inputs) -> Output:
    numbers = inputs.generator().normal(size=100)
    return Output({"index": inputs.index}, {"numbers": numbers})


def add_up(inputs: Inputs) -> Output:
    total = sum(float(part.array("numbers").sum()) for part in inputs.parts)
    return Output({"total": total, "order": [part.values["index"] for part in inputs.parts]})


def square(inputs: Inputs) -> Output:
    drawn = inputs.results["draw"]
    largest = max(float(drawn.partition(i).array("numbers").max()) for i in range(4))
    total = drawn.values["total"]
    return Output({"square": total**2, "largest": largest}, {"total": np.array([total])})


def constant(inputs: Inputs) -> Output:
    return Output({"constant": inputs.parameters["value"]})


def fail_until_allowed(inputs: Inputs) -> Output:
    if not Path(inputs.parameters["allowed"]).exists():
        raise RuntimeError("not today\nnor tomorrow")
    return Output({"done": True})


def refuse(inputs: Inputs) -> Output:
    raise BadInput("corpus: shard 3 is damaged")


def leave(inputs: Inputs) -> Output:
    sys.exit(inputs.parameters["why"])


def die_once(inputs: Inputs) -> Output:
    died = Path(inputs.parameters["died"])
    if not died.exists():
        died.write_text("yes")
        os.kill(os.getpid(), signal.SIGKILL)
    return Output({"survived": True})


def wait_for_each_other(inputs: Inputs) -> Output:
    """Go on once the other part has begun."""
    met = Path(inputs.parameters["folder"])
    (met / str(inputs.index)).touch()
    deadline = time.monotonic() + 30
    while len(list(met.iterdir())) < inputs.stage.partitions and time.monotonic() < deadline:
        time.sleep(0.01)
    return Output({"met": len(list(met.iterdir()))})


def make_large(inputs: Inputs) -> Output:
    return Output({}, {"ones": np.ones(inputs.parameters["megabytes"] * 2**20, dtype=np.uint8)})


def after(inputs: Inputs) -> Output:
    return Output({"after": sorted(inputs.results)})


def halve(inputs: Inputs) -> Output:
    """One part of a round: its share of the state, halved."""
    state = inputs.state
    assert state is not None
    share = state.array("numbers")[inputs.index :: inputs.stage.partitions]
    noise = inputs.generator().normal()
    return Output({"noise": noise}, {"share": share / 2})


def gather(inputs: Inputs) -> Output:
    """Begin with ones, put the shares together, and finish after five rounds."""
    if inputs.state is None:
        return Output({"noises": []}, {"numbers": np.ones(10)}, finished=False)
    numbers = np.empty(10)
    for index, part in enumerate(inputs.parts):
        numbers[index :: len(inputs.parts)] = part.array("share")
    noises = [*inputs.state.values["noises"], [part.values["noise"] for part in inputs.parts]]
    finished = inputs.iteration == inputs.parameters["rounds"]
    return Output({"noises": noises}, {"numbers": numbers}, finished=finished)


def pass_on(inputs: Inputs) -> Output:
    """One part of a round: the sum of what both neighbours had in the last one."""
    count, own = inputs.stage.partitions, inputs.index
    if not inputs.last_iteration:
        return Output({}, {"number": np.array([own + 1.0])})
    near = (inputs.last_iteration[(own + side) % count].array("number") for side in (-1, 1))
    return Output({}, {"number": sum(near)})


def stop_after(inputs: Inputs) -> Output:
    """Keep nothing of the parts but, at last, their numbers."""
    finished = inputs.iteration == inputs.parameters["rounds"]
    numbers = [float(part.array("number")[0]) for part in inputs.parts]
    return Output({"numbers": numbers if finished else []}, finished=finished)


def passing(iterations: int = 5) -> Stage:
    """A stage whose four parts read each other's of the round before."""
    return Stage(
        name="pass",
        work=pass_on,
        memory_bytes=MEMORY,
        partitions=4,
        parameters={"rounds": iterations},
        advance=stop_after,
        reads_last_iteration=True,
    )


def read_numbers(inputs: Inputs) -> Output:
    return Output({"total": float(inputs.results["halve"].array("numbers").sum())})


def iterated(iterations: int = 5, name: str = "halve") -> Stage:
    """A stage whose three parts are computed in rounds."""
    return Stage(
        name=name,
        work=halve,
        memory_bytes=MEMORY,
        partitions=3,
        parameters={"rounds": iterations},
        seed=5,
        advance=gather,
    )


def chain(seed: int = 3) -> list[Stage]:
    """Four draws, their sum, its square; and something on the side."""
    return [
        Stage("draw", draw, MEMORY, partitions=4, seed=seed, finalise=add_up, lasting_parts=True),
        Stage("square", square, MEMORY, needs=("draw",)),
        Stage("side", constant, MEMORY, parameters={"value": 7}),
    ]


def read_part(inputs: Inputs) -> Output:
    """Scale one part of what was drawn; fail the first time if asked to."""
    once = inputs.parameters.get("once")
    if once is not None and inputs.index == 2 and not Path(once).exists():
        Path(once).touch()
        raise RuntimeError("not the first time")
    numbers = inputs.results["draw"].partition(inputs.index).array("numbers")
    return Output({"index": inputs.index}, {"numbers": numbers * inputs.parameters["factor"]})


def join(inputs: Inputs) -> Output:
    """Join the parts: an array that others read, and one that they don't."""
    numbers = np.concatenate([part.array("numbers") for part in inputs.parts])
    return Output({"total": float(numbers.sum())}, {"numbers": numbers, "passing": numbers[:1]})


def total(inputs: Inputs) -> Output:
    totals = [float(result.array("numbers").sum()) for result in inputs.results.values()]
    return Output({"totals": totals})


def temporary(once: str | None = None) -> list[Stage]:
    """A draw that two stages read part by part; the arrays of one of them are temporary."""
    low = Stage(
        "low", read_part, MEMORY, 4, ("draw",), parameters={"factor": 2.0, "once": once},
        finalise=join, temporary="arrays",
    )  # fmt: skip
    high = replace(
        low, name="high", parameters={"factor": 3.0}, temporary="parts", passing=("passing",)
    )
    drawn = Stage(
        "draw", draw, MEMORY, 4, seed=3, finalise=add_up, temporary="result", lasting_parts=True
    )
    return [drawn, low, high, Stage("total", total, MEMORY, needs=("low", "high"))]


def read_array(inputs: Inputs) -> Output:
    array = inputs.results["high"].array(inputs.parameters["name"])
    return Output({"total": float(array.sum())})


def reader_of_high(array: str) -> Stage:
    """A stage that reads one of the arrays of ``high``."""
    return Stage(
        "reader", read_array, MEMORY, needs=("high",), parameters={"name": array},
        reads_passing=("high",) if array == "passing" else (),
    )  # fmt: skip


def one(name: str, work: Any, **parameters: Any) -> Stage:
    return Stage(name, work, MEMORY, parameters=parameters)


def wait_for_file(inputs: Inputs) -> Output:
    """Take as long as nobody lets it end."""
    begun = time.monotonic()
    Path(inputs.parameters["begun"]).write_text("yes")
    while not Path(inputs.parameters["allowed"]).exists() and time.monotonic() - begun < 60:
        time.sleep(0.01)
    return Output({"waited": time.monotonic() - begun})


def fail_on_the_first_worker(inputs: Inputs) -> Output:
    """Fail in the process that comes first, and say which ones came."""
    met = Path(inputs.parameters["met"])
    with met.open("a") as file:
        file.write(f"{os.getpid()}\n")
    first, *_ = pids = met.read_text().split()
    if first == str(os.getpid()):
        raise RuntimeError("not in this process")
    return Output({"pids": pids})


def die(inputs: Inputs) -> Output:
    os.kill(os.getpid(), signal.SIGKILL)
    return Output()


def hold(inputs: Inputs) -> Output:
    """Hold as much memory as is asked for, for longer than anyone allows."""
    held = np.ones(inputs.parameters["bytes"] // 8)
    time.sleep(60)
    return Output({"sum": float(held.sum())})


def fail_in_one_part(inputs: Inputs) -> Output:
    if inputs.index == 2:
        raise RuntimeError("part two is cursed")
    return Output({"index": inputs.index})


def work_on(inputs: Inputs) -> Output:
    """Say who works, and compute without a pause."""
    Path(inputs.parameters["begun"], str(os.getpid())).touch()
    total, end = 0.0, time.monotonic() + inputs.parameters["seconds"]
    while time.monotonic() < end:
        total += float(np.linalg.norm(np.ones((200, 200)) @ np.ones((200, 200))))
    return Output({"total": 1.0 if total else 0.0})


def count_parts(inputs: Inputs) -> Output:
    return Output({"count": len(inputs.parts)})


class Bomb:
    """Ends any other process that unpickles it."""

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return explode, (os.getpid(),)


def explode(pid: int) -> Bomb:
    if os.getpid() != pid:
        os.kill(os.getpid(), signal.SIGKILL)
    return Bomb()
