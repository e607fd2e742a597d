"""What Kubernetes is asked for: no privileges, no open port, nothing that a name changes."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from latentscale_pipeline.config.cluster import Driver, Kubernetes
from latentscale_pipeline.executors.dask.manifests import dask_cluster, driver_job, tls_secret
from tests import ROOT
from tests.conftest import Ended
from tests.support.kubernetes.schemas import check

WORKFLOWS = ROOT / "workflows"
HAVE_SCHEMAS = importlib.util.find_spec("kubernetes_validate") is not None

Command = Callable[..., Ended]


def settings(**fields: Any) -> Kubernetes:
    known = {"kind": "kubernetes", "image": "registry.example.org/latentscale:0.1.0"}
    return Kubernetes.model_validate({**known, **fields})


def manifests() -> list[dict[str, Any]]:
    full = settings(
        workers=7,
        threads=2,
        memory_limit="3GiB",
        service_account="latentscale",
        secrets=["object-store"],
        volumes=[{"claim": "embeddings", "path": "/data"}],
        resources={"nvidia.com/gpu": 1, "ephemeral-storage": "20Gi"},
        node_selector={"example.org/pool": "gpu", "zone": "a"},
        tolerations=[
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "pool", "value": "gpu"},
        ],
        image_pull_secrets=["registry"],
        environment={"ODD": "$(id) `id` \"' %j"},
    )
    driver = Driver(walltime="1-00:00:00", memory_limit=2**30)
    owner = {"name": "driver-pod", "uid": "0-1-2"}
    arguments = ["resume", "s3://bucket/a job's; $(id)", "--here"]
    return [
        driver_job("ls-a", arguments, full, driver, requeue=True),
        driver_job("ls-a", arguments, settings(), Driver(), requeue=False),
        tls_secret("ls-a", "ls-a", full, {"certificate.pem": "c", "key.pem": "k"}, owner),
        tls_secret("ls-a", "ls-a", full, {"certificate.pem": "c", "key.pem": "k"}, None),
        dask_cluster("ls-a", "ls-a", full, owner),
        dask_cluster("ls-a", "ls-a", settings(), None),
    ]


def pods(value: Any) -> Iterator[dict[str, Any]]:
    """Find every pod in a manifest."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pods(inner)


def test_pods_have_no_privileges_and_every_port_asks_for_a_certificate() -> None:
    found = [pod for manifest in manifests() for pod in pods(manifest)]
    assert len(found) == 6
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        [container] = pod["containers"]
        safety = container["securityContext"]
        assert safety["allowPrivilegeEscalation"] is False
        assert safety["readOnlyRootFilesystem"] is True
        assert safety["capabilities"] == {"drop": ["ALL"]}
        assert container["command"][0] == "python", "no shell reads any of it"
        assert {"limits", "requests"} <= container["resources"].keys()
        if container["name"] in {"scheduler", "worker"}:
            words = container["command"]
            assert words[words.index("--tls-key") + 1] == "/tls/key.pem"
            assert "--no-dashboard" in words
            required = {"name": "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION", "value": "True"}
            assert required in container["env"]
    [scheduler] = [
        m for m in manifests() if m["kind"] == "DaskCluster" and "ownerReferences" in m["metadata"]
    ]
    assert scheduler["spec"]["worker"]["replicas"] == 7
    ports = scheduler["spec"]["scheduler"]["service"]["ports"]
    assert [port["port"] for port in ports] == [8786]
    worker = scheduler["spec"]["worker"]["spec"]["containers"][0]
    assert {"name": "NUMBA_NUM_THREADS", "value": "1"} in worker["env"]
    assert "tls://ls-a-scheduler.default.svc:8786" in worker["command"]


def test_pods_run_where_they_may_and_only_workers_take_devices() -> None:
    driver, plain = manifests()[:2]
    workers = manifests()[4]
    for pod in [*pods(driver), *pods(workers)]:
        assert pod["nodeSelector"] == {"example.org/pool": "gpu", "zone": "a"}
        assert pod["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "pool", "operator": "Equal", "value": "gpu"},
        ]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
    asked = {
        pod["containers"][0]["name"]: pod["containers"][0]["resources"] for pod in pods(workers)
    }
    devices = {"nvidia.com/gpu": "1", "ephemeral-storage": "20Gi"}
    assert asked["worker"] == {
        "requests": {"cpu": "2", "memory": "3328Mi", **devices},
        "limits": {"memory": "3328Mi", **devices},
    }
    for container in (*asked.pop("scheduler").values(), *next(pods(driver))["containers"]):
        assert not devices.keys() & container.get("resources", container).keys()
    assert not {"nodeSelector", "tolerations", "imagePullSecrets"} & next(pods(plain)).keys()


