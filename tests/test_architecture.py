"""The direction of imports is a contract, and breaking it is noticed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    environment = {"PYTHONPATH": f"{root / 'src'}:{root / 'pipeline'}", "PATH": "", "COLUMNS": "99"}
    arguments = ["--config", str(root / "pyproject.toml"), "--no-cache"]
    return subprocess.run(
        [*command, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for part in ("src", "pipeline"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        (None, "", None),
        (
            "src/latentscale/vendi.py",
            "import zarr",
            "Mathematics knows nothing of how it is run",
        ),
        (
            "src/latentscale/heat.py",
            "import latentscale_pipeline.errors",
            "Mathematics knows nothing of how it is run",
        ),
        (
            "pipeline/latentscale_pipeline/run.py",
            "import zarr",
            "Only the corpus format knows Zarr",
        ),
        (
            "pipeline/latentscale_pipeline/engine/run.py",
            "import distributed",
            "Only clusters know the distributed scheduler",
        ),
        (
            "pipeline/latentscale_pipeline/stages/heat.py",
            "import latentscale_pipeline.stages.vendi",
            "Stages are independent of each other",
        ),
        (
            "pipeline/latentscale_pipeline/job/lock.py",
            "import latentscale_pipeline.engine.run",
            "From commands down to objects",
        ),
        (
            "pipeline/latentscale_pipeline/summary.py",
            "import latentscale_pipeline.job.lock",
            "The summary and the report read results only",
        ),
        (
            "pipeline/latentscale_pipeline/comparison/compare.py",
            "import latentscale_pipeline.stages",
            "A comparison reads finished jobs only",
        ),
        (
            "pipeline/latentscale_pipeline/history/registry.py",
            "import latentscale_pipeline.run",
            "A comparison reads finished jobs only",
        ),
    ],
)
def test_contracts_fail_when_broken(
    copy: Path, module: str | None, line: str, contract: str | None
) -> None:
    if module is not None:
        path = copy / module
        path.write_text(path.read_text("utf-8") + f"\n{line}\n", "utf-8")
    ended = lint(copy)
    report = " ".join(ended.stdout.split())
    assert (ended.returncode == 0) == (contract is None), ended.stdout + ended.stderr
    if contract is not None:
        assert any(contract in part for part in report.split("Broken contracts")[-1:]), ended.stdout
