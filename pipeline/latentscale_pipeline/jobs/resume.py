"""Plan a job again from its folder: the same stages, the same identity.

The settings come from the stored configuration. The addresses of the corpora and the values of
shared scales come from the stored plan, so the sources of a corpus, or the job that the scales came
from, may have been removed. Credentials aren't stored; they come from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from latentscale_pipeline.config.job import JobConfig, read_frozen_config
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import Plan, make_plan, measure_sections
from latentscale_pipeline.jobs.stored_plan import read_plan
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.finished_job import refuse_folder_of_jobs
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options

ROLES: tuple[Role, ...] = ("corpus", "reference")


def plan_again(
    folder: str,
    overrides: Sequence[str] = (),
    *,
    allow_code: bool = False,
) -> Plan:
    """Plan the job of a folder again.

    Parameters
    ----------
    folder : str
        The job's folder: a path or any fsspec URL.
    overrides : sequence of str
        ``section.key=value`` assignments to keys of ``cluster``, ``driver`` and
        ``storage_options``.
    allow_code : bool
        Whether functions that the configuration names may be imported and run.

    Raises
    ------
    BadInput
        If the folder isn't a job, a corpus has been removed or replaced, or this version of the
        program would plan a different job.
    """
    store = ObjectStore(folder)
    output, _, name = folder.rstrip("/").rpartition("/")
    if store.is_local:
        output, _, name = os.path.realpath(store.url).rpartition("/")  # a link to a job is the job
    config = _read_config(store, output, overrides)
    stored = read_plan(store)
    try:
        scales = dict(stored["scales"])
        known: dict[Role, tuple[str, str]] = {
            role: (stored["corpora"][role]["uri"], stored["corpora"][role]["fingerprint"])
            for role in ROLES
            if role in stored["corpora"]
        }
    except (ValueError, KeyError, TypeError):
        raise _incomplete(store, "plan.json") from None
    with storage_options(config.storage_options):
        corpora = {
            role: _find(role, *place, output, getattr(config.exclude_shards, role))
            for role, place in known.items()
        }
    plan = make_plan(config, corpora=corpora, scales=scales, allow_code=allow_code)
    if plan.id != name:
        raise BadInput(
            f"{store.url}: its configuration and corpora give the job {plan.id}, not this one: the "
            "folder was renamed, comes from another version, or ids, labels or texts of a corpus "
            "or the file of a function were changed; use latentscale run for a new job"
        )
    return plan


def _read_config(store: ObjectStore, output: str, overrides: Sequence[str]) -> JobConfig:
    try:
        text = store.read("config.json").decode("utf-8", "replace")
    except FileNotFoundError:
        raise _incomplete(store, "config.json") from None
    config = read_frozen_config(
        text,
        store.locate("config.json"),
        overrides=overrides,
        measures=measure_sections(),
    )
    # The folder may have been moved, and the stored address has no credentials.
    return config.model_copy(update={"output": output})


def _incomplete(store: ObjectStore, name: str) -> BadInput:
    refuse_folder_of_jobs(store)
    return BadInput(
        f"{store.url}: no readable {name} to resume from; name a job's folder, "
        "or use latentscale run with the job's configuration"
    )


def _find(role: Role, uri: str, fingerprint: str, output: str, excluded: Collection[str]) -> Corpus:
    """Open a corpus at its old place, or among the corpora that moved with the job's folder."""
    moved = f"{output}/corpora/{uri.rstrip('/').rpartition('/')[2]}"
    try:
        corpus = open_corpus(moved).without(excluded)
        corpus.check_sizes()
    except BadInput:
        corpus = open_corpus(uri).without(excluded)
    if corpus.fingerprint != fingerprint:
        raise BadInput(
            f"{role}: {corpus.url} isn't the corpus that this job was planned with (fingerprint "
            f"{corpus.fingerprint}, not {fingerprint}); restore that corpus, or run a new job"
        )
    return corpus
