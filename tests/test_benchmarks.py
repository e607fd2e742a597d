"""The one command that runs all comparisons: turns, ratios, who is skipped, and what is written."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchmarks import shown, simulation

from latentscale_pipeline.engine.calibration import Rates
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.shared.neighbours.assign import check_block
from tests import ROOT

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
        "sum",
        lambda found, inputs: found["sum"] + 0 * inputs["rows"].sum(),
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
    assert theirs["times_ours"] == theirs["seconds"] / ours["seconds"]
    assert [one["found"] for one in sizes[0]["contestants"].values()] == [10, 10]


def test_a_memory_that_a_contestant_measured_counts(everything: ModuleType) -> None:
    brief = everything.briefly({"peak_bytes": 1, "largest_process_bytes": 7, "lists": [1]})
    assert brief == {"peak_bytes": 7, "largest_process_bytes": 7}


def test_the_finding_of_a_graph_is_its_recall(everything: ModuleType) -> None:
    rows = np.arange(40.0)[:, None] ** 2
    lists = [[1, 2, 3, 4, 5], [0, 2, 3, 4, 12]]
    inputs = {"rows": rows, "sample": np.array([0, 1])}
    assert everything.recall_of_neighbours({"lists": lists}, inputs) == 0.9


# --- what is shown ---------------------------------------------------------------------------


def one(seconds: float, ratio: float, version: str) -> dict[str, object]:
    return {
        "seconds": seconds,
        "times_ours": ratio,
        "warm_up_seconds": 1.0,
        "peak_bytes": 3 * 2**20,
        "found": 1 / 3,
        "versions": {"numpy": version},
    }


MADE = {
    "started": "2026-01-02T03:04:05",
    "repeats": 2,
    "threads": 1,
    "machine": {"cores": 4},
    "load_before": 0.52,
    "comparisons": [
        {
            "name": "sums, of rows",
            "finding": "sum",
            "skipped": {"absent": "pip install absent==1"},
            "sizes": [
                {"rows": 10, "contestants": {"ours": one(0.5, 1.0, "2"), "them": one(1, 2, "1")}},
                {"rows": 4000, "contestants": {"ours": one(2, 1.0, "2"), "them": one(9, 4.5, "1")}},
                {"rows": 20000, "contestants": {"them": one(1234.5, 1.0, "1")}},
            ],
        }
    ],
}


SIMULATED = {
    "started": "2026-01-02T03:04:05",
    "machine": {"cores": 4},
    "measured_rows": [1000, 3000],
    "scheduler_milliseconds_a_task": 6.0,
    "sizes": [
        {
            "rows": 1000,
            "clusters": [
                {
                    "workers": 10,
                    "hours": 1 / 3,
                    "worker_hours": 2.0,
                    "utilisation": 0.606,
                    "tasks": 2312,
                    "scheduler_busy": 0.0153,
                    "terabytes_moved": 0.16,
                    "store_gigabytes_a_second": 0.1,
                }
            ],
        }
    ],
}


DETECTED = {
    "failures": {
        "nothing": {"vendi: order 1": 0},
        "noise": {"vendi: order 1": 7, "vendi: order 2": 9, "duplicates: covered": 0},
    }
}


def test_tables_say_what_the_record_says() -> None:
    assert (
        shown.whole_table(shown.comparisons_of(MADE))
        == """\
## Sums, of rows

2026-01-02, medians of 2 runs in turn, 1 thread, 4 cores, load 0.5 before.

| rows | contestant | seconds | times ours | warm-up s | peak MiB | sum |
|---:|---|---:|---:|---:|---:|---:|
| 10 | ours | 0.5 | 1 | 1 | 3 | 0.333333 |
| 10 | them | 1 | 2 | 1 | 3 | 0.333333 |
| 4,000 | ours | 2 | 1 | 1 | 3 | 0.333333 |
| 4,000 | them | 9 | 4.5 | 1 | 3 | 0.333333 |
| 20,000 | them | 1234 |  | 1 | 3 | 0.333333 |

