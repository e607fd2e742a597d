"""The section ``measures.vendi`` of the configuration."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from latentscale_pipeline.config.section import Length, Section
from latentscale_pipeline.config.user_functions import CODE

KERNELS = ("cosine", "rbf", "laplacian")


def _kernel_name(name: str) -> str:
    if name not in KERNELS and not CODE.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a kernel; it can be {', '.join(KERNELS)}, or a function as "
            "module:function"
        )
    return name


KernelName = Annotated[
    str,
    AfterValidator(_kernel_name),
    WithJsonSchema(
        {"anyOf": [{"enum": list(KERNELS)}, {"type": "string", "pattern": f"^{CODE.pattern}$"}]}
    ),
]


Bandwidth = Literal["median"] | Length


class VendiKernel(Section):
    """A kernel of the Vendi score; the bandwidth is in units of the Euclidean distance."""

    name: KernelName
    """`cosine`, `rbf` (exp(-d²/2σ²)), `laplacian` (exp(-d/σ)), or a function as
    `module:function`.
    """
    bandwidth: Bandwidth | None = None
    """σ, a distance; `median`, the default of rbf and laplacian, is the median distance of random
    pairs. A list gives one kernel for each bandwidth.
    """

    @model_validator(mode="after")
    def _bandwidth_fits(self) -> VendiKernel:
        if self.name not in {"rbf", "laplacian"}:
            if self.bandwidth is not None:
                raise ValueError(f"the {self.name} kernel has no bandwidth")
        elif self.bandwidth is None:
            return self.model_copy(update={"bandwidth": "median"})
        return self

    @property
    def label(self) -> str:
        """Return its name in scores: with the bandwidth, so that another kernel renames nothing."""
        return self.name if self.bandwidth is None else f"{self.name} {self.bandwidth}"

    @property
    def is_code(self) -> bool:
        """Whether the kernel is a user's function."""
        return ":" in self.name


class VendiKernels(Section):
    """Kernels that differ only in their bandwidth."""

    name: Literal["rbf", "laplacian"]
    """Kernel with a bandwidth."""
    bandwidth: Annotated[list[Bandwidth], Field(min_length=1)]
    """Bandwidths; each gives one kernel."""


def _kernel_of_each_bandwidth(kernels: Any) -> Any:
    """Expand kernel names and lists of bandwidths into one entry per kernel."""
    if not isinstance(kernels, list):
        return kernels
    spelled: list[Any] = []
    for kernel in kernels:
        one = {"name": kernel} if isinstance(kernel, str) else kernel
        if isinstance(one, dict) and isinstance(one.get("bandwidth"), list) and one["bandwidth"]:
            spelled += [{**one, "bandwidth": bandwidth} for bandwidth in one["bandwidth"]]
        else:
            spelled.append(one)
    return spelled


def _order(order: Any) -> Any:
    if isinstance(order, str) and order.strip().lower() in {"inf", ".inf", "infinity"}:
        return math.inf
    return order


Order = Annotated[
    float,
    Field(ge=0.0, allow_inf_nan=True),
    BeforeValidator(_order),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"enum": ["inf", ".inf", "infinity"]}]}
    ),
]
"""Order of a Vendi score, infinity included (written ``inf``)."""


class Vendi(Section):
    """Vendi scores of several orders under several kernels."""

    kernels: Annotated[
        list[VendiKernel],
        BeforeValidator(
            _kernel_of_each_bandwidth,
            json_schema_input_type=list[VendiKernel | VendiKernels | KernelName],
        ),
        Field(min_length=1),
    ] = Field(default=[VendiKernel(name="cosine"), VendiKernel(name="rbf", bandwidth="median")])
    """Kernels that define similarity, by name or with a bandwidth."""
    orders: list[Order] = Field(
        default=[0.1, 0.5, 1.0, 2.0, math.inf],
        min_length=1,
        json_schema_extra={"default": [0.1, 0.5, 1.0, 2.0, "inf"]},
    )
    """Orders q: below 1, rare rows count more; above 1, common ones do; `inf` uses the largest
    eigenvalue only.
    """
    truncation: Annotated[int, Field(ge=1)] | None = None
    """Number t of the largest eigenvalues from which truncated scores are computed, beside the
    others; null for none. They need all eigenvalues: the cosine kernel, or `method: exact`.
    """
    method: Literal["auto", "exact", "lanczos", "nystrom", "fourier", "subsample"] = "auto"
    """Method for kernels other than cosine; `auto` chooses by the number of rows and
    `budget.pairs`.
    """
    weights: bool = True
    """Whether rows are weighted by the corpus' weights, if it has any."""
    labels: bool = False
    """Whether the rows of every label are also scored separately, under the cosine kernel."""
    influence: bool = True
    """Whether to find how much the score under the cosine kernel loses without each row, for up to
    2·10⁷ rows. The order is 1, or the first positive one that is listed.
    """

    @property
    def code(self) -> tuple[str, ...]:
        """Kernels that are functions."""
        return tuple(kernel.name for kernel in self.kernels if kernel.is_code)

    @model_validator(mode="after")
    def _labels_have_a_kernel(self) -> Vendi:
        if self.labels and all(kernel.name != "cosine" for kernel in self.kernels):
            raise ValueError("labels are scored under the cosine kernel; add it to the kernels")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> Vendi:
        for name, values in (
            ("kernels", [(k.name, k.bandwidth) for k in self.kernels]),
            ("orders", self.orders),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} are listed twice")
        return self
