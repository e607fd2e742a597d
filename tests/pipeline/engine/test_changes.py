"""Why stages and parts are computed: told in results, events and progress, across kills."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.engine.changes import changes
from latentscale_pipeline.engine.code_closure import code_closure
from latentscale_pipeline.engine.keys import (
    code_by_digest,
    library_versions,
    stage_dependencies,
)
from latentscale_pipeline.engine.stage import Stage
from tests.conftest import Ended
from tests.support import toy_stages as toy

Command = Callable[..., Ended]


def dependencies(fingerprint: str = "f", **fields: Any) -> dict[str, dict[str, Any]]:
    first: dict[str, Any] = {"name": "first", "work": toy.draw, "memory_bytes": 1, "seed": 0}
    first |= {"corpora": ("corpus",), "parameters": {"k": 5, "metric": "euclidean"}, **fields}
    stages = [Stage(**first), Stage("second", toy.after, 1, needs=("first",))]
    return stage_dependencies(stages, {"corpus": fingerprint})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"fingerprint": "g"}, "input (corpus)"),
        ({"seed": 1}, "configuration (seed 0 → 1)"),
        ({"parameters": {"k": 6, "metric": "euclidean"}}, "configuration (k 5 → 6)"),
        (
            {"parameters": {"k": 6, "metric": "cosine", "a": [1.5], "b": None}, "seed": 2},
            'configuration (k 5 → 6, metric "euclidean" → "cosine", a null → [1.5], 1 more)',
        ),
        (
            {"parameters": {"k": 5, "metric": "euclidean", "long": list(range(99))}},
            "configuration (long null → [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,1...)",
        ),
        (
            {"fingerprint": "g", "partitions": 2, "finalise": toy.add_up},
            "input (corpus), configuration (partitions 1 → 2)",
        ),
        ({"memory_bytes": 7}, ""),
    ],
)
def test_what_changed_is_named(changed: dict[str, Any], said: str) -> None:
    before, now = dependencies(), dependencies(**changed)
    assert changes(before["first"], now["first"]) == said
    upstream = "stage first" if said else ""
    assert changes(before["second"], now["second"]) == upstream


def change_code(monkeypatch: pytest.MonkeyPatch, *changed: str) -> None:
    """Let some modules have other code."""
    monkeypatch.setattr(
        "latentscale_pipeline.engine.keys.code_closure",
        lambda modules: {**code_closure(modules), **dict.fromkeys(changed, "other")},
    )


def test_changed_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dependencies()
    known = code_by_digest([Stage("first", toy.draw, 1)])
    change_code(monkeypatch, *(f"latentscale.{name}" for name in "abcde"))
    now = dependencies()
    assert [changes(before[name], now[name]) for name in now] == ["code", "code"]
    known |= code_by_digest([Stage("first", toy.draw, 1)])
    assert changes(before["first"], now["first"], known) == (
        "code (latentscale.a, latentscale.b, latentscale.c, 2 more)"
    )


def test_a_changed_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dependencies()
    versions = {**library_versions(), "numpy": "9.9"}
    monkeypatch.setattr("latentscale_pipeline.engine.keys.library_versions", lambda: versions)
    now = dependencies()
    said = f"numpy {np.__version__} → 9.9"
    assert [changes(before[name], now[name]) for name in now] == [said, said]


def test_stored_plans_may_hold_anything() -> None:
    now = dependencies()["second"]
    for stored in ({}, {"corpora": [], "parameters": 3, "needs": None}):
        assert changes(stored, now).startswith("code, configuration (")


@pytest.fixture
def small_job(tmp_path: Path) -> Path:
    for name, seed in (("corpus", 1), ("other", 2)):
        rows = np.random.default_rng(seed).normal(size=(60, 5))
        np.save(tmp_path / f"{name}.npy", rows.astype("f4"))
    config = tmp_path / "job.yaml"
    job = {
        "name": "small",
        "corpus": str(tmp_path / "corpus.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"heat": {"times": {"count": 4}}, "vendi": {"kernels": ["cosine"]}},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(job))
    return config


def reasons(ended: Ended) -> dict[str, str]:
    assert ended.code == 0, ended.err
    return {timing["stage"]: timing["reason"] for timing in json.loads(ended.out)["timings"]}


def test_a_job_says_what_changed_since_the_last_of_its_name(
    small_job: Path, latentscale: Command, tmp_path: Path
) -> None:
    run = ("run", small_job, "--json", "--verbose")
    assert set(reasons(latentscale(*run)).values()) == {"computed"}
    [first] = (tmp_path / "jobs").glob("small-*")
    ended = latentscale(*run, "-o", "measures.heat.steps=11")
    found = reasons(ended)
    assert found.pop("heat-corpus") == (
        f"computed: configuration (steps 10 → 11) changed since {first.name}"
    )
    assert found.pop("graph-corpus") == "computed", "only its description outlives a job"
    assert set(found.values()) == {f"reused from {first.name}"}
    assert "heat-corpus: queued, tasks: 1; computed: configuration (steps 10 → 11)" in ended.err
    found = reasons(latentscale(*run, "-o", f"corpus={tmp_path / 'other.npy'}"))
    assert found["neighbours-corpus"].startswith("computed: input (corpus) changed since small-")
    assert found["graph-corpus"].startswith(
        "computed: stage neighbours-corpus changed since small-"
    )
    # A job of another name isn't what this one is measured by.
    found = reasons(latentscale(*run, "-o", "name=new", "-o", "measures.heat.k=4"))
    assert found["neighbours-corpus"] == "computed"


def test_changed_code_is_told_even_after_a_kill(
    small_job: Path, latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("run", small_job, "--json", "--verbose")
    reasons(latentscale(*run))
    change_code(monkeypatch, "latentscale.estimate")

    def interrupt(inputs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("latentscale_pipeline.engine.task._work", lambda task: interrupt)
        assert latentscale(*run).code == 3
    found = reasons(latentscale(*run))
    why = "computed: code (latentscale.estimate) changed since the last run"
    assert set(found.values()) == {why}
    assert set(reasons(latentscale(*run)).values()) == set(found.values()), "as it was finished"
    [folder] = (tmp_path / "jobs").glob("small-*")
    events = [
        json.loads(line)
        for log in (folder / "events").glob("*.jsonl")
        for line in log.read_text().splitlines()
    ]
    told = [event["reason"] for event in events if event["event"] == "part_done"]
    assert set(told) == {"computed", why}
