"""``latentscale config``: show a resolved configuration, or the schema of all keys."""

from __future__ import annotations

import json
from typing import Any

import click

from latentscale_pipeline.cli.job_arguments import JOB_OPTIONS, presets, read_job
from latentscale_pipeline.cli.options import taking
from latentscale_pipeline.config.job import config_schema
from latentscale_pipeline.config.job_file import format_job_file
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.jobs.run import frozen_config
from latentscale_pipeline.views.formatting import printable


@click.command(no_args_is_help=True)
@click.argument("given", metavar="[SOURCE|JOB.yaml]", required=False)
@taking(*JOB_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a configuration file.")
@click.option("--presets", "list_presets", is_flag=True, help="List the presets.")
def config(
    given: str | None, as_json: bool, schema: bool, list_presets: bool, **about: Any
) -> None:
    """Print a job file, every default filled in: of a YAML file, or of run SOURCE.

    The output is a valid job file with a comment on every key, except that credentials are removed
    from URLs. No data are read.

    \b
    Example:
      latentscale config vectors.npy --reference real.npy > job.yaml
      latentscale config job.yaml -o measures.heat.k=10
      latentscale config --schema > latentscale.schema.json
      latentscale config --presets
    """
    if (given is not None) + schema + list_presets != 1:
        raise click.UsageError("name one of SOURCE, JOB.yaml, --schema and --presets")
    if given is None and any(about.values()):
        raise click.UsageError("name the source or the job file that these options are for")
    if given is not None:
        job = read_job(given, **about)
        text = frozen_config(job).decode()
        click.echo(text if as_json else format_job_file(job, json.loads(text)), nl=False)
    elif schema:
        click.echo(json.dumps(config_schema(measure_sections()), indent=2))
    else:
        _print_presets(as_json)


def _print_presets(as_json: bool) -> None:
    purposes = {
        name: file.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        for name, file in presets().items()
    }
    if as_json:
        listed = [{"name": name, "purpose": purpose} for name, purpose in purposes.items()]
        click.echo(json.dumps(listed, indent=2))
        return
    width = max(map(len, purposes))
    for name, purpose in purposes.items():
        click.echo(printable(f"{name:<{width}}  {purpose}"))
