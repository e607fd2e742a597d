"""``latentscale config``: show a resolved configuration, or the schema of all keys."""

from __future__ import annotations

import json
from pathlib import Path

import click
import yaml

from latentscale_pipeline.cli.options import OVERRIDES
from latentscale_pipeline.cli.run import read_job
from latentscale_pipeline.cli.text_files import read_text
from latentscale_pipeline.config.job import config_schema
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.jobs.run import frozen_config
from latentscale_pipeline.views.formatting import printable

PRESETS = Path("configs")
"""Folder of the presets, in the current folder."""

LINE_WIDTH = 100
"""Characters of a line of YAML, unless one word is longer."""


@click.command(no_args_is_help=True)
@click.argument("config", required=False, type=click.Path(path_type=Path))
@OVERRIDES
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a configuration file.")
@click.option("--presets", is_flag=True, help="List the files in configs/, and what each is for.")
def config(
    config: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
    schema: bool,
    presets: bool,
) -> None:
    """Print the job that CONFIG (a YAML file) describes, every default filled in.

    The output is a valid configuration, except that credentials are removed from URLs. Only CONFIG
    is read.

    \b
    Example:
      latentscale config configs/quickstart.yaml -o measures.heat.k=10
      latentscale config --schema > latentscale.schema.json
      latentscale config --presets
    """
    if (config is not None) + schema + presets != 1:
        raise click.UsageError("name one of CONFIG, --schema and --presets")
    if overrides and config is None:
        raise click.UsageError("-o overrides a key of CONFIG; name that file")
    if config is not None:
        text = frozen_config(read_job(config, overrides)).decode()
        click.echo(text if as_json else _as_yaml(text), nl=False)
    elif schema:
        click.echo(json.dumps(config_schema(measure_sections()), indent=2))
    else:
        _print_presets(as_json)


def _as_yaml(text: str) -> str:
    return yaml.safe_dump(
        json.loads(text),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=LINE_WIDTH,
    )


def _print_presets(as_json: bool) -> None:
    paths = sorted(PRESETS.glob("*.yaml"))
    if not paths:
        raise BadInput(f"{PRESETS}/: no presets here; change to a folder that has {PRESETS}/*.yaml")
    presets = {str(path): _purpose(path) for path in paths}
    if as_json:
        listed = [{"path": path, "purpose": purpose} for path, purpose in presets.items()]
        click.echo(json.dumps(listed, indent=2))
        return
    width = max(map(len, presets))
    for path, purpose in presets.items():
        click.echo(f"{path:<{width}}  {purpose}".rstrip())


def _purpose(path: Path) -> str:
    """Return the first comment line of a preset, which says what it is for."""
    lines = read_text(path, "a YAML file that describes a job").splitlines()
    comments = (line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    return printable(next(comments, ""))
