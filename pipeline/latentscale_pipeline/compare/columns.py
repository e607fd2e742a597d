"""The scores of several jobs side by side: a row for each score, a column for each job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from latentscale_pipeline.compare.cells import format_notes, is_told_by_samples
from latentscale_pipeline.compare.difference import ComparedScore
from latentscale_pipeline.compare.expectations import label_scores
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.report.scores import full_title, report_of, title_apart
from latentscale_pipeline.report.terminal_summary import headlines
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.scores import format_summarised

MARK, SAMPLED = " *", " †"
"""Stand after a score that differs by more than chance, and after one that samples compared."""

UNKNOWN = {"expected": None, "sampling_error": None}
"""What isn't said of the share of a label that no row has."""

EXPLAINED = {
    MARK: "*: by more than chance, adjusted for the scores of that job",
    SAMPLED: "†: can't be compared as it is; random samples of one size tell, where there are any",
}
"""What the signs mean."""


@dataclass(frozen=True)
class Columns:
    """Scores side by side.

    Attributes
    ----------
    names : sequence of str
        The columns: the baseline, then the jobs; the name of a score is in the column "".
    rows : sequence of dict
        The cells of each score, by column.
    more : int
        How many scores aren't shown.
    """

    names: Sequence[str]
    rows: Sequence[dict[str, str]]
    more: int


def headline_scores(comparison: Comparison) -> tuple[ComparedScore, ...]:
    """Return the scores of summaries and, of others, those that changed significantly.

    A score that only one of the jobs has isn't among them, nor one of a reference that both have.
    """
    first = {id(score) for score in headlines([found.score for found in comparison.scores])}
    return tuple(
        found
        for found in comparison.scores
        if found.shared and (id(found.score) in first or found.significant)
        if found.score.of != "reference" or not comparison.same_reference
    )


def side_by_side(
    comparisons: Sequence[Comparison],
    names: Sequence[str],
    *,
    every_score: bool = False,
    typeset: bool = False,
) -> Columns:
    """Return the scores of several jobs beside those of their baseline.

    Parameters
    ----------
    comparisons : sequence of Comparison
        Of the jobs with one baseline.
    names : sequence of str
        Of the jobs; the last is that of the baseline.
    every_score : bool
        Whether all scores are shown, and not only the headlines of any of the jobs.
    typeset : bool
        Whether numbers are written for web pages.
    """
    *jobs, usual = names
    known = [{_title(each.score): each for each in found.scores} for found in comparisons]
    shown = {
        _title(each.score): each.score
        for found in comparisons
        for each in (found.scores if every_score else headline_scores(found))
    }
    for comparison, scores in zip(comparisons, known, strict=True):
        scores |= _usual_shares(
            comparison, [shown[title] for title in shown.keys() - scores.keys()]
        )

    def written(score: Score | None) -> str:
        return "" if score is None else format_summarised(score, typeset=typeset)

    rows = []
    for title in shown:
        cells = [scores.get(title) for scores in known]
        baseline = next(each.baseline for each in cells if each is not None)
        row = {"": title, usual: written(baseline)}
        for name, each in zip(jobs, cells, strict=True):
            if each is not None:
                by_samples = is_told_by_samples(each) or each.left_out
                # Where p-values aren't known, nothing is adjusted.
                beyond = each.significant and each.p is not None
                signs = [(MARK, beyond), (SAMPLED, by_samples)]
                row[name] = written(each.job) + "".join(sign for sign, is_so in signs if is_so)
        rows.append(row)
    return Columns([usual, *jobs], rows, len(set().union(*known)) - len(shown))


def _usual_shares(found: Comparison, lacking: Sequence[Score]) -> dict[str, ComparedScore]:
    """Return the shares of labels that a comparison doesn't have, none of which differs."""
    shares = {}
    for score in lacking:
        if score.label is None or not report_of(score.measure).of_labels:
            continue
        if None in (each.results.part(score.measure) for each in (found.job, found.baseline)):
            continue
        known = label_scores([score.label], found.job, found.baseline)
        none = score.model_copy(update={"value": 0.0, "lower": 0.0, "upper": 0.0} | UNKNOWN)
        share = known[0] if known else ComparedScore(none, none)
        shares[_title(score)] = replace(share, expected=None, p=1.0)
    return shares


def explain_signs(columns: Columns) -> list[str]:
    """Return what the signs in the cells mean."""
    cells = [cell for row in columns.rows for cell in row.values()]
    return [said for sign, said in EXPLAINED.items() if any(sign in cell for cell in cells)]


def notes_of(comparisons: Sequence[Comparison], names: Sequence[str]) -> list[str]:
    """Return the notes of comparisons, with the job's name unless all have them."""
    notes = [list(format_notes(found)) for found in comparisons]
    shared = set(notes[0]).intersection(*notes[1:])
    own = [
        f"{name}: {note}"
        for name, found in zip(names, notes, strict=False)
        for note in found
        if note not in shared
    ]
    return [*(note for note in notes[0] if note in shared), *own]


def _title(score: Score) -> str:
    return title_apart(score) if score.of == "reference" else full_title(score)
