"""The recipes in ``workflows/`` as what they are for runs them: cron, Slurm, Prefect and others.

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
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import (
    CLUSTERS,
    LATENTSCALE,
    RECIPES,
    corpus,
    lost_clusters,
    make_place,
    registered,
    wait_for,
)
from tests.support.slurm import Slurm, cluster_for_tests, why_not

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
    with cluster_for_tests() as found:
        yield found


@pytest.mark.timeout(600)
@pytest.mark.skipif(why_not() is not None, reason=f"no Slurm here: {why_not()}")
def test_three_nights_on_slurm(place: Path, cluster: Slurm) -> None:
    environment = {
        **os.environ,
        **cluster.environment,
        "NIGHTLY_BEGIN": "now+2",
        "NIGHTLY_LEFT": "2",
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


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prefect server with a store of its own, which the environment names."""
    folder = tmp_path_factory.mktemp("prefect")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/api"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "PREFECT_HOME": str(folder / "home"),
            "PREFECT_API_URL": address,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }.items():
            environment.setenv(name, value)
        server = [sys.executable, "-m", "prefect", "server", "start", "--no-ui"]
        command = [*server, "--host", "127.0.0.1", "--port", str(port)]
        with running(command, folder / "server.log"):
            wait_for("the server", lambda: ask(f"{address}/health"), PATIENCE)
            yield address


def ask(address: str, body: Any = None) -> Any:
    """Ask Prefect's server; None as long as it can't answer."""
    document = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, document, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code != 503:  # its store is busy
            raise
    except urllib.error.URLError:
        pass
    return None


