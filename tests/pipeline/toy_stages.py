"""Stages small enough to reason about, importable by worker processes."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.publishing import Output

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


def die_once(inputs: Inputs) -> Output:
    died = Path(inputs.parameters["died"])
    if not died.exists():
        died.write_text("yes")
        os.kill(os.getpid(), signal.SIGKILL)
    return Output({"survived": True})


def after(inputs: Inputs) -> Output:
    return Output({"after": sorted(inputs.results)})


def chain(seed: int = 3) -> list[Stage]:
    """Four draws, their sum, its square; and something on the side."""
    return [
        Stage("draw", draw, MEMORY, partitions=4, seed=seed, finalise=add_up),
        Stage("square", square, MEMORY, needs=("draw",)),
        Stage("side", constant, MEMORY, parameters={"value": 7}),
    ]


def one(name: str, work: Any, **parameters: Any) -> Stage:
    return Stage(name, work, MEMORY, parameters=parameters)
