"""Kubernetes manifests of a job's driver and workers, as plain data: ``manifests.yaml``, filled in.

The driver is a ``Job`` that runs ``latentscale resume`` on the job's folder. It asks Dask's
operator for a ``DaskCluster`` and hands over, in a ``Secret``, certificates of this run. Pods run
as an arbitrary user, without privileges, with a read-only root file system. The driver's pod owns
all objects of a run, so Kubernetes removes them with it.
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
"""How often Kubernetes starts a driver again that died."""

OWNER = ("LATENTSCALE_POD_NAME", "LATENTSCALE_POD_UID")
"""Variables that tell a driver which pod it is in."""

Manifest = dict[str, Any]


def driver_job(
    name: str, arguments: list[str], cluster: Kubernetes, driver: Driver, *, requeue: bool
) -> Manifest:
    """Return the ``Job`` of a driver.

    Parameters
    ----------
    name : str
        Its name.
    arguments : list of str
        Of ``latentscale``.
    cluster, driver : Kubernetes, Driver
        The configuration.
    requeue : bool
        Whether a driver that died is started again.
    """
    return _manifest(
        "driver",
        name,
        cluster,
        arguments=arguments,
        memory=_mebibytes(driver.memory_limit),
        cpus="1",
        speaks_with_kubernetes=bool(cluster.service_account),
        resubmissions=RESUBMISSIONS if requeue else 0,
        failure_policy=_templates()["failure_policy"] if requeue else None,
        seconds=None if driver.walltime is None else walltime_seconds(driver.walltime),
    )


def tls_secret(
    name: str, cluster: Kubernetes, files: Mapping[str, str], owner: Mapping[str, str] | None
) -> Manifest:
    """Return the ``Secret`` with the certificate and the key of a run."""
    return _manifest("tls", name, cluster, owner, files=dict(files))


def dask_cluster(name: str, cluster: Kubernetes, owner: Mapping[str, str] | None) -> Manifest:
    """Return the ``DaskCluster`` of a run: a scheduler, and workers that are kept at their number.

    Everything that listens asks for a certificate of the run. The operator gives a worker its name
    and starts another one in the place of one that died.
    """
    certificate, key = (f"/tls/{file}" for file in TLS_FILES)
    return _manifest(
        "cluster",
        name,
        cluster,
        owner,
        scheduler=scheduler_address(name, cluster),
        scheduler_environment=_variables(scheduler_environment()),
        tls=["--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key],
        workers=cluster.workers,
        threads=str(cluster.threads),
        memory_limit=f"{cluster.memory_limit}B",
        memory=_mebibytes(cluster.memory_limit + (256 << 20)),
        cpus=str(cluster.cpus or cluster.threads),
    )


def scheduler_address(name: str, cluster: Kubernetes) -> str:
    """Return where the scheduler of a ``DaskCluster`` is reached."""
    return f"tls://{name}-scheduler.{cluster.namespace}.svc:8786"


def _manifest(
    kind: str,
    name: str,
    cluster: Kubernetes,
    owner: Mapping[str, str] | None = None,
    **values: Any,
) -> Manifest:
    """Fill in a template, with the values that several of them have."""
    labels = {"name": "latentscale", "instance": name, "component": kind}
    volumes = [(f"data-{i}", volume) for i, volume in enumerate(cluster.volumes)]
    common = {
        "name": name,
        "namespace": cluster.namespace,
        "labels": {f"app.kubernetes.io/{key}": value for key, value in labels.items()},
        "owners": owner and [{"apiVersion": "v1", "kind": "Pod", **owner}],
        "image": cluster.image,
        "service_account": cluster.service_account,
        "environment": _variables(cluster.environment | worker_environment()),
        "secrets": [{"secretRef": {"name": secret}} for secret in cluster.secrets] or None,
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
    """Put values into a template; they stay as they are, whatever they contain."""
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
    return [{"name": name, "value": value} for name, value in sorted(environment.items())]


def _mebibytes(size: int) -> str:
    return f"{math.ceil(size / 2**20)}Mi"
