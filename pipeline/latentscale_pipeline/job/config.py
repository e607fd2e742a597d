"""The job configuration: what a YAML file may say, with every default in one place.

Every key is checked; one that isn't known is refused with its path and the nearest name that is.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.cluster_config import CLUSTERS as CLUSTERS
from latentscale_pipeline.job.cluster_config import LEAST_MEMORY as LEAST_MEMORY
from latentscale_pipeline.job.cluster_config import Cluster as Cluster
from latentscale_pipeline.job.cluster_config import Driver as Driver
from latentscale_pipeline.job.cluster_config import Local as Local
from latentscale_pipeline.job.cluster_config import Serial as Serial
from latentscale_pipeline.job.sizes import Bytes as Bytes
from latentscale_pipeline.job.sizes import parse_bytes as parse_bytes

Model = TypeVar("Model", bound=BaseModel)

Auto = Literal["auto"]
Metric = Literal["euclidean", "cosine", "manhattan"]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Tolerance = Annotated[float, Field(gt=0.0, lt=1.0)]
Length = Annotated[float, Field(ge=1e-100, le=1e100)]
"""A distance whose square is still a number."""


class Section(BaseModel):
    """A part of the configuration: closed to unknown keys, and immutable once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    by_default: ClassVar[bool] = True
    """Whether a measure with this section is taken where a job names no measures."""

    equal_dimensions: ClassVar[bool] = False
    """Whether a measure with this section compares two corpora coordinate by coordinate."""

    @property
    def code(self) -> tuple[str, ...]:
        """Functions that it names, as ``module:function``, and that a run would call."""
        return ()


class Replicates(Section):
    """Repetitions: GeomCA under random row orders; with ``rows``, heat on random subsamples."""

    count: Annotated[int, Field(ge=1, le=1000)] = 1
    """Random row orders, or subsamples; 1 is the stored order alone."""
    rows: PositiveInt | None = None
    """Rows of a subsample, at most half of each corpus; null for no subsamples."""

    @model_validator(mode="after")
    def _enough(self) -> Replicates:
        if self.rows is not None and self.count < 2:
            raise ValueError("rows needs a count of at least 2, for there to be a spread")
        return self


class ExcludedShards(Section):
    """Shards whose rows are left out of the job, by their keys in the corpus' folder."""

    corpus: list[str] = []
    """Keys in the corpus' folder, such as `vectors/c/3/0`."""
    reference: list[str] = []
    """The same in the reference's folder."""


class Budget(Section):
    """Work that a measure may spend on one corpus."""

    pairs: PositiveFloat = 2.0e11
    """Pairs of rows. A method that would need more isn't chosen, a job that can't do without is
    refused.
    """


class HeatTimes(Section):
    """Logarithmically spaced diffusion times."""

    start: PositiveFloat = 0.1
    """First diffusion time (no unit)."""
    stop: PositiveFloat = 10.0
    """Last diffusion time."""
    count: Annotated[int, Field(ge=2, le=10_000)] = 256
    """How many times, evenly spaced in their logarithm."""

    @model_validator(mode="after")
    def _ordered(self) -> HeatTimes:
        if self.start >= self.stop:
            raise ValueError("start must be below stop")
        return self


class Heat(Section):
    """Heat trace of the neighbour graph, and IMD with a reference."""

    k: PositiveInt = 5
    """Neighbours of a row. Two rows are joined when either is among the other's k nearest."""
    metric: Metric = "euclidean"
    """Distance by which neighbours are near."""
    neighbours: Literal["auto", "exact", "cells"] = "auto"
    """How neighbours are found: `auto` is exact up to 50 000 rows and in cells beyond."""
    recall: Fraction = 0.98
    """Share of true neighbours that a search in cells has to find; a certificate holds it to that.
    """
    overlap: Auto | PositiveInt = "auto"
    """Cells that a row joins; `auto` chooses the fewest of 2, 3, 4 and 6 that promise the recall.
    """
    times: HeatTimes = HeatTimes()
    """Diffusion times at which the heat trace is taken."""
    laplacian: Literal["normalized", "unnormalized"] = "normalized"
    """Which Laplacian of the neighbour graph."""
    steps: Auto | Annotated[int, Field(ge=2, le=1000)] = 10
    """Lanczos steps of a probe; `auto` takes as many as the quadrature needs."""
    probes: Auto | Annotated[int, Field(ge=2, le=100_000)] = "auto"
    """Random probes; `auto` takes as many as the tolerance needs."""
    tolerance: Tolerance = 1.0e-3
    """Relative standard error of the heat trace at which `probes: auto` stops."""
    distribution: Literal["rademacher", "gaussian"] = "rademacher"
    """Entries of a probe: random signs, or normal numbers."""
    variance_reduction: Literal["moments", "linear", "none"] = "moments"
    """Control variate: `moments` is a polynomial of degree 4 with exact traces, `linear` the one of
    the paper.
    """
    normalization: Literal["none", "empty", "complete", "er"] = "empty"
    """What the heat trace is divided by: `empty` is the number of vertices; `complete` and `er` are
    the traces of a complete and of a random graph.
    """


