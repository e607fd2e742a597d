"""Objects of Kubernetes, created and deleted by kr8s on an API server; and the server itself."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from latentscale_pipeline.config.cluster import Kubernetes
from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.executors.dask.kubernetes_objects import (
    create_object,
    import_kr8s,
    names_alike,
    remove_object,
)
from latentscale_pipeline.executors.dask.manifests import LABEL, dask_cluster, tls_secret
from latentscale_pipeline.jobs.schedulers import look_at, withdraw
from latentscale_pipeline.jobs.submission import SubmissionSpec, _hand_to_kubernetes
from latentscale_pipeline.jobs.submission_records import Submission
from tests import ROOT
from tests.support.kubernetes.objects import Refused, merge, operate
from tests.support.kubernetes.server import ApiServer, api_server

kr8s = pytest.importorskip("kr8s")

SETTINGS = Kubernetes(kind="kubernetes", image="registry.example.org/latentscale:0.1.0")
SECRET = tls_secret("ls-a", "ls-a", SETTINGS, {"key.pem": "k"}, None)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "driver", "namespace": "default"},
    "spec": {},
}
HELD = {**SECRET, "metadata": {**SECRET["metadata"], "finalizers": ["example.org/held"]}}

CLIENTS: list[Any] = []
"""Clients that are kept, because kr8s has no way to close one's connections."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture
def server(running: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """The server, empty, as the one that KUBECONFIG names."""
    use(running, monkeypatch)
    running.requests.clear()
    yield running
    for found in running.objects.everything():
        meta, plural = found["metadata"], f"{found['kind'].lower()}s"
        with contextlib.suppress(Refused):  # it went with its owner
            running.objects.patch(plural, meta["namespace"], meta["name"], released)
            running.objects.delete(plural, meta["namespace"], meta["name"])
    wait_until_empty(running)


def use(server: ApiServer, monkeypatch: pytest.MonkeyPatch, **token: str) -> None:
    from kr8s._api import Api

    Api._instances.clear()  # kr8s keeps connections, with the credentials of before
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(**token)))
    with contextlib.suppress(kr8s.ServerError):  # the credentials are refused
        CLIENTS.append(kr8s.api())


def released(found: dict[str, Any]) -> dict[str, Any]:
    found["metadata"].pop("finalizers", None)
    return found


def wait_until_empty(server: ApiServer) -> None:
    wait_until(lambda: not server.objects.everything())


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def uid(server: ApiServer) -> str:
    return str(server.objects.get("secrets", "default", "ls-a")["metadata"]["uid"])


# --- drivers and workers ----------------------------------------------------------------------


def test_a_deletion_is_waited_for(server: ApiServer) -> None:
    library = import_kr8s("a test")
    create_object(library, HELD)
    first = uid(server)

    def release() -> None:
        time.sleep(0.3)
        server.objects.patch("secrets", "default", "ls-a", released)

    thread = threading.Thread(target=release)
    thread.start()
    create_object(library, SECRET, poll_seconds=0.05)
    thread.join()
    assert uid(server) != first


def test_a_deletion_that_takes_too_long_is_one_line(server: ApiServer) -> None:
    library = import_kr8s("a test")
    create_object(library, HELD)
    with pytest.raises(Incomplete, match="still deleting the Secret ls-a of an earlier run"):
        create_object(library, SECRET, deletion_seconds=0.1, poll_seconds=0.05)


def test_what_a_driver_made_goes_with_its_pod(server: ApiServer) -> None:
    library = import_kr8s("a test")
    create_object(library, POD)
    owner = {"name": "driver", "uid": server.objects.list("pods")[0]["metadata"]["uid"]}
    create_object(library, tls_secret("ls-a", "ls-a", SETTINGS, {"key.pem": "k"}, owner))
    create_object(library, dask_cluster("ls-a", "ls-a", SETTINGS, owner))
    assert len(server.objects.everything()) == 3
    server.objects.delete("pods", "default", "driver")
    wait_until_empty(server)


