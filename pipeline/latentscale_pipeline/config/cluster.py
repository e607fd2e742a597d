"""The configuration sections ``cluster`` and ``driver``: where tasks and the driver run.

Nothing in them changes a result. Every value that is written to the script of a batch system is
checked here: it must be a single line or word of allowed characters, so that no value can inject a
command.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PositiveInt,
    StrictStr,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from latentscale_pipeline.config.attribute_docstrings import describe_properties
from latentscale_pipeline.config.sizes import Bytes

MIN_MEMORY = 2**30
"""The smallest memory limit that is supported."""

Retries = Annotated[int, Field(ge=0, le=100)]
"""How often a failed part is tried again, on another worker if there is one."""

_WALLTIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,3}):([0-5]\d):([0-5]\d)")
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.,:@+/-]*"
_ADDRESS = r"(tls|tcp)://[^\s/?#@]+:\d+"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"


def walltime_seconds(walltime: str) -> int:
    """Return the seconds in a time written as ``HH:MM:SS`` or ``D-HH:MM:SS``."""
    match = _WALLTIME.fullmatch(walltime)
    if match is None:
        raise ValueError(f"{walltime!r} is not a time; write it as 12:00:00, or 2-00:00:00")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _walltime(walltime: Any) -> Any:
    if walltime_seconds(walltime) < 60:
        raise ValueError("a walltime must be at least one minute")
    return walltime


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("it must be a single line without control characters")
    return text


def _word(text: str) -> str:
    if not re.fullmatch(_WORD, text):
        raise ValueError(f"{text!r} must be one word of letters, digits and _ . , : @ + / -")
    return text


def _address(text: str) -> str:
    if not re.fullmatch(_ADDRESS, text):
        raise ValueError("write it as tls://host:8786")
    return text


Walltime = Annotated[
    str,
    AfterValidator(_walltime),
    WithJsonSchema({"type": "string", "pattern": f"^{_WALLTIME.pattern}$"}),
]
Word = Annotated[
    str,
    Field(max_length=200),
    AfterValidator(_word),
    WithJsonSchema({"type": "string", "maxLength": 200, "pattern": f"^{_WORD}$"}),
]
SchedulerAddress = Annotated[
    str,
    AfterValidator(_address),
    WithJsonSchema({"type": "string", "pattern": f"^{_ADDRESS}$"}),
]
Line = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_one_line)]
VariableName = Annotated[str, Field(pattern=f"^{_NAME}$")]
Environment = dict[VariableName, Annotated[str, AfterValidator(_one_line)]]
KubernetesName = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
QualifiedName = Annotated[
    str, Field(max_length=317, pattern=rf"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_LABEL}$")
]
LabelValue = Annotated[str, Field(max_length=63, pattern=f"^({_LABEL})?$")]
Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) else value),
    Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|[KMGTPE]i?|k)?$"),
]


class Closed(BaseModel):
    """A part of the configuration. Unknown keys are refused, and values can't be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        reference = handler(core_schema)
        describe_properties(cls, handler.resolve_ref_schema(reference))
        return reference

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_no_words(cls, document: Any) -> Any:
        """Refuse a truth value for a number, which Python would take for 1 or 0."""
        for name, value in document.items() if isinstance(document, dict) else ():
            words = [each for each in _items(value) if isinstance(each, bool)]
            if words and name in cls.model_fields:
                types = _types_in(cls.model_fields[name].annotation)
                if types & {int, float} and not types & {bool, Any}:
                    is_word = f"{'has' if isinstance(value, list) else 'is'} {words[0]}".lower()
                    raise ValueError(f"{name} {is_word}, not a number (YAML reads yes as true)")
        return document


def _items(value: Any) -> list[Any]:
    """Return the values in a list and in the lists in it, or the value itself."""
    return [each for item in value for each in _items(item)] if isinstance(value, list) else [value]


def _types_in(annotation: Any) -> set[Any]:
    """Return the types that an annotation is made of."""
    inside = get_args(annotation)
    return {annotation}.union(*map(_types_in, inside)) if inside else {annotation}


class _OneProcess(Closed):
    """Settings of a job without workers."""

    memory_limit: Bytes = 4 * 2**30
    """Memory of the process."""
    retries: Retries = 2
    """How often a failed part is tried again."""

    workers: ClassVar[int] = 1


class Serial(_OneProcess):
    """The driver's process, which runs one task after another."""

    kind: Literal["serial"]
    """One process, one task after another."""

    threads: ClassVar[int] = 1


class Threads(_OneProcess):
    """The driver's process, which runs several tasks at once."""

    kind: Literal["threads"]
    """One process, several tasks at once."""
    threads: PositiveInt = 2
    """Number of tasks at once."""