@prefect_is_here
@pytest.mark.timeout(900)
def test_prefect_keeps_the_schedule_and_runs_one_at_a_time(
    place: Path, prefect_server: str
) -> None:
    corpus(place / "data/third.npy", 3, 2 * CLUSTERS // 3)
    night = ["workflow", "run", "workflows/nightly.yaml", "--quiet"]
    subprocess.run([LATENTSCALE, *night], cwd=place, check=True, capture_output=True)
    recipe = [sys.executable, "workflows/nightly_flow.py"]
    environment = {**os.environ, "NIGHTLY_CRON": "* * * * *"}
    with running(recipe, place / "serve.log", cwd=place, env=environment):
        (deployment,) = wait_for(
            "the flow", lambda: ask(f"{prefect_server}/deployments/filter", {}), 120
        )
        # Two are asked for by hand at once, beside those that the schedule starts.
        for name in ("today", "third"):
            asked = {"parameters": {"overrides": [f"corpora.corpus=data/{name}.npy"]}}
            url = f"{prefect_server}/deployments/{deployment['id']}/create_flow_run"
            wait_for("a run by hand", lambda url=url, asked=asked: ask(url, asked), 30)

        def ended() -> list[dict[str, Any]] | None:
            found = ask(f"{prefect_server}/flow_runs/filter", {"sort": "START_TIME_ASC"}) or []
            done = [run for run in found if run["end_time"]]
            scheduled = [run for run in done if run["auto_scheduled"]]
            return done if scheduled and len(done) - len(scheduled) == 2 else None

        runs = wait_for("two runs by hand and one of the schedule", ended, PATIENCE)
    for before, after in pairwise(runs):
        assert before["end_time"] <= after["start_time"], "one at a time"
    verdicts = {
        "schedule" if run["auto_scheduled"] else run["parameters"]["overrides"][0]: (
            *(run["state_type"], run["state"]["message"]),
        )
        for run in runs
    }
    assert verdicts["schedule"][0] == "COMPLETED"
    assert verdicts["corpora.corpus=data/today.npy"][0] == "COMPLETED"
    state, message = verdicts["corpora.corpus=data/third.npy"]
    assert state == "FAILED"
    assert lost_clusters(message), message
    assert len(registered(place)) == 2, "one for each corpus"


TRIED_AGAIN = """
import subprocess, sys
from types import SimpleNamespace
sys.path.insert(0, "workflows")
import nightly_flow
codes = [int(code) for code in sys.argv[1].split(",")]
nightly_flow.subprocess = SimpleNamespace(
    run=lambda *_, **__: SimpleNamespace(returncode=codes.pop(0), stdout="told", stderr="why")
)
nightly_flow.evaluate = nightly_flow.evaluate.with_options(retry_delay_seconds=0)
state = nightly_flow.nightly(return_state=True)
print("ended:", state.type.value, "left:", codes)
"""


@prefect_is_here
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize(
    ("codes", "end"),
    [("3,0", "COMPLETED left: []"), ("3,3,3", "FAILED left: []"), ("1,0", "FAILED left: [0]")],
)
def test_prefect_tries_again_what_that_can_mend(codes: str, end: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TRIED_AGAIN, codes],
        cwd=RECIPES.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines()[-1] == f"ended: {end}"


# --- tools that run what is out of date ---------------------------------------------------------


def is_missing(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"{package} isn't installed; install it in an environment apart",
    )


def in_place(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment in a folder with the recipes."""
    found = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words,
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": found, "DVC_NO_ANALYTICS": "1", "DO_NOT_TRACK": "1"},
    )


@is_missing("snakemake")
@pytest.mark.timeout(300)
def test_snakemake_evaluates_each_corpus_once_and_fails_with_its_gate(place: Path) -> None:
    corpus(place / "data/third.npy", 3, 2 * CLUSTERS // 3)
    recipe = ["snakemake", "-s", "workflows/Snakefile", "--cores", "2"]
    ended = in_place(place, *recipe)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((place / "evaluation.json").read_text())["passed"] is True
    assert "Nothing to be done" in in_place(place, *recipe).stderr
    ended = in_place(place, *recipe, "--config", "corpus=data/third.npy")
    assert ended.returncode == 1
    assert not (place / "evaluation.json").exists()
    said = (place / "evaluation.log").read_text()
    assert lost_clusters(said), said
    assert len(registered(place)) == 2, "one for each corpus, however often the rule was tried"


@is_missing("dvc")
@pytest.mark.timeout(300)
def test_dvc_evaluates_each_corpus_once_and_fails_with_its_gate(place: Path) -> None:
    assert in_place(place, "dvc", "init", "--no-scm", "--quiet").returncode == 0
    recipe = ["dvc", "repro", "workflows/dvc/dvc.yaml"]
    ended = in_place(place, *recipe)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((place / "evaluation.json").read_text())["passed"] is True
    assert "didn't change, skipping" in in_place(place, *recipe).stdout
    corpus(place / "data/today.npy", 3, 2 * CLUSTERS // 3)
    ended = in_place(place, *recipe)
    assert ended.returncode != 0
    assert lost_clusters(ended.stderr), ended.stderr
    assert len(registered(place)) == 2


# --- Dagster ------------------------------------------------------------------------------------

MATERIALISED = """
import sys
sys.path.insert(0, "workflows")
import dagster
import nightly_dagster as recipe
settings = dagster.RunConfig({"nightly_evaluation": recipe.Evaluation(overrides=sys.argv[1:])})
found = dagster.materialize([recipe.nightly_evaluation], run_config=settings)
[check] = found.get_asset_check_evaluations()
print(found.success, check.passed, check.metadata["said"].value)
"""

INCOMPLETE = """
import sys
from types import SimpleNamespace
sys.path.insert(0, "workflows")
import dagster
import nightly_dagster as recipe
recipe.subprocess = SimpleNamespace(
    run=lambda *_, **__: SimpleNamespace(returncode=int(sys.argv[1]), stdout="told", stderr="why")
)
try:
    recipe.nightly_evaluation(recipe.Evaluation())
except dagster.RetryRequested as asked:
    print("again", asked.max_retries)
except dagster.Failure as failure:
    print("failed", failure.description)
"""


@is_missing("dagster")
@pytest.mark.timeout(300)
def test_dagster_checks_the_gates_of_the_asset(place: Path) -> None:
    corpus(place / "data/third.npy", 3, 2 * CLUSTERS // 3)
    materialise = [sys.executable, "-c", MATERIALISED]
    ended = in_place(place, *materialise)
    assert ended.stdout.startswith("True True"), ended.stderr
    ended = in_place(place, *materialise, "corpora.corpus=data/third.npy")
    assert ended.stdout.startswith("True False"), ended.stderr
    assert lost_clusters(ended.stdout), ended.stdout
    assert len(registered(place)) == 2


@is_missing("dagster")
@pytest.mark.timeout(300)
def test_dagster_tries_an_incomplete_run_again(place: Path) -> None:
    tried = [sys.executable, "-c", INCOMPLETE]
    assert in_place(place, *tried, "3").stdout == "again 2\n"
    assert in_place(place, *tried, "2").stdout == "failed why\n"


# --- Airflow ----------------------------------------------------------------------------------

RUN_ONCE = """
import datetime, json, sys
sys.path.insert(0, "workflows")
import nightly_airflow as recipe
recipe.DAG.task_dict["evaluate"].retry_delay = datetime.timedelta(seconds=1)
run = recipe.DAG.test(run_conf={"overrides": sys.argv[1:]})
print("TOLD " + json.dumps({each.task_id: str(each.state) for each in run.get_task_instances()}))
"""


@pytest.fixture
def airflow(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the place, with a new database of Airflow in it."""
    monkeypatch.setenv("AIRFLOW_HOME", str(place / "airflow"))
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(place / "workflows"))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    made = in_place(place, "airflow", "db", "migrate")
    assert made.returncode == 0, made.stderr
    return place


def told_by_airflow(place: Path, *overrides: str) -> tuple[dict[str, str], str]:
    """Run the DAG once; return the state of every task, and the log."""
    ended = in_place(place, sys.executable, "-c", RUN_ONCE, *overrides)
    [told] = re.findall(r"^TOLD (.*)$", ended.stdout, re.M) or [ended.stderr[-2000:]]
    return json.loads(told), ended.stdout + ended.stderr


@is_missing("airflow")
@pytest.mark.timeout(300)
def test_airflow_checks_the_gates_in_a_task_of_their_own(airflow: Path) -> None:
    corpus(airflow / "data/third.npy", 3, 2 * CLUSTERS // 3)
    states, _ = told_by_airflow(airflow)
    assert states == {"evaluate": "success", "gates": "success"}
    states, log = told_by_airflow(airflow, "corpora.corpus=data/third.npy")
    assert states == {"evaluate": "success", "gates": "failed"}
    assert lost_clusters(log), log
    assert len(registered(airflow)) == 2


@is_missing("airflow")
@pytest.mark.timeout(300)
def test_airflow_tries_nothing_again_that_would_end_the_same_way(airflow: Path) -> None:
    states, log = told_by_airflow(airflow, "corpora.corpus=data/missing.npy")
    assert states == {"evaluate": "failed", "gates": "upstream_failed"}
    assert "data/missing.npy: no such file or folder" in log


def replace_command(place: Path, code: str) -> None:
    """Let another program stand where the recipe finds the command."""
    (place / "latentscale_pipeline").mkdir()
    (place / "latentscale_pipeline/__init__.py").touch()
    (place / "latentscale_pipeline/cli.py").write_text(code)


@is_missing("airflow")
@pytest.mark.timeout(300)
def test_airflow_skips_what_another_run_does(airflow: Path) -> None:
    replace_command(airflow, "print('{\"stepped_aside\": true}')")
    states, _ = told_by_airflow(airflow)
    assert states == {"evaluate": "skipped", "gates": "skipped"}


@is_missing("airflow")
@pytest.mark.timeout(300)
def test_airflow_tries_an_incomplete_run_again(airflow: Path) -> None:
    code = "import sys\nprint('why not', file=sys.stderr)\nraise SystemExit(3)\n"
    replace_command(airflow, code)
    states, log = told_by_airflow(airflow)
    assert states == {"evaluate": "failed", "gates": "upstream_failed"}
    assert log.count("AirflowException: why not") == 3
