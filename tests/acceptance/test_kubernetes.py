"""A job on Kubernetes, with Dask's own operator: submitted, disturbed, resumed, cancelled.

The API server and the node are those of :mod:`tests.support.kubernetes`; kr8s, kopf and Dask's
operator are the real ones. ``make test-full`` installs the operator in an environment of its own,
and LATENTSCALE_KOPF names its ``kopf``. Without it one small job is run, with a stand-in for it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests import ROOT
from tests.support.kubernetes.node import Node, node, wait_for
from tests.support.kubernetes.server import ApiServer, api_server

OPERATOR = ["run", "--standalone", "--all-namespaces", "-m"]
MODULE = "dask_kubernetes.operator.controller.controller"
KOPF = os.environ.get("LATENTSCALE_KOPF") or shutil.which("kopf")

SCHEMAS = ROOT / "tests" / "support" / "kubernetes" / "schemas.py"

SECONDS = 300.0

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a process its own mounts"),
]

with_the_operator = pytest.mark.skipif(KOPF is None, reason="Dask's operator isn't installed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path / "server") as made:
        rights = list(yaml.safe_load_all((ROOT / "workflows/kubernetes/rights.yaml").read_text()))
        [role] = [document for document in rights if document["kind"] == "Role"]
        made.rights["the-token-of-drivers"] = role["rules"]
        yield made


@pytest.fixture
def cluster(server: ApiServer, tmp_path: Path) -> Iterator[Node]:
    """A cluster with a node and Dask's operator, or what stands in for it."""
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig())}
    accounts = {"latentscale": "the-token-of-drivers"}
    claims = {"data": tmp_path / "data"}
    with (
        (tmp_path / "operator.log").open("wb") as log,
        node(
            server, tmp_path / "node", accounts=accounts, claims=claims, operated=KOPF is None
        ) as made,
    ):
        if KOPF is None:
            yield made
            return
        command = [KOPF, *OPERATOR, MODULE]
        operator = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield made
        finally:
            operator.send_signal(signal.SIGTERM)
            operator.wait(timeout=60)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job file whose job takes some ten seconds of two workers, with the operator."""
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    n, measures = 6000, {"vendi": {"kernels": ["cosine", "rbf"]}, "magnitude": {}}
    if KOPF is None:
        n, measures = 300, {"vendi": {"kernels": ["cosine"]}}
    rows = np.random.default_rng(7).standard_normal((n, 64)).astype("f4")
    np.save(data / "rows.npy", rows)
    document = {
        "name": "pods",
        "corpus": str(data / "rows.npy"),
        "output": str(data / "jobs"),
        "measures": measures,
        "cluster": {
            "kind": "kubernetes",
            "image": "registry.example.org/latentscale:0.1.0",
            "service_account": "latentscale",
            "workers": 2,
            "volumes": [{"claim": "data", "path": str(data)}],
        },
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def latentscale(server: ApiServer, *arguments: object, code: int = 0) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "latentscale_pipeline.cli", *map(str, arguments)],
        env={**os.environ, "KUBECONFIG": str(server.kubeconfig())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def scores(folder: Path) -> list[tuple[Any, ...]]:
    found = json.loads((folder / "results.json").read_text())["scores"]
    return [(s["measure"], s["score"], s.get("kernel"), s.get("order"), s["value"]) for s in found]


def driver(cluster: Node) -> dict[str, Any] | None:
    """Return the running pod of the driver."""
    for pod in cluster.objects.list("pods"):
        component = pod["metadata"]["labels"].get("app.kubernetes.io/component")
        if component == "driver" and pod["status"].get("phase") == "Running":
            return pod
    return None


def workers(cluster: Node) -> list[dict[str, Any]]:
    """Return the running pods of workers."""
    pods = cluster.objects.list("pods", labelSelector="dask.org/component=worker")
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


def parts_done(cluster: Node) -> int:
    return len(list(cluster.claims["data"].glob("jobs/pods-*/stages/*/*/**/*.json")))


def finish(server: ApiServer, cluster: Node, job: Path) -> Path:
    """Wait until the driver's job is complete, and say that nothing else is left."""

    def ended() -> Any:
        [found] = server.objects.list("jobs")
        return found["status"].get("conditions")

    [condition] = wait_for(ended, SECONDS, f"the job ends: {cluster.log('ls-')[-2000:]}")
    assert condition["type"] == "Complete", cluster.log("ls-")
    wait_for(lambda: left(server) == [], 30.0, "all that a run made is gone")
    [folder] = (cluster.claims["data"] / "jobs").glob("pods-*")
    alone = job.parent / "alone"
    here = ["-o", "cluster={kind: serial}", "-o", f"output={alone}", "--quiet"]
    latentscale(server, "run", job, *here)
    [expected] = alone.glob("pods-*")
    assert scores(folder) == scores(expected)
    return folder


