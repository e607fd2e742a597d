"""``latentscale submit --dry-run``: what would be submitted, with nothing written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Ended

Command = Callable[..., Ended]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(60, 4)).astype("f4"))
    fields: dict[str, Any] = {
        "name": "nightly",
        "corpus": str(tmp_path / "rows.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine"]}},
        "cluster": {"kind": "slurm", "workers": 3, "memory_limit": "1GiB", "queue": "long"},
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(fields))
    return path


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_script_is_no_json(latentscale: Command, config: Path) -> None:
    ended = latentscale("submit", config, "--dry-run", "--json")
    assert (ended.code, ended.out) == (2, "")
    assert "--dry-run prints a script, which is no JSON; leave out --json" in ended.err


def test_a_source_is_not_ingested(latentscale: Command, config: Path, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    ended = latentscale("submit", config, "--dry-run")
    assert ended.code == 0
    assert ended.err == (
        f"{tmp_path}/rows.npy: not a corpus yet; submit would ingest it first (xxxxxxxx stands for "
        "the hash in the job's name)\n"
    )
    assert files_below(tmp_path) == before
    driver, _, worker = ended.out.partition("\nEND\n")
    assert driver.startswith("sbatch --parsable --job-name=ls-nightly-xxxxxxxx-")
    assert f" resume {tmp_path}/jobs/nightly-xxxxxxxx --here --wait --quiet &\n" in driver
    title, script = worker.strip().split("\n", 1)
    assert title == "# The driver submits for each of 3 workers:"
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "#SBATCH -p long\n" in script
    assert f"#SBATCH -e {tmp_path}/jobs/nightly-xxxxxxxx/workers/ls-nightly-" in script
    assert " distributed.cli.dask_worker tls://DRIVER:PORT " in script
    assert ".RUN/key.pem" in script


def test_the_job_of_a_corpus_has_its_name(
    latentscale: Command, config: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "c.zarr"
    assert latentscale("ingest", tmp_path / "rows.npy", corpus).code == 0
    before = files_below(tmp_path)
    ended = latentscale("submit", config, "--dry-run", "-o", f"corpus={corpus}")
    assert (ended.code, ended.err) == (0, "")
    assert files_below(tmp_path) == before
    planned = json.loads(latentscale("plan", config, "-o", f"corpus={corpus}", "--json").out)
    assert f" resume {planned['job']['folder']} --here" in ended.out


@pytest.mark.parametrize(("kind", "line"), [("pbs", "#PBS -q long\n"), ("sge", "#$ -q long\n")])
def test_workers_of_other_systems(latentscale: Command, config: Path, kind: str, line: str) -> None:
    options = ("-o", f"cluster.kind={kind}", "-o", "driver.kind=slurm")
    ended = latentscale("submit", config, "--dry-run", *options)
    assert ended.code == 0, ended.err
    assert line in ended.out.partition("\nEND\n")[2]


def test_a_missing_source_is_bad_input(latentscale: Command, config: Path, tmp_path: Path) -> None:
    ended = latentscale("submit", config, "--dry-run", "-o", f"corpus={tmp_path}/none.npy")
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    assert line.startswith(f"latentscale: {tmp_path}/none.npy: ")
    assert not (tmp_path / "jobs").exists()


def test_sources_and_their_labels(latentscale: Command, tmp_path: Path) -> None:
    rows = np.random.default_rng(2).normal(size=(120, 4)).astype("f4")
    for name, part in (("a", rows[:70]), ("b", rows[70:])):
        np.savez(
            tmp_path / f"{name}.npz", vector=part, other=part[:, ::-1], key=np.arange(len(part))
        )
    (tmp_path / "labels.txt").write_text("\n".join("uv"[i % 2] for i in range(120)))
    given = (tmp_path / "a.npz", tmp_path / "b.npz", "--labels", tmp_path / "labels.txt")
    options: tuple[Any, ...] = (
        "--name",
        "both",
        "--measures",
        "vendi",
        "--output",
        tmp_path / "jobs",
    )
    options += ("-o", "cluster.kind=slurm")
    refused = latentscale("submit", *given, *options, "--dry-run")
    assert refused.code == 2
    assert "--vectors" in refused.err
    chosen = (*given, "--vectors", "vector", *options)
    before = files_below(tmp_path)
    shown = latentscale("submit", *chosen, "--dry-run")
    assert shown.code == 0, shown.err
    assert files_below(tmp_path) == before
    planned = json.loads(latentscale("plan", *chosen, "--json").out)
    target = planned["corpora"]["corpus"]["target"]
    assert latentscale("run", *chosen, "-o", "cluster.kind=serial", "--quiet").code == 0
    submitted = latentscale("submit", *chosen, "--dry-run", "--quiet")
    assert (submitted.code, submitted.err) == (0, "")
    again = json.loads(latentscale("plan", target, *options, "--json").out)
    assert f" resume {again['job']['folder']} --here" in submitted.out


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("serial", "cluster.kind is serial, which takes no drivers; set driver.kind"),
        ("slurm", "sbatch isn't installed here; submit the job on a machine that has Slurm"),
    ],
)
def test_what_cannot_be_submitted_is_refused_before_anything_is_read(
    kind: str,
    message: str,
    tmp_path: Path,
    latentscale: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    np.save(tmp_path / "a.npy", np.eye(20, dtype="f4"))
    options = ("-o", f"cluster.kind={kind}", "--output", tmp_path / "jobs")
    ended = latentscale("submit", tmp_path / "a.npy", *options)
    assert (ended.code, message in ended.err) == (2, True), ended.err
    assert not (tmp_path / "jobs").exists()


def test_a_finished_job_has_nothing_to_submit(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    np.save(tmp_path / "a.npy", np.eye(20, dtype="f4"))
    options = ("--measures", "duplicates", "-o", "cluster.kind=serial", "--output", tmp_path / "j")
    assert latentscale("run", tmp_path / "a.npy", *options).code == 0
    ended = latentscale("submit", tmp_path / "a.npy", *options)
    assert (ended.code, "already finished" in ended.out) == (0, True), ended.err


def put_program(folder: Path, name: str, lines: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)


@pytest.fixture
def slurm(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """Programs that behave as Slurm's do where job 4711 waits on another cluster, named big."""
    programs = tmp_path / "programs"
    programs.mkdir()
    other = 'case "$*" in *--clusters=big*4711) ;; *) echo Invalid job id >&2; exit 1;; esac\n'
    put_program(programs, "scontrol", other + "echo 'JobId=4711 JobState=PENDING ExitCode=0:0'")
    put_program(programs, "scancel", f'{other}echo "$*" > {tmp_path}/cancelled')
    put_program(programs, "sbatch", "cat > /dev/null; echo 'Note: charged to x'; echo '4711;big'")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    fields = json.loads(config.read_text())
    config.write_text(json.dumps({**fields, "cluster": {"kind": "serial"}}))
    return (config, "-o", "driver.kind=slurm", "--quiet")