class GeomcaSweep(Section):
    """Values to take beside the measure's own; both distances in units of the job's epsilon."""

    epsilon: list[Annotated[float, Field(ge=1e-6, le=1e6)]] = []
    """Joining distances, in units of the job's epsilon."""
    delta: list[Annotated[float, Field(ge=0.0)]] = []
    """Thinning distances, in units of the job's epsilon."""
    eta_c: list[Fraction] = []
    """Thresholds of consistency."""
    eta_q: list[Fraction] = []
    """Thresholds of quality."""

    @model_validator(mode="after")
    def _distinct(self) -> GeomcaSweep:
        for name, values in self:
            if len(set(values)) < len(values):
                raise ValueError(f"{name} lists a value twice")
        return self


class Geomca(Section):
    """Geometric component analysis of a corpus against a reference."""

    equal_dimensions: ClassVar[bool] = True

    percentile: Annotated[float, Field(gt=0.0, le=100.0)] = 10.0
    """Percentile of the distances between two random samples of the reference that epsilon is."""
    epsilon: Length | None = None
    """Distance below which two rows are joined, in units of the vectors; null takes the percentile.
    """
    delta: Annotated[float, Field(ge=0.0)] = 1.0
    """Distance to which rows are thinned, in units of epsilon; 0 only merges equal rows."""
    eta_c: Fraction = 0.0
    """Consistency that a component has to exceed to count for precision and recall."""
    eta_q: Fraction = 0.0
    """Quality that a component has to exceed to count for precision and recall."""
    rows: PositiveInt | None = None
    """Random rows of each corpus to take; null takes all."""
    sweep: GeomcaSweep | None = None
    """Other distances and thresholds to give the scores for as well."""


class Magnitude(Section):
    """Magnitude function, its area, and the difference to a reference."""

    metric: Metric = "euclidean"
    """Distance between two rows."""
    scales: Annotated[int, Field(ge=2, le=1000)] | list[Annotated[float, Field(ge=0.0)]] = 20
    """Scales t, in 1/distance: a count of them from 0 to the convergence scale, or an ascending
    list.
    """
    target: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95
    """Share of the distinct rows that the magnitude reaches at the convergence scale."""
    method: Literal["auto", "cholesky", "cg", "subsample", "nystrom"] = "auto"
    """How it is computed; `auto` goes by the number of rows and the budget of pairs."""
    tolerance: Tolerance = 1.0e-3
    """Relative width of a bracket at which iterations may stop."""
    merge_within: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """Rows within this distance of each other count as one, in units of the metric."""

    @field_validator("scales")
    @classmethod
    def _increasing(cls, scales: int | list[float]) -> int | list[float]:
        if isinstance(scales, list) and (
            len(scales) < 2 or any(a >= b for a, b in pairwise(scales))
        ):
            raise ValueError("a list of scales needs at least two, strictly increasing")
        return scales


CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""A function by its import path."""

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
    """`cosine`, `rbf` is exp(-d²/2σ²), `laplacian` is exp(-d/σ); or a function, as
    `module:function`.
    """
    bandwidth: Bandwidth | None = None
    """σ, a distance; `median` is the median distance of random pairs, which rbf and laplacian take
    by default. A list makes a kernel of each.
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
    def is_code(self) -> bool:
        """Whether it is a function that the configuration names."""
        return ":" in self.name


