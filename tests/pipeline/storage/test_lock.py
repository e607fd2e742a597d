"""The job lock: one holder, immediate succession on this host, patience with others."""

import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.storage import lock
from latentscale_pipeline.storage.lock import Holder, Lock, hold_lock
from latentscale_pipeline.storage.objects import ObjectStore

HOLD = """
import sys, time
from latentscale_pipeline.storage.lock import hold_lock
from latentscale_pipeline.storage.objects import ObjectStore
with hold_lock(ObjectStore(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "disk":
        return ObjectStore(str(tmp_path / "job"))
    return ObjectStore(f"{request.getfixturevalue('s3_url')}/job")


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[tuple[ObjectStore, "subprocess.Popen[str]"]]:
    store = ObjectStore(str(tmp_path / "job"))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, store.url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield store, process
    process.kill()
    process.wait()
    process.stdout.close()


def write_holder(store: ObjectStore, holder: Holder, beaten: float | None) -> None:
    store.create("lock/000001.json", json.dumps(asdict(holder)).encode())
    if beaten is not None:
        store.write(f"heartbeats/{holder.attempt}.json", json.dumps({"time": beaten}).encode())


def test_it_is_free_again_afterwards(store: ObjectStore) -> None:
    with hold_lock(store) as first:
        pass
    with hold_lock(store) as second:
        assert second.attempt != first.attempt
    assert store.keys("heartbeats") == []


def test_it_is_released_when_the_run_fails(store: ObjectStore) -> None:
    with pytest.raises(RuntimeError), hold_lock(store):
        raise RuntimeError
    with hold_lock(store):
        pass


def test_a_living_holder_is_named(
    other_process: tuple[ObjectStore, "subprocess.Popen[str]"],
) -> None:
    store, process = other_process
    with pytest.raises(BadInput) as caught, hold_lock(store):
        pass
    message = str(caught.value)
    assert f"process {process.pid} on {socket.gethostname()}" in message
    assert "--wait" in message
    assert "--take-over" in message


def test_a_killed_holder_is_succeeded_at_once(
    other_process: tuple[ObjectStore, "subprocess.Popen[str]"],
) -> None:
    store, process = other_process
    process.kill()
    begun = time.monotonic()
    # The killed process isn't collected by its parent yet: a zombie counts as gone.
    with hold_lock(store):
        assert time.monotonic() - begun < 0.1 * lock.STALE_SECONDS


def write_in_turns(place: str, seed: int, until: float) -> None:
    """Hold a lock again and again beside other processes, and die now and then."""
    store, draw = ObjectStore(f"{place}/lock"), random.Random(seed)
    inside = Path(place, "inside")
    while time.time() < until:
        with hold_lock(
            store, wait=True, leave_nothing=True, grace_seconds=0.02, waiting_seconds=0.02
        ):
            try:
                inside.touch(exist_ok=False)
            except FileExistsError:
                Path(place, "overlap").touch()
            time.sleep(0.01)
            inside.unlink(missing_ok=True)
            if draw.random() < 0.2:
                os.kill(os.getpid(), signal.SIGKILL)


def test_a_lock_that_leaves_nothing_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    until, context = time.time() + 3.0, multiprocessing.get_context("fork")
    running: list[Any] = []
    for seed in itertools.count():
        running = [process for process in running if process.is_alive()]
        if time.time() > until:
            break
        while len(running) < 5:
            running.append(context.Process(target=write_in_turns, args=(tmp_path, seed, until)))
            running[-1].start()
        time.sleep(0.02)
    for process in running:
        process.join()
    assert not Path(tmp_path, "overlap").exists()
    with hold_lock(ObjectStore(f"{tmp_path}/lock"), leave_nothing=True):
        pass
    assert not [path for path in Path(tmp_path, "lock/lock").iterdir() if path.is_file()]


def test_a_lock_that_another_process_removes_is_taken_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, calls = ObjectStore.create, 0

    def removed_meanwhile(where: ObjectStore, key: str, data: bytes, **options: Any) -> bool:
        nonlocal calls
        calls += key.startswith("lock/")
        if calls == 2:
            where.remove(key)
        return create(where, key, data, **options)

    monkeypatch.setattr(ObjectStore, "create", removed_meanwhile)
    with hold_lock(store, leave_nothing=True, grace_seconds=0.02) as holder:
        assert lock.read_lock(store) == Lock(1, holder, released=False)
    assert store.keys() == []


@pytest.mark.parametrize("lost", [False, True], ids=["stalled", "answer lost"])
def test_a_holder_that_lost_its_lock_removes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    store = ObjectStore(str(tmp_path / "corpus"))
    other = replace(Holder.here(), attempt="other")
    stalled = hold_lock(store, leave_nothing=True)
    with stalled:
        # Meanwhile its lock was taken over and removed, and another process has the same number.
        if not lost:
            store.remove("lock/000001.json")
            store.create("lock/000001.json", json.dumps(asdict(other)).encode())
        else:
            remove = ObjectStore.remove

            def unanswered(where: ObjectStore, key: str) -> None:
                remove(where, key)
                if key == "lock/000001.json":
                    store.create(key, json.dumps(asdict(other)).encode())
                    raise Incomplete("no answer")

            monkeypatch.setattr(ObjectStore, "remove", unanswered)
    assert lock.read_lock(store) == Lock(1, other, released=False)


def test_take_over_succeeds_a_living_holder(
    other_process: tuple[ObjectStore, "subprocess.Popen[str]"],
) -> None:
    store, _ = other_process
    with hold_lock(store, take_over=True), pytest.raises(BadInput), hold_lock(store):
        pass


def test_waiting_ends_with_the_holder(
    other_process: tuple[ObjectStore, "subprocess.Popen[str]"],
) -> None:
    store, process = other_process
    with ExitStack() as held, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: held.enter_context(hold_lock(store, wait=True)))
        time.sleep(0.3)
        assert not waiting.done()
        process.kill()
        process.wait()
        assert waiting.result(timeout=10).pid == os.getpid()


@pytest.fixture
def true_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has the same time as the machines: it got heartbeats when they say."""

    def written_at(store: ObjectStore, key: str) -> float:
        return float(json.loads(store.read(key))["time"])

    monkeypatch.setattr(ObjectStore, "written_at", written_at)


