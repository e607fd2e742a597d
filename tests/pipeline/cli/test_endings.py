"""How commands end: exit codes and lines, whatever becomes of the output and of the program."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.cli import CLOSED_PIPE
from latentscale_pipeline.cli.text_files import write_text
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended
from tests.support.comparisons import row, write_job

Command = Callable[..., Ended]

PROGRAM = [sys.executable, "-c", "from latentscale_pipeline.cli import main; main()"]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path / "jobs/nightly-1a2b3c4d", row(7.5))


def unread(*arguments: object, both: bool = False, unbuffered: bool = False) -> tuple[int, str]:
    """Run a command whose output nobody reads, and return its exit code and standard error."""
    interpreter = [PROGRAM[0], *(["-u"] if unbuffered else []), *PROGRAM[1:]]
    with subprocess.Popen(
        [*interpreter, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        err = process.stderr.read() if process.stderr is not None else ""
        return process.wait(60), err


@pytest.mark.parametrize(
    ("arguments", "both", "unbuffered"),
    [
        (["--help"], False, False),
        (["--help"], True, False),
        (["config", "--schema"], False, True),
        (["compare"], False, False),
    ],
)
def test_a_closed_pipe_ends_a_command_as_it_ends_other_programs(
    job: Path, arguments: list[str], both: bool, unbuffered: bool
) -> None:
    jobs = [job, job] if arguments == ["compare"] else []
    ended = unread(*arguments, *jobs, both=both, unbuffered=unbuffered)
    assert ended == (CLOSED_PIPE, "")


def test_a_closed_pipe_hides_no_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "no.yaml"
    line = f"latentscale: {path}: No such file or directory; name a YAML file that describes a job"
    assert unread("run", path) == (2, f"{line}\n")
    assert unread("run", path, both=True) == (2, "")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_output_to_a_file_is_utf8(tmp_path: Path, encoding: str) -> None:
    np.save(tmp_path / "μ.npy", np.ones((3, 2)))
    ended = subprocess.run(
        [*PROGRAM, "config", str(tmp_path / "μ.npy")],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert "μ.npy" in ended.stdout.decode("utf-8")


@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
def test_output_to_a_full_disk_is_incomplete(unbuffered: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [PROGRAM[0], *unbuffered, *PROGRAM[1:], "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (
        3,
        "latentscale: the output can't be written: the disk is full; free some space\n",
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rum"], "no such command 'rum'; did you mean run?"),
        (["xyzzy"], "no such command 'xyzzy'; see latentscale --help"),
        (["--bebug", "run"], "no such option '--bebug'; did you mean --debug?"),
        (["run", "--alow-code", "x"], "no such option '--alow-code'; did you mean --allow-code?"),
        (
            ["compare", "a"],
            "name a job and, last, the baseline to compare it with; see latentscale compare --help",
        ),
        (
            ["verify", "a", "b"],
            "got unexpected extra argument (b); see latentscale verify --help",
        ),
        (
            ["report", "a", "--format", "pdf"],
            (
                "invalid value for '--format': 'pdf' is not one of 'html', 'md', 'json'; see "
                "latentscale report --help"
            ),
        ),
        (
            ["config", "--schema", "--presets"],
            "name one of SOURCE, JOB.yaml, --schema and --presets; see latentscale config --help",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    latentscale: Command, arguments: list[str], line: str
) -> None:
    assert latentscale(*arguments) == Ended(2, "", f"latentscale: {line}\n")


def test_a_command_without_arguments_shows_its_help(latentscale: Command) -> None:
    ended = latentscale("run")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: latentscale run [OPTIONS] SOURCE...|JOB.yaml\n")


@pytest.mark.parametrize(
    "error",
    [
        ImportError("no module"),
        RecursionError("too deep"),
        MemoryError("too much"),
        SystemExit(1),
        SystemExit(0),
        GeneratorExit("closed"),
    ],
)
def test_nothing_unexpected_looks_like_a_failed_gate(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("latentscale_pipeline.cli.LazyGroup.get_command", fail)
    ended = latentscale("run", "job.yaml")
    [line] = ended.err.splitlines()
    assert (ended.code, ended.out) == (3, "")
    kind = type(error).__name__
    assert line.startswith(f"latentscale: unexpected {kind}: {error} (a defect of this program; ")
    log = Path(line.rpartition(" ")[2].rstrip(")"))
    assert kind in log.read_text()
    log.unlink()


def test_a_library_that_cannot_be_imported_is_no_failed_gate(tmp_path: Path) -> None:
    without = "import sys; sys.modules['fsspec'] = None; " + PROGRAM[-1]
    ended = subprocess.run(
        [*PROGRAM[:-1], without, "info", "s3://user:secret@bucket/c.zarr"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (3, "")
    [line] = ended.stderr.splitlines()
    assert line.startswith("latentscale: unexpected ModuleNotFoundError: ")


def test_an_interrupted_import_is_incomplete(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("latentscale_pipeline.cli.LazyGroup.get_command", interrupted)
    assert latentscale("run", "job.yaml") == Ended(
        3, "", "latentscale: interrupted; run the same command again to continue\n"
    )


def test_a_defect_is_told_without_a_place_for_its_log(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ImportError("no module")

    monkeypatch.setattr("latentscale_pipeline.cli.LazyGroup.get_command", fail)
    monkeypatch.setattr("tempfile.tempdir", "/proc/none")
    assert latentscale("run", "job.yaml") == Ended(
        3,
        "",
        "latentscale: unexpected ImportError: no module (a defect of this program; please report "
        "it with what LATENTSCALE_DEBUG=1 shows)\n",
    )


@pytest.mark.parametrize("given", ["option", "environment", "off"])
def test_debug_shows_the_traceback_of_any_error(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    monkeypatch.setenv("LATENTSCALE_DEBUG", "1" if given == "environment" else "0")
    options = ["--debug"] if given == "option" else []
    ended = latentscale(*options, "run", tmp_path / "no.yaml")
    *shown, line = ended.err.splitlines()
    assert (ended.code, ended.out) == (2, "")
    assert line.startswith(f"latentscale: {tmp_path}/no.yaml: No such file")
    assert ("Traceback (most recent call last):" in shown) is (given != "off")


def test_debug_shows_no_traceback_where_nothing_failed(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTSCALE_DEBUG", "1")
    ended = latentscale("--version")
    assert (ended.code, ended.err) == (0, "")


def test_a_shell_completes_commands(monkeypatch: pytest.MonkeyPatch, latentscale: Command) -> None:
    monkeypatch.setenv("_LATENTSCALE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "latentscale ru")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert latentscale() == Ended(0, "plain,run\n", "")
    monkeypatch.setenv("_LATENTSCALE_COMPLETE", "unknown")
    assert latentscale().code == 2


# --- places where nothing can be written -------------------------------------------------------


NOTHING = "nothing can be created there; choose another place"
FILE = "a file is where a folder is needed; choose another place"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("/proc/none", NOTHING),
        ("FILE/below", FILE),
        ("a" * 300, "File name too long; choose another place"),
    ],
)
@pytest.mark.parametrize("command", ["ingest", "subset", "run", "history"])
def test_an_impossible_output_is_bad_input(
    latentscale: Command, job: Path, tmp_path: Path, place: str, reason: str, command: str
) -> None:
    (tmp_path / "FILE").touch()
    output = str(tmp_path / place)
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(50, 4)))
    corpus = tmp_path / "c.zarr"
    assert latentscale("ingest", tmp_path / "rows.npy", corpus).code == 0
    config = tmp_path / "job.yaml"
    measures = {"vendi": {"kernels": ["cosine"]}}
    fields = {"name": "a", "corpus": str(corpus), "output": output, "measures": measures}
    config.write_text(json.dumps({**fields, "cluster": {"kind": "serial"}}))
    ended = latentscale(
        *{
            "ingest": ["ingest", tmp_path / "rows.npy", output],
            "subset": ["subset", corpus, output, "--sample", "3"],
            "run": ["run", config, "--quiet"],
            "history": ["history", "add", output, job],
        }[command]
    )
    last = ended.err.splitlines()[-1]
    assert (ended.code, ended.out) == (2, "")
    assert last.startswith(f"latentscale: {output}")
    assert last.endswith(f": {reason}")


@pytest.mark.parametrize("place", ["/proc/none.npy", "FILE/below.npy"])
def test_an_export_to_an_impossible_place_is_bad_input(
    latentscale: Command, tmp_path: Path, place: str
) -> None:
    (tmp_path / "FILE").touch()
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(50, 4)))
    assert latentscale("ingest", tmp_path / "rows.npy", tmp_path / "c.zarr").code == 0
    ended = latentscale("export", tmp_path / "c.zarr", tmp_path / place)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].endswith("; check the path")


def test_a_failed_gate_and_a_closed_pipe_are_told_apart(job: Path, tmp_path: Path) -> None:
    gates = tmp_path / "gates.yaml"
    gates.write_text("gates: [{score: spread, max: 1}]")
    arguments = ["compare", job, job, "--gates", gates]
    ended = subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, check=False)
    assert ended.returncode == 1
    assert unread(*arguments) == (CLOSED_PIPE, "")


def limited(bytes_of_a_file: int) -> str:
    """Return the first line of a program on a disk that is nearly full: no file gets larger."""
    limit = f"({bytes_of_a_file}, {bytes_of_a_file})"
    return f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, {limit})\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_only_fits_in_part_is_incomplete(tmp_path: Path, unbuffered: str) -> None:
    with (tmp_path / "schema.json").open("w") as schema:
        ended = subprocess.run(
            [*PROGRAM[:-1], limited(2048) + PROGRAM[-1], "config", "--schema"],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=schema,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (
        3,
        "latentscale: the output can't be written: the disk is full; free some space\n",
    )


def test_unbuffered_output_is_whole(tmp_path: Path) -> None:
    command = [PROGRAM[0], "-u", *PROGRAM[1:], "config", "--schema"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "properties" in json.loads(shown)


WRITE = """
import sys
from latentscale_pipeline.cli.text_files import write_text
from latentscale_pipeline.errors import LatentscaleError
try:
    write_text(sys.argv[1], "new " * int(sys.argv[2]))
