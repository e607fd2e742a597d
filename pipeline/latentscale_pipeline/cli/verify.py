"""``latentscale verify``: check every byte of a corpus or a job."""

from __future__ import annotations

import json
from typing import Any

import click

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus import verify as verify_corpus
from latentscale_pipeline.corpus.documents import restore_documents
from latentscale_pipeline.corpus.verification import Verification
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.jobs.inventory import INVENTORY_KEY
from latentscale_pipeline.jobs.verification import is_barely_begun, verify_job
from latentscale_pipeline.measures.finished_job import find_job, refuse_folder_of_jobs
from latentscale_pipeline.progress import reported
from latentscale_pipeline.storage.objects import ObjectStore

JOB_FILES = (INVENTORY_KEY, "plan.json", "config.json", "results.json", "lock")
"""What tells the folder of a job, however early its run ended, from a corpus."""


@click.command()
@click.argument("place", metavar="CORPUS|JOB")
@click.option(
    "--restore", is_flag=True, help="First write damaged zarr.json files of a corpus anew."
)
@JSON
def verify(place: str, restore: bool, as_json: bool) -> None:
    """Check every byte of a corpus, or of a job's folder, against its checksums.

    Every missing, empty, truncated or changed file is named in one line. If there is one, the exit
    code is 2 for a corpus and 3 for a job. `run --verify` recomputes the damaged parts of a job and
    nothing else. A finished job lists its files in inventory.json, the report and the record of
    every run included; of other jobs, the parts that the plan names are checked. The corpora that a
    job read aren't in its folder: verify them by their own names.

    The zarr.json files of a corpus follow from its manifest; --restore writes damaged ones anew.

    \b
    Example:
      latentscale verify corpus.zarr
      latentscale verify corpus.zarr --restore
      latentscale verify jobs/nightly-0a1b2c3d
    """
    store = find_job(place)
    if restore:
        for key in restore_documents(open_corpus(place)):
            click.echo(f"restored: {store.locate(key)}", err=True)
    if any(map(store.exists, JOB_FILES)):
        about, found = _verify_job(store)
        damage: type[BadInput | Incomplete] = Incomplete
        advice = "run the job again with --verify to compute just these parts again"
    elif store.exists("") and not store.keys():
        raise BadInput(
            f"{store.url}: an empty folder, neither a job nor a corpus; name another, or run the "
            "job"
        )
    else:
        refuse_folder_of_jobs(store)
        about, found = _verify_corpus(place)
        damage = BadInput
        advice = "restore them, or ingest the corpus again with --overwrite"
    _show(about, found, as_json)
    if found.problems:
        bad = f"{len(found.problems)} of {found.objects} files are bad"
        raise damage(f"{about['uri']}: {bad}; {advice}")


def _show(about: dict[str, Any], found: Verification, as_json: bool) -> None:
    bad, note = list(found.problems), about.get("note")
    if as_json:
        counted = {"files": found.objects, "bytes": found.size}
        click.echo(json.dumps({**about, **counted, "ok": not bad, "problems": bad}, indent=2))
    elif bad:
        click.echo("\n".join(bad))
        if note is not None:
            click.echo(note, err=True)
    else:
        click.echo(f"{about['uri']}: {_told(found, note)}")


def _told(found: Verification, note: str | None) -> str:
    counted = f"{found.objects} files, {found.size} bytes, all intact" if found.objects else None
    return "; ".join(part for part in (counted, note) if part)


def _verify_job(store: ObjectStore) -> tuple[dict[str, Any], Verification]:
    """Verify a job; what isn't checked, or isn't there to check yet, is a note."""
    about = {"uri": store.url, "finished": store.exists("results.json")}
    if is_barely_begun(store):
        about["note"] = "the job has barely begun and nothing is computed yet; run it again"
        return about, Verification(0, 0, ())
    with reported("verify", "files") as progress:
        found = verify_job(store, progress)
    if not about["finished"] and not store.exists(INVENTORY_KEY):
        about["note"] = "the job isn't finished, so only what it has computed was checked"
    elif not store.exists(INVENTORY_KEY):
        about["note"] = (
            f"only what the plan names was checked, because there is no {INVENTORY_KEY}; if this "
            "version wrote the job, run it with --verify to write it again"
        )
    return about, found


def _verify_corpus(place: str) -> tuple[dict[str, Any], Verification]:
    corpus = open_corpus(place)
    with reported("verify", "files") as progress:
        found = verify_corpus(corpus, progress)
    return {"uri": corpus.url, "fingerprint": corpus.fingerprint}, found
