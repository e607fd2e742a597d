"""Kubernetes manifests of a job's driver and workers, as plain data.

The driver is a ``Job`` that runs ``latentscale resume`` on the job's folder. It asks Dask's
operator for a ``DaskCluster`` and hands over, in a ``Secret``, certificates of this run. Pods run
as nobody in particular, without privileges, with a root file system that can't be written to. What
belongs to a run belongs, for Kubernetes, to the driver's pod, so it goes when that does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.config.cluster import Driver, Kubernetes, walltime_seconds
from latentscale_pipeline.executors.dask.environment import (
    scheduler_environment,
    worker_environment,
)

USER = 10001
"""Whom the processes of the image run as."""

PORT = 8786
TLS_FOLDER = "/tls"
TLS_FILES = ("certificate.pem", "key.pem")
KEPT_SECONDS = 7 * 86400
"""How long a driver that ended is kept, with what it said."""

GRACE_SECONDS = 60
"""How long a driver may take to end tidily."""

RESUBMISSIONS = 6
"""How often Kubernetes starts a driver again that died."""

OWNER = ("LATENTSCALE_POD_NAME", "LATENTSCALE_POD_UID")
"""Variables that tell a driver which pod it is in."""


Manifest = dict[str, Any]


def driver_job(
    name: str,
    arguments: list[str],
    cluster: Kubernetes,
    driver: Driver,
    *,
    requeue: bool,
    extra_environment: Mapping[str, str],
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
    extra_environment : mapping
        Further variables, none of them secret.
    """
    described: list[Manifest] = [
        {"name": k, "value": v} for k, v in sorted(extra_environment.items())
    ]
    described += [
        {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{field}"}}}
        for variable, field in zip(OWNER, ("name", "uid"), strict=True)
    ]
    container = _container(
        "driver",
        cluster,
        ["python", "-m", "latentscale_pipeline.cli", *arguments],
        cluster.environment | worker_environment(),
        memory=driver.memory_limit,
        cpus=1,
    )
    container["env"] += described
    pod = _pod(cluster, [container]) | {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
    }
    if cluster.service_account:
        # The only pod that speaks with Kubernetes.
        pod["automountServiceAccountToken"] = True
    spec: dict[str, Any] = {
        "backoffLimit": RESUBMISSIONS if requeue else 0,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": {"metadata": {"labels": _labels(name, "driver")}, "spec": pod},
    }
    if requeue:
        # What the job itself says at its end, such as bad input, won't change by trying again.
        spec["podFailurePolicy"] = {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": "driver",
                        "operator": "In",
                        "values": [1, 2, 3],
                    },
                }
            ]
        }
    if driver.walltime is not None:
        spec["activeDeadlineSeconds"] = walltime_seconds(driver.walltime)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": _labels(name, "driver"),
        },
        "spec": spec,
    }


