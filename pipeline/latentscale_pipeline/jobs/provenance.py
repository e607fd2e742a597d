"""Provenance of a job: data, code, libraries, machine, and the command of every run.

``provenance.json`` records what a job measures, and for each of its runs the software and the
machine; the last run is the one that finished the job. It records no environment variables, no
names of people or machines, and no credentials: user info and query strings are removed from URLs.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from latentscale import __version__
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.keys import code_version
from latentscale_pipeline.jobs.inventory import INVENTORY_KEY
from latentscale_pipeline.jobs.machine import describe_machine
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import without_credentials

PROVENANCE_KEY = "provenance.json"
PROVENANCE_SCHEMA = "latentscale.provenance/1"

LISTED_SOURCES = 100
"""Number of sources listed per corpus; the corpus' manifest lists them all."""

GIT_SECONDS = 5.0


def write_provenance(
    store: ObjectStore, plan: Plan, *, attempt: str, started: str, command: Sequence[str]
) -> dict[str, Any]:
    """Add this run to a job's provenance; the caller must hold the job's lock.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    plan : Plan
        The job.
    attempt : str
        The name of the run.
    started : str
        When it began, in ISO 8601.
    command : sequence of str
        Arguments of the command line; empty if there was none.

    Returns
    -------
    dict
        The document that was written.
    """
    run = {
        "attempt": attempt,
        "started": started,
        "command": shlex.join(["latentscale", *without_credentials(command)]) if command else None,
        **describe_software(),
        "threads": {
            "workers": plan.cluster.workers,
            "tasks_of_a_worker": plan.cluster.threads,
            "inside_a_task": 1,
        },
        "machine": describe_machine(),
        "git": git_state(Path.cwd()),
    }
    document: dict[str, Any] = {
        "schema": PROVENANCE_SCHEMA,
        "job": plan.id,
        "config_hash": plan.config_hash,
        "seed": plan.config.seed,
        "inventory": INVENTORY_KEY,
        "corpora": {role: _describe_corpus(corpus) for role, corpus in plan.corpora.items()},
        "runs": [*_earlier_runs(store), run],
    }
    document = without_credentials(document)
    store.write_checked(PROVENANCE_KEY, (json.dumps(document, indent=1) + "\n").encode())
    return document


def describe_software() -> dict[str, Any]:
    """Return the versions of Python, this package and its libraries, and the BLAS in use."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "latentscale": {"version": __version__, "code": code_version()},
        "libraries": _library_versions(),
        "linear_algebra": [
            {name: info.get(name) for name in ("internal_api", "version", "architecture")}
            for info in threadpool_info()
            if info.get("user_api") == "blas"
        ],
    }


@cache
def _library_versions() -> dict[str, str]:
    names = [
        re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        for requirement in metadata.requires("latentscale") or ()
        if not re.search(r"extra == ['\"]test", requirement)
    ]
    found = {}
    for name in sorted(names):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that isn't installed
    return found


def _describe_corpus(corpus: Corpus) -> dict[str, Any]:
    sources = corpus.manifest.sources
    return {
        "uri": corpus.url,
        "fingerprint": corpus.fingerprint,
        "n": corpus.n,
        "d": corpus.d,
        "dtype": str(corpus.dtype),
        "ingested": corpus.manifest.created,
        "ingested_by": corpus.manifest.version,
        "dropped_rows": corpus.manifest.dropped.count,
        "source_count": len(sources),
        "sources": [asdict(source) for source in sources[:LISTED_SOURCES]],
    }


def _earlier_runs(store: ObjectStore) -> list[Any]:
    try:
        runs = json.loads(store.read(PROVENANCE_KEY))["runs"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return runs if isinstance(runs, list) else []


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of the repository that a folder is in, and whether it has changes.

    Returns
    -------
    dict or None
        ``commit`` (None before the first commit) and ``dirty`` (None if git takes too long to
        answer); None outside a repository or without git.
    """
    if _git(folder, "rev-parse", "--is-inside-work-tree") != "true":
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _git(folder, "rev-parse", "--verify", "HEAD"),
        "dirty": None if changed is None else bool(changed),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    # git status may run programs that the repository's configuration names; it isn't trusted.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    try:
        ended = subprocess.run(  # noqa: S603 -- fixed arguments, no shell
            ["git", *safe, *arguments],  # noqa: S607 -- the user's own git
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return ended.stdout.strip()
