"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""A callback ``progress(done, total)``."""

Echo = Callable[[str], None]
"""A function that shows a line of text to the user."""

SECONDS_BETWEEN_LINES = 5.0
"""Minimum time between two lines; shorter work has none."""


def silent(done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def reported(title: str, unit: str) -> Iterator[Progress]:
    """Yield a :data:`Progress` that is shown on standard error until the block ends.

    Parameters
    ----------
    title : str
        Name of the work, such as ``ingest``.
    unit : str
        The unit of the counts, such as ``rows``.
    """
    if sys.stderr.isatty():
        with _bar(title, unit) as progress:
            yield progress
    else:
        yield _lines(title, unit)


def _lines(title: str, unit: str) -> Progress:
    last = time.monotonic()
    shown = False

    def progress(done: int, total: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES or (shown and done >= total):
            last, shown = now, True
            sys.stderr.write(f"{title}: {done} of {total} {unit}\n")
            sys.stderr.flush()

    return progress


@contextmanager
def _bar(title: str, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
