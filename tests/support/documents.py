"""Documents as programs: what a page tells its reader to do, and what it says will be seen.

A page is read from top to bottom, in a folder of its own:

* ``console``: every line after ``$`` is run; lines below it are what is printed. ``…`` stands for
  anything, alone on a line for any lines. A command that fails says how: ``# exit 2``.
* ``python``: run in one module a page; a ``text`` block right below is what is printed. One that
  begins with ``# NAME.py`` is written to that file instead.
* ``yaml``: checked by whoever would read it, and written to the file that its first line names.
* ``sh``: for what can't be run in a test. Every command is held against what would take it: the
  options of ``latentscale`` and of Dask, targets, extras, files.

Numbers that are shown are compared to one part in a hundred: the last digits are the machine's.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import linecache
import os
import re
import runpy
import shlex
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import yaml

from latentscale_pipeline.cli import cli
from latentscale_pipeline.compare.gates import read_gates
from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.workflow.config import (
    read_job_config,
    read_workflow,
    read_workflow_gates,
)
from tests import ROOT
from tests.conftest import Ended

LANGUAGES = {"console", "python", "yaml", "sh", "text"}

TOLERANCE = 0.01
"""How far a number that is printed may be from the one that is shown, relatively."""

SERIAL = {
    ("run",): "cluster={kind: serial}",
    ("workflow", "run"): "job.cluster={kind: serial}",
}
"""What a test adds to commands that would start workers, which change no number."""


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and what stands in the block below it."""

    language: str
    text: str
    line: int
    shown: str | None = None

    @property
    def file(self) -> str | None:
        """The file that its first line names."""
        match = re.match(r"# (\S+\.(?:py|yaml))\n", self.text)
        return match[1] if match else None


def blocks_of(document: str) -> list[Block]:
    """Return the blocks of a page in their order; directives (``{name}``) are Sphinx's."""
    found: list[Block] = []
    end = 0
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", document, flags=re.S | re.M):
        language, text = match[1].strip(), match[2]
        if language.startswith("{"):
            continue
        line = document.count("\n", 0, match.start()) + 1
        right_below = not document[end : match.start()].strip()
        if language == "text" and right_below and found and found[-1].language == "python":
            found[-1] = replace(found[-1], shown=text)
        else:
            found.append(Block(language, text, line))
        end = match.end()
    return found


@dataclass
class Reader:
    """Someone who does what a page says, in the current folder.

    With ``workers`` jobs run as the page says; else in this process. One who ``only_checks`` runs
    nothing.
    """

    page: Path
    latentscale: Callable[..., Ended]
    workers: bool = False
    only_checks: bool = False

    def __post_init__(self) -> None:
        self.module = types.ModuleType(f"page_{self.page.stem.replace('-', '_')}")

    def read(self) -> None:
        """Do everything; fails at the first line that isn't true."""
        sys.modules[self.module.__name__] = self.module
        try:
            for block in blocks_of(self.page.read_text("utf-8")):
                self.do(block)
        finally:
            del sys.modules[self.module.__name__]

    def do(self, block: Block) -> None:
        """Do one block."""
        where = f"{self.page.relative_to(ROOT)}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: {block.language!r} is executed by no test"
        if block.file is not None:
            Path(block.file).write_text(block.text, "utf-8")
        if self.only_checks and block.language in {"console", "python"}:
            check_only(block, where)
        elif block.language == "console":
            for command, shown in commands_of(block.text):
                self.run(command, shown, where)
        elif block.language == "python" and block.file is None:
            self.execute(block, where)
        elif block.language == "yaml":
            check_yaml(block.text, where)
        elif block.language == "sh":
            check_shell(block.text, where)

    def run(self, command: str, shown: str, where: str) -> None:
        """Run a command and compare what it prints."""
        command, _, comment = command.partition("  # exit ")
        program, *arguments = shlex.split(with_job_folders(command))
        assert program == "latentscale", f"{where}: {program}"
        if not self.workers:
            arguments = alone(arguments)
        ended = self.latentscale(*arguments)
        assert ended.code == int(comment or 0), f"{where}: {command}\n{ended.err}"
        compare(with_job_folders(shown), ended.out + (ended.err if comment else ""), where)

    def execute(self, block: Block, where: str) -> None:
        """Execute Python; its source is known to tracebacks, and to whoever asks for it."""
        linecache.cache[where] = (len(block.text), None, block.text.splitlines(True), where)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, where, "exec"), self.module.__dict__)
        if block.shown is not None:
            compare(block.shown, printed.getvalue(), where)


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """Return every command of a console with what is shown below it."""
    command, shown = None, ""
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, shown
            command, shown = line[2:], ""
        else:
            shown += f"{line}\n"
    if command is not None:
        yield command, shown


