"""The command line: ``latentscale COMMAND``.

Each command has its own module, which is imported only when the command is called. So ``--help``
answers at once, although the measures need heavy libraries.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import traceback
from typing import NoReturn, cast

import click

from latentscale_pipeline.engine import TASK_THREAD

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
    "compare": ("compare:compare", "Compare a finished job with a baseline, with gates for CI."),
    "report": ("report:report", "Write the report of a job, a comparison or a series."),
    "history": ("history:history", "Register finished jobs: list, plot trends, pick a baseline."),
    "export-metrics": (
        "export_metrics:export_metrics",
        "Export scores to Prometheus, OpenMetrics or MLflow.",
    ),
    "workflow": ("workflow:workflow", "Evaluate from ingest to gate, as a workflow file says."),
    "config": ("config:config", "Print a job's resolved configuration, or the schema of all keys."),
    "demo": ("run:demo", "Run all measures on data that comes with the package."),
    "verify": ("verify:verify", "Check every byte of a corpus or a job."),
}
"""Name of each command: where it is defined and what it does in one line."""


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
        return cast(
            click.Command, getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="latentscale", prog_name="latentscale")
def cli() -> None:
    """Measure the shape and the diversity of huge embedding corpora.

    \b
    Example:
      latentscale ingest embeddings/*.npy corpus.zarr
      latentscale run quickstart.yaml

    Exit codes: 0 done, 1 a gate failed, 2 bad usage or bad input, 3 incomplete (run again).
    """


def main() -> NoReturn:
    """Run the command line, and report every error as one line and an exit code."""
    from latentscale_pipeline.errors import Interrupted, LatentscaleError

    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as ending:
        sys.exit(ending.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt, Interrupted):
        click.echo("latentscale: interrupted; run the same command again to go on", err=True)
        _leave(3)
    except LatentscaleError as error:
        click.echo(f"latentscale: {_shown(error)}", err=True)
        _leave(error.exit_code)
    except BrokenPipeError:
        # The output's reader has closed the pipe, so flushing at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(3)
    except Exception as error:  # noqa: BLE001 -- the top level reports every error in one line
        click.echo(f"latentscale: {_keep_traceback(error)}", err=True)
        sys.exit(3)
    sys.exit(0)


def _leave(code: int) -> NoReturn:
    """End the process; immediately if a task is still running in it."""
    if any(thread.name == TASK_THREAD for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _shown(said: object) -> str:
    """Return an error's message without secrets and control characters."""
    from latentscale_pipeline.storage.urls import without_credentials

    return str(without_credentials(str(said)))


def _keep_traceback(error: Exception) -> str:
    """Store a bug's traceback; return one line that names the error and the log."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="latentscale-", suffix=".log", delete=False, encoding="utf-8"
    ) as log:
        log.write(_shown("".join(traceback.format_exception(error))))
    reason = _shown((str(error).splitlines() or [""])[0])
    return (
        f"unexpected {type(error).__name__}: {reason} (a defect of this program; "
        f"please report it with {log.name})"
    )
