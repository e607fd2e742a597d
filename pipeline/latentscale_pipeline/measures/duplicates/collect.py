"""The findings: shares of rows as scores, and the arrays that name the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from latentscale.sampling.shares import (
    ExpectedExceedances,
    ExpectedShare,
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
    DuplicatesResults,
    RowsOfCorpus,
    RowsOfPair,
)
from latentscale_pipeline.measures.shared.duplicate_count import stage_name as count_name
from latentscale_pipeline.results.model import SHARE_OF_ROWS

OF_ONE = {"exact duplicates": "exact", "near-duplicates": "near"}
OF_PAIR: dict[str, Role] = {"leaks": "corpus", "outliers": "corpus", "not covered": "reference"}
"""Scores of one corpus, with their counts, and of the pair, with the corpus that they count."""

OF_ANY_SIZE = ("leaks", "outliers")
"""Scores that don't depend on the number of rows of the corpus."""


def collect_duplicates(section: Duplicates | None, facts: JobFacts, results: Results) -> Findings:
    """Collect the shares; without settings, only the numbers of rows that repeat an earlier one."""
    repeated: dict[Role, Mapping[str, Any]] = {
        role: {"duplicates": results(count_name(role)).values["duplicates"]}
        for role in facts.corpora
    }
    if section is None:
        return Findings(None, corpora=repeated)
    queries = {role: nearest.count_queries(section, facts, role) for role in facts.corpora}
    if not all(queries.values()):
        return Findings(None, reason=why_not_compared(facts), corpora=repeated)
    counts = results(shares.STAGE).values
    scores = tuple(_scores(facts, counts, queries, results))
    return Findings(
        _part(section, facts, counts, queries, results),
        scores,
        dict(_arrays(facts, queries, results)),
        corpora=repeated,
        expected=dict(_expected(scores, counts)) if facts.samples else {},
    )


def why_not_compared(facts: JobFacts) -> str:
    """Say why the nearest rows weren't found."""
    for role, corpus in facts.corpora.items():
        if corpus.n < 2:
            return f"the {role} has one row, which has no other rows"
    rows = sum(corpus.n for corpus in facts.corpora.values())
    return (
        f"{rows:,} rows have so many pairs that fewer than {nearest.LEAST_ROWS} random rows could "
        "be compared with all; set measures.duplicates.rows to compare that many"
    )


def _fields(name: str, of: str) -> dict[str, Any]:
    return {
        "measure": "duplicates",
        "of": of,
        "score": name,
        "unit": SHARE_OF_ROWS,
        "better": "low",
        "size_dependent": name not in OF_ANY_SIZE,
    }


def _scores(
    facts: JobFacts, counts: Mapping[str, Any], queries: Mapping[Role, int], results: Results
) -> Iterator[Score]:
    for role, corpus in facts.corpora.items():
        rows, whole = counts[role]["rows"], queries[role] == corpus.n
        for name, key in OF_ONE.items():
            yield _score(
                counts[role][key],
                rows,
                whole=whole,
                sampling_error=share_error(counts[role][key], rows, shares.ROWS_OF_EVENT),
                **_fields(name, role),
            )
        if whole:
            covered = results(cover.stage_name(role)).values[cover.COVERED]
            error = share_error(covered, rows, shares.ROWS_OF_EVENT)
            fields = _fields("covered", role)
            yield _score(covered, rows, whole=True, sampling_error=error, **fields)
    if "pair" in counts:
        for name, counted in OF_PAIR.items():
            yield _score(
                counts["pair"][name.replace(" ", "_")],
                counts[counted]["rows"],
                whole=queries[counted] == facts.corpora[counted].n,
                **_fields(name, "pair"),
            )


def _score(count: int, rows: int, *, whole: bool, **fields: Any) -> Score:
    value = count / rows
    lower, upper = (value, value) if whole else share_interval(count, rows)
    bounds = "exact" if whole else "interval95"
    return Score(value=value, lower=lower, upper=upper, bounds=bounds, **fields)


def _part(
    section: Duplicates,
    facts: JobFacts,
    counts: Mapping[str, Any],
    queries: Mapping[Role, int],
    results: Results,
) -> DuplicatesResults:
    found: dict[str, Any] = {}
    for role, corpus in facts.corpora.items():
        groups = {}
        if queries[role] == corpus.n:
            values = results(cover.stage_name(role)).values
            groups = {name: values[name] for name in (cover.DUPLICATE, cover.COVERED)}
        found[role] = RowsOfCorpus(
            rows=counts[role]["rows"],
            exact_duplicates=counts[role]["exact"],
            near_duplicates=counts[role]["near"],
            **groups,
        )
    if "pair" in counts:
        found["pair"] = RowsOfPair(**counts["pair"])
    return DuplicatesResults(metric=section.metric, within=section.within, **found)


def _expected(
    scores: tuple[Score, ...], counts: Mapping[str, Any]
) -> Iterator[tuple[int, ExpectedScore]]:
    """Yield where scores of the corpus and of the pair are expected, by place."""
    for place, score in enumerate(scores):
        known = counts.get("expected", {}).get(score.score)
        if known is not None and score.of != "reference":
            expectation = (
                ExpectedShare(**known["share"])
                if "share" in known
                else ExpectedExceedances(**known["exceedances"])
            )
            yield place, ExpectedScore(known["rows"], expectation)


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
        yield _between("corpus", name, counts, rows, growth)
    if found.pair is None or usual.pair is None:
        return
    for name, counted in OF_PAIR.items():
        counts = [getattr(part.pair, name.replace(" ", "_")) for part in (found, usual)]
        rows = [getattr(part, counted).rows for part in (found, usual)]
        if name in OF_ANY_SIZE:
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
    expected = expect_share(
        share,
        rows[0],
        min(max(share, least), most),
        rows[1],
        rows_of_event=shares.ROWS_OF_EVENT,
    )
    return CountedBetween(of, name, ExpectedScore(rows[0], expected))


def _arrays(
    facts: JobFacts, queries: Mapping[Role, int], results: Results
) -> Iterator[tuple[str, str]]:
    """Yield the paths of the arrays with a value for every row, by name."""
    for role, corpus in facts.corpora.items():
        found = results(nearest.stage_name(role))
        for source in nearest.compared_with(facts) or (role,):
            place = "own" if source == role else "other"
            for value in ("row", "distance"):
                path = found.path(f"{source}_{nearest.ALL}_{value}")
                yield f"duplicates/{role}/{place}_nearest_{value}", path
        if queries[role] < corpus.n:
            yield f"duplicates/{role}/rows", found.path("rows")
        else:
            groups = results(cover.stage_name(role))
            for name in (cover.DUPLICATE, cover.COVERED):
                for array in (f"{name}_rows", f"{name}_by"):
                    yield f"duplicates/{role}/{array}", groups.path(array)
