"""The findings: the modes with their rows, and where chance puts the largest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from latentscale.estimate import Estimate
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
from latentscale_pipeline.measures.modes.config import ModesSection
from latentscale_pipeline.measures.modes.plan import stage_name, too_few_rows
from latentscale_pipeline.measures.modes.results import Mode, ModeRow, ModesResults
from latentscale_pipeline.measures.modes.scores import SCORES
from latentscale_pipeline.measures.modes.tasks import KINDS
from latentscale_pipeline.measures.shared import representatives
from latentscale_pipeline.storage.artifacts import Artifact


def collect_modes(section: ModesSection, facts: JobFacts, results: Results) -> Findings:
    """Collect the modes, with where chance puts the largest of them."""
    if few := too_few_rows(facts):
        unknown = [
            _score(section, kernel, KINDS[role], None, few)
            for kernel in section.kernels
            for role in facts.corpora
        ]
        return Findings(None, tuple(unknown), reason=few)
    modes: dict[str, list[Mode]] = {kind: [] for kind in KINDS.values()}
    scores: list[Score] = []
    expected: dict[int, ExpectedScore] = {}
    bandwidth = None
    for kernel in section.kernels:
        found = results(stage_name(kernel))
        why = found.values.get("reason")
        for role in facts.corpora:
            kind = KINDS[role]
            if why is None:
                nearest = results(stage_name(kernel, f"rows-{role}"))
                modes[kind] += _modes(kernel, kind, found, nearest)
                expected[len(scores)] = _expected(kind, found)
            scores.append(_score(section, kernel, kind, found, why))
        if kernel == "rbf" and why is None:
            bandwidth = found.values["bandwidth"]
    return Findings(ModesResults(bandwidth=bandwidth, **modes), tuple(scores), expected=expected)


def _modes(kernel: str, kind: str, found: Artifact, nearest: Artifact) -> list[Mode]:
    rows, cosines = nearest.array("rows"), nearest.array("cosines")
    values, errors, shares = (
        found.array(f"{kind}_{name}") for name in ("values", "errors", "shares")
    )
    return [
        Mode(
            kernel=kernel,
            value=float(value),
            sampling_error=float(error),
            corpus=float(ours),
            reference=float(theirs),
            rows=[
                ModeRow(row=int(row), cosine=float(cosine))
                for row, cosine in zip(rows[:, place], cosines[:, place], strict=True)
            ],
        )
        for place, (value, error, (ours, theirs)) in enumerate(
            zip(values, errors, shares, strict=True)
        )
    ]


def _expected(kind: str, found: Artifact) -> ExpectedScore:
    tested = found.array(f"{kind}_found")
    known = expect_mode(float(tested[0]) if len(tested) else 0.0, found.array(f"{kind}_divided"))
    return ExpectedScore(found.values["rows"], known)


def _score(
    section: ModesSection, kernel: str, kind: str, found: Artifact | None, reason: str | None
) -> Score:
    """Return the largest mode of a kind, with its interval over random frequencies."""
    estimate = error = None
    if found is not None and reason is None:
        values = found.array(f"{kind}_values")
        largest = float(values[0]) if len(values) else 0.0
        error = float(found.array(f"{kind}_errors")[0]) if len(values) else None
        exact = kernel == "cosine"
        lower, upper = (largest, largest) if exact else map(float, found.array(f"{kind}_interval"))
        # A mode below rounding is none, and the interval of none reaches 0.
        lower, upper = min(lower, largest), max(upper, largest)
        estimate = Estimate(largest, lower, upper, "exact" if exact else "interval95", "")
    return SCORES[kind].score(
        estimate,
        "pair",
        kernel=kernel if kernel == "cosine" else f"rbf {section.bandwidth}",
        reason=reason,
        sampling_error=error,
    )


def name_rows(findings: Findings, corpora: Mapping[Role, Corpus]) -> Findings:
    """Return the findings with ids, labels and texts of their rows, and which rows stand out."""
    part = findings.section
    if not isinstance(part, ModesResults):
        return findings
    named = {}
    for role, corpus in corpora.items():
        modes: Sequence[Mode] = getattr(part, KINDS[role])
        rows = representatives.name_rows([mode.rows for mode in modes], corpus)
        named[KINDS[role]] = [
            mode.model_copy(update={"rows": own}) for mode, own in zip(modes, rows, strict=True)
        ]
    part = part.model_copy(update=named)
    return replace(findings, section=part, explained=dict(_explained(findings, part)))


def _explained(findings: Findings, part: ModesResults) -> Iterator[tuple[int, str]]:
    """Say of each score which rows stand for its mode."""
    for place in findings.expected:
        score = findings.scores[place]
        modes: list[Mode] = getattr(part, score.score)
        own = [mode for mode in modes if (score.kernel or "").startswith(mode.kernel)]
        of = next(role for role, kind in KINDS.items() if kind == score.score)
        if own:
            rows = representatives.describe_kind(own[0].rows)
            title = SCORES[score.score].title.lower()
            yield place, f"The {title} ({score.kernel}) is that of rows like {rows} of the {of}."
