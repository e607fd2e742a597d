"""``latentscale export-graph``: the neighbour graph of a finished job, for other tools."""

from __future__ import annotations

import click

from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.rows.neighbours import find_neighbours, write_neighbours


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option(
    "--output", required=True, metavar="TARGET", help="A file that ends in .npz, or a folder."
)
@click.option(
    "--of",
    "of",
    type=click.Choice(("corpus", "reference")),
    default="corpus",
    show_default=True,
    help="Rows of which corpus.",
)
@click.option(
    "--with-self",
    is_flag=True,
    help="Name every row as its own first neighbour, at distance 0, as umap-learn does.",
)
@click.option("--without-ids", is_flag=True, help="Leave the ids out.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def export_graph(
    job: str, output: str, of: Role, with_self: bool, without_ids: bool, overwrite: bool
) -> None:
    """Write the nearest rows of every row of JOB, the folder of a finished job, for other tools.

    A .npz file is a sparse matrix in SciPy's format: row i has the distances of the neighbours of
    row i, nearest first; beside it, "ids" has the ids. A folder gets indices.npy and distances.npy
    with a line for every row, and ids.npy. Distances are by the metric of the job.

    \b
    Example:
      latentscale export-graph jobs/nightly-1a2b3c4d --output graph.npz
      latentscale export-graph jobs/nightly-1a2b3c4d --of reference --output neighbours
      latentscale export-graph jobs/nightly-1a2b3c4d --with-self --output neighbours
    """
    written = write_neighbours(
        find_neighbours(read_job(job), of),
        output,
        with_self=with_self,
        with_ids=not without_ids,
        overwrite=overwrite,
    )
    itself = " and itself" if with_self else ""
    click.echo(
        f"{', '.join(written.files)}: {written.neighbours} neighbours of each of "
        f"{written.rows:,} rows{itself}"
    )
