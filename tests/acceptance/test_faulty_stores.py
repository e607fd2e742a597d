"""Object stores that fail at random; `make test-full` does it to a real server, and kills it."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.corpus import verify
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import StoreFailed
from latentscale_pipeline.storage import objects
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.support.faulty_store import FAULTS, FaultyStore, faulty_store
from tests.support.jobs import timeless
from tests.support.racing import race_to_create

Command = Callable[..., Ended]


@pytest.fixture
def reach(
    s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[FaultyStore], None]]:
    """Put a proxy between this process and its S3 server."""
    from s3fs import S3FileSystem

    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(objects, "FIRST_DELAY", 0.01)

    def point(proxy: FaultyStore) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        S3FileSystem.clear_instance_cache()

    yield point
    S3FileSystem.clear_instance_cache()


@pytest.fixture
def server(s3_bucket: str) -> str:
    """The address of the S3 server."""
    return os.environ["AWS_ENDPOINT_URL"]


NOISY = [fault for fault in FAULTS if not fault.startswith("lost")]


@pytest.mark.parametrize(
    "faults", [{"lost_write": 0.4}, {"lost_answer": 0.4}, dict.fromkeys(NOISY, 0.05)]
)
def test_objects_survive_faults(
    server: str, s3_url: str, reach: Callable[[FaultyStore], None], faults: dict[str, float]
) -> None:
    with faulty_store(server, 11, faults) as proxy:
        reach(proxy)
        store = ObjectStore(s3_url)
        for number in range(4):
            data = bytes([number]) * 5000
            store.write(f"a/{number}", data)
            assert store.read(f"a/{number}") == data
            assert store.create(f"b/{number}", data)
            assert not store.create(f"b/{number}", b"another")
            assert store.exists(f"b/{number}")
            assert not store.exists(f"c/{number}")
        assert store.sizes("b") == {f"b/{number}": 5000 for number in range(4)}
        store.remove("a/0")
        assert store.keys("a") == [f"a/{number}" for number in range(1, 4)]
        store.remove_all("b")
        assert store.folders() == ["a"]
        assert sum(proxy.seen[fault] for fault in faults) >= 5


def test_of_racers_at_a_faulty_store_exactly_one_creates(
    server: str, s3_url: str, reach: Callable[[FaultyStore], None]
) -> None:
    with faulty_store(server, 2, dict.fromkeys(FAULTS, 0.08)) as proxy:
        reach(proxy)
        store = ObjectStore(s3_url)
        won = race_to_create(store, "marker", 12)
        assert len(won) == 1
        assert store.read("marker") == f"racer {won[0]}".encode()


def test_a_store_that_loses_all_it_acknowledges_is_told(
    server: str, s3_url: str, reach: Callable[[FaultyStore], None]
) -> None:
    with faulty_store(server, 3, {"lost_write": 1.0}) as proxy:
        reach(proxy)
        store = ObjectStore(s3_url)
        for store_it in (store.write, store.write_checked, store.create):
            with pytest.raises(StoreFailed, match="what was read back differs from what was"):
                store_it("key", b"data")


def test_a_file_at_a_faulty_store_is_read_from_any_place(
    server: str,
    s3_url: str,
    reach: Callable[[FaultyStore], None],
) -> None:
    data = np.random.default_rng(5).bytes(40_000)
    ObjectStore(s3_url).write("file", data)
    with faulty_store(server, 5, dict.fromkeys(NOISY, 0.06)) as proxy:
        reach(proxy)
        with ObjectStore(s3_url).open("file", read_ahead=3000) as file:
            assert file.read(10) == data[:10]
            assert file.seek(-100, os.SEEK_END) == 39_900
            assert file.read() == data[-100:]
            file.seek(5)
            assert file.read(20_000) + file.read() == data[5:]
            assert file.read(1) == b""
        assert ObjectStore(f"{s3_url}/file").read_range("", 0, 0) == b""


def test_ingest_and_a_job_at_a_faulty_store_give_the_same(
    server: str,
    s3_url: str,
    reach: Callable[[FaultyStore], None],
    latentscale: Command,
    tmp_path: Path,
) -> None:
    rows = np.random.default_rng(9).normal(size=(4000, 12)).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    whole = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "corpus.zarr"), shard_bytes=8192)

    def job(corpus: str, output: str) -> Path:
        config = tmp_path / "job.yaml"
        fields = {
            "name": "faulty",
            "corpus": corpus,
            "output": output,
            "sampling": {"method": "none"},
            "measures": {"vendi": {"kernels": ["cosine"]}},
            "cluster": {"kind": "serial"},
        }
        config.write_text(json.dumps(fields))
        return config

    local = latentscale("run", job(whole.url, str(tmp_path / "jobs")), "--json")
    ObjectStore(s3_url).write("rows.npy", (tmp_path / "rows.npy").read_bytes())
    with faulty_store(server, 4, dict.fromkeys(FAULTS, 0.03)) as proxy:
        reach(proxy)
        found = ingest([f"{s3_url}/rows.npy"], f"{s3_url}/corpus.zarr", shard_bytes=8192)
        assert found.shard_count == 4
        assert found.fingerprint == whole.fingerprint
        assert verify(found).problems == ()
        remote = latentscale("run", job(f"{s3_url}/corpus.zarr", f"{s3_url}/jobs"), "--json")
        assert remote.code == 0, remote.err
        assert sum(proxy.seen[fault] for fault in FAULTS) >= 10
    assert timeless(json.loads(remote.out)) == timeless(json.loads(local.out))
