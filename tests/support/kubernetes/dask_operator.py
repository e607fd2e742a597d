"""What Dask's operator makes of a ``DaskCluster``, for where the operator isn't installed.

The objects are those that ``dask_kubernetes.operator.controller`` makes; a failure that depends on
when it makes them shows with the real one only.
"""

from __future__ import annotations

import copy

from tests.support.kubernetes.objects import Object, Objects


def make_components(objects: Objects) -> None:
    """Make the scheduler, its service and the workers of every cluster that has none yet."""
    for cluster in objects.list("daskclusters"):
        meta = cluster["metadata"]
        names = [each["metadata"]["name"] for each in objects.list("deployments")]
        if "deletionTimestamp" in meta or f"{meta['name']}-scheduler" in names:
            continue
        scheduler, worker = cluster["spec"]["scheduler"], cluster["spec"]["worker"]
        place = meta["namespace"]
        objects.create("services", place, _service(cluster, scheduler["service"]))
        objects.create(
            "deployments", place, _deployment(cluster, "scheduler", "scheduler", scheduler["spec"])
        )
        for number in range(worker["replicas"]):
            name = f"default-worker-{number}"
            spec = copy.deepcopy(worker["spec"])
            variable = {"name": "DASK_WORKER_NAME", "value": f"{meta['name']}-{name}"}
            spec["containers"][0]["env"].append(variable)
            objects.create("deployments", place, _deployment(cluster, name, "worker", spec))


def _service(cluster: Object, spec: Object) -> Object:
    about = _metadata(cluster, "scheduler", "scheduler")
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def _deployment(cluster: Object, name: str, component: str, spec: Object) -> Object:
    about = _metadata(cluster, name, component)
    template = {"metadata": {"labels": about["labels"]}, "spec": spec}
    selector = {"matchLabels": about["labels"]}
    whole = {"replicas": 1, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": whole}


def _metadata(cluster: Object, name: str, component: str) -> Object:
    meta = cluster["metadata"]
    labels = {"dask.org/cluster-name": meta["name"], "dask.org/component": component}
    owner = {"apiVersion": cluster["apiVersion"], "kind": "DaskCluster"}
    owner |= {"name": meta["name"], "uid": meta["uid"]}
    return {
        "name": f"{meta['name']}-{name}",
        "labels": meta["labels"] | labels,
        "ownerReferences": [owner],
    }
