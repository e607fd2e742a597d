"""The configuration sections ``cluster`` and ``driver``: where tasks and the driver run.

Nothing in them changes a number. Whatever ends up in the script of a batch system is checked here
to be a single line of the characters that such a thing is made of, so that no name, however odd,
becomes a command.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    WithJsonSchema,
    model_validator,
)

from latentscale_pipeline.config.sizes import Bytes

LEAST_MEMORY = 2**30
"""The smallest memory limit that is supported."""

Retries = Annotated[int, Field(ge=0, le=100)]
"""How often a part that failed is tried again, on another worker where there is one."""

_WALLTIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,3}):([0-5]\d):([0-5]\d)")
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.,:@+/-]*"
_ADDRESS = r"(tls|tcp)://[^\s/?#@]+:\d+"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def walltime_seconds(walltime: str) -> int:
    """Return how long ``HH:MM:SS`` or ``D-HH:MM:SS`` is."""
    match = _WALLTIME.fullmatch(walltime)
    if match is None:
        raise ValueError(f"{walltime!r} is not a time; write it as 12:00:00, or 2-00:00:00")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _walltime(walltime: Any) -> Any:
    if walltime_seconds(walltime) < 60:
        raise ValueError("a walltime is a minute at least")
    return walltime


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("it has to be a single line without control characters")
    return text


def _word(text: str) -> str:
    if not re.fullmatch(_WORD, text):
        raise ValueError(f"{text!r} isn't one word of letters, digits and _ . , : @ + / -")
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


class Closed(BaseModel):
    """A part of the configuration: closed to unknown keys, and immutable once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Serial(Closed):
    """One process, one task after another: the reference for every other executor."""

    kind: Literal["serial"]
    """One process, no workers."""
    memory_limit: Bytes = 4 * 2**30
    """Memory of the process."""
    retries: Retries = 2
    """How often a part that failed is tried again."""

    workers: ClassVar[int] = 1
    threads: ClassVar[int] = 1


class Workers(Closed):
    """What worker processes have in common, wherever they run."""

    workers: PositiveInt = 2
    """Worker processes."""
    threads: PositiveInt = 1
    """Tasks at once in each."""
    memory_limit: Bytes = 4 * 2**30
    """Memory of a worker. A job with a task that doesn't fit is refused before it runs."""
    retries: Retries = 2
    """How often a part that failed is tried again, on another worker where there is one."""


class Local(Workers):
    """Worker processes on this machine."""

    kind: Literal["local"] = "local"
    """Workers on this machine."""
    dashboard: bool = False
    """Whether Dask's own pages are served, on loopback."""


class TlsFiles(Closed):
    """Files with which a scheduler that exists already knows its own."""

    ca_file: Annotated[str, Field(min_length=1)]
    """Certificate of the authority."""
    cert: Annotated[str, Field(min_length=1)]
    """Certificate of this client."""
    key: Annotated[str, Field(min_length=1)]
    """Its key."""


class Address(Workers):
    """The workers of a Dask scheduler that exists already.

    ``workers`` of them are waited for, for ``patience`` seconds; more are used, too. Without
    ``tls`` the files that Dask's own configuration names are taken.
    """

    kind: Literal["address"]
    """The workers of a scheduler that exists."""
    address: SchedulerAddress
    """Where the scheduler listens."""
    tls: TlsFiles | None = None
    """Its certificates; null takes those that Dask's own configuration names."""
    workers: PositiveInt = 1
    """Workers to wait for; more are used, too."""
    patience: Annotated[float, Field(gt=0, le=86400)] = 60.0
    """Seconds to wait for them."""


class Elsewhere(Workers):
    """Workers that something else starts; those that die are replaced.

    For ``patience`` seconds there may be none: while the first of them wait in a queue, say.
    """

    environment: Environment = {}
    """Environment variables of the workers."""
    patience: Annotated[float, Field(gt=0, le=7 * 86400)] = 3600.0
    """Seconds without any worker before the run gives up; waiting in a queue counts."""


