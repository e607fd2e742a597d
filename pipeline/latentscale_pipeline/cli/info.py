"""``latentscale info``: what a corpus holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.views.terminal import print_lines


@click.command()
@click.argument("corpus")
@JSON
def info(corpus: str, as_json: bool) -> None:
    """Describe a corpus, from its manifest alone.

    \b
    Example:
      latentscale info corpus.zarr
      latentscale info s3://bucket/corpus.zarr --json
    """
    show_corpus(open_corpus(corpus), as_json)


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
        "dropped rows": _counted(dropped["count"], next(iter(dropped["rows"]), None)),
        "sources": "\n".join(_sources(described["sources"])),
        "created": f"{corpus.manifest.created} by latentscale {corpus.manifest.version}",
    }
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in lines.items():
        table.add_row(name, Text(value))
    console = Console()
    # A path in one piece can be copied, however narrow the terminal is.
    print_lines(console, [corpus.url])
    console.print(table)


def _counted(count: int, first: int | None) -> str:
    return f"{count:,}, the first at {first}" if count else "none"


def _sources(sources: list[dict[str, Any]]) -> list[str]:
    shown = [f"{source['path']} ({source['rows']:,} {source['dtype']})" for source in sources[:5]]
    return [*shown, f"and {len(sources) - 5} more"] if len(sources) > 5 else shown
