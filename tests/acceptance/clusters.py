"""What a cluster costs, as far as one machine can show it; run by ``make test-full``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import measure

from tests import ROOT
from tests.acceptance.recipes import run_tests
from tests.pipeline.executors.dask.test_manifests import WORKFLOWS, manifests

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

SCHEMAS = ROOT / "tests" / "support" / "kubernetes" / "schemas.py"
STORIES = "tests/acceptance/test_kubernetes.py"

TASKS = 100_000
MAX_MILLISECONDS = 2.0
"""Of the driver's processor time, scheduler included, for a task."""

MAX_BYTES = 2**30
"""Of the driver, with all tasks of the largest stage handed over."""


def scheduling_and_scaling(bench: Bench) -> list[dict[str, Any]]:
    """Count tasks a second and the driver's share; compare 1, 2 and 4 workers; ask the plan."""
    figures = measure(TASKS, bench.folder)
    return [
        {
            "promise": "a hundred thousand tasks, 1, 2 and 4 workers, and a plan for 1000",
            "figures": figures,
            "limit": f"the driver takes less than {MAX_MILLISECONDS} ms of its core for a task, "
            "and 1 GiB",
            "held": figures["overhead"]["driver_milliseconds_a_task"] < MAX_MILLISECONDS
            and figures["overhead"]["driver_peak_bytes"] < MAX_BYTES,
        }
    ]


def jobs_on_kubernetes(bench: Bench) -> list[dict[str, Any]]:
    """Hold manifests to their schemas, and run jobs with Dask's operator, in its environment."""
    environment = bench.folder / "kubernetes"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    packages = ["kubernetes-validate", "jsonschema", "dask-kubernetes"]
    install = [str(python), "-m", "pip", "install", "--quiet", *packages]
    if subprocess.run(install, capture_output=True, check=False).returncode != 0:
        return [_record({"skipped": f"{', '.join(packages)} can't be installed"}, held=None)]
    with tempfile.TemporaryDirectory() as folder:
        files = [WORKFLOWS / "kubernetes" / name for name in ("rights.yaml", "storage.yaml")]
        files.append(WORKFLOWS / "nightly.kubernetes.yaml")
        for index, manifest in enumerate(manifests()):
            path = Path(folder) / f"{index}.yaml"
            path.write_text(json.dumps(manifest))
            files.append(path)
        ended = subprocess.run(
            [str(python), str(SCHEMAS), *map(str, files)],
            capture_output=True,
            text=True,
            check=False,
        )
    said = {"checked": ended.stdout.splitlines(), "said": ended.stderr.strip()[-300:]}
    kopf = str(environment / "bin" / "kopf")
    stories = run_tests(
        "kubernetes", [sys.executable, STORIES], bench.folder, LATENTSCALE_KOPF=kopf
    )
    return [_record(said, held=ended.returncode == 0), *stories]


def jobs_on_a_gateway(bench: Bench) -> list[dict[str, Any]]:
    """Run jobs on a dask-gateway server, which is installed in an environment apart."""
    environment = bench.folder / "gateway"
    venv.create(environment, with_pip=True)
    package = "dask-gateway-server[local]"
    install = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", package]
    if subprocess.run(install, capture_output=True, check=False).returncode != 0:
        return [_record({"skipped": f"{package} can't be installed"}, held=None)]
    server = str(environment / "bin" / "dask-gateway-server")
    words = [sys.executable, "tests/acceptance/test_gateway.py"]
    return list(run_tests("gateway", words, bench.folder, LATENTSCALE_GATEWAY_SERVER=server))


def _record(figures: dict[str, Any], held: bool | None) -> dict[str, Any]:
    return {
        "promise": "manifests are what the schemas ask for",
        "figures": figures,
        "limit": "no unknown key, no wrong type",
        "held": held,
    }
