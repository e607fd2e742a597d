"""Options that several commands take."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from latentscale_pipeline.storage.objects import ObjectStore


class FiniteRange(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse NaN, which no range refuses, and infinity."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} isn't finite", param, ctx)


OVERRIDES = click.option(
    "-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."
)
RUNTIME_OVERRIDES = click.option(
    "-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of cluster, driver."
)
ALLOW_CODE = click.option(
    "--allow-code", is_flag=True, help="Run functions that the configuration names."
)
ON_INVALID = click.option(
    "--on-invalid",
    type=click.Choice(["error", "drop", "drop-zero"]),
    default="error",
    show_default=True,
    help="Rows with NaN, infinity or values out of the stored dtype's range: end with an error, or "
    "leave them out and say so; drop-zero also leaves out rows that are all zero.",
)
WAIT = click.option("--wait", is_flag=True, help="Wait if another run holds the job.")
TAKE_OVER = click.option(
    "--take-over", is_flag=True, help="Take the job over from another run, alive or not."
)
KEEP = click.option("--keep", is_flag=True, help="Keep temporary and superseded results.")
QUIET = click.option("--quiet", is_flag=True, help="Show no progress.")
VERBOSE = click.option("--verbose", "-v", is_flag=True, help="Show the progress of every stage.")
ALL_SCORES = click.option(
    "--all", "every_score", is_flag=True, help="Print all scores, with their brackets and units."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
JSON_RESULTS = click.option(
    "--json", "as_json", is_flag=True, help="Print results.json instead of a summary."
)
GATES = click.option(
    "--gates", "gates_file", metavar="FILE", help="YAML file with limits on scores."
)
ALLOW_INCOMPARABLE = click.option(
    "--allow-incomparable",
    "--allow-unlike",
    "allow_incomparable",
    is_flag=True,
    help="Compare scores also if settings or sizes differ.",
)
WRITTEN_AS = click.option(
    "--format",
    "written_as",
    type=click.Choice(("html", "md", "json")),
    default="html",
    show_default=True,
    help="One HTML page that needs no network, Markdown, or JSON.",
)
OUTPUT = click.option("--output", metavar="FILE", help="File to write; default: print.")
SELECTION = (
    click.option(
        "--ids",
        type=click.Path(path_type=Path),
        help="Rows whose ids are in this file, one a line or in a column id.",
    ),
    click.option("--label", "labels", multiple=True, help="Rows of this label; may be repeated."),
    click.option("--where", help="Rows for which a condition holds, such as \"labels == 'en'\"."),
    click.option(
        "--table",
        help="Files with more columns for --where: rows with the ids of the corpus in a column id, "
        "or one row per row of the corpus or its sources.",
    ),
    click.option(
        "--rows", "job", metavar="JOB", help="A finished job whose columns --where may name."
    ),
    click.option(
        "--drop-duplicates",
        type=FiniteRange(0.0, min_open=True),
        metavar="DISTANCE",
        help="Leave out rows within this distance of an earlier row of the corpus that stays.",
    ),
    click.option("--sample", type=click.IntRange(1), help="Number of rows to draw at random."),
    click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the sample."),
    click.option(
        "--diverse",
        type=click.IntRange(1),
        metavar="K",
        help="Of the selected rows, choose K that are little similar to each other.",
    ),
    click.option(
        "--cover",
        type=click.IntRange(1),
        metavar="K",
        help="Of the selected rows, choose K that have all others near one of them.",
    ),
    click.option(
        "--metric",
        type=click.Choice(("cosine", "euclidean")),
        default="cosine",
        show_default=True,
        help="How --drop-duplicates and --cover compare rows.",
    ),
)
"""Choose rows of a corpus."""


def several_jobs(metavar: str = "JOB...", least: int = 1) -> Callable[..., Any]:
    """Return the argument for several jobs, without what else is in an output folder.

    So ``jobs/*`` names the jobs, though the folder of their corpora and matrices are among them.
    If that leaves fewer than the ``least`` number, all stay, and the command says which is no job.
    """

    def jobs_among(
        _: click.Context, __: click.Parameter, given: tuple[str, ...]
    ) -> tuple[str, ...]:
        found = tuple(url for url in given if not _is_beside_jobs(url)) if len(given) > 1 else given
        return found if len(found) >= least else given

    return click.argument("jobs", nargs=-1, required=True, metavar=metavar, callback=jobs_among)


def _is_beside_jobs(url: str) -> bool:
    place = ObjectStore(url)
    named = place.url.rstrip("/").rpartition("/")[2]
    if place.exists("results.json"):
        return False
    return (named == "corpora" and place.exists("")) or place.exists("matrix.json")


def taking(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command several options."""

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return give
