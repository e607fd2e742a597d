"""``latentscale export-metrics``: export scores to monitoring systems."""

from __future__ import annotations

import click

from latentscale_pipeline.cli.options import several_jobs
from latentscale_pipeline.cli.text_files import write_text
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.metrics.exposition import format_metrics
from latentscale_pipeline.metrics.mlflow_logger import log_to_mlflow


@click.command("export-metrics", no_args_is_help=True)
@several_jobs()
@click.option(
    "--format",
    "written_as",
    type=click.Choice(("prometheus", "openmetrics")),
    default="prometheus",
    show_default=True,
    help="Prometheus' text format, or an OpenMetrics file.",
)
@click.option("--output", metavar="FILE", help="File to write; default: print.")
@click.option("--mlflow", "tracking_uri", metavar="URI", help="Log to an MLflow server instead.")
@click.option("--experiment", default="latentscale", show_default=True, help="MLflow experiment.")
def export_metrics(
    jobs: tuple[str, ...],
    written_as: str,
    output: str | None,
    tracking_uri: str | None,
    experiment: str,
) -> None:
    """Export the scores of finished jobs, with their brackets.

    A job is a local folder or a URL. FILE is replaced atomically, as Prometheus' textfile collector
    needs, and may be a URL.

    \b
    Example:
      latentscale export-metrics jobs/nightly-1a2b3c4d --output latentscale.prom
      latentscale export-metrics jobs/nightly-1a2b3c4d --format openmetrics
      latentscale export-metrics jobs/nightly-1a2b3c4d --mlflow http://mlflow.example.org
    """
    if tracking_uri is not None and output is not None:
        raise click.UsageError("--mlflow sends the metrics, and --output writes a file; name one")
    read = [read_job(url) for url in jobs]
    if tracking_uri is not None:
        for job in read:
            logged = log_to_mlflow(job, tracking_uri, experiment)
            click.echo(f"{job.id}: {'logged' if logged else 'was logged before'}")
        return
    text = format_metrics(read, openmetrics=written_as == "openmetrics")
    write_text(output, text.decode())
