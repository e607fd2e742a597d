"""The findings: the discrepancy under every kernel, and where chance puts it."""

from __future__ import annotations

from collections.abc import Iterator

from latentscale.estimate import Estimate
from latentscale.mmd.two_sample import Discrepancy
from latentscale_pipeline.measures.base import ExpectedScore, Findings, JobFacts, Results, Score
from latentscale_pipeline.measures.mmd.config import Mmd, MmdKernel
from latentscale_pipeline.measures.mmd.plan import stage_name, too_few_rows
from latentscale_pipeline.measures.mmd.results import DiscrepancyOfPair, MmdResults
from latentscale_pipeline.measures.mmd.scores import SCORES


def collect_mmd(section: Mmd, facts: JobFacts, results: Results) -> Findings:
    """Collect the discrepancies, with where chance puts them."""
    if few := too_few_rows(facts):
        return Findings(None, tuple(_unknown(section, few)), reason=few)
    found: list[DiscrepancyOfPair] = []
    scores: list[Score] = []
    expected: dict[int, ExpectedScore] = {}
    for kernel in section.kernels:
        artifact = results(stage_name(kernel))
        values = artifact.values
        fields = _fields(section, kernel)
        if why := values.get("reason"):
            scores.append(SCORES["mmd"].score(None, "pair", reason=why, **fields))
            continue
        tested = Discrepancy(values["value"], values["sampling_error"], artifact.array("divided"))
        found.append(
            DiscrepancyOfPair(
                kernel=kernel,
                bandwidth=values["bandwidth"],
                p=tested.expected.p,
                divisions=len(tested.divided),
                value=tested.value,
                sampling_error=tested.sampling_error,
                **{name: values[name] for name in ("groups", "rows", "method")},
            )
        )
        expected[len(scores)] = ExpectedScore(values["rows"][0], tested.expected)
        estimate = Estimate(tested.value, values["lower"], values["upper"], values["bounds"], "")
        error = tested.sampling_error
        scores.append(SCORES["mmd"].score(estimate, "pair", sampling_error=error, **fields))
    return Findings(MmdResults(pair=found), tuple(scores), expected=expected)


def _unknown(section: Mmd, reason: str) -> Iterator[Score]:
    for kernel in section.kernels:
        yield SCORES["mmd"].score(None, "pair", reason=reason, **_fields(section, kernel))


def _fields(section: Mmd, kernel: MmdKernel) -> dict[str, str]:
    """Return what tells the score of a kernel from those of others."""
    if kernel == "linear":
        return {"kernel": kernel, "unit": "squared distance"}
    return {"kernel": f"rbf {section.bandwidth}" if kernel == "rbf" else kernel}
