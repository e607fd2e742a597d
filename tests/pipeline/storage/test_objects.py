"""Whole objects on a disk and in an object store."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from latentscale_pipeline.errors import BadInput, StoreFull, first_line
from latentscale_pipeline.storage import objects
from latentscale_pipeline.storage.objects import REQUESTS, ObjectStore, run_requests
from latentscale_pipeline.storage.urls import strip_credentials, without_credentials
from tests.support.racing import race_to_create


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "disk":
        return ObjectStore(str(tmp_path / "store"))
    return ObjectStore(request.getfixturevalue("s3_url"))


def test_an_object_is_read_as_it_was_written(store: ObjectStore) -> None:
    store.write("a/b.bin", b"first")
    store.write("a/b.bin", b"second")
    assert store.read("a/b.bin") == b"second"
    assert store.sizes("a") == {"a/b.bin": 6}
    assert store.exists("a/b.bin")
    assert not store.exists("a/c.bin")


def test_an_empty_object_is_there(store: ObjectStore) -> None:
    store.write("empty", b"")
    assert store.read("empty") == b""
    assert store.load("empty") == b""
    assert store.write_checked("empty", b"") == "2d06800538d394c2"


def test_reading_an_object_is_one_request(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    store = ObjectStore(s3_url)
    store.write("marker.json", b"{}")

    async def ask(self: object, path: str, **options: object) -> None:
        raise AssertionError(f"{path}: a request for its size")

    monkeypatch.setattr(s3fs.S3FileSystem, "_info", ask)
    assert store.read("marker.json") == b"{}"
    with pytest.raises(FileNotFoundError):
        store.read("other.json")


def test_what_is_not_there_raises_file_not_found(store: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.read("nothing")
    store.remove("nothing")
    store.remove_all("nowhere")
    assert store.keys("nowhere") == []
    assert store.folders("nowhere") == []


def test_keys_sizes_and_folders_list_what_is_there(store: ObjectStore) -> None:
    for key in ("x/2", "x/10", "y/z/1", "top"):
        store.write(key, key.encode())
    assert store.keys() == ["top", "x/10", "x/2", "y/z/1"]
    assert store.sizes("x") == {"x/10": 4, "x/2": 3}
    assert store.folders() == ["x", "y"]
    store.remove_all("x")
    assert store.keys() == ["top", "y/z/1"]


def test_a_removal_goes_on_where_others_write_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, rmdir = ObjectStore(str(tmp_path)), os.rmdir
    store.write("x/1", b"1")
    late = iter([True, False])

    def meet_another_writer(path: str, **options: Any) -> None:
        if next(late, False):
            (tmp_path / "x/2").write_bytes(b"2")
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", meet_another_writer)
    store.remove_all("x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("place", ["disk", "memory", "s3"])
def test_a_removal_takes_a_name_for_no_pattern(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = {"disk": str(tmp_path), "memory": f"memory://{tmp_path.name}"}.get(place)
    root = root or f"{request.getfixturevalue('s3_url')}/patterns"
    [named, matched] = [ObjectStore(f"{root}/{name}/jobs") for name in ("exp[12]", "exp1")]
    for store in (named, matched):
        store.write("stages/a/x.npy", b"x")
    named.remove_all("stages/a")
    assert (named.keys(), matched.keys()) == ([], ["stages/a/x.npy"])


def test_of_sixteen_racers_exactly_one_creates(store: ObjectStore) -> None:
    won = race_to_create(store, "marker", 16)
    assert len(won) == 1
    assert store.read("marker") == f"racer {won[0]}".encode()
    assert store.keys() == ["marker"]


def test_a_key_that_is_taken_is_not_created_again(store: ObjectStore) -> None:
    assert store.create("marker", b"one")
    assert not store.create("marker", b"two")
    assert store.read("marker") == b"one"


def test_a_store_pickles_to_its_address(store: ObjectStore) -> None:
    store.write("k", b"v")
    assert pickle.loads(pickle.dumps(store)).read("k") == b"v"


def test_partial_files_of_killed_writers_are_hidden_and_swept(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    stray = tmp_path / f".x.{'0' * 32}.partial"
    stray.write_bytes(b"half")
    os.utime(stray, (time.time() - 100, time.time() - 100))
    assert store.keys() == []
    store.collect_partial(older_than=200)
    assert stray.exists()
    store.collect_partial(older_than=50)
    assert not stray.exists()


def test_a_created_file_has_its_folder_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that isn't on the disk is lost in a power cut, whatever became of the bytes."""
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if Path(path).is_dir():
            synced.append(os.path.relpath(path, tmp_path))
            assert Path(path, "marker").exists() or Path(path, "key").exists() or path != folder

    if not Path("/proc/self/fd").exists():
        pytest.skip("the system doesn't tell which file a descriptor is")
    folder = str(tmp_path / "s/x/y")
    store = ObjectStore(str(tmp_path / "s"))
    monkeypatch.setattr(os, "fsync", note)
    assert store.create("x/y/marker", b"data")
    assert synced == [".", "s", "s/x", "s/x/y"]
    synced.clear()
    store.write("x/y/key", b"data")
    assert synced == ["s/x/y"]
    synced.clear()
    store.write("x/z/array", b"data", durable=False)
    assert synced == []


def test_a_folder_that_can_not_be_synced_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    store = ObjectStore(str(tmp_path / "s"))
    assert store.create("key", b"data")
    assert store.read("key") == b"data"


