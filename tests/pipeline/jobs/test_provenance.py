"""Where numbers come from is recorded for every run, and no secret with it."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latentscale
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.engine import keys
from latentscale_pipeline.engine.keys import code_version
from latentscale_pipeline.jobs import provenance
from latentscale_pipeline.jobs.provenance import git_state
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import without_credentials
from tests.conftest import Ended
from tests.support.jobs import results_of
from tests.support.results_documents import check_results

Command = Callable[..., Ended]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A quick job whose command is given in a folder of its own."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 4)).astype("f2"))
    config = tmp_path / "job.yaml"
    described = {
        "name": "traced",
        "corpus": str(tmp_path / "rows.npy"),
        "output": str(tmp_path / "jobs"),
        "seed": 7,
        "measures": {"vendi": {"kernels": ["cosine"]}},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(described))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return config


def provenance_of(output: Path) -> dict[str, Any]:
    results = results_of(output)
    check_results(results)
    [folder] = output.glob("traced-*")
    document: dict[str, Any] = json.loads((folder / results["job"]["provenance"]).read_text())
    return document


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    ended = subprocess.run(
        ["git", *identity, *arguments], capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


def test_data_code_libraries_and_machine_are_recorded(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    assert latentscale("run", job, "--quiet").code == 0
    found = provenance_of(tmp_path / "jobs")
    results = results_of(tmp_path / "jobs")
    assert found["schema"] == "latentscale.provenance/1"
    assert found["seed"] == 7
    assert (found["job"], found["config_hash"]) == (
        results["job"]["id"],
        results["job"]["config_hash"],
    )
    corpus = found["corpora"]["corpus"]
    assert corpus["fingerprint"] == open_corpus(corpus["uri"]).fingerprint
    assert corpus["sources"] == [
        {"path": str(tmp_path / "rows.npy"), "rows": 60, "dtype": "float16"}
    ]
    [run] = found["runs"]
    assert run["command"] == f"latentscale run {job} --quiet"
    assert run["latentscale"] == {"version": "0.1.0", "code": code_version()}
    assert run["libraries"]["numpy"] == np.__version__
    assert run["libraries"]["zarr"] == metadata.version("zarr")
    assert "pytest" not in run["libraries"]
    assert run["linear_algebra"][0]["internal_api"]
    assert run["threads"] == {"workers": 1, "tasks_of_a_worker": 1, "inside_a_task": 1}
    assert run["machine"]["cores"] == os.cpu_count()
    assert run["machine"]["memory_bytes"] > 2**30
    assert run["git"] is None


def test_every_run_that_worked_on_a_job_is_recorded(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    assert latentscale("run", job, "--quiet").code == 0
    assert latentscale("run", job, "--quiet").code == 0
    assert len(provenance_of(tmp_path / "jobs")["runs"]) == 1, "the second had nothing to do"
    [results] = (tmp_path / "jobs").glob("traced-*/results.json")
    results.unlink()
    assert latentscale("run", job).code == 0
    commands = [run["command"] for run in provenance_of(tmp_path / "jobs")["runs"]]
    assert commands == [f"latentscale run {job} --quiet", f"latentscale run {job}"]


def test_the_report_shows_it(job: Path, latentscale: Command, tmp_path: Path) -> None:
    assert latentscale("run", job).code == 0
    [page] = (tmp_path / "jobs").glob("traced-*/report.html")
    text = re.sub(r"\s+", " ", re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.S))
    cells = dict(re.findall(r'<th scope="row">([^<]*)</th> <td>([^<]*)</td>', text))
    assert cells["command"] == f"latentscale run {job}"
    assert cells["code of the measures"] == code_version()
    assert cells["working folder"] == "not in a git repository"
    assert cells["numpy"] == np.__version__
    assert cells["source of the corpus"] == str(tmp_path / "rows.npy")
    assert cells["workers × tasks at once"] == "1 × 1"


def test_the_state_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert git_state(tmp_path) is None
    repository = tmp_path / "work"
    (repository / "below").mkdir(parents=True)
    monkeypatch.chdir(repository)
    git("init", "--quiet")
    assert git_state(repository) == {"commit": None, "dirty": False}
    (repository / "file").write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--message", "first")
    head = git("rev-parse", "HEAD")
    assert git_state(repository / "below") == {"commit": head, "dirty": False}
    (repository / "untracked").write_text("stays out")
    assert git_state(repository) == {"commit": head, "dirty": False}
    (repository / "file").write_text("two")
    assert git_state(repository) == {"commit": head, "dirty": True}


def test_a_repository_can_not_run_its_own_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    program = tmp_path / "monitor.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    git("config", "core.fsmonitor", str(program))
    state = git_state(tmp_path)
    assert state is not None
    assert state["dirty"] is False
    assert not (tmp_path / "ran").exists()


def test_without_git_there_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("s3://KEY:SECRET@bucket/path", "s3://bucket/path"),
        ("s3://KEY:SEC/RET+x@bucket/path", "s3://bucket/path"),
        ("s3://KEY:SEC@RET@bucket/path", "s3://bucket/path"),
        ("https://TOKEN@host:8080/a?sig=SECRET&x=1#SECRET", "https://host:8080/a"),
        ("simplecache::s3://KEY:SECRET@bucket/a", "simplecache::s3://bucket/a"),
        (
            "-o 'corpus=\"s3://KEY:SECRET@b/c\"' -o output=s3://b/d?TOKEN=x rest",
            "-o 'corpus=\"s3://b/c\"' -o output=s3://b/d rest",
        ),
        ("s3://bucket/who@where/file", "s3://bucket/who@where/file"),
        ("run s3://bucket/C#1?.zarr", "run s3://bucket/C#1?.zarr"),
        ("http://host/a?TOKEN#SECRET", "http://host/a"),
        ("HTTPS://h/p?SECRET", "HTTPS://h/p"),
        ("hf://o/n?SECRET", "hf://o/n"),
        ("s3://b/k#sig=SECRET", "s3://b/k"),
        ("https://host:8080/plain", "https://host:8080/plain"),
        ("/local/who@where/a?b.npy", "/local/who@where/a?b.npy"),
    ],
)
def test_urls_lose_what_opens_doors(said: str, kept: str) -> None:
    assert without_credentials(said) == kept
    assert without_credentials({"a": [said, 3, None]}) == {"a": [kept, 3, None]}


def test_no_secret_is_recorded(
    job: Path,
    latentscale: Command,
    tmp_path: Path,
    s3_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LATENTSCALE_TEST_PASSWORD", "ENVIRONMENT-SECRET")
    target = f"{s3_url}/rows.zarr"
    assert latentscale("ingest", tmp_path / "rows.npy", target).code == 0
    given = f"{target}?token=QUERY-SECRET"
    seen: dict[str, Any] = {}
    write = provenance.write_provenance

    def spy(*arguments: Any, **rest: Any) -> dict[str, Any]:
        command = [*rest.pop("command"), "-o", given, "-o", "s3://KEY:URL-SECRET@bucket/x"]
        seen.update(write(*arguments, command=command, **rest))
        return seen

    monkeypatch.setattr("latentscale_pipeline.jobs.run.write_provenance", spy)
    assert latentscale("run", job, "-o", f"corpus={target}", "-o", f"output={s3_url}").code == 0
    store = ObjectStore(s3_url)
    [folder] = [name for name in store.folders() if name.startswith("traced-")]
    for name in ("provenance.json", "results.json", "report.html", "config.json"):
        stored = store.read(f"{folder}/{name}").decode()
        assert "SECRET" not in stored, name
        assert "testsecret" not in stored, name
    assert seen["runs"][0]["command"].endswith(f"-o {target} -o s3://bucket/x")
    assert seen["corpora"]["corpus"]["uri"] == target


def test_any_change_to_the_mathematics_changes_the_code_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(latentscale.__file__).parent
    shutil.copytree(source, tmp_path / "latentscale", ignore=shutil.ignore_patterns("__pycache__"))
    original = keys.package_folders
    monkeypatch.setattr(
        keys,
        "package_folders",
        lambda package: (
            [str(tmp_path / package)] if package == "latentscale" else original(package)
        ),
    )
    assert code_version.__wrapped__() == code_version()
    for changed in ("heat/trace.py", "tiles/host/separations.py"):
        file = tmp_path / "latentscale" / changed
        text = file.read_text()
        file.write_text(text + "\n")
        assert code_version.__wrapped__() != code_version(), changed
        file.write_text(text)