def test_a_driver_on_another_cluster_is_looked_for_there(
    latentscale: Command, slurm: tuple[Any, ...], tmp_path: Path
) -> None:
    ended = latentscale("submit", *slurm)
    assert ended.code == 0, ended.err
    assert "slurm: 4711\n" in ended.out
    job = ended.out.splitlines()[0].removeprefix("job: ")
    status = json.loads(latentscale("status", job, "--json").out)
    assert (status["state"], status["reason"]) == ("queued", "slurm job 4711, pending")
    again = latentscale("submit", *slurm)
    assert again.code == 2
    assert "its driver is already submitted as slurm job 4711" in again.err
    assert latentscale("cancel", job).code == 0
    assert (tmp_path / "cancelled").read_text() == "--clusters=big 4711\n"


@pytest.mark.parametrize(
    ("printed", "said"), [("", "nothing"), ("Submitted batch job 12", "Submitted batch job 12")]
)
def test_a_driver_without_an_id_is_no_success(
    latentscale: Command, slurm: tuple[Any, ...], tmp_path: Path, printed: str, said: str
) -> None:
    put_program(tmp_path / "programs", "sbatch", f"cat > /dev/null; echo '{printed}'")
    ended = latentscale("submit", *slurm)
    assert ended.code == 3
    assert f"sbatch gave no job id, but said: {said}; the driver may be queued" in ended.err
