"""``latentscale report``: write the report of a job, a comparison or a series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from latentscale_pipeline.cli.report_options import output_option, written_as_option
from latentscale_pipeline.cli.text_files import read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from latentscale_pipeline.report import Report


@click.command(no_args_is_help=True)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@written_as_option
@output_option
@click.option("--series", is_flag=True, help="Show the jobs as a series over time.")
@click.option("--gates", "gates_file", metavar="FILE", help="Gates for the first of several jobs.")
@click.option("--allow-unlike", is_flag=True, help="Compare jobs whose settings or sizes differ.")
def report(
    jobs: tuple[str, ...],
    written_as: str,
    output: str | None,
    series: bool,
    gates_file: str | None,
    allow_unlike: bool,
) -> None:
    """Write the report of JOB, of a comparison of several, or of a series over time.

    A job is the folder of a finished job, local or a URL. Of several the last one named is the
    baseline. A report says the same in every format.

    \b
    Example:
      latentscale report jobs/nightly-1a2b3c4d --output report.html
      latentscale report jobs/nightly-1a2b3c4d --format md
      latentscale report jobs/new-1a2b3c4d jobs/old-5e6f7a8b --output comparison.html
      latentscale report jobs/* --series --output series.html
    """
    from latentscale_pipeline.report import FORMATS

    if gates_file is not None and (series or len(jobs) == 1):
        raise click.UsageError("--gates holds a job against a baseline; name both")
    if series:
        made = _of_series(jobs)
    elif len(jobs) == 1:
        made = _of_job(jobs[0])
    else:
        made = _of_comparison(jobs, gates_file, allow_unlike)
    text = FORMATS[written_as](made)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
        click.echo(f"report: {output}", err=True)


def _of_job(url: str) -> Report:
    from latentscale_pipeline.report import job_report
    from latentscale_pipeline.results.finished_job import read_documents

    documents = read_documents(url)
    return job_report(documents.results, documents.provenance)


def _of_comparison(jobs: Sequence[str], gates_file: str | None, allow_unlike: bool) -> Report:
    from latentscale_pipeline.compare.gate_checks import check_gates
    from latentscale_pipeline.compare.gates import read_gates
    from latentscale_pipeline.compare.jobs import compare, refuse_incomparable
    from latentscale_pipeline.compare.report import comparison_report
    from latentscale_pipeline.results.finished_job import read_job

    *others, baseline = (read_job(url) for url in jobs)
    comparisons = [compare(job, baseline) for job in others]
    for comparison in comparisons:
        if not allow_unlike:
            refuse_incomparable(comparison)
    gates = None
    if gates_file is not None:
        read = read_gates(read_text(gates_file, "a YAML file with gates"), gates_file)
        gates = check_gates(read, comparisons[0], gates_file)
    return comparison_report(comparisons, gates)


def _of_series(jobs: Sequence[str]) -> Report:
    from latentscale_pipeline.history.entries import make_entry
    from latentscale_pipeline.history.report import series_report
    from latentscale_pipeline.results.finished_job import read_job

    entries = sorted((make_entry(read_job(url)) for url in jobs), key=lambda entry: entry.finished)
    names = list(dict.fromkeys(entry.name for entry in entries))
    return series_report(entries, ", ".join(names))
