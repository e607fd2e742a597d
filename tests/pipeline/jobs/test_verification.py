"""A finished job lists its files: verify finds all damage to them, and run mends it."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.jobs.inventory import refresh_inventory
from latentscale_pipeline.storage.canonical import digest
from latentscale_pipeline.storage.lock import Holder
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.support.jobs import damage, run_here, timeless

Command = Callable[..., Ended]

MEASURES = {"heat": {"times": {"count": 4}, "steps": 4}, "geomca": {}, "duplicates": {}}

UNSAMPLED = {"sampling": {"method": "none"}}

KINDS = {
    "settings": r"config\.json",
    "job file": r"config\.yaml",
    "plan": r"plan\.json",
    "provenance": r"provenance\.json",
    "report": r"report\.html",
    "results": r"results\.json",
    "inventory": r"inventory\.json",
    "events": r"events/[0-9a-f]+\.jsonl",
    "lock": r"lock/000001\.json",
    "release": r"lock/000001\.released",
    "marker of a result": r"stages/heat-corpus/.*/result\.json",
    "record of removed data": r"stages/graph-corpus/.*/collected\.json",
    "array of a result": r"stages/heat-corpus/.*/trace\.npy",
}
"""Every kind of file that a finished job has."""

KEPT = {
    "marker of a part": r"stages/neighbours-corpus/.*/part-00001\.json",
    "array of a part": r"stages/neighbours-corpus/.*/part-00001\..*/\w+\.npy",
    "array that others read": r"stages/graph-corpus/.*/result\..*/indptr\.npy",
}
"""What it has, too, after a run with ``--keep``."""

IN_PARTS = ("latentscale_pipeline.measures.shared.neighbours.exact.QUERY_ROWS", 45)
BY_SIZE = "checked  the sizes of all files; --verify compares their checksums\n"
BY_CHECKSUM = "checked  the checksum of every file\n"
FINISHED = "nothing had to be computed: this job was already finished\n"


@dataclass(frozen=True)
class Job:
    """A finished job, its job file, and what it measured."""

    config: Path
    folder: Path
    results: dict[str, Any]

    def key(self, pattern: str) -> str:
        """The only file that a pattern describes, or the first of several like it."""
        keys = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return next(key for key in keys if re.fullmatch(pattern, key))

    def numbers(self) -> dict[str, Any]:
        return timeless(json.loads((self.folder / "results.json").read_text()))


def finish_job(folder: Path, *, keep: bool = False) -> Job:
    """Run a job as a process would that is gone now."""
    generator = np.random.default_rng(4)
    centres = generator.normal(size=(4, 6)) * 3
    for role, n in (("corpus", 90), ("reference", 80)):
        rows = centres[generator.integers(4, size=n)] + generator.normal(size=(n, 6))
        np.save(folder / f"{role}.npy", rows.astype("f4"))
    config = folder / "job.yaml"
    named = {role: str(folder / f"{role}.npy") for role in ("corpus", "reference")}
    fields = {"name": "kept", **named, "output": str(folder / "jobs"), "measures": MEASURES}
    config.write_text(json.dumps({**fields, "cluster": {"kind": "serial"}, **UNSAMPLED}))
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Holder, "here", lambda here=Holder.here: replace(here(), pid=gone.pid))
        run_here(config, keep=keep)
    [job] = (folder / "jobs").glob("kept-*")
    return Job(config, job, json.loads((job / "results.json").read_text()))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return finish_job(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def finished_and_kept(tmp_path_factory: pytest.TempPathFactory) -> Job:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*IN_PARTS)
        return finish_job(tmp_path_factory.mktemp("kept"), keep=True)


@pytest.fixture
def job(finished: Job) -> Job:
    """The finished job, whole again."""
    return restored(finished)


@pytest.fixture
def kept_job(finished_and_kept: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that keeps all, whole again; neighbours are found in two parts."""
    monkeypatch.setattr(*IN_PARTS)
    return restored(finished_and_kept)