def tls_secret(
    name: str, cluster: Kubernetes, files: Mapping[str, str], owner: Mapping[str, str] | None
) -> Manifest:
    """Return the ``Secret`` with the certificate and the key of a run."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(name, cluster, "tls", owner),
        "type": "Opaque",
        "immutable": True,
        "stringData": dict(files),
    }


def dask_cluster(name: str, cluster: Kubernetes, owner: Mapping[str, str] | None) -> Manifest:
    """Return the ``DaskCluster`` of a run: a scheduler, and workers that are kept at their number.

    Everything that listens asks for a certificate of the run. The operator gives a worker its name
    and starts another one in the place of one that died.
    """
    tls = [
        *("--tls-ca-file", f"{TLS_FOLDER}/{TLS_FILES[0]}"),
        *("--tls-cert", f"{TLS_FOLDER}/{TLS_FILES[0]}"),
        *("--tls-key", f"{TLS_FOLDER}/{TLS_FILES[1]}"),
    ]
    scheduler = _container(
        "scheduler",
        cluster,
        [
            *("python", "-m", "distributed.cli.dask_scheduler"),
            *("--protocol", "tls", "--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104 -- TLS
            *("--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
            *tls,
        ],
        scheduler_environment(),
        memory=2 << 30,
        cpus=1,
    )
    scheduler["ports"] = [{"name": "tcp-comm", "containerPort": PORT, "protocol": "TCP"}]
    scheduler["readinessProbe"] = {"tcpSocket": {"port": "tcp-comm"}, "periodSeconds": 5}
    worker = _container(
        "worker",
        cluster,
        [
            *("python", "-m", "distributed.cli.dask_worker", scheduler_address(name, cluster)),
            *("--name", "$(DASK_WORKER_NAME)", "--nthreads", str(cluster.threads)),
            *("--memory-limit", f"{cluster.memory_limit}B", "--no-dashboard"),
            *("--dashboard-address", "127.0.0.1:0", "--death-timeout", "60"),
            *tls,
        ],
        cluster.environment | worker_environment(),
        memory=cluster.memory_limit + (256 << 20),
        cpus=cluster.cpus or cluster.threads,
    )
    for container in (scheduler, worker):
        container["volumeMounts"].append({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True})
    # Pods run as nobody in particular, so their group has to be able to read the key.
    tls_volume = {"name": "tls", "secret": {"secretName": name, "defaultMode": 0o440}}
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": _metadata(name, cluster, "cluster", owner),
        "spec": {
            "idleTimeout": 0,
            "worker": {
                "replicas": cluster.workers,
                "spec": _pod(cluster, [worker], tls_volume),
            },
            "scheduler": {
                "spec": _pod(cluster, [scheduler], tls_volume),
                "service": {
                    "type": "ClusterIP",
                    "selector": {
                        "dask.org/cluster-name": name,
                        "dask.org/component": "scheduler",
                    },
                    "ports": [
                        {
                            "name": "tcp-comm",
                            "protocol": "TCP",
                            "port": PORT,
                            "targetPort": "tcp-comm",
                        }
                    ],
                },
            },
        },
    }


def scheduler_address(name: str, cluster: Kubernetes) -> str:
    """Return where the scheduler of a ``DaskCluster`` is reached."""
    return f"tls://{name}-scheduler.{cluster.namespace}.svc:{PORT}"


def _metadata(
    name: str, cluster: Kubernetes, part: str, owner: Mapping[str, str] | None
) -> Manifest:
    metadata: Manifest = {
        "name": name,
        "namespace": cluster.namespace,
        "labels": _labels(name, part),
    }
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}
        ]
    return metadata


def _labels(name: str, part: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "latentscale",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": part,
    }


def _container(
    name: str,
    cluster: Kubernetes,
    command: list[str],
    environment: Mapping[str, str],
    *,
    memory: int,
    cpus: int,
) -> Manifest:
    mebibytes = f"{math.ceil(memory / 2**20)}Mi"
    container: Manifest = {
        "name": name,
        "image": cluster.image,
        "command": command,
        "env": [{"name": k, "value": v} for k, v in sorted(environment.items())],
        "resources": {
            "requests": {"cpu": str(cpus), "memory": mebibytes},
            "limits": {"memory": mebibytes},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 -- of the pod alone
            *({"name": f"data-{i}", "mountPath": v.path} for i, v in enumerate(cluster.volumes)),
        ],
    }
    if cluster.secrets:
        container["envFrom"] = [{"secretRef": {"name": secret}} for secret in cluster.secrets]
    return container


def _pod(cluster: Kubernetes, containers: list[Manifest], *volumes: Manifest) -> Manifest:
    pod: Manifest = {
        "containers": containers,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            *(
                {"name": f"data-{i}", "persistentVolumeClaim": {"claimName": volume.claim}}
                for i, volume in enumerate(cluster.volumes)
            ),
            *volumes,
        ],
    }
    if cluster.service_account:
        pod["serviceAccountName"] = cluster.service_account
    return pod
