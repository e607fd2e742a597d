"""What the report says of hubness."""

from __future__ import annotations

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.hubness.results import HubnessOfCorpus, HubnessResults
from latentscale_pipeline.measures.hubness.scores import SCORES
from latentscale_pipeline.views.figure import present
from latentscale_pipeline.views.formatting import printable


class HubnessReport(MeasureReport):
    """Rows that are nearest neighbours of very many others."""

    group = "Shape"
    title = "Hubness"
    question = (
        "Are some rows among the nearest neighbours of very many others? A search then returns "
        "them again and again, and hardly ever the antihubs."
    )
    source = (
        "Radovanović, Nanopoulos and Ivanović, JMLR 2010 (hubness, antihubs); Feldbauer et al., "
        "ICBK 2018 (Robin Hood index)"
    )
    scores = SCORES

    def notes(self, found: HubnessResults) -> list[str]:
        """Say to how many rows the numbers belong, and what the largest hub is."""
        notes = [
            (
                "Hubs depend on the number of rows and on k: compare corpora of equally many rows. "
                "`latentscale rows JOB --sort neighbour_of:desc` lists them."
            )
        ]
        for style, part in present(found):
            if 0 < part.rows < part.n:
                notes.append(
                    f"The numbers of the {style.name} are those of {part.rows:,} random rows."
                )
            if part.rows:
                said = (
                    f"The largest hub of the {style.name} is a neighbour of {part.most:,} of "
                    f"{part.rows:,} rows, where {part.k} is the mean."
                )
                notes.append(said)
        return notes

    def methods(self, found: HubnessResults) -> list[tuple[str, str]]:
        """Return which rows were looked up."""
        return [
            (f"hubness, {style.name}", _method(part)) for style, part in present(found) if part.rows
        ]


def _method(part: HubnessOfCorpus) -> str:
    rows = "random rows" if part.rows < part.n else "rows"
    return (
        f"{part.k} nearest of {part.rows:,} {rows} to each other, {printable(part.metric)} distance"
    )
