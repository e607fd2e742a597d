"""A real Slurm: a job is submitted, watched and withdrawn, and gives the serial numbers."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Ended
from tests.support.jobs import results_of, timeless
from tests.support.slurm import Slurm, cluster_for_tests, why_not
from tests.support.waiting import wait_for

Command = Callable[..., Ended]
ODD = "odd $(touch pwned); 'x' \"y\" %j & #"
"""A name for a folder that no shell and no script should ever see without quotes."""

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no Slurm here: {why_not()}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with cluster_for_tests() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a job's data; Slurm's commands find the cluster."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(300, 8)).astype("f4"))
    return tmp_path


def write(place: Path, name: str, output: str, cluster: dict[str, object]) -> Path:
    config = place / f"{name}.yaml"
    config.write_text(
        json.dumps(
            {
                "name": "a job; $(touch pwned)",
                "corpus": str(place / "rows.npy"),
                "output": str(place / output),
                "measures": {"vendi": {"kernels": ["cosine"]}},
                "cluster": cluster,
                "driver": {"memory_limit": "1GiB", "walltime": "00:20:00"},
            }
        )
    )
    return config


def workers(place: Path, **fields: object) -> dict[str, object]:
    shared = str(place / "shared")
    known = {"kind": "slurm", "workers": 2, "memory_limit": "1GiB", "shared_folder": shared}
    return {**known, "environment": {"ODD": ODD}, "walltime": "00:30:00", **fields}


def test_a_submitted_job_gives_the_serial_numbers(
    place: Path, cluster: Slurm, latentscale: Command
) -> None:
    assert latentscale("run", write(place, "serial", "serial", {"kind": "serial"})).code == 0
    config = write(place, "submitted", ODD, workers(place))
    shown = latentscale("submit", config, "--dry-run", "--quiet")
    assert shown.code == 0, shown.err
    assert not list((place / ODD).glob("*/plan.json")), "nothing is written"
    submitted = latentscale("submit", config, "--json", "--quiet")
    assert submitted.code == 0, submitted.err
    told = json.loads(submitted.out)
    job = Path(told["job"])
    script = cluster.call("scontrol", "write", "batch_script", told["id"], "-")
    printed = shown.out.partition("<<'END'\n")[2].partition("\nEND\n")[0].strip()
    # Before the corpus is ingested, the hash at the end of the job's name isn't known.
    assert printed.replace("xxxxxxxx", job.name.rpartition("-")[2]) == script.strip()
    again = latentscale("submit", config, "--quiet")
    assert again.code == 2
    assert f"its driver is already submitted as slurm job {told['id']}" in again.err
    seen: set[str] = set()

    def ended() -> bool:
        status = json.loads(latentscale("status", job, "--json").out)
        seen.add(status["state"])
        return status["state"] not in {"queued", "running"}

    wait_for(ended, seconds=600)
    log = (job / "driver" / f"{told['id']}.log").read_text()
    assert (job / "results.json").exists(), log
    assert "running" in seen
    assert timeless(results_of(place / ODD)) == timeless(results_of(place / "serial"))
    wait_for(lambda: not cluster.jobs(), seconds=30)
    assert not list((place / "shared").iterdir()), "the certificates are gone"
    assert not list(place.rglob("pwned"))
    for path in place.rglob("*"):
        assert not path.is_file() or b"PRIVATE KEY" not in path.read_bytes(), path
    assert "nothing had to be submitted" in latentscale("submit", config, "--quiet").out


def test_a_driver_that_waits_is_withdrawn(
    place: Path, cluster: Slurm, latentscale: Command
) -> None:
    config = write(place, "waiting", "waiting", workers(place))
    told = latentscale("submit", config, "--quiet", "-o", "driver.directives=[--hold]")
    assert told.code == 0, told.err
    job = told.out.splitlines()[0].removeprefix("job: ")
    status = json.loads(latentscale("status", job, "--json").out)
    assert status["state"] == "queued"
    assert re.fullmatch(r"slurm job \d+, pending", status["reason"])
    cancelled = latentscale("cancel", job)
    assert cancelled.code == 0, cancelled.err
    assert "was withdrawn before it started" in cancelled.out
    assert json.loads(latentscale("status", job, "--json").out)["state"] == "planned"
    assert not cluster.jobs()


def test_a_driver_without_what_it_needs_is_not_handed_over(
    place: Path, cluster: Slurm, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(place, "bare", "bare", workers(place))
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    ended = latentscale("submit", config, "--quiet")
    assert ended.code == 2
    assert "dask-jobqueue, which isn't installed; pip install 'latentscale[hpc]'" in ended.err
    assert not cluster.jobs()


def test_a_machine_of_no_cluster(
    place: Path, latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(place, "outside", "outside", workers(place))
    program = tmp_path / "sbatch"
    program.write_text(
        "#!/bin/sh\necho 'fatal: Could not establish a configuration source' >&2\nexit 1"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ended = latentscale("submit", config, "--quiet")
    assert ended.code == 2
    assert "Slurm can't be reached from here; submit on a login node (fatal: Could not" in ended.err


def test_refusals(place: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    local = latentscale("submit", write(place, "local", "local", {"kind": "local"}), "--quiet")
    assert local.code == 2
    assert "cluster.kind is local, which takes no drivers; set driver.kind" in local.err
    config = write(place, "refused", "refused", workers(place))
    partition = latentscale("submit", config, "--quiet", "-o", "driver.queue=absent")
    assert partition.code == 2
    assert "sbatch rejected the driver: sbatch: error: invalid partition" in partition.err
    injected = latentscale("submit", config, "-o", 'driver.directives=["--x\\nrm -rf /"]')
    assert injected.code == 2
    assert "driver.directives.0: it must be a single line" in injected.err
    for key, value in (("queue", '"main; id"'), ("account", '"$(id)"'), ("walltime", "tomorrow")):
        ended = latentscale("submit", config, "-o", f"cluster.{key}={value}")
        assert ended.code == 2
        assert f"cluster.{key}" in ended.err
    monkeypatch.setenv("PATH", os.path.dirname(os.path.realpath("/bin/sh")) + "/absent")
    missing = latentscale("submit", config, "--quiet")
    assert missing.code == 2
    assert "sbatch isn't installed here" in missing.err
