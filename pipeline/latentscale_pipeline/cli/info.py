"""``latentscale info``: what a corpus holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.ingest.sources import Sources, open_sources
from latentscale_pipeline.corpus.manifest import SourceRecord
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.urls import strip_credentials
from latentscale_pipeline.views.terminal import print_lines


@click.command()
@click.argument("corpus")
@JSON
def info(corpus: str, as_json: bool) -> None:
    """Describe a corpus from its manifest, or files of vectors from their headers.

    \b
    Example:
      latentscale info corpus.zarr
      latentscale info embeddings.parquet
      latentscale info s3://bucket/corpus.zarr --json
    """
    try:
        opened = open_corpus(corpus)
    except BadInput:
        sources = _sources_there(corpus)
        if sources is None:
            raise
        _show_sources(corpus, sources, as_json)
    else:
        show_corpus(opened, as_json)


def _sources_there(path: str) -> Sources | None:
    """Return files of vectors that a job could ingest; None if there are none."""
    try:
        return open_sources([path])
    except BadInput:
        return None


def _show_sources(path: str, sources: Sources, as_json: bool) -> None:
    """Print what a job would take from files of vectors, and what else they hold."""
    first = sources.items[0]
    taken = {name: field.name for name, field in first.columns.items()}
    described: dict[str, Any] = {
        "sources": [asdict(SourceRecord(s.path, s.rows, s.dtype.name)) for s in sources.items],
        "n": sources.rows,
        "d": sources.d,
        "vectors": first.field.name or None,
        "taken": taken,
        "left_out": list(sources.left_out),
    }
    if as_json:
        click.echo(json.dumps(described, indent=2))
        return
    field = f" from {first.field.name}" if first.field.name else ""
    lines = {
        "vectors": f"{sources.rows:,} x {sources.d} {first.dtype.name}{field}, not ingested",
        **{name: f"from {column}" for name, column in taken.items()},
        **({"left out": ", ".join(sources.left_out)} if sources.left_out else {}),
        **({"sources": "\n".join(_sources(described["sources"]))} if sources.items[1:] else {}),
        "next": f"latentscale run {shlex.quote(path)}",
    }
    _print_table(strip_credentials(path), lines)


def show_corpus(corpus: Corpus, as_json: bool) -> None:
    """Print a corpus' description on standard output, as a table or as JSON."""
    described = describe(corpus)
    if as_json:
        click.echo(json.dumps(described, indent=2))
    else:
        _show_table(corpus, described)


def describe(corpus: Corpus) -> dict[str, Any]:
    """Return a corpus' description as plain values."""
    manifest = corpus.manifest
    return {
        "uri": corpus.url,
        "fingerprint": corpus.fingerprint,
        "n": corpus.n,
        "d": corpus.d,
        "dtype": corpus.dtype.name,
        "shards": corpus.shard_count,
        "shard_rows": corpus.shard_rows,
        "bytes": sum(stored.size for stored in manifest.objects()),
        "arrays": sorted(manifest.arrays),
        "zero_rows": asdict(manifest.zero_rows),
        "repeated_ids": asdict(manifest.repeated_ids) if manifest.repeated_ids else None,
        "dropped": {"count": manifest.dropped.count, "rows": list(manifest.dropped.rows)},
        "sources": [asdict(source) for source in manifest.sources],
        "created": manifest.created,
        "version": manifest.version,
    }


def _show_table(corpus: Corpus, described: dict[str, Any]) -> None:
    zero, dropped = described["zero_rows"], described["dropped"]
    repeated = described["repeated_ids"]
    lines = {
        "vectors": f"{corpus.n:,} x {corpus.d} {corpus.dtype.name}",
        "fingerprint": corpus.fingerprint,
        "stored": f"{decimal(described['bytes'])} in {corpus.shard_count} shards of "
        f"{corpus.shard_rows:,} rows",
        "with": ", ".join(described["arrays"]) or "no ids, labels or weights",
        "zero rows": _counted(zero["count"], zero["first"]),
        **({"repeated ids": _counted(**repeated)} if repeated else {}),
        "dropped rows": _counted(
            dropped["count"], next(iter(dropped["rows"]), None), " of the sources"
        ),
        "sources": "\n".join(_sources(described["sources"])),
        "created": f"{corpus.manifest.created} by latentscale {corpus.manifest.version}",
    }
    _print_table(corpus.url, lines)


def _print_table(heading: str, lines: Mapping[str, str]) -> None:
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in lines.items():
        table.add_row(name, Text(value))
    console = Console()
    # A path in one piece can be copied, however narrow the terminal is.
    print_lines(console, [heading])
    console.print(table)


def _counted(count: int, first: int | None, of: str = "") -> str:
    return f"{count:,}, the first at {first}{of}" if count else "none"


def _sources(sources: list[dict[str, Any]]) -> list[str]:
    shown = [f"{source['path']} ({source['rows']:,} {source['dtype']})" for source in sources[:5]]
    return [*shown, f"and {len(sources) - 5} more"] if len(sources) > 5 else shown
