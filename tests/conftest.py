"""Fixtures that several parts of the suite share."""

from __future__ import annotations

import gc
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

# The same examples in every run, however slow; `--hypothesis-profile default` looks for others.
settings.register_profile("seeded", derandomize=True, database=None, deadline=None)
settings.load_profile("seeded")

# As in the workers of a cluster, and before numba is loaded: its threads can't be taken back.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
# A plugin may have loaded numpy before, and with it one thread for every core.
threadpool_limits(1)
# Thousands of collected tests would be searched for garbage every few seconds.
gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Don't wait for the disk in this process: a killed process loses nothing without that.

    Waiting takes a third of the time of a small job. Other processes of tests do wait.
    """
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """A bucket on an S3 server of this process; the environment points at it."""
    import boto3
    import fsspec
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testkey",
            "AWS_SECRET_ACCESS_KEY": "testsecret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            environment.setenv(name, value)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
            environment.delenv(name, raising=False)
        # A file system that was made before has neither the address nor the key.
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        boto3.client("s3").create_bucket(Bucket="latentscale-tests")
        yield "latentscale-tests"
    server.stop()


@pytest.fixture
def s3_url(s3_bucket: str) -> str:
    """A URL below which there is nothing yet."""
    return f"s3://{s3_bucket}/{uuid.uuid4().hex}"


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def latentscale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run a command line in this process, through the real entry point."""
    from latentscale_pipeline.cli import main

    def command(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["latentscale", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main()
        printed = capsys.readouterr()
        assert isinstance(ending.value.code, int)
        return Ended(ending.value.code, printed.out, printed.err)

    return command
