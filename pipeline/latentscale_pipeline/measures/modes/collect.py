"""The findings: the modes with their rows, and where chance puts the largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

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
    named = {KINDS[role]: _named(getattr(part, KINDS[role]), corpora[role]) for role in corpora}
    return replace(findings, section=part.model_copy(update=named))


def _named(modes: Sequence[Mode], corpus: Corpus) -> list[Mode]:
    numbers = np.array([row.row for mode in modes for row in mode.rows], np.int64)
    known = {
        field: corpus.texts_at(name, numbers).tolist()
        for field, name in (("id", "ids"), ("label", "labels"))
        if name in corpus.manifest.arrays
    }
    rows = (
        row.model_copy(update={name: found[place] for name, found in known.items()})
        for place, row in enumerate(row for mode in modes for row in mode.rows)
    )
    return [mode.model_copy(update={"rows": list(islice(rows, len(mode.rows)))}) for mode in modes]
