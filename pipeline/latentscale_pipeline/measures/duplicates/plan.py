"""Plan the counts of equal rows, the search for nearest rows, groups, and shares."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import JobFacts
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.duplicates.cover import cover_stage
from latentscale_pipeline.measures.duplicates.in_cells import search_stages
from latentscale_pipeline.measures.duplicates.nearest import (
    choose_search,
    compared_with,
    nearest_stage,
)
from latentscale_pipeline.measures.duplicates.shares import shares_stage
from latentscale_pipeline.measures.shared.duplicate_count import duplicates_stages


def plan_duplicates(section: Duplicates | None, facts: JobFacts) -> list[Stage]:
    """Plan the count of equal rows and, with settings, what needs distances."""
    stages = [stage for role in facts.corpora for stage in duplicates_stages(role, facts)]
    if section is None:
        return stages
    search = choose_search(section, facts)
    if search is None:
        return stages
    stages += [
        nearest_stage(section, facts, role, count) for role, count in search.compared.items()
    ]
    if search.in_cells:
        joint = compared_with(facts)
        stages += (
            search_stages(section, facts, joint, "")
            if joint
            else [
                stage
                for role in facts.corpora
                for stage in search_stages(section, facts, (role,), f"-{role}")
            ]
        )
    stages += [
        cover_stage(section, facts, role, search.stage(role))
        for role in facts.corpora
        if search.finds_all(role, facts)
    ]
    return [*stages, shares_stage(section, facts, search)]
