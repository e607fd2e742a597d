"""Take scales from a finished job, so that two jobs can be compared.

Two numbers are comparable only if they were computed with the same bandwidth, epsilon or cut-off
scale. ``scales_from`` may name a finished job; each scale that the new job needs is then taken from
that job, if it derived the scale under the same metric. Otherwise the new job is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.config.job import OWN_SCALES, JobConfig
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.finished_job import FinishedJob, read_job
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.storage.objects import ObjectStore


def read_scales(config: JobConfig) -> dict[str, float]:
    """Read the scales that a job needs from the finished job that it names.

    Returns
    -------
    dict
        The scales that the job needs, by name; empty if scales are derived from the job's own
        corpora.

    Raises
    ------
    BadInput
        If the named job isn't finished, or didn't derive a scale that is needed.
    """
    if config.scales_from in OWN_SCALES:
        return {}
    scales = find_scales(config)
    missing = [name for name, value in scales.items() if value is None]
    if missing:
        raise BadInput(
            f"scales_from: {ObjectStore(config.scales_from).url} did not derive "
            f"{' and '.join(missing)} under the metric asked for; set it in the configuration, or "
            "choose another job"
        )
    return {name: value for name, value in scales.items() if value is not None}


def find_scales(config: JobConfig) -> dict[str, float | None]:
    """Return the scales that a job needs, from the finished job that it names.

    Returns
    -------
    dict
        Every scale by name; None where that job didn't derive it under the metric asked for.

    Raises
    ------
    BadInput
        If the named job isn't finished.
    """
    store = ObjectStore(config.scales_from)
    try:
        job = read_job(config.scales_from)
        settings = (job.settings or {})["measures"]
        derived = _derived_scales(job, settings)
        scales: dict[str, float | None] = {}
        for name, section in config.measures.items():
            given, part = settings.get(name), job.results.part(name)
            for scale, own in MEASURES[name].read_scales(section, given, part).items():
                # Measures share scales, so another one of that job may know it.
                others = (
                    found[scale]
                    for other, found in derived.items()
                    if other != name and scale in found
                )
                known = own if own is not None else next(others, None)
                scales[scale] = scales.get(scale) if known is None else known
    except (BadInput, KeyError, TypeError, AttributeError):
        raise BadInput(
            f"scales_from: {store.url} has no readable results.json and config.json; write auto, "
            "corpus, reference or the folder of a finished job"
        ) from None
    return {name: None if value is None else float(value) for name, value in scales.items()}


def _derived_scales(job: FinishedJob, settings: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the scales that each measure of a finished job derived."""
    derived: dict[str, dict[str, float]] = {}
    for name, given in settings.items():
        measure, part = MEASURES.get(name), job.results.part(name)
        if measure is None or part is None:
            continue
        try:
            section = measure.section.model_validate(given)
        except ValueError:  # settings of an earlier version
            continue
        found = measure.read_scales(section, given, part)
        derived[name] = {scale: value for scale, value in found.items() if value is not None}
    return derived
