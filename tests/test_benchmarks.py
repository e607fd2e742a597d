"""The one command that runs all comparisons: turns, ratios, who is skipped, and what is written."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchmarks import simulation

from latentscale_pipeline.engine.stage import Stage

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"

SCRIPT = """
import sys, time
sys.path.insert(0, {folder!r})
from contest import take_part

def ours(inputs):
    time.sleep(0.02)
    return {{"sum": float(inputs["rows"].sum()), "scales": [1.0, 2.0], "versions": {{"a": "1"}}}}

def theirs(inputs):
    time.sleep(0.1)
    return {{"sum": float(inputs["rows"].sum()), "scales_given": len(inputs["scales"])}}

take_part({{"ours": ours, "theirs": theirs}}, lambda inputs: inputs)
"""


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("all")


@pytest.fixture
def comparison(everything: ModuleType, tmp_path: Path) -> object:
    """A comparison of three contestants that need no time to start, one of which isn't there."""
    path = tmp_path / "contestants.py"
    path.write_text(SCRIPT.format(folder=str(FOLDER)))
    script = ModuleType("contestants")
    script.__file__ = str(path)
    return everything.Comparison(
        "sums, of rows",
        script,
        {"ours": 20, "theirs": 10, "absent": 20},
        lambda n: {"rows": np.ones(n)},
        (10, 20),
        {"absent": everything.Peer("absent", "no_such_package", "absent==1")},
        handed_on=("scales",),
    )


def test_contestants_take_turns_and_are_compared(
    everything: ModuleType, comparison: object, tmp_path: Path
) -> None:
    found = everything.find_field(comparison, {})
    assert found.skipped == {"absent": "pip install absent==1"}
    sizes = list(everything.run(comparison, (10, 20), found, repeats=2, threads=1))
    assert [(size["rows"], list(size["contestants"])) for size in sizes] == [
        (10, ["ours", "theirs"]),
        (20, ["ours"]),
    ]
    ours, theirs = sizes[0]["contestants"].values()
    assert ours["sum"] == theirs["sum"] == 10
    assert "scales" not in ours
    assert theirs["scales_given"] == 2
    assert len(theirs["all_seconds"]) == 2
    assert theirs["times_ours"] == theirs["seconds"] / ours["seconds"] > 1.5
    record = {
        "started": "2026-01-02T03:04:05",
        "repeats": 2,
        "threads": 1,
        "machine": {"cores": 1},
        "load_before": 0.5,
        "comparisons": [{"name": "sums, of rows", "skipped": found.skipped, "sizes": sizes}],
    }
    everything.publish(record, tmp_path / "all.json")
    assert json.loads((tmp_path / "all.json").read_text()) == record
    table = (tmp_path / "all.md").read_text()
    assert "| sums, of rows | 20 | ours |" in table
    assert "absent was skipped (`pip install absent==1`)" in table
    ElementTree.parse(tmp_path / "all-sums-of-rows.svg")


def test_a_memory_that_a_contestant_measured_counts(everything: ModuleType) -> None:
    brief = everything.briefly({"peak_bytes": 1, "largest_process_bytes": 7, "lists": [1]})
    assert brief == {"peak_bytes": 7, "largest_process_bytes": 7}


def test_interpreters_are_named_by_peer(everything: ModuleType) -> None:
    assert everything.pythons_of(["msid=/a=b/python"]) == {"msid": "/a=b/python"}
    with pytest.raises(SystemExit, match="expected NAME=PYTHON"):
        everything.pythons_of(["msid"])


def test_every_contestant_exists(everything: ModuleType) -> None:
    for comparison in everything.COMPARISONS:
        script = comparison.script
        known = getattr(script, "BY_NAME", script.CONTESTANTS)
        assert set(comparison.contestants) <= set(known), comparison.name
        assert set(comparison.peers) <= set(comparison.contestants)
        first = next(iter(comparison.contestants))
        assert "latentscale" in first
        assert first not in comparison.peers


def test_routes_to_imd_agree(everything: ModuleType) -> None:
    imd = everything.imd
    inputs = imd.two_sets(300, 8, 3)
    ours, dense = imd.run_latentscale(inputs), imd.run_dense(inputs)
    # Twice as far as the interval's 95 % of the probes.
    assert abs(dense["imd"] - ours["imd"]) <= ours["upper"] - ours["lower"]


def test_the_command_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "all.py"), "--short", "--repeats", "1"]
    command += ["--only", "Vendi, cosine", "--output", str(tmp_path / "all.json")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "| Vendi, cosine | 400 | cosine latentscale |" in ended.stdout
    [found] = json.loads((tmp_path / "all.json").read_text())["comparisons"]
    for size in found["sizes"]:
        ours, numpy = (size["contestants"][f"cosine {name}"] for name in ("latentscale", "numpy"))
        assert ours["peak_bytes"] > 0
        assert numpy["times_ours"] == numpy["seconds"] / ours["seconds"]
    assert (tmp_path / "all-vendi-cosine.svg").exists()


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_whole_command_on_few_rows(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "all.py"), "--short", "--repeats", "1"]
    subprocess.run([*command, "--output", str(tmp_path / "all.json")], check=True)
    found = json.loads((tmp_path / "all.json").read_text())["comparisons"]
    assert len(found) == 7
    assert all(len(size["contestants"]) >= 1 for one in found for size in one["sizes"])


def test_a_simulated_job_takes_what_its_tasks_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "SPREAD", 0.0)
    work = simulation.place_cells  # any function of a stage
    parts = Stage("parts", work, 0, partitions=6, finalise=work)
    after = Stage("after", work, 0, needs=("parts",))
    moved = 1800 * simulation.WORKER_BANDWIDTH
    costs = {
        "parts": simulation.TaskCost(1800.0, moved, 1800.0),
        "after": simulation.TaskCost(900.0, 0.0, 0.0),
    }
    found = {
        workers: simulation.simulate([after, parts], costs, workers, 0.0, np.random.default_rng(0))
        for workers in (4, 8)
    }
    # Two rows of parts of an hour, or one; half an hour to join them; the stage after.
    assert (found[4]["hours"], found[8]["hours"]) == (2.75, 1.75)
    assert found[4]["utilisation"] == round((6 + 0.5 + 0.25) / 2.75 / 4, 3)
    assert found[4]["tasks"] == 8
    slow = simulation.simulate([parts, after], costs, 8, 600.0, np.random.default_rng(0))
    # The last of six parts is handed out after an hour.
    assert slow["hours"] == pytest.approx(1 + 1 + 2 / 6 + 0.75, abs=1e-3)