def test_the_role_of_drivers_is_enough_and_no_more(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = yaml.safe_load_all((ROOT / "workflows/kubernetes/rights.yaml").read_text())
    [role] = [document for document in documents if document["kind"] == "Role"]
    server.rights["a-driver"] = role["rules"]
    use(server, monkeypatch, token="a-driver")
    library = import_kr8s("a test")
    cluster = dask_cluster("ls-a", "ls-a", SETTINGS, None)
    assert names_alike(library, cluster, LABEL) == []
    for manifest in (SECRET, cluster):
        create_object(library, manifest)
        create_object(library, manifest, poll_seconds=0.05)
        remove_object(library, manifest)
    used = {(plural, verb) for verb, plural, _ in server.requests}
    allowed = {
        (plural, verb) for r in role["rules"] for plural in r["resources"] for verb in r["verbs"]
    }
    assert used == allowed
    with pytest.raises(kr8s.ServerError, match="may not create"):
        library.object_from_spec(POD).create()


def test_runs_of_one_job_are_known_by_their_label(server: ApiServer) -> None:
    library = import_kr8s("a test")
    for name, job in (("ls-a-1", "ls-a"), ("ls-a-2", "ls-a"), ("ls-b-1", "ls-b")):
        create_object(library, dask_cluster(name, job, SETTINGS, None))
    of_this_job = dask_cluster("ls-a-3", "ls-a", SETTINGS, None)
    assert names_alike(library, of_this_job, LABEL) == ["ls-a-1", "ls-a-2"]
    gone = dask_cluster("ls-b-1", "ls-b", SETTINGS, None)
    remove_object(library, gone)
    wait_until(lambda: len(server.objects.everything()) == 2)
    remove_object(library, gone)


def test_a_role_of_an_earlier_version_is_enough(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = ["create", "get", "delete"]
    rule = {"apiGroups": ["kubernetes.dask.org"], "resources": ["daskclusters"], "verbs": verbs}
    server.rights["before"] = [rule]
    use(server, monkeypatch, token="before")
    library = import_kr8s("a test")
    cluster = dask_cluster("ls-a-1", "ls-a", SETTINGS, None)
    create_object(library, cluster)
    assert names_alike(library, cluster, LABEL) == []


def test_a_submitted_driver_is_looked_at_and_withdrawn(server: ApiServer) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "ls-a", "namespace": "default"},
        "spec": {},
    }
    spec = SubmissionSpec("kubernetes", "default", ["kubectl"], json.dumps(job))
    assert _hand_to_kubernetes(spec) == "ls-a"
    made = Submission("kubernetes", "ls-a", "default", 0, False, 0.0)
    failed = {"type": "Failed", "status": "True"}
    policy = {
        "reason": "PodFailurePolicy",
        "message": "Container driver for pod default/ls-a-x8 failed with exit code 2 matching "
        "FailJob rule at index 1",
    }
    for status, phase, exit_code in (
        ({}, "waiting", None),
        ({"ready": 1}, "running", None),
        ({"conditions": [failed]}, "ended", None),
        ({"conditions": [failed | policy]}, "ended", 2),
    ):
        server.objects.patch("jobs", "default", "ls-a", merge({"status": status}), status=True)
        state = look_at(made)
        assert state is not None
        assert (state.phase, state.exit_code) == (phase, exit_code)
    withdraw(made)
    state = look_at(made)
    assert state is not None
    assert (state.phase, state.word) == ("ended", "no longer known")


@pytest.mark.parametrize(
    ("token", "message"),
    [("nobody", "Unauthorized"), ("reader", "jobs is forbidden: may not create in group")],
)
def test_refused_credentials_are_one_line(
    server: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    token: str,
    message: str,
) -> None:
    server.rights["reader"] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]}]
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(token)))
    np.save(tmp_path / "rows.npy", np.eye(20, dtype="f4"))
    document = {
        "name": "job",
        "corpus": str(tmp_path / "rows.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine"]}},
        "cluster": {"kind": "kubernetes", "image": "example.org/image:1"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    command = [sys.executable, "-m", "latentscale_pipeline.cli", "submit", tmp_path / "job.yaml"]
    ended = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert message in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert server.objects.everything() == []


# --- the server itself ------------------------------------------------------------------------


def test_a_watch_tells_what_happens_and_begins_anew_when_its_version_is_forgotten(
    server: ApiServer,
) -> None:
    objects = server.objects
    since = objects.version
    objects.create("secrets", "default", HELD)
    objects.patch("secrets", "default", "ls-a", merge({"metadata": {"labels": {"a": "b"}}}))
    objects.delete("secrets", "default", "ls-a")
    objects.patch("secrets", "default", "ls-a", released)
    happened = [event for event, _ in objects.watch("secrets", "default", since, 0.0)]
    assert happened == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    assert list(objects.watch("pods", "default", since, 0.0)) == []
    objects.forget()
    with pytest.raises(Refused, match="too old") as refused:
        list(objects.watch("secrets", "default", since, 0.0))
    assert refused.value.code == 410


def test_a_change_of_an_older_version_is_refused(server: ApiServer) -> None:
    objects = server.objects
    old = objects.create("secrets", "default", SECRET)["metadata"]["resourceVersion"]
    objects.patch("secrets", "default", "ls-a", merge({"metadata": {"labels": {"a": "b"}}}))
    for change, code in (
        (merge({"metadata": {"resourceVersion": old, "labels": {"a": "c"}}}), 409),
        (operate([{"op": "test", "path": "/metadata/resourceVersion", "value": old}]), 422),
        (merge({"metadata": {"uid": "another"}}), 422),
    ):
        with pytest.raises(Refused) as refused:
            objects.patch("secrets", "default", "ls-a", change)
        assert refused.value.code == code
    with pytest.raises(Refused, match="already exists"):
        objects.create("secrets", "default", SECRET)


def test_an_owner_that_is_deleted_in_the_foreground_goes_last(server: ApiServer) -> None:
    objects = server.objects
    owner = objects.create("pods", "default", POD)["metadata"]["uid"]
    meta = {
        **HELD["metadata"],
        "ownerReferences": [{"uid": owner, "kind": "Pod", "name": "driver"}],
    }
    objects.create("secrets", "default", {**HELD, "metadata": meta})
    objects.delete("pods", "default", "driver", policy="Foreground")
    objects.collect()
    assert [found["kind"] for found in objects.everything()] == ["Pod", "Secret"]
    objects.patch("secrets", "default", "ls-a", released)
    wait_until_empty(server)
