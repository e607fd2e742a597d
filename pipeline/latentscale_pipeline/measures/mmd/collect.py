"""The findings: the discrepancy under every kernel, and where chance puts it."""

from __future__ import annotations

from latentscale.estimate import Estimate
from latentscale.mmd.two_sample import Discrepancy
from latentscale_pipeline.measures.base import ExpectedScore, Findings, JobFacts, Results, Score
from latentscale_pipeline.measures.mmd.config import Mmd
from latentscale_pipeline.measures.mmd.plan import stage_name, too_few_rows
from latentscale_pipeline.measures.mmd.results import DiscrepancyOfPair, MmdResults
from latentscale_pipeline.measures.mmd.scores import SCORES


def collect_mmd(section: Mmd, facts: JobFacts, results: Results) -> Findings:
    """Collect the discrepancies, with where chance puts them."""
    if reason := too_few_rows(facts):
        return Findings(None, reason=reason)
    found: list[DiscrepancyOfPair] = []
    scores: list[Score] = []
    expected: dict[int, ExpectedScore] = {}
    for kernel in section.kernels:
        artifact = results(stage_name(kernel))
        values = artifact.values
        label = f"rbf {section.bandwidth}" if kernel == "rbf" else kernel
        fields = {"kernel": label}
        if kernel == "linear":
            fields["unit"] = "squared distance"
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