class Workers(Closed):
    """Settings of worker processes, wherever they run."""

    workers: PositiveInt = 2
    """Number of worker processes."""
    threads: PositiveInt = 1
    """Number of tasks that a worker runs at once."""
    memory_limit: Bytes = 4 * 2**30
    """Memory of a worker. A job with a task that needs more is refused before it runs."""
    retries: Retries = 2
    """How often a failed part is tried again, on another worker if there is one."""


class _LocalWorkers(Workers):
    """Settings of worker processes on this machine."""

    dashboard: bool = False
    """Whether to serve Dask's dashboard, /health and /metrics, on the loopback interface."""


class Auto(_LocalWorkers):
    """Threads of the driver's process for a short job, workers on this machine for a longer one."""

    kind: Literal["auto"] = "auto"
    """Workers on this machine; for a job of minutes as many threads of one process."""


class Local(_LocalWorkers):
    """Worker processes on this machine."""

    # Without a kind, a section is that of ``auto``.
    model_config = ConfigDict(json_schema_extra={"required": ["kind"]})

    kind: Literal["local"] = "local"
    """Workers on this machine."""


class TlsFiles(Closed):
    """Certificate files for the connection to an existing scheduler."""

    ca_file: Annotated[str, Field(min_length=1)]
    """Certificate of the authority (CA) that signed the scheduler's certificate."""
    cert: Annotated[str, Field(min_length=1)]
    """Certificate of this client."""
    key: Annotated[str, Field(min_length=1)]
    """Private key of this client's certificate."""


class Address(Workers):
    """The workers of an existing Dask scheduler.

    The run starts once ``workers`` of them are there, and fails if that takes more than
    ``patience`` seconds. Without ``tls`` the certificates in Dask's own configuration are used.
    """

    kind: Literal["address"]
    """The workers of an existing scheduler."""
    address: SchedulerAddress
    """Address of the scheduler."""
    tls: TlsFiles | None = None
    """Certificates for the connection; null uses those in Dask's own configuration."""
    workers: PositiveInt = 1
    """Number of workers to wait for; if there are more, they are used, too."""
    patience: Annotated[float, Field(gt=0, le=86400)] = 60.0
    """Seconds to wait for the workers."""


class Gateway(Workers):
    """Workers of a Dask cluster that dask-gateway starts for the run, and stops after it.

    Who one is comes from Dask's own configuration (`gateway.auth`, or `DASK_GATEWAY__AUTH__…` in
    the environment), so no job file has a password. ``threads`` and ``memory_limit`` say what a
    worker has; what it gets is set by the gateway's ``options``.
    """

    kind: Literal["gateway"]
    """A cluster that dask-gateway starts for the run."""
    address: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$")]
    """Address of the gateway."""
    proxy: Annotated[str, Field(pattern=r"^(gateway|tls)://[^\s/?#@]+:\d+$")] | None = None
    """Address of its proxy to schedulers, if that differs."""
    options: dict[str, StrictStr | bool | int | float] = {}
    """Options of the cluster, as the gateway offers them: image, memory of a worker and so on."""
    patience: Annotated[float, Field(gt=0, le=7 * 86400)] = 3600.0
    """Seconds without any worker before the run gives up."""


class RemoteWorkers(Workers):
    """Workers that a batch system or Kubernetes starts; those that die are replaced.

    The run goes on without any worker for up to ``patience`` seconds, for instance while the first
    workers wait in a queue.
    """

    environment: Environment = {}
    """Environment variables of the workers."""
    patience: Annotated[float, Field(gt=0, le=7 * 86400)] = 3600.0
    """Seconds without any worker before the run gives up; time in a queue counts."""


class Batch(RemoteWorkers):
    """Workers that are jobs of a batch system, one process each.

    With ``minimum`` the number of workers follows the amount of work, between ``minimum`` and
    ``workers``. ``shared_folder`` holds the certificates of a run, and all machines must see it;
    the default is in the home folder.
    """

    kind: Literal["slurm", "pbs", "lsf", "sge"]
    """The batch system."""
    minimum: Annotated[int, Field(ge=0)] | None = None
    """Number of workers to keep even without work; null keeps all."""
    walltime: Walltime = "01:00:00"
    """Time limit of a worker's job; workers that reach it are replaced."""
    queue: Word | None = None
    """Queue or partition of the workers' jobs."""
    account: Word | None = None
    """Account that the workers' jobs are charged to."""
    directives: list[Line] = []
    """Further directives of the workers' jobs, without the leading `#SBATCH`, `#PBS` and so on."""
    interface: Word | None = None
    """Network interface for the connections between workers and scheduler."""
    shared_folder: Annotated[str, Field(min_length=1)] | None = None
    """Folder that all machines see, for the certificates of a run; null is `~/.latentscale`."""
    dashboard: bool = False
    """Whether to serve Dask's dashboard, /health and /metrics, on the loopback interface."""

    @model_validator(mode="after")
    def _ordered(self) -> Batch:
        if self.minimum is not None and self.minimum > self.workers:
            raise ValueError("minimum must be at most the number of workers")
        return self


