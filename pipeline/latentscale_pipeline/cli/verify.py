"""``latentscale verify``: every byte of a corpus against its manifest."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("corpus")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(corpus: str, as_json: bool) -> None:
    """Check every byte of a corpus against its manifest.

    Each file that is missing, empty, truncated or changed is named in a line of its own; exit code
    2 says that there is one.

    \b
    Example:
      latentscale verify corpus.zarr
    """
    from latentscale_pipeline.corpus import open_corpus
    from latentscale_pipeline.corpus import verify as check
    from latentscale_pipeline.errors import BadInput
    from latentscale_pipeline.progress import reported

    opened = open_corpus(corpus)
    with reported("verify", "files") as progress:
        found = check(opened, progress)
    if as_json:
        document = {
            "uri": opened.url,
            "fingerprint": opened.fingerprint,
            "ok": not found.problems,
            "files": found.objects,
            "bytes": found.size,
            "problems": list(found.problems),
        }
        click.echo(json.dumps(document, indent=2))
    else:
        for problem in found.problems:
            click.echo(problem)
    if found.problems:
        raise BadInput(
            f"{opened.url}: {len(found.problems)} of {found.objects} files are bad; restore them, "
            "or ingest the corpus again with --overwrite"
        )
    if not as_json:
        click.echo(
            f"{opened.url}: {found.objects} files, {found.size} bytes, all as they should be"
        )
