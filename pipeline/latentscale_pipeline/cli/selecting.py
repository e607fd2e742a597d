"""Command-line options that select rows of a corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from latentscale_pipeline.cli.text_files import read_text

if TYPE_CHECKING:
    from latentscale_pipeline.corpus.selection import Selection

OPTIONS = (
    click.option("--ids", type=click.Path(path_type=Path), help="Rows whose ids are in this file."),
    click.option("--label", "labels", multiple=True, help="Rows of this label; may be repeated."),
    click.option("--where", help="Rows for which a condition holds, such as \"label == 'en'\"."),
    click.option("--table", help="Files with further columns for --where, one row for each row."),
    click.option("--sample", type=click.IntRange(1), help="So many of them, at random."),
    click.option("--seed", type=click.IntRange(0), default=0, help="Of the sample."),
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that choose rows."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def selection_of(
    ids: Path | None,
    labels: tuple[str, ...],
    where: str | None,
    table: str | None,
    sample: int | None,
    seed: int,
) -> Selection:
    """Return what the options choose."""
    from latentscale_pipeline.corpus.selection import Selection

    wanted = None if ids is None else read_text(ids, "a text file with one id a line").splitlines()
    return Selection(wanted, labels or None, where, table, sample, seed)
