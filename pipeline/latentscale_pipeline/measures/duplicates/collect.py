"""The findings: shares of rows as scores, and the arrays that name the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from latentscale.estimate import Estimate
from latentscale.sampling.shares import (
    ExpectedExceedances,
    ExpectedShare,
    exact_interval,
    expect_share,
    share_error,
    share_interval,
)
from latentscale_pipeline.measures.base import (
    CountedBetween,
    ExpectedScore,
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
)
from latentscale_pipeline.measures.duplicates import cover, nearest, shares
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.duplicates.results import (
    OTHER,
    DuplicatesResults,
    NearestDistances,
    RowsOfCorpus,
    RowsOfPair,
)
from latentscale_pipeline.measures.duplicates.scores import NEAR_ROWS_LEFT_OUT, SCORES
from latentscale_pipeline.measures.shared.duplicate_count import stage_name as count_name
from latentscale_pipeline.storage.artifacts import Artifact

OF_ONE = {"exact duplicates": "exact", "near-duplicates": "near"}
OF_PAIR: dict[str, Role] = {
    "exact leaks": "corpus",
    "leaks": "corpus",
    "outliers": "corpus",
    "not covered": "reference",
}
"""Scores of one corpus, with their counts, and of the pair, with the corpus that they count."""

LONGER = 1.25
"""Ratio of mean lengths of rows from which the verdict mentions it."""

MANY_COPIES = 1.0 / 3.0
"""Share of the reference's rows that repeat an earlier one from which the verdict mentions it."""

LEFT_OUT = {
    "exact duplicates": ("exact-duplicates", "near-duplicates"),
    "near-duplicates": ("near-duplicates",),
    "leaks": ("leaks", "near-duplicates"),
}
"""For which reasons rows may have been left out of a corpus so that a share says nothing."""

NOT_JUDGED = "Rows near others were left out before, so the verdict isn't about all shares of rows"
"""What the verdict says then, before it names them."""

FAR = 0.95
"""Share of the rows of both corpora that lie far from the other one where they share no region."""

LEAKS = ("exact leaks", "leaks")
"""Scores of rows that are also in the reference."""


def collect_duplicates(section: Duplicates | None, facts: JobFacts, results: Results) -> Findings:
    """Collect the shares; without settings, only the numbers of rows that repeat an earlier one."""
    counted = {role: results(count_name(role)).values for role in facts.corpora}
    repeated: dict[Role, Mapping[str, Any]] = {
        role: {"duplicates": values["duplicates"]} for role, values in counted.items()
    }
    lengths = {role: counted[role]["lengths"] / c.n for role, c in facts.corpora.items()}
    remark = _join(_compare_lengths(lengths, facts), _copies_of_reference(counted, facts))
    if section is None:
        return Findings(None, corpora=repeated, remark=remark)
    search = nearest.choose_search(section, facts)
    if search is None:
        reason = nearest.why_not_compared(section, facts)
        missing = f"Near rows and outliers weren't counted: {reason}."
        remark = _join(remark, missing)
        return Findings(None, reason=reason, corpora=repeated, remark=remark)
    counts = results(shares.STAGE).values
    scores = tuple(_scores(facts, counts, search, results))
    expected = dict(_expected(scores, counts, facts)) if facts.samples else {}
    unjudged = [
        SCORES[scores[place].score].title
        for place, known in expected.items()
        if known == NEAR_ROWS_LEFT_OUT
    ]
    if unjudged:
        remark = _join(remark, f"{NOT_JUDGED}: not {'; '.join(unjudged)}.")
    remark = _join(_lie_apart(scores), remark)
    return Findings(
        _part(section, facts, counts, search, results),
        scores,
        dict(_arrays(facts, search, results)),
        corpora=repeated,
        expected=expected,
        remark=remark,
    )


def _join(*remarks: str | None) -> str | None:
    return " ".join(filter(None, remarks)) or None


def _copies_of_reference(counted: Mapping[Role, Any], facts: JobFacts) -> str | None:
    """Say that many rows of the reference are copies, which ranges of chance can't know."""
    if "reference" not in counted or not facts.samples:
        return None
    rows, copies = facts.corpora["reference"].n, counted["reference"]["duplicates"]
    if copies < MANY_COPIES * rows:
        return None
    return (
        f"{copies:,} of the reference's {rows:,} rows repeat an earlier one. What is expected by "
        "chance holds if its source repeats rows in this way by chance; if they were copied, "
        "compare without copies."
    )


def _lie_apart(scores: Sequence[Score]) -> str | None:
    """Ask whether one model made both corpora, where nearly all rows are far from the other one."""
    shares = {each.score: each.value for each in scores if each.of != "reference"}
    far = [shares.get("outliers"), shares.get("not covered")]
    near = shares.get("leaks")
    if any(share is None or share < FAR for share in far) or near is None or near > 1.0 - FAR:
        return None
    return (
        "Nearly all rows of each corpus lie far from the other one. If two models made them, "
        "distances between the two mean nothing: measure each in a job without a reference and "
        "run latentscale compare NEW OLD, or add --pair ids where the items are the same."
    )


