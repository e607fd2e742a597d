"""``latentscale report``: write the report of a job, a comparison or a series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from latentscale_pipeline.cli.compare import compare_with
from latentscale_pipeline.cli.options import ALLOW_INCOMPARABLE, OUTPUT, WRITTEN_AS, taking
from latentscale_pipeline.cli.text_files import write_text
from latentscale_pipeline.compare.gate_checks import GateResult, refuse_unchecked
from latentscale_pipeline.compare.report import comparison_report
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.history.entries import make_entry
from latentscale_pipeline.history.report import series_report
from latentscale_pipeline.jobs.inventory import refresh_inventory
from latentscale_pipeline.measures.finished_job import find_job, read_job, read_provenance
from latentscale_pipeline.report import FORMATS, Report, figure_files, job_report
from latentscale_pipeline.views.formatting import counted


@click.command(no_args_is_help=True)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@taking(WRITTEN_AS, OUTPUT)
@click.option("--series", is_flag=True, help="Show the jobs as a series over time.")
@click.option("--gates", "gates_file", metavar="FILE", help="Gates for the first of several jobs.")
@click.option("--figures", metavar="DIR", help="Also write each figure as SVG, for papers.")
@ALLOW_INCOMPARABLE
def report(
    jobs: tuple[str, ...],
    written_as: str,
    output: str | None,
    series: bool,
    gates_file: str | None,
    figures: str | None,
    allow_incomparable: bool,
) -> None:
    """Write the report of JOB, of a comparison of several, or of a series over time.

    A job is the folder of a finished job, local or a URL. If several are named, the last one is the
    baseline. All formats have the same content.

    \b
    Example:
      latentscale report jobs/nightly-1a2b3c4d --output report.html
      latentscale report jobs/nightly-1a2b3c4d --format md
      latentscale report jobs/nightly-1a2b3c4d --output report.html --figures figures
      latentscale report jobs/new-1a2b3c4d jobs/old-5e6f7a8b --output comparison.html
      latentscale report jobs/* --series --output series.html
    """
    if gates_file is not None and (series or len(jobs) == 1):
        raise click.UsageError("--gates compares a job with a baseline; name both")
    gates: Sequence[GateResult] = ()
    if series:
        made = _of_series(jobs)
    elif len(jobs) == 1:
        made = _of_job(jobs[0])
    else:
        made, gates = _of_comparison(jobs, gates_file, allow_incomparable)
    if figures is not None:
        _write_figures(figures, made)
    write_text(output, FORMATS[written_as](made))
    if output is not None:
        for job in jobs:
            _enter_in_inventory(job, Path(output))
        click.echo(f"report: {output}", err=True)
    refuse_unchecked(gates)


def _write_figures(folder: str, made: Report) -> None:
    drawn = figure_files(made)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "name a folder that can be written"
        raise BadInput(f"{folder}: can't be made: {error.strerror}; {advice}") from None
    for name, text in drawn.items():
        write_text(str(Path(folder) / name), text)
    click.echo(f"figures: {len(drawn)} in {folder}", err=True)


def _enter_in_inventory(job: str, written: Path) -> None:
    """Let a job's folder state the new report, if it is the job's own that was written."""
    store = find_job(job)
    if store.is_local and written.resolve().parent == Path(store.url).resolve():
        refresh_inventory(store, [written.name])


def _of_job(url: str) -> Report:
    return job_report(read_job(url).results, read_provenance(url))


def _of_comparison(
    jobs: Sequence[str], gates_file: str | None, allow_incomparable: bool
) -> tuple[Report, Sequence[GateResult]]:
    first, *others, baseline = (read_job(url) for url in jobs)
    comparison, gates = compare_with(baseline, first, gates_file, allow_incomparable)
    further = [compare_with(baseline, job, None, allow_incomparable)[0] for job in others]
    return comparison_report([comparison, *further], gates), gates or ()


def _of_series(jobs: Sequence[str]) -> Report:
    finished = [url for url in jobs if find_job(url).exists("results.json")]
    if others := len(jobs) - len(finished):
        click.echo(f"{counted(others, 'folder')} without a finished job left out", err=True)
    # Without any, the first one says what is missing.
    read = [read_job(url) for url in finished or jobs]
    entries = sorted(map(make_entry, read), key=lambda entry: entry.finished)
    names = list(dict.fromkeys(entry.name for entry in entries))
    return series_report(entries, ", ".join(names))
