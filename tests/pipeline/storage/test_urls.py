"""Where data and jobs may be, how they are reached, and that no secret is left behind."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import psutil
import pytest
from fsspec.registry import _registry as fsspec_registry

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import (
    open_url,
    options_in_force,
    storage_options,
    without_credentials,
)
from tests.conftest import Ended
from tests.support.jobs import command_line, timeless

Command = Callable[..., Ended]

KEY, SECRET, TOKEN = "AKIAFORTESTSONLY", "wJalr/SECRET+for/tests=only", "a-session-token-for-tests"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(3).normal(size=(600, 8)).astype("f4"))
    return path


@pytest.fixture
def options(s3_bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What reaches the S3 server; the environment doesn't, any more."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return {"s3": {"endpoint_url": endpoint, "key": KEY, "secret": SECRET, "token": TOKEN}}


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[..., Path]:
    def write(corpus: object, output: object, **keys: Any) -> Path:
        (tmp_path / "asked").mkdir(exist_ok=True)
        config = tmp_path / "asked" / "job.yaml"
        fields = {
            "name": "anywhere",
            "corpus": str(corpus),
            "output": str(output),
            "sampling": {"method": "none"},
            "measures": {"vendi": {"kernels": ["cosine"]}},
            "cluster": {"kind": "serial"},
        }
        config.write_text(json.dumps(fields | keys))
        return config

    return write


def assert_no_secret(text: bytes | str) -> None:
    found = text.encode() if isinstance(text, str) else text
    for secret in (KEY, SECRET, TOKEN, json.dumps(SECRET)[1:-1], SECRET.replace("/", "%2F")):
        assert secret.encode() not in found


def assert_no_secret_below(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "asked":
            assert_no_secret(path.read_bytes())


def assert_no_secret_at(url: str, options: dict[str, Any]) -> None:
    with storage_options(options):
        store = ObjectStore(url)
        keys = store.keys()
        assert keys
        for key in keys:
            assert_no_secret(key)
            assert_no_secret(store.read(key))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_source_corpus_and_jobs_may_be_anywhere(
    scheme: str,
    rows: Path,
    write_job: Callable[..., Path],
    latentscale: Command,
    tmp_path: Path,
) -> None:
    place = f"{scheme}{tmp_path}/place"
    ObjectStore(place).write("rows.npy", rows.read_bytes())
    corpus = ingest([f"{place}/rows.npy"], f"{place}/corpus.zarr")
    assert corpus.fingerprint == ingest([str(rows)], str(tmp_path / "local.zarr")).fingerprint
    first = latentscale("run", write_job(tmp_path / "local.zarr", tmp_path / "jobs"), "--json")
    found = latentscale("run", write_job(f"{place}/corpus.zarr", f"{place}/jobs"), "--json")
    assert found.code == 0, found.err
    assert timeless(json.loads(found.out)) == timeless(json.loads(first.out))
    # A source that isn't a corpus yet is made into one below the output.
    described = write_job(f"{place}/rows.npy", f"{place}/jobs")
    ObjectStore(place).write("job.yaml", described.read_bytes())
    found = latentscale("run", f"{place}/job.yaml", "--json")
    assert timeless(json.loads(found.out)) == timeless(json.loads(first.out))
    found = latentscale("run", f"{place}/none.yaml")
    missing = "No such file or directory; name a YAML file that describes a job"
    assert (found.code, found.err) == (2, f"latentscale: {place}/none.yaml: {missing}\n")


def test_workers_are_told_that_memory_is_out_of_reach(
    rows: Path, write_job: Callable[..., Path], latentscale: Command
) -> None:
    ended = latentscale("run", write_job(rows, "memory://jobs", cluster={"kind": "local"}))
    assert ended.code == 2
    assert ended.err.strip().endswith(
        "output is in the memory of one process, where workers can't read it; choose another "
        "place, or in Python set cluster.kind to serial"
    )


def test_options_in_a_configuration_reach_workers_and_leave_no_trace(
    options: dict[str, Any],
    s3_url: str,
    rows: Path,
    write_job: Callable[..., Path],
    latentscale: Command,
    tmp_path: Path,
) -> None:
    with storage_options(options):
        ObjectStore(s3_url).write("rows.npy", rows.read_bytes())
        ingest([f"{s3_url}/rows.npy"], f"{s3_url}/corpus.zarr")
    first = latentscale("run", write_job(rows, tmp_path / "jobs"), "--json")
    config = write_job(
        f"{s3_url}/corpus.zarr",
        f"{s3_url}/jobs",
        cluster={"kind": "local", "workers": 1},
        storage_options=options,
    )
    process = subprocess.Popen(
        command_line("run", config, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: set[str] = set()
    over = threading.Event()
    watching = threading.Thread(target=_note_command_lines, args=(process.pid, lines, over))
    watching.start()
    out, err = process.communicate(timeout=240)
    over.set()
    watching.join()
    assert process.returncode == 0, err
    assert timeless(json.loads(out)) == timeless(json.loads(first.out))
    workers = ("multiprocessing.spawn", "multiprocessing.forkserver")
    assert any(line.count(name) for line in lines for name in workers), sorted(lines)
    for said in (out, err, *lines):
        assert_no_secret(said)
    assert_no_secret_at(s3_url, options)
    assert_no_secret_below(tmp_path)
    for command in (("config", config), ("config", config, "--json"), ("plan", config, "--json")):
        ended = latentscale(*command)
        assert ended.code == 0, ended.err
        assert_no_secret(ended.out + ended.err)
        assert "storage_options" not in ended.out
    assert options_in_force().get("s3", {}) == {}


def _note_command_lines(pid: int, lines: set[str], over: threading.Event) -> None:
    while not over.wait(0.5):
        try:
            family = psutil.Process(pid).children(recursive=True)
            lines.update(" ".join(member.cmdline()) for member in family)
        except psutil.Error:
            continue


def test_options_on_a_command_line_leave_no_trace(
    options: dict[str, Any],
    s3_url: str,
    rows: Path,
    write_job: Callable[..., Path],
    latentscale: Command,
    tmp_path: Path,
) -> None:
    config = write_job(rows, f"{s3_url}/jobs")
    given: list[str] = []
    for name, value in options["s3"].items():
        given += ["-o", f"storage_options.s3.{name}={value}"]
    ended = latentscale("run", config, *given)
    assert ended.code == 0, ended.err
    assert_no_secret(ended.out + ended.err)
    assert_no_secret_at(s3_url, options)
    with storage_options(options):
        store = ObjectStore(f"{s3_url}/jobs")
        [folder] = [name for name in store.folders() if name.startswith("anywhere-")]
        command = json.loads(store.read(f"{folder}/provenance.json"))["runs"][0]["command"]
    assert "storage_options.s3.secret=…" in command
    assert_no_secret_below(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output": "s3://no-such-bucket/jobs"}, "there is no such bucket or container"),
        ({"corpus": "s3://latentscale-tests/nothing.npy"}, "no such file or folder"),
        ({"storage_options": {"s4": {"key": KEY}}}, "storage_options.s4: unknown protocol"),
        ({"storage_options": {"s3": SECRET}}, "storage_options.s3 must be a mapping"),
        (
            {"storage_options": {"s3": {"endpoint_url": f"http://{KEY}:{SECRET}@127.0.0.1:1"}}},
            "s3://latentscale-tests/",
        ),
        ({"corpus": f"https://{KEY}:{SECRET}@127.0.0.1:1/rows.npy?sig={TOKEN}"}, "https://127.0."),
    ],
)
def test_a_run_that_fails_tells_no_secret(
    options: dict[str, Any],
    s3_url: str,
    rows: Path,
    write_job: Callable[..., Path],
    latentscale: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setattr("latentscale_pipeline.storage.objects.PATIENCE_SECONDS", 0.2)
    fields = {"corpus": rows, "output": f"{s3_url}/jobs", "storage_options": options} | change
    ended = latentscale("run", write_job(**fields))
    assert ended.code in {2, 3}
    assert said in ended.err
    assert_no_secret(ended.out + ended.err)
    assert_no_secret_below(tmp_path)


@pytest.mark.parametrize(
    "given", ["storage_options.s3.key.x={}", "storage_options..={}", "storage_options.s3.key=[{}"]
)
def test_an_option_that_is_written_wrongly_isnt_repeated(
    rows: Path, write_job: Callable[..., Path], latentscale: Command, tmp_path: Path, given: str
) -> None:
    config = write_job(rows, tmp_path / "jobs", storage_options={"s3": {"key": "x"}})
    ended = latentscale("run", config, "-o", given.format(SECRET))
    assert ended.code == 2
    assert "-o storage_options." in ended.err
    assert_no_secret(ended.err)


def test_options_hold_for_a_while_and_above_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", {"key": "environment", "anon": False})
    with storage_options({"s3": {"key": "given"}}):
        assert options_in_force()["s3"] == {"key": "given", "anon": False}
        assert open_url("s3://bucket/x")[0].key == "given"
    assert options_in_force()["s3"] == {"key": "environment", "anon": False}
    assert open_url("s3://bucket/x")[0].key == "environment"


def test_options_of_one_thread_do_not_stay_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec.config, "conf", {})
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(storage_options({"s3": {"key": "given"}}))
        second.enter_context(storage_options({}))
        first.close()
        assert options_in_force() == {}
        first.enter_context(storage_options({"gs": {"token": "given"}}))
        second.close()
        assert options_in_force() == {"gs": {"token": "given"}}
    assert options_in_force() == {}


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [("gs://bucket/x", "gcsfs", "gs"), ("az://box/x", "adlfs", "az"), ("s3://b/x", "s3fs", "s3")],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for protocol in ("s3", "gs", "az"):
        monkeypatch.delitem(fsspec_registry, protocol, raising=False)
    with pytest.raises(BadInput) as caught:
        open_corpus(url)
    protocol = url.partition(":")[0]
    assert str(caught.value) == (
        f"{url}: the library for {protocol}:// isn't installed; pip install 'latentscale[{extra}]'"
    )


def test_assignments_of_options_lose_their_values() -> None:
    words = ["run", "-ostorage_options.s3.key=K", "storage_options={s3: {secret: S}}", "seed=1"]
    assert without_credentials(words) == [
        "run",
        "-ostorage_options.s3.key=…",
        "storage_options=…",
        "seed=1",
    ]


def test_keys_of_a_store_may_have_a_hash_or_a_question_mark(
    latentscale: Callable[..., Ended], tmp_path: Path, s3_url: str
) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(200, 6)).astype("f4"))
    corpus, jobs = f"{s3_url}/C #1?.zarr", f"{s3_url}/jobs"
    assert latentscale("ingest", tmp_path / "a.npy", corpus).code == 0
    measures = "measures={vendi: {kernels: [cosine], orders: [1]}, duplicates: {}}"
    set_to = [f"output={jobs}", measures, "cluster.kind=serial"]
    ran = latentscale("run", corpus, *(word for each in set_to for word in ("-o", each)))
    assert ran.code == 0, ran.err
    [job] = json.loads(latentscale("list", jobs, "--json").out)
    for command in ("rows", "verify", "status"):
        ended = latentscale(command, job["folder"])
        assert ended.code == 0, ended.err
    assert latentscale("info", f"{s3_url}/C #2").code == 2


def test_suggested_commands_quote_what_a_shell_would_split(
    latentscale: Callable[..., Ended], tmp_path: Path, rows: Path
) -> None:
    output = tmp_path / "my jobs"
    measures = ("-o", "measures={duplicates: {}}", "-o", "cluster.kind=serial")
    assert latentscale("run", rows, "-o", f"output={output}", *measures).code == 0
    [job] = (folder for folder in output.iterdir() if (folder / "plan.json").exists())
    asked = latentscale("info", job)
    assert f"look at it with latentscale status '{job}'" in " ".join(asked.err.split())
    again = latentscale("run", job)
    assert f"continue it with latentscale resume '{job}'" in " ".join(again.err.split())


def test_a_library_that_cannot_start_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(url: str, **options: object) -> None:
        raise OSError("Unable to load libjvm")

    monkeypatch.setattr("fsspec.core.url_to_fs", start)
    with pytest.raises(
        BadInput, match=r"hdfs://h/x: can't open this kind of URL \(Unable to load l"
    ):
        open_url("hdfs://h/x")
