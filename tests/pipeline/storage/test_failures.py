"""Stores that are full, read-only or away: waited for where that helps, then one line, all kept."""

import errno
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.errors import BadInput, StoreFailed, StoreFull
from latentscale_pipeline.jobs import resources
from latentscale_pipeline.storage import objects
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.support.jobs import command_line, timeless

Command = Callable[..., Ended]


class Flaky:
    """Fails a number of times, then does as it should."""

    def __init__(self, action: Callable[..., Any], error: Exception, times: int) -> None:
        self._action, self._error, self._left = action, error, times
        self.calls = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self._left > 0:
            self._left -= 1
            raise self._error
        return self._action(*arguments, **options)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time that passes only by waiting; every wait is noted."""
    waited: list[float] = []
    monkeypatch.setattr(objects.time, "monotonic", lambda: 1e6 + sum(waited))
    monkeypatch.setattr(objects.time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_network_file_system_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], number: int
) -> None:
    store = ObjectStore(str(tmp_path))
    monkeypatch.setattr(os, "fsync", Flaky(os.fsync, OSError(number, "away"), 4))
    store.write("key", b"data")
    assert pauses == [0.2, 0.4, 0.8, 1.6]
    reading = Flaky(store._fs.cat_file, OSError(number, "away"), 3)
    monkeypatch.setattr(store._fs, "cat_file", reading)
    assert store.read("key") == b"data"
    assert reading.calls == 4
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_one_that_stays_away_is_told_and_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    store = ObjectStore(str(tmp_path))
    stale = OSError(errno.ESTALE, "Stale file handle")
    monkeypatch.setattr(os, "fsync", Flaky(os.fsync, stale, 1000))
    with pytest.raises(StoreFailed) as caught:
        store.write("key", b"data")
    assert str(caught.value) == (
        f"{tmp_path}/key: [Errno {errno.ESTALE}] Stale file handle; run the same command again "
        "once this is fixed"
    )
    assert 100 < sum(pauses) < objects.PATIENCE_SECONDS
    assert max(pauses) == objects.LONGEST_DELAY
    before = len(pauses)
    with pytest.raises(StoreFailed):
        store.create("other", b"data")
    assert len(pauses) == before
    assert list(tmp_path.iterdir()) == []


def test_a_marker_whose_answer_was_lost_is_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    store = ObjectStore(str(tmp_path))

    def linked(*places: Any) -> None:
        os.replace(*places)
        raise OSError(errno.EIO, "the answer was lost")

    monkeypatch.setattr(objects, "_link", Flaky(objects._link, OSError(errno.EIO, "away"), 0))
    real = objects._link
    calls: list[int] = []

    def first_lost(*places: Any) -> None:
        calls.append(1)
        (linked if len(calls) == 1 else real)(*places)

    monkeypatch.setattr(objects, "_link", first_lost)
    assert store.create("marker", b"mine")
    assert not store.create("marker", b"another's")


def test_a_full_disk_is_waited_for_shortly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    store = ObjectStore(str(tmp_path))
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", Flaky(os.fsync, full, 3))
    store.write("key", b"data")
    assert len(pauses) == 3
    monkeypatch.setattr(os, "fsync", Flaky(os.fsync, full, 1000))
    with pytest.raises(StoreFull, match="key: the disk is full or over quota; free some space"):
        store.write("key", b"more")
    assert sum(pauses[3:]) < objects.SHORT_PATIENCE_SECONDS
    assert store.read("key") == b"data"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG])
def test_what_will_not_pass_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], number: int
) -> None:
    monkeypatch.setattr(os, "fsync", Flaky(os.fsync, OSError(number, "no"), 1000))
    with pytest.raises((BadInput, StoreFull), match=r"key: (permission denied|the disk is full)"):
        ObjectStore(str(tmp_path)).write("key", b"data")
    assert pauses == []


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def remount(self, options: str) -> None:
        mount = ["mount", "-o", f"remount,{options}", str(self.path)]
        begun = time.monotonic()
        # While a process has a file open to write, the file system can't be made read-only.
        while (ended := subprocess.run(mount, check=False, capture_output=True)).returncode:
            assert time.monotonic() - begun < 10, ended.stderr


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small file system can't be mounted here")
    yield Disk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def job(tmp_path: Path, latentscale: Command) -> Callable[[str], Path]:
    """A job of several stages, whose output is yet to be named."""
    rows = np.random.default_rng(9).normal(size=(1500, 12)).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    corpus = tmp_path / "corpus.zarr"
    assert latentscale("ingest", tmp_path / "rows.npy", corpus).code == 0

    def write(output: str) -> Path:
        config = tmp_path / "job.yaml"
        fields = {
            "name": "store",
            "corpus": str(corpus),
            "output": output,
            "sampling": {"method": "none"},
            "measures": {"heat": {"k": 12}, "vendi": {"kernels": ["cosine"]}},
            "cluster": {"kind": "serial"},
        }
        config.write_text(json.dumps(fields))
        return config

    return write


def last_line(err: str) -> str:
    assert "Traceback" not in err
    return err.strip().splitlines()[-1]


def start_and_wait_for(config: Path, condition: Callable[[], bool]) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        command_line("run", config), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    begun = time.monotonic()
    while not condition():
        assert process.poll() is None
        assert time.monotonic() - begun < 60
        time.sleep(0.01)
    return process


def test_a_disk_that_turns_read_only_then_full_loses_nothing(
    disk: Disk, job: Callable[[str], Path], latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = latentscale("run", job(str(disk.path.parent / "roomy")), "--json")
    config = job(str(disk.path))

    def markers(name: str = "*") -> int:
        return len(list(disk.path.glob(f"*/stages/*/*/{name}.json")))

    process = start_and_wait_for(config, lambda: markers() >= 1)
    disk.remount("ro")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"latentscale: {disk.path}/" in last_line(err)
    assert last_line(err).endswith("permission denied; choose another place or change permissions")

    first = markers()
    disk.remount("rw")
    used = os.statvfs(disk.path)
    kilobytes = (used.f_blocks - used.f_bfree) * used.f_frsize // 1024
    disk.remount(f"size={kilobytes + 350}k")
    monkeypatch.setattr(objects, "SHORT_PATIENCE_SECONDS", 0.5)
    ended = latentscale("run", config)
    assert ended.code == 2
    assert re.search(r"the job writes .* MiB and 3\d\d KiB are free there", last_line(ended.err))
    assert markers() == first
    # Another program may fill the disk after the run has begun.
    with monkeypatch.context() as patch:
        patch.setattr(resources, "free_bytes", lambda output: None)
        ended = latentscale("run", config)
    assert ended.code == 3
    assert last_line(ended.err).startswith(f"latentscale: {disk.path}/store-")
    assert last_line(ended.err).endswith(
        ": the disk is full or over quota; free some space and run the same command again"
    )

    assert 1 <= first <= markers()
    ends = [*disk.path.glob("*/stages/*/*/result.json"), *disk.path.glob("*/stages/*/*/coll*.json")]
    finished = len({path.parent for path in ends})
    disk.remount("size=64m")
    ended = latentscale("run", config, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert timeless(found) == timeless(json.loads(expected.out))
    kept = [timing for timing in found["timings"] if timing["reason"] == "already done"]
    reasons = {timing["stage"]: timing["reason"] for timing in found["timings"]}
    assert len(kept) == finished, (reasons, ends)


class Server:
    """An S3 server that can go away and come back, with all that it holds, at one address."""

    def __init__(self) -> None:
        self._port = 0
        self.bucket = f"outage-{uuid.uuid4().hex}"
        self.start()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()
        _, self._port = self._server.get_host_and_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def stop(self) -> None:
        self._server.stop()

    def objects(self, ending: str) -> list[str]:
        listed = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return [entry["Key"] for entry in listed if entry["Key"].endswith(ending)]

    @cached_property
    def client(self) -> Any:
        import boto3

        return boto3.client("s3")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    from s3fs import S3FileSystem

    server = Server()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    # What is remembered of another server must not be used for this one, nor the other way.
    S3FileSystem.clear_instance_cache()
    server.client.create_bucket(Bucket=server.bucket)
    yield server
    S3FileSystem.clear_instance_cache()
    server.stop()


def test_an_object_store_that_goes_away_for_a_while(
    server: Server, job: Callable[[str], Path], latentscale: Command, tmp_path: Path
) -> None:
    expected = latentscale("run", job(str(tmp_path / "local")), "--json")
    config = job(f"s3://{server.bucket}/jobs")

    def go_away_and_come_back() -> None:
        wait_until(lambda: bool(server.objects("/result.json")))
        server.stop()
        time.sleep(1.5)
        server.start()

    outage = threading.Thread(target=go_away_and_come_back)
    outage.start()
    ended = latentscale("run", config, "--json")
    outage.join()
    assert ended.code == 0, ended.err
    assert timeless(json.loads(ended.out)) == timeless(json.loads(expected.out))


def test_an_object_store_that_is_away_is_told(
    server: Server,
    job: Callable[[str], Path],
    latentscale: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "PATIENCE_SECONDS", 0.5)
    server.stop()
    ended = latentscale("run", job(f"s3://{server.bucket}/jobs"))
    server.start()
    assert ended.code == 3
    assert last_line(ended.err).startswith(f"latentscale: s3://{server.bucket}/jobs")
    assert "Could not connect to the endpoint URL" in last_line(ended.err)
    assert last_line(ended.err).endswith("; run the same command again once this is fixed")


def test_missing_credentials_are_told_at_once(
    server: Server,
    job: Callable[[str], Path],
    latentscale: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    ended = latentscale("run", job(f"s3://{server.bucket}/jobs"))
    assert ended.code == 2
    assert last_line(ended.err).endswith(": no credentials; set them in the environment")


IMPATIENT = """
from latentscale_pipeline.storage import objects
from latentscale_pipeline.cli import main
objects.PATIENCE_SECONDS = 1.0
main()
"""


@pytest.mark.full
@pytest.mark.parametrize("cluster", ["{kind: serial}", "{kind: local, workers: 2}"])
def test_a_job_whose_store_stayed_away_is_resumed(
    server: Server, job: Callable[[str], Path], latentscale: Command, tmp_path: Path, cluster: str
) -> None:
    expected = latentscale("run", job(str(tmp_path / "local")), "--json")
    arguments = ("run", str(job(f"s3://{server.bucket}/jobs")), "-o", f"cluster={cluster}")
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: bool(server.objects("/result.json")))
    server.stop()
    _, err = process.communicate(timeout=200)
    assert process.returncode == 3, err
    assert last_line(err).startswith(f"latentscale: s3://{server.bucket}/jobs/store-")
    assert last_line(err).endswith("; run the same command again once this is fixed")
    server.start()
    there = len(server.objects("/result.json"))
    ended = latentscale(*arguments, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert timeless(found) == timeless(json.loads(expected.out))
    assert sum(timing["reason"] == "already done" for timing in found["timings"]) == there >= 1


def wait_until(condition: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < 60
        time.sleep(0.02)
