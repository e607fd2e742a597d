"""Dask's performance report: what the scheduler and the workers did, as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import distributed

from latentscale_pipeline.errors import first_line
from latentscale_pipeline.progress import Echo


@contextmanager
def write_performance_report(client: distributed.Client, file: Path, echo: Echo) -> Iterator[None]:
    """Write Dask's performance report of what runs during a ``with`` block, even if that fails.

    Parameters
    ----------
    client : distributed.Client
        The client of the scheduler, whose machine needs bokeh.
    file : Path
        The HTML page to write, on the machine of the client.
    echo : callable
        Called with a one-line warning if the report can't be written.
    """
    report = distributed.performance_report(str(file), mode="inline")  # needs no network
    with client.as_current():
        report.__enter__()
    try:
        yield
    finally:
        try:
            with client.as_current():
                report.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001 -- how the run ended matters more
            echo(f"--performance-report: {file} could not be written: {first_line(error)}")
