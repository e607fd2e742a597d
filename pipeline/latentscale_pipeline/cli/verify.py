"""``latentscale verify``: check every byte of a corpus or a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from latentscale_pipeline.storage.objects import ObjectStore


@click.command()
@click.argument("place", metavar="CORPUS|JOB")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(place: str, as_json: bool) -> None:
    """Check every byte of a corpus, or of a job's folder, against its checksums.

    Each file that is missing, empty, truncated or changed is named in a line of its own. There
    being one is exit code 2 for a corpus, and 3 for a job: `run --verify` computes again what is
    damaged there, and nothing else.

    \b
    Example:
      latentscale verify corpus.zarr
      latentscale verify jobs/nightly-0a1b2c3d
    """
    from latentscale_pipeline.jobs.verification import is_job
    from latentscale_pipeline.storage.objects import ObjectStore

    store = ObjectStore(place)
    if is_job(store):
        _verify_job(store, as_json)
    else:
        _verify_corpus(place, as_json)


def _verify_corpus(place: str, as_json: bool) -> None:
    from latentscale_pipeline.corpus import open_corpus
    from latentscale_pipeline.corpus import verify as check
    from latentscale_pipeline.errors import BadInput
    from latentscale_pipeline.progress import reported

    opened = open_corpus(place)
    with reported("verify", "files") as progress:
        found = check(opened, progress)
    _print(
        as_json,
        found.problems,
        {
            "uri": opened.url,
            "fingerprint": opened.fingerprint,
            "files": found.objects,
            "bytes": found.size,
        },
    )
    if found.problems:
        raise BadInput(
            f"{opened.url}: {len(found.problems)} of {found.objects} files are bad; restore them, "
            "or ingest the corpus again with --overwrite"
        )


def _verify_job(store: ObjectStore, as_json: bool) -> None:
    from latentscale_pipeline.errors import Incomplete
    from latentscale_pipeline.jobs.verification import verify_job
    from latentscale_pipeline.progress import reported

    with reported("verify", "parts") as progress:
        found = verify_job(store, progress)
    about = {
        "uri": store.url,
        "finished": found.finished,
        "files": found.files,
        "bytes": found.size,
    }
    _print(as_json, found.problems, about)
    if found.problems:
        raise Incomplete(
            f"{store.url}: {len(found.problems)} of {found.files} files are bad; run the job again "
            "with --verify to compute just these parts again"
        )


def _print(as_json: bool, problems: tuple[str, ...], about: dict[str, Any]) -> None:
    if as_json:
        document = {**about, "ok": not problems, "problems": list(problems)}
        click.echo(json.dumps(document, indent=2))
        return
    for problem in problems:
        click.echo(problem)
    if not problems:
        click.echo(
            f"{about['uri']}: {about['files']} files, {about['bytes']} bytes, all as they should be"
        )
