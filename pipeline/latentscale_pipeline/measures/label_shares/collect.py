"""The findings: the label whose share is least usual as a score, and all labels."""

from __future__ import annotations

from collections.abc import Mapping

from latentscale.sampling.shares import ExpectedOfMany, ExpectedShare, expect_share, share_error
from latentscale_pipeline.measures.base import ExpectedScore, Findings, JobFacts, Results, Score
from latentscale_pipeline.measures.label_shares import counts
from latentscale_pipeline.measures.label_shares.results import LabelShare, LabelSharesResults
from latentscale_pipeline.results.model import SHARE_OF_ROWS

LEAST_ROWS = 20
"""Fewest rows in both corpora together of a label that is compared."""


def collect_label_shares(facts: JobFacts, results: Results) -> Findings:
    """Compare the share of every label in the corpus with that in the reference."""
    ours, theirs = (results(counts.stage_name(role)).values["rows"] for role in facts.corpora)
    if ours is None or theirs is None:
        reason = f"there are more than {counts.MOST_LABELS:,} labels"
        return Findings(None, reason=reason)
    known = sorted({*ours, *theirs})
    enough = [label for label in known if ours.get(label, 0) + theirs.get(label, 0) >= LEAST_ROWS]
    if not enough:
        return Findings(None, reason=f"no label has {LEAST_ROWS} rows in both corpora together")
    shares = sorted(_compare(facts, ours, theirs, enough).items(), key=lambda pair: pair[1].p)
    part = LabelSharesResults(
        labels=[
            LabelShare(
                label=label,
                rows=ours.get(label, 0),
                reference_rows=theirs.get(label, 0),
                z=share.z,
                p=share.p,
            )
            for label, share in shares
        ],
        few=len(known) - len(enough),
    )
    label, share = shares[0]
    rows = facts.corpora["corpus"].n
    expected = ExpectedScore(rows, ExpectedOfMany(share, len(enough)))
    return Findings(part, (_score(label, ours.get(label, 0), rows),), expected={0: expected})


def _compare(
    facts: JobFacts, ours: Mapping[str, int], theirs: Mapping[str, int], labels: list[str]
) -> dict[str, ExpectedShare]:
    rows, usual_rows = (corpus.n for corpus in facts.corpora.values())
    return {
        label: expect_share(
            ours.get(label, 0) / rows,
            rows,
            theirs.get(label, 0) / usual_rows,
            usual_rows,
            correction=0.5,
        )
        for label in labels
    }


def _score(label: str, count: int, rows: int) -> Score:
    value = count / rows
    return Score(
        measure="label_shares",
        of="corpus",
        score="share",
        value=value,
        lower=value,
        upper=value,
        bounds="exact",
        unit=SHARE_OF_ROWS,
        better="none",
        label=label,
        sampling_error=share_error(count, rows, 1.0),
        size_dependent=False,
    )
