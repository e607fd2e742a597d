"""A folder in which the recipes of ``workflows/`` are run: theirs, a corpus, a small job."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import yaml

from tests import ROOT

RECIPES = ROOT / "workflows"
LATENTSCALE = Path(sys.executable).with_name("latentscale")

CLUSTERS, ROWS, DIMENSIONS = 9, 270, 24

Found = TypeVar("Found")


def corpus(path: Path, seed: int, clusters: int) -> None:
    """Write rows of equally many points in some of the clusters that all corpora share."""
    centres = 5.0 * np.random.default_rng(0).normal(size=(CLUSTERS, DIMENSIONS))
    generator = np.random.default_rng(seed)
    near = centres[np.arange(ROWS) % clusters]
    np.save(path, (near + 0.3 * generator.normal(size=near.shape)).astype("f4"))


def make_place(folder: Path) -> Path:
    """Lay out a folder as the recipes find it: their own, and today's corpus."""
    shutil.copytree(RECIPES, folder / "workflows")
    recipe = yaml.safe_load((RECIPES / "nightly.yaml").read_text())
    recipe["job"]["cluster"] = {"kind": "serial"}
    recipe["job"]["measures"] = {"vendi": {"kernels": ["cosine"], "orders": [1]}}
    recipe["gates"] = [gate for gate in recipe["gates"] if gate.get("kernel") == "cosine"]
    (folder / "workflows/nightly.yaml").write_text(yaml.safe_dump(recipe))
    (folder / "data").mkdir()
    corpus(folder / "data/today.npy", 1, CLUSTERS)
    return folder


def registered(place: Path) -> list[Path]:
    """Return the evaluations in the history, in the order of their names."""
    return sorted(place.glob("history/entries/*.parquet"))


def lost_clusters(message: str) -> bool:
    """Whether a message says which score fell, by how much, and what was allowed."""
    found = re.search(
        r"gate failed: vendi cosine, order 1 \(corpus\) fell by (\d+(?:\.\d+)?) %"
        r".*max_drop allows 10 %",
        message,
    )
    return found is not None and 25 < float(found[1]) < 40


def wait_for(what: str, found: Callable[[], Found], seconds: float) -> Found:
    """Return what a function finds, as soon as it finds anything."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.5)
    raise AssertionError(f"{what}: nothing after {seconds} s")
