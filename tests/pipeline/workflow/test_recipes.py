"""The recipes in ``workflows/``, as far as they can be checked without what runs them.

``test_recipes_on_schedulers.py`` has real schedulers run them.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import jsonschema
import pytest
import yaml

from latentscale_pipeline.workflow.config import (
    read_job_config,
    read_workflow,
    read_workflow_gates,
)
from tests import DATA, ROOT
from tests.conftest import Ended
from tests.support.recipes import LATENTSCALE, RECIPES, make_place, registered

SCHEMA = DATA / "kubernetes_cronjob_schema.json"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make_place(tmp_path)


# --- what every recipe runs -------------------------------------------------------------------


def test_the_workflow_file_says_what_it_should() -> None:
    path = RECIPES / "nightly.yaml"
    workflow = read_workflow(path.read_text(), str(path))
    config = read_job_config(workflow, str(path))
    assert (workflow.name, workflow.baseline, workflow.scales_from) == (
        *("nightly", "latest"),
        "baseline",
    )
    assert list(config.measures) == ["duplicates", "magnitude", "vendi"]
    assert len(read_workflow_gates(workflow, str(path))) == 4


def test_a_key_of_an_earlier_version_is_read() -> None:
    text = (RECIPES / "nightly.yaml").read_text()
    assert not read_workflow(text, "now").allow_incomparable
    before = f"{text}\nallow_unlike: true\n"
    assert read_workflow(before, "before").allow_incomparable
    assert not read_workflow(before, "before", ["allow_incomparable=false"]).allow_incomparable


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


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-workflows", RECIPES / "nightly.github.yaml"),
        ("vendor.github-workflows", ROOT / ".github" / "workflows" / "ci.yml"),
        ("vendor.citation-file-format", ROOT / "CITATION.cff"),
    ],
)
def test_files_for_a_host_follow_their_schema(schema: str, file: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema isn't installed")
    options = ["--builtin-schema", schema, "--default-filetype", "yaml"]
    ended = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *options, str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_kubernetes_cron_job_follows_its_schema() -> None:
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.Draft202012Validator(schema)
    recipe = yaml.safe_load((RECIPES / "nightly.kubernetes.yaml").read_text())
    validator.validate(recipe)
    job = recipe["spec"]["jobTemplate"]["spec"]
    job["template"]["spec"]["containers"][0]["resources"]["limit"] = {}
    job["backoffLimit"] = "2"
    said = sorted(error.message for error in validator.iter_errors(recipe))
    assert len(said) == 2
    assert said[0] == "'2' is not of type 'integer', 'null'"
    assert "'limit' was unexpected" in said[1], "what Kubernetes would leave out is refused"


def test_the_cron_job_forbids_overlap_and_mends_only_what_can_be() -> None:
    recipe = yaml.safe_load((RECIPES / "nightly.kubernetes.yaml").read_text())
    job = recipe["spec"]["jobTemplate"]["spec"]
    assert recipe["spec"]["concurrencyPolicy"] == "Forbid"
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [1, 2], "exit 3 is tried again"
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_commands_in_the_cloud_find_everything_in_an_object_store(
    place: Path, latentscale: Callable[..., Ended], s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of GitHub's workflow and of the pod, on a bucket of the tests."""
    with fsspec.open(f"{s3_url}/today.npy", "wb") as remote:
        remote.write((place / "data/today.npy").read_bytes())
    shutil.rmtree(place / "data")
    monkeypatch.chdir(place)

    def here(words: list[str]) -> list[str]:
        words = [word.replace("s3://bucket", s3_url) for word in words]
        return [word.replace("/etc/latentscale/", "workflows/") for word in words]

    pod = yaml.safe_load((RECIPES / "nightly.kubernetes.yaml").read_text())
    (container,) = pod["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    first = latentscale(*here(container["args"])[1:])
    assert first.code == 0, first.err
    steps = yaml.safe_load((RECIPES / "nightly.github.yaml").read_text())["jobs"]["evaluate"]
    commands = {step.get("name"): step["run"].split() for step in steps["steps"] if "run" in step}
    again = latentscale(*here(commands["evaluate"])[1:])
    assert again.code == 0
    assert "was evaluated before" in again.err, "the pod's evaluation is found"
    assert latentscale(*here(commands["trends"])[1:]).code == 0
    assert "<h1><bdi>nightly</bdi></h1>" in (place / "trends.html").read_text()
    assert sorted(path.name for path in place.iterdir()) == ["trends.html", "workflows"]


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


def test_the_script_of_nextflow_runs_where_it_was_started(place: Path, tmp_path: Path) -> None:
    recipe = (RECIPES / "nightly.nf").read_text()
    params = dict(re.findall(r"^params\.(\w+) = '(.+)'$", recipe, re.MULTILINE))
    (script,) = re.findall(r'    """\n(.*?)    """\n', recipe, re.DOTALL)
    values = {"launchDir": str(place)} | {f"params.{name}": own for name, own in params.items()}
    # As Nextflow reads a text in double quotes.
    script = script.replace("\\\n", "")
    script = re.sub(r"(?<!\\)\$\{([\w.]+)\}", lambda found: values[found[1]], script)
    work = tmp_path / "work/1f/a9"
    work.mkdir(parents=True)
    environment = {**os.environ, "PATH": f"{LATENTSCALE.parent}:{os.environ['PATH']}"}
    command = ["/bin/bash", "-ue", "-c", script.replace("\\$", "$")]
    for _ in range(2):
        ended = subprocess.run(command, cwd=work, env=environment, check=False)
        assert ended.returncode == 0
        assert json.loads((work / "evaluation.json").read_text())["passed"] is True
    assert len(registered(place)) == 1


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
