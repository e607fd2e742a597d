"""Scales taken from a finished job, so that two jobs measure with the same ruler.

A bandwidth, an epsilon or a cut-off scale that was derived from data is part of what a number
means. ``scales_from`` may name a finished job; each scale that the new job needs is then taken from
the place where that job derived it, under the same metric, or the job is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Geomca, JobConfig, Magnitude, Vendi
from latentscale_pipeline.objects import ObjectStore

WORDS = ("auto", "corpus", "reference")
"""What ``scales_from`` may say instead of naming a job."""


def read_scales(config: JobConfig) -> dict[str, float]:
    """Read the scales that a job needs from the finished job that it names.

    Returns
    -------
    dict
        ``epsilon``, ``t_cut`` and ``bandwidth``, as far as they are needed; empty when scales are
        derived from the job's own corpora.

    Raises
    ------
    BadInput
        If the named job isn't finished, or didn't derive a scale that is needed.
    """
    if config.scales_from in WORDS:
        return {}
    store = ObjectStore(config.scales_from)
    try:
        results = json.loads(store.read("results.json"))
        settings = json.loads(store.read("config.json"))["measures"]
        measures = results["measures"]
        readers = {
            "epsilon": (_needs_epsilon(config), _epsilon),
            "t_cut": (_needs_cut(config), _cut),
            "bandwidth": (_needs_bandwidth(config), _bandwidth),
        }
        found = {
            name: read(config, settings, measures)
            for name, (needed, read) in readers.items()
            if needed
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise BadInput(
            f"scales_from: {store.url} has no readable results.json and config.json; write auto, "
            "corpus, reference or the folder of a finished job"
        ) from None
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise BadInput(
            f"scales_from: {store.url} did not derive {' and '.join(missing)} under the metric "
            "asked for; set it in the configuration, or choose another job"
        )
    return {name: float(value) for name, value in found.items() if value is not None}


def _needs_epsilon(config: JobConfig) -> bool:
    section = config.measures.get("geomca")
    return isinstance(section, Geomca) and section.epsilon is None


def _needs_cut(config: JobConfig) -> bool:
    section = config.measures.get("magnitude")
    return isinstance(section, Magnitude) and isinstance(section.scales, int)


def _needs_bandwidth(config: JobConfig) -> bool:
    section = config.measures.get("vendi")
    return isinstance(section, Vendi) and any(k.bandwidth == "median" for k in section.kernels)


def _epsilon(
    config: JobConfig, settings: Mapping[str, Any], measures: Mapping[str, Any]
) -> float | None:
    geomca = measures.get("geomca")
    return None if geomca is None else geomca["epsilon"]


def _cut(
    config: JobConfig, settings: Mapping[str, Any], measures: Mapping[str, Any]
) -> float | None:
    lent = settings.get("magnitude")
    wanted = config.measures["magnitude"]
    if lent is None or not isinstance(lent["scales"], int):
        return None
    if not isinstance(wanted, Magnitude) or lent["metric"] != wanted.metric:
        return None
    scales = measures["magnitude"]["corpus"]["scales"]
    return scales[-1] if scales else None


def _bandwidth(
    config: JobConfig, settings: Mapping[str, Any], measures: Mapping[str, Any]
) -> float | None:
    kernels = settings.get("vendi", {}).get("kernels", [])
    given = {(kernel["name"], kernel["bandwidth"]) for kernel in kernels}
    derived = {kernel["name"] for kernel in kernels if kernel["bandwidth"] == "median"}
    for entry in measures.get("vendi", {}).get("corpus", []):
        kernel = (entry["kernel"], entry["bandwidth"])
        if entry["kernel"] in derived and kernel not in given and entry["bandwidth"] is not None:
            return float(entry["bandwidth"])
    return None