except LatentscaleError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def write(path: Path, words: int) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-c", limited(4096) + WRITE, str(path), str(words)],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_a_file_stays_until_its_new_content_is_written(tmp_path: Path) -> None:
    report, link = tmp_path / "report.html", tmp_path / "link.html"
    report.write_text("old")
    report.chmod(0o640)
    link.symlink_to(report)
    full = f"{link}: the disk is full or over quota; free some space\n"
    assert write(link, 2000) == (3, full)
    assert report.read_text() == "old"
    assert write(link, 2) == (0, "")
    assert report.read_text() == "new new "
    assert (link.is_symlink(), report.stat().st_mode & 0o777) == (True, 0o640)
    assert sorted(tmp_path.iterdir()) == [link, report]


def test_text_goes_to_devices_and_pipes(tmp_path: Path) -> None:
    assert write(Path("/dev/null"), 2) == (0, "")
    assert Path("/dev/null").is_char_device()
    assert write(Path("/dev/stdout"), 2) == (0, "new new ")
    with (tmp_path / "both").open("w") as both:
        for number in ("1", "2"):
            command = [sys.executable, "-c", WRITE, "/dev/stdout", number]
            subprocess.run(command, stdout=both, check=True)
    assert (tmp_path / "both").read_text() == "new new new "


