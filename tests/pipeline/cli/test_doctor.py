"""What is installed, and how to get what is missing."""

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from latentscale_pipeline.errors import how_to_install
from latentscale_pipeline.jobs import installation
from latentscale_pipeline.jobs.installation import Finding, examine_installation
from tests.conftest import Ended

Command = Callable[..., Ended]

PROGRAM = "from latentscale_pipeline.cli import main; main()"


def found() -> dict[str, Finding]:
    return {finding.part: finding for finding in examine_installation()}


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Pretend that some distributions aren't installed."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in missing:
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr("importlib.metadata.version", version)


def test_one_screen_and_exit_code_0(latentscale: Command) -> None:
    ended = latentscale("doctor")
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert lines[0].split("  ")[0] == "part"
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80


def test_programs_read_the_same(latentscale: Command) -> None:
    ended = latentscale("doctor", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["ok"]) == (0, True)
    assert [finding["part"] for finding in document["findings"]] == list(found())
    assert {finding["state"] for finding in document["findings"]} <= {"yes", "no"}


def test_what_every_job_needs_is_run() -> None:
    here = found()
    for name in installation.IMPORTED:
        version = importlib.metadata.version(name)
        assert here[name].found.split(",")[0] == version
    assert here["compiled code"] == Finding("compiled code", "yes", "a compiled function runs")
    assert "blas" in here["numpy"].found


def test_every_extra_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = importlib.metadata.metadata("latentscale").get_all("Provides-Extra") or []
    without(monkeypatch, "s3fs", "pyarrow")
    here = found()
    assert set(extras) - {"docs", "test"} <= set(here)
    assert here["s3"] == Finding("s3", "no", "s3fs missing", "pip install 'latentscale[s3]'")
    assert here["history"].remedy == how_to_install("history")
    assert here["hdf5"].found == f"h5py {importlib.metadata.version('h5py')}"


def test_schedulers_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    config = tmp_path / "secret-place"
    config.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(config))
    here = found()
    assert here["slurm"] == Finding("slurm", "yes", "sbatch is here")
    assert here["pbs"] == Finding("pbs", "no", "no qsub", "submit from a machine that has it")
    assert here["kubeconfig"] == Finding("kubeconfig", "yes", "a cluster is configured")


def test_a_missing_library_ends_with_2(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "xxhash")
    ended = latentscale("doctor")
    assert ended.code == 2
    assert ended.err == "latentscale: xxhash: not installed; pip install xxhash\n"
    assert "xxhash           broken  not installed; pip install xxhash" in ended.out


@pytest.mark.parametrize("library", ["numpy", "numba", "dask", "zarr"])
def test_a_broken_library_ends_with_2(library: str) -> None:
    broken = f"import sys; sys.modules['{library}'] = None; {PROGRAM}"
    ended = subprocess.run(
        [sys.executable, "-c", broken, "doctor"], capture_output=True, text=True, check=False
    )
    [line] = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert line.startswith(f"latentscale: {library}: can't be imported (")
    assert line.endswith(f"; pip install --force-reinstall {library}")
    assert "memory" in ended.stdout


def test_compiled_code_that_fails_or_is_wrong_ends_with_2(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(word: object) -> int:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("latentscale.tiles.top_lists.mixed", fails)
    ended = latentscale("doctor")
    assert ended.code == 2
    assert ended.err == (
        "latentscale: compiled code: fails (cannot cache function: no locator available); "
        "set NUMBA_CACHE_DIR to a folder that can be written\n"
    )
    monkeypatch.setattr("latentscale.tiles.top_lists.mixed", lambda word: 1)
    ended = latentscale("doctor")
    assert ended.code == 2
    assert ended.err.startswith("latentscale: compiled code: computes wrong numbers; pip install ")


def test_what_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: False)
    monkeypatch.setattr("tempfile.tempdir", "/proc/none")
    here = found()
    assert here["compiled cache"].remedy == "set NUMBA_CACHE_DIR to a folder that can be written"
    assert here["this folder"].remedy == "write elsewhere"
    assert here["temporary files"].state == "no"