def restored(job: Job) -> Job:
    whole = job.config.with_name("whole")
    if not whole.exists():
        shutil.copytree(job.folder, whole)
    shutil.rmtree(job.folder)
    shutil.copytree(whole, job.folder)
    return job


def harm(path: Path, kind: str) -> None:
    """Damage a file in its middle, however small it is."""
    content = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(content[:-1])
    else:
        damage(path, kind, at=len(content) // 2)


@pytest.mark.parametrize("kind", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize("what", KINDS)
def test_any_damage_is_found_and_mended(
    job: Job, latentscale: Command, what: str, kind: str
) -> None:
    key = job.key(KINDS[what])
    if what == "release" and kind != "missing":
        assert (job.folder / key).read_bytes() == b""  # nothing to flip
        return
    check_that_damage_is_found_and_mended(job, latentscale, key, kind)


@pytest.mark.parametrize("kind", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize("what", KEPT)
def test_damage_to_what_is_kept_is_found_and_mended(
    kept_job: Job, latentscale: Command, what: str, kind: str
) -> None:
    key = kept_job.key(KEPT[what])
    check_that_damage_is_found_and_mended(kept_job, latentscale, key, kind, "--keep")


def check_that_damage_is_found_and_mended(
    job: Job, latentscale: Command, key: str, kind: str, *options: str
) -> None:
    harm(job.folder / key, kind)
    ended = latentscale("verify", job.folder)
    assert ended.code == 3
    assert ended.out.startswith(f"{job.folder}/{key} ")
    assert len(ended.out.splitlines()) == 1
    assert ": 1 of " in ended.err
    ended = latentscale("run", job.config, "--verify", *options)
    assert ended.code == 0, ended.err
    assert f"{job.folder}/{key} " in ended.err
    assert job.numbers() == timeless(job.results)
    assert latentscale("verify", job.folder).code == 0
    ended = latentscale("run", job.config, "--verify", *options)
    assert ended.out.endswith(BY_CHECKSUM + FINISHED)


@pytest.mark.parametrize("stage", ["geomca", "graph-corpus", "heat-corpus", "duplicates-corpus"])
def test_a_lost_result_of_a_stage_is_missed(job: Job, latentscale: Command, stage: str) -> None:
    [marker] = (job.folder / "stages" / stage).glob("*/result.json")
    marker.unlink()
    ended = latentscale("verify", job.folder)
    assert (ended.code, ended.out) == (3, f"{marker} is missing\n")
    assert latentscale("run", job.config).code == 0
    assert job.numbers() == timeless(job.results)
    assert latentscale("verify", job.folder).code == 0


def test_a_lost_result_that_was_to_stay_is_missed(kept_job: Job, latentscale: Command) -> None:
    job = kept_job
    [marker] = (job.folder / "stages/graph-corpus").glob("*/result.json")
    marker.unlink()
    ended = latentscale("verify", job.folder)
    assert (ended.code, ended.out) == (3, f"{marker} is missing\n")
    assert latentscale("run", job.config, "--keep", "--verify").code == 0
    assert job.numbers() == timeless(job.results)
    assert latentscale("verify", job.folder).code == 0
    # Without --keep the temporary data go, and nobody misses them.
    assert latentscale("run", job.config).out.endswith(FINISHED)
    assert not list((job.folder / "stages/graph-corpus").rglob("*.npy"))
    assert latentscale("verify", job.folder).code == 0


@pytest.mark.parametrize("what", ["results", "report", "provenance", "events", "lock"])
def test_run_sees_by_its_size_that_a_file_is_damaged(
    job: Job, latentscale: Command, what: str
) -> None:
    key = job.key(KINDS[what])
    page = (job.folder / "report.html").stat().st_size
    harm(job.folder / key, "missing" if what in {"results", "events"} else "truncated")
    ended = latentscale("run", job.config)
    assert ended.code == 0
    assert f"{job.folder}/{key} " in ended.err
    assert FINISHED not in ended.out
    assert job.numbers() == timeless(job.results)
    assert (job.folder / "report.html").stat().st_size == pytest.approx(page, rel=0.01)
    assert latentscale("verify", job.folder).code == 0


@pytest.mark.parametrize("what", ["report", "array of a result"])
def test_a_repaired_job_stays_finished_when_it_was(
    job: Job, latentscale: Command, what: str
) -> None:
    place = job.folder / "results.json"
    results = json.loads(place.read_text())
    times = {"started": "2020-01-01T00:00:00+00:00", "finished": "2020-01-01T00:01:00+00:00"}
    place.write_text(json.dumps({**results, "job": {**results["job"], **times}}))
    # As if it had finished then.
    refresh_inventory(ObjectStore(str(job.folder)), ["results.json"])
    harm(job.folder / job.key(KINDS[what]), "truncated")
    assert latentscale("run", job.config).code == 0
    repaired = json.loads(place.read_text())["job"]
    assert {key: repaired[key] for key in times} == times
    # Of a damaged file the times may be wrong, too.
    place.write_text(place.read_text().replace('"2020-01-01T00:01', '"1020-01-01T00:01'))
    assert latentscale("run", job.config, "--verify").code == 0
    assert json.loads(place.read_text())["job"]["finished"] > "2026"


def test_run_says_that_it_compared_sizes_alone(job: Job, latentscale: Command) -> None:
    array = job.folder / job.key(KINDS["array of a result"])
    harm(array, "flipped")
    assert latentscale("run", job.config).out.endswith(BY_SIZE + FINISHED)
    ended = latentscale("run", job.config, "--verify")
    assert f"{array} differs from its checksum" in ended.err
    assert FINISHED not in ended.out
    assert job.numbers() == timeless(job.results)


def test_a_finished_job_is_left_as_it_is(job: Job, latentscale: Command) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in job.folder.rglob("*")}
    assert latentscale("run", job.config).out.endswith(BY_SIZE + FINISHED)
    assert latentscale("verify", job.folder).code == 0
    assert {path: path.stat().st_mtime_ns for path in job.folder.rglob("*")} == stamps


def test_a_job_of_an_earlier_version_is_checked_as_far_as_its_plan_goes(
    job: Job, latentscale: Command
) -> None:
    inventory, provenance = job.folder / "inventory.json", job.folder / "provenance.json"
    inventory.unlink()
    document = json.loads(provenance.read_text())
    del document["inventory"]
    provenance.write_text(json.dumps(document))
    ended = latentscale("verify", job.folder)
    assert ended.code == 0
    assert ended.out.endswith(
        "all intact; only what the plan names was checked, because there is no inventory.json; if "
        "this version wrote the job, run it with --verify to write it again\n"
    )
    assert latentscale("run", job.config).out.endswith(FINISHED)
    assert not inventory.exists()
    array = job.folder / job.key(KINDS["array of a result"])
    harm(array, "flipped")
    ended = latentscale("verify", job.folder)
    assert ended.out == f"{array} differs from its checksum\n"
    assert ended.err.startswith("only what the plan names was checked, because there is no inv")
    assert latentscale("run", job.config, "--verify").code == 0
    assert job.numbers() == timeless(job.results)
    assert inventory.exists()
    assert latentscale("verify", job.folder).out.endswith("all intact\n")


def test_of_an_unfinished_job_what_it_has_is_checked(job: Job, latentscale: Command) -> None:
    for name in ("inventory.json", "results.json", "report.html"):
        (job.folder / name).unlink()
    [marker] = (job.folder / "stages/imd").glob("*/result.json")
    marker.unlink()
    ended = latentscale("verify", job.folder)
    assert ended.code == 0
    assert ended.out.endswith(
        "all intact; the job isn't finished, so only what it has computed was checked\n"
    )


def test_a_run_that_ended_before_it_wrote_the_inventory_is_finished_by_the_next(
    job: Job, latentscale: Command
) -> None:
    inventory = job.folder / "inventory.json"
    inventory.unlink()
    assert latentscale("verify", job.folder).out == f"{inventory} is missing\n"
    assert latentscale("run", job.config).code == 0
    assert job.numbers() == timeless(job.results)
    assert latentscale("verify", job.folder).code == 0


def test_a_run_that_lost_its_lock_may_say_so_later(job: Job, latentscale: Command) -> None:
    log = job.folder / "events" / "0123456789ab.jsonl"
    log.write_text('{"time": 1.0, "event": "run_started"}\n')
    for key in ("inventory.json", "results.json"):
        (job.folder / key).unlink()
    assert latentscale("run", job.config).code == 0
    with log.open("a") as appended:
        appended.write('{"time": 2.0, "event": "run_ended", "ending": "failed"}\n')
    assert latentscale("verify", job.folder).code == 0
    assert latentscale("run", job.config).out.endswith(BY_SIZE + FINISHED)


def test_an_inventory_names_no_file_elsewhere(job: Job, latentscale: Command) -> None:
    inventory = job.folder / "inventory.json"
    document = json.loads(inventory.read_text())
    document["files"][0]["key"] = "../../job.yaml"
    del document["digest"]
    inventory.write_text(json.dumps({**document, "digest": digest(document)}))
    ended = latentscale("verify", job.folder)
    assert (ended.code, ended.out) == (3, f"{inventory} is damaged\n")


def test_what_other_commands_rewrite_is_no_damage(job: Job, latentscale: Command) -> None:
    report = job.folder / "report.html"
    before = report.read_bytes()
    assert latentscale("report", job.folder, "--format", "md", "--output", report).code == 0
    assert report.read_bytes() != before
    metrics = job.folder / "metrics.prom"
    assert latentscale("export-metrics", job.folder, "--output", metrics).code == 0
    ended = latentscale("stage", "init", job.folder, "heat-corpus")
    assert ended.code == 0, ended.err
    assert latentscale("verify", job.folder).code == 0
    assert latentscale("run", job.config).out.endswith(FINISHED)


@pytest.mark.parametrize("left", [("lock/",), ("lock/", "events/", "plan.json")])
def test_a_job_that_has_barely_begun_is_told(
    job: Job, latentscale: Command, left: tuple[str, ...]
) -> None:
    for path in [path for path in job.folder.rglob("*") if path.is_file()]:
        if not str(path.relative_to(job.folder)).startswith(left):
            path.unlink()
    shutil.rmtree(job.folder / "stages")
    assert latentscale("verify", job.folder) == Ended(
        0,
        f"{job.folder}: the job has barely begun and nothing is computed yet; run it again\n",
        "",
    )
    assert json.loads(latentscale("verify", job.folder, "--json").out)["files"] == 0
    assert latentscale("run", job.config).code == 0
    assert job.numbers() == timeless(job.results)


def test_an_empty_folder_is_told(tmp_path: Path, latentscale: Command) -> None:
    assert latentscale("verify", tmp_path) == Ended(
        2,
        "",
        f"latentscale: {tmp_path}: an empty folder, neither a job nor a corpus; name another, or "
        "run the job\n",
    )


def test_a_job_in_an_object_store(job: Job, s3_url: str, latentscale: Command) -> None:
    output = ("-o", f"output={s3_url}/jobs", "-o", "measures={vendi: {kernels: [cosine]}}")
    output += ("-o", "sampling.method=none")
    assert latentscale("run", job.config, *output).code == 0
    jobs = ObjectStore(f"{s3_url}/jobs")
    [name] = [name for name in jobs.folders() if name.startswith("kept-")]
    store = jobs.child(name)
    ended = latentscale("verify", store.url)
    assert ended.code == 0, ended.out
    store.write("report.html", store.read("report.html")[:-1])
    key, *_ = [key for key in store.keys("stages") if key.endswith("result.json")]
    store.remove(key)
    ended = latentscale("verify", store.url)
    assert ended.code == 3
    assert [line.partition(" ")[0] for line in ended.out.splitlines()] == [
        store.locate("report.html"),
        store.locate(key),
    ]
    assert latentscale("run", job.config, *output).code == 0
    assert latentscale("verify", store.url).code == 0