def test_a_slow_clock_elsewhere_frees_no_lock(store: ObjectStore) -> None:
    elsewhere = replace(Holder.here(), host="elsewhere", pid_space="boot/pid:[1]")
    write_holder(store, elsewhere, beaten=time.time() - 5 * lock.STALE_SECONDS)
    with pytest.raises(BadInput, match="on elsewhere"), hold_lock(store):
        pass
    assert store.keys("heartbeats") == [f"heartbeats/{elsewhere.attempt}.json"]


@pytest.mark.usefixtures("true_clocks")
def test_another_host_counts_by_its_heartbeat(store: ObjectStore) -> None:
    elsewhere = replace(Holder.here(), host="elsewhere", pid_space="boot/pid:[1]")
    write_holder(store, elsewhere, beaten=time.time() - 50)
    with pytest.raises(BadInput, match="on elsewhere"), hold_lock(store):
        pass
    write_holder(store, elsewhere, beaten=time.time() - 61)
    with hold_lock(store):
        pass


@pytest.mark.usefixtures("true_clocks")
def test_another_host_is_waited_for_until_its_heartbeat_is_old(store: ObjectStore) -> None:
    elsewhere = replace(Holder.here(), host="elsewhere", pid_space="boot/pid:[1]", pid=77)
    write_holder(store, elsewhere, beaten=time.time())
    said: list[str] = []

    def echo(line: str) -> None:
        said.append(line)
        write_holder(store, elsewhere, beaten=time.time() - lock.STALE_SECONDS)

    often = {"grace_seconds": 0.1, "waiting_seconds": 0.1}
    with hold_lock(store, wait=True, echo=echo, **often) as holder:
        assert lock.read_lock(store) == Lock(2, holder, released=False)
    assert said == ["waiting for process 77 on elsewhere, which runs this job"]
    assert lock.read_holders(store) == [elsewhere, holder]


def test_another_host_with_a_fresh_heartbeat_can_be_taken_over(store: ObjectStore) -> None:
    elsewhere = replace(Holder.here(), host="elsewhere", pid_space="boot/pid:[1]")
    write_holder(store, elsewhere, beaten=time.time())
    with hold_lock(store, take_over=True) as holder:
        assert lock.read_lock(store).holder == holder
    assert lock.read_lock(store).released


def test_another_host_without_a_heartbeat_is_dead(store: ObjectStore) -> None:
    elsewhere = replace(Holder.here(), host="elsewhere", pid_space="boot/pid:[1]")
    write_holder(store, elsewhere, beaten=None)
    with hold_lock(store):
        pass


@pytest.mark.parametrize("attempt", ["../../elsewhere", "", 3])
def test_a_lock_whose_attempt_leads_elsewhere_is_nobodys(
    store: ObjectStore, attempt: object
) -> None:
    hostile = {**asdict(Holder.here()), "attempt": attempt}
    store.write("lock/000001.json", json.dumps(hostile).encode())
    assert lock.read_lock(store).holder == lock.UNKNOWN


