"""What names a job on a command line: a job file, or the data and a few options."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import click

from latentscale_pipeline.cli.options import OVERRIDES
from latentscale_pipeline.cli.text_files import read_text
from latentscale_pipeline.config.job import JobConfig, resolve_config
from latentscale_pipeline.config.overrides import apply_override, drop_settings_of_other_kinds
from latentscale_pipeline.config.section import nearest, parse_yaml
from latentscale_pipeline.corpus.formats import SUFFIXES
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.storage.canonical import slug
from latentscale_pipeline.views.formatting import printable

SETTINGS_OPTIONS = (
    click.option(
        "--pair",
        type=click.Choice(["rows", "ids"]),
        help="Rows of both that are the same item: those of equal number, or of equal id.",
    ),
    click.option(
        "--measures",
        metavar="NAME,…",
        multiple=True,
        callback=lambda _, __, names: ",".join(names) if names else None,
        help="Measures to run, by name; may be repeated.",
    ),
    click.option("--preset", metavar="NAME", help="Settings; see latentscale config --presets."),
    click.option("--name", help="Name of the job. Default: that of the source."),
    click.option("--output", metavar="FOLDER", help="Folder or URL of jobs. Default: jobs/."),
    OVERRIDES,
)
"""What a command takes besides sources."""

JOB_OPTIONS = (
    click.option("--reference", metavar="SOURCE", help="Second corpus, to compare with."),
    *SETTINGS_OPTIONS,
)
"""What a command takes besides its job file or source; :func:`read_job` takes the values."""

_MAX_JOB_FILE_BYTES = 1 << 20


def read_job(
    given: str,
    overrides: Sequence[str] = (),
    *,
    reference: str | None = None,
    pair: str | None = None,
    measures: str | None = None,
    preset: str | None = None,
    name: str | None = None,
    output: str | None = None,
) -> JobConfig:
    """Return the configuration of the job that a command line names.

    Parameters
    ----------
    given : str
        A job file, or any source of vectors.
    overrides : sequence of str
        ``section.key=value`` assignments, applied last.
    reference, pair, measures, preset, name, output : str, optional
        Values of :data:`JOB_OPTIONS`.

    Raises
    ------
    BadInput
        If the file can't be read, or the configuration has a mistake.
    """
    if is_job_file(given):
        document = parse_yaml(read_text(given, "a YAML file that describes a job"), given)
        _refuse_workflow(document, given)
        if isinstance(document, dict):
            _leave_out_other_kinds(document, given, overrides)
        if preset is not None:
            raise click.UsageError(
                f"--preset is for a job without a job file; leave it out, or name the data "
                f"instead of {given}"
            )
    else:
        _refuse_job_folder(given)
        document = {"name": name_of(given), "corpus": given}
    settings = {"reference": reference, "pair": pair, "name": name, "output": output}
    assigned = [f"{key}={json.dumps(value)}" for key, value in settings.items() if value]
    chosen = None if preset is None else read_preset(preset)
    if measures is not None and isinstance(document, dict):
        known = (chosen or document).get("measures")
        document["measures"] = _selected(measures, known if isinstance(known, dict) else {})
    if isinstance(document, dict):
        for assignment in assigned:
            apply_override(document, assignment)
    config = resolve_config(
        document, given, overrides=overrides, measures=measure_sections(), preset=chosen
    )
    if config.in_memory:
        raise BadInput(
            f"{config.in_memory[0]}: memory:// is this process's own memory, which a command "
            "begins without and loses when it ends; name a folder or another URL"
        )
    return config


def _leave_out_other_kinds(document: dict[str, Any], given: str, overrides: Sequence[str]) -> None:
    others = drop_settings_of_other_kinds(document, overrides)
    if others:
        said = f"{given}: left out {', '.join(others)}, which the kind of cluster doesn't have"
        click.echo(printable(said), err=True)


def is_job_file(given: str) -> bool:
    """Return whether an argument names a job file rather than a source of vectors."""
    path = Path(given)
    if path.suffix in {".yaml", ".yml"}:
        return True
    if (path.suffix in SUFFIXES and path.suffix != ".json") or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(_MAX_JOB_FILE_BYTES)
    if path.suffix == ".json":
        try:
            document = json.loads(start)
        except ValueError:
            return False
        known = JobConfig.model_fields.keys()
        return isinstance(document, dict) and {"corpus"} <= document.keys() <= known
    return re.search(rb'^\s*[{]?\s*"?corpus"?\s*:', start, re.MULTILINE) is not None


def presets() -> dict[str, Traversable]:
    """Return the files of the presets by name."""
    folder = resources.files("latentscale_pipeline") / "presets"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file for file in files if file.name.endswith(".yaml")}


def read_preset(name: str) -> dict[str, Any]:
    """Return the keys that a preset sets.

    Raises
    ------
    BadInput
        If there is none of this name.
    """
    known = presets()
    if name not in known:
        raise BadInput(f"--preset: {name!r} is unknown{nearest(name, known)}")
    document: dict[str, Any] = parse_yaml(known[name].read_text("utf-8"), f"preset {name}")
    return document


def _selected(measures: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of the measures that are named with commas."""
    names = [name.strip() for name in measures.split(",") if name.strip()]
    possible = measure_sections()
    for name in names:
        if name not in possible:
            having = _measures_with_score(name)
            if having and _letters(name) not in map(_letters, possible):
                raise BadInput(
                    f"--measures: {name!r} is a score, not a measure; "
                    f"use --measures {' or '.join(having)}"
                )
            raise BadInput(f"--measures: {name!r} is unknown{nearest(name.casefold(), possible)}")
    if not names:
        raise BadInput(f"--measures: name at least one of {', '.join(possible)}")
    return {name: known.get(name) or {} for name in names}


def _measures_with_score(name: str) -> list[str]:
    """Return the measures that have a score of this name or title."""
    return [
        measure
        for measure, found in MEASURES.items()
        if any(
            _letters(name) in {_letters(score), _letters(definition.title)}
            for score, definition in found.report.scores.items()
        )
    ]


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.casefold())


def _refuse_job_folder(given: str) -> None:
    if os.path.isfile(Path(given) / "plan.json"):
        raise BadInput(
            f"{given}: the folder of a job; continue it with latentscale resume "
            f"{shlex.quote(given)}, or look at it with latentscale status {shlex.quote(given)}"
        )


def _refuse_workflow(document: Any, given: str) -> None:
    if isinstance(document, dict) and {"job", "history"} <= set(document):
        raise BadInput(
            f"{given}: a workflow, not a job; run it with latentscale workflow run "
            f"{shlex.quote(given)}"
        )


def name_of(source: str) -> str:
    """Return a job's name for a source: that of its file or folder, without a suffix."""
    last = source.partition("?")[0].rstrip("/").rpartition("/")[2]
    stem = last.partition(".")[0] if "*" in last else Path(last).stem
    return slug(stem)
