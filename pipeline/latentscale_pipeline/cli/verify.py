"""``latentscale verify``: check every byte of a corpus or a job."""

from __future__ import annotations

import json

import click

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus import verify as verify_corpus
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.jobs.verification import verify_job
from latentscale_pipeline.measures.finished_job import find_job
from latentscale_pipeline.progress import reported


@click.command()
@click.argument("place", metavar="CORPUS|JOB")
@JSON
def verify(place: str, as_json: bool) -> None:
    """Check every byte of a corpus, or of a job's folder, against its checksums.

    Every missing, empty, truncated or changed file is named in one line. If there is one, the exit
    code is 2 for a corpus and 3 for a job. `run --verify` recomputes the damaged parts of a job and
    nothing else.

    \b
    Example:
      latentscale verify corpus.zarr
      latentscale verify jobs/nightly-0a1b2c3d
    """
    store = find_job(place)
    damage: type[BadInput | Incomplete]
    if store.exists("plan.json"):
        with reported("verify", "parts") as progress:
            found = verify_job(store, progress)
        about = {"uri": store.url, "finished": store.exists("results.json")}
        damage = Incomplete
        advice = "run the job again with --verify to compute just these parts again"
    else:
        corpus = open_corpus(place)
        with reported("verify", "files") as progress:
            found = verify_corpus(corpus, progress)
        about = {"uri": corpus.url, "fingerprint": corpus.fingerprint}
        damage = BadInput
        advice = "restore them, or ingest the corpus again with --overwrite"
    bad = list(found.problems)
    if as_json:
        about |= {"files": found.objects, "bytes": found.size, "ok": not bad, "problems": bad}
        click.echo(json.dumps(about, indent=2))
    elif bad:
        click.echo("\n".join(bad))
    else:
        counted = f"{found.objects} files, {found.size} bytes"
        click.echo(f"{about['uri']}: {counted}, all intact")
    if bad:
        raise damage(f"{about['uri']}: {len(bad)} of {found.objects} files are bad; {advice}")