@pytest.mark.parametrize(
    "fields",
    [
        {"tolerations": [{"operator": "Equal"}]},
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        {"node_selector": {"a b": "c"}},
        {"resources": {"nvidia.com/gpu": "-1"}},
        {"resources": {"memory": "1Gi"}},
        {"image_pull_secrets": ["A"]},
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        settings(**fields)


def test_a_driver_that_died_is_started_again_only_when_asked_for() -> None:
    again, once = manifests()[:2]
    assert once["spec"]["backoffLimit"] == 0
    assert again["spec"]["backoffLimit"] > 0
    drained, rule = again["spec"]["podFailurePolicy"]["rules"]
    assert drained["action"] == "Ignore"
    assert drained["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert rule["action"] == "FailJob"
    # Kubernetes would expand $(id), and reads $$ as $.
    container = manifests()[4]["spec"]["worker"]["spec"]["containers"][0]
    assert {"name": "ODD", "value": "$$(id) `id` \"' %j"} in container["env"]
    assert rule["onExitCodes"]["values"] == [1, 2, 3]
    assert again["spec"]["activeDeadlineSeconds"] == 86400
    assert (
        "s3://bucket/a job's; $$(id)"
        in again["spec"]["template"]["spec"]["containers"][0]["command"]
    )


@pytest.mark.skipif(not HAVE_SCHEMAS, reason="kubernetes-validate isn't installed")
def test_manifests_are_what_the_schemas_ask_for() -> None:
    for manifest in manifests():
        assert check(manifest)
    for name in ("rights.yaml", "storage.yaml"):
        for document in yaml.safe_load_all((WORKFLOWS / "kubernetes" / name).read_text()):
            assert check(document)


def test_dry_run_prints_the_manifest(tmp_path: Path, latentscale: Command) -> None:
    np.save(tmp_path / "rows.npy", np.eye(20, dtype="f4"))
    config = tmp_path / "job.yaml"
    config.write_text(
        json.dumps(
            {
                "name": "1 job",
                "corpus": str(tmp_path / "rows.npy"),
                "output": str(tmp_path / "jobs"),
                "measures": {"vendi": {"kernels": ["cosine"]}},
                "cluster": {"kind": "kubernetes", "image": "example.org/image:1"},
            }
        )
    )
    ended = latentscale("submit", config, "--dry-run", "--quiet")
    assert ended.code == 0, ended.err
    command, _, text = ended.out.partition("\n")
    assert command == "kubectl create -f - <<'END'"
    driver, _, workers = text.partition("END\n")
    manifest = json.loads(driver)
    decoder = json.JSONDecoder()
    title, secret_text = workers.strip().split("\n", 1)
    tls, end = decoder.raw_decode(secret_text)
    pool = json.loads(secret_text[end:])
    assert title == "# The driver creates:"
    assert (tls["kind"], pool["kind"]) == ("Secret", "DaskCluster")
    run = f"{manifest['metadata']['name']}-xxxxxx"
    assert tls["metadata"]["name"] == pool["metadata"]["name"] == run
    assert not (tmp_path / "jobs").exists()
    assert ended.err == (
        f"{tmp_path}/rows.npy: not a corpus yet; submit would ingest it first (xxxxxxxx stands for "
        "the hash in the job's name)\n"
    )
    assert manifest["metadata"]["name"].startswith("ls-1-job-")
    assert len(manifest["metadata"]["name"]) <= 36
    assert "--keep" not in text
    assert "--keep" in latentscale("submit", config, "--dry-run", "--quiet", "--keep").out
    secret = latentscale("submit", config, "--dry-run", "-o", "storage_options.s3.secret=hush")
    assert secret.code == 2
    assert "hush" not in secret.err + secret.out
    for key, value in (("image", "UPPER;x"), ("namespace", "a b"), ("secrets", "['A b']")):
        assert latentscale("submit", config, "-o", f"cluster.{key}={value}").code == 2


def test_the_image_is_pinned_and_runs_as_no_one_in_particular() -> None:
    lines = (WORKFLOWS / "kubernetes" / "Containerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert bases
    assert all(base.count(".") == 2 and ":" in base for base in bases), "a version, not latest"
    [user] = [line.split()[1] for line in lines if line.startswith("USER")]
    assert user == "10001:10001"
