"""Folders that are closed to this user: every command says so, and names the folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

OVERRIDES = "-dac_override,-dac_read_search"
"""The capabilities with which root opens what is closed to others."""

MANY = """
import contextlib, io, json, sys
from latentscale_pipeline.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["latentscale", *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        try:
            main()
        except SystemExit as ending:
            code = ending.code
    print(json.dumps([code, said.getvalue()]))
"""


def as_ordinary_user(commands: list[list[str]]) -> list[tuple[int, str]]:
    """Run commands in one process that has no more rights than others; return how each ended."""
    command = [sys.executable, "-c", MANY, json.dumps(commands)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv, or an ordinary user")
        drop = ["setpriv", "--bounding-set", OVERRIDES, "--inh-caps", OVERRIDES]
        command = [*drop, *command]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]


def test_a_closed_folder_is_named(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4)).astype("f4")
    closed, inner, jobs = tmp_path / "closed", tmp_path / "open" / "inner", tmp_path / "jobs"
    for folder in (closed, inner, jobs / "night-0a1b2c3d", jobs / "corpora"):
        folder.mkdir(parents=True)
        np.save(folder / "rows.npy", rows)
    np.save(tmp_path / "rows.npy", rows)
    job = jobs / "night-0a1b2c3d"
    wanted = {
        ("run", closed): closed,
        ("plan", closed / "rows.npy"): closed / "rows.npy",
        ("ingest", inner.parent, tmp_path / "new.zarr"): inner,
        ("run", tmp_path / "rows.npy", "--reference", closed / "rows.npy"): closed / "rows.npy",
        ("matrix", tmp_path / "rows.npy", f"other={closed}/rows.npy"): closed / "rows.npy",
        ("verify", job): job,
        ("status", job): job,
    }
    for folder in (closed, inner, job):
        folder.chmod(0)
    try:
        ended = as_ordinary_user([[*map(str, given)] for given in [*wanted, ("list", jobs)]])
    finally:
        for folder in (closed, inner, job):
            folder.chmod(0o755)
    for (code, said), (given, place) in zip(ended, wanted.items(), strict=False):
        assert (code, len(said.splitlines())) == (2, 1), (given, said)
        assert f"{place}: permission denied; change its permissions" in said, given
    code, said = ended[-1]
    assert code == 0
    assert said.splitlines()[0] == f"{job}: permission denied; change its permissions"
