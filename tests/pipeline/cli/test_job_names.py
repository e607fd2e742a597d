"""Folders of jobs that are named without their hash, and folders that don't exist."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.support.comparisons import row, write_job

Command = Callable[..., Ended]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    for name in ("v2a-1a2b3c4d", "v2b-5e6f7a8b", "twice-00000001", "twice-00000002", "v2a-later"):
        job = write_job(tmp_path / "jobs" / name, row(7.5))
        (job / "plan.json").write_text('{"stages": []}')
    return tmp_path / "jobs"


def test_a_name_without_hash_is_enough(latentscale: Command, jobs: Path) -> None:
    whole = latentscale("compare", jobs / "v2a-1a2b3c4d", jobs / "v2b-5e6f7a8b")
    assert whole.code == 0
    assert latentscale("compare", jobs / "v2a", f"{jobs}/v2b/") == whole


def test_names_below_the_current_folder(
    latentscale: Command, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(jobs)
    assert latentscale("compare", "v2a", "./v2b").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "JOB"],
        ["logs", "JOB"],
        ["verify", "JOB"],
        ["export-metrics", "JOB"],
        ["history", "add", "HISTORY", "JOB"],
    ],
)
def test_every_command_finds_the_job(
    latentscale: Command, jobs: Path, tmp_path: Path, arguments: list[str]
) -> None:
    def run(job: str) -> Ended:
        history = str(tmp_path / f"history-{job}")
        known = {"JOB": str(jobs / job), "HISTORY": history}
        return latentscale(*[known.get(argument, argument) for argument in arguments])

    found = run("v2a")
    assert found == run("v2a-1a2b3c4d")
    # Nothing but results and settings was written, so verify misses the report.
    assert found.code == (3 if arguments[0] == "verify" else 0)


def test_all_that_an_output_folder_has_are_its_jobs(
    latentscale: Command, jobs: Path, tmp_path: Path
) -> None:
    (jobs / "corpora" / "v2.zarr").mkdir(parents=True)
    (jobs / "corpora-matrix-1a2b3c4d").mkdir()
    (jobs / "corpora-matrix-1a2b3c4d" / "matrix.json").write_text("{}")
    listed = sorted(jobs.iterdir())
    named = [path for path in listed if not path.name.startswith("corpora")]
    assert len(listed) == len(named) + 2 == 7
    for arguments in (
        ("compare", "--json"),
        ("history", "add", str(tmp_path / "history")),
    ):
        found = latentscale(*arguments, *listed)
        assert found.code == 0, found.err
        if arguments[0] != "history":
            assert found == latentscale(*arguments, *named)
    matrix = jobs / "corpora-matrix-1a2b3c4d"
    for arguments in (
        ("report", jobs / "corpora"),
        ("export-metrics", matrix, matrix),
        ("history", "add", tmp_path / "history", matrix, jobs / "corpora"),
        ("compare", named[0], jobs / "corpora"),
    ):
        ended = latentscale(*arguments)
        assert ended.code == 2
        assert "no results.json here" in ended.err
    # A job may have any name.
    (jobs / "corpora" / "results.json").write_bytes((named[0] / "results.json").read_bytes())
    assert latentscale("compare", named[0], named[1], jobs / "corpora").code == 0


@pytest.mark.parametrize("command", ["cancel", "resume"])
def test_a_job_that_cannot_be_changed_is_named_whole(
    latentscale: Command, jobs: Path, command: str
) -> None:
    ended = latentscale(command, jobs / "v2a")
    assert ended.code == 2
    assert ended.err.startswith(f"latentscale: {jobs}/v2a-1a2b3c4d")


@pytest.mark.parametrize("command", ["compare", "report", "status", "logs", "verify", "resume"])
def test_several_jobs_of_one_name_are_listed(
    latentscale: Command, jobs: Path, command: str
) -> None:
    ended = latentscale(command, *[jobs / "twice"] * (2 if command == "compare" else 1))
    assert ended == Ended(
        2,
        "",
        f"latentscale: {jobs}/twice: several jobs have this name; take the one that finished last "
        f"with {jobs}/twice@latest, or name one: twice-00000001, twice-00000002\n",
    )


def test_the_latest_of_a_name_is_the_one_that_finished_last(
    latentscale: Command, jobs: Path
) -> None:
    none = latentscale("status", jobs / "v3@latest")
    assert none.err == f"latentscale: {jobs}/v3: no job of this name is finished; run it first\n"
    # Neither the order of hashes nor that of the files says which is the latest.
    for name, hour in (("twice-00000001", "02:00:00+00:00"), ("twice-00000002", "01:59:59")):
        path = jobs / name / "results.json"
        results = json.loads(path.read_text())
        results["job"]["finished"] = f"2026-11-27T{hour}"
        path.write_text(json.dumps(results))
    (jobs / "twice-00000003").mkdir()
    for number, written in enumerate(({"finished": "yesterday"}, {"finished": None}, "x"), 4):
        (jobs / f"twice-{number:08d}").mkdir()
        (jobs / f"twice-{number:08d}" / "results.json").write_text(json.dumps({"job": written}))
    for command in ("status", "verify", "export-metrics"):
        found = latentscale(command, jobs / "twice@latest")
        assert found == latentscale(command, jobs / "twice-00000001")
    assert latentscale("compare", jobs / "twice@latest", jobs / "v2a").code == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "report",
            (
                "no results.json here; name the folder of a finished job, such as "
                "jobs/nightly-1a2b3c4d"
            ),
        ),
        ("status", "nothing is there; name the folder of a job"),
    ],
)
def test_the_nearest_name_is_suggested(
    latentscale: Command, jobs: Path, command: str, message: str
) -> None:
    assert latentscale(command, jobs / "v2b-5e6f7a8c") == Ended(
        2,
        "",
        f"latentscale: {jobs}/v2b-5e6f7a8c: {message}; did you mean {jobs}/v2b-5e6f7a8b?\n",
    )
    assert latentscale(command, jobs / "none").err == f"latentscale: {jobs}/none: {message}\n"


def test_a_job_in_an_object_store_is_found(latentscale: Command, jobs: Path, s3_url: str) -> None:
    store = ObjectStore(s3_url)
    for path in (jobs / "v2a-1a2b3c4d").iterdir():
        store.write(f"v2a-1a2b3c4d/{path.name}", path.read_bytes())
    whole = latentscale("compare", f"{s3_url}/v2a-1a2b3c4d", jobs / "v2b")
    assert whole.code == 0
    shown = latentscale("report", jobs / "v2a", "--format", "md")
    wrote = latentscale(
        *("report", jobs / "v2a", "--format", "md", "--output", f"{s3_url}/reports/v2a.md")
    )
    assert (wrote.code, wrote.out) == (0, "")
    assert store.read("reports/v2a.md").decode() == shown.out
    assert latentscale("compare", f"{s3_url}/v2a", jobs / "v2b") == whole


# --- folders that aren't there ------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_list_of_nothing_is_bad_input(
    latentscale: Command, tmp_path: Path, options: list[str]
) -> None:
    none = tmp_path / "none"
    assert latentscale("list", none, *options) == Ended(
        2, "", f"latentscale: {none}: nothing is there; name the output folder of jobs\n"
    )
    assert not none.exists()


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["plot"]])
def test_a_history_of_nothing_is_bad_input(
    latentscale: Command, tmp_path: Path, arguments: list[str]
) -> None:
    none = tmp_path / "none"
    assert latentscale("history", *arguments, none) == Ended(
        2,
        "",
        f"latentscale: {none}: nothing is there; name the folder of a history, or begin one with "
        "latentscale history add\n",
    )
    assert not none.exists()


def test_lists_of_empty_folders_are_empty(latentscale: Command, tmp_path: Path) -> None:
    assert latentscale("list", tmp_path) == Ended(0, "", f"{tmp_path}: no jobs\n")
    assert latentscale("history", "list", tmp_path) == Ended(0, "", f"{tmp_path}: no jobs\n")
