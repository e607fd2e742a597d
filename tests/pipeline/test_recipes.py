"""The recipes in ``workflows/``: each run by its scheduler where that can be had on one machine."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from latentscale_pipeline.workflow.config import (
    read_job_config,
    read_workflow,
    read_workflow_gates,
)
from tests.pipeline.test_workflow import corpus

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "workflows"
LATENTSCALE = Path(sys.executable).with_name("latentscale")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder as the recipes find it: their own, and today's corpus."""
    shutil.copytree(RECIPES, tmp_path / "workflows")
    recipe = yaml.safe_load((RECIPES / "nightly.yaml").read_text())
    recipe["job"]["cluster"] = {"kind": "serial"}
    recipe["job"]["measures"] = {"vendi": {"kernels": ["cosine"], "orders": [1]}}
    recipe["gates"] = recipe["gates"][:1]
    (tmp_path / "workflows/nightly.yaml").write_text(yaml.safe_dump(recipe))
    (tmp_path / "data").mkdir()
    corpus(tmp_path / "data/today.npy", 1, 9)
    return tmp_path


def wait_for(what: str, found: Any, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.5)
    raise AssertionError(f"{what}: nothing after {seconds} s")


def registered(place: Path) -> list[Path]:
    return sorted(place.glob("history/entries/*.parquet"))


# --- what every recipe runs -------------------------------------------------------------------


def test_the_workflow_file_says_what_it_should() -> None:
    path = RECIPES / "nightly.yaml"
    workflow = read_workflow(path.read_text(), str(path))
    config = read_job_config(workflow, str(path))
    assert (workflow.name, workflow.baseline, workflow.scales_from) == (
        *("nightly", "latest"),
        "baseline",
    )
    assert list(config.measures) == ["magnitude", "vendi"]
    assert len(read_workflow_gates(workflow, str(path))) == 3


@pytest.mark.parametrize("name", ["nightly.github.yaml", "nightly.kubernetes.yaml"])
def test_overrides_in_recipes_are_keys_of_the_workflow(name: str) -> None:
    words = (RECIPES / name).read_text().replace("- ", " ").split()
    overrides = [words[place + 1] for place, word in enumerate(words) if word == "-o"]
    assert len(overrides) == 0 or len(overrides) == 3
    overrides = overrides or re.findall(r"\S+=s3://\S+", (RECIPES / name).read_text())
    path = RECIPES / "nightly.yaml"
    workflow = read_workflow(path.read_text(), str(path), overrides)
    assert workflow.history == "s3://bucket/history"
    assert read_job_config(workflow, str(path)).output == "s3://bucket/jobs"
    assert read_job_config(workflow, str(path)).corpus == "s3://bucket/today.npy"


