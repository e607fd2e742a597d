"""Vendi scores: the effective number of items of a corpus, by kernel and order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, MeasureReport, Results
from latentscale_pipeline.measures.vendi.config import Vendi
from latentscale_pipeline.results.part import Part


class VendiMeasure(Measure):
    """How Vendi scores take part in a job."""

    section = Vendi

    def plan(self, section: Vendi, facts: JobFacts) -> list[Stage]:
        """Plan the scores of every corpus under every kernel."""
        from latentscale_pipeline.measures.vendi.plan import plan_vendi

        return plan_vendi(section, facts)

    def collect(self, section: Vendi, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores by corpus, kernel and order."""
        from latentscale_pipeline.measures.vendi.collect import collect_vendi

        return collect_vendi(section, facts, results)

    def scales(self, found: Any) -> Iterator[tuple[str, Any]]:
        """Yield the bandwidths of every kernel."""
        entries = [entry for entry in found["corpus"] if entry["bandwidth"] is not None]
        kernels = dict.fromkeys((str(entry["kernel"]), entry["bandwidth"]) for entry in entries)
        seen: dict[str, int] = {}
        for kernel, bandwidth in kernels:
            seen[kernel] = seen.get(kernel, 0) + 1
            which = "" if seen[kernel] == 1 else f" {seen[kernel]}"
            yield f"bandwidth{which} of vendi {kernel}", bandwidth

    def read_scales(self, section: Vendi, settings: Any, found: Any) -> Mapping[str, float | None]:
        """Take the bandwidth from a finished job, if a kernel's is the median distance."""
        if all(kernel.bandwidth != "median" for kernel in section.kernels):
            return {}
        kernels = (settings or {}).get("kernels", [])
        given = {(kernel["name"], kernel["bandwidth"]) for kernel in kernels}
        derived = {kernel["name"] for kernel in kernels if kernel["bandwidth"] == "median"}
        bandwidths = [
            float(entry["bandwidth"])
            for entry in (found or {}).get("corpus", [])
            if entry["bandwidth"] is not None
            and entry["kernel"] in derived
            and (entry["kernel"], entry["bandwidth"]) not in given
        ]
        return {"bandwidth": bandwidths[0] if bandwidths else None}

    def results_model(self) -> type[Part]:
        """Return the model of its part of the results."""
        from latentscale_pipeline.measures.vendi.results import VendiResults

        return VendiResults

    def report(self) -> MeasureReport:
        """Return what the report says of them."""
        from latentscale_pipeline.measures.vendi.report import VendiReport

        return VendiReport()


MEASURE = VendiMeasure()