![Seconds and MiB over rows](figures/peers-sums-of-rows.svg)

Versions: numpy 1 and 2.

absent was skipped (`pip install absent==1`).
"""
    )
    assert (
        shown.brief_table(shown.comparisons_of(MADE))
        == """\
| | rows | latentscale | instead |
|---|---:|---:|---|
| sums, of rows | 4,000 | 2 s | them 9 s (4.5 ×) |"""
    )


def test_a_comparison_measured_later_says_so() -> None:
    [first] = shown.comparisons_of(MADE)
    later = {**first, "name": "other sums", "started": "2026-02-03"}
    how = "medians of 2 runs in turn, 1 thread, 4 cores, load 0.5 before."
    assert shown.how_all_measured([first, {**first, "name": "a"}, later]) == (
        f"2026-01-02, {how} Other sums: 2026-02-03, {how}"
    )


def test_pages_keep_their_words(tmp_path: Path) -> None:
    pages = ("README.md", "docs/peers.md", "docs/scale.md", "docs/choosing.md")
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    for page in pages:
        (tmp_path / page).write_text(f"before {shown.BEGIN} old {shown.END} after")
    shown.show(shown.comparisons_of(MADE), SIMULATED, DETECTED, tmp_path)
    readme, whole, scale, choosing = ((tmp_path / page).read_text() for page in pages)
    assert readme.startswith(f"before {shown.BEGIN}\n\n| | rows |")
    assert readme.endswith(f"load 0.5 before.\n\n{shown.END} after")
    assert "| 20,000 | them | 1234 |" in whole
    assert "2026-01-02, from jobs of 1,000 and 3,000 rows" in scale
    assert scale.endswith(
        f"---:|\n| 1,000 | 10 | 0.333 | 2 | 61% | 2,312 | 1.5% | 0.16 | 0.1 |\n\n{shown.END} after"
    )
    assert choosing.splitlines()[2].startswith("| what happened | rows | Vendi |")
    assert "| nothing | · | · |" in choosing
    assert "| noise | · | 9 |" in choosing
    ElementTree.parse(tmp_path / "docs" / "figures" / "peers-sums-of-rows.svg")


def test_pages_show_the_newest_record(everything: ModuleType) -> None:
    comparisons = shown.newest_comparisons()
    assert not any(comparison["short"] for comparison in comparisons)
    assert [one["name"] for one in comparisons] == [one.name for one in everything.COMPARISONS]
    page = (ROOT / "docs" / "peers.md").read_text("utf-8")
    assert shown.with_part(page, shown.whole_table(comparisons)) == page
    readme = (ROOT / "README.md").read_text("utf-8")
    assert shown.brief_table(comparisons) in readme
    assert shown.how_all_measured(comparisons) in readme
    simulation_record = shown.newest("simulation")
    assert {"started", "machine", "measured_rows"} <= set(simulation_record)
    simulated = shown.simulated_table(simulation_record)
    assert simulated in (ROOT / "docs" / "scale.md").read_text("utf-8")
    for comparison in comparisons:
        figure = ROOT / "docs" / "figures" / f"{shown.slug(comparison)}.svg"
        assert figure.read_text("utf-8") == shown.draw(comparison) + "\n"


def test_the_page_installs_every_peer(everything: ModuleType) -> None:
    page = (ROOT / "docs" / "peers.md").read_text("utf-8")
    for peer in {p.name: p for one in everything.COMPARISONS for p in one.peers.values()}.values():
        assert set(peer.install.split()) <= set(page.split()), peer.name
        assert f"--python {peer.name}=" in page


# --- the command -----------------------------------------------------------------------------


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
    assert "## Vendi, cosine\n" in ended.stdout
    assert "\n| 400 | cosine latentscale |" in ended.stdout
    [found] = json.loads((tmp_path / "all.json").read_text())["comparisons"]
    for size in found["sizes"]:
        ours, numpy = (size["contestants"][f"cosine {name}"] for name in ("latentscale", "numpy"))
        assert ours["peak_bytes"] > 0
        assert numpy["times_ours"] == numpy["seconds"] / ours["seconds"]
        assert numpy["found"] == pytest.approx(ours["found"], rel=1e-6)


SMALL = (
    "vendi.py cosine --rows 300 --repeats 1 --threads 1",
    "vendi.py rbf --rows 300 --repeats 1 --threads 1",
    "geomca.py --rows 200 --dimension 64 --repeats 1",
    "imd.py --rows 300 --repeats 1",
    "magnitude.py compare --rows 200 --repeats 1 --threads 1",
    "heat.py trace --vertices 3000",
    "ingest.py --gib 0.01 --repeats 1",
    "duplicates.py --rows 1000 --dimension 16 --repeats 1 --threads 1",
)
SMALL_BUT_SLOW = (
    "neighbours.py --rows 2000 --dimension 16",
    "magnitude.py scale --sizes 100,200",
    "heat.py graph --rows 2000",
    "tiles.py --repeats 1",
    "cluster.py --tasks 100",
    "simulation.py --rows 100000",
    "default_job.py --most-rows 200 --repeats 1 --only run,",
    "matrix.py --rows 100 --corpora 3 --timed 1 --dimension 8 --measures heat",
    "detection.py --rows 500 --tries 1 --processes 1",
)
"""Every command that a page names, on few rows."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command", [*SMALL, *(pytest.param(slow, marks=pytest.mark.full) for slow in SMALL_BUT_SLOW)]
)
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    script, *rest = command.split()
    output = tmp_path / "found.json"
    if script != "ingest.py":
        rest += ["--output", str(output)]
    # Threads are the command's own matter.
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_NUM_THREADS"}
    ended = subprocess.run(
        [sys.executable, str(FOLDER / script), *rest],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-500:]
    if script == "ingest.py":
        assert "median_rate_against_copy: " in ended.stdout
    else:
        assert json.loads(output.read_text("utf-8"))