def test_a_failed_write_leaves_neither_object_nor_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr("latentscale_pipeline.storage.objects.SHORT_PATIENCE_SECONDS", 0.0)
    store = ObjectStore(str(tmp_path / "s"))
    with pytest.raises(StoreFull, match=r"s/key: the disk is full or over quota; free some space"):
        store.write("key", b"data")
    assert list((tmp_path / "s").iterdir()) == []


def test_what_can_not_be_created_whole_leaves_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without hard links, a lock that is cut short would never be released."""

    def refuse(*paths: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def fill(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("latentscale_pipeline.storage.objects.SHORT_PATIENCE_SECONDS", 0.0)
    store = ObjectStore(str(tmp_path))
    with monkeypatch.context() as context:
        context.setattr("os.link", refuse)
        assert store.create("whole", b"1", durable=False)
        context.setattr("os.fsync", fill)
        with pytest.raises(StoreFull):
            store.create("lock", b"2", durable=False)
    assert store.keys() == ["whole"]


@pytest.mark.parametrize("name", ["a::b", "e::f.npy", "run::v2", "a::b::c", "file::y"])
def test_colons_in_a_path_are_signs_like_any_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (name, str(tmp_path / name / "inner")):
        ObjectStore(url).write("x", url.encode())
    assert (tmp_path / name / "x").read_bytes() == name.encode()
    assert (tmp_path / name / "inner" / "x").exists()
    assert sorted(ObjectStore(str(tmp_path)).keys()) == [f"{name}/inner/x", f"{name}/x"]


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("url", ["{folder}", "memory://requests"])
def test_requests_wait_together_where_answers_take_time(
    url: str, slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not slow:  # on a busy machine anything may take long
        monkeypatch.setattr(objects, "SLOW_ANSWER", 60.0)
    store = ObjectStore(url.format(folder=tmp_path))
    together = threading.Barrier(REQUESTS - 1)

    def request(item: int) -> tuple[int, int]:
        if slow and not item:
            time.sleep(0.01)  # the first answer, by which a local store is judged
        elif slow and item < REQUESTS:
            together.wait(10)  # of fewer at once, this would never end
        return item, threading.get_ident()

    answers = run_requests(store, request, range(100))
    assert [item for item, _ in answers] == list(range(100))
    mine = {thread for _, thread in answers} == {threading.get_ident()}
    assert mine == (store.is_local and not slow)


def test_of_failed_requests_the_first_is_told(store: ObjectStore) -> None:
    def request(item: int) -> int:
        if item in (3, 7):
            raise ValueError(f"request {item}")
        return item

    with pytest.raises(ValueError, match="request 3"):
        run_requests(store, request, range(10))


def test_an_unknown_protocol_is_one_line() -> None:
    with pytest.raises(BadInput, match="nope://x: can't open this kind of URL"):
        ObjectStore("nope://x")


@pytest.mark.parametrize(
    ("url", "stripped"),
    [
        ("https://me:secret@host:8080/a/b?token=1#x", "https://host:8080/a/b"),
        ("s3://bucket/key", "s3://bucket/key"),
        ("/plain/path?not#query", "/plain/path?not#query"),
        ("s3://bucket/a@b/key", "s3://bucket/a@b/key"),
        ("s3://bucket/C#1?.zarr", "s3://bucket/C#1?.zarr"),
        ("s3://me:se#cret@bucket/C#1", "s3://bucket/C#1"),
        ("s3://AKIA:123#SECRET@b/k", "s3://b/k"),
        ("ftp://us#er:SECRET@host/p", "ftp://host/p"),
        ("s3://b/k#v?X-Amz-Signature=SECRET", "s3://b/k"),
        ("HTTPS://h/p?SECRET", "https://h/p"),
        ("webdav://h/p?SECRET", "webdav://h/p"),
        ("az://container/blob?sv=1&sig=secret#x", "az://container/blob"),
        ("simplecache::https://host/a?b#c", "simplecache::https://host/a"),
        ("simplecache::http://me:secret@host/a.npy", "simplecache::http://host/a.npy"),
        ("zip://a.npy::s3://me:secret@bucket/x.zip", "zip://a.npy::s3://bucket/x.zip"),
        ("sftp://me:pass/word@host/x", "sftp://host/x"),
        ("hdfs://namenode:8020/data/c@v2.zarr", "hdfs://namenode:8020/data/c@v2.zarr"),
    ],
)
def test_credentials_are_stripped(url: str, stripped: str) -> None:
    assert strip_credentials(url) == stripped


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("storage_options.s3.secret=TOP", "storage_options.s3.secret=…"),
        ("-ojob.storage_options.s3.secret=TOP", "-ojob.storage_options.s3.secret=…"),
        ("job={storage_options: {s3: {secret: TOP}}}", "job=…"),
        ("name=a", "name=a"),
        ("storage_options.nope: unknown, as in a=b", "storage_options.nope: unknown, as in a=b"),
    ],
)
def test_options_of_stores_are_not_shown(argument: str, shown: str) -> None:
    assert without_credentials(argument) == shown


def test_credentials_are_stripped_before_a_line_is_cut() -> None:
    told = f"\n{'x' * 275} s3://AKIA:SECRET@bucket/key\nand more"
    line = first_line(ValueError(told), without_credentials)
    assert line == f"{'x' * 275} s3://bucket/key"
    assert len(first_line(ValueError("x" * 400))) == 300
