"""``latentscale ingest``: from embedding files to a corpus."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Return a size such as ``64MiB``, ``16M`` or a plain number in bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value, re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < 1:
        raise click.BadParameter(
            f"{value!r} is not a size; write it like 64MiB", context, parameter
        )
    return size


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("corpus")
@click.option("--ids", help="One id a row: .npy, or text with one a line.")
@click.option("--labels", help="One label a row: .npy, or text with one a line.")
@click.option("--weights", help="One weight a row: .npy, or text with one a line.")
@click.option(
    "--on-invalid",
    type=click.Choice(["error", "drop"]),
    default="error",
    show_default=True,
    help="What to do with rows that hold NaN or infinity; drop records which.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float16", "float32"]),
    help="Stored dtype. Default: float16 if all sources are, else float32.",
)
@click.option(
    "--shard-size", callback=_bytes, default="64MiB", show_default=True, help="About, of a shard."
)
@click.option("--overwrite", is_flag=True, help="Replace the corpus that is there.")
@click.option("--json", "as_json", is_flag=True, help="Describe the corpus as one JSON document.")
def ingest(
    sources: tuple[str, ...],
    corpus: str,
    ids: str | None,
    labels: str | None,
    weights: str | None,
    on_invalid: str,
    dtype: str | None,
    shard_size: int,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Turn embedding files into a corpus.

    SOURCE is a .npy or .npz file, an existing Zarr array or group, a folder or a glob; CORPUS is
    where the corpus goes. Both may be URLs such as s3://bucket/name. Sources are taken in the order
    given, the files of a folder or glob in natural order (part_2 before part_10).

    \b
    Example:
      latentscale ingest train/ extra.npy corpus.zarr --labels labels.txt
      latentscale ingest 'shards/*.npy' s3://bucket/corpus.zarr --on-invalid drop
    """
    from latentscale_pipeline.cli.info import show_corpus
    from latentscale_pipeline.corpus import ingest as write_corpus
    from latentscale_pipeline.corpus import open_sources
    from latentscale_pipeline.progress import reported

    opened = open_sources(sources, corpus)
    for skipped in opened.skipped:
        click.echo(f"ingest: {skipped}: left out, neither .npy, .npz nor Zarr", err=True)
    with reported("ingest", "rows") as progress:
        written = write_corpus(
            opened,
            corpus,
            ids=ids,
            labels=labels,
            weights=weights,
            on_invalid=on_invalid,
            dtype=dtype,
            shard_bytes=shard_size,
            overwrite=overwrite,
            progress=progress,
        )
    show_corpus(written, as_json)