def test_every_command_that_a_page_names_is_tried() -> None:
    page = (ROOT / "docs" / "measured.md").read_text("utf-8")
    named = re.findall(r"`python benchmarks/([\w.]+(?: [a-z]+)?)", page)
    assert len(named) >= 10
    for command in named:
        assert any(f"{tried} ".startswith(f"{command} ") for tried in (*SMALL, *SMALL_BUT_SLOW))


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


def test_costs_are_a_line_through_two_jobs() -> None:
    rates = Rates(
        float64_multiply_adds=1e9,
        float32_multiply_adds=1e9,
        elementwise_operations=1e9,
        read_bytes=1.0,
    )

    def stage(partitions: int, products: float, name: str = "s") -> Stage:
        cost_estimate = CostEstimate(float32_multiply_adds=products, bytes_read=1000)
        return Stage(
            name,
            check_block,
            0,
            partitions=partitions,
            finalise=check_block,
            cost_estimate=cost_estimate,
        )

    # Half a second for a part, and twice as long as the plan foresees; joins of 0.1 s for a part.
    small = {"check_block": simulation.Measured(3.0, 0.2, stage(2, 1e9))}
    large = {"check_block": simulation.Measured(9.0, 0.6, stage(6, 4e9))}
    [cost] = simulation.costs_of([stage(10, 1e11)], rates, small, large).values()
    assert cost.seconds == pytest.approx(0.5 + 2 * 10)
    assert cost.join_seconds == pytest.approx(1.0)
    assert cost.bytes == 100
    # A larger job that didn't take longer tells nothing apart.
    assert simulation.line_through([(1.0, 3.0), (2.0, 2.5)], 4) == (1.25, 0.0)
    assert simulation.line_through([(0.0, 3.0), (0.0, 2.0)], 4)[1] == 0.0
