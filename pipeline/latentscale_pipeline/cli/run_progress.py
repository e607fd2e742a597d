"""Progress of a run: bars on a terminal, plain lines in a log file."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from latentscale_pipeline.engine.run import Notify

_log = logging.getLogger("latentscale")


@contextmanager
def show_progress(console: Console, *, quiet: bool = False) -> Iterator[Notify]:
    """Show what a run tells, for the time of a ``with`` block.

    Parameters
    ----------
    console : Console
        Standard error; decides between bars and lines by whether it is a terminal.
    quiet : bool
        Show nothing but warnings.
    """
    if quiet:
        yield _warn
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=console) as progress:
            yield _Bars(progress)
    else:
        yield _Lines()


def _warn(event: str, **fields: Any) -> None:
    if event in {"part_retried", "part_corrupt", "stage_failed"}:
        _log.warning("%s: %s", fields["stage"], fields["problem"])


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, event: str, **fields: Any) -> None:
        stage = fields.get("stage", "")
        if event == "run_started":
            self._progress.console.print(
                f"job {fields['job']} in {fields['folder']}", soft_wrap=True
            )
        elif event == "stage_started":
            self._bars[stage] = self._progress.add_task(
                stage, total=fields["parts"], completed=fields["found"], note=_note(fields)
            )
        elif event == "part_done" and stage in self._bars and fields["part"] >= 0:
            self._progress.advance(self._bars[stage])
        _warn(event, **fields)


class _Lines:
    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def __call__(self, event: str, **fields: Any) -> None:
        stage = fields.get("stage", "")
        if event == "run_started":
            _log.info("job %s in %s: %d stages", fields["job"], fields["folder"], fields["stages"])
        elif event == "stage_found":
            _log.info("%s: %s", stage, fields["reason"])
        elif event == "stage_started":
            _log.info("%s: queued, tasks: %d%s", stage, fields["parts"], _note(fields, "; "))
        elif event == "part_done":
            self._seconds[stage] += fields["seconds"]
            if fields["parts"] > 1 and fields["part"] >= 0:
                _log.info("%s: task %d of %d done", stage, fields["done"], fields["parts"])
        elif event == "stage_done":
            _log.info("%s: done, %.1f s of work", stage, self._seconds[stage])
        _warn(event, **fields)


def _note(fields: dict[str, Any], before: str = "") -> str:
    return "" if fields["reason"] == "computed" else f"{before}{fields['reason']}"
