"""What the report says of hubness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.hubness.results import HubnessOfCorpus, HubnessResults
from latentscale_pipeline.views.figure import present
from latentscale_pipeline.views.formatting import printable
from latentscale_pipeline.views.glossary import Definition


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
    scores: ClassVar[Mapping[str, Definition]] = {
        "Robin Hood index": Definition(
            "Hubness, Robin Hood index",
            "Share of the places in all lists of nearest neighbours that must move for all rows to "
            "have equally many: 0 if every row is a neighbour of equally many, near 1 if few rows "
            "are the neighbours of all.",
            headline=True,
            least=0.0,
            most=1.0,
        ),
        "hubness": Definition(
            "Hubness, skewness",
            "Skewness of the number of rows that have a row among their nearest neighbours. Few "
            "hubs decide it, so it varies much between samples.",
        ),
        "antihubs": Definition(
            "Antihubs",
            "Share of rows that are among the nearest neighbours of no other.",
            headline=True,
            least=0.0,
            most=1.0,
        ),
    }

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
