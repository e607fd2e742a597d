"""Vendi scores: the effective number of items of a corpus, by kernel and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    RowColumn,
    Score,
)
from latentscale_pipeline.measures.vendi.config import Vendi
from latentscale_pipeline.measures.vendi.report import VendiReport
from latentscale_pipeline.measures.vendi.results import VendiResults
from latentscale_pipeline.results.kernel_names import is_kernel


class VendiMeasure(Measure):
    """The measure of Vendi scores."""

    section = Vendi
    results = VendiResults
    report = VendiReport()
    error_rows = 100

    def needs_directions(self, name: str, section: Vendi) -> str:
        """Return the kernel that does not accept rows of zeros."""
        cosine = any(kernel.name == "cosine" for kernel in section.kernels)
        return "the cosine kernel of vendi" if cosine else ""

    def plan(self, section: Vendi, facts: JobFacts) -> list[Stage]:
        """Plan the stages that score every corpus under every kernel."""
        from latentscale_pipeline.measures.vendi.plan import plan_vendi

        return plan_vendi(section, facts)

    def collect(self, section: Vendi, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores by corpus, kernel and order."""
        from latentscale_pipeline.measures.vendi.collect import collect_vendi

        return collect_vendi(section, facts, results)

    def section_of_sample(self, section: Vendi) -> Vendi:
        """Leave out the scores of labels, influences, and methods for many rows."""
        return section.model_copy(update={"labels": False, "method": "auto", "influence": False})

    def section_of_label(self, section: Vendi) -> Vendi:
        """Leave out influences."""
        return section.model_copy(update={"influence": False})

    def row_columns(self, found: VendiResults, role: Role) -> list[RowColumn]:
        """Return how much the cosine score loses without each row."""
        array = f"vendi/{role}/influence"
        return [RowColumn("vendi_influence", (array,))]

    def scales(self, found: VendiResults) -> Iterator[tuple[str, float]]:
        """Yield the bandwidths of every kernel."""
        kernels = dict.fromkeys((entry.kernel, entry.bandwidth) for entry in found.corpus)
        seen: Counter[str] = Counter()
        for kernel, bandwidth in kernels:
            if bandwidth is not None:
                seen[kernel] += 1
                which = "" if seen[kernel] == 1 else f" {seen[kernel]}"
                yield f"bandwidth{which} of vendi {kernel}", bandwidth

    def selectable(self, section: Vendi) -> Mapping[str, Sequence[str]]:
        """Return the kernels and orders of its settings."""
        from latentscale_pipeline.measures.vendi.plan import order_names

        kernels = [kernel.label for kernel in section.kernels]
        return {
            "kernel": [*kernels, *(["cosine"] if section.labels else [])],
            "order": order_names(section),
        }

    def deciding_settings(self, settings: Mapping[str, Any], score: Score) -> Mapping[str, Any]:
        """Leave out what adds scores, or values of rows, and changes no other score.

        Of the kernels, the score's own decides, by its bandwidth.
        """
        adds = {"influence", "labels", "orders"}
        if score.score != "truncated_vendi":
            adds.add("truncation")
        if score.kernel == "cosine":
            adds.add("method")  # of the other kernels
        decisive = {key: settings[key] for key in settings if key not in adds}
        if "kernels" in decisive:
            decisive["kernels"] = [
                kernel
                for kernel in decisive["kernels"] or ()
                if kernel.get("bandwidth") is not None
                and is_kernel("{name} {bandwidth}".format(**kernel), score.kernel or "")
            ]
        return decisive

    def depends_on(self, score: Score, scale: str) -> bool:
        """Return whether a score has the kernel of a bandwidth."""
        kernel = scale.partition(" of vendi ")[2]
        return score.kernel is not None and is_kernel(score.kernel, kernel)

    def read_scales(
        self, section: Vendi, settings: Any, found: VendiResults | None
    ) -> Mapping[str, float | None]:
        """Take the bandwidth from a finished job, if a kernel uses the median distance."""
        if all(kernel.bandwidth != "median" for kernel in section.kernels):
            return {}
        kernels = (settings or {}).get("kernels", [])
        given = {(kernel["name"], kernel["bandwidth"]) for kernel in kernels}
        derived = {kernel["name"] for kernel in kernels if kernel["bandwidth"] == "median"}
        bandwidths = (
            entry.bandwidth
            for entry in (found.corpus if found else [])
            if entry.kernel in derived and (entry.kernel, entry.bandwidth) not in given
        )
        return {"bandwidth": next(bandwidths, None)}


MEASURE = VendiMeasure()