def with_job_folders(text: str) -> str:
    """Put the folders of the jobs that are here where a page names one by another hash."""

    def folder(match: re.Match[str]) -> str:
        found = [path.name for path in Path("jobs").glob(f"{match[1]}-{'[0-9a-f]' * 8}")]
        return found[0] if len(found) == 1 else match[0]

    return re.sub(r"\b([a-z][a-z-]*)-[0-9a-f]{8}\b", folder, text)


def alone(arguments: list[str]) -> list[str]:
    """Let a job's tasks run in this process."""
    for command, override in SERIAL.items():
        if tuple(arguments[: len(command)]) == command:
            return [*arguments, "-o", override]
    return arguments


def compare(shown: str, printed: str, where: str) -> None:
    """Compare what a page shows with what is printed."""
    if not shown.strip():
        return
    found = [line.rstrip() for line in printed.splitlines()]
    wanted = [line.rstrip() for line in shown.splitlines()]
    assert _lines_match(wanted, found), f"{where}: shown:\n{shown}\nprinted:\n" + "\n".join(found)


def _lines_match(wanted: list[str], found: list[str]) -> bool:
    if not wanted:
        return not any(found)
    if wanted[0] == "…":
        return any(_lines_match(wanted[1:], found[i:]) for i in range(len(found) + 1))
    return (
        bool(found) and _line_matches(wanted[0], found[0]) and _lines_match(wanted[1:], found[1:])
    )


NUMBER = r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?(?![\w])"


def _line_matches(wanted: str, found: str) -> bool:
    """Compare texts to the letter but for spaces between columns, and numbers by their values."""
    pattern, numbers = "", []
    for part in re.split(rf"({NUMBER}|…|\s+)", wanted):
        if part == "…":
            pattern += r".*?"
        elif part.isspace():
            pattern += r"\s+"
        elif re.fullmatch(NUMBER, part):
            numbers.append(_value(part))
            pattern += rf"({NUMBER})"
        else:
            pattern += re.escape(part)
    match = re.fullmatch(pattern, found)
    return match is not None and all(
        abs(_value(text) - number) <= TOLERANCE * abs(number)
        for text, number in zip(match.groups(), numbers, strict=True)
    )


def _value(text: str) -> float:
    return float(text.replace(",", ""))


# --- what is checked without being run --------------------------------------------------------


def check_only(block: Block, where: str) -> None:
    """Check what would be run, where it takes too long."""
    if block.language == "console":
        check_shell("\n".join(command for command, _ in commands_of(block.text)), where)
    else:
        compile(block.text, where, "exec")


def check_yaml(text: str, where: str) -> None:
    """Check a document by what reads it: a job, gates, a workflow, Kubernetes, or some keys."""
    document = yaml.safe_load(text)
    if "apiVersion" in document:
        check_manifest(document)
    elif "history" in document:
        workflow = read_workflow(text, where)
        read_job_config(workflow, where)
        read_workflow_gates(workflow, where)
    elif "gates" in document:
        read_gates(text, where)
    else:
        whole = {"name": "some", "corpus": "corpus.zarr", **document}
        read_job(json.dumps(whole), where)


def check_manifest(document: dict[str, Any]) -> None:
    """Check an object of Kubernetes by its schema, where that is installed."""
    assert {"kind", "metadata"} <= document.keys()
    with contextlib.suppress(ImportError, LookupError):
        import kubernetes_validate  # noqa: F401

        from tests.support.kubernetes.schemas import check

        check(document)


def read_job(text: str, where: str, overrides: tuple[str, ...] = ()) -> None:
    """Check a job's configuration."""
    read_config(
        text,
        where,
        overrides=overrides,
        measures=measure_sections(),
    )


def check_shell(text: str, where: str) -> None:
    """Hold every command of a script against what would take it."""
    for line in text.replace("\\\n", " ").splitlines():
        for words in simple_commands(line):
            check_command(words, where)


KEYWORDS = {"do", "done", "then", "fi", "if", "while", "else", "!"}


