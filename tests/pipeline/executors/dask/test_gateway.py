"""Clusters that dask-gateway starts, as far as no gateway is needed."""

import asyncio
import gc
import json
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.config.cluster import Gateway
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.executors.dask import gateway
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.storage.urls import storage_options
from tests.conftest import Ended


def test_a_scheduler_ends_some_time_after_its_driver_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "ABANDONED_SECONDS", 0.3)
    monkeypatch.setattr(gateway, "LOOK_SECONDS", 0.1)

    class Scheduler:
        def __init__(self) -> None:
            self.clients = {"driver": None}
            self.allowed_failures = 3
            self.reason = ""

        async def close(self, reason: str) -> None:
            self.reason = reason

    async def story() -> None:
        scheduler = Scheduler()
        await gateway.end_with("driver", scheduler)
        assert scheduler.allowed_failures == 0
        await asyncio.sleep(1.0)
        assert scheduler.reason == ""
        scheduler.clients.clear()
        for _ in range(300):
            await asyncio.sleep(0.0 if scheduler.reason else 0.1)
        assert scheduler.reason == "its driver is gone"

    asyncio.run(story())


def test_a_gateway_that_is_not_there_is_one_line(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        np.save(tmp_path / "rows.npy", np.eye(20, dtype="f4"))
        document = {
            "name": "job",
            "corpus": str(tmp_path / "rows.npy"),
            "output": str(tmp_path / "jobs"),
            "measures": {"vendi": {"kernels": ["cosine"]}},
            "cluster": {"kind": "gateway", "address": address},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(document))
        ended = latentscale("run", tmp_path / "job.yaml", "--quiet")
    gc.collect()  # what a finalizer says would be an error here
    assert ended.code == 3
    assert f"cluster.address {address}: the gateway starts no cluster (" in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_secrets_are_not_sent_to_a_gateway_without_tls(tmp_path: Path) -> None:
    pytest.importorskip("dask_gateway")
    far = Gateway(kind="gateway", address="http://gateway.example.org")
    job = Job("ls-a", tmp_path, {}, 0, 0)
    with storage_options({"s3": {"key": "k", "secret": "hush"}}):
        refused = pytest.raises(BadInput, match="has no TLS, and storage options")
        with refused as raised, gateway.gateway_cluster(far, job, print):
            pass
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "ftp://gateway"},
        {"address": "https://me:secret@gateway"},
        {"proxy": "http://gateway:80"},
        {"options": {"image": ["a", "list"]}},
    ],
)
def test_what_is_no_gateway_is_refused(fields: dict[str, object]) -> None:
    known = {"kind": "gateway", "address": "https://gateway.example.org"}
    with pytest.raises(ValueError, match=next(iter(fields))):
        Gateway.model_validate({**known, **fields})
