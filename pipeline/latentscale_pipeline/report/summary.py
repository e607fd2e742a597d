"""Build the summary at the top of a job's report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from latentscale_pipeline.measures.base import MeasureReport, Topic
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import replicated_scores, score_title
from latentscale_pipeline.results.model import Results, Score
from latentscale_pipeline.views.content import Answer, Fact
from latentscale_pipeline.views.figure import half_width
from latentscale_pipeline.views.formatting import printable, write_number
from latentscale_pipeline.views.glossary import BOUNDS
from latentscale_pipeline.views.repeats import write_repeats
from latentscale_pipeline.views.scores import score_fact, whole_scores


def answers(results: Results) -> list[Answer]:
    """Return the answers to: how big, how diverse, how certain, compared with what."""
    return [
        _how_big(results),
        _how_diverse(results),
        _how_certain(results),
        _compared_with_what(results),
    ]


def conclusions(results: Results) -> list[str]:
    """Return the main findings as sentences."""
    said = [report.conclusions(results.scores) for report in _by_precedence()]
    return [
        _size_said(results),
        *(own[topic] for topic in get_args(Topic) for own in said if topic in own),
    ]


def _reports() -> dict[str, MeasureReport]:
    return {name: measure.report for name, measure in MEASURES.items()}


def _by_precedence() -> list[MeasureReport]:
    return sorted(_reports().values(), key=lambda report: -report.precedence)


def _size_said(results: Results) -> str:
    corpora = results.corpora.by_role()
    corpus, reference = corpora["corpus"], corpora.get("reference")
    beside = (
        ""
        if reference is None
        else f", compared with {reference.n:,} of {reference.d:,} in the reference"
    )
    return f"The corpus has {corpus.n:,} rows of {corpus.d:,} dimensions{beside}."


def _how_big(results: Results) -> Answer:
    facts = []
    for role, corpus in results.corpora.by_role().items():
        notes = [write_repeats(corpus)[2]]
        if corpus.excluded_rows:
            notes.append(f"{corpus.excluded_rows:,} rows left out")
        facts.append(
            Fact(
                f"rows of the {role}",
                f"{corpus.n:,}",
                f"× {corpus.d:,} dimensions",
                ", ".join(notes),
            )
        )
    return Answer("How big?", facts)


def _how_diverse(results: Results) -> Answer:
    facts = [fact for report in _by_precedence() for fact in report.diversity(results)]
    remark = "Counts say how many completely dissimilar items would be as diverse."
    return Answer(
        "How diverse?", facts, remark if facts else "This run asked for no measure of diversity."
    )


def _how_certain(results: Results) -> Answer:
    scores = results.scores
    counts = {bounds: sum(score.bounds == bounds for score in scores) for bounds in BOUNDS}
    kinds = [f"{BOUNDS[bounds].name}: {count}" for bounds, count in counts.items() if count]
    missing = sum(score.value is None for score in scores)
    if missing:
        kinds.append(f"could not be computed: {missing}")
    remarks = [
        report.certainty(found)
        for name, report in _reports().items()
        if (found := results.part(name))
    ]
    return Answer(
        "How certain?",
        [
            Fact(
                "scores, by how their brackets were obtained",
                f"{len(scores)}",
                "",
                ", ".join(kinds),
            ),
            *_widest_bracket(scores),
        ],
        " ".join(remark for remark in remarks if remark),
    )


def _widest_bracket(scores: Sequence[Score]) -> list[Fact]:
    """Return the score with the widest bracket relative to its value."""
    shares = [
        (half_width(*numbers), score)
        for score in scores
        if (numbers := score.numbers) and numbers[0]
    ]
    if not shares:
        return []
    share, score = max(shares, key=lambda pair: pair[0])
    where = f"{printable(score.measure)}: {score_title(score)}, {score.of}"
    return [Fact("widest bracket", f"± {write_number(100 * share, 2)} %", "of the value", where)]


def _compared_with_what(results: Results) -> Answer:
    reference = results.corpora.reference
    if reference is None:
        return Answer(
            "Compared with what?",
            [],
            "Nothing: this run had no reference, so its numbers describe the corpus alone.",
        )
    facts = [
        score_fact(report.scores[name].title, score, report.scores[name].sentence)
        for measure, report in _reports().items()
        for name in report.compared
        for score in whole_scores(results.scores, measure, score=name, of="pair")
    ]
    return Answer("Compared with what?", facts, f"Reference: {printable(reference.uri)}")


def sampling_warning(scores: Sequence[Score]) -> str:
    """Return a warning about scores of which nothing says what chance does; empty without any."""
    count = len(scores)
    if any(score.expected for score in scores):
        scores = [score for score in scores if score.of != "reference" and not score.expected]
    unknown = sum(score.sampling_error is None for score in scores)
    if not unknown:
        return ""
    known = replicated_scores()
    hint = f" Of {known}, replicates with a count and rows measures it." if known else ""
    many = "every score" if unknown == count else f"{unknown} of {count} scores"
    return (
        f"The sampling error of {many} is unknown. Brackets bound the scores of this particular "
        "corpus; another sample from the same source would score differently, so a difference in "
        f"such a score can't be called significant.{hint}"
    )
