"""Kubernetes manifests of a job's driver and workers, from the templates in ``manifests.yaml``.

The driver is a ``Job`` that runs ``latentscale resume`` on the job's folder. It creates a
``DaskCluster``, which Dask's operator starts, and a ``Secret`` with the certificates of the run.
Pods run as an arbitrary user, without privileges, with a read-only root file system. The driver's
pod owns all objects of a run, so Kubernetes deletes them with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

from latentscale_pipeline.config.cluster import Driver, Kubernetes, walltime_seconds
from latentscale_pipeline.executors.dask.environment import (
    scheduler_environment,
    worker_environment,
)

TLS_FILES = ("certificate.pem", "key.pem")

RESUBMISSIONS = 6
"""How often Kubernetes restarts a driver that died."""

LABEL = "app.kubernetes.io/instance"
"""Label with the name of a job, on all of its objects."""

OWNER = ("LATENTSCALE_POD_NAME", "LATENTSCALE_POD_UID")
"""Environment variables with the name and uid of the driver's pod."""

Manifest = dict[str, Any]


def driver_job(
    name: str, arguments: list[str], cluster: Kubernetes, driver: Driver, *, requeue: bool
) -> Manifest:
    """Return the ``Job`` of a driver.

    Parameters
    ----------
    name : str
        Name of the ``Job``.
    arguments : list of str
        Arguments of ``latentscale``.
    cluster, driver : Kubernetes, Driver
        The sections of the configuration.
    requeue : bool
        Whether to restart a driver that died.
    """
    return _manifest(
        "driver",
        name,
        cluster,
        job=name,
        arguments=[_as_it_is(argument) for argument in arguments],
        memory=_mebibytes(driver.memory_limit),
        cpus="1",
        speaks_with_kubernetes=bool(cluster.service_account),
        resubmissions=RESUBMISSIONS if requeue else 0,
        failure_policy=_templates()["failure_policy"] if requeue else None,
        seconds=None if driver.walltime is None else walltime_seconds(driver.walltime),
    )


def tls_secret(
    name: str,
    job: str,
    cluster: Kubernetes,
    files: Mapping[str, str],
    owner: Mapping[str, str] | None,
) -> Manifest:
    """Return the ``Secret`` with the certificate and the key of a run of a job."""
    return _manifest("tls", name, cluster, owner, job=job, files=dict(files))


def dask_cluster(
    name: str, job: str, cluster: Kubernetes, owner: Mapping[str, str] | None
) -> Manifest:
    """Return the ``DaskCluster`` of a run of a job: a scheduler and a fixed number of workers.

    All servers require a certificate of the run. The operator names the workers, and replaces
    those that die.
    """
    certificate, key = (f"/tls/{file}" for file in TLS_FILES)
    limits = {"memory": _mebibytes(cluster.memory_limit + (256 << 20)), **cluster.resources}
    return _manifest(
        "cluster",
        name,
        cluster,
        owner,
        job=job,
        scheduler=scheduler_address(name, cluster),
        scheduler_environment=_variables(scheduler_environment()),
        tls=["--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key],
        workers=cluster.workers,
        threads=str(cluster.threads),
        memory_limit=f"{cluster.memory_limit}B",
        resources={
            "requests": {"cpu": str(cluster.cpus or cluster.threads), **limits},
            "limits": limits,
        },
    )


def scheduler_address(name: str, cluster: Kubernetes) -> str:
    """Return the address of the scheduler of a ``DaskCluster``."""
    return f"tls://{name}-scheduler.{cluster.namespace}.svc:8786"


def _manifest(
    kind: str,
    name: str,
    cluster: Kubernetes,
    owner: Mapping[str, str] | None = None,
    *,
    job: str,
    **values: Any,
) -> Manifest:
    """Fill in a template, with the given values and those that all templates share."""
    labels = {
        LABEL: job,
        "app.kubernetes.io/name": "latentscale",
        "app.kubernetes.io/component": kind,
    }
    volumes = [(f"data-{i}", volume) for i, volume in enumerate(cluster.volumes)]
    common = {
        "name": name,
        "namespace": cluster.namespace,
        "labels": labels,
        "owners": owner and [{"apiVersion": "v1", "kind": "Pod", **owner}],
        "image": cluster.image,
        "service_account": cluster.service_account,
        "environment": _variables(cluster.environment | worker_environment()),
        "secrets": [{"secretRef": {"name": secret}} for secret in cluster.secrets] or None,
        "node_selector": cluster.node_selector or None,
        "tolerations": [
            toleration.model_dump(exclude_none=True) for toleration in cluster.tolerations
        ]
        or None,
        "image_pull_secrets": [{"name": secret} for secret in cluster.image_pull_secrets] or None,
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": volume.claim}}
            for name, volume in volumes
        ],
        "mounts": [{"name": name, "mountPath": volume.path} for name, volume in volumes],
    }
    filled: Manifest = _filled(_templates()[kind], {**common, **values})
    return filled


def _templates() -> Manifest:
    text = resources.files(__package__).joinpath("manifests.yaml").read_text("utf-8")
    templates: Manifest = yaml.safe_load(text)
    return templates


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Replace the variables in a template by values, which aren't interpreted any further."""
    if isinstance(template, dict):
        filled = {key: _filled(item, values) for key, item in template.items()}
        return {key: item for key, item in filled.items() if item is not None}
    if isinstance(template, list):
        items: list[Any] = []
        for item in template:
            found = _filled(item, values)
            items += found if isinstance(item, str) and isinstance(found, list) else [found]
        return items
    if isinstance(template, str) and re.fullmatch(r"\$[a-z_]+", template):
        return values[template[1:]]
    return template


def _variables(environment: Mapping[str, str]) -> list[dict[str, str]]:
    return [
        {"name": name, "value": _as_it_is(value)} for name, value in sorted(environment.items())
    ]


def _as_it_is(text: str) -> str:
    """Escape what Kubernetes would expand, such as $(HOME)."""
    return text.replace("$", "$$")


def _mebibytes(size: int) -> str:
    return f"{math.ceil(size / 2**20)}Mi"
