"""The identity of a job: a hash of everything that determines its numbers.

A job is identified by what determines its numbers: the corpora's fingerprints, the seed,
replicates, budget, where scales come from, and the measures; not by its name, its output place or
the cluster it runs on. A stage is identified the same way, so that its results can be used again
by any job that asks for the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.storage.canonical import digest, slug


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
