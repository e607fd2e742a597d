"""An existing scheduler: real processes of Dask's own commands, under TLS, and who isn't let in."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import distributed
import fsspec
import numpy as np
import pytest
from distributed import Client
from distributed.security import Security

from latentscale_pipeline.config.cluster import Address, TlsFiles
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.executors.dask import address
from latentscale_pipeline.executors.dask.address import existing_scheduler
from latentscale_pipeline.executors.dask.certificates import certificates, security_of
from latentscale_pipeline.executors.dask.readiness import Job, NotReady, check_versions
from tests.conftest import Ended
from tests.pipeline.engine.test_loop import Events, make_work
from tests.support import toy_stages as toy
from tests.support.dask_processes import GIB, Place, Scheduler, scheduler
from tests.support.jobs import results_of, timeless
from tests.support.waiting import wait_for

Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def under_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with scheduler(
        tmp_path_factory.mktemp("tls") / "shared", tls=True, workers=[Place(), Place()]
    ) as found:
        yield found


def job(folder: Path, key: str = "plan.json") -> Job:
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text("{}")
    return Job("job", None, {"the job's folder": (str(folder), key)}, 200 << 20, 1 << 20)


def test_a_job_on_an_existing_scheduler_gives_the_serial_numbers(
    under_tls: Scheduler, tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(300, 8)).astype("f4"))
    monkeypatch.chdir(tmp_path)  # the workers are elsewhere
    for name, cluster in (
        ("serial", {"kind": "serial"}),
        ("theirs", under_tls.settings(workers=2).model_dump()),
    ):
        config = {
            "name": "job",
            "corpus": "rows.npy",
            "output": name,
            "measures": {"vendi": {"kernels": ["cosine", "rbf"]}},
            "sampling": {"method": "none"},
            "cluster": cluster,
        }
        Path(f"{name}.yaml").write_text(json.dumps(config))
        ended = latentscale("run", f"{name}.yaml", "--quiet")
        assert ended.code == 0, ended.err
    assert timeless(results_of(tmp_path / "theirs")) == timeless(results_of(tmp_path / "serial"))
    with Client(
        under_tls.address, security=security_of(under_tls.tls) if under_tls.tls else None
    ) as c:
        assert len(c.nthreads()) == 2, "the scheduler and its workers are left as they were"


def test_who_has_no_certificate_is_refused(under_tls: Scheduler, tmp_path: Path) -> None:
    with certificates("other", None, str(tmp_path / "other")) as other:
        settings = under_tls.settings(tls=other)
        with (
            pytest.raises(Incomplete, match="doesn't respond, or refuses the certificates"),
            existing_scheduler(settings, job(tmp_path), print),
        ):
            pass
    unencrypted = under_tls.settings(address=under_tls.address.replace("tls:", "tcp:"), tls=None)
    said: list[str] = []
    with pytest.raises(Incomplete), existing_scheduler(unencrypted, job(tmp_path), said.append):
        pass
    assert "has no TLS" in said[0]
    without = under_tls.settings(tls=None)
    with (
        pytest.raises(BadInput, match="no certificates; name them"),
        existing_scheduler(without, job(tmp_path), print),
    ):
        pass


def test_workers_that_are_not_fit_are_named_before_any_work(
    under_tls: Scheduler, tmp_path: Path
) -> None:
    for wanted, message in (
        (job(tmp_path, "absent.json"), "the job's folder can't be seen from there"),
        (
            Job("job", None, {}, 200 << 20, 8 * GIB),
            "the largest task needs 8.2GiB; start workers with more",
        ),
    ):
        with (
            pytest.raises(NotReady, match=rf"worker tls://\S+ on .*: .*{re.escape(message)}"),
            existing_scheduler(under_tls.settings(), wanted, print),
        ):
            pass
    few = under_tls.settings(workers=5, patience=1)
    with (
        pytest.raises(NotReady, match="only 2 of 5 workers came within"),
        existing_scheduler(few, job(tmp_path), print),
    ):
        pass


def test_versions_that_differ_are_named() -> None:
    mine = {"python": "3.11.2", "latentscale": "0.1.0", "numpy": "2.1"}
    installed = dict.fromkeys(
        ("scipy", "numba", "pynndescent", "threadpoolctl", "zarr", "fsspec", "xxhash"), "1"
    ) | dict.fromkeys(("dask", "distributed", "cloudpickle"), "2")

    def versions(**theirs: str | None) -> dict[str, object]:
        return {
            "client": {"packages": mine | installed},
            "workers": {"tls://w:1": {"packages": mine | installed | theirs}},
        }

    check_versions(versions(python="3.11.9"))
    for theirs, message in (
        ({"numpy": "2.2"}, "worker tls://w:1: numpy is 2.2 there and 2.1 here"),
        ({"latentscale": None}, "worker tls://w:1: latentscale isn't installed there"),
        ({"python": "3.12.2"}, "python is 3.12 there and 3.11 here"),
    ):
        with pytest.raises(NotReady, match=message):
            check_versions(versions(**theirs))


@contextmanager
def in_this_process(
    made: TlsFiles | None,
) -> Iterator[tuple[distributed.LocalCluster, Address]]:
    """A scheduler with one worker, threads of this process."""
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://" if made is None else "tls://",
        security=None if made is None else security_of(made),
        dashboard_address="127.0.0.1:0",
        silence_logs="CRITICAL",
    ) as cluster:
        settings = Scheduler(made, cluster.scheduler_address).settings(patience=30)
        yield cluster, settings


def test_a_plain_scheduler_is_warned_of_and_gets_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    wanted = job(tmp_path / "job")
    with in_this_process(None) as (_, settings):
        work = make_work(tmp_path / "job", toy.chain())
        run_stages(
            work,
            inspect_stages(work),
            lambda: existing_scheduler(settings, wanted, said.append),
            "run",
            Events(),
        )
        assert len(said) == 1
        assert "has no TLS" in said[0]
        monkeypatch.setitem(fsspec.config.conf, "s3", {"secret": "hush"})
        with (
            pytest.raises(BadInput, match="storage options, which may be secret") as refused,
            existing_scheduler(settings, wanted, said.append),
        ):
            pass
        assert "hush" not in str(refused.value)


def test_a_port_that_is_no_scheduler_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "CONNECTING_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with (
            pytest.raises(Incomplete, match="speaks Dask's protocol answered within 1 s"),
            existing_scheduler(Address(kind="address", address=place), job(tmp_path), print),
        ):
            pass


def test_tasks_wait_for_workers_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = job(tmp_path / "job")
    with (
        certificates("test", None, str(tmp_path / "shared")) as made,
        in_this_process(made) as (cluster, settings),
        existing_scheduler(settings, wanted, print) as executor,
    ):
        cluster.scale(0)
        wait_for(lambda: not executor.client.nthreads())
        work = make_work(tmp_path / "job", toy.chain())
        threading.Timer(3.0, lambda: cluster.scale(1)).start()
        run_stages(
            work, inspect_stages(work), lambda: contextlib.nullcontext(executor), "run", Events()
        )
        assert all(stage_state.done for stage_state in inspect_stages(work))
        cluster.scale(0)
        wait_for(lambda: not executor.client.nthreads())
        monkeypatch.setattr(executor, "_patience", 1.0)
        with pytest.raises(Incomplete, match="there has been no worker for"):
            wait_for(lambda: executor.next_ended(1.0) is not None)


def test_nothing_secret_is_in_the_folder_of_another(tmp_path: Path) -> None:
    base = tmp_path / "shared"
    with certificates("job", None, str(base)) as made:
        assert base.stat().st_mode & 0o777 == 0o700
        left = Path(made.key).parent
        assert left.stat().st_mode & 0o777 == 0o700
        for path in (made.cert, made.key):
            assert Path(path).stat().st_mode & 0o777 == 0o600
        assert isinstance(security_of(made), Security)
    assert not left.exists()
    (base / "job.killed").mkdir()
    with certificates("job", None, str(base)):
        assert not (base / "job.killed").exists(), "what a killed run has left is removed"
    for place, job_folder, message in (
        (str(tmp_path / "job" / "keys"), tmp_path / "job", "is in the job's folder"),
        (str(tmp_path / "a b"), None, "special characters in its name"),
        (str(tmp_path / "$(id)"), None, "special characters in its name"),
    ):
        with pytest.raises(BadInput, match=message), certificates("job", job_folder, place):
            pass
    base.chmod(0o777)
    with (
        pytest.raises(BadInput, match="others own it or may write"),
        certificates("j", None, str(base)),
    ):
        pass
