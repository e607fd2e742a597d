"""Jobs on a dask-gateway server with its local backend.

It is skipped where the server isn't installed: ``make test-full`` installs it in an environment of
its own, and LATENTSCALE_GATEWAY_SERVER names its ``dask-gateway-server``.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.support.kubernetes.node import wait_for

SERVER = os.environ.get("LATENTSCALE_GATEWAY_SERVER") or shutil.which("dask-gateway-server")

PASSWORD = "a-password-for-tests"

CONFIGURATION = """
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.SimpleAuthenticator.password = "{password}"
c.DaskGateway.address = "127.0.0.1:{inner}"
c.Proxy.address = "127.0.0.1:{outer}"
c.UnsafeLocalBackend.clusters_directory = "{folder}"
c.ClusterConfig.scheduler_cmd = ["{python}", "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = ["{python}", "-m", "distributed.cli.dask_worker"]
"""

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.skipif(SERVER is None, reason="dask-gateway-server isn't installed"),
]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    """The address of a gateway."""
    outer, file = free_port(), tmp_path / "gateway.py"
    (tmp_path / "clusters").mkdir()
    file.write_text(
        CONFIGURATION.format(
            password=PASSWORD,
            inner=free_port(),
            outer=outer,
            folder=tmp_path / "clusters",
            python=sys.executable,
        )
    )
    log = tmp_path / "gateway.log"
    with log.open("wb") as said:
        command = [str(SERVER), "-f", str(file)]
        server = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_for(lambda: "routes changed" in log.read_text() or port_open(outer), 60.0, "it runs")
        yield f"http://127.0.0.1:{outer}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


def port_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def job(tmp_path: Path, gateway: str) -> Path:
    rows = np.random.default_rng(7).standard_normal((6000, 64)).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    document = {
        "name": "proxied",
        "corpus": str(tmp_path / "rows.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine", "rbf"]}, "magnitude": {}},
        "cluster": {"kind": "gateway", "address": gateway, "workers": 2, "memory_limit": "2GiB"},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def start(*arguments: object, password: str = PASSWORD) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "DASK_GATEWAY__AUTH__TYPE": "basic",
        "DASK_GATEWAY__AUTH__KWARGS__USERNAME": "me",
        "DASK_GATEWAY__AUTH__KWARGS__PASSWORD": password,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "latentscale_pipeline.cli", *map(str, arguments), "--quiet"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def latentscale(*arguments: object, code: int = 0, **options: str) -> str:
    process = start(*arguments, **options)
    out, err = process.communicate()
    assert process.returncode == code, err
    return out if code == 0 else err


def scores(output: Path) -> list[tuple[Any, ...]]:
    [path] = output.glob("proxied-*/results.json")
    found = json.loads(path.read_text())["scores"]
    return [(s["measure"], s["score"], s.get("kernel"), s.get("order"), s["value"]) for s in found]


def processes_of(folder: Path) -> list[str]:
    """Return the commands of the processes of clusters, known by their certificates' folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in place.read_bytes():
                found.append(place.with_name("cmdline").read_text())
        except OSError:
            continue  # it ended meanwhile
    return [command for command in found if "distributed.cli" in command]


def check(job: Path) -> None:
    """Hold the numbers to those of one process, and look for what the cluster left."""
    alone = job.parent / "alone"
    latentscale("run", job, "-o", "cluster={kind: serial}", "-o", f"output={alone}")
    assert scores(job.parent / "jobs") == scores(alone)
    wait_for(lambda: not processes_of(job.parent / "clusters"), 90.0, "the clusters are gone")


def test_a_job_gets_a_cluster_of_its_own_and_leaves_none(job: Path) -> None:
    latentscale("run", job)
    check(job)


def test_a_job_whose_driver_is_killed_is_resumed_and_its_cluster_ends(job: Path) -> None:
    process = start("run", job)
    parts = (job.parent / "jobs").glob
    wait_for(lambda: len(list(parts("*/stages/*/*/**/*.json"))) > 1, 120.0, "some parts are done")
    assert processes_of(job.parent / "clusters")
    process.kill()
    process.communicate()
    [folder] = (job.parent / "jobs").glob("proxied-*")
    latentscale("resume", folder, "--wait")
    check(job)


def test_refused_credentials_are_one_line(job: Path) -> None:
    said = latentscale("run", job, password="another", code=3)
    assert len(said.strip().splitlines()) == 1, said
    assert "the gateway starts no cluster (" in said
    assert "another" not in said


def test_an_address_without_a_gateway_is_one_line(job: Path) -> None:
    said = latentscale("run", job, "-o", f"cluster.address=http://127.0.0.1:{free_port()}", code=3)
    assert len(said.strip().splitlines()) == 1, said


def test_an_option_that_the_gateway_does_not_offer_is_one_line(job: Path) -> None:
    said = latentscale("run", job, "-o", "cluster.options={colour: blue}", code=3)
    assert len(said.strip().splitlines()) == 1, said
    assert "colour" in said