class Volume(Closed):
    """A volume that every pod mounts."""

    claim: KubernetesName
    """Name of a PersistentVolumeClaim."""
    path: Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./-]*$")]
    """Path at which the volume is mounted."""

    @model_validator(mode="after")
    def _plain(self) -> Volume:
        if ".." in PurePosixPath(self.path).parts:
            raise ValueError("path must not contain ..")
        return self


class Toleration(Closed):
    """A taint of nodes on which pods may run all the same."""

    key: QualifiedName | None = None
    """Key of the taint; null is any key, with the operator Exists."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the taint's value must be equal, or may be any."""
    value: LabelValue | None = None
    """Value of the taint, with the operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; null is any."""

    @model_validator(mode="after")
    def _complete(self) -> Toleration:
        if self.operator == "Equal" and self.key is None:
            raise ValueError("without a key the operator must be Exists")
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("with the operator Exists there is no value")
        return self


class Kubernetes(RemoteWorkers):
    """Workers that are pods, managed by Dask's operator for Kubernetes.

    ``secrets`` are the names of Kubernetes secrets whose entries become environment variables of
    all pods, for instance the credentials of an object store.
    """

    kind: Literal["kubernetes"]
    """Pods, managed by Dask's operator."""
    image: Annotated[str, Field(max_length=500, pattern=r"^[a-z0-9][A-Za-z0-9_./:@-]*$")]
    """Container image of all pods, with latentscale installed."""
    namespace: KubernetesName = "default"
    """Namespace of all objects."""
    service_account: KubernetesName | None = None
    """Service account of the driver's pod; it must be allowed to create workers and their secret.
    """
    secrets: list[KubernetesName] = []
    """Secrets whose entries become environment variables of all pods."""
    volumes: list[Volume] = []
    """Volumes that all pods mount."""
    cpus: PositiveInt | None = None
    """CPUs of a worker; null is its number of threads."""
    resources: dict[QualifiedName, Quantity] = {}
    """Further resources of a worker, such as `nvidia.com/gpu: 1` or `ephemeral-storage: 20Gi`."""
    node_selector: dict[QualifiedName, LabelValue] = {}
    """Labels of the nodes that pods may run on."""
    tolerations: list[Toleration] = []
    """Taints of nodes on which pods may run all the same."""
    image_pull_secrets: list[KubernetesName] = []
    """Secrets with the credentials of the image's registry."""

    @model_validator(mode="after")
    def _other_resources(self) -> Kubernetes:
        for name, key in (("cpu", "cpus"), ("memory", "memory_limit")):
            if name in self.resources:
                raise ValueError(f"resources has no {name}; set {key}")
        return self


Cluster = Annotated[
    Auto | Serial | Threads | Local | Address | Gateway | Batch | Kubernetes,
    Field(discriminator="kind"),
]

CLUSTERS: dict[str, type[Closed]] = {
    "auto": Auto,
    "serial": Serial,
    "threads": Threads,
    "local": Local,
    "address": Address,
    "gateway": Gateway,
    **dict.fromkeys(("slurm", "pbs", "lsf", "sge"), Batch),
    "kubernetes": Kubernetes,
}
"""The section model of every kind of cluster."""

IN_THE_DRIVER = (Serial, Threads)
"""Kinds without processes of their own."""

ON_THIS_MACHINE = (Auto, *IN_THE_DRIVER, Local)
"""Kinds whose processes run on the driver's machine."""


class Driver(Closed):
    """The process that hands out the tasks.

    All settings except ``memory_limit`` are for ``latentscale submit``, which hands the driver to
    Slurm or Kubernetes.
    """

    kind: Literal["slurm", "kubernetes"] | None = None
    """Scheduler that the driver is submitted to; null is the cluster's."""
    memory_limit: Bytes = 2 * 2**30
    """Memory of the driver."""
    walltime: Walltime | None = None
    """Time limit of the driver's job; null leaves it to the scheduler."""
    queue: Word | None = None
    """Queue or partition of the driver's job."""
    account: Word | None = None
    """Account that the driver's job is charged to."""
    directives: list[Line] = []
    """Further options for the driver's submission."""
