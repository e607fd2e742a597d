"""The command line: ``latentscale COMMAND``.

Each command has its own module, which is imported only when the command is called. So ``--help``
answers at once, although the measures need heavy libraries.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import gc
import importlib
import io
import os
import re
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from typing import NoReturn, cast

import click

from latentscale_pipeline.engine import TASK_THREAD
from latentscale_pipeline.errors import Interrupted

COMMANDS: dict[str, tuple[str, str]] = {
    "ingest": ("ingest:ingest", "Turn embedding files into a corpus."),
    "info": ("info:info", "Describe a corpus."),
    "subset": ("subset:subset", "Make a new corpus of some rows of another one."),
    "export": ("subset:export", "Write a corpus, or some rows of it, to a file."),
    "plan": ("plan:plan", "Forecast what a job will do and cost."),
    "run": ("run:run", "Run a job, or resume it."),
    "submit": ("submit:submit", "Hand a job to a cluster's scheduler, and return at once."),
    "status": ("status:status", "Show the state of a job."),
    "list": ("status:list_jobs", "Show the state of every job in an output folder."),
    "logs": ("logs:logs", "Show what happened in a job, and the logs of failed tasks."),
    "cancel": ("cancel:cancel", "Stop a running job cleanly, from any machine."),
    "resume": ("resume:resume", "Continue a job, from its folder alone."),
    "stage": ("stage:stage", "Compute a job stage by stage, by processes that share only files."),
    "rows": ("rows:rows", "List rows of a finished job, with what it knows of each."),
    "export-graph": (
        "export_graph:export_graph",
        "Write the neighbour graph of a finished job, for other tools.",
    ),
    "power": ("power:power", "Say which changes a job shows, and how many rows show others."),
    "compare": ("compare:compare", "Compare a finished job with a baseline, with gates for CI."),
    "matrix": ("matrix:matrix", "Compare every two of many corpora: which are near each other?"),
    "report": ("report:report", "Write the report of a job, a comparison or a series."),
    "history": ("history:history", "Register finished jobs: list, plot trends, pick a baseline."),
    "export-metrics": (
        "export_metrics:export_metrics",
        "Export scores to Prometheus, OpenMetrics or MLflow.",
    ),
    "workflow": ("workflow:workflow", "Evaluate from ingest to gate, as a workflow file says."),
    "config": ("config:config", "Print a job's resolved configuration, or the schema of all keys."),
    "demo": ("run:demo", "Run all measures on data that comes with the package."),
    "doctor": ("doctor:doctor", "Show what is installed, and how to get what is missing."),
    "verify": ("verify:verify", "Check every byte of a corpus or a job."),
}
"""Name of each command: where it is defined and what it does in one line."""

CLOSED_PIPE = 141
"""Exit code where the reader of the output has gone, as of a program that SIGPIPE ended."""

DEBUG = "LATENTSCALE_DEBUG"
COMPLETION = "_LATENTSCALE_COMPLETE"


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        with _without_collections():
            imported = importlib.import_module(f"{__name__}.{module}")
        return cast(click.Command, getattr(imported, attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments; suggest the nearest name for an unknown one."""
        name = args[0]
        near = difflib.get_close_matches(name, COMMANDS, 1)
        if near and name not in COMMANDS:
            raise click.UsageError(f"no such command {name!r}; did you mean {near[0]}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


class Unread(Exception):
    """The reader of the output has closed its pipe."""


def _debug(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        os.environ[DEBUG] = "1"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="latentscale", prog_name="latentscale")
@click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_debug,
    help=f"Show the traceback of an error, as {DEBUG}=1 does.",
)
def cli() -> None:
    """Measure the shape and the diversity of huge embedding corpora.

    \b
    Example:
      latentscale run embeddings/ --reference reference.npy
      latentscale run job.yaml

    Exit codes: 0 done, 1 a gate failed (or --fail-on-difference found a difference), 2 bad
    usage or bad input, 3 incomplete (run again), 141 the reader of the output closed its pipe.
    """


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Don't look for garbage: what imports make stays, and looking at it takes a tenth of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def main() -> NoReturn:
    """Run the command line, and report every error as one line and an exit code."""
    error: BaseException | None = None
    _open_streams()
    if os.environ.get("COLUMNS", "").strip() == "0":
        del os.environ["COLUMNS"]  # rich would print nothing
    try:
        if COMPLETION in os.environ:
            _complete()
        # Not cli.main(), which ends with code 1 where a pipe is closed.
        with _ended_by_signals(), cli.make_context("latentscale", sys.argv[1:]) as context:
            cli.invoke(context)
    except BaseException as raised:  # noqa: BLE001 -- the top level reports every error in one line
        error = raised
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        error = Unread()
    unwritten = _flush()
    if unwritten is not None and (error is None or isinstance(error, OSError)):
        error = Unread() if isinstance(unwritten, BrokenPipeError) else unwritten
    code, line = _ending(error)
    if code and error is not None and os.environ.get(DEBUG, "0") not in {"", "0"}:
        _say(_shown("".join(traceback.format_exception(error))))
    _say(line)
    _leave(code)


