"""The findings: the modes with their rows, and where chance puts the largest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from latentscale.modes.difference import expect_mode
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.measures.base import (
    ExpectedScore,
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
)
from latentscale_pipeline.measures.modes.plan import too_few_rows
from latentscale_pipeline.measures.modes.results import Mode, ModeRow, ModesResults
from latentscale_pipeline.measures.modes.tasks import KINDS


def collect_modes(facts: JobFacts, results: Results) -> Findings:
    """Collect the modes, with where chance puts the largest of them."""
    if reason := too_few_rows(facts):
        return Findings(None, reason=reason)
    found = results("modes")
    modes: dict[str, list[Mode]] = {}
    scores: list[Score] = []
    expected: dict[int, ExpectedScore] = {}
    for role in facts.corpora:
        kind = KINDS[role]
        nearest = results(f"modes-rows-{role}")
        rows, cosines = nearest.array("rows"), nearest.array("cosines")
        values, shares = found.array(f"{kind}_values"), found.array(f"{kind}_shares")
        modes[kind] = [
            Mode(
                value=float(value),
                corpus=float(ours),
                reference=float(theirs),
                rows=[
                    ModeRow(row=int(row), cosine=float(cosine))
                    for row, cosine in zip(rows[:, place], cosines[:, place], strict=True)
                ],
            )
            for place, (value, (ours, theirs)) in enumerate(zip(values, shares, strict=True))
        ]
        largest = float(values[0]) if len(values) else 0.0
        tested = found.array(f"{kind}_found")
        known = expect_mode(
            float(tested[0]) if len(tested) else 0.0, found.array(f"{kind}_divided")
        )
        expected[len(scores)] = ExpectedScore(found.values["rows"], known)
        scores.append(
            Score(
                measure="modes",
                of="pair",
                score=kind,
                value=largest,
                lower=largest,
                upper=largest,
                bounds="exact",
                unit="mean squared cosine",
                better="low",
                size_dependent=True,
            )
        )
    return Findings(ModesResults(**modes), tuple(scores), expected=expected)


def name_rows(findings: Findings, corpora: Mapping[Role, Corpus]) -> Findings:
    """Return the findings with ids and labels of their rows."""
    part = findings.section
    if not isinstance(part, ModesResults):
        return findings
    named: dict[str, list[Mode]] = {}
    for role, corpus in corpora.items():
        modes: list[Mode] = getattr(part, KINDS[role])
        numbers = np.unique([row.row for mode in modes for row in mode.rows]).astype(np.int64)
        known = {name: _read(corpus, name, numbers) for name in ("ids", "labels")}
        named[KINDS[role]] = [
            mode.model_copy(update={"rows": [_named(row, known) for row in mode.rows]})
            for mode in modes
        ]
    return replace(findings, section=part.model_copy(update=named))


def _named(row: ModeRow, known: Mapping[str, Mapping[int, str]]) -> ModeRow:
    fields: dict[str, Any] = {"row": row.row, "cosine": row.cosine}
    for name, field in (("ids", "id"), ("labels", "label")):
        if row.row in known[name]:
            fields[field] = known[name][row.row]
    return ModeRow(**fields)


def _read(
    corpus: Corpus, name: Literal["ids", "labels"], rows: np.ndarray[Any, np.dtype[np.int64]]
) -> dict[int, str]:
    """Return the ids or labels of ascending rows; one block of them is in memory at a time."""
    found: dict[int, str] = {}
    first = 0
    for block in corpus.companion_blocks(name):
        low, high = np.searchsorted(rows, [first, first + len(block)])
        for row in rows[low:high]:
            found[int(row)] = str(block[row - first])
        first += len(block)
    return found
