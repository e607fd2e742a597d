"""A job computed stage by stage, by processes that share only files, gives the serial numbers."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.executors.stepwise import (
    Share,
    finalise_stage,
    init_stage,
    work_on_stage,
)
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.storage.lock import hold_lock
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.pipeline.engine.test_loop import Events, make_work
from tests.support import toy_stages as toy
from tests.support.jobs import command_line, damage, results_of, timeless

Command = Callable[..., Ended]


def artifact(folder: Path) -> dict[str, Any]:
    """What every marker and array says, without attempts and costs."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.json")):
        marker = json.loads(path.read_text())
        if "objects" in marker:
            key = str(path.relative_to(folder))
            values = {k: v for k, v in marker["values"].items() if k != "spent"}
            sums = {name: made["xxh3"] for name, made in marker["objects"].items()}
            found[key] = (values, sums)
    return found


def by_hand(work: Any, stage: Any, processes: int) -> int:
    """Compute a stage by so many processes a round; return how many rounds it took."""
    iterations = 0
    while not init_stage(work, stage, f"begin-{iterations}").done:
        for number in range(1, processes + 1):
            work_on_stage(work, stage, Share(number, processes), f"work-{iterations}-{number}")
        finalise_stage(work, stage, f"combine-{iterations}")
        iterations += 1
    return iterations


@pytest.mark.parametrize("processes", [1, 3, 9])
def test_toy_stages_by_hand_are_those_of_a_run(tmp_path: Path, processes: int) -> None:
    stages = [*toy.chain(), toy.iterated(), toy.passing()]
    run = make_work(tmp_path / "run", stages)
    run_stages(run, inspect_stages(run), ThreadExecutor, "run", Events())
    hand = make_work(tmp_path / "hand", stages)
    iterations = {stage.name: by_hand(hand, stage, processes) for stage in stages}
    assert artifact(tmp_path / "hand") == artifact(tmp_path / "run")
    assert iterations[toy.iterated().name] == 5
    assert all(iterations[stage.name] == 1 for stage in stages if stage.advance is None)
    assert all(stage_state.done for stage_state in inspect_stages(hand))


def test_an_iterated_stage_is_initialised_before_it_goes_on(tmp_path: Path) -> None:
    work = make_work(tmp_path, [toy.iterated()])
    for step in (
        lambda stage: work_on_stage(work, stage, Share(), "a"),
        lambda stage: finalise_stage(work, stage, "b"),
    ):
        with pytest.raises(BadInput, match="halve hasn't begun; run latentscale stage init first"):
            step(work.stages[0])


def test_what_is_missing_or_damaged_is_said_and_computed_again(tmp_path: Path) -> None:
    work = make_work(tmp_path, toy.chain())
    draw, square = work.stages[0], work.stages[1]
    with pytest.raises(Incomplete, match="stage square needs draw, which isn't done yet"):
        init_stage(work, square, "a")
    init_stage(work, draw, "a")
    work_on_stage(work, draw, Share(1, 2), "b")
    with pytest.raises(Incomplete, match="missing parts of 4: 2, 4;"):
        finalise_stage(work, draw, "c")
    work_on_stage(work, draw, Share(2, 2), "d")
    assert work_on_stage(work, draw, Share(2, 2), "e") == 0, "what is there isn't computed again"
    [array] = (tmp_path / draw.folder).rglob("part-00001.*/numbers.npy")
    damage(array, "flipped", at=300)
    with pytest.raises(Incomplete, match="differs from its checksum; it was withdrawn"):
        finalise_stage(work, draw, "f")
    assert by_hand(work, draw, 2) == 1
    damage(next((tmp_path / draw.folder).rglob("part-00002.*/numbers.npy")), "missing")
    assert work_on_stage(work, draw, Share(), "g") == 1, "its marker alone doesn't make a part"
    assert finalise_stage(work, draw, "h").done


