"""``latentscale ingest``: turn embedding files into a corpus."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import click

from latentscale_pipeline.cli.info import show_corpus
from latentscale_pipeline.cli.options import ON_INVALID
from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.corpus.formats import FORMATS
from latentscale_pipeline.corpus.ingest.append import append as add_rows
from latentscale_pipeline.corpus.ingest.create import ingest as write_corpus
from latentscale_pipeline.corpus.ingest.encoding import Run
from latentscale_pipeline.corpus.ingest.sources import (
    FieldChoice,
    Sources,
    describe_sources,
    open_sources,
)
from latentscale_pipeline.errors import Interrupted
from latentscale_pipeline.jobs.ingestion import ingest_runner, worker_runner
from latentscale_pipeline.jobs.machine import usable_cores
from latentscale_pipeline.progress import Progress, reported
from latentscale_pipeline.views.formatting import printable

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
@click.argument("sources", metavar="SOURCE...", nargs=-1)
@click.argument("corpus")
@click.option("--format", "kind", help="Format of all sources: npy, csv, u8bin …. Default: detect.")
@click.option("--vectors", help="Array, dataset or column with the vectors, if there are several.")
@click.option("--ids", help="File with one id per row: a column, or a text file with one per line.")
@click.option("--labels", help="File with one label per row.")
@click.option("--texts", help="File with one text per row; its beginning is shown with the row.")
@click.option("--weights", help="File with one weight per row.")
@click.option(
    "--ids-column",
    help="Column of that file or, without --ids, of the sources. Default: id or ids of the "
    "sources, if they have it; '' for none.",
)
@click.option("--labels-column", help="The same for labels: label or labels.")
@click.option("--texts-column", help="The same for texts: text or texts.")
@click.option("--weights-column", help="The same for weights.")
@ON_INVALID
@click.option(
    "--dtype",
    type=click.Choice(["float16", "float32"]),
    help="Stored dtype. Default: float16 if all sources are, else float32.",
)
@click.option(
    "--shard-size", callback=_bytes, default="64MiB", show_default=True, help="Approximate."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Worker processes. Default: 1 below 16 GiB, else up to 4, by cores.",
)
@click.option(
    "--memory-limit",
    callback=_bytes,
    default="1GiB",
    show_default=True,
    help="Memory of each worker, if there are several.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace an existing corpus once the new one is whole."
)
@click.option("--append", "grow", is_flag=True, help="Add the rows to an existing corpus.")
@click.option("--json", "as_json", is_flag=True, help="Describe the corpus as one JSON document.")
def ingest(
    sources: tuple[str, ...],
    corpus: str,
    kind: str | None,
    vectors: str | None,
    on_invalid: str,
    dtype: str | None,
    shard_size: int,
    workers: int | None,
    memory_limit: int,
    overwrite: bool,
    grow: bool,
    as_json: bool,
    **beside: Any,
) -> None:
    """Turn embedding files into a corpus.

    SOURCE is a file of any known format, a folder or a glob: .npy, .npz, Parquet, Arrow, HDF5,
    safetensors, .fbin .f16bin .u8bin .i8bin, .fvecs .bvecs, CSV, TSV, word2vec text, Zarr, or
    another corpus. The format is detected from the content. CORPUS is where the corpus goes. Both
    may be URLs such as s3://bucket/name. Sources are taken in the order given, the files of a
    folder or glob in natural order (part_2 before part_10). The only two-dimensional float array of
    a file is taken; of several, name one with --vectors (columns emb_0, emb_1 … are 'emb_*').

    \b
    Example:
      latentscale ingest train/ extra.npy corpus.zarr --labels labels.txt
      latentscale ingest 'shards/*.npy' s3://bucket/corpus.zarr --on-invalid drop
      latentscale ingest today.npy corpus.zarr --append
      latentscale ingest 'part-*.parquet' corpus.zarr --vectors emb --ids-column key
    """
    if not sources:  # what is named last is the corpus
        raise click.UsageError(
            f"missing argument 'CORPUS', where the corpus goes: latentscale ingest {corpus} CORPUS"
        )
    if kind is not None and kind not in FORMATS:
        raise click.BadParameter(
            f"{kind!r} isn't a format; the formats are {', '.join(FORMATS)}",
            param_hint="'--format'",
        )
    if grow and (overwrite or dtype):
        raise click.UsageError(
            "--append keeps the existing rows: leave out --overwrite and --dtype"
        )
    names = ("ids", "labels", "texts", "weights")
    fields = FieldChoice(
        vectors,
        columns={
            name: column for name in names if (column := beside[f"{name}_column"]) is not None
        },
        files={name: file for name in names if (file := beside[name]) is not None},
    )
    opened = open_sources(sources, corpus, kind=kind, vectors=vectors, columns=fields.inside)
    with reported("ingest", "rows") as progress:
        run = _runner(opened, workers, memory_limit, progress)
        written = (add_rows if grow else partial(write_corpus, dtype=dtype, overwrite=overwrite))(
            opened,
            corpus,
            ids=fields.files.get("ids"),
            labels=fields.files.get("labels"),
            texts=fields.files.get("texts"),
            weights=fields.files.get("weights"),
            columns=fields.columns,
            on_invalid=on_invalid,
            shard_bytes=shard_size,
            run=run,
            progress=progress,
        )
    try:
        before = written.manifest.arrays if grow else None
        for line in describe_sources(opened, before, written.dtype):
            click.echo(f"ingest: {line}", err=True)
        show_corpus(written, as_json)
    except (KeyboardInterrupt, Interrupted):
        # Whoever repeats the command would append the same rows a second time.
        click.echo(f"interrupted; the rows are in {printable(written.url)}", err=True)


def _runner(sources: Sources, workers: int | None, memory_limit: int, progress: Progress) -> Run:
    count = workers or min(4, usable_cores())
    cluster = Local(workers=count, memory_limit=memory_limit)
    if workers is not None and workers > 1:
        return worker_runner(cluster, sources.rows, progress)
    return ingest_runner(cluster, sources, progress)
