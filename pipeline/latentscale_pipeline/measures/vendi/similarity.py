"""The kernel of a Vendi stage: its name or its function, and its bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import cast

from latentscale.vendi.kernels import Kernel
from latentscale_pipeline.config.user_functions import load_function
from latentscale_pipeline.engine.stage import Inputs, Work
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.artifacts import Output


@dataclass(frozen=True)
class Similarity:
    """A kernel with the bandwidth that it has in this job, None where it needs none."""

    kernel: Kernel
    bandwidth: float | None


def find_similarity(inputs: Inputs) -> Similarity | None:
    """Return the kernel of a stage; None where its bandwidth couldn't be found."""
    kernel = find_kernel(inputs)
    given = inputs.parameters["bandwidth"]
    if given != "median":
        return Similarity(kernel, given)
    found = inputs.results["bandwidth"].values.get("bandwidth")
    return None if found is None else Similarity(kernel, float(found))


def find_kernel(inputs: Inputs) -> Kernel:
    """Return the name of a kernel that we know, or import the function."""
    name = inputs.parameters["kernel"]
    return load_function(name) if ":" in name else cast(Kernel, name)


def without_bandwidth(inputs: Inputs) -> Output:
    """Say why there is no bandwidth."""
    return Output(values={"reason": inputs.results["bandwidth"].values["reason"]})


def refusing_bad_functions(work: Work) -> Work:
    """Take what the mathematics refuses in a function as bad input: trying again can't help."""

    @wraps(work)
    def checked(inputs: Inputs) -> Output:
        try:
            return work(inputs)
        except ValueError as problem:
            if ":" not in inputs.parameters["kernel"]:
                raise
            raise BadInput(str(problem)) from None

    return checked