def test_a_part_that_fails_leaves_the_others(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    failing = toy.one("failing", toy.fail_until_allowed, allowed=str(allowed))
    work = make_work(tmp_path / "job", [failing])
    init_stage(work, failing, "a")
    with pytest.raises(Incomplete, match=r"stage failing: RuntimeError: not today \(log: .*log\)"):
        work_on_stage(work, failing, Share(), "b")
    allowed.touch()
    assert by_hand(work, failing, 1) == 1


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    generator = np.random.default_rng(3)
    for role, n in (("corpus", 150), ("reference", 120)):
        np.save(tmp_path / f"{role}.npy", generator.normal(size=(n, 4)).astype("f4"))

    def write(output: str) -> Path:
        path = tmp_path / f"{output}.yaml"
        path.write_text(
            json.dumps(
                {
                    "name": "by hand",
                    "corpus": str(tmp_path / "corpus.npy"),
                    "reference": str(tmp_path / "reference.npy"),
                    "output": str(tmp_path / output),
                    "measures": {"geomca": {}, "vendi": {"kernels": ["cosine"]}},
                    "sampling": {"method": "none"},
                    "cluster": {"kind": "serial"},
                }
            )
        )
        return path

    return write


def test_a_whole_job_by_hand_gives_the_serial_numbers(
    config: Callable[[str], Path], tmp_path: Path, latentscale: Command
) -> None:
    assert latentscale("run", config("serial"), "--quiet").code == 0
    prepared = latentscale("stage", "prepare", config("hand"))
    assert prepared.code == 0, prepared.err
    job = prepared.out.strip()
    names = latentscale("stage", "list", job).out.split()
    short = latentscale("stage", "list", job.rpartition("-")[0])
    assert short.out.split() == names, short.err
    for name in names:
        while (begun := latentscale("stage", "init", job, name)).out.strip() != "0":
            assert begun.code == 0, begun.err
            if name == names[-1]:
                # What an array does: processes of their own, at the same time.
                shares = ["work", job, name, "--partition"]
                array = [
                    subprocess.Popen(command_line("stage", *shares, f"{i}/2"), stderr=-3)
                    for i in (1, 2)
                ]
                assert [process.wait() for process in array] == [0, 0]
            else:
                assert latentscale("stage", "work", job, name).code == 0
            ended = latentscale("stage", "finalise", job, name)
            assert ended.code == 0, ended.err
    ended = latentscale("resume", job, "--quiet")
    assert ended.code == 0, ended.err
    assert timeless(results_of(tmp_path / "hand")) == timeless(results_of(tmp_path / "serial"))
    markers = artifact(tmp_path / "hand")
    assert markers
    assert markers.keys() == artifact(tmp_path / "serial").keys()


def test_refusals_in_one_line(
    config: Callable[[str], Path], latentscale: Command, tmp_path: Path
) -> None:
    job = latentscale("stage", "prepare", config("jobs")).out.strip()
    unknown = latentscale("stage", "init", job, "heat")
    assert unknown.code == 2
    assert "unknown stage; the stages are" in unknown.err
    logged = latentscale("logs", job)
    assert (logged.code, logged.out) == (0, "")
    assert "no run of this job has begun; latentscale status shows which" in logged.err
    for share in ("0/3", "4/3", "3", "a/b"):
        ended = latentscale("stage", "work", job, "duplicates-corpus", "--partition", share)
        assert ended.code == 2
        assert f"--partition {share}" in ended.err
    assert latentscale("stage", "init", job, "hashes-corpus").code == 0
    assert latentscale("stage", "work", job, "hashes-corpus").code == 0
    for step in ("work", "finalise"):
        ended = latentscale("stage", step, job, "duplicates-corpus")
        assert ended.code == 3
        assert "needs hashes-corpus, which isn't done yet; finalise it first" in ended.err
    with hold_lock(ObjectStore(job)):
        ended = latentscale("stage", "init", job, "duplicates-corpus")
        assert ended.code == 2
        assert "is running this job" in ended.err
