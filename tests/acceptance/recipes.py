"""The recipes of ``workflows/`` on their real schedulers, and scores in a real MLflow.

Run by ``make test-full`` as ``recipes``. What can't be installed beside the tests gets an
environment of its own, and what the system lacks is installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import ROOT
from tests.support import slurm

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

ON_SCHEDULERS = "tests/acceptance/test_recipes_on_schedulers.py"
METRICS = "tests/pipeline/metrics/test_exposition.py"


@dataclass(frozen=True)
class Trial:
    """Tests that are run in one environment.

    Attributes
    ----------
    name : str
        What is tried.
    file, select : str
        The file of the tests, and words of their names.
    requirements : tuple of str
        What their environment needs beside pytest; the one of all tests where there are none.
    """

    name: str
    file: str
    select: str
    requirements: tuple[str, ...] = ()


TRIALS = (
    Trial("cron", ON_SCHEDULERS, "cron"),
    Trial("Slurm", ON_SCHEDULERS, "slurm"),
    Trial("Prefect", ON_SCHEDULERS, "prefect", (f"{ROOT}[history,prefect]",)),
    Trial("Snakemake", ON_SCHEDULERS, "snakemake", (f"{ROOT}[history]", "snakemake")),
    Trial("DVC", ON_SCHEDULERS, "dvc", (f"{ROOT}[history]", "dvc")),
    Trial("Dagster", ON_SCHEDULERS, "dagster", (f"{ROOT}[history]", "dagster")),
    Trial("Airflow", ON_SCHEDULERS, "airflow", (f"{ROOT}[history]", "apache-airflow")),
    Trial(
        *("MLflow", METRICS, "mlflow"),
        (f"{ROOT}[metrics,mlflow]", "sqlalchemy", "alembic", "jsonschema"),
    ),
)


def recipes_on_their_schedulers(bench: Bench) -> list[dict[str, Any]]:
    """Let schedulers and other tools run the nightly recipe, and MLflow take its scores."""
    _install_cron()
    with contextlib.suppress(slurm.NotToBeHad):  # its test says so
        slurm.install()
    return [
        entry for trial in TRIALS for entry in try_in_environment(trial, bench.folder / trial.name)
    ]


def try_in_environment(trial: Trial, folder: Path) -> Iterator[dict[str, Any]]:
    """Run the tests of a trial in its environment, and yield what came of each."""
    folder.mkdir()
    python = environment(trial.requirements, folder) if trial.requirements else Path(sys.executable)
    if python is None:
        wanted = ", ".join(Path(name).name for name in trial.requirements)
        yield _record(trial.name, {"skipped": f"{wanted} can't be installed"}, held=None)
        return
    yield from run_tests(trial.name, [str(python), "-k", trial.select, trial.file], folder)


def run_tests(
    name: str, words: Sequence[str], folder: Path, **environment: str
) -> Iterator[dict[str, Any]]:
    """Run tests with a Python and pytest's further words; yield what came of each."""
    report = folder / "tests.xml"
    command = [words[0], "-m", "pytest", "-q", f"--junitxml={report}", *words[1:]]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.exists():
        yield _record(name, {"said": ended.stderr[-300:]}, held=False)
        return
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        yield _of_case(name, case)


def _of_case(of: str, case: ElementTree.Element) -> dict[str, Any]:
    name = str(case.get("name")).removeprefix("test_").replace("_", " ")
    figures: dict[str, Any] = {"seconds": round(float(case.get("time", "nan")), 1)}
    skipped = case.find("skipped")
    if skipped is not None:
        return _record(name, {"skipped": skipped.get("message")}, held=None)
    problems = [*case.findall("failure"), *case.findall("error")]
    if problems:
        figures["said"] = str(problems[0].get("message"))[:300]
    return _record(f"{of}: {name}", figures, held=not problems)


def environment(requirements: Sequence[str], folder: Path) -> Path | None:
    """Return the Python of a new environment with these packages; None where they can't be had."""
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment/bin/python"
    wanted = ["pytest", "pytest-timeout", "hypothesis", *requirements]
    ended = subprocess.run([*_installer(python), *wanted], capture_output=True, check=False)
    return python if ended.returncode == 0 else None


def _installer(python: Path) -> list[str]:
    """Return the words before what is to be installed; uv takes seconds where pip takes minutes."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    uv = shutil.which("uv", path=places)
    if uv is None:
        return [str(python), "-m", "pip", "install", "--quiet"]
    return [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]


def _install_cron() -> None:
    if shutil.which("cron") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "-y", "--no-install-recommends", "cron"]
        subprocess.run(command, check=False, capture_output=True, timeout=600)


def _record(promise: str, figures: dict[str, Any], held: bool | None) -> dict[str, Any]:
    return {"promise": promise, "figures": figures, "limit": "its test passes", "held": held}
