"""The recipes in ``workflows/`` as their real schedulers run them: cron, Slurm, Prefect.

Each is skipped, with the reason, where its scheduler isn't installed. ``make test-full`` installs
them, Prefect in an environment of its own.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.recipes import (
    CLUSTERS,
    LATENTSCALE,
    RECIPES,
    corpus,
    lost_clusters,
    make_place,
    registered,
    wait_for,
)
from tests.slurm import Slurm, slurm, why_not

pytestmark = pytest.mark.full

PATIENCE = 300.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make_place(tmp_path)


@contextmanager
def running(command: list[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon for the time of a ``with`` block; it and all it started are ended after it."""
    with log.open("w") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, start_new_session=True, **options
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


# --- cron -------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("cron") is None, reason="cron isn't installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write to /etc/cron.d")
def test_cron_fires_the_recipe(place: Path) -> None:
    table = Path("/etc/cron.d/latentscale-nightly-test")
    text = (RECIPES / "nightly.cron").read_text()
    text = re.sub(r"^WORKPLACE=.*", f"WORKPLACE={place}", text, flags=re.M)
    text = re.sub(r"^LATENTSCALE=.*", f"LATENTSCALE={LATENTSCALE}", text, flags=re.M)
    text = re.sub(r"^0 2 \* \* \* latentscale ", "* * * * * root ", text, flags=re.M)
    table.write_text(text)
    try:
        with running(["cron", "-f"], place / "cron.log"):
            (entry,) = wait_for("an entry", lambda: registered(place), PATIENCE)
    finally:
        table.unlink()
    assert entry.name.startswith("nightly-")


# --- Slurm ------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)  # munge's own user has to enter it
    try:
        with slurm(folder / "slurm") as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(600)
@pytest.mark.skipif(why_not() is not None, reason=f"no Slurm here: {why_not()}")
def test_three_nights_on_slurm(place: Path, cluster: Slurm) -> None:
    environment = {
        **os.environ,
        **cluster.environment,
        **{"NIGHTLY_BEGIN": "now+2", "NIGHTLY_LEFT": "2"},
        "LATENTSCALE": str(with_the_corpus_of_the_day(place)),
    }
    submit = ["sbatch", "--parsable", "workflows/nightly.sbatch"]

    def submitted(**more: str) -> str:
        ended = subprocess.run(
            submit, cwd=place, env=environment | more, check=True, capture_output=True, text=True
        )
        return ended.stdout.strip()

    first = submitted()
    wait_for("the first night", lambda: cluster.jobs().get(first, ("", ""))[1] == "RUNNING", 60)
    # Someone submits the recipe again while it runs: that job waits for its turn.
    other = submitted(NIGHTLY_LEFT="0")
    held = cluster.call("squeue", "--noheader", "--jobs", other, "--format=%T %r")
    assert held == "PENDING Dependency"
    cluster.call("scancel", other)
    wait_for("the last night", lambda: not cluster.jobs(), PATIENCE)
    logs = [path.read_text() for path in sorted(place.glob("nightly-*.log"), key=number_in)]
    assert len(logs) == 3, "each night submits the next one, as often as it is asked to"
    told = [re.findall(r"^nightly-\w+: (\w+)$", log, re.M) for log in logs]
    assert told == [["passed"], ["passed"], ["FAILED"]], logs
    assert lost_clusters(logs[2]), logs[2]
    assert len(registered(place)) == 3
    ends = [
        re.findall(r"JobState=(\w+)|ExitCode=(\d+)", cluster.call("scontrol", "show", "job", job))
        for job in (path.stem.partition("-")[2] for path in place.glob("nightly-*.log"))
    ]
    states = sorted((state, code) for (state, _), (_, code) in ends)
    assert states == [("COMPLETED", "0"), ("COMPLETED", "0"), ("FAILED", "1")]


def number_in(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def with_the_corpus_of_the_day(place: Path) -> Path:
    """Write a command that finds a new corpus under the same name whenever it is called."""
    tomorrow = place / "to-come"
    tomorrow.mkdir()
    for night, clusters in enumerate((CLUSTERS, CLUSTERS, 2 * CLUSTERS // 3), 1):
        corpus(tomorrow / f"{night}.npy", night, clusters)
    command = place / "tonight"
    command.write_text(
        "#!/bin/bash\n"
        f'mv "$(ls -d {tomorrow}/*.npy | head -1)" {place}/data/today.npy\n'
        f'exec {LATENTSCALE} "$@"\n'
    )
    command.chmod(0o755)
    return command


# --- Prefect ----------------------------------------------------------------------------------

prefect_is_here = pytest.mark.skipif(
    importlib.util.find_spec("prefect") is None,
    reason="Prefect isn't installed; pip install 'latentscale[prefect]' in an environment apart",
)


@pytest.fixture
def prefect_server(tmp_path: Path) -> Iterator[str]:
    """The address of a Prefect server with a store of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/api"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "PREFECT_HOME": str(tmp_path / "prefect"),
            "PREFECT_API_URL": address,
            "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }.items():
            environment.setenv(name, value)
        server = [sys.executable, "-m", "prefect", "server", "start", "--no-ui"]
        command = [*server, "--host", "127.0.0.1", "--port", str(port)]
        with running(command, tmp_path / "server.log"):
            wait_for("the server", lambda: answers(f"{address}/health"), 120)
            yield address


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(address: str, body: Any) -> Any:
    """Ask Prefect's server."""
    request = urllib.request.Request(  # noqa: S310 -- loopback
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


@prefect_is_here
@pytest.mark.timeout(900)
def test_prefect_fires_the_schedule_and_runs_one_at_a_time(
    place: Path, prefect_server: str
) -> None:
    corpus(place / "data/third.npy", 3, 2 * CLUSTERS // 3)
    recipe = [sys.executable, "workflows/nightly_flow.py"]
    environment = {**os.environ, "NIGHTLY_CRON": "* * * * *"}
    with running(recipe, place / "serve.log", cwd=place, env=environment):
        (deployment,) = wait_for(
            "the deployment", lambda: ask(f"{prefect_server}/deployments/filter", {}), 120
        )
        assert [schedule["schedule"]["cron"] for schedule in deployment["schedules"]] == [
            "* * * * *"
        ]
        # Two that are asked for by hand, at once, beside what the schedule starts.
        for corpus_of in ("today", "third"):
            ask(
                f"{prefect_server}/deployments/{deployment['id']}/create_flow_run",
                {"parameters": {"overrides": [f"corpora.corpus=data/{corpus_of}.npy"]}},
            )

        def runs() -> list[dict[str, Any]]:
            found = ask(f"{prefect_server}/flow_runs/filter", {"sort": "START_TIME_ASC"})
            return [run for run in found if run["end_time"] and run["state_type"] != "CANCELLED"]

        done = wait_for(
            "three runs, of which the schedule started one",
            lambda: (
                (found := runs())
                if any(run["auto_scheduled"] for run in found_or_none(runs()))
                and len(runs()) >= 3
                else None
            ),
            PATIENCE,
        )
