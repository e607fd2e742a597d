"""What the report says of modes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.modes.results import Mode, ModesResults
from latentscale_pipeline.measures.modes.scores import SCORES
from latentscale_pipeline.measures.shared.representatives import table_cells
from latentscale_pipeline.views.content import Table, table_of
from latentscale_pipeline.views.formatting import format_number

SHOWN_ROWS = 5
"""Rows that stand for a mode in a table."""


class ModesReport(MeasureReport):
    """Kinds of rows that are more frequent in the corpus or in the reference."""

    group = "Coverage"
    title = "Modes: kinds of rows that differ in frequency"
    question = (
        "Which kinds of rows are more frequent in the corpus than in the reference, and which less."
    )
    source = (
        "Zhang, Li and Farnia, An interpretable evaluation of entropy-based novelty of generative "
        "models, ICML 2024"
    )
    scores = SCORES

    def tables(self, found: ModesResults) -> list[Table]:
        """Return the modes of both kinds, with rows that stand for them."""
        kinds = (
            ("More frequent in the corpus: mean squared cosines, with its rows", found.novel),
            ("More frequent in the reference: mean squared cosines, with its rows", found.missing),
        )
        return [
            table_of(
                title,
                _table_rows(modes),
                numeric=("difference", "sampling error", "corpus", "reference"),
            )
            for title, modes in kinds
            if modes
        ]

    def methods(self, found: ModesResults) -> list[tuple[str, str]]:
        """Return what the RBF kernel is made with."""
        if found.bandwidth is None:
            return []
        width = format_number(found.bandwidth)
        return [("modes, rbf", f"random Fourier features, bandwidth {width}")]

    def notes(self, found: ModesResults) -> list[str]:
        """Say how to read the modes."""
        return [
            (
                "Where its score has an expected range, the first mode counts if the score is "
                "outside of it; rows near it show which kind of rows it is. Later modes are "
                "usually chance. Mean squared cosines aren't shares of rows: those of other kinds "
                "add some, so a kind that is gone has one above 0, too."
            )
        ]


def _table_rows(modes: Sequence[Mode]) -> list[dict[str, str]]:
    kernels = {mode.kernel for mode in modes} != {"cosine"}
    places = [
        place
        for _, alike in groupby(modes, lambda mode: mode.kernel)
        for place, _ in enumerate(alike, 1)
    ]
    return [
        {
            "mode": f"{mode.kernel} {place}" if kernels else str(place),
            "difference": format_number(mode.value, 2, typeset=True),
            "sampling error": _error(mode),
            "corpus": format_number(mode.corpus, 3, typeset=True),
            "reference": format_number(mode.reference, 3, typeset=True),
            **table_cells(mode.rows, "nearest rows", SHOWN_ROWS),
        }
        for place, mode in zip(places, modes, strict=True)
    ]


def _error(mode: Mode) -> str:
    return (
        "" if mode.sampling_error is None else format_number(mode.sampling_error, 1, typeset=True)
    )