def test_a_link_to_a_device_is_written_to(tmp_path: Path, job: Path, latentscale: Command) -> None:
    own, other = os.openpty()
    link = tmp_path / "link"
    link.symlink_to(os.ttyname(other))
    write_text(str(link), "here")
    assert os.read(own, 100) == b"here"
    assert latentscale("export-metrics", job, "--output", link).code == 0
    assert link.is_symlink()
    assert os.read(own, 100).startswith(b"# HELP latentscale_score")
    for file in (own, other):
        os.close(file)


def test_text_goes_to_new_folders_and_to_no_bucket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(str(tmp_path / "new/folder/a.md"), "here")
    assert (tmp_path / "new/folder/a.md").read_text() == "here"
    write_text("-", "printed")
    assert capsys.readouterr().out == "printed"
    for url in ("s3://bucket", "s3://bucket/", f"file://{tmp_path}/"):
        with pytest.raises(BadInput, match="a folder; name a file in it"):
            write_text(url, "lost")


def test_long_names_and_write_protected_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(str(tmp_path / f"{'x' * 240}.md"), "whole")
    assert (tmp_path / f"{'x' * 240}.md").read_text() == "whole"
    (tmp_path / "kept.md").write_text("old")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anything
    with pytest.raises(BadInput, match=r"kept.md: Permission denied; name a file"):
        write_text(str(tmp_path / "kept.md"), "new")
    assert (tmp_path / "kept.md").read_text() == "old"


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_keep_no_command_from_its_work(tmp_path: Path, closed: str) -> None:
    np.save(tmp_path / "x.npy", np.ones((30, 2)))
    command = ["bash", "-c", f'"$@" {closed}', "bash", *PROGRAM, "ingest"]
    subprocess.run([*command, "x.npy", "x.zarr"], cwd=tmp_path, check=True)
    assert (
        subprocess.run([*command, "no.npy", "no.zarr"], cwd=tmp_path, check=False).returncode == 2
    )
    assert len(open_corpus(str(tmp_path / "x.zarr")).read_rows(0, 30)) == 30


def test_a_width_of_zero_hides_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((30, 2)))
    ingest([str(tmp_path / "x.npy")], str(tmp_path / "x.zarr"))
    wide, narrow = (
        subprocess.run(
            [*PROGRAM, "info", "x.zarr"],
            env={**os.environ, "COLUMNS": columns},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for columns in ("80", "0")
    )
    assert b"30" in wide
    assert narrow == wide


WAIT = """
import time
import latentscale_pipeline.cli as cli
def wait(context):
    print("begun", flush=True)
    time.sleep(0.0 if context is None else float(context.args[0]))
cli.cli.invoke = wait
cli.cli.make_context = lambda name, arguments: __import__("contextlib").nullcontext(
    type("Context", (), {"args": arguments})()
)
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [False, True])
def test_signals_end_every_command_in_one_way(number: signal.Signals, ignored: bool) -> None:
    handler = "SIG_IGN" if ignored else "SIG_DFL"
    before = f"import signal; signal.signal({int(number)}, signal.{handler})\n"
    with subprocess.Popen(
        [sys.executable, "-c", before + WAIT, "2" if ignored else "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    interrupted = "latentscale: interrupted; run the same command again to continue\n"
    assert (process.returncode, err) == ((0, "") if ignored else (3, interrupted))


def test_a_removed_folder_is_named(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    np.save(tmp_path / "x.npy", np.ones((30, 2)))
    ended = subprocess.run(
        ["bash", "-c", script, "bash", *PROGRAM, "run", str(tmp_path / "x.npy")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    line = "latentscale: this folder has been removed; change to another one\n"
    assert (ended.returncode, ended.stderr) == (2, line)