def simple_commands(line: str) -> Iterator[list[str]]:
    """Cut a line of a shell into commands, those inside ``$(…)`` included."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from simple_commands(inner)
    line = re.sub(r"\$\([^()]*\)", "VALUE", line)
    for piece in re.split(r"\s*(?:;|&&|\|\||\|)\s*", line):
        words = shlex.split(piece, comments=True)
        while words and (words[0] in KEYWORDS or re.fullmatch(r"\w+=\S*", words[0])):
            words = words[1:]
        if words and words[0] != "for":
            yield words


def check_command(words: list[str], where: str) -> None:
    """Check one command without running it."""
    program, *arguments = words
    if program.endswith("/bin/pip"):
        program = "pip"  # of an environment that the page makes
    checks: dict[str, Callable[[list[str], str], None]] = {
        "latentscale": _check_latentscale,
        "dask": _check_dask,
        "make": _check_make,
        "pip": _check_pip,
        "python": _check_python,
        "python3": _check_python,
        "kubectl": _check_kubectl,
        "podman": _check_podman,
        "xargs": lambda rest, where: check_command(rest[rest.index("latentscale") :], where),
    }
    if program in checks:
        checks[program](arguments, where)
    elif "/" in program:
        assert os.access(ROOT / program, os.X_OK), f"{where}: {program} can't be run"
    else:
        assert program in {"helm", "export", ".", "seq", "[", "git", "cd"}, f"{where}: {program}?"


def _check_latentscale(arguments: list[str], where: str) -> None:
    command: click.Command | None = cli
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.get_command(click.Context(command), name)
        assert command is not None, f"{where}: there is no latentscale {name}"
    assert command is not None
    try:
        context = command.make_context(command.name, arguments)
    except click.UsageError as error:
        raise AssertionError(f"{where}: {command.name}: {error.format_message()}") from None
    given = context.params.get("given", context.params.get("config"))
    file = Path(given[0] if isinstance(given, tuple) else str(given))
    if file.suffix == ".yaml" and file.exists():
        read_job(file.read_text("utf-8"), where, context.params["overrides"])


def _check_dask(arguments: list[str], where: str) -> None:
    from distributed.cli import dask_scheduler, dask_worker

    programs = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    name, *rest = arguments
    try:
        programs[name].make_context(f"dask {name}", rest, resilient_parsing=False)
    except click.UsageError as error:
        message = error.format_message()
        assert "does not exist" in message, f"{where}: dask {name}: {message}"


def _check_make(arguments: list[str], where: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in arguments:
        assert re.search(rf"^{target}:", makefile, flags=re.M), f"{where}: make {target}"


def _check_pip(arguments: list[str], where: str) -> None:
    assert arguments[0] == "install", where
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in ",".join(re.findall(r"\[(.*?)\]", " ".join(arguments))).split(","):
        assert not name or name in extras["optional-dependencies"], f"{where}: no extra {name}"


def _check_python(arguments: list[str], where: str) -> None:
    if arguments[0] == "-m":
        assert arguments[1] == "venv", where
        return
    script, *rest = arguments
    assert (ROOT / script).exists(), f"{where}: there is no {script}"
    _options_exist(script, rest, where)


HELPS: dict[tuple[str, ...], str] = {}


def _options_exist(script: str, arguments: list[str], where: str) -> None:
    """See whether a script knows its options and its choices, from its own help."""
    commands = [word for word in arguments[:1] if not word.startswith("-")]
    told = help_of(script, *commands)
    for word in arguments:
        if word.startswith("--") or word in commands:
            known = re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", told)
            assert known, f"{where}: {script} has no {word}"
    if script == "tests/acceptance/run.py" and "--only" in arguments:
        from tests.acceptance.run import PROMISES

        for name in arguments[arguments.index("--only") + 1 :]:
            assert name in PROMISES, f"{where}: no promise is called {name}"


@functools.cache
def help_of(script: str, *words: str) -> str:
    """Run a script of this project as far as its help."""
    told = io.StringIO()
    given, path = sys.argv, list(sys.path)
    sys.argv = [script, *words, "--help"]
    sys.path.insert(0, str((ROOT / script).parent))
    try:
        with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
            runpy.run_path(str(ROOT / script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = given, path
    return told.getvalue()


def _check_kubectl(arguments: list[str], where: str) -> None:
    for flag, value in pairwise(arguments):
        if flag == "-f":
            for document in yaml.safe_load_all((ROOT / value).read_text("utf-8")):
                check_manifest(document)


def _check_podman(arguments: list[str], where: str) -> None:
    file = arguments[arguments.index("-f") + 1]
    assert (ROOT / file).exists(), f"{where}: there is no {file}"
