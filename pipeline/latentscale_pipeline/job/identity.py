"""What makes two jobs, or two pieces of work, the same.

A job is identified by what determines its numbers: the corpora's fingerprints, the seed,
replicates, budget, where scales come from, and the measures; not by its name, its output place or
the cluster it runs on. A stage is identified the same way, so that its results can be used again
by any job that asks for the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from latentscale_pipeline.job.config import JobConfig


def slug(name: str) -> str:
    """Turn any text into a folder name made of ``a-z``, ``0-9`` and single hyphens."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:80].strip("-") or "job"


def canonical(value: Any) -> str:
    """Write a JSON value in its one canonical form: sorted keys, no spaces, infinity as text."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> Any:
    """Turn a value into what JSON has: infinity becomes text, a tuple a list."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value's canonical form, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def config_hash(
    config: JobConfig,
    corpus: str,
    reference: str | None,
    fixed_scales: Mapping[str, float] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> str:
    """Hash everything that determines a job's numbers.

    Parameters
    ----------
    config : JobConfig
        The resolved configuration.
    corpus, reference : str
        Fingerprints of the corpora.
    fixed_scales : mapping, optional
        The scales that come from a finished job: they count, not where that job is.
    beside : mapping, optional
        Checksums of what measures read beside the vectors.
    """
    return digest(
        {
            **({"beside": beside} if beside else {}),
            "corpora": {"corpus": corpus, "reference": reference},
            "seed": config.seed,
            "replicates": config.replicates.model_dump(),
            "budget": config.budget.model_dump(),
            "scales_from": fixed_scales or config.scales_from,
            "measures": {name: part.model_dump() for name, part in config.measures.items()},
        }
    )


def job_id(config: JobConfig, hashed: str) -> str:
    """Name a job's folder: its slug and eight digits of its hash."""
    return f"{slug(config.name)}-{hashed[:8]}"


def short_name(job: str, folder: str) -> str:
    """Name a job for schedulers of clusters, which take few characters and know many folders.

    Parameters
    ----------
    job : str
        As :func:`job_id` gives it.
    folder : str
        Where it is: jobs of the same identity in two places are two jobs.

    Returns
    -------
    str
        At most 36 characters of ``a-z``, ``0-9`` and hyphens, the first one a letter.
    """
    name, _, hashed = job.rpartition("-")
    return f"ls-{name[:15].strip('-')}-{hashed}-{digest(folder)[:8]}"


@cache
def code_version() -> str:
    """Hash the source of the measures and of the stages that call them.

    Results computed by other code are computed again, whether or not anyone remembered to
    change a version number.
    """
    hasher = hashlib.sha256()
    for package, folder in (("latentscale", ""), ("latentscale_pipeline", "stages")):
        for path, source in _sources(resources.files(package) / folder):
            hasher.update(path.encode() + b"\0" + source)
    return hasher.hexdigest()[:16]


def _sources(folder: Traversable, within: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        path = within + entry.name
        if entry.is_dir():
            yield from _sources(entry, path + "/")
        elif entry.name.endswith(".py"):
            yield path, entry.read_bytes()
