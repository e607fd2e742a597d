"""The findings: the labels whose shares are least usual as scores, and all labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from latentscale.estimate import Estimate
from latentscale.sampling.counts import ExpectedCount
from latentscale.sampling.shares import share_error
from latentscale_pipeline.corpus.labelled_rows import MAX_LABELS
from latentscale_pipeline.measures.base import (
    CountedBetween,
    ExpectedScore,
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
)
from latentscale_pipeline.measures.label_shares import counts
from latentscale_pipeline.measures.label_shares.results import LabelShare, LabelSharesResults
from latentscale_pipeline.measures.label_shares.scores import SCORES
from latentscale_pipeline.measures.label_shares.spelling import note_spelling

MIN_ROWS = 20
"""Fewest rows in both corpora together of a label that is compared."""


NAMED = 5
"""Most labels that are scores, each of which then has a share that isn't usual."""

LEVEL = 0.05
"""Probability up to which the share of a further label is a score."""


def collect_label_shares(facts: JobFacts, labelled: Sequence[Role], results: Results) -> Findings:
    """Compare the share of every label in the corpus with that in the reference."""
    counted = {role: results(counts.stage_name(role)).values["rows"] for role in labelled}
    lacking = [role for role in facts.corpora if role not in labelled]
    if None in counted.values():
        return _not_compared(Findings(None, reason=f"there are more than {MAX_LABELS:,} labels"))
    if lacking:
        own = _count(counted["corpus"]) if "corpus" in counted else Findings(None)
        return _not_compared(replace(own, reason=f"the {lacking[0]} has none"))
    if len(counted) == 1:
        return _count(counted["corpus"])
    ours, theirs = counted.values()
    rows, usual_rows = (corpus.n for corpus in facts.corpora.values())
    enough = _enough(ours, theirs)
    if not enough:
        reason = f"no label has {MIN_ROWS} rows in both corpora together"
        return _not_compared(Findings(None, reason=reason))
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
        few=len({*ours, *theirs} - set(enough)),
        few_labels={label: count for label, count in ours.items() if label not in enough},
    )
    unusual = _least_usual(shares)
    return Findings(
        part,
        tuple(_score(label, ours.get(label, 0), rows) for label, _ in unusual),
        expected={place: ExpectedScore(rows, share) for place, (_, share) in enumerate(unusual)},
        remark=note_spelling(ours, theirs),
    )


def _not_compared(found: Findings) -> Findings:
    return replace(found, remark=f"Labels weren't compared: {found.reason}.")


def _count(rows: Mapping[str, int]) -> Findings:
    """Return how frequent labels are; nothing says whether that is usual."""
    enough = [label for label, count in rows.items() if count >= MIN_ROWS]
    if not enough:
        return Findings(None, reason=f"no label has {MIN_ROWS} rows")
    enough.sort(key=lambda label: -rows[label])
    labels = [LabelShare(label=label, rows=rows[label]) for label in enough]
    few = {label: count for label, count in rows.items() if label not in enough}
    return Findings(LabelSharesResults(labels=labels, few=len(few), few_labels=few))


def label_between(
    found: LabelSharesResults,
    usual: LabelSharesResults | None,
    rows: int,
    usual_rows: int,
    asked: Collection[str] | None = (),
) -> Iterator[CountedBetween]:
    """Compare the labels of two corpora; yield those asked for, all, or the least usual."""
    if usual is None:  # the reference, of which the labels of few rows aren't known
        usual = LabelSharesResults(
            labels=[
                LabelShare(label=each.label, rows=each.reference_rows)
                for each in found.labels
                if each.reference_rows is not None
            ],
            few=found.few,
        )
    ours, theirs = (
        {each.label: each.rows for each in part.labels} | (part.few_labels or {})
        for part in (found, usual)
    )
    if asked:
        # Earlier versions stored no labels of few rows.
        need = any if None not in (found.few_labels, usual.few_labels) else all
        known = [label for label in asked if need((label in ours, label in theirs))]
        for label, one in _compare(ours, theirs, known, rows, usual_rows):
            yield CountedBetween("corpus", "share", ExpectedScore(rows, one), label)
        return
    enough = _enough(ours, theirs)
    if found.few_labels is None or usual.few_labels is None:
        # Earlier versions stored no labels of few rows.
        enough = [label for label in enough if label in ours and label in theirs]
    if enough:
        shares = _compare(ours, theirs, enough, rows, usual_rows)
        for label, share in _among(shares) if asked is None else _least_usual(shares):
            yield CountedBetween("corpus", "share", ExpectedScore(rows, share), label)


def _enough(ours: Mapping[str, int], theirs: Mapping[str, int]) -> list[str]:
    """Return the labels that have enough rows to be compared, in order."""
    known = sorted({*ours, *theirs})
    return [label for label in known if ours.get(label, 0) + theirs.get(label, 0) >= MIN_ROWS]


def _among(
    shares: Sequence[tuple[str, ExpectedCount]],
) -> list[tuple[str, ExpectedCount]]:
    """Judge each label among all."""
    return [(label, replace(share, chosen_from=len(shares))) for label, share in shares]


def _least_usual(
    shares: Sequence[tuple[str, ExpectedCount]],
) -> list[tuple[str, ExpectedCount]]:
    """Return the least usual label, and further ones whose shares aren't usual either."""
    first, *further = _among(shares)
    return [first, *(each for each in further[: NAMED - 1] if each[1].p <= LEVEL)]


def _compare(
    ours: Mapping[str, int],
    theirs: Mapping[str, int],
    labels: Sequence[str],
    rows: int,
    usual_rows: int,
) -> list[tuple[str, ExpectedCount]]:
    """Compare the shares of labels; the least usual comes first, of equals the most frequent."""
    shares = {
        label: ExpectedCount(ours.get(label, 0), rows, theirs.get(label, 0), usual_rows)
        for label in labels
    }
    return sorted(
        shares.items(), key=lambda pair: (pair[1].p, -abs(pair[1].z), -theirs.get(pair[0], 0))
    )


def _score(label: str, count: int, rows: int) -> Score:
    return SCORES["share"].score(
        Estimate.exact(count / rows, ""),
        "corpus",
        label=label,
        sampling_error=share_error(count, rows, 1.0),
    )