def _open_streams() -> None:
    """Make standard streams that take all text, and say if it can't be written."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:  # closed; the next file that is opened would take its place
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        # Files and pipes get UTF-8, and a sign that a screen can't show ends no command.
        encoding = stream.encoding if stream.isatty() else "utf-8"
        if isinstance(stream.buffer, io.RawIOBase):  # unbuffered, it forgets what a disk won't take
            buffered = io.BufferedWriter(stream.detach())
            stream = io.TextIOWrapper(buffered, encoding, "replace", line_buffering=True)
            setattr(sys, name, stream)
        stream.reconfigure(encoding=encoding, errors="replace")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into an interruption, unless they are ignored.

    The cleanup that follows ignores another SIGTERM or SIGHUP; another Ctrl-C ends it.
    """
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in asked}
    heard = {number: old for number, old in before.items() if old is not signal.SIG_IGN}

    def interrupt(number: int, frame: object) -> NoReturn:
        for other in heard.keys() - {signal.SIGINT}:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(f"by {signal.Signals(number).name}")

    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


def _ending(error: BaseException | None) -> tuple[int, str]:
    """Return the exit code of an error, and the line that reports it."""
    from latentscale_pipeline.errors import LatentscaleError

    match error:
        case None:
            return 0, ""
        case click.exceptions.Exit():
            return error.exit_code, ""
        case click.exceptions.NoArgsIsHelpError():
            return 2, error.format_message()
        case click.ClickException():
            return 2, f"latentscale: {_shown(_usage(error))}"
        case click.Abort() | KeyboardInterrupt() | Interrupted():
            return 3, "latentscale: interrupted; run the same command again to continue"
        case LatentscaleError():
            return error.exit_code, f"latentscale: {_shown(error)}"
        case Unread() | SystemExit(__context__=BrokenPipeError()):  # rich ends the process so
            return CLOSED_PIPE, ""
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG, filename=None):
            return 3, "latentscale: the output can't be written: the disk is full; free some space"
        case PermissionError(filename=str(place)):
            return 2, f"latentscale: {_shown(place)}: permission denied; change its permissions"
        case FileNotFoundError() if not _folder_exists():
            return 2, "latentscale: this folder has been removed; change to another one"
    return 3, f"latentscale: {_keep_traceback(error)}"


def _folder_exists() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _reader_is_gone() -> bool:
    """Return whether standard output or standard error is a pipe that nobody reads."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _usage(error: click.ClickException) -> str:
    """Return one line for a mistake on the command line that says what to do."""
    near = _similar(error)
    suggests = hasattr(error, "possibilities")
    context = getattr(error, "ctx", None)
    said = " ".join((error.message if suggests else error.format_message()).split()).rstrip(".")
    advice = f"see {context.command_path if context else 'latentscale'} --help"
    if near:
        advice = f"did you mean {near[0]}?"
    elif said.endswith("?"):  # it has a suggestion
        return said
    return f"{said[:1].lower()}{said[1:]}; {advice}"


def _similar(error: click.ClickException) -> list[str]:
    """Return the options that begin like an unknown one or, without the dashes, are like it."""
    found = getattr(error, "possibilities", None) or []
    names = {name.lstrip("-"): name for name in found}
    wanted = getattr(error, "option_name", "").lstrip("-")
    begun = [name for name in names if name.startswith(wanted)]
    return [names[name] for name in begun or difflib.get_close_matches(wanted, names)]


def _complete() -> NoReturn:
    """Print what a shell asks for to complete a command line."""
    from click.shell_completion import shell_complete

    code = shell_complete(cli, {}, "latentscale", COMPLETION, os.environ[COMPLETION])
    raise click.exceptions.Exit(2 if code else 0)


def _flush() -> OSError | None:
    """Write what was printed; if that fails, drop it and all that follows, and return the error."""
    found = None
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            # Flushing at exit would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            found = found or error
    return found


def _say(line: str) -> None:
    """Print a line on standard error, if anybody can read it."""
    if line:
        with contextlib.suppress(OSError):
            click.echo(line, err=True)
        _flush()


def _leave(code: int) -> NoReturn:
    """End the process; immediately if a task is still running in it."""
    if any(thread.name == TASK_THREAD for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)


def _shown(said: object) -> str:
    """Return an error's message without secrets and control characters."""
    try:
        from latentscale_pipeline.storage.urls import without_credentials
    except Exception:  # noqa: BLE001 -- the error may be that libraries can't be imported
        return re.sub(r"\S*://\S*", "URL", str(said))
    return str(without_credentials(str(said)))


def _keep_traceback(error: BaseException) -> str:
    """Store a bug's traceback; return one line that names the error and the log."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="latentscale-", suffix=".log", delete=False, encoding="utf-8"
        ) as log:
            log.write(_shown("".join(traceback.format_exception(error))))
        evidence = log.name
    except OSError:  # no folder for temporary files, or a full disk
        evidence = f"what {DEBUG}=1 shows"
    reason = _shown((str(error).splitlines() or [""])[0])
    return (
        f"unexpected {type(error).__name__}: {reason} (a defect of this program; "
        f"please report it with {evidence})"
    )