class Batch(Elsewhere):
    """Workers that are jobs of a batch system, one process each.

    With ``minimum`` there are, at any time, only as many as there is work for, between it and
    ``workers``. ``shared_folder`` is where every machine sees the certificates of a run; the
    default is in the home folder.
    """

    kind: Literal["slurm", "pbs", "lsf", "sge"]
    """Which batch system."""
    minimum: Annotated[int, Field(ge=0)] | None = None
    """Workers that are kept even without work; null keeps all."""
    walltime: Walltime = "01:00:00"
    """Of a worker's job; those that end are replaced."""
    queue: Word | None = None
    """Queue or partition of the workers' jobs."""
    account: Word | None = None
    """Account that they are charged to."""
    directives: list[Line] = []
    """Further lines for their scripts, without the leading `#SBATCH` or its like."""
    interface: Word | None = None
    """Network interface that workers and scheduler talk by."""
    shared_folder: Annotated[str, Field(min_length=1)] | None = None
    """Folder that all machines see, for the certificates of a run; null is `~/.latentscale`."""
    dashboard: bool = False
    """Whether Dask's own pages are served, on loopback."""

    @model_validator(mode="after")
    def _ordered(self) -> Batch:
        if self.minimum is not None and self.minimum > self.workers:
            raise ValueError("minimum must not be above workers")
        return self


class Volume(Closed):
    """A volume that every pod mounts: a claim by its name, at a path."""

    claim: KubernetesName
    """Name of a PersistentVolumeClaim."""
    path: Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./-]*$")]
    """Where it is mounted."""

    @model_validator(mode="after")
    def _plain(self) -> Volume:
        if ".." in PurePosixPath(self.path).parts:
            raise ValueError("path must not have .. in it")
        return self


class Kubernetes(Elsewhere):
    """Workers that are pods, kept by Dask's operator for Kubernetes.

    ``secrets`` are the names of secrets whose entries become environment variables of all pods,
    such as the credentials of an object store.
    """

    kind: Literal["kubernetes"]
    """Pods, kept by Dask's operator."""
    image: Annotated[str, Field(max_length=500, pattern=r"^[a-z0-9][A-Za-z0-9_./:@-]*$")]
    """Image of all pods; it has latentscale in it."""
    namespace: KubernetesName = "default"
    """Namespace of all objects."""
    service_account: KubernetesName | None = None
    """Account of the driver's pod; it may create workers and their secret."""
    secrets: list[KubernetesName] = []
    """Secrets whose entries become environment variables of all pods."""
    volumes: list[Volume] = []
    """Volumes that all pods mount."""
    cpus: PositiveInt | None = None
    """CPUs of a worker; null is its number of threads."""


Cluster = Annotated[
    Serial | Local | Address | Batch | Kubernetes,
    Field(discriminator="kind"),
]

CLUSTERS: dict[str, type[Closed]] = {
    "serial": Serial,
    "local": Local,
    "address": Address,
    **dict.fromkeys(("slurm", "pbs", "lsf", "sge"), Batch),
    "kubernetes": Kubernetes,
}
"""The section of every kind of cluster."""

ON_THIS_MACHINE = (Serial, Local)
"""Kinds whose processes run where the driver does."""


class Driver(Closed):
    """The process that hands out the tasks; what isn't about its memory is for ``submit``.

    ``kind`` is the scheduler that it is handed to; without it, that of the cluster.
    """

    kind: Literal["slurm", "kubernetes"] | None = None
    """Scheduler that the driver is handed to; null is the cluster's."""
    memory_limit: Bytes = 2 * 2**30
    """Memory of the driver."""
    walltime: Walltime | None = None
    """Of the driver's job; null leaves it to the scheduler."""
    queue: Word | None = None
    """Queue or partition of the driver's job."""
    account: Word | None = None
    """Account that it is charged to."""
    directives: list[Line] = []
    """Further options of its submission."""