def _compare_lengths(mean: Mapping[Role, float], facts: JobFacts) -> str | None:
    """Say that the rows of one corpus are much longer, which most often is a mistake."""
    if len(mean) < 2 or len({corpus.d for corpus in facts.corpora.values()}) > 1:
        return None
    corpus, reference = mean["corpus"], mean["reference"]
    if max(corpus, reference) < LONGER * min(corpus, reference) or not min(corpus, reference):
        return None
    longer, shorter = ("corpus", "reference") if corpus > reference else ("reference", "corpus")
    ratio = max(corpus, reference) / min(corpus, reference)
    times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"
    return (
        f"Rows of the {longer} are {times} times as long as those of the {shorter} on average; "
        "check that both are scaled alike, or both normalised."
    )


def _scores(
    facts: JobFacts, counts: Mapping[str, Any], search: nearest.RowSearch, results: Results
) -> Iterator[Score]:
    for role in facts.corpora:
        rows, whole = counts[role]["rows"], search.finds_all(role, facts)
        missed = _missed(counts[role], role)
        for name, key in OF_ONE.items():
            count = counts[role][key]
            error = share_error(count, rows, shares.ROWS_OF_EVENT)
            bracket = _bracket(count, rows, whole=whole, missed=missed)
            yield SCORES[name].score(
                bracket, role, sampling_error=error, share_of=_share_of(rows, facts, role)
            )
        if whole:
            yield _covered(results(cover.stage_name(role)), rows, missed, role)
    if "pair" in counts:
        for name, counted in OF_PAIR.items():
            field, rows = name.replace(" ", "_"), counts[counted]["rows"]
            bracket = _bracket(
                counts["pair"][field],
                rows,
                whole=search.finds_all(counted, facts),
                missed=_missed(counts[counted], OTHER[counted]) if name in LEAKS else 0.0,
                far=counts["pair"]["settled"].get(field),
            )
            if name not in LEAKS and not search.finds_all("reference", facts):
                bracket = replace(bracket, bounds="estimate")  # all rows would reach farther
            yield SCORES[name].score(bracket, "pair", share_of=_share_of(rows, facts, "corpus"))


def _share_of(rows: int, facts: JobFacts, role: Role) -> int | None:
    return None if rows == facts.corpora[role].n else rows


def _covered(groups: Artifact, rows: int, missed: float, role: Role) -> Score:
    """Return the share of the rows that may go; where near rows are missed, more or fewer may."""
    covered = SCORES["covered"]
    if cover.COVERED not in groups.values:
        return covered.score(None, role, reason=groups.values["reason"])
    count = groups.values[cover.COVERED]
    bracket = _bracket(count, rows, whole=True, missed=missed)
    if missed:
        bracket = replace(bracket, bounds="estimate")
    error = share_error(count, rows, shares.ROWS_OF_EVENT)
    return covered.score(bracket, role, sampling_error=error)


def _missed(counts: Mapping[str, Any], source: str) -> float:
    """Return the largest share of rows that cells may have missed another one near of."""
    check = counts.get(f"checked_{source}")
    if check is None:
        return 0.0
    return exact_interval(check["near"] - check["near_found"], check["rows"])[1]


def _bracket(
    count: int,
    rows: int,
    *,
    whole: bool,
    missed: float = 0.0,
    far: Mapping[str, int] | None = None,
) -> Estimate:
    """Return a share of rows with its bracket: by cells, some near rows may be missing."""
    value = count / rows
    lower, upper = (value, min(1.0, value + missed)) if whole else share_interval(count, rows)
    if far and far["checked"] < far["beyond"]:
        ends = exact_interval(far["confirmed"], far["checked"])
        lower, upper = (far["beyond"] / rows * end for end in ends)
        lower, upper = min(lower, value), max(upper, value)  # the count is a whole number
    return Estimate(value, lower, upper, "exact" if lower == upper else "interval95", "")


def _part(
    section: Duplicates,
    facts: JobFacts,
    counts: Mapping[str, Any],
    search: nearest.RowSearch,
    results: Results,
) -> DuplicatesResults:
    found: dict[str, Any] = {}
    for role in facts.corpora:
        groups = {}
        if search.finds_all(role, facts):
            values = results(cover.stage_name(role)).values
            groups = {
                name: values[name] for name in (cover.DUPLICATE, cover.COVERED) if name in values
            }
        found[role] = RowsOfCorpus(
            rows=counts[role]["rows"],
            exact_duplicates=counts[role]["exact"],
            near_duplicates=counts[role]["near"],
            left_out=list(facts.corpora[role].left_out) or None,
            checked=counts[role].get(f"checked_{role}"),
            checked_across=counts[role].get(f"checked_{OTHER[role]}"),
            **groups,
        )
    if "pair" in counts:
        pair = dict(counts["pair"])
        settled = {f"{name}_settled": far for name, far in pair.pop("settled").items()}
        found["pair"] = RowsOfPair(**pair, **settled)
    for name, place in (("own_distances", "own"), ("reference_distances", "across")):
        if place in counts["distances"]:
            found[name] = NearestDistances(**counts["distances"][place])
    return DuplicatesResults(metric=section.metric, within=section.within, **found)