def test_the_github_workflow_follows_its_schema() -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema isn't installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    recipe = RECIPES / "nightly.github.yaml"
    ended = subprocess.run(
        [*command, "vendor.github-workflows", str(recipe)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_cron_job_forbids_overlap_and_mends_only_what_can_be() -> None:
    recipe = yaml.safe_load((RECIPES / "nightly.kubernetes.yaml").read_text())
    job = recipe["spec"]["jobTemplate"]["spec"]
    assert recipe["spec"]["concurrencyPolicy"] == "Forbid"
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [1, 2], "exit 3 is tried again"
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_the_slurm_recipe_submits_its_successor_first(tmp_path: Path) -> None:
    told = tmp_path / "told"
    for name in ("sbatch", "latentscale"):
        script = f'#!/bin/sh\necho "{name} $NIGHTLY_LEFT $@" >> {told}\n'
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NIGHTLY_BEGIN": "now+5"}
    recipe = str(RECIPES / "nightly.sbatch")
    for left in ({}, {"NIGHTLY_LEFT": "2"}, {"NIGHTLY_LEFT": "0"}):
        subprocess.run(["/bin/bash", recipe], env={**environment, **left}, check=True)
    run = "workflow run workflows/nightly.yaml --quiet"
    assert [" ".join(line.split()) for line in told.read_text().splitlines()] == [
        *("sbatch --begin=now+5 workflows/nightly.sbatch", f"latentscale {run}"),
        *("sbatch 1 --begin=now+5 workflows/nightly.sbatch", f"latentscale 2 {run}"),
        f"latentscale 0 {run}",
    ]


def test_the_line_of_cron_runs_and_its_lock_keeps_others_out(place: Path) -> None:
    line, environment = cron_line(place)
    # An evaluation that takes long holds the lock: the next one ends at once.
    with (place / "nightly.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = subprocess.run(["/bin/bash", "-c", line], env=environment, check=False)
    assert ended.returncode == 1
    assert not registered(place)
    ended = subprocess.run(["/bin/bash", "-c", line], env=environment, check=False)
    assert ended.returncode == 0, (place / "nightly.log").read_text()
    assert len(registered(place)) == 1


def cron_line(place: Path) -> tuple[str, dict[str, str]]:
    """Return the command of the crontab, and the environment that cron would give it."""
    lines = [line for line in (RECIPES / "nightly.cron").read_text().splitlines() if line]
    (job,) = [line for line in lines if re.match(r"\d", line)]
    given = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]+=", line))
    given |= {"WORKPLACE": str(place), "LATENTSCALE": str(LATENTSCALE), "PATH": "/usr/bin:/bin"}
    return job.split(" latentscale ", 1)[1], given


# --- the real schedulers ----------------------------------------------------------------------


@pytest.mark.full
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
        with running(["cron", "-f"]):
            (entry,) = wait_for("an entry", lambda: registered(place), 300)
    finally:
        table.unlink()
    assert entry.name.startswith("nightly-")


@pytest.mark.full
@pytest.mark.timeout(400)
def test_slurm_runs_the_recipe_again_and_again(place: Path) -> None:
    if shutil.which("sbatch") is None:
        pytest.skip("Slurm isn't installed")
    if (
        b"is UP"
        not in subprocess.run(["scontrol", "ping"], capture_output=True, check=False).stdout
    ):
        pytest.skip("no Slurm controller answers; start one and name its SLURM_CONF")
    settings = {"NIGHTLY_BEGIN": "now+3", "NIGHTLY_LEFT": "1", "LATENTSCALE": str(LATENTSCALE)}
    subprocess.run(
        ["sbatch", "--mem=0", "workflows/nightly.sbatch"],
        cwd=place,
        env={**os.environ, **settings, "NIGHTLY_RECIPE": "workflows/nightly.sbatch"},
        check=True,
    )
    logs = wait_for(
        "two nights",
        lambda: len(found := sorted(place.glob("nightly-*.log"))) == 2 and found,
        300,
    )
    wait_for("the second verdict", lambda: "evaluated before" in logs[1].read_text(), 200)
    assert len(registered(place)) == 1, "the same corpus is one evaluation"


@pytest.mark.full
@pytest.mark.timeout(900)
def test_prefect_runs_the_flow(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    python = environment_with(
        tmp_path_factory.mktemp("prefect"),
        *("prefect>=3.4,<4", "fastapi<0.150", "sqlalchemy<2.1", f"{ROOT}[history]"),
    )
    code = (
        "import sys; sys.path.insert(0, 'workflows'); from nightly_flow import nightly; nightly()"
    )
    settings = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    settings["PREFECT_HOME"] = str(place / "prefect")
    settings["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "120"
    ended = subprocess.run(
        [str(python), "-c", code],
        cwd=place,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert len(registered(place)) == 1


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_kubernetes_manifest_follows_its_schema(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    python = environment_with(tmp_path_factory.mktemp("kubernetes"), "kubernetes-validate")
    code = """
import json, sys, kubernetes_validate, yaml
document = yaml.safe_load(open(sys.argv[1]))
kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
print(json.dumps(document["kind"]))
"""
    recipe = RECIPES / "nightly.kubernetes.yaml"
    ended = subprocess.run(
        [str(python), "-c", code, str(recipe)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout) == "CronJob"


def environment_with(folder: Path, *requirements: str) -> Path:
    """Make an environment of its own for what can't be installed beside the tests."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        pytest.skip(f"{requirements[0]} can't be installed: {ended.stderr.strip()[-200:]}")
    return python


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)
