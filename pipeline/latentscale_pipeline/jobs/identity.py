"""The identity of a job: a hash of everything that determines its results.

The hash covers the corpora's fingerprints and ids, how rows are paired and grouped, the seed, the
replicates, the budget, the source of the scales, and the measures. It doesn't cover the job's name,
its output folder or the cluster it runs on. Stages are identified the same way, without ids, so any
job that needs the same stage can reuse its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.config.job import OWN_SCALES, JobConfig
from latentscale_pipeline.storage.canonical import digest, slug


def config_hash(
    config: JobConfig,
    corpus: str,
    reference: str | None,
    fixed_scales: Mapping[str, float] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> str:
    """Hash everything that determines a job's results.

    Parameters
    ----------
    config : JobConfig
        The resolved configuration.
    corpus, reference : str
        Fingerprints of the corpora.
    fixed_scales : mapping, optional
        The scales taken from a finished job. Their values are hashed, not the job's address; a job
        that needs none of them is that of ``scales_from: auto``.
    beside : mapping, optional
        Checksums of the ids, and of what measures read besides the vectors.
    """
    sampling, own = config.sampling.model_dump(exclude_defaults=True), config.scales_from
    return digest(
        {
            **({"beside": beside} if beside else {}),
            **({"sampling": sampling} if sampling else {}),
            **({"pair": config.pair} if config.pair else {}),
            **({"group_by": config.group_by} if config.group_by else {}),
            "corpora": {"corpus": corpus, "reference": reference},
            "seed": config.seed,
            "replicates": config.replicates.model_dump(),
            "budget": config.budget.model_dump(),
            "scales_from": fixed_scales or (own if own in OWN_SCALES else "auto"),
            "measures": {name: part.model_dump() for name, part in config.measures.items()},
        }
    )


def job_id(config: JobConfig, hashed: str) -> str:
    """Return the name of a job's folder: its slug and eight hexadecimal digits of its hash."""
    return f"{slug(config.name)}-{hashed[:8]}"


def short_name(job: str, folder: str) -> str:
    """Return a short name of a job for cluster schedulers, which limit the length of names.

    Parameters
    ----------
    job : str
        The name that :func:`job_id` returns.
    folder : str
        The job's folder. Jobs of the same identity in two folders get two names.

    Returns
    -------
    str
        At most 36 characters of ``a-z``, ``0-9`` and hyphens, starting with a letter.
    """
    name, _, hashed = job.rpartition("-")
    return f"ls-{name[:15].strip('-')}-{hashed}-{digest(folder)[:8]}"