def _expected(
    scores: tuple[Score, ...], counts: Mapping[str, Any], facts: JobFacts
) -> Iterator[tuple[int, ExpectedScore | str]]:
    """Yield where scores of the corpus and of the pair are expected, or why not, by place.

    A corpus without its near rows has fewer than others, but more than expected are still a
    finding. Of rows near the reference nothing is known if either was cleaned.
    """
    cleaned = set(facts.corpora["corpus"].left_out)
    either = cleaned.union(*(corpus.left_out for corpus in facts.corpora.values()))
    for place, score in enumerate(scores):
        known = counts.get("expected", {}).get(score.score)
        if known is None or score.of == "reference":
            continue
        expectation = (
            ExpectedShare(**known["share"])
            if "share" in known
            else ExpectedExceedances(**known["exceedances"])
        )
        expected = ExpectedScore(known["rows"], expectation)
        if score.score in OF_ONE:
            left_out = _is_fewer(score.score, expected, cleaned)
        else:
            left_out = bool(either.intersection(LEFT_OUT.get(score.score, ())))
        yield place, NEAR_ROWS_LEFT_OUT if left_out else expected


def _is_fewer(name: str, expected: ExpectedScore, left_out: Collection[str]) -> bool:
    """Return whether a corpus has no more rows than expected that were once left out of it."""
    found = expected.expectation
    return bool(set(left_out).intersection(LEFT_OUT[name])) and found.found <= found.centre


def counts_between(
    found: DuplicatesResults, usual: DuplicatesResults, growth: float
) -> Iterator[CountedBetween]:
    """Compare the shares of rows of two corpora, of those whose nearest rows were found.

    ``growth`` is how many times as many rows a corpus has as the usual one.
    """
    for name in OF_ONE:
        field = name.replace("-", "_").replace(" ", "_")
        counts = [getattr(part.corpus, field) for part in (found, usual)]
        rows = [part.corpus.rows for part in (found, usual)]
        each = _between("corpus", name, counts, rows, growth)
        fewer = _is_fewer(name, each.expected, found.corpus.left_out or ())
        yield replace(each, reason=NEAR_ROWS_LEFT_OUT) if fewer else each
    if found.pair is None or usual.pair is None:
        return
    for name, counted in OF_PAIR.items():
        counts = [getattr(part.pair, name.replace(" ", "_")) for part in (found, usual)]
        if None in counts:
            continue
        rows = [getattr(part, counted).rows for part in (found, usual)]
        if not SCORES[name].size_dependent:
            yield _between("pair", name, counts, rows, 1.0)
        else:
            yield _between("pair", name, counts, rows, growth, absent=True)


def _between(
    of: Literal["corpus", "pair"],
    name: str,
    counts: Sequence[int],
    rows: Sequence[int],
    growth: float,
    *,
    absent: bool = False,
) -> CountedBetween:
    """Compare two shares; ``absent`` are those of rows that have no other row near them."""
    share = counts[0] / rows[0]
    usual = counts[1] / rows[1]
    # Rows are near none of n others with a probability whose mean is P; of g n, with one of about
    # P to the power g, by Jensen's inequality at most if g < 1 and at least if g > 1.
    alone = usual if absent else 1.0 - usual
    shifted = max(alone, 1.0 / (rows[1] + 1)) ** growth
    least, most = sorted((alone, shifted)) if absent else sorted((1.0 - alone, 1.0 - shifted))
    # The power raises the error of the usual share, too: as if fewer rows had been counted.
    counted = max(1, round(rows[1] / max(1.0, growth)))
    expected = expect_share(
        share,
        rows[0],
        min(max(share, least), most),
        counted,
        rows_of_event=shares.ROWS_OF_EVENT,
    )
    return CountedBetween(of, name, ExpectedScore(rows[0], expected))


def _arrays(
    facts: JobFacts, search: nearest.RowSearch, results: Results
) -> Iterator[tuple[str, str]]:
    """Yield the paths of the arrays with a value for every row, by name."""
    for role in facts.corpora:
        found = results(search.stage(role))
        for source in nearest.compared_with(facts) or (role,):
            place = "own" if source == role else "other"
            for value in ("row", "distance"):
                path = found.path(f"{source}_{nearest.ALL}_{value}")
                yield f"duplicates/{role}/{place}_nearest_{value}", path
        if not search.finds_all(role, facts):
            yield f"duplicates/{role}/rows", found.path("rows")
        else:
            groups = results(cover.stage_name(role))
            for array in groups.objects:
                yield f"duplicates/{role}/{array}", groups.path(array)