class VendiKernels(Section):
    """Kernels that differ by their bandwidth."""

    name: Literal["rbf", "laplacian"]
    """Kernel with a bandwidth."""
    bandwidth: Annotated[list[Bandwidth], Field(min_length=1)]
    """Bandwidths, each of which makes a kernel."""


def _kernel_of_each_bandwidth(kernels: Any) -> Any:
    """Spell out names, and lists of bandwidths."""
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
    ] = [VendiKernel(name="cosine"), VendiKernel(name="rbf", bandwidth="median")]
    """What similar means: kernels by name, or with a bandwidth."""
    orders: list[Order] = Field(
        default=[0.1, 0.5, 1.0, 2.0, math.inf],
        min_length=1,
        json_schema_extra={"default": [0.1, 0.5, 1.0, 2.0, "inf"]},
    )
    """Orders q: below 1 rare rows count more, above 1 common ones; `inf` is the most common
    direction alone.
    """
    method: Literal["auto", "exact", "lanczos", "nystrom", "fourier", "subsample"] = "auto"
    """How a kernel other than cosine is computed; `auto` goes by the number of rows and the budget
    of pairs.
    """
    weights: bool = True
    """Whether rows count by the corpus' weights, where it has them."""
    labels: bool = False
    """Whether the rows of every label get scores of their own, under the cosine kernel."""

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


class Baselines(Section):
    """Measures that others compare with: similarity, FID, KID, precision, recall and the like."""

    by_default: ClassVar[bool] = False
    equal_dimensions: ClassVar[bool] = True

    k: Annotated[int, Field(ge=1, le=100)] = 5
    """Neighbours that make a row's ball, in precision, recall, density and coverage."""
    rows: Annotated[int, Field(ge=2)] = 20_000
    """Random rows a side for those four and for KID."""


KIND = "cluster.kind"


class JobConfig(Section):
    """A whole job."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """What the job is called; the first part of its folder's name."""
    corpus: Annotated[str, Field(min_length=1)]
    """A corpus, or files of any known format: a path or a URL."""
    reference: Annotated[str, Field(min_length=1)] | None = None
    """What the corpus is compared with, in the same way. Turns on IMD, GeomCA and MagDiff."""
    group_by: Literal["labels"] | None = None
    """`labels` measures the rows of every label as well."""
    exclude_shards: ExcludedShards = ExcludedShards()
    """Shards whose rows are left out, most often because they are damaged."""
    output: Annotated[str, Field(min_length=1)] = "jobs/"
    """Folder or URL below which the job's own folder is made."""
    storage_options: Annotated[dict[str, dict[str, Any]], Field(repr=False)] = {}
    """Options of object stores, by protocol. They reach the workers and are never stored."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of whatever is drawn at random."""
    replicates: Replicates = Replicates()
    """Repetitions under other row orders."""
    budget: Budget = Budget()
    """Work that a measure may spend."""
    scales_from: str = "auto"
    """Whose scales (bandwidth, epsilon, convergence scale) count: `auto` is the reference's where
    there is one, `corpus`, `reference`, or the folder of a finished job.
    """
    measures: dict[str, Any] = {}
    """Measures to take, by name; without this key, all that apply but the baselines."""
    cluster: Cluster = Local()
    """Where tasks run. Changes no number."""
    driver: Driver = Driver()
    """The process that hands out the tasks. Changes no number."""

    @field_validator("cluster", mode="before")
    @classmethod
    def _kind_is_local(cls, cluster: Any) -> Any:
        if isinstance(cluster, dict) and "kind" not in cluster:
            return {"kind": "local", **cluster}
        return cluster

    @model_validator(mode="after")
    def _groups_have_no_reference(self) -> JobConfig:
        if self.group_by is not None and self.reference is not None:
            raise ValueError(
                "group_by measures the labels of one corpus; leave out the reference, or group_by"
            )
        return self

    @model_validator(mode="after")
    def _workers_reach_it(self) -> JobConfig:
        if not isinstance(self.cluster, Serial):
            for role in ("corpus", "reference", "output"):
                if str(getattr(self, role)).startswith("memory://"):
                    raise ValueError(
                        f"{role} is in the memory of one process, where workers can't reach it; "
                        "set cluster.kind to serial, or choose another place"
                    )
        return self

    @field_validator("cluster")
    @classmethod
    def _enough_memory(cls, cluster: Cluster) -> Cluster:
        if cluster.memory_limit < LEAST_MEMORY:
            raise ValueError("memory_limit must be at least 1GiB")
        return cluster


