"""A flipped byte anywhere in a job: found, named, and only its part computed again."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import StageState, inspect_stages
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.jobs.collect import assemble_results
from latentscale_pipeline.jobs.inventory import write_inventory
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.jobs.run import run_job
from latentscale_pipeline.jobs.verification import verify_job
from latentscale_pipeline.measures.vendi.sampling_error import leave_out_rows
from latentscale_pipeline.storage.artifacts import Artifact, need_marker
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.pipeline.engine.test_loop import Events, make_work
from tests.support import toy_stages as toy
from tests.support.jobs import timeless

MEASURES = {
    "heat": {"times": {"count": 8}},
    "geomca": {},
    "magnitude": {"scales": 5},
    "vendi": {
        "kernels": ["cosine", {"name": "rbf"}, {"name": "laplacian", "bandwidth": 2.0}],
        "orders": [1, 2],
    },
}
"""All of them, every kind of stage among theirs."""


@dataclass(frozen=True)
class Job:
    """A finished job and what it takes to work on it again."""

    work: Work
    results: dict[str, Any]
    config: Path

    @property
    def store(self) -> ObjectStore:
        return self.work.store

    def parts(self, stage: str) -> list[Artifact]:
        """What a stage published, its own result last; of an iterated stage nothing else."""
        folder = f"stages/{stage}/{self.work.keys[stage]}"
        ending = "/result.json" if of(self, stage).advance else ".json"
        keys = [key for key in self.store.keys(folder) if key.endswith(ending)]
        return [need_marker(self.store, key.removesuffix(".json")) for key in keys]

    def contents(self) -> dict[str, Any]:
        """What every part of the job holds: values, and checksums of arrays."""
        return {
            part.part: (
                {name: value for name, value in part.values.items() if name != "spent"},
                {name: described["xxh3"] for name, described in part.objects.items()},
            )
            for stage in self.work.stages
            for part in self.parts(stage.name)
        }

    def run(self, *, thorough: bool) -> tuple[Events, dict[str, StageState]]:
        events = Events()
        stage_states = inspect_stages(self.work, thorough=thorough)
        run_stages(self.work, stage_states, ThreadExecutor, "again", events)
        write_inventory(self.store)  # as a run does in the end
        return events, {stage_state.stage.name: stage_state for stage_state in stage_states}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A small job of all measures, none of it collected; neighbours are found in three parts."""
    folder = tmp_path_factory.mktemp("damage")
    generator = np.random.default_rng(8)
    centres = generator.normal(size=(5, 10)) * 3
    for role, n in (("corpus", 120), ("reference", 110)):
        rows = centres[generator.integers(5, size=n)] + generator.normal(size=(n, 10))
        np.save(folder / f"{role}.npy", rows.astype("f4"))
    config = folder / "job.yaml"
    config.write_text(
        json.dumps(
            {
                "name": "damage",
                "corpus": str(folder / "corpus.npy"),
                "reference": str(folder / "reference.npy"),
                "output": str(folder / "jobs"),
                "measures": MEASURES,
                "cluster": {"kind": "serial"},
            }
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("latentscale_pipeline.measures.shared.neighbours.exact.QUERY_ROWS", 45)
        read = read_config(
            config.read_text(),
            "job",
            measures=measure_sections(),
        )
        plan = make_plan(read)
        finished = run_job(plan, Events(), keep=True)
        corpora = {str(role): corpus for role, corpus in plan.corpora.items()}
        work = Work(finished.store, plan.stages, plan.keys, corpora, keep=True)
        yield Job(work, finished.results.document(), config)


def flip(store: ObjectStore, key: str, generator: np.random.Generator) -> None:
    data = bytearray(store.read(key))
    data[int(generator.integers(len(data)))] ^= 1 << int(generator.integers(8))
    store.write(key, bytes(data))


def test_every_measure_and_kind_of_stage_is_there(job: Job) -> None:
    stages = {stage.name for stage in job.work.stages}
    kinds = {
        "hashes",
        "duplicates",
        "neighbours",
        "graph",
        "heat",
        "sparsify",
        "convergence",
        "magnitude",
    }
    for role in ("corpus", "reference"):
        assert {f"{kind}-{role}" for kind in kinds} <= stages
        assert {f"vendi-{k}-{role}" for k in ("cosine", "rbf-median", "laplacian-2.0")} <= stages
    assert {"imd", "epsilon", "geomca", "magnitude-difference", "bandwidth"} <= stages
    assert len(job.parts("neighbours-corpus")) == 4


def test_each_flipped_byte_costs_one_part(job: Job) -> None:
    """In turn: one array of every part, or its marker when it has none."""
    generator = np.random.default_rng(3)
    before = job.contents()
    for stage in job.work.stages:
        if stage.temporary == "result":
            continue  # all that read it are done
        for part in job.parts(stage.name):
            objects = list(part.objects)
            name = str(generator.choice(objects)) if objects else None
            key = part.path(name) if name else f"{part.part}.json"
            flip(job.store, key, generator)
            problems = verify_job(job.store).problems
            assert len(problems) == 1
            assert problems[0].startswith(job.store.locate(key))
            events, stage_states = job.run(thorough=True)
            done = [fields for event, fields in events if event == "part_done"]
            assert {fields["stage"] for fields in done} == {stage.name}, key
            inside = part.part.rpartition("/")[2]
            assert f"recomputed: {inside}" in stage_states[stage.name].reason
            if not stage.advance:  # that costs a round
                assert len(done) == 1
                assert f"recomputed: {inside}" in done[0]["reason"]
            assert job.contents() == before, key
            assert verify_job(job.store).problems == ()


def test_no_reader_is_deceived(job: Job) -> None:
    """In turn: all arrays of a part, while those that read it have yet to be computed."""
    generator = np.random.default_rng(4)
    before = job.contents()
    noticed = set()
    for stage in job.work.stages:
        others = {other.name for other in job.work.stages if stage.name in other.needs}
        for key in [part.part for part in job.parts(stage.name)]:
            part = need_marker(job.store, key)
            lasting = stage.lasting_parts and not key.endswith("/result")
            readers = others if lasting or key.endswith("/result") else {stage.name}
            if not part.objects or not readers:
                continue
            for name in part.objects:
                flip(job.store, part.path(name), generator)
            for reader in readers:
                for own in job.parts(reader) if lasting else []:
                    job.store.remove(f"{own.part}.json")
                job.store.remove(f"stages/{reader}/{job.work.keys[reader]}/result.json")
            events, stage_states = job.run(thorough=False)
            corrupt = [fields for event, fields in events if event == "part_corrupt"]
            if corrupt:
                noticed.add(stage.name)
                assert "differs from its checksum" in corrupt[0]["problem"]
                assert "differs from its checksum" in stage_states[stage.name].reason
            done = [fields for event, fields in events if event == "part_done"]
            redone = {stage.name} if corrupt else set()
            assert {fields["stage"] for fields in done} == redone | readers
            if not stage.advance:
                again = [fields["stage"] for fields in done if "recomputed" in fields["reason"]]
                assert again == [stage.name] * len(corrupt)
            assert job.contents() == before
            job.run(thorough=True)
    # The sampling errors of Vendi scores need the scores alone, not the arrays beside them.
    reading = [stage for stage in job.work.stages if stage.work is not leave_out_rows]
    read = {name for stage in reading for name in stage.needs if has_arrays(job, name)}
    assert noticed >= read
    assert {f"hashes-{role}" for role in ("corpus", "reference")} <= noticed


def has_arrays(job: Job, stage: str) -> bool:
    return bool(job.parts(stage)[-1].objects)


def test_a_finished_job_is_verified_and_mended(job: Job, latentscale: Callable[..., Ended]) -> None:
    folder = job.store.url
    ended = latentscale("verify", folder)
    assert ended.code == 0
    assert ended.out.startswith(f"{folder}: ")
    assert ended.out.endswith("all intact\n")
    trace = job.parts("heat-corpus")[-1].path("trace")
    flip(job.store, trace, np.random.default_rng(5))
    graph = Path(folder, job.parts("graph-reference")[-1].path("indptr"))
    graph.unlink()
    config = Path(folder, "config.json")
    size = config.stat().st_size
    config.write_text("{")
    report = Path(folder, "report.html")
    report.unlink()
    ended = latentscale("verify", folder)
    assert ended.code == 3
    assert sorted(ended.out.splitlines()) == sorted(
        [
            f"{folder}/{trace} differs from its checksum",
            f"{graph} is missing",
            f"{config} has 1 bytes, not {size}",
            f"{report} is missing",
        ]
    )
    files = json.loads(latentscale("verify", folder, "--json").out)["files"]
    assert ended.err.splitlines()[-1] == (
        f"latentscale: {folder}: 4 of {files} files are bad; run the job again with --verify to "
        "compute just these parts again"
    )
    ended = latentscale("run", job.config, "--keep", "--verify", "--json")
    assert ended.code == 0, ended.err
    results = json.loads(ended.out)
    assert timeless(results) == timeless(job.results)
    reasons = {timing["stage"]: timing["reason"] for timing in results["timings"]}
    assert "trace.npy differs from its checksum" in reasons.pop("heat-corpus")
    assert "indptr.npy is missing" in reasons.pop("graph-reference")
    assert set(reasons.values()) == {"already done"}
    assert latentscale("verify", folder).code == 0
    ended = latentscale("run", job.config, "--keep", "--verify")
    assert "nothing had to be computed" in ended.out


def test_of_a_finished_iterated_stage_the_result_counts(tmp_path: Path) -> None:
    stage = toy.iterated()
    work = replace(make_work(tmp_path, [stage]), keep=True)
    run_stages(work, inspect_stages(work), ThreadExecutor, "run", Events())
    key = work.keys[stage.name]
    planned = {"stage": stage.name, "key": key, "partitions": 3, "depends_on": {"iterated": True}}
    work.store.write("plan.json", json.dumps({"stages": [planned]}).encode())
    for name in ("config.json", "results.json", "report.html"):
        work.store.write(name, b"{}")
    generator = np.random.default_rng(6)
    stored = work.store.keys(work.folder(stage))
    [state] = [name for name in stored if name.endswith("state.json")]
    flip(work.store, state, generator)
    assert verify_job(work.store).problems == ()
    flip(work.store, work.result(stage).path("numbers"), generator)
    [problem] = verify_job(work.store).problems
    assert problem.endswith("/numbers.npy differs from its checksum")
    events = Events()
    run_stages(work, inspect_stages(work, thorough=True), ThreadExecutor, "again", events)
    assert verify_job(work.store).problems == ()
    assert events.computed() == {"halve": 21}, "without a state to go on from, all of it"


def test_damage_that_comes_back_is_told(
    job: Job, latentscale: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every time that a trace was computed, and read by all that need it, it is damaged again."""
    before = job.contents()
    folder = Path(job.store.url)

    def flip_traces(plan: Any, work: Work, *rest: Any, **times: Any) -> Any:
        key = need_marker(work.store, f"{work.folder(of(job, 'heat-corpus'))}/result").path("trace")
        flip(work.store, key, np.random.default_rng(1))
        return assemble_results(plan, work, *rest, **times)

    (folder / "results.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("latentscale_pipeline.jobs.run.assemble_results", flip_traces)
        ended = latentscale("run", job.config, "--keep")
    assert ended.code == 3
    line = ended.err.splitlines()[-1]
    assert line.startswith(f"latentscale: {folder}/stages/heat-corpus/")
    assert line.endswith(
        "/trace.npy differs from its checksum; check this disk, then run the same command again"
    )
    assert ended.err.count("recomputed: result.") >= 2
    assert latentscale("run", job.config, "--keep").code == 0
    assert job.contents() == before


def test_a_plan_that_can_not_be_read_is_told(job: Job, latentscale: Callable[..., Ended]) -> None:
    plan = Path(job.store.url, "plan.json")
    whole = plan.read_text()
    hostile = json.loads(whole)
    hostile["stages"][0]["stage"] = "../../elsewhere"
    plan.write_text("{")
    ended = latentscale("verify", job.store.url)
    assert ended.code == 3
    assert ended.out == f"{plan} has 1 bytes, not {len(whole)}\n"
    # Without the inventory, nothing can be checked without the plan.
    inventory = Path(job.store.url, "inventory.json")
    listed = inventory.read_text()
    inventory.unlink()
    for content, message in (
        ("{", "not the plan of a job; run the job again to rewrite it"),
        (json.dumps(hostile), "'../../elsewhere' isn't the name of a stage"),
    ):
        plan.write_text(content)
        ended = latentscale("verify", job.store.url)
        assert ended.code == 2
        assert ended.err.splitlines()[-1] == f"latentscale: {plan}: {message}"
    plan.write_text(whole)
    inventory.write_text(listed)


def of(job: Job, name: str) -> Stage:
    return next(stage for stage in job.work.stages if stage.name == name)