def test_a_store_that_overwrites_is_refused(tmp_path: Path) -> None:
    class Overwriting(ObjectStore):
        def create(self, key: str, data: bytes, *, durable: bool = True) -> bool:
            self.write(key, data)
            return True

    with pytest.raises(BadInput, match="overwrites objects"), hold_lock(Overwriting(str(tmp_path))):
        pass


def test_a_container_of_the_same_name_and_pid_is_another_host(store: ObjectStore) -> None:
    """All containers may be called ``vm``, and a driver is often process 1 of its own."""
    started = Holder.here().process_start
    elsewhere = replace(Holder.here(), pid_space="boot/pid:[1]", process_start=started - 100)
    write_holder(store, elsewhere, beaten=time.time())
    with pytest.raises(BadInput, match="is running this job"), hold_lock(store):
        pass


def test_a_host_is_the_same_under_another_name(store: ObjectStore) -> None:
    gone = replace(Holder.here(), host="renamed", process_start=1.0, start_ticks=1)
    if not gone.pid_space:
        pytest.skip("the system doesn't tell what process ids count within")
    write_holder(store, gone, beaten=time.time())
    with hold_lock(store):
        pass


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_a_lock_of_an_earlier_version_goes_by_the_host_name(store: ObjectStore, host: str) -> None:
    fields = asdict(replace(Holder.here(), host=host, process_start=1.0))
    del fields["pid_space"], fields["start_ticks"]
    store.create("lock/000001.json", json.dumps(fields).encode())
    holder = lock.read_lock(store).holder
    assert holder is not None
    store.write(f"heartbeats/{holder.attempt}.json", json.dumps({"time": time.time()}).encode())
    assert lock.check_liveness(store, holder).alive is (host == "elsewhere")


def test_without_a_pid_space_the_host_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder.here()
    monkeypatch.setattr(lock, "pid_space", lambda: "")
    assert holder.is_here()
    assert not replace(holder, host="elsewhere").is_here()


def test_a_reused_pid_is_another_process(store: ObjectStore) -> None:
    earlier = replace(Holder.here(), process_start=1.0, start_ticks=1)
    write_holder(store, earlier, beaten=time.time())
    with hold_lock(store):
        pass


def test_of_sixteen_contenders_one_holds(store: ObjectStore) -> None:
    write_holder(store, replace(Holder.here(), process_start=1.0, start_ticks=1), beaten=None)

    with ExitStack() as held:

        def contend(_: int) -> bool:
            try:
                held.enter_context(hold_lock(store))
            except BadInput:
                return False
            return True

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(contend, range(16))) == 1


def test_a_lock_that_can_not_be_read_is_no_free_lock(store: ObjectStore) -> None:
    store.write("lock/000001.json", b"{")
    with pytest.raises(BadInput, match="an unknown host"), hold_lock(store):
        pass
    with hold_lock(store, take_over=True):
        pass


def test_foreign_objects_beside_the_locks_are_ignored(store: ObjectStore) -> None:
    for name in ("notes.json", "1.json", "000001.json.bak"):
        store.write(f"lock/{name}", b"x")
    store.create("lock/1000000.json", json.dumps(asdict(Holder.here())).encode())
    store.create("lock/1000000.released", b"")
    with hold_lock(store):
        assert "lock/1000001.json" in store.keys("lock")


def test_a_clock_that_is_set_frees_no_lock(
    other_process: tuple[ObjectStore, "subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = other_process
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: created(self) + 5.0)
    with pytest.raises(BadInput, match="is running this job"), hold_lock(store):
        pass


def test_a_dead_holder_whose_clock_was_ahead_is_waited_for_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "STALE_SECONDS", 1.0)
    elsewhere = replace(Holder.here(), host="elsewhere", pid_space="boot/pid:[1]", attempt="other")
    write_holder(store, elsewhere, beaten=time.time() + 7200.0)
    begun = time.monotonic()
    with hold_lock(store, wait=True, grace_seconds=0.1, waiting_seconds=0.1) as holder:
        assert 1.0 <= time.monotonic() - begun < 30
        assert lock.read_holders(store) == [elsewhere, holder]


def test_a_lock_that_is_listed_late_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, listed = ObjectStore(str(tmp_path / "job")), ObjectStore.keys
    created: list[float] = []

    def late(self: ObjectStore, prefix: str = "") -> list[str]:
        found = listed(self, prefix)
        if not created and found and prefix == "lock":
            created.append(time.monotonic())
        fresh = created and time.monotonic() - created[0] < 0.05
        return [] if fresh and prefix == "lock" else found

    monkeypatch.setattr(ObjectStore, "keys", late)
    with hold_lock(store, grace_seconds=0.2) as holder:
        assert lock.read_lock(store) == Lock(1, holder, released=False)