def read_config(
    text: str,
    where: str,
    *,
    overrides: Sequence[str] = (),
    measures: Mapping[str, type[Section]],
    comparing: Iterable[str] = (),
) -> JobConfig:
    """Parse and check a job configuration.

    Parameters
    ----------
    text : str
        YAML.
    where : str
        Name of the file, for messages.
    overrides : sequence of str
        ``section.key=value`` assignments, the value in YAML, applied in order.
    measures : mapping
        The section of every known measure, by name.
    comparing : iterable of str
        Measures that need a reference: left out of the default without one.

    Returns
    -------
    JobConfig
        With ``measures`` resolved: a checked section for every measure that is asked for.

    Raises
    ------
    BadInput
        One line for the first mistake: its place, what is wrong, and the nearest known name.
    """
    document = parse_yaml(text, where)
    return resolve_config(
        document, where, overrides=overrides, measures=measures, comparing=comparing
    )


def read_frozen_config(
    text: str,
    where: str,
    *,
    overrides: Sequence[str] = (),
    measures: Mapping[str, type[Section]],
    comparing: Iterable[str] = (),
) -> JobConfig:
    """Parse and check the configuration that is stored with a job.

    Parameters
    ----------
    text : str
        JSON.
    where, measures, comparing
        As in :func:`read_config`.
    overrides : sequence of str
        Assignments to keys below ``cluster``, ``driver`` and ``storage_options``: all others would
        make it another job.

    Raises
    ------
    BadInput
        As :func:`read_config`, and for an override of anything else.
    """
    for override in overrides:
        section = override.partition("=")[0].partition(".")[0].strip()
        if section not in {"cluster", "driver", "storage_options"}:
            raise BadInput(
                f"-o {override}: only keys of cluster, driver and storage_options can change when "
                "a job is resumed; use latentscale run for a job that differs"
            )
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{where}: not valid JSON: {error}") from None
    if isinstance(document, dict):
        _change_kind(document, overrides)
    return resolve_config(
        document, where, overrides=overrides, measures=measures, comparing=comparing
    )


def _change_kind(document: dict[str, Any], overrides: Sequence[str]) -> None:
    """Leave out the stored settings that the kind of cluster asked for doesn't have."""
    kinds = [value for key, _, value in (o.partition("=") for o in overrides) if key == KIND]
    model = CLUSTERS.get(kinds[-1].strip()) if kinds else None
    stored = document.get("cluster")
    if model is not None and isinstance(stored, dict):
        document["cluster"] = {k: v for k, v in stored.items() if k in model.model_fields}


def resolve_config(
    document: Any,
    where: str,
    *,
    overrides: Sequence[str] = (),
    measures: Mapping[str, type[Section]],
    comparing: Iterable[str] = (),
) -> JobConfig:
    """Check a job configuration that is parsed already; as :func:`read_config`."""
    if not isinstance(document, dict):
        raise BadInput(f"{where}: a job is a mapping of keys such as name and corpus")
    _apply_overrides(document, overrides, measures, set(comparing))
    config = validate(JobConfig, document, where, "")
    sections = _measure_sections(document, config, where, measures, set(comparing))
    checked = config.model_copy(update={"measures": sections})
    if "measures" not in document:
        # Which of them apply is known when the corpora are.
        checked.model_fields_set.discard("measures")
    return checked


def _measure_sections(
    document: dict[str, Any],
    config: JobConfig,
    where: str,
    known: Mapping[str, type[Section]],
    comparing: set[str],
) -> dict[str, Section]:
    chosen = config.measures
    if "measures" not in document:
        chosen = _default_measures(known, comparing, with_reference=config.reference is not None)
    if not chosen:
        raise BadInput(f"{where}: measures is empty; name one of {', '.join(known)}")
    for name in chosen:
        if name not in known:
            raise BadInput(f"{where}: measures.{name} is unknown{nearest(name, known)}")
        if name in comparing and config.reference is None:
            raise BadInput(
                f"{where}: measures.{name} compares with a reference; "
                "add reference: or leave it out"
            )
    return {
        name: validate(
            known[name], {} if chosen[name] is None else chosen[name], where, f"measures.{name}"
        )
        for name in known
        if name in chosen
    }


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML, or say in which line of ``where`` it isn't."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # an impossible date is a ValueError
        raise BadInput(f"{where}: not valid YAML: {_first_line(error)}") from None


