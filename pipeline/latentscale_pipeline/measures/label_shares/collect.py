"""The findings: the label whose share is least usual as a score, and all labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from latentscale.estimate import Estimate
from latentscale.sampling.shares import ExpectedOfMany, ExpectedShare, expect_share, share_error
from latentscale_pipeline.corpus.labelled_rows import MAX_LABELS
from latentscale_pipeline.measures.base import (
    CountedBetween,
    ExpectedScore,
    Findings,
    JobFacts,
    Results,
    Score,
)
from latentscale_pipeline.measures.label_shares import counts
from latentscale_pipeline.measures.label_shares.results import LabelShare, LabelSharesResults
from latentscale_pipeline.measures.label_shares.scores import SCORES

MIN_ROWS = 20
"""Fewest rows in both corpora together of a label that is compared."""


def collect_label_shares(facts: JobFacts, results: Results) -> Findings:
    """Compare the share of every label in the corpus with that in the reference."""
    found = [results(counts.stage_name(role)).values["rows"] for role in facts.corpora]
    if None in found:
        reason = f"there are more than {MAX_LABELS:,} labels"
        return Findings(None, reason=reason)
    if len(found) == 1:
        return _count(found[0])
    ours, theirs = found
    known = sorted({*ours, *theirs})
    enough = [label for label in known if ours.get(label, 0) + theirs.get(label, 0) >= MIN_ROWS]
    if not enough:
        return Findings(None, reason=f"no label has {MIN_ROWS} rows in both corpora together")
    rows, usual_rows = (corpus.n for corpus in facts.corpora.values())
    shares = _compare(ours, theirs, enough, rows, usual_rows)
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
    expected = ExpectedScore(rows, ExpectedOfMany(share, len(enough)))
    return Findings(part, (_score(label, ours.get(label, 0), rows),), expected={0: expected})


def _count(rows: Mapping[str, int]) -> Findings:
    """Return how frequent labels are; nothing says whether that is usual."""
    enough = [label for label, count in rows.items() if count >= MIN_ROWS]
    if not enough:
        return Findings(None, reason=f"no label has {MIN_ROWS} rows")
    enough.sort(key=lambda label: -rows[label])
    labels = [LabelShare(label=label, rows=rows[label]) for label in enough]
    return Findings(LabelSharesResults(labels=labels, few=len(rows) - len(enough)))


def label_between(
    found: LabelSharesResults, usual: LabelSharesResults, rows: int, usual_rows: int
) -> Iterator[CountedBetween]:
    """Compare the labels of two corpora, and yield the one whose share is least usual."""
    ours, theirs = ({each.label: each.rows for each in part.labels} for part in (found, usual))
    for label in theirs.keys() - ours.keys():
        ours[label] = _at_most(theirs[label] * rows / usual_rows)
    for label in ours.keys() - theirs.keys():
        theirs[label] = _at_most(ours[label] * usual_rows / rows)
    known = sorted(ours)
    if known:
        label, share = _compare(ours, theirs, known, rows, usual_rows)[0]
        expected = ExpectedScore(rows, ExpectedOfMany(share, len(known)))
        yield CountedBetween("corpus", "share", expected, label)


def _at_most(usual: float) -> int:
    """Return the rows of a label that had too few to be named: as many as usual, if it may."""
    return min(MIN_ROWS - 1, round(usual))


def _compare(
    ours: Mapping[str, int],
    theirs: Mapping[str, int],
    labels: Sequence[str],
    rows: int,
    usual_rows: int,
) -> list[tuple[str, ExpectedShare]]:
    """Compare the shares of labels; the least usual comes first."""
    shares = {
        label: expect_share(
            ours.get(label, 0) / rows,
            rows,
            theirs.get(label, 0) / usual_rows,
            usual_rows,
            correction=0.5,
        )
        for label in labels
    }
    return sorted(shares.items(), key=lambda pair: pair[1].p)


def _score(label: str, count: int, rows: int) -> Score:
    return SCORES["share"].score(
        Estimate.exact(count / rows, ""),
        "corpus",
        label=label,
        sampling_error=share_error(count, rows, 1.0),
    )
