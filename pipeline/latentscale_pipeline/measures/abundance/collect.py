"""The findings: kinds of rows that are rarer or more frequent, and where chance puts such rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from latentscale.estimate import Estimate
from latentscale.sampling.divisions import expect_by_divisions
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.measures.abundance.config import AbundanceSection
from latentscale_pipeline.measures.abundance.plan import (
    STAGE,
    drawn_count,
    neighbourhood,
    too_few_rows,
)
from latentscale_pipeline.measures.abundance.results import AbundanceResults, UnusualKind
from latentscale_pipeline.measures.abundance.scores import SCORES
from latentscale_pipeline.measures.abundance.tasks import OWN
from latentscale_pipeline.measures.base import (
    ExpectedScore,
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
)
from latentscale_pipeline.measures.shared.representatives import (
    NamedRow,
    describe_kind,
    name_rows,
)

CLUMPED = "rows of a kind come and go together, so how far fresh samples would move it isn't known"
"""Why the shares have no sampling errors."""


def collect_abundance(section: AbundanceSection, facts: JobFacts, results: Results) -> Findings:
    """Collect the kinds of rows, and where random divisions put the shares of such rows."""
    if few := too_few_rows(facts):
        unknown = [SCORES[name].score(None, "pair", reason=few) for name in OWN]
        return Findings(None, tuple(unknown), reason=few)
    artifact, k = results(STAGE), neighbourhood(section, facts)
    values = artifact.values
    rows = {role: drawn_count(section, facts, role) for role in facts.corpora}
    scores: list[Score] = []
    expected: dict[int, ExpectedScore] = {}
    for place, (name, role) in enumerate(OWN.items()):
        share, count = values[name]["share"], rows[role]
        divided = artifact.array(f"{name}_divided")
        expected[place] = ExpectedScore(count, expect_by_divisions(share, divided, 0.5 / count))
        scores.append(
            SCORES[name].score(
                Estimate.exact(share, "divisions"),
                "pair",
                share_of=count if count < facts.corpora[role].n else None,
                sampling_error_reason=CLUMPED,
            )
        )
    part = AbundanceResults(
        metric=section.metric,
        k=k,
        rows=list(rows.values()),
        share=rows["corpus"] / sum(rows.values()),
        low=values["low"] / k,
        high=values["high"] / k,
        kinds={name: values[name]["kinds"] for name in OWN},
        **{name: [_kind(kind) for kind in values[name]["largest"]] for name in OWN},
    )
    arrays = {
        f"abundance/{role}/{name}": artifact.path(f"{role}_{name}")
        for role in rows
        for name in ("rows", "share", "unusual")
    }
    return Findings(part, tuple(scores), arrays, expected=expected)


def _kind(found: Mapping[str, Any]) -> UnusualKind:
    return UnusualKind(
        rows=found["rows"],
        share=found["share"],
        examples=[NamedRow(row=row) for row in found["examples"]],
    )


def name_kinds(findings: Findings, corpora: Mapping[Role, Corpus]) -> Findings:
    """Return the findings with ids, labels and texts of rows, and the kinds that stand out."""
    part = findings.section
    if not isinstance(part, AbundanceResults):
        return findings
    named: dict[str, list[UnusualKind]] = {}
    for name, role in OWN.items():
        kinds: list[UnusualKind] = getattr(part, name)
        examples = name_rows([kind.examples for kind in kinds], corpora[role])
        named[name] = [
            kind.model_copy(update={"examples": own})
            for kind, own in zip(kinds, examples, strict=True)
        ]
    part = part.model_copy(update=named)
    return replace(findings, section=part, explained=dict(_explained(part)))


def _explained(part: AbundanceResults) -> Iterator[tuple[int, str]]:
    """Say of each score which rows the largest kind has."""
    for place, (name, role) in enumerate(OWN.items()):
        kinds: list[UnusualKind] = getattr(part, name)
        how = "rarer in the corpus" if name == "depleted" else "more frequent in it"
        if kinds:
            yield place, f"Rows like {describe_kind(kinds[0].examples)} of the {role} are {how}."
