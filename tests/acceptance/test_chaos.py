"""Processes killed in the middle of a job; `make test-full` does it to a longer one, more often."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.chaos import artifact, disturb
from tests.support.jobs import results_of, run_here, timeless

MEASURES = {
    "heat": {"times": {"count": 16}},
    "geomca": {},
    "magnitude": {"scales": 8},
    "vendi": {"orders": [1, 2]},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that ran in one process without being disturbed, and its data."""
    folder = tmp_path_factory.mktemp("chaos")
    generator = np.random.default_rng(30)
    centres = generator.normal(size=(8, 16)) * 3
    for role, n in (("corpus", 900), ("reference", 800)):
        rows = centres[generator.integers(8, size=n)] + generator.normal(size=(n, 16))
        np.save(folder / f"{role}.npy", rows.astype("f4"))
    run_here(configured(folder, "calm", {"kind": "serial"}))
    return folder


def configured(folder: Path, name: str, cluster: dict[str, object]) -> Path:
    config = folder / f"{name}.yaml"
    fields = {
        "name": "chaos",
        "corpus": str(folder / "corpus.npy"),
        "reference": str(folder / "reference.npy"),
        "output": str(folder / name),
        "measures": MEASURES,
        "sampling": {"method": "none"},
        "cluster": cluster,
    }
    config.write_text(json.dumps(fields))
    return config


@pytest.mark.parametrize(
    ("seed", "role", "workers"),
    [(31, "worker", 2), pytest.param(32, "driver", 1, marks=pytest.mark.full)],
)
def test_a_killed_process_costs_what_it_had_under_way(
    undisturbed: Path, seed: int, role: str, workers: int
) -> None:
    generator = np.random.default_rng(seed)
    name = f"disturbed-{role}"
    cluster = {"kind": "local", "workers": workers, "memory_limit": "1GiB"}
    config = configured(undisturbed, name, cluster)
    output = undisturbed / name
    parts = len(artifact(undisturbed / "calm"))
    wanted = int(generator.integers(1, parts // 2))
    found = disturb(
        config, output, [lambda _: len(artifact(output)) >= wanted], generator, roles=[role]
    )
    assert len(found.killed) == 1
    assert found.finished, found.said
    assert len(found.codes) == (2 if role == "driver" else 1)
    assert found.orphans == 0
    assert found.again == []
    assert found.retried <= workers
    assert timeless(results_of(output)) == timeless(results_of(undisturbed / "calm"))