def validate(model: type[Model], document: Any, where: str, prefix: str) -> Model:
    """Check a document against a model; a mistake is one line that names its place.

    Parameters
    ----------
    model : type
        A pydantic model.
    document : object
        What YAML or JSON gave.
    where : str
        Name of the file, for messages.
    prefix : str
        Path of the document within the file.

    Raises
    ------
    BadInput
        For the first mistake, with the nearest known name of an unknown key.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise BadInput(f"{where}: {_explain(error, model, prefix)}") from None


def _explain(error: ValidationError, model: type[BaseModel], prefix: str) -> str:
    # Of a union's branches, the one that got furthest says most; a word that isn't the one
    # allowed word says least.
    first = max(
        error.errors(), key=lambda found: (found["type"] != "literal_error", len(found["loc"]))
    )
    parts = [
        str(part)
        for before, part in zip(("", *first["loc"]), first["loc"], strict=False)
        if not _is_union_tag(before, part)
    ]
    path = ".".join([*([prefix] if prefix else []), *parts])
    if first["type"] == "extra_forbidden":
        names = _names_beside(model, [str(part) for part in first["loc"]])
        return f"{path} is unknown{nearest(parts[-1], names)}"
    if first["type"] == "missing":
        return f"{path} is missing"
    if first["type"] == "union_tag_invalid":
        allowed = str(first["ctx"]["expected_tags"]).replace("'", "")
        return f"{path}.kind is {first['ctx']['tag']!r}; it can be {allowed}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{path}: {message}" if path else message


def _is_union_tag(before: int | str, part: int | str) -> bool:
    # pydantic puts the chosen branch of a union into the location; a reader of the file
    # doesn't know those names.
    kind = before == "cluster" and part in CLUSTERS
    return isinstance(part, str) and (kind or not part.isidentifier())


def _names_beside(model: type[BaseModel], location: list[str]) -> list[str]:
    here: type[BaseModel] = model
    for part in location[:-1]:
        field = here.model_fields.get(part)
        annotation = field.annotation if field else None
        if part in CLUSTERS:
            here = CLUSTERS[part]
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            here = annotation
        elif part == "kernels":
            here = VendiKernel
    return list(here.model_fields)


def nearest(name: str, known: Iterable[str]) -> str:
    """Write the end of a message about an unknown name: the nearest known one, or all."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; it can be {', '.join(names)}"


def _default_measures(
    known: Mapping[str, type[Section]], comparing: set[str], *, with_reference: bool
) -> dict[str, Any]:
    return {
        name: {}
        for name, section in known.items()
        if section.by_default and (with_reference or name not in comparing)
    }


def _apply_overrides(
    document: dict[str, Any],
    overrides: Sequence[str],
    known: Mapping[str, type[Section]],
    comparing: set[str],
) -> None:
    """Apply overrides in order; a key of one measure doesn't drop the others' defaults."""
    inner = [override for override in overrides if override.startswith("measures.")]
    for override in overrides:
        if override not in inner:
            apply_override(document, override)
    if inner and "measures" not in document:
        document["measures"] = _default_measures(
            known, comparing, with_reference=document.get("reference") is not None
        )
    for override in inner:
        apply_override(document, override)


def apply_override(document: dict[str, Any], override: str) -> None:
    """Apply one ``section.key=value`` assignment to a document in place."""
    path, separator, value = override.partition("=")
    keys = path.strip().split(".")
    # A value may be a secret.
    shown = path if keys[0] == "storage_options" else override
    if not separator or not all(keys):
        raise BadInput(f"-o {shown}: write it as section.key=value")
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise BadInput(f"-o {shown}: not valid YAML: {_first_line(error)}") from None
    here = document
    for key in keys[:-1]:
        inner = here.get(key)
        if inner is None:
            inner = here[key] = {}
        if not isinstance(inner, dict):
            raise BadInput(f"-o {shown}: {key} has no keys below it")
        here = inner
    here[keys[-1]] = parsed


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{place}{problem}"
