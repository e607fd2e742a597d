"""A job that names no measures can be planned for a corpus of any size."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from latentscale_pipeline.cli import cli

GIBIBYTE = 2**30
MAX_TASKS, OBJECTS_PER_TASK, MAX_OBJECTS = 10**5, 8, 10**6


def header(path: Path, n: int, d: int) -> Path:
    """Write a file of the right length, whose rows are a hole in the disk."""
    with path.open("wb") as file:
        shape = {"descr": "<f2", "fortran_order": False, "shape": (n, d)}
        np.lib.format.write_array_header_1_0(file, shape)
        file.truncate(file.tell() + 2 * n * d)
    return path


SHORT = {(10**6, 1024, 0.1), (10**7, 384, None), (10**9, 64, 1.0), (10**9, 1024, 0.1)}
CELLS = [
    pytest.param(n, d, share, marks=[] if (n, d, share) in SHORT else [pytest.mark.full])
    for n in (10**6, 10**7, 10**8, 10**9)
    for d in (64, 384, 1024)
    for share in (None, 0.1, 1.0)
]


@pytest.mark.parametrize(("n", "d", "share"), CELLS)
def test_a_job_without_measures_is_planned(
    tmp_path: Path, n: int, d: int, share: float | None
) -> None:
    fields = {
        "name": "any-size",
        "corpus": str(header(tmp_path / "corpus.npy", n, d)),
        "output": str(tmp_path / "jobs"),
        "cluster": {"kind": "local", "workers": 2, "memory_limit": "4GiB"},
    }
    if share:
        fields["reference"] = str(header(tmp_path / "reference.npy", int(share * n), d))
    config = tmp_path / "job.yaml"
    config.write_text(json.dumps(fields))
    shown = CliRunner().invoke(cli, ["plan", str(config), "--json"])
    assert shown.exit_code == 0, shown.output
    plan = json.loads(shown.stdout)
    measured = {
        "duplicates",
        "projection",
        "heat",
        "magnitude",
        "vendi",
        *(["abundance", "geomca"] if share else []),
    }
    assert set(plan["config"]["measures"]) == measured
    for stage in plan["stages"]:
        assert stage["projected_memory_bytes"] <= 2 * GIBIBYTE, stage
        in_iteration = stage["tasks"] / stage.get("rounds", 1)
        assert in_iteration <= MAX_TASKS, stage
        assert in_iteration * OBJECTS_PER_TASK <= MAX_OBJECTS, stage
