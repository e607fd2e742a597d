"""The summary at the top of a job's report."""

from __future__ import annotations

from typing import Any, get_args

from latentscale_pipeline.measures.base import MeasureReport, Topic
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import corpus_properties, replicated_scores, score_title
from latentscale_pipeline.views.content import Answer, Fact
from latentscale_pipeline.views.formatting import printable, write_number
from latentscale_pipeline.views.glossary import BOUNDS

Json = dict[str, Any]


def answers(results: Json) -> list[Answer]:
    """Answer how big, how diverse, how certain, and compared with what."""
    return [
        _how_big(results["corpora"]),
        _how_diverse(results),
        _how_certain(results),
        _compared_with_what(results),
    ]


def conclusions(results: Json) -> list[str]:
    """Say in whole sentences what a person in a hurry should take away."""
    said = [report.conclusions(results["scores"]) for report in _by_precedence()]
    return [
        _size_said(results["corpora"]),
        *(own[topic] for topic in get_args(Topic) for own in said if topic in own),
    ]


def _reports() -> list[MeasureReport]:
    return [measure.report() for measure in MEASURES.values()]


def _by_precedence() -> list[MeasureReport]:
    return sorted(_reports(), key=lambda report: -report.precedence)


def _size_said(corpora: Json) -> str:
    corpus, reference = corpora["corpus"], corpora.get("reference")
    beside = (
        ""
        if reference is None
        else f", compared with {reference['n']:,} of {reference['d']:,} in the reference"
    )
    return f"The corpus has {corpus['n']:,} rows of {corpus['d']:,} dimensions{beside}."


def _how_big(corpora: Json) -> Answer:
    facts = []
    for role in ("corpus", "reference"):
        corpus = corpora.get(role)
        if corpus is None:
            continue
        notes = [found.note for found in corpus_properties(corpus)]
        if "excluded_rows" in corpus:
            notes.append(f"{corpus['excluded_rows']:,} rows left out")
        facts.append(
            Fact(
                f"rows of the {role}",
                f"{corpus['n']:,}",
                f"× {corpus['d']:,} dimensions",
                ", ".join(notes),
            )
        )
    return Answer("How big?", facts)


def _how_diverse(results: Json) -> Answer:
    facts = [fact for report in _by_precedence() for fact in report.diversity(results)]
    remark = "Counts say how many completely dissimilar items would be as diverse."
    return Answer(
        "How diverse?", facts, remark if facts else "This run asked for no measure of diversity."
    )


def _how_certain(results: Json) -> Answer:
    scores = results["scores"]
    counts = {bounds: sum(row["bounds"] == bounds for row in scores) for bounds in BOUNDS}
    kinds = [f"{BOUNDS[bounds].name}: {count}" for bounds, count in counts.items() if count]
    missing = sum(row["value"] is None for row in scores)
    if missing:
        kinds.append(f"could not be computed: {missing}")
    facts = [
        Fact("scores, by how their brackets were obtained", f"{len(scores)}", "", ", ".join(kinds))
    ]
    widest = _widest_bracket(scores)
    if widest is not None:
        facts.append(widest)
    remarks = [
        measure.report().certainty(found)
        for name, measure in MEASURES.items()
        if (found := results["measures"].get(name))
    ]
    return Answer("How certain?", facts, " ".join(remark for remark in remarks if remark))


def _widest_bracket(scores: list[Json]) -> Fact | None:
    """Return the score whose bracket is the widest in relation to its value."""
    shares = [
        (max(row["upper"] - row["value"], row["value"] - row["lower"]) / abs(row["value"]), row)
        for row in scores
        if row["value"]
    ]
    if not shares:
        return None
    share, row = max(shares, key=lambda pair: pair[0])
    where = f"{printable(row['measure'])}: {score_title(row)}, {printable(row['of'])}"
    return Fact("widest bracket", f"± {write_number(100 * share, 2)} %", "of the value", where)


def _compared_with_what(results: Json) -> Answer:
    reference = results["corpora"].get("reference")
    if reference is None:
        return Answer(
            "Compared with what?",
            [],
            "Nothing: this run had no reference, so its numbers describe the corpus alone.",
        )
    facts = [fact for report in _reports() for fact in report.comparison(results["scores"])]
    return Answer("Compared with what?", facts, f"Reference: {printable(reference['uri'])}")


def sampling_warning(scores: list[Json]) -> str:
    """Say of how many scores the sampling error is unknown, and what follows; empty if of none."""
    unknown = sum(row["sampling_error"] is None for row in scores)
    if not unknown:
        return ""
    known = replicated_scores()
    hint = f" Of {known}, replicates with a count and rows measures it." if known else ""
    many = "every score" if unknown == len(scores) else f"{unknown} of {len(scores)} scores"
    return (
        f"The sampling error of {many} is unknown. Brackets bound the numbers of this very "
        "corpus; another sample from the same source would score differently, so a difference in "
        f"such a score can't be called significant.{hint}"
    )