def left(server: ApiServer) -> list[tuple[str, str]]:
    """Return all objects but the driver's own."""
    found = [(each["kind"], each["metadata"]["name"]) for each in server.objects.everything()]
    drivers = {
        pod["metadata"]["name"]
        for pod in server.objects.list("pods", labelSelector="app.kubernetes.io/component=driver")
    }
    return [each for each in found if each[0] != "Job" and each[1] not in drivers]


def test_a_submitted_job_ends_with_the_numbers_of_one_process(
    server: ApiServer, cluster: Node, job: Path
) -> None:
    latentscale(server, "submit", job)
    folder = finish(server, cluster, job)
    assert "finished" in latentscale(server, "status", folder)
    if KOPF is not None:
        check_schemas(server, job.parent, Path(KOPF).with_name("python"))


def check_schemas(server: ApiServer, place: Path, python: Path) -> None:
    """Hold everything that was to be created to the schemas of Kubernetes and of the operator."""
    made = [manifest for manifest in server.objects.given if manifest["kind"] != "Event"]
    (place / "made.yaml").write_text(yaml.safe_dump_all(made))
    command = [python, SCHEMAS, place / "made.yaml"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    kinds = {json.loads(line)[0] for line in ended.stdout.splitlines()}
    own = {"Job", "Pod", "Secret", "Deployment", "Service"}
    assert kinds == own | {"DaskCluster", "DaskWorkerGroup"}


@with_the_operator
@pytest.mark.full
def test_a_worker_that_is_deleted_is_replaced(server: ApiServer, cluster: Node, job: Path) -> None:
    latentscale(server, "submit", job)
    wait_for(lambda: len(workers(cluster)) == 2, 120.0, "both workers run")
    wait_for(lambda: parts_done(cluster) > 1, 120.0, "some parts are done")
    gone = workers(cluster)[0]["metadata"]
    server.objects.delete("pods", gone["namespace"], gone["name"])
    wait_for(
        lambda: (
            gone["name"] not in [pod["metadata"]["name"] for pod in workers(cluster)]
            and len(workers(cluster)) == 2
        ),
        60.0,
        "another worker runs",
    )
    finish(server, cluster, job)


@with_the_operator
@pytest.mark.full
@pytest.mark.parametrize("how", ["deleted", "killed", "gone with its node"])
def test_a_driver_that_is_lost_is_resumed(
    server: ApiServer, cluster: Node, job: Path, how: str
) -> None:
    server.objects.orphan_seconds = 3.0
    latentscale(server, "submit", job, "--requeue")
    wait_for(lambda: parts_done(cluster) > 1, 120.0, "some parts are done")
    gone = driver(cluster)
    assert gone is not None
    meta = gone["metadata"]
    if how != "deleted":
        os.killpg(cluster.processes[meta["uid"]].pid, signal.SIGKILL)
    if how != "killed":
        server.objects.delete("pods", meta["namespace"], meta["name"])
    finish(server, cluster, job)


@with_the_operator
@pytest.mark.full
def test_a_cancelled_job_leaves_nothing(server: ApiServer, cluster: Node, job: Path) -> None:
    latentscale(server, "submit", job)
    wait_for(lambda: parts_done(cluster) > 1, 120.0, "some parts are done")
    [folder] = (cluster.claims["data"] / "jobs").glob("pods-*")
    latentscale(server, "cancel", folder)
    wait_for(lambda: left(server) == [], 60.0, "all that a run made is gone")
    assert "cancelled" in latentscale(server, "status", folder)
