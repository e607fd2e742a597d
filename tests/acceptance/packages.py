"""Wheel and source archive in clean environments; run by ``make test-full`` as ``packages``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import ROOT
from tests.acceptance.recipes import Trial, environment, try_in_environment

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

README = "tests/test_documents.py"


def packages_in_clean_environments(bench: Bench) -> list[dict[str, Any]]:
    """Build wheel and source archive, and do in an environment of each what the README says."""
    built = bench.folder / "built"
    python = environment(["build"], bench.folder / "build")
    command = [str(python or sys.executable), "-m", "build", "--outdir", str(built), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return [
        entry
        for kind, pattern in (("wheel", "*.whl"), ("source archive", "*.tar.gz"))
        for entry in try_in_environment(_trial(kind, built, pattern), bench.folder / kind)
    ]


def _trial(kind: str, built: Path, pattern: str) -> Trial:
    [package] = built.glob(pattern)
    return Trial(
        *(kind, README, "the_readme_does_what_it_says"),
        (f"latentscale[parquet,hpc] @ {package.as_uri()}", "jsonschema"),
    )
