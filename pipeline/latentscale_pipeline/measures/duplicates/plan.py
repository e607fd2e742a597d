"""Plan the counts of equal rows, the search for nearest rows, groups, and shares."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import JobFacts
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.duplicates.cover import cover_stage
from latentscale_pipeline.measures.duplicates.nearest import count_queries, nearest_stage
from latentscale_pipeline.measures.duplicates.shares import shares_stage
from latentscale_pipeline.measures.shared.duplicate_count import duplicates_stages


def plan_duplicates(section: Duplicates | None, facts: JobFacts) -> list[Stage]:
    """Plan the count of equal rows and, with settings, what needs distances."""
    stages = [stage for role in facts.corpora for stage in duplicates_stages(role, facts)]
    if section is None:
        return stages
    queries = {role: count_queries(section, facts, role) for role in facts.corpora}
    if not all(queries.values()):
        return stages
    stages += [nearest_stage(section, facts, role, count) for role, count in queries.items()]
    stages += [
        cover_stage(section, facts, role)
        for role, count in queries.items()
        if count == facts.corpora[role].n
    ]
    return [*stages, shares_stage(section, facts, queries)]
